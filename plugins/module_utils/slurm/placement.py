# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which jobs topology/block places on the free trays of its blocks. Pure.

After eval_nodes_block.c of Slurm 24.11 and 26.05, whose rules are the same for jobs without a segment;
tests/integration/test_slurm_prediction.py compares it with real slurmctlds.

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


def segments(counts: Iterable[int], segment: int) -> int:
    """How many segments of so many trays fit on these free trays of each block."""
    return sum(count // segment for count in counts)


def segments_fit(counts: Sequence[int], nodes: int, segment: int) -> bool:
    """Whether Slurm can place a job with this ``--segment``, each segment inside one block."""
    return nodes % segment == 0 and segments(counts, segment) >= nodes // segment


def places(counts: Sequence[int], sizes: Sequence[int], nodes: int, segment: int = 0) -> bool:
    """Whether Slurm places a job on these free trays of each block, in file order.

    sizes: BlockSizes, the base first; empty where no blocks are configured. segment: 0 for none. One above the base is
    refused up to 25.05 and not kept later.
    """
    if not sizes:
        return sum(counts) >= nodes
    if 0 < segment <= sizes[0]:
        return segments_fit(counts, nodes, segment)
    return starts(counts, rule_of(sizes[0], levels_of(sizes), nodes, len(counts)), nodes)


@dataclass(frozen=True)
class Rule:
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


def levels_of(sizes: Sequence[int]) -> list[int]:
    """The enabled powers of two above the base, which is always one.

    slurmctld makes no records for levels above the first that covers all blocks, but it schedules with them: blocks
    larger than the base size bring jobs of such levels.
    """
    return sorted({0, *((size // sizes[0]).bit_length() - 1 for size in sizes if size >= sizes[0])})


def rule_of(base: int, levels: Sequence[int], nodes: int, blocks: int) -> Rule:
    target = (-(-nodes // base) - 1).bit_length()
    lower = max((level for level in levels if level < target), default=0)
    upper = next((level for level in levels if level >= target), None)
    return Rule(max(blocks, 1) if upper is None else 1 << upper, 1 << lower, -(-nodes // (base << lower)))


def starts(counts: Sequence[int], rule: Rule, nodes: int) -> bool:
    """Whether the first search of slurmctld finds the trays.

    Where a search met a block without a working tray, 25.11 and later search again, each time with a tray less; of
    30,000 random jobs 6 start only then.
    """
    # Slurm tries one group, the last of those with the fewest trays that have room.
    groups = [counts[at : at + rule.step] for at in range(0, len(counts), rule.step)]
    enough = [group for group in groups if _room(group, rule) >= nodes]
    return bool(enough) and _finds(min(reversed(enough), key=sum), rule, nodes)


def _room(group: Sequence[int], rule: Rule) -> int:
    """The working trays that Slurm counts in one group."""
    if rule.whole:
        return sum(group)
    # Slurm uses an integer division: an incomplete last lower block does not count where all blocks are one group.
    return sum(sorted(_lower(group, rule)[: rule.step // rule.below], reverse=True)[: rule.limit])


def _lower(group: Sequence[int], rule: Rule) -> list[int]:
    return [sum(group[at : at + rule.below]) for at in range(0, len(group), rule.below)]


def _finds(group: Sequence[int], rule: Rule, nodes: int) -> bool:
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
