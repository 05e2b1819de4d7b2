# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compute what a Slurm job may span: the blocks that topology/block allows, and those that it needs.

Pure. From eval_nodes_block.c of Slurm 24.11 and 26.05, whose rules are the same for jobs without a segment;
tests/integration/test_slurm_spans.py compares it with real slurmctlds. The cluster is assumed to be idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model

# A tray in one of these states cannot run jobs.
UNAVAILABLE = frozenset((model.STALE, model.CONFLICT, model.UNPLACED))


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
    """The number of working trays of each block, in order: not unhealthy, stale, in conflict or unplaced."""
    counts = []
    for block in fabric.slurm_blocks(cluster):
        counts.append(sum(works(state.trays.get(name)) for name in block.trays))
    return counts


def works(tray: model.TrayState | None) -> bool:
    """Whether a tray can run jobs, by its state; a tray without a state counts as working."""
    return tray is None or (tray["health"] != model.UNHEALTHY and tray["state"] not in UNAVAILABLE)


def sizes_of_interest(counts: Sequence[int], base: int, more: Iterable[int] = ()) -> list[int]:
    """The job sizes of the table: powers of two, the base size and its doubles, all trays, and those in ``more``."""
    total = sum(counts)
    sizes = {total, *more}
    for start in (1, base):
        size = start
        while 0 < size <= total:
            sizes.add(size)
            size *= 2
    return sorted(size for size in sizes if size > 0)


def spans(counts: Sequence[int], block_sizes: Sequence[int], jobs: Iterable[int]) -> list[Span]:
    """A Span for each job size. counts: working trays of each block in file order; block_sizes: the base first."""
    base = block_sizes[0]
    levels = _levels(base, block_sizes, len(counts))
    return [_span(counts, base, levels, nodes) for nodes in jobs]


def _levels(base: int, sizes: Sequence[int], blocks: int) -> list[int]:
    """The enabled powers of two above the base, which is always one, up to the first that covers all blocks."""
    powers = sorted({0, *((size // base).bit_length() - 1 for size in sizes if size >= base)})
    covering = next((power for power in powers if 1 << power >= blocks), powers[-1])
    return [power for power in powers if power <= covering]


def _span(counts: Sequence[int], base: int, levels: Sequence[int], nodes: int) -> Span:
    target = (-(-nodes // base) - 1).bit_length()
    lower = max((level for level in levels if level < target), default=0)
    upper = next((level for level in levels if level >= target), None)
    limit = -(-nodes // (base << lower))
    step = len(counts) or 1 if upper is None else 1 << upper
    starts = any(_room(counts[at : at + step], step, 1 << lower, limit) >= nodes for at in range(0, len(counts), step))
    largest = sorted(counts, reverse=True)
    needed = next((number for number in range(1, len(counts) + 1) if sum(largest[:number]) >= nodes), None)
    one = nodes <= base and needed == 1
    return Span(nodes, limit << lower, needed, starts, None if one else _segment(counts, base, nodes))


def _room(counts: Sequence[int], step: int, below: int, limit: int) -> int:
    """The working trays that Slurm counts in ``step`` base blocks, in groups of ``below`` of them."""
    if step == below * limit:
        return sum(counts)
    groups = [sum(counts[at : at + below]) for at in range(0, len(counts), below)]
    # Slurm uses an integer division: an incomplete last group does not count where all blocks are one group.
    return sum(sorted(groups[: step // below], reverse=True)[:limit])


def _segment(counts: Sequence[int], base: int, nodes: int) -> int | None:
    for size in range(min(base, nodes), 1, -1):
        if nodes % size == 0 and sum(count // size for count in counts) >= nodes // size:
            return size
    return None


def table(
    fabric: model.Fabric,
    state: model.State,
    cluster: str | None,
    block_sizes: Sequence[int] = (),
    jobs: Iterable[int] = (),
) -> list[Span]:
    """The rows for one Slurm cluster of a fabric; without block_sizes those of the newest Slurm.

    Empty where no tray works.
    """
    counts = usable(fabric, state, cluster)
    size = max((len(block.trays) for block in fabric.blocks(cluster)), default=0)
    sizes = tuple(block_sizes) or ((size,) if size else ())
    if not sizes or not sum(counts):
        return []
    return spans(counts, sizes, sizes_of_interest(counts, sizes[0], jobs))
