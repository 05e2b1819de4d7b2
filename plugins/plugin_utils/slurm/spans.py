# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compute what a Slurm job may span: the blocks that topology/block allows, and those that it needs.

Pure. After eval_nodes_block.c of Slurm 24.11 and 26.05, whose rules are the same for jobs without a segment;
tests/integration/test_slurm_prediction.py compares it with real slurmctlds. The cluster is assumed to be idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

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
    base, levels = block_sizes[0], _levels(block_sizes)
    return [_span(counts, base, levels, nodes) for nodes in jobs]


def segments_fit(counts: Sequence[int], nodes: int, segment: int) -> bool:
    """Whether Slurm can place a job with this ``--segment``, each segment inside one block."""
    return nodes % segment == 0 and sum(count // segment for count in counts) >= nodes // segment


@dataclass(frozen=True)
class _Rule:
    """What limits the blocks of a job: it gets blocks of one group of ``step`` consecutive ones.

    Of the group it may use ``limit`` lower blocks of ``below`` consecutive blocks each.
    """

    step: int
    below: int
    limit: int

    @property
    def whole(self) -> bool:
        """Whether the group has no more blocks than the job may use, so that Slurm does not count lower blocks."""
        return self.step == self.below * self.limit


def _levels(sizes: Sequence[int]) -> list[int]:
    """The enabled powers of two above the base, which is always one.

    slurmctld makes no records for levels above the first that covers all blocks, but it schedules with them: blocks
    larger than the base size bring jobs of such levels.
    """
    return sorted({0, *((size // sizes[0]).bit_length() - 1 for size in sizes if size >= sizes[0])})


def _rule(base: int, levels: Sequence[int], nodes: int, blocks: int) -> _Rule:
    target = (-(-nodes // base) - 1).bit_length()
    lower = max((level for level in levels if level < target), default=0)
    upper = next((level for level in levels if level >= target), None)
    return _Rule(max(blocks, 1) if upper is None else 1 << upper, 1 << lower, -(-nodes // (base << lower)))


def _span(counts: Sequence[int], base: int, levels: Sequence[int], nodes: int) -> Span:
    rule = _rule(base, levels, nodes, len(counts))
    largest = sorted(counts, reverse=True)
    needed = next((number for number, trays in enumerate(accumulate(largest), 1) if trays >= nodes), None)
    one = nodes <= base and needed == 1
    segment = None if one else _segment(counts, base, nodes)
    return Span(nodes, rule.limit * rule.below, needed, _starts(counts, rule, nodes), segment)


def _starts(counts: Sequence[int], rule: _Rule, nodes: int) -> bool:
    """Whether the first search of slurmctld finds the trays.

    Where a search met a block without a working tray, 25.11 and later search again, each time with a tray less; of
    30,000 random jobs 6 start only then.
    """
    # Slurm tries one group, the last of those with the fewest trays that have room.
    groups = [counts[at : at + rule.step] for at in range(0, len(counts), rule.step)]
    enough = [group for group in groups if _room(group, rule) >= nodes]
    return bool(enough) and _finds(min(reversed(enough), key=sum), rule, nodes)


def _room(group: Sequence[int], rule: _Rule) -> int:
    """The working trays that Slurm counts in one group."""
    if rule.whole:
        return sum(group)
    # Slurm uses an integer division: an incomplete last lower block does not count where all blocks are one group.
    return sum(sorted(_lower(group, rule)[: rule.step // rule.below], reverse=True)[: rule.limit])


def _lower(group: Sequence[int], rule: _Rule) -> list[int]:
    return [sum(group[at : at + rule.below]) for at in range(0, len(group), rule.below)]


def _finds(group: Sequence[int], rule: _Rule, nodes: int) -> bool:
    """Search a group with room as Slurm does: all of a lower block before the next, giving up at an empty block."""
    if rule.whole or rule.below == 1 or all(group):
        return True
    lower = {at: list(group[at : at + rule.below]) for at in range(0, len(group), rule.below)}
    for _use in range(rule.limit):
        taken = lower.pop(max(lower, key=lambda at: _preference(lower[at], at, nodes)))
        nodes -= sum(taken)
        if nodes <= 0 or not all(taken) or not lower:
            break
    return nodes <= 0


def _preference(lower: Sequence[int], at: int, nodes: int) -> tuple[bool, int, tuple[bool, int, int]]:
    """A lower block that is just large enough comes first, else the largest; then its best block by the same rule."""

    def rank(number: int) -> tuple[bool, int]:
        return (True, -number) if number >= nodes else (False, number)

    best = max((*rank(number), at + offset) for offset, number in enumerate(lower))
    return (*rank(sum(lower)), best)


def _segment(counts: Sequence[int], base: int, nodes: int) -> int | None:
    return next((size for size in range(min(base, nodes), 1, -1) if segments_fit(counts, nodes, size)), None)
