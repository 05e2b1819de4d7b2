# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compute how large a job can be with segments of each size and the trays that work now. Pure.

Slurm places a job with ``--segment=S`` in groups of S trays, each group inside one block, so a block with one tray less
than S has none. ``spans`` computes what a job may span, this module how many trays jobs can use at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import YAML
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import blocks, spans


@dataclass(frozen=True)
class Reach:
    """How many blocks have a segment of ``segment`` trays, and how many trays the largest job of such segments has."""

    segment: int
    blocks: int
    trays: int


@dataclass(frozen=True)
class Capacity:
    """The capacity of one Slurm cluster; its name is empty where there is only one.

    working: the trays that work now; largest: the most in one block; reaches: by segment, rising; advice: which segment
    to use, and whether a job of all trays needs one, empty where there is no choice; jobs: what jobs may span with
    block_sizes, the base first. Where Slurm would not load the topology, problem has the reason and both are empty.
    """

    cluster: str
    working: int
    largest: int
    reaches: tuple[Reach, ...]
    advice: str
    jobs: tuple[spans.Span, ...]
    block_sizes: tuple[int, ...]
    problem: str


def capacities(
    fabric: model.Fabric, state: model.State, block_sizes: Sequence[int] = (), aggregate: bool = False
) -> list[Capacity]:
    """The capacity of each Slurm cluster with a working tray.

    block_sizes, aggregate: the site's settings of the role slurm_topology; SlurmError where both are set.
    """
    found = []
    for name in fabric.slurm_clusters or [""]:
        counts = spans.usable(fabric, state, name or None)
        if not sum(counts):
            continue
        size = max(len(block.trays) for block in fabric.blocks(name or None))
        checked, notes = blocks.candidate(blocks.blocks(fabric, name or None), YAML, block_sizes, aggregate)
        problem = next((note["message"] for note in notes if note["severity"] == "error"), "")
        sizes = () if problem else checked.topology.block_sizes
        jobs = spans.spans(counts, sizes, spans.sizes_of_interest(counts, sizes[0])) if sizes else []
        reaches = tuple(reach(counts, segment) for segment in _segments(size))
        sentences = filter(None, (advice(counts, size), of_all(jobs, sum(counts))))
        advised = " ".join(sentences)
        found.append(Capacity(name, sum(counts), max(counts), reaches, advised, tuple(jobs), sizes, problem))
    return found


def reach(counts: Sequence[int], segment: int) -> Reach:
    """The Reach of one segment size. counts: working trays of each block."""
    segments = [number // segment for number in counts]
    return Reach(segment, sum(number > 0 for number in segments), sum(segments) * segment)


def advice(counts: Sequence[int], size: int) -> str:
    """Whether to use segments of whole blocks or of the power of two below, such as 18 or 16 of an NVL72 rack."""
    smaller = _power_below(size)
    if smaller in (0, size):
        return ""
    whole, even = reach(counts, size), reach(counts, smaller)
    numbers = (
        f"Segments of {size} use up to {count(whole.trays, 'tray')} in {count(whole.blocks, 'block')}, "
        f"segments of {smaller} up to {even.trays} in {even.blocks}"
    )
    if whole.trays > even.trays:
        spare = size - smaller
        return (
            f"{numbers}: use {size} where a job's layout allows it, and {smaller} where it must start even after a"
            f" block has lost {count(spare, 'tray')}."
        )
    return f"{numbers}: use {smaller}, since too many blocks lack a tray."


def of_all(jobs: Sequence[spans.Span], working: int) -> str:
    """A sentence where a job of all working trays never starts without a segment, as with racks that are cut in two."""
    span = next((row for row in jobs if row.nodes == working), None)
    if span is None or span.starts:
        return ""
    remedy = f"use --segment={span.segment}" if span.segment else "use segments and a smaller job"
    return (
        f"A job of all {count(working, 'working tray')} never starts without a segment, since Slurm allows it"
        f" {count(span.allowed, 'block')} and it needs {span.needed}: {remedy}."
    )


def _segments(size: int) -> list[int]:
    """The powers of two up to a block's size, and the size."""
    return sorted({size, *(1 << power for power in range(size.bit_length()))})


def _power_below(size: int) -> int:
    return 1 << (size.bit_length() - 1) if size > 1 else 0
