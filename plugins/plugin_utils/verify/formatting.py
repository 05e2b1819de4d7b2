# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Format failures as lines of text: message, likely cause and next step. Equal failures of several trays are one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import equal_rows
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify.failure import Failure

SHOWN = 40

_EQUAL = ("severity", "layer", "code", "cause", "action", "clique")
Remedy = Callable[[Failure, Sequence[str]], str]
"""The next step of a failure for these trays."""


def lines(failures: Sequence[Failure], remedy: Remedy | None = None) -> list[str]:
    """Two lines for equal failures, the second with likely cause, if one is known, and next step; the first SHOWN only.

    remedy: None where the next step of no code names trays.
    """
    groups = equal_rows.groups(failures, _EQUAL)
    formatted = []
    for rows in groups[:SHOWN]:
        first = rows[0]
        step = remedy(first, [tray for row in rows for tray in row["trays"]]) if remedy else first["remediation"]
        formatted.append(f"{first['severity']} {first['layer']} {first['code']}: {equal_rows.message(rows)}")
        cause = f"likely cause: {first['cause']}; " if first["cause"] else ""
        formatted.append(f"    {cause}next step: {step}")
    if len(groups) > SHOWN:
        formatted.append(f"{count(sum(map(len, groups[SHOWN:])), 'more failure')}.")
    return formatted


def first_error(failures: Sequence[Failure]) -> str:
    """The message of the first error, with all trays that have it; empty without an error."""
    errors = [row for row in failures if row["severity"] == "error"]
    return next((equal_rows.message(rows) for rows in equal_rows.groups(errors, _EQUAL)), "")
