# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role imex has done: one line for trays with equal changes, and last one for all. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import fold
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import equal, natural_sorted
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex.rows import Stored

# Of one tray; the others are counted. A first installation has about as many.
_MAX_CHANGES = 12


def lines(hosts: Collection[str], failed: Collection[str], rows: Iterable[Stored], check: bool) -> list[str]:
    """hosts: of the play, those that failed included. rows: of the phases that change a tray, in their order."""
    changes: dict[str, list[str]] = {}
    blocked = set()
    for row in rows:
        if row.get("changes"):
            changes.setdefault(row["host"], []).extend(row["changes"])
        if row.get("blocked") and row["host"] not in failed:
            blocked.add(row["host"])
    hosts_of = equal((tuple(made), host) for host, made in changes.items())
    verb = "would change" if check else "changed"
    last = f"IMEX: {count(len(hosts), 'tray')}, {len(changes) or 'none'} {verb}"
    last += f"; {len(failed)} failed: {fold(natural_sorted(failed))}" if failed else ""
    last += (
        f"; {len(blocked)} not changed, as not all of the clique can: {fold(natural_sorted(blocked))}"
        if blocked
        else ""
    )
    groups = ((fold(natural_sorted(group)), made) for made, group in hosts_of.items())
    made_by = [f"{names}: {summarize(made, _MAX_CHANGES)}" for names, made in groups]
    return [*made_by, f"{last}."]
