# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Describe the change from one topology to the other. Pure."""

from __future__ import annotations

from ansible_collections.rackscale.nvlink.plugins.module_utils import hostlist
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import Topology
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.linter import aggregates


def describe(before: Topology | None, after: Topology) -> tuple[list[dict[str, str | None]], list[str]]:
    """The change from one topology to the other: the moves of nodes, and the lines of the diff.

    Nodes that move from one block to the same other one share a line, as a hostlist. Nodes that were in no block and
    are in a new one have that block's line only.
    """
    old_blocks = {block.name: block for block in before.blocks} if before else {}
    new_blocks = {block.name: block for block in after.blocks}
    was = {node: block.name for block in old_blocks.values() for node in block.nodes}
    now = {node: block.name for block in after.blocks for node in block.nodes}
    moves: list[dict[str, str | None]] = []
    nodes_of: dict[tuple[str | None, str | None], list[str]] = {}
    lines: list[str] = []
    for position, block in enumerate(after.blocks):
        if block.name not in old_blocks:
            what = (
                f"{count(len(block.nodes), 'tray')}: {block.hostlist()}"
                if block.nodes
                else "a placeholder without trays"
            )
            lines.append(f"block {block.name}: new at position {position}, {what}")
    for node in [*now, *(node for node in was if node not in now)]:
        source, target = was.get(node), now.get(node)
        if source == target:
            continue
        moves.append({"node": node, "from": source, "to": target})
        if source is not None or target in old_blocks:
            nodes_of.setdefault((source, target), []).append(node)
    for (source, target), nodes in nodes_of.items():
        lines.append(f"{hostlist.fold(nodes)}: {source or '(no block)'} -> {target or '(no block)'}")
    for name, block in old_blocks.items():
        if name not in new_blocks:
            lines.append(f"block {name}: removed")
        elif block.nodes and not new_blocks[name].nodes:
            lines.append(f"block {name}: retired, its position is kept")
    kept = [name for name in new_blocks if name in old_blocks]
    if kept != [name for name in old_blocks if name in new_blocks]:
        lines.append(f"block order: {', '.join(kept[:10])}{' ...' if len(kept) > 10 else ''}")
    if before and before.block_sizes and _levels(before) != _levels(after):
        shown = [",".join(str(size) for size in topology.block_sizes) for topology in (before, after)]
        lines.append(f"block sizes: {shown[0]} -> {shown[1]}")
    return moves, lines


def _levels(topology: Topology) -> tuple[int, frozenset[int]]:
    """The base size and the sizes that have an effect, the only ones that scontrol shows with topology.conf."""
    base = topology.block_sizes[0] if topology.block_sizes else 0
    return base, frozenset(size for size, _names in aggregates(topology, base))
