# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings or failures of several trays that differ by their tray alone, as one. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import causes

Row = TypeVar("Row", bound=Mapping[str, Any])

# Of a longer word, such as the name of another tray, what is equal may not be the tray.
_PART_OF_WORD = re.compile(r"[\w.-]\0|\0[\w-]")


def groups(rows: Iterable[Row], keys: Sequence[str], texts: Sequence[str] = ("message",)) -> list[list[Row]]:
    """Rows with equal values of ``keys``, and equal ``texts`` but for their tray, in the order of the first of each."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        tray = row["tray"] or ""
        parts = [row[key].replace(tray, "\0") if tray else row[key] for key in texts]
        alone = len(found) if any(map(_PART_OF_WORD.search, parts)) else None
        found.setdefault((alone, *parts, *(row[key] for key in keys)), []).append(row)
    return [*found.values()]


def message(rows: Sequence[Mapping[str, Any]]) -> str:
    """The message of equal rows: ``r01t[01-17]: The driver has no IMEX channels.``"""
    text, tray = rows[0]["message"], rows[0]["tray"]
    if len(rows) == 1 or tray is None:
        return str(text)
    names = causes.names(row["tray"] for row in rows)
    return str(text.replace(tray, names) if tray in text else f"{names}: {text}")


def joined(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The first of equal rows, with all trays in place of its own."""
    first, trays = rows[0], list(dict.fromkeys(row["tray"] for row in rows))
    if len(trays) == 1:
        return {**first}
    return {
        **first,
        "tray": causes.folded(trays),
        "clique": first["clique"] if len({row["clique"] for row in rows}) == 1 else None,
        "message": first["message"].replace(first["tray"], causes.names(trays)),
        # A command may have no hostlist.
        "remediation": first.get("remediation", "").replace(first["tray"], ",".join(trays)),
    }
