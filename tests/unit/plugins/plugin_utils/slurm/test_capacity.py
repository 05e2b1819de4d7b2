# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a fabric's working trays can run, and what a job may span: test_slurm_prediction.py compares with slurmctlds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.explain.holding import Holding
from ansible_collections.rackscale.nvlink.plugins.module_utils.explain.slurm_evidence import Evidence, Job
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import placement
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.nodes import Node
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rules import Partition
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import editing
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Clusters, Fabric, State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import slurm_files
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import RenderContext
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import capacity, node_states, spans
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.integers(0, 40), max_size=6), st.integers(1, 40))
def test_the_largest_job_of_segments_fits_and_a_larger_one_does_not(counts: list[int], segment: int) -> None:
    left = list(counts)
    placed = 0
    for block in range(len(left)):
        while left[block] >= segment:
            left[block] -= segment
            placed += segment
    assert capacity.reach(counts, segment).trays == placed


@given(st.lists(st.integers(0, 40), max_size=6), st.integers(1, 40))
def test_as_many_jobs_of_a_segment_start_as_slurm_places(idle: list[int], segment: int) -> None:
    number = capacity.reach([40] * len(idle), segment, idle).idle
    assert number is not None
    assert number == 0 or placement.places(idle, (40,), number * segment, segment)
    assert not placement.places(idle, (40,), (number + 1) * segment, segment)


@given(st.lists(st.sampled_from(("IDLE", "IDLE+PLANNED", "MIXED", "ALLOCATED", "COMPLETING+IDLE", "DOWN")), min_size=8))
def test_idle_trays_run_no_job_by_slurm(words: list[str]) -> None:
    fabric = fabrics.fabric(racks=2, trays=4, split=())
    nodes = dict(zip(fabric.trays, words))
    state = node_states.applied(fabrics.state(fabric), fabric, nodes)
    for found in capacity.capacities(fabric, state, (), nodes):
        assert found.idle is not None
        of_blocks = [sum(word.startswith("IDLE") for word in words[at : at + 4]) for at in (0, 4)]
        assert list(found.idle.values()) == of_blocks
        assert [row.idle for row in found.reaches] == [sum(n // s for n in of_blocks) for s in (1, 2, 4)]


WORDS = ("IDLE", "IDLE+PLANNED", "IDLE+POWERED_DOWN", "MIXED", "ALLOCATED", "COMPLETING+IDLE", "DOWN", "DRAIN+IDLE")


@given(st.lists(st.sampled_from((*WORDS, "IDLE+NOT_RESPONDING", "FAIL+IDLE", "UNKNOWN")), min_size=12))
def test_explain_counts_the_same_trays_as_idle(words: list[str]) -> None:
    fabric = fabrics.fabric(racks=3, trays=4, split=())
    nodes = dict(zip(fabric.trays, words))
    known = {tray: Node(frozenset(text.split("+"))) for tray, text in nodes.items()}
    blocks = {name: tuple(members) for name, members in fabric.members.items()}
    partition = Partition("all", tuple(nodes))
    evidence = Evidence("2026-11-21T05:00:00", {}, known, {"all": partition}, blocks=blocks, sizes=(4,))
    held = Holding(evidence, Job("0", 0, "PENDING", "Resources", -1, "", ("all",)))
    state = node_states.applied(fabrics.state(fabric), fabric, nodes)
    for found in capacity.capacities(fabric, state, (), nodes):
        assert found.idle is not None
        assert {block.name: number for block, number in found.idle.items()} == held.by_block(held.idle)


def test_idle_trays_are_unknown_of_a_cluster_whose_slurm_did_not_answer() -> None:
    fabric = fabrics.fabric(racks=2, trays=4, split=())
    clusters: Clusters = {
        "slurm": {f"c{name}": {"blocks": {name: {"name": name, "position": 0}}} for name in ("r01", "r02")}
    }
    for tray in fabric.trays.values():
        tray["slurm_cluster"] = f"c{tray['clique']}"
    shared = replace(fabric, clusters=clusters)
    # Its states are those of two trays; Slurm has none of the others, so no job starts there.
    first, second = capacity.capacities(shared, State(), (), {"r01t01": "IDLE", "r01t02": "IDLE"})
    assert first.idle is not None
    assert list(first.idle.values()) == [2]
    assert second.idle is None
    assert {row.idle for row in second.reaches} == {None}


def test_no_segment_is_larger_than_the_base_block() -> None:
    fabric = fabrics.fabric(racks=2, split=())
    (found,) = capacity.capacities(fabric, State(), (16,))
    assert [row.segment for row in found.reaches] == [1, 2, 4, 8, 16]
    assert found.best.segment == 16


@pytest.mark.parametrize(
    ("counts", "segment", "trays"),
    [
        ([18] * 4, 18, 72),
        ([18, 17, 17, 17], 16, 64),
        ([18] * 16 + [17], 18, 288),
        # Half a rack lost a tray: segments of 18 reach none of these trays, of 16 the 16 of the rack, of 8 all but two.
        ([17, 9, 8], 8, 32),
        ([18, 9, 9], 9, 36),
        ([15] * 4, 2, 56),
    ],
)
def test_the_advice_is_the_largest_segment_that_reaches_most_trays(counts: list[int], segment: int, trays: int) -> None:
    reaches = [capacity.reach(counts, size) for size in (1, 2, 4, 8, 9, 16, 18)]
    best = capacity.best(reaches, sum(counts))
    assert (best.segment, best.trays) == (segment, trays)
    assert f"use up to {trays} of {sum(counts)} working trays" in capacity.advice(best, sum(counts))
    assert capacity.advice(capacity.reach([1, 1], 1), 2) == ""


def test_the_base_size_is_that_of_the_release() -> None:
    split, whole = fabrics.fabric(), fabrics.fabric(split=())
    newer = "Base block size: 18, the size of the largest clique (Slurm 25.05 and later"
    assert capacity.base_size(split, "") == f"{newer}; before 25.05, 9, that of the smallest)."
    assert capacity.base_size(whole, "") == f"{newer})."


def test_capacity_of_a_healthy_and_of_a_degraded_fabric() -> None:
    fabric = fabrics.fabric(racks=3, split=())
    (whole,) = capacity.capacities(fabric, fabrics.state(fabric))
    assert (whole.working, whole.largest) == (54, 18)
    assert [reach.segment for reach in whole.reaches] == [1, 2, 4, 8, 16, 18]
    assert [job.nodes for job in whole.jobs] == [1, 2, 4, 8, 16, 18, 32, 36, 54]
    (hurt,) = capacity.capacities(fabric, fabrics.state(fabric, r01t01={"health": "unhealthy"}))
    assert (hurt.working, hurt.largest) == (53, 18)
    assert hurt.reaches[-1] == capacity.Reach(18, 2, 36)


def test_a_job_of_all_trays_of_split_racks_needs_a_segment() -> None:
    fabric = fabrics.fabric(racks=3, trays=4, split=(2, 3))
    (found,) = capacity.capacities(fabric, fabrics.state(fabric))
    assert "A job of all 12 working trays never starts without a segment" in found.advice
    assert "Slurm allows it 3 blocks and it needs 5: use --segment=2." in found.advice
    (whole,) = capacity.capacities(fabrics.fabric(racks=3, split=()), State())
    assert "never starts" not in whole.advice


@pytest.mark.parametrize(
    ("given", "groups", "sizes", "starts"),
    [
        ([], {}, (18,), True),
        ([18, 36, 72, 144], {}, (18, 36, 72, 144), True),
        ([], {"east": ["r01", "r02"], "west": ["r03", "r04"]}, (18,), True),
        ([18], {"east": ["r01", "r02"], "west": ["r03", "r04"]}, (18,), True),
        ([18, 20], {}, (), False),
    ],
)
def test_jobs_span_blocks_of_the_sizes_that_the_role_writes(
    given: list[int], groups: dict[str, list[str]], sizes: tuple[int, ...], starts: bool
) -> None:
    fabric = editing.group(fabrics.fabric(racks=5, split=()), groups)
    (found,) = capacity.capacities(fabric, State(), given)
    assert found.block_sizes == sizes
    assert [row.starts for row in found.jobs if row.nodes == 90] == ([starts] if sizes else [])
    assert bool(found.problem) is not bool(sizes)
    written = slurm_files.render(fabric, State(), RenderContext(block_sizes=tuple(given)))
    lines = "".join(f"      - {size}\n" for size in sizes)
    assert bool(written) is bool(sizes)
    assert f"block_sizes:\n{lines}    blocks:" in written.get("slurm/topology.yaml", "") or not sizes


def test_a_fabric_without_working_trays_has_no_capacity() -> None:
    fabric = fabrics.fabric(racks=1, trays=2)
    away = {name: {"state": "stale"} for name in fabric.trays}
    assert capacity.capacities(fabric, fabrics.state(fabric, **away)) == []
    assert capacity.capacities(Fabric(), State()) == []


# ------------------------------------------------------------------------------------------------------- worked spans


@pytest.mark.parametrize(
    ("nodes", "base", "up", "row"),
    [
        # nodes, base size, working trays in each of ten racks: allowed, needed, starts, segment
        (16, 18, 18, (1, 1, True, None)),
        (18, 18, 18, (1, 1, True, None)),
        (18, 18, 17, (1, 2, False, 9)),
        (18, 16, 17, (2, 2, True, 9)),
        (36, 18, 17, (2, 3, False, 12)),
        (144, 18, 17, (8, 9, False, 16)),
        (180, 18, 17, (10, None, False, None)),
    ],
)
def test_spans_of_worked_examples(
    nodes: int, base: int, up: int, row: tuple[int, int | None, bool, int | None]
) -> None:
    [span] = spans.spans([up] * 10, [base], [nodes])
    assert (span.allowed, span.needed, span.starts, span.segment) == row


def test_a_block_without_nodes_ends_the_search() -> None:
    # Random cases, which 26.05.5 placed in a second search and 24.11.5 did not.
    for counts, sizes in (([9, 9, 0, 18, 9, 0, 7, 7], [3, 6, 48, 96]), ([18, 0, *[9] * 7], [4, 8, 32, 64])):
        assert [span.starts for span in spans.spans(counts, sizes, [24])] == [False]


@given(
    st.lists(st.integers(0, 18), min_size=1, max_size=12),
    st.integers(1, 18),
    st.sets(st.integers(1, 4)),
    st.integers(1, 220),
)
def test_computed_spans_are_possible(counts: list[int], base: int, levels: set[int], nodes: int) -> None:
    sizes = [base, *(base << level for level in sorted(levels))]
    [span] = spans.spans(counts, sizes, [nodes])
    assert (span.needed is None) == (nodes > sum(counts))
    if span.starts:
        assert span.needed is not None
        assert span.needed <= span.allowed
    if span.segment is not None:
        assert nodes % span.segment == 0
        assert 1 < span.segment <= base
        assert sum(count // span.segment for count in counts) * span.segment >= nodes


def test_only_working_trays_count() -> None:
    fabric = fabrics.fabric(racks=2, trays=4, split=(2,))
    state = fabrics.state(
        fabric,
        r01t01={"health": "unhealthy"},
        r01t02={"state": "stale"},
        r01t03={"health": "degraded"},
        r02t01={"health": "unknown"},
        r02t04={"state": "conflict"},
    )
    assert spans.usable(fabric, state) == [2, 2, 1]
    # Without a state file nothing is known against any.
    assert spans.usable(fabric, State()) == [4, 2, 2]
