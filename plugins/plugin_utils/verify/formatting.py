# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Format failures as lines of text: message, likely cause and next step. Equal failures of several trays are one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils import hostlist
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import natural_sorted
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify.failure import Failure

SHOWN = 40

# Of a longer word, such as the name of another tray, what is equal may not be the tray.
_PART_OF_WORD = re.compile(r"[\w.-]\0|\0[\w-]")
Remedy = Callable[[Failure, Sequence[str]], str]
"""The next step of a failure for these trays."""


def lines(failures: Sequence[Failure], remedy: Remedy | None = None) -> list[str]:
    """Two lines for equal failures, the second with likely cause and next step; the first SHOWN of them only.

    remedy: None where the next step of no code names trays.
    """
    groups = list(_equal(failures))
    formatted = []
    for rows in groups[:SHOWN]:
        first = rows[0]
        step = remedy(first, [tray for row in rows for tray in row["trays"]]) if remedy else first["remediation"]
        formatted.append(f"{first['severity']} {first['layer']} {first['code']}: {message(rows)}")
        formatted.append(f"    likely cause: {first['cause']}; next step: {step}")
    if len(groups) > SHOWN:
        formatted.append(f"{count(sum(map(len, groups[SHOWN:])), 'more failure')}.")
    return formatted


def first_error(failures: Sequence[Failure]) -> str:
    """The message of the first error, with all trays that have it; empty without an error."""
    errors = [row for row in failures if row["severity"] == "error"]
    return next((message(rows) for rows in _equal(errors)), "")


def message(rows: Sequence[Failure]) -> str:
    """The message of equal failures: ``r01t[01-17]: The driver has no IMEX channels.``"""
    text, tray = rows[0]["message"], rows[0]["tray"]
    names = hostlist.fold(natural_sorted(row["tray"] or "" for row in rows))
    return text if len(rows) == 1 or tray is None else text.replace(tray, names)


def _equal(failures: Sequence[Failure]) -> Iterator[list[Failure]]:
    """Failures that differ by their tray alone, in the order of the first of each."""
    groups: dict[tuple[str, ...], list[Failure]] = {}
    for row in failures:
        tray = row["tray"] or ""
        text = row["message"].replace(tray, "\0") if tray else row["message"]
        key = (row["severity"], row["layer"], row["code"], row["cause"], text, row["clique"] or "")
        # A message without its tray may have other text for each, so such a row stays alone.
        is_alone = "\0" not in text or _PART_OF_WORD.search(text)
        groups.setdefault((*key, str(len(groups)) if is_alone else ""), []).append(row)
    yield from groups.values()
