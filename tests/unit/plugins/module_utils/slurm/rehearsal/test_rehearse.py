# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The test jobs of a rehearsal and its findings; with real slurmctlds it is tested in tests/integration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import worded
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import files, rules, syntax
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import Block, Topology
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rehearsal import rehearsal_conf, rehearse
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rehearsal.rehearse import (
    Candidate,
    Outcome,
    Rehearsal,
    TestJob,
)
from hypothesis import given
from hypothesis import strategies as st

# ------------------------------------------------------------------------------------------------------- slurm.conf


def derive(folder: Path, text: str, **more: Any) -> rehearsal_conf.Derived:
    (folder / "slurm.conf").write_text(text)
    return rehearsal_conf.derive(str(folder), **more)


def test_what_places_jobs_is_kept(tmp_path: Path) -> None:
    text = (
        "ClusterName=a\nSelectType=select/cons_tres\nProlog=/x SLURMUSER=slurm\nJobSubmitPlugins=lua # always\n"
        'NodeName=n[1-2] CPUs=4 NodeAddr=10.0.0.[1-2] State=DRAIN Port=1 Gres=gpu:4 Reason="a b"\n'
        "PartitionName=p Nodes=n[1-2] MaxNodes=2 QOS=gold \\\n State=DOWN\nNodeSet=s Nodes=n1\n"
        "DownNodes=n1 State=DOWN\nStoragePass=secret\n"
    )
    made = derive(tmp_path, text)
    assert made.text.splitlines() == [
        "clustername=a",
        "selecttype=select/cons_tres",
        "NodeName=n[1-2] CPUs=4 Gres=gpu:4 NodeAddr=127.0.0.1 State=CLOUD",
        "NodeSet=s Nodes=n1",
        "PartitionName=p Nodes=n[1-2] MaxNodes=2",
    ]
    assert made.nodes == {"n1", "n2"}


def test_includes_are_read_in_place_and_with_the_new_files(tmp_path: Path) -> None:
    (tmp_path / "nodes_a.conf").write_text("NodeName=n1\n")
    (tmp_path / "loop.conf").write_text("Include loop.conf\n")
    writes = {str(tmp_path / "tiers.conf"): b"PartitionName=gold Nodes=n1\n", str(tmp_path / "topology.yaml"): b"- x\n"}
    text = "ClusterName=A\nInclude nodes_%c.conf\ninclude tiers.conf\nInclude missing.conf\nInclude loop.conf\n"
    made = derive(tmp_path, text, writes=writes)
    assert "PartitionName=gold Nodes=n1" in made.text
    assert (made.nodes, made.files) == ({"n1"}, {"topology.yaml": "- x\n"})


def test_the_open_partition_comes_before_the_defaults_of_the_site(tmp_path: Path) -> None:
    blocks = (Block("b1", ("n1", "n2"), "n[1-2]"), Block("b2", ("n3", "gone"), "n3,gone"), Block("b3"))
    text = "NodeName=n[1-3]\nNodeName=n4 State=FUTURE\nPartitionName=DEFAULT MaxNodes=1\nPartitionName=p Nodes=ALL\n"
    made = derive(tmp_path, text, blocks=blocks, topology="nvlink", records=[{"NodeName": "n4"}, {"NodeName": "n5"}])
    assert made.text.splitlines() == [
        "NodeName=n[1-3] NodeAddr=127.0.0.1 State=CLOUD",
        "NodeName=n4 NodeAddr=127.0.0.1 State=FUTURE",
        "NodeName=n5 NodeAddr=127.0.0.1 State=CLOUD",
        "PartitionName=nvlink_rehearsal Nodes=n[1-2],n3 MaxTime=UNLIMITED Topology=nvlink",
        "PartitionName=DEFAULT MaxNodes=1",
        "PartitionName=p Nodes=ALL",
    ]


def test_a_bare_configuration_has_no_topology(tmp_path: Path) -> None:
    (tmp_path / "topology.yaml").write_text("x")
    text = "TopologyPlugin=topology/block\nNodeName=n1 Topology=a:b\nPartitionName=p Nodes=n1 Topology=a\n"
    made = derive(tmp_path, text, bare=True, blocks=(Block("b", ("n1",)),))
    assert "opology" not in made.text
    assert made.files == {}
    assert "nvlink_rehearsal" not in made.text


NAMES = ("NodeName", "PartitionName", "Include", "QOS", "DEFAULT", "n[1-2]", "n[", "x", "%c")
CONF_WORDS = st.sampled_from([*NAMES, "=", " ", "\\\n", "\n", "#", '"'])


@given(st.lists(CONF_WORDS, max_size=30).map("".join))
def test_any_text_of_slurm_conf_is_accepted(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.getbasetemp() / "conf"
    folder.mkdir(exist_ok=True)
    made = derive(folder, text)
    # A value may hold the text "QOS=", as that of "PartitionName=aQOS=b" does: check the parsed settings.
    lines = [syntax.key_values(line) for line in syntax.logical_lines(made.text)]
    assert [key for line in lines for key, _value in line if key.upper() == "QOS"] == []


# -------------------------------------------------------------------------------------------------------- test jobs


def candidate(sizes: dict[str, int], **more: Any) -> Candidate:
    blocks = tuple(Block(name, tuple(f"{name}t{n:02d}" for n in range(count))) for name, count in sizes.items())
    topology = Topology(name="nvlink", blocks=blocks, block_sizes=more.pop("base", (max(sizes.values()),)))
    return Candidate("/etc/slurm", topology, (26, 5, 5), files.YAML, **more)


def known(rehearsed: Candidate) -> frozenset[str]:
    return frozenset(node for block in rehearsed.topology.blocks for node in block.nodes)


def test_each_block_gets_a_job_of_its_size() -> None:
    rehearsed = candidate({"a": 4, "b": 2, "c": 0}, jobs=(TestJob("site", 3),))
    jobs = rehearse.make_jobs(rehearsed, [], known(rehearsed))
    assert [(job.kind, job.block, job.nodes, len(job.without)) for job in jobs] == [
        ("block", "a", 4, 0),
        ("block", "b", 2, 0),
        # With one tray left in each block, two together have two.
        ("spread", "", 2, 4),
        ("spread", "", 4, 1),
        ("all", "", 6, 0),
        ("site", "", 3, 0),
    ]


def test_only_partitions_on_this_topology_get_jobs() -> None:
    rehearsed = candidate({"a": 4})
    nodes = tuple(sorted(known(rehearsed)))
    partitions = [
        rules.Partition("gpu", nodes),
        rules.Partition("mine", nodes[:2], "nvlink"),
        rules.Partition("cpu", ("c1",)),
        rules.Partition("tree", nodes, "fat"),
        rules.Partition(rehearsal_conf.OPEN_PARTITION, nodes, "nvlink"),
    ]
    jobs = [job for job in rehearse.make_jobs(rehearsed, partitions, known(rehearsed)) if job.kind == "partition"]
    assert [(job.partition, job.nodes, job.segment) for job in jobs] == [
        ("gpu", 1, 0),
        ("gpu", 4, 0),
        ("gpu", 5, 0),
        ("mine", 1, 0),
        ("mine", 2, 0),
        ("mine", 3, 0),
    ]


# ---------------------------------------------------------------------------------------------------------- outcomes

WHERE = {"a1": "a", "a2": "a", "b1": "b"}


PLACED = "sbatch: Job 1 to start at 2026-11-21T07:46:39 using 9 processors on nodes {} in partition gpu"
UNAVAILABLE = "Requested node configuration is not available"


@pytest.mark.parametrize(
    ("status", "output", "expected"),
    [
        (0, PLACED.format("a[1-2],b1"), ("placed", "gpu", ["a", "b"], "")),
        (1, f"allocation failure: {UNAVAILABLE}", ("refused", "", [], UNAVAILABLE)),
        (None, "", ("unanswered", "", [], "")),
        (-9, PLACED.format("a1"), ("refused", "", [])),
    ],
)
def test_the_output_of_sbatch_becomes_an_outcome(status: int | None, output: str, expected: tuple[Any, ...]) -> None:
    outcome = rehearse.evaluate(TestJob("site", 2), status, output, WHERE)
    assert (outcome.outcome, outcome.partition, outcome.blocks, outcome.reason)[: len(expected)] == expected


def test_a_long_hostlist_is_folded_to_its_first_nodes_in_the_result() -> None:
    nodes = ",".join(f"rack-of-a-long-name-{rack}-tray-[01-18]" for rack in range(576))
    where = dict.fromkeys(rehearse.expand(nodes), "a")
    outcomes = [
        rehearse.evaluate(TestJob("all", 2), 0, PLACED.format(hostlist), where) for hostlist in ("n[1-2]", nodes)
    ]
    refused = rehearse.evaluate(TestJob("all", 2), 1, "x" * 20_000, where)
    rows = Rehearsal(True, outcomes=[*outcomes, refused]).result()["outcomes"]
    assert [row["on"] for row in rows[:1]] == ["n[1-2]"]
    assert rows[1]["on"].startswith("rack-of-a-long-name-0-tray-01, ")
    assert rows[1]["on"].endswith(" and 10363 more")
    assert len(rows[2]["reason"]) < 1000


def test_the_reason_is_read_from_the_log() -> None:
    log = """\
[2026-11-21T07:55] debug2: Processing RPC: REQUEST_JOB_WILL_RUN from UID=65532
[2026-11-21T07:55] error: topology/block: eval_nodes_block: JobId=9 segment (16) > bblock_node_cnt (9) is not supported
[2026-11-21T07:55] debug2: _slurm_rpc_job_will_run: Requested node count exceeds something
"""
    assert rehearse.explained(log) == "segment (16) > bblock_node_cnt (9) is not supported"
    assert rehearse.explained("[x] debug2: nothing to see\n") == ""


def verdict(outcome: Outcome | None = None, base: int = 4, **more: Any) -> list[tuple[str, str]]:
    rehearsed = candidate({"a": 4, "b": 2}, base=(base,))
    made = Rehearsal(**{"ran": True, "loaded": True, "outcomes": [outcome] if outcome else [], **more})
    return [(worded(found)["severity"], found["code"]) for found in rehearse.findings(made, rehearsed)]


@pytest.mark.parametrize(
    ("outcome", "base", "expected"),
    [
        (Outcome("block", 4, "p", 0, "a", "placed", "x", ["a", "b"]), 4, [("error", "slurm_rehearsal_refused")]),
        (Outcome("block", 4, "p", 0, "a", "refused"), 2, [("error", "slurm_rehearsal_refused")]),
        (Outcome("spread", 4, "p", 0, "", "refused"), 4, []),
        (Outcome("spread", 4, "p", 0, "", "placed", "x", ["a", "b"]), 4, [("error", "slurm_rehearsal_refused")]),
        (Outcome("spread", 4, "p", 0, "", "placed", "x", ["a", "b"]), 2, [("warning", "slurm_clique_above_base")]),
        (Outcome("partition", 5, "p", 0, "", "refused"), 4, []),
        (Outcome("all", 8, "p", 0, "", "refused"), 4, [("warning", "slurm_rehearsal_job")]),
        (Outcome("site", 9, "p", 3, "", "refused"), 4, [("warning", "slurm_rehearsal_job")]),
        (Outcome("site", 9, "", 0, "", "refused", required=True), 4, [("error", "slurm_rehearsal_refused")]),
    ],
)
def test_each_outcome_has_its_findings(outcome: Outcome, base: int, expected: list[tuple[str, str]]) -> None:
    assert verdict(outcome, base) == expected


@pytest.mark.parametrize(
    ("sizes", "base", "expected"),
    [
        ({"a": 9, "b": 18, "c": 9}, (18,), "allows it 2 blocks of the base size 18 and its trays are in 3"),
        (dict.fromkeys("abcde", 9), (9, 18), "counts whole groups of a larger block size only"),
    ],
)
def test_a_job_of_all_trays_gets_a_segment_with_which_it_starts(
    sizes: dict[str, int], base: tuple[int, ...], expected: str
) -> None:
    job = Outcome("all", sum(sizes.values()), "p", 0, "", "refused")
    made = Rehearsal(ran=True, loaded=True, outcomes=[job])
    [found] = map(worded, rehearse.findings(made, candidate(sizes, base=base)))
    assert found["code"] == "slurm_rehearsal_job"
    assert expected in found["message"]
    assert "set --segment=9 for" in found["message"]


def test_a_missing_or_unfinished_rehearsal_is_a_finding() -> None:
    assert verdict(ran=False, why="it needs root") == [("info", "slurm_rehearsal_skipped")]
    assert verdict(ran=False, why="no", fatal="words") == [("warning", "slurm_rehearsal_job")]
    assert verdict(ran=False, why="late", complete=False) == [("warning", "slurm_rehearsal_job")]
    assert verdict(loaded=False, fatal="words") == [("error", "slurm_rehearsal_refused")]
    assert verdict(complete=False) == [("warning", "slurm_rehearsal_job")]
    rehearsed = candidate({"a": 4})
    for missing in (
        Rehearsal(ran=False),
        Rehearsal(ran=False, fatal="x"),
        Rehearsal(ran=True, loaded=True, complete=False),
    ):
        assert [found["code"] for found in rehearse.findings(missing, rehearsed, mandatory=True)] == [
            "slurm_rehearsal_refused"
        ]
