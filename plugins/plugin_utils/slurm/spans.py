# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compute what a Slurm job may span: the blocks that topology/block allows, and those that it needs.

Pure. The cluster is assumed to be idle; module_utils/slurm/placement.py has Slurm's rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.placement import (
    levels_of,
    rule_of,
    segments_fit,
    starts,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import node_states

# A tray in one of these states cannot run jobs.
UNAVAILABLE = frozenset((model.STALE, model.CONFLICT, model.UNPLACED, *node_states.WORDS))


@dataclass(frozen=True)
class Span:
    """A job of ``nodes`` trays on the idle cluster as it is now.

    allowed: the number of blocks of base size that Slurm lets it use; needed: the fewest blocks with as many working
    trays, None where all blocks have too few; starts: whether Slurm can place it without --segment; segment: the
    largest --segment with which Slurm can place it, None where one block can hold it, or only with a segment of 1.
    """

    nodes: int
    allowed: int
    needed: int | None
    starts: bool
    segment: int | None


def usable(fabric: model.Fabric, state: model.State, cluster: str | None = None) -> list[int]:
    """The number of working trays of each block, in order: those that run jobs by works()."""
    counts = []
    for block in fabric.slurm_blocks(cluster):
        counts.append(sum(works(state.trays.get(name)) for name in block.trays))
    return counts


def works(tray: model.TrayState | None) -> bool:
    """Whether a tray can run jobs, by its state; a tray without a state counts as working."""
    return tray is None or (tray["health"] != model.UNHEALTHY and tray["state"] not in UNAVAILABLE)


def sizes_of_interest(counts: Sequence[int], base: int) -> list[int]:
    """The job sizes of the table: powers of two, the base size and its doubles, and all trays."""
    total = sum(counts)
    sizes = {total}
    for start in (1, base):
        size = start
        while 0 < size <= total:
            sizes.add(size)
            size *= 2
    return sorted(size for size in sizes if size > 0)


def spans(counts: Sequence[int], block_sizes: Sequence[int], jobs: Iterable[int]) -> list[Span]:
    """A Span for each job size. counts: working trays of each block in file order; block_sizes: the base first."""
    base, levels = block_sizes[0], levels_of(block_sizes)
    return [_span(counts, base, levels, nodes) for nodes in jobs]


def _span(counts: Sequence[int], base: int, levels: Sequence[int], nodes: int) -> Span:
    rule = rule_of(base, levels, nodes, len(counts))
    largest = sorted(counts, reverse=True)
    needed = next((number for number, trays in enumerate(accumulate(largest), 1) if trays >= nodes), None)
    one = nodes <= base and needed == 1
    segment = None if one else _segment(counts, base, nodes)
    return Span(nodes, rule.limit * rule.below, needed, starts(counts, rule, nodes), segment)


def _segment(counts: Sequence[int], base: int, nodes: int) -> int | None:
    return next((size for size in range(min(base, nodes), 1, -1) if segments_fit(counts, nodes, size)), None)
