# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How large a job can be: what segments of each size reach with the trays that work now. Pure.

Slurm places a job with ``--segment=S`` in groups of S trays, each group inside one block, so a block with one tray less
than S holds none. ``spans`` says what a job may span; this says how many trays jobs can have at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import spans


@dataclass(frozen=True)
class Reach:
    """What segments of ``segment`` trays reach: how many blocks hold one, and the trays of the largest job of them."""

    segment: int
    blocks: int
    trays: int


@dataclass(frozen=True)
class Capacity:
    """Of one Slurm cluster (its name is empty where there is but one).

    working: the trays that work now; largest: the most in one block; reaches: by segment, rising; advice: which segment
    to ask for, a sentence, or nothing where there is no choice; jobs: what jobs may span.
    """

    cluster: str
    working: int
    largest: int
    reaches: tuple[Reach, ...]
    advice: str
    jobs: tuple[spans.Span, ...]


def capacities(fabric: model.Fabric, state: model.State) -> list[Capacity]:
    """One for each Slurm cluster in which a tray works."""
    found = []
    for name in fabric.slurm_clusters or [""]:
        counts = spans.usable(fabric, state, name or None)
        if not sum(counts):
            continue
        size = max(len(block.trays) for block in fabric.blocks(name or None))
        jobs = spans.table(fabric, state, name or None)
        reaches = tuple(reach(counts, segment) for segment in _segments(size))
        found.append(Capacity(name, sum(counts), max(counts), reaches, advice(counts, size), tuple(jobs)))
    return found


def reach(counts: Sequence[int], segment: int) -> Reach:
    """What segments of a size reach; counts: working trays a block."""
    held = [count // segment for count in counts]
    return Reach(segment, sum(number > 0 for number in held), sum(held) * segment)


def advice(counts: Sequence[int], size: int) -> str:
    """Whether to ask for whole blocks of ``size`` trays or for the power of two below, as 18 or 16 of an NVL72 rack."""
    smaller = _power_below(size)
    if smaller in (0, size):
        return ""
    whole, even = reach(counts, size), reach(counts, smaller)
    numbers = (
        f"Segments of {size} reach {whole.trays} trays in {whole.blocks} blocks, "
        f"segments of {smaller} reach {even.trays} in {even.blocks}"
    )
    if whole.trays > even.trays:
        spare = size - smaller
        return (
            f"{numbers}: ask for {size} where a job's layout allows it, and for {smaller} where it must start even "
            f"after a block has lost {spare} {'tray' if spare == 1 else 'trays'}."
        )
    return f"{numbers}: ask for {smaller}, since too many blocks lack a tray."


def _segments(size: int) -> list[int]:
    """The powers of two up to a block's size, and the size."""
    return sorted({size, *(1 << power for power in range(size.bit_length()))})


def _power_below(size: int) -> int:
    return 1 << (size.bit_length() - 1) if size > 1 else 0
