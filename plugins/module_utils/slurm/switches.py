# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read trees of switches next to the block topology; slurmctld itself refuses a tree that it cannot use. Pure.

Private to this collection; it may change in any release. Python 3.9, standard library only.

A tree is a Topology of kind ``tree`` whose body is that of topology.yaml: {"switches": [{"switch": NAME, "children":
HOSTLIST of switches | "nodes": HOSTLIST}]}.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import Topology, names_of


class Switch(NamedTuple):
    """One switch with its child switches and its nodes, in order."""

    name: str
    children: list[str]
    nodes: list[str]


def of(topology: Topology) -> list[Switch]:
    """The switches of a tree by name; none for another kind."""
    body = topology.body if topology.kind == "tree" and isinstance(topology.body, dict) else {}
    entries = body.get("switches")
    if isinstance(entries, dict):
        entries = [entries]
    rows = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []

    def names(row: dict[str, Any], key: str) -> list[str]:
        return sorted(names_of(str(row.get(key) or "")))

    return sorted(Switch(str(row.get("switch") or ""), names(row, "children"), names(row, "nodes")) for row in rows)
