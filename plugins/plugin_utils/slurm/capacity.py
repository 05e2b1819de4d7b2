# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compute how large a job can be with segments of each size and the trays that work now. Pure.

Slurm places a job with ``--segment=S`` in groups of S trays, each group inside one block, so a block with one tray less
than S has none. ``spans`` computes what a job may span, this module how many trays jobs can use at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import placement
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import CONF, YAML
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import blocks, linter, node_states, spans

# A job of segments of 16 leaves 2 of 18 trays unused: that is no reason to use segments of 2.
MOST = 7 / 8


@dataclass(frozen=True)
class Reach:
    """How many blocks have a segment of ``segment`` trays, and how many trays the largest job of such segments has.

    idle: how many segments fit on idle trays, so that as many jobs of one start now; None where these are not known.
    """

    segment: int
    blocks: int
    trays: int
    idle: int | None = None


@dataclass(frozen=True)
class Capacity:
    """The capacity of one Slurm cluster; its name is empty where there is only one.

    working: the trays that work now; largest: the most in one block; reaches: by segment, rising; best: that of best();
    advice: which segment to use, and whether a job of all trays needs one, empty where neither applies; jobs: what jobs
    may span with block_sizes, the base first; idle: the idle trays of each block with trays, None where not known.
    Where Slurm would not load the topology, problem has the reason and both are empty.
    """

    cluster: str
    working: int
    largest: int
    reaches: tuple[Reach, ...]
    best: Reach
    advice: str
    jobs: tuple[spans.Span, ...]
    block_sizes: tuple[int, ...]
    problem: str
    idle: Mapping[model.BlockView, int] | None = None


def capacities(
    fabric: model.Fabric,
    state: model.State,
    block_sizes: Sequence[int] = (),
    nodes: Mapping[str, str] | None = None,
) -> list[Capacity]:
    """The capacity of each Slurm cluster with a working tray.

    block_sizes: the site's setting of the role slurm_topology. nodes: tray -> its state in Slurm, None where these are
    not known.
    """
    shown, free = nodes or {}, node_states.without_job(nodes or {})
    found = []
    for name in fabric.slurm_clusters or [""]:
        counts = spans.usable(fabric, state, name or None)
        if not sum(counts):
            continue
        checked, notes = blocks.candidate(blocks.blocks(fabric, name or None), YAML, block_sizes)
        problem = next((note["message"] for note in notes if note["severity"] == "error"), "")
        sizes = () if problem else checked.topology.block_sizes
        jobs = spans.spans(counts, sizes, spans.sizes_of_interest(counts, sizes[0])) if sizes else []
        within = [block for block in fabric.slurm_blocks(name or None) if block.trays]
        idle = None
        if any(tray in shown for block in within for tray in block.trays):
            idle = {b: sum(tray in free and spans.works(state.trays.get(tray)) for tray in b.trays) for b in within}
        # Slurm refuses a larger segment than the base block, or does not keep it.
        segments = [row for row in _segments(len(block.trays) for block in within) if not sizes or row <= sizes[0]]
        reaches = tuple(reach(counts, segment, None if idle is None else idle.values()) for segment in segments)
        row = best(reaches, sum(counts))
        advised = " ".join(filter(None, (advice(row, sum(counts)), of_all(jobs, sum(counts)))))
        found.append(Capacity(name, sum(counts), max(counts), reaches, row, advised, tuple(jobs), sizes, problem, idle))
    return found


def reach(counts: Sequence[int], segment: int, idle: Iterable[int] | None = None) -> Reach:
    """The Reach of one segment size. counts: working trays of each block; idle: the idle ones."""
    now = None if idle is None else placement.segments(idle, segment)
    blocks_with_one = sum(number >= segment for number in counts)
    return Reach(segment, blocks_with_one, placement.segments(counts, segment) * segment, now)


def best(reaches: Sequence[Reach], working: int) -> Reach:
    """The row of the largest segment with which jobs use most of the working trays; reaches: by segment, rising."""
    return [row for row in reaches if row.trays >= working * MOST][-1]


def advice(row: Reach, working: int) -> str:
    """Which segment to use, in a sentence with the numbers of the best row; empty for segments of 1 tray."""
    if row.segment == 1:
        return ""
    return (
        f"Use segments of {count(row.segment, 'tray')}: jobs of them use up to {row.trays} of"
        f" {count(working, 'working tray')}, in {count(row.blocks, 'block')}."
    )


def base_size(fabric: model.Fabric, cluster: str) -> str:
    """The base block size that the role slurm_topology sets, in a sentence; the cluster is empty where there is one."""
    made = blocks.blocks(fabric, cluster or None)
    newer, older = (linter.auto_block_sizes(made, blocks.RENDERED_FOR[style])[0] for style in (YAML, CONF))
    before = "" if newer == older else f"; before 25.05, {older}, that of the smallest"
    largest = "block" if fabric.is_split else "clique"
    return f"Base block size: {newer}, the size of the largest {largest} (Slurm 25.05 and later{before})."


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


def _segments(sizes: Iterable[int]) -> list[int]:
    """The sizes of blocks, and the powers of two up to the largest."""
    found = {size for size in sizes if size}
    return sorted({*found, *(1 << power for power in range(max(found).bit_length()))})
