# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rehearsal's slurm.conf, test jobs, outcomes and findings, past jobs, and questions on a running slurmctld."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.child import Result
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import scontrol, syntax
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rehearsal import (
    history,
    live_jobs,
    questions,
    rehearsal_conf,
    rehearse,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rehearsal.questions import Outcome, TestJob
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rehearsal.rehearse import Candidate, Rehearsal
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rules import Partition
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import Block, Topology, documents
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import worded
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.slurm.slurm_fake import programs
from hypothesis import given
from hypothesis import strategies as st

# ------------------------------------------------------------------------------------------------------- slurm.conf


def derive(folder: Path, text: str, **more: Any) -> rehearsal_conf.Derived:
    (folder / "slurm.conf").write_text(text)
    return rehearsal_conf.derive(str(folder), **more)


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
    return Candidate("/etc/slurm", topology, (26, 5, 5), scontrol.YAML, **more)


def known(rehearsed: Candidate) -> frozenset[str]:
    return frozenset(node for block in rehearsed.topology.blocks for node in block.nodes)


def test_only_partitions_on_this_topology_get_jobs() -> None:
    rehearsed = candidate({"a": 4})
    every = ",".join(sorted(known(rehearsed)))
    partitions = [
        record("gpu", Nodes=every),
        record("mine", Nodes="at[00-01]", Topology="nvlink"),
        record("cpu", Nodes="c1"),
        record("tree", Nodes=every, Topology="fat"),
        record(rehearsal_conf.OPEN_PARTITION, Nodes=every, Topology="nvlink"),
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
    outcome = questions.evaluate(TestJob("site", 2), status, output, WHERE)
    assert (outcome.outcome, outcome.partition, outcome.blocks, outcome.reason)[: len(expected)] == expected


def test_a_long_hostlist_is_folded_to_its_first_nodes_in_the_result() -> None:
    nodes = ",".join(f"rack-of-a-long-name-{rack}-tray-[01-18]" for rack in range(576))
    where = dict.fromkeys(expand(nodes), "a")
    outcomes = [
        questions.evaluate(TestJob("all", 2), 0, PLACED.format(hostlist), where) for hostlist in ("n[1-2]", nodes)
    ]
    refused = questions.evaluate(TestJob("all", 2), 1, "x" * 20_000, where)
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


# -------------------------------------------------------------------------------------------------------- past jobs

START = "2026-11-20T10:00:00"
LOGS = 'echo "$*" >> ${0%/*}/calls\n'
CONFIG = {"accountingstoragetype": "accounting_storage/slurmdbd"}


def test_jobs_of_one_shape_are_one_and_those_that_never_started_none() -> None:
    lines = [
        f"gpu|12|{START}|4",
        f"gpu|12|{START}|4",
        f"gpu|8|{START}|",
        f"gpu|8|{START}|0",
        # The command line, which 24.11 has instead.
        f"gpu|8|{START}|sbatch job.sh",
        f"gpu|8|{START}|sbatch --segment=4 -N 8 x|y",
        "gpu|9|Unknown|3",
        "gpu|9|None|3",
        f"a,b|9|{START}|3",
        f"|9|{START}|3",
        "gpu",
        "",
    ]
    assert history.shapes(lines) == [
        TestJob("past", *shape) for shape in ((8, "gpu", 0), (8, "gpu", 4), (12, "gpu", 4))
    ]


def test_a_release_without_the_field_is_asked_for_the_command_line(tmp_path: Path) -> None:
    refuses = (
        'case "$*" in *SegmentSize*) echo \'sacct: fatal: Invalid field requested: "SegmentSize"\' >&2; exit 1;; esac'
    )
    script = f"{LOGS}{refuses}\necho 'gpu|8|{START}|sbatch --segment=4'"
    assert history.read(programs(tmp_path, sacct=script), CONFIG) == ([TestJob("past", 8, "gpu", 4)], "")
    assert "--starttime=now-14days" in (tmp_path / "calls").read_text()


def test_a_site_without_history_has_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert history.read(Slurm(str(tmp_path)), {}) == ([], "")
    assert history.read(Slurm(str(tmp_path)), CONFIG)[1].startswith("There is no sacct in ")
    assert history.read(programs(tmp_path, sacct="echo no connection >&2; exit 1"), CONFIG)[1].startswith(
        "sacct failed ("
    )
    monkeypatch.setattr(history, "SECONDS", 1)
    assert history.read(programs(tmp_path, sacct=f"{LOGS}exec sleep 60"), CONFIG)[0] == []
    assert len((tmp_path / "calls").read_text().splitlines()) == 1, "one that does not answer is asked once"


# ------------------------------------------------------------------------------------------------ running slurmctld

BLOCKS = {"a": ("a1", "a2", "a3", "a4"), "b": ("b1", "b2", "b3"), "c": ()}
EVERY = (*BLOCKS["a"], *BLOCKS["b"], "cpu1")
BLOCK_OF = {node: name for name, nodes in BLOCKS.items() for node in nodes}


@pytest.mark.parametrize(("limit", "segments"), [(None, [("segments", 6, 3, (), {"a": 3, "b": 3})]), (1, [])])
def test_one_list_has_every_question_on_blocks(limit: int | None, segments: list[Any]) -> None:
    found = list(questions.of_blocks(BLOCKS, [Partition("gpu", EVERY)], limit))
    assert [(one.job.kind, one.job.nodes, one.job.segment, one.job.trays, dict(one.parts)) for one in found] == [
        # Each block keeps trays that a job without segments would take.
        *segments,
        ("all", 7, 0, (), {}),
        ("spread", 3, 0, (), {}),
        ("spread", 4, 0, (), {}),
        ("block", 4, 0 if limit else 4, BLOCKS["a"], {}),
        ("block", 3, 0 if limit else 3, BLOCKS["b"], {}),
        *(("partition", size, 0, (), {}) for size in (1, 4, 5)),
    ]
    assert {one.job.without for one in found if one.job.kind != "spread"} == {(), ("cpu1",)}
    spread = [one.job.without for one in found if one.job.kind == "spread"]
    assert spread == [("cpu1", "a3", "a4", "b3"), ("cpu1", "a4")]


def test_blocks_are_asked_where_their_trays_are_and_jobs_of_that_size_may_run() -> None:
    found = [Partition("small", EVERY, max_nodes=2), Partition("a", BLOCKS["a"]), Partition("b", BLOCKS["b"][:2])]
    asked = {one.job.block: one.job for one in questions.of_blocks(BLOCKS, found, 4) if one.job.kind == "block"}
    assert {name: (job.partition, job.trays, job.segment) for name, job in asked.items()} == {
        "a": ("a", BLOCKS["a"], 0),
        "b": ("b", BLOCKS["b"][:2], 0),
    }
    assert list(questions.of_blocks(BLOCKS, [], None)) == []


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
    assert questions.segment_of(counts, limit) == segment


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
    found = questions.partitions(records, Topology("nvlink"))
    assert [(row.name, len(row.nodes), row.min_nodes, row.max_nodes) for row in found] == [
        ("none", 0, 2, 4),
        ("gpu", 4, 1, 65536),
    ]
    assert [row.name for row in questions.partitions(records[:3], Topology("nvlink"))] == ["flat"]


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
    row = live_jobs.evaluated(job, Outcome("segments", 4, "gpu", 2, "", outcome, on, [], reason), parts, BLOCK_OF)
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
        names = line.partition("--nodelist=")[2].split(" ")[0] or ",".join(sorted(BLOCK_OF)[:nodes])
        assert len(expand(names)) == nodes or "--nodelist" not in line
        return Result(0, "", f"sbatch: Job 1 to start at now using 4 processors on nodes {names} in partition gpu")


def ask(slurm: Slurm, seconds: float = 30) -> dict[str, Any]:
    topology = Topology(blocks=tuple(Block(name, tuple(nodes)) for name, nodes in BLOCKS.items()), block_sizes=(3,))
    change = {"topology": documents([topology]), "style": "conf", "version": "24.11.5", "seconds": seconds}
    answers = live_jobs.report(slurm, "/nowhere", change)
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
    assert live_jobs.report(Fake(), "/nowhere", {"topology": []}) is None
