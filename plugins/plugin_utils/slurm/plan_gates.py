# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Gates that stop an apply which takes nodes out of running blocks, or changes the topology of other partitions. Pure.

The site overrides a gate by its name.

Private to this collection; it may change in any release.

A gate is one function and a row of the table; its name is the code of its finding, as in plugin_utils/fabric/gates.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, host_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import live as live_changes
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import Topology
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import names

# A folded list up to this length is shown; names that do not fold are summarized.
MAX_HOSTLIST = 120
DEFAULT = "cluster_default_changes"
# The default topology of a topology.conf of switches, which Slurm before 25.05 cannot have next to blocks.
TREE = "the tree of topology.conf"


@dataclass(frozen=True)
class Step:
    """The nodes of each block that runs now and that is planned; only nodes that slurmctld knows count as running.

    bases: the base block size now and as planned; 0 where none of the two is compared. default: the cluster's default
    topology now (empty: none) and as planned. sizes: the block sizes that the site has set in the file (empty: none)
    and the planned ones. split: node -> its clique, where that has several blocks.
    """

    live: dict[str, frozenset[str]]
    planned: dict[str, frozenset[str]]
    placed: frozenset[str]
    running: frozenset[str]
    bases: tuple[int, int]
    default: tuple[str, str]
    sizes: tuple[tuple[int, ...], tuple[int, ...]]
    split: dict[str, str]

    def lost(self, block: str) -> list[str]:
        """The nodes of a running block that would be in no block."""
        return sorted(self.live[block] - self.placed)

    def vanishes(self, block: str) -> bool:
        kept = self.is_renamed(block) or self.is_split(block)
        return bool(self.live[block]) and not self.planned.get(block) and not kept

    def is_split(self, block: str) -> bool:
        """Whether all nodes of a running block are in blocks of one clique that is, or was, split."""
        cliques = {self.split.get(node) for node in self.live[block]}
        return len(cliques) == 1 and None not in cliques

    def is_renamed(self, block: str) -> bool:
        """Whether one new block has all nodes of a running one, and none of another running one."""
        new = (self.planned[name] for name in self.planned.keys() - self.live.keys())
        return any(nodes & self.running == self.live[block] for nodes in new)

    def shrinks(self, block: str) -> bool:
        """Whether a block loses nodes for good. One node that moves to another block is an ordinary replacement."""
        before, after = self.live[block], self.planned.get(block, frozenset())
        gone = 0 if self.is_split(block) or not after else len(before) - len(after)
        return gone > 0 and (bool(self.lost(block)) or gone > 1)


def check(
    live: Topology | None,
    planned: Topology,
    known_nodes: Collection[str],
    override: Collection[str],
    base: bool = False,
    default: tuple[str, str] = ("", ""),
    sizes: tuple[int, ...] = (),
) -> list[HostFinding]:
    """The findings of all gates: errors that stop the apply, and a warning for each one that is overridden.

    live: what runs now, None where no blocks do: then no gate of blocks objects. known_nodes: those that slurmctld has.
    base: whether the smallest block gives the base block size: before 25.05, where the site sets none.
    default: the cluster's default topology before (empty: none that the site has chosen) and after. sizes: those that
    the site has set in the file, not in the variable.
    """
    known = frozenset(known_nodes)
    before = {block.name: known.intersection(block.nodes) for block in (live.blocks if live else ())}
    after = {block.name: frozenset(block.nodes) for block in planned.blocks}
    placed, running = (frozenset[str]().union(*blocks.values()) for blocks in (after, before))
    split = {node: block.clique for block in planned.blocks if block.clique for node in block.nodes}
    bases = (0, 0)
    if base and live and live.block_sizes and planned.block_sizes:
        bases = (live.block_sizes[0], planned.block_sizes[0])
    step = Step(before, after, placed, running, bases, default, (sizes, planned.block_sizes), split)
    found = {name: what for name, gate in _GATES.items() if (what := "; ".join(gate(step)))}
    return _findings(found, override, default[0])


def check_live(undone: str, override: Collection[str]) -> list[HostFinding]:
    """The finding of what a reconfigure would undo, as live.sentence() has it; none where it is empty."""
    return _findings({live_changes.GATE: undone} if undone else {}, override)


def _findings(found: Mapping[str, str], override: Collection[str], default: str = "") -> list[HostFinding]:
    """found: gate -> its objection. default: the cluster's default topology now."""
    names = ",".join(sorted({*found, *override} & set(GATES)))
    case = "default" if set(found) == {DEFAULT} and default != TREE else "gate"
    return [
        host_finding("slurm_gate_overridden", "gate", gate=name, what=what)
        if name in override
        else host_finding(name, case, what=what, gates=names, default=default)
        for name, what in found.items()
    ]


# --- gates ---


def _vanishes(step: Step) -> Iterator[str]:
    gone = [name for name in step.live if step.vanishes(name)]
    if gone:
        nodes = [node for name in gone for node in sorted(step.live[name])]
        lost = [node for name in gone for node in step.lost(name)]
        yield f"All nodes would leave block {summarize(gone)} ({names(nodes, MAX_HOSTLIST)}){_unplaced(lost)}"


def _shrinks(step: Step) -> Iterator[str]:
    smaller = [name for name in step.live if step.shrinks(name)]
    if smaller:
        sizes = (f"{name} would shrink from {len(step.live[name])} to {len(step.planned[name])}" for name in smaller)
        lost = [node for name in smaller for node in step.lost(name)]
        yield f"Block {summarize(sizes, 3)} nodes{_unplaced(lost)}"


def _lose_block(step: Step) -> Iterator[str]:
    # The nodes of a block that vanishes or shrinks are in the sentence of that gate.
    lost = [node for name in step.live if not (step.vanishes(name) or step.shrinks(name)) for node in step.lost(name)]
    if lost:
        whose = "its" if len(lost) == 1 else "their"
        yield f"{count(len(lost), 'node')} would lose {whose} block ({names(lost, MAX_HOSTLIST)})"


def _base_shrinks(step: Step) -> Iterator[str]:
    before, after = step.bases
    if after < before:
        small = [name for name, nodes in step.planned.items() if 0 < len(nodes) < before]
        sizes = f"{before}" if before == after + 1 else f"{after + 1} to {before}"
        yield (
            f"The base block size would shrink from {before} to {after}, since block {summarize(small)} has fewer"
            f" nodes: a job of {sizes} nodes could be spread over blocks, and --segment"
            f" above {after} is refused; min_block_size (variable slurm_topology_min_block_size) leaves such blocks out"
        )


def _default_changes(step: Step) -> Iterator[str]:
    before, after = step.default
    if before and before != after:
        yield f"Partitions without Topology= would use {after} instead of {before}"


def _sizes_change(step: Step) -> Iterator[str]:
    before, after = step.sizes
    if before and before != after:
        given, new = (", ".join(map(str, sizes)) for sizes in step.sizes)
        yield (
            f"The block sizes {given} of the site's file would become {new}: slurm_topology_block_sizes"
            f" [{given}] keeps them"
        )


def _unplaced(nodes: list[str]) -> str:
    return f", and {names(nodes, MAX_HOSTLIST)} would be in no block" if nodes else ""


_GATES = {
    "block_vanishes": _vanishes,
    "block_shrinks": _shrinks,
    "nodes_lose_block": _lose_block,
    "base_shrinks": _base_shrinks,
    DEFAULT: _default_changes,
    "block_sizes_change": _sizes_change,
}
GATES = (*_GATES, live_changes.GATE)
"""The names of all gates."""
