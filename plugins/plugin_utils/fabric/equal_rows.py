# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings or failures that differ by their subject alone, such as the tray, as one. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import causes
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import only

Row = TypeVar("Row", bound=Mapping[str, Any])

# Of a longer word, such as the name of another tray, what is equal may not be the tray.
_PART_OF_WORD = re.compile(r"[\w.-]\0|\0[\w-]")


# The first that a row has is its subject.
SUBJECTS = ("tray", "block", "clique", "domain")


def _subject(row: Mapping[str, Any]) -> str:
    return next((key for key in SUBJECTS if row.get(key)), SUBJECTS[0])


def groups(rows: Iterable[Row], keys: Sequence[str], texts: Sequence[str] = ("message",)) -> list[list[Row]]:
    """Rows with equal ``keys``, and equal ``texts`` but for their subject, in the order of the first of each."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        name = row.get(_subject(row)) or ""
        parts = [row[key].replace(name, "\0") if name else row[key] for key in texts]
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
    """The first of equal rows, with all subjects in place of its own."""
    first, key = rows[0], _subject(rows[0])
    names = list(dict.fromkeys(str(row.get(key)) for row in rows))
    if len(names) == 1:
        return {**first}
    return {
        **first,
        "clique": only(row["clique"] for row in rows),
        key: causes.names(names),
        "message": first["message"].replace(first[key], causes.names(names)),
        # A command may have no hostlist.
        "remediation": first.get("remediation", "").replace(first[key], ",".join(names)),
    }
