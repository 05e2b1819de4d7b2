# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a Slurm job may span: blocks that topology/block allows it, blocks that it needs with the trays that work now.

Pure. Written after eval_nodes_block.c of Slurm 24.11 and 26.05, whose rules are the same for jobs without a segment;
tests/integration/test_slurm_spans.py asks real slurmctlds. An idle cluster is assumed: who uses what is Slurm's matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model

# A tray in one of these states is not counted as able to work.
AWAY = frozenset((model.STALE, model.CONFLICT, model.UNPLACED))


@dataclass(frozen=True)
class Span:
    """A job of ``nodes`` trays on the idle cluster as it is now.

    allowed: the blocks of base size that Slurm lets it touch; needed: the fewest blocks that have as many working
    trays, None where all together have not; starts: whether Slurm finds a place for it without --segment; segment: the
    largest --segment with which it finds one, None where one block holds it anyway or only a segment of 1 would do.
    """

    nodes: int
    allowed: int
    needed: int | None
    starts: bool
    segment: int | None


def usable(fabric: model.Fabric, state: model.State, cluster: str | None = None) -> list[int]:
    """The trays of each block that can work now, in block order: those that no state calls unhealthy or away."""
    counts = []
    for block in fabric.slurm_blocks(cluster):
        counts.append(sum(works(state.trays.get(name)) for name in block.trays))
    return counts


def works(tray: model.TrayState | None) -> bool:
    """Whether a job can be given a tray, as far as its state tells; one that no state knows counts as working."""
    return tray is None or (tray["health"] != model.UNHEALTHY and tray["state"] not in AWAY)


def sizes_of_interest(counts: Sequence[int], base: int, more: Iterable[int] = ()) -> list[int]:
    """Job sizes worth a row: powers of two, the base and its doubles, everything, and the site's own."""
    total = sum(counts)
    sizes = {total, *more}
    for start in (1, base):
        size = start
        while 0 < size <= total:
            sizes.add(size)
            size *= 2
    return sorted(size for size in sizes if size > 0)


def spans(counts: Sequence[int], block_sizes: Sequence[int], jobs: Iterable[int]) -> list[Span]:
    """A Span for each job size; counts: working trays a block in file order, block_sizes: the base first."""
    base = block_sizes[0]
    levels = _levels(base, block_sizes, len(counts))
    return [_span(counts, base, levels, nodes) for nodes in jobs]


def _levels(base: int, sizes: Sequence[int], blocks: int) -> list[int]:
    """The enabled powers of two above the base, which is always one, up to the first that covers all blocks."""
    powers = sorted({0, *((size // base).bit_length() - 1 for size in sizes if size >= base)})
    covering = next((power for power in powers if 1 << power >= blocks), powers[-1])
    return [power for power in powers if power <= covering]


def _span(counts: Sequence[int], base: int, levels: Sequence[int], nodes: int) -> Span:
    wanted = (-(-nodes // base) - 1).bit_length()
    lower = max((level for level in levels if level < wanted), default=0)
    upper = next((level for level in levels if level >= wanted), None)
    most = -(-nodes // (base << lower))
    step = len(counts) or 1 if upper is None else 1 << upper
    starts = any(_room(counts[at : at + step], step, 1 << lower, most) >= nodes for at in range(0, len(counts), step))
    largest = sorted(counts, reverse=True)
    needed = next((number for number in range(1, len(counts) + 1) if sum(largest[:number]) >= nodes), None)
    one = nodes <= base and needed == 1
    return Span(nodes, most << lower, needed, starts, None if one else _segment(counts, base, nodes))


def _room(counts: Sequence[int], step: int, below: int, most: int) -> int:
    """The working trays that Slurm counts in one block of ``step`` base blocks, made of groups of ``below`` of them."""
    if step == below * most:
        return sum(counts)
    groups = [sum(counts[at : at + below]) for at in range(0, len(counts), below)]
    # Slurm divides without rest: a last group that is not whole does not count where all blocks are one.
    return sum(sorted(groups[: step // below], reverse=True)[:most])


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
    """The rows for one Slurm cluster of a fabric; sizes chosen as the newest Slurm would have them where none is given.

    Empty where no tray can work.
    """
    counts = usable(fabric, state, cluster)
    size = max((len(block.trays) for block in fabric.blocks(cluster)), default=0)
    sizes = tuple(block_sizes) or ((size,) if size else ())
    if not sizes or not sum(counts):
        return []
    return spans(counts, sizes, sizes_of_interest(counts, sizes[0], jobs))
