# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare two topologies, and describe the change from one to the other. Pure.

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import rules, switches
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import YAML, Topology
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.topology.surveying import Survey
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count

MAX_NEW = 100
"""The number of new trays up to which the diff has a line for each."""


def difference(desired: Topology, observed: Survey) -> str:
    """How the running topology differs from the desired one, in a clause; empty where it does not."""
    running = observed.running_topology(desired.name)
    if running is None or (observed.style == YAML and not observed.running):
        return f"no block topology {desired.name} runs"
    names, running_names = [block.name for block in desired.blocks], [block.name for block in running.blocks]
    if names != running_names:
        return f"its blocks are {', '.join(running_names[:5])}{' ...' if len(running_names) > 5 else ''}"
    for block, other in zip(desired.blocks, running.blocks):
        if set(block.nodes) != set(other.nodes):
            return (
                f"block {block.name} runs with {len(set(other.nodes))} nodes that are not its {len(set(block.nodes))}"
            )
    if observed.running:
        if desired.block_sizes != running.block_sizes:
            return f"its block sizes are {', '.join(str(size) for size in running.block_sizes)}"
        if desired.cluster_default != running.cluster_default:
            return f"it is {'' if running.cluster_default else 'not '}the cluster's default"
        return ""
    base = desired.block_sizes[0] if desired.block_sizes else len(set(desired.blocks[0].nodes)) if desired.blocks else 0
    shown_base = next((line.size for line in observed.shown if not line.aggregated), None)
    if shown_base != base:
        return f"its base block size is {shown_base}"
    # 24.05 does not print aggregated blocks.
    if observed.version >= (24, 11, 0):
        nodes = {block.name: set(block.nodes) for block in desired.blocks}
        expected = [
            (size, sorted(set().union(*(nodes[name] for name in group))))
            for size, group in rules.aggregates(desired, base)
        ]
        shown = [(line.size or 0, sorted(set(line.nodes))) for line in observed.shown if line.aggregated]
        if sorted(expected) != sorted(shown):
            return "its aggregated blocks do not match the block sizes"
    return ""


def other_difference(desired: Sequence[Topology], running: Sequence[Topology]) -> str:
    """How the other running topologies differ from the desired ones, in a clause; empty where they do not."""
    for other in desired:
        known = next((known for known in running if known.name == other.name), None)
        if known is None:
            return f"no topology {other.name} runs"
        if known.kind != other.kind:
            return f"the topology {other.name} is of kind {known.kind}"
        if switches.of(known) != switches.of(other):
            return f"the tree {other.name} has other switches"
        if known.cluster_default != other.cluster_default:
            return f"the topology {other.name} is {'' if known.cluster_default else 'not '}the cluster's default"
    return ""


def leftover(desired: Sequence[Topology], running: Sequence[Topology]) -> str:
    """Which running topology is not desired, in a clause; empty where there is none."""
    names = {topology.name for topology in desired}
    return next((f"the topology {known.name} still runs" for known in running if known.name not in names), "")


def describe(before: Topology | None, after: Topology) -> tuple[list[dict[str, str | None]], list[str]]:
    """The change from one topology to the other: the moves of nodes, and the lines of the diff.

    The trays of new blocks have a line each up to MAX_NEW of them; beyond that each new block has one line, so that
    the first apply of a large fabric stays readable.
    """
    old_blocks = {block.name: block for block in before.blocks} if before else {}
    new_blocks = {block.name: block for block in after.blocks}
    was = {node: block.name for block in old_blocks.values() for node in block.nodes}
    now = {node: block.name for block in after.blocks for node in block.nodes}
    many = sum(1 for node, name in now.items() if node not in was and name not in old_blocks) > MAX_NEW
    moves: list[dict[str, str | None]] = []
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
        if source is None and target not in old_blocks and many:
            continue  # in the line of its new block
        lines.append(f"{node}: {source or '(no block)'} -> {target or '(no block)'}")
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
    return base, frozenset(size for size, _names in rules.aggregates(topology, base))
