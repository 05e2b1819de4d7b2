# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The questions on a running slurmctld and its answers; tests/integration/test_rehearsal.py asks real ones."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.child import Result
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import Topology
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rehearsal import live_jobs
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rehearsal.live_jobs import Partition
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rehearsal.rehearse import Outcome, TestJob

BLOCKS = {"a": ("a1", "a2", "a3", "a4"), "b": ("b1", "b2", "b3"), "c": ()}
EVERY = frozenset(node for nodes in BLOCKS.values() for node in nodes) | {"cpu1"}
WHERE = {node: name for name, nodes in BLOCKS.items() for node in nodes}


def test_every_block_all_trays_and_segments_are_asked() -> None:
    found = list(live_jobs.questions(BLOCKS, [Partition("gpu", EVERY)], None))
    assert [(one.job.kind, one.job.nodes, one.job.segment, one.job.trays, dict(one.parts)) for one in found] == [
        # Each block keeps trays that a job without segments would take.
        ("segments", 6, 3, (), {"a": 3, "b": 3}),
        ("all", 7, 0, (), {}),
        ("block", 4, 4, BLOCKS["a"], {}),
        ("block", 3, 3, BLOCKS["b"], {}),
    ]
    assert found[0].job.without == ("cpu1",)


def test_blocks_are_asked_where_their_trays_are_and_jobs_of_that_size_may_run() -> None:
    found = [
        Partition("small", EVERY, max_nodes=2),
        Partition("a", frozenset(BLOCKS["a"])),
        Partition("b", frozenset(BLOCKS["b"][:2])),
    ]
    asked = {one.job.block: one.job for one in live_jobs.questions(BLOCKS, found, 4) if one.job.kind == "block"}
    assert {name: (job.partition, job.trays, job.segment) for name, job in asked.items()} == {
        "a": ("a", BLOCKS["a"], 0),
        "b": ("b", BLOCKS["b"][:2], 0),
    }
    assert list(live_jobs.questions(BLOCKS, [], None)) == []


@pytest.mark.parametrize(
    ("counts", "limit", "segment"),
    [
        ([18, 18], None, 17),
        ([18, 17, 18], 18, 16),
        ([18, 18], 9, 8),
        ([], None, 0),
    ],
)
def test_segments_leave_trays_over_in_most_blocks(counts: list[int], limit: int | None, segment: int) -> None:
    assert live_jobs.segment_of(counts, limit) == segment


def record(name: str, **more: str) -> dict[str, str]:
    return {"PartitionName": name, "State": "UP", "Nodes": "a[1-4]", "MinNodes": "0", "MaxNodes": "UNLIMITED", **more}


def test_partitions_of_the_topology_come_first() -> None:
    records = [
        record("flat", Topology="flat", Default="YES"),
        record("down", State="DOWN"),
        record("reserved", ReqResv="YES"),
        record("none", Nodes="(null)", Topology="nvlink", MaxNodes="4", MinNodes="2"),
        record("gpu", Topology="(null)"),
    ]
    found = live_jobs.partitions(records, Topology("nvlink"))
    assert [(row.name, len(row.nodes), row.min_nodes, row.max_nodes) for row in found] == [
        ("none", 0, 2, 4),
        ("gpu", 4, 1, 65536),
    ]
    assert [row.name for row in live_jobs.partitions(records[:3], Topology("nvlink"))] == ["flat"]


@pytest.mark.parametrize(
    ("outcome", "reason", "on", "parts", "expected"),
    [
        ("placed", "", "a[1-2],b[1-2]", {"a": 2, "b": 2}, None),
        ("placed", "", "a[1-3],b1", {"a": 2, "b": 2}, ("spread", "3 of a, 1 of b")),
        ("placed", "", "a[1-4]", {}, None),
        ("refused", "Requested node configuration is not available", "", {}, ("refused",)),
        # Shows nothing of the blocks.
        ("refused", "Invalid account or account/partition combination specified", "", {}, None),
    ],
)
def test_an_answer_is_compared_with_the_promise(
    outcome: str, reason: str, on: str, parts: dict[str, int], expected: tuple[str, ...] | None
) -> None:
    job = TestJob("segments", 4, "gpu", 2)
    row = live_jobs.evaluated(job, Outcome("segments", 4, "gpu", 2, "", outcome, on, [], reason), parts, WHERE)
    assert (row and (row.outcome, row.reason)[: len(expected or ())]) == expected


class Fake(Slurm):
    """A slurmctld whose clients answer from a table; ``hang``: the jobs from this one on have no answer."""

    def __init__(self, refuse: str = "", hang: int = 1000) -> None:
        super().__init__("/bin", 5)
        self.refuse, self.hang, self.asked = refuse, hang, 0

    def program(self, name: str) -> str:
        return name

    def scontrol(self, *arguments: str) -> str:
        if arguments[-1] == "partitions":
            return f"PartitionName=gpu State=UP Nodes={','.join(sorted(EVERY))} MinNodes=1 MaxNodes=UNLIMITED\n"
        return "".join(f"NodeName={node} State=IDLE{'+DRAIN' if node == 'b3' else ''}\n" for node in sorted(EVERY))

    def call_each(self, name: str, arguments: Any, timeout: float, at_once: int) -> list[Result]:
        return [self.one(words) for words in arguments]

    def one(self, words: list[str]) -> Result:
        self.asked += 1
        if self.asked >= self.hang:
            return Result(None, "", "", timed_out=True)
        line = " ".join(words)
        if self.refuse and self.refuse in line:
            return Result(1, "", "allocation failure: Invalid account")
        nodes = int(line.partition("--nodes=")[2].split()[0])
        names = line.partition("--nodelist=")[2].split(" ")[0] or ",".join(sorted(WHERE)[:nodes])
        assert len(expand(names)) == nodes or "--nodelist" not in line
        return Result(0, "", f"sbatch: Job 1 to start at now using 4 processors on nodes {names} in partition gpu")


def ask(slurm: Slurm, seconds: float = 30) -> dict[str, Any]:
    info = {
        "version": "24.11.5",
        "file": {"path": "/etc/slurm/topology.conf"},
        "topology": {
            "name": "default",
            "cluster_default": True,
            "block_sizes": [3],
            "blocks": [{"name": name, "nodes": list(nodes)} for name, nodes in BLOCKS.items()],
        },
    }
    answers = live_jobs.report(slurm, "/nowhere", info, seconds)
    assert answers is not None
    return answers


def test_it_stops_and_reports_how_far_it_came() -> None:
    whole = ask(Fake())
    assert (whole["asked"], whole["why"], whole["left_out"], whole["counts"]) == (whole["planned"], "", 1, [4, 2, 0])
    late = ask(Fake(hang=3))
    assert (late["asked"], late["planned"], late["why"]) == (2, whole["planned"], "no answer in 10 s")
    none = ask(Fake(), 0)
    assert (none["asked"], none["why"]) == (0, "the time limit was reached")
    refused = ask(Fake(refuse="--partition=gpu"))
    assert (refused["rows"], refused["why"]) == ([], "partition gpu: Invalid account")
    assert live_jobs.report(Fake(), "/nowhere", {"topology": None}, 1) is None
