# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare what slurmctld runs with what it is to run. Pure.

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import switches
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import (
    YAML,
    Block,
    ShownBlock,
    Topology,
    documents,
    topologies_of,
)


@dataclass(frozen=True)
class Running:
    """What slurmctld runs: the topologies of its topology.yaml, ``scontrol show topology`` and ``show config``."""

    topologies: Sequence[Topology] = ()
    shown: Sequence[ShownBlock] = ()
    config: Mapping[str, str] = field(default_factory=dict)

    def blocks(self, name: str) -> Topology | None:
        """The running block topology of that name; for topology.conf that of ``scontrol show topology``."""
        if self.topologies:
            return next((known for known in self.topologies if known.name == name and known.kind == "block"), None)
        return from_shown(self.shown, name)


@dataclass(frozen=True)
class Expected:
    """What slurmctld is to run.

    topology: its blocks. made: the other topologies that this collection writes. names: those of all topologies of the
    file, none where others may run as well. aggregated: size and nodes of each aggregated block that topology.conf
    gives, None where slurmctld does not print them. settings: key -> words of which the running value must have one.
    """

    style: str
    topology: Topology
    made: tuple[Topology, ...] = ()
    names: tuple[str, ...] = ()
    aggregated: tuple[tuple[int, tuple[str, ...]], ...] | None = None
    settings: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """As JSON; ``of()`` is the inverse."""
        return {**vars(self), "topology": documents([self.topology]), "made": documents(self.made)}

    def block_of(self) -> dict[str, str]:
        """Node -> its block."""
        return {node: block.name for block in self.topology.blocks for node in block.nodes}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Expected:
        (topology,) = topologies_of(document["topology"])
        aggregated = document["aggregated"]
        return cls(
            document["style"],
            topology,
            tuple(topologies_of(document["made"])),
            tuple(document["names"]),
            None if aggregated is None else tuple((size, tuple(nodes)) for size, nodes in aggregated),
            document["settings"],
        )

    def differs(self, running: Running) -> str:
        """How the running Slurm differs, in a clause; empty where it does not."""
        problem = self._blocks_differ(running) or self._others_differ(running)
        if not problem and self.names:
            more = [known.name for known in running.topologies if known.name not in self.names]
            problem = f"the topology {more[0]} still runs" if more else ""
        for key, words in self.settings.items():
            value = running.config.get(key.lower(), "")
            if not problem and not has_word(value, words):
                problem = f"{key} is {value or 'unset'}"
        return problem

    def _blocks_differ(self, observed: Running) -> str:
        desired, running = self.topology, observed.blocks(self.topology.name)
        if running is None or (self.style == YAML and not observed.topologies):
            return f"no block topology {desired.name} runs"
        names, running_names = [block.name for block in desired.blocks], [block.name for block in running.blocks]
        if names != running_names:
            return f"its blocks are {', '.join(running_names[:5])}{' ...' if len(running_names) > 5 else ''}"
        for block, other in zip(desired.blocks, running.blocks):
            if set(block.nodes) != set(other.nodes):
                number, wanted = len(set(other.nodes)), len(set(block.nodes))
                return f"block {block.name} runs with {number} nodes that are not its {wanted}"
        if observed.topologies:
            if desired.block_sizes != running.block_sizes:
                return f"its block sizes are {', '.join(str(size) for size in running.block_sizes)}"
            if desired.cluster_default != running.cluster_default:
                return f"it is {'' if running.cluster_default else 'not '}the cluster's default"
            return ""
        base = desired.block_sizes[0] if desired.block_sizes else 0
        if not base and desired.blocks:
            base = len(set(desired.blocks[0].nodes))
        shown_base = next((line.size for line in observed.shown if not line.aggregated), None)
        if shown_base != base:
            return f"its base block size is {shown_base}"
        if self.aggregated is not None:
            shown = [(line.size or 0, sorted(set(line.nodes))) for line in observed.shown if line.aggregated]
            if sorted((size, sorted(nodes)) for size, nodes in self.aggregated) != sorted(shown):
                return "its aggregated blocks do not match the block sizes"
        return ""

    def _others_differ(self, running: Running) -> str:
        for other in self.made:
            known = next((known for known in running.topologies if known.name == other.name), None)
            if known is None:
                return f"no topology {other.name} runs"
            if known.kind != other.kind:
                return f"the topology {other.name} is of kind {known.kind}"
            if switches.of(known) != switches.of(other):
                return f"the tree {other.name} has other switches"
            if known.cluster_default != other.cluster_default:
                return f"the topology {other.name} is {'' if known.cluster_default else 'not '}the cluster's default"
        return ""


def are_apart(nodes: Iterable[str], block_of: Mapping[str, str]) -> bool:
    """Whether the nodes of a job are not all in one block. block_of: node -> its block."""
    blocks = {block_of.get(node, "") for node in nodes}
    return len(blocks) > 1 or "" in blocks


def has_word(value: str, words: Sequence[str]) -> bool:
    """Whether a value of slurm.conf, a list in any case, has one of the words in lower case."""
    return any(word.strip() in words for word in value.lower().split(","))


def from_shown(shown: Sequence[ShownBlock], name: str = "default") -> Topology | None:
    """A topology from the lines of ``scontrol show topology``: its sizes are those of which a block exists."""
    blocks = tuple(Block(line.name, line.nodes) for line in shown if not line.aggregated)
    if not blocks:
        return None
    sizes = sorted({line.size for line in shown if line.size})
    return Topology(name=name, blocks=blocks, block_sizes=tuple(sizes))
