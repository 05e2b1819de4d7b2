# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answers from what slurmctld 24.11.5 and 26.05.5 printed (situations.json, by tests/integration/test_explain.py)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.child import Result
from ansible_collections.rackscale.nvlink.plugins.module_utils.explain import (
    program,
    sentences,
    situations,
    slurm_evidence,
    summary,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.explain.sentences import Answer, Change, Proposal
from ansible_collections.rackscale.nvlink.plugins.module_utils.explain.slurm_evidence import (
    Evidence,
    Job,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import placement
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.nodes import Node
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rules import Partition
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import probe
from ansible_collections.rackscale.nvlink.tests.integration.explain_table import SITUATIONS
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.slurm import slurm_fake

PRINTED = json.loads(
    Path(__file__)
    .with_name("situations.json")
    .read_text()
    .replace("\\u001f", slurm_evidence.SEPARATOR.replace("\x1f", "\\u001f"))
)
NOW = "2026-11-29T04:00:00"
IDLE = Node(frozenset(("IDLE",)))
EIGHT = {name: [f"{name}t0{number}" for number in range(1, 5)] for name in ("r01", "r02")}


def evidence_of(name: str) -> Evidence:
    printed = PRINTED[name]
    evidence = Evidence(printed["now"])
    for what in slurm_evidence.READS:
        if what in printed:
            slurm_evidence.add(evidence, what, Result(0, printed[what], ""))
    return evidence


def cluster(*jobs: Job, **more: Any) -> Evidence:
    """Two blocks of four trays in partitions gpu and gold, all idle but for these jobs."""
    trays = dict.fromkeys((tray for names in EIGHT.values() for tray in names), IDLE)
    blocks = {name: tuple(names) for name, names in EIGHT.items()}
    partitions = {name: Partition(name, tuple(trays), default=name == "gpu") for name in ("gpu", "gold")}
    known = {"trays": trays, "blocks": blocks, "sizes": (4,), "partitions": partitions, **more}
    return Evidence(NOW, {job.number: job for job in jobs}, **known)


def job(number: int, reason: str = "Resources", **more: Any) -> Job:
    state, partitions = more.pop("state", "PENDING"), more.pop("partitions", ("gpu",))
    return Job(str(number), number, state, reason, 1, "kim", partitions, **more)


def running(number: int, *names: str, **more: Any) -> Job:
    return job(number, "None", state="RUNNING", nodes=len(names), names=names, **more)


def ask(evidence: Evidence, question: str) -> Answer:
    words = program.parser().parse_args(question.split())
    if words.tray:
        return situations.of_tray(evidence, words.tray)
    if words.pending:
        return situations.of_queue(evidence)
    if not words.job:
        return situations.of_segment(evidence, words.segment, words.partition)
    found = situations.find(evidence, words.job)
    return situations.of_job(evidence, found if found.segment is not None else found._replace(segment=words.segment))


@pytest.mark.parametrize("suite", ["forky", "trixie"])
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda one: one.name)
def test_each_situation_has_its_answer(situation: Any, suite: str) -> None:
    for question, expected in situation.of(suite).items():
        evidence = evidence_of(f"{suite} {situation.name}")
        answer = ask(evidence, question)
        said = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "TIME", sentences.text(answer))
        assert said == re.sub("(It|Not known:) .*\n| in slurm.conf", "", expected)
        assert bool(answer.proposals) == ("\nIt " in expected)


def test_the_pages_have_answers_of_the_table_and_each_once() -> None:
    pages = [Path(__file__).parents[5] / "docs" / name for name in ("explain.md", "troubleshooting.md")]
    answer = re.compile(r"^    \$ nvlink-explain (.*)\n((?:    .*\n)+)", re.MULTILINE)
    blocks = [block for page in pages for block in answer.findall(page.read_text())]
    times = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d|(?<=--time=)\d+")
    shown = {(question, times.sub("TIME", textwrap.dedent(text))) for question, text in blocks}
    assert shown - {one for situation in SITUATIONS for one in situation.answers.items()} == set()
    assert len(shown) == len(blocks) > 10


def test_a_change_counts_only_where_slurmctld_starts_it_on_idle_trays() -> None:
    evidence = evidence_of("forky drained")
    two, fewer = evidence.jobs[2], Proposal("--nodes=3", 3)
    later = (datetime.fromisoformat(evidence.now) + timedelta(minutes=30)).isoformat()
    printed = f"sbatch: Job 3 to start at {later} a using 12 processors on nodes r01t[01,03-04] in partition gpu"
    change = situations.confirmed(evidence, two, fewer, printed)
    assert change == Change("It starts now with 3 trays.", "sbatch --test-only --nodes=3")
    for other in ("", printed.replace("r01t[01,03-04]", "r02t[01-03]"), printed.replace(later, "2027-11-29T04:00:00")):
        assert situations.confirmed(evidence, two, fewer, other) is None
    evidence.jobs[9] = two._replace(number=9, priority=5)
    change = situations.confirmed(evidence, two, fewer, printed)
    assert change is not None
    assert change.sentence == "It could start now, if no job before it takes these trays, with 3 trays."
    assert situations.test_options(two, fewer)[-2:] == ["--nodes=3", "--wrap=true"]


LIMITS = """\
Association Records

ClusterName=c Account=physics UserName= Partition= Priority=0 ID=2
    GrpTRES=cpu=N(8),node=2(2)
    MaxJobs= MaxWallPJ=
ClusterName=c Account=physics UserName=kim(2001) Partition= Priority=0 ID=3
    GrpJobs=N(1)
    MaxJobs=1(1) MaxWallPJ=2880

QOS Records

QOS=gold(5)
    GrpJobs=N(1) GrpWall=N(12.00)
    GrpTRES=cpu=N(8),node=3(2)
    MaxTRESPJ=node=5
    User Limits
      kim(2001)
        MaxJobsPU=N(1)
        MaxTRESPU=cpu=N(8),node=2(2)
"""


@pytest.mark.parametrize(
    ("reason", "nodes", "more", "said"),
    [
        (
            "QOSGrpNodeLimit",
            2,
            {},
            "waits for jobs: job 1 of kim, until 2026-11-29 05:00; QoS gold has node 2 of 3 in use",
        ),
        ("QOSGrpNodeLimit", 4, {}, "can never start: it asks for 4 trays, and QoS gold allows 3 (GrpTRES)"),
        (
            "QOSMaxNodePerUserLimit",
            1,
            {},
            "waits for jobs: job 1 of kim, until 2026-11-29 05:00; QoS gold has node 2 of 2 in use",
        ),
        ("QOSMaxNodePerUserLimit", 1, {"user": "lee"}, "waits for Slurm: QOSMaxNodePerUserLimit"),
        ("QOSMaxNodePerJobLimit", 6, {}, "can never start: it asks for 6 trays, and QoS gold allows 5 (MaxTRESPJ)"),
        (
            "AssocGrpNodeLimit",
            1,
            {},
            "waits for jobs: job 1 of kim, until 2026-11-29 05:00; account physics has node 2 of 2 in use",
        ),
        (
            "AssocMaxJobsLimit",
            1,
            {},
            "waits for jobs: job 1 of kim, until 2026-11-29 05:00; account physics has jobs 1 of 1 in use",
        ),
        ("AssocGrpCPUMinutesLimit", 1, {}, "waits for Slurm: AssocGrpCPUMinutesLimit"),
    ],
)
def test_limits_of_a_qos_and_of_an_account(reason: str, nodes: int, more: dict[str, str], said: str) -> None:
    of = {"qos": "gold", "account": "physics"}
    held = running(1, "r01t01", "r01t02", end="2026-11-29T05:00:00", **of)
    evidence = cluster(held, job(2, reason, nodes=nodes, **of)._replace(**more))
    # Of another account and QoS: it counts in none of these.
    evidence.jobs[3] = running(3, "r02t01", end="2026-11-29T06:00:00")
    slurm_evidence.add(evidence, "limits", Result(0, LIMITS, ""))
    answer = ask(evidence, "2")
    assert answer.sentence == f"Job 2 {said}."
    if answer.waits_for == "jobs":
        assert answer.evidence[0].names == ("job 1 of kim",)


def test_a_failed_launch_has_the_words_of_its_prolog() -> None:
    gone = Node(frozenset(("IDLE", "DRAIN")), "nvlink: IMEX: no answer", "root@2026-11-29T03:00:00")
    evidence = cluster(job(2, "launch failed requeued held", comment="IMEX on r01t01 for job 2: no answer\x1b[2J\n"))
    evidence.trays["r01t01"] = gone
    answer = ask(evidence, "2")
    assert sentences.text(answer) == (
        "Job 2 waits for an operator: its launch failed, IMEX on r01t01 for job 2: no answer [2J; after the repair"
        " scontrol update NodeName=r01t01 State=RESUME, then scontrol release 2.\n"
        "  1 drained since IMEX failed there (r01t01)\n"
    )
    assert answer.waits_for == "operator"
    # Also while it still ends on its trays.
    ends = running(2, "r01t01", comment="IMEX on r01t01")._replace(
        state="COMPLETING", reason="job requeued in held state"
    )
    assert ask(cluster(ends), "2").waits_for == "operator"


def test_a_job_of_several_partitions_of_which_one_refuses_it() -> None:
    evidence = cluster(job(2, "PartitionNodeLimit", nodes=4, partitions=("gold", "gpu")))
    evidence.partitions["gold"] = Partition("gold", evidence.partitions["gold"].nodes, max_nodes=2)
    # 25.11.1 and later start it in the other one.
    evidence.settings["slurm_version"] = "26.05.5"
    assert ask(evidence, "2").waits_for == "slurm"
    evidence.settings["slurm_version"] = "24.11.5"
    answer = ask(evidence, "2")
    assert answer.sentence == (
        "Job 2 can never start: partition gold refuses it, and this release then keeps it waiting in all of its"
        " partitions; it asks for 4 trays, and partition gold allows 2 a job (MaxNodes)."
    )
    assert answer.proposals == (Proposal("--partition=gpu", 4),)
    # Slurm places a job in one of its partitions, not over them.
    halves = {name: Partition(name, tuple(EIGHT[name])) for name in EIGHT}
    evidence = cluster(job(2, nodes=5, partitions=("r01", "r02")), partitions=halves)
    assert ask(evidence, "2").sentence == "Job 2 can never start: it asks for 5 trays, and partition r01 has 4."


def test_what_the_summary_knows_of_a_tray(tmp_path: Path) -> None:
    assert summary.health(str(tmp_path)) == summary.blocks(str(tmp_path)) == {}
    row = {"state": "unhealthy", "reason": "GPU 2 is lost", "remedy": "Reset GPU 2.", "code": "gpu_lost"}
    document = {"schema_version": 1, "at": NOW, "trays": {"r01t01": row}}
    (tmp_path / "health.json").write_text(json.dumps(document))
    blocks = {"r01": {"clique": "r01", "trays": EIGHT["r01"]}, "r02": {"clique": "r02", "trays": EIGHT["r02"]}}
    (tmp_path / "blocks.json").write_text(json.dumps({"schema_version": 1, "blocks": blocks}))
    health = summary.health(str(tmp_path))
    answer = situations.of_tray(cluster(), "r01t01", health)
    assert answer.sentence.endswith(" is in service and is idle, and unhealthy by verify: GPU 2 is lost.")
    gone = Node(frozenset(("IDLE", "DRAIN")), "nvlink", "root@2026-11-29T03:00:00")
    answer = situations.of_tray(cluster(trays={"r01t01": gone}), "r01t01", health)
    resume = "ansible-playbook rackscale.nvlink.resume -e resume_trays=r01t01."
    gone_since = "r01t01 of block r01 is drained: nvlink, since 2026-11-29 03:00, by root"
    assert answer.sentence == f"{gone_since}; Reset GPU 2, then {resume}"
    # A playbook has drained it, a person, or nobody, and verify knows nothing of it.
    for state, reason, todo in (
        ("DOWN DRAIN", "nvlink: broken", f"repair it, then {resume}"),
        ("DOWN DRAIN", "GPU 2", "scontrol update NodeName=r01t01 State=RESUME, once it is repaired."),
        ("DOWN NOT_RESPONDING", "Not responding", f"repair it, then {resume}"),
    ):
        evidence = cluster(trays={"r01t01": Node(frozenset(state.split()), reason)})
        assert situations.of_tray(evidence, "r01t01").sentence.endswith(f"{reason}; {todo}")
    silent = cluster(trays={"r01t01": Node(frozenset(("IDLE", "NOT_RESPONDING")))})
    assert situations.of_tray(silent, "r01t01").sentence.startswith("r01t01 of block r01 is not responding; repair it")
    # Without blocks in Slurm those of the summary say where NVLink ends.
    evidence = cluster(running(1, "r01t04", "r02t01"), blocks={}, sizes=(), in_summary=summary.blocks(str(tmp_path)))
    assert "NVLink ends between r01t04 and r02t01" in ask(evidence, "1").sentence
    # Blocks of one clique, which the site has split, share NVLink.
    halves = {"r01": EIGHT["r01"][:2], "r01-2": EIGHT["r01"][2:], "r02": EIGHT["r02"]}
    rows = {name: {"clique": name[:3], "trays": trays} for name, trays in halves.items()}
    (tmp_path / "blocks.json").write_text(json.dumps({"schema_version": 1, "blocks": rows}))
    in_summary = summary.blocks(str(tmp_path))
    evidence = cluster(running(1, "r01t01", "r01t03"), blocks=halves, in_summary=in_summary)
    assert ask(evidence, "1").sentence.startswith("Job 1 runs on 2 trays of blocks r01, r01-2, which are one clique")
    evidence = cluster(running(1, "r01t01", "r01t03", "r02t01"), blocks=halves, in_summary=in_summary)
    assert "1+1+1 in 3 blocks: NVLink ends between r01t03 and r02t01" in ask(evidence, "1").sentence
    for text in ('{"schema_version": 2}', "[]", "{"):
        (tmp_path / "health.json").write_text(text)
        assert summary.health(str(tmp_path)) == {}


def test_what_is_not_weighed_is_said() -> None:
    evidence = cluster(settings={"preempttype": "preempt/qos"})
    waits = job(situations._FEDERATED + 7, features="gb300", het="9")
    [said] = situations.not_weighed(evidence, waits)
    assert said == (
        "which running jobs it may preempt (PreemptType=preempt/qos); which trays have gb300 (--constraint), so that"
        " all count; the other components of heterogeneous job 9; its siblings in other clusters of the federation"
    )
    assert situations.not_weighed(cluster(settings={"preempttype": "preempt/none"}), job(2)) == []
    evidence = cluster(trays={"r01t01": Node(frozenset(("MIXED",)))}, settings={"privatedata": "jobs,usage"})
    assert situations.not_weighed(evidence, job(2, shared=True)) == [
        "the jobs that PrivateData hides from you; whether it fits beside the jobs on trays that are shared"
    ]
    # A tray that is taken by no job that this user sees.
    evidence = cluster(job(2, nodes=8))
    evidence.trays["r01t01"] = Node(frozenset(("ALLOCATED",)))
    assert ask(evidence, "2").sentence.startswith("Job 2 waits for jobs: jobs that you may not see, without an end; it")


def test_tasks_of_an_array_that_wait() -> None:
    evidence = cluster(job(30, "Priority")._replace(shown="30_[2-4,9%2]"), running(31, "r01t01")._replace(shown="30_1"))
    assert [situations.find(evidence, words).number for words in ("30_3", "30", "30_1", "31", "30_9")] == [
        30,
        30,
        31,
        31,
        30,
    ]
    with pytest.raises(situations.QuestionError, match="no job 30_5 in the queue"):
        situations.find(evidence, "30_5")


def test_no_text_of_a_user_or_an_operator_ends_a_column_or_adds_a_row() -> None:
    hostile = "x\x1f\n9\x1f9\x1fPD\u2028\u202e\x1b[2J\r"
    evidence = evidence_of("forky drained")
    for name, old in (("trays", "GPU 2 lost"), ("jobs", "root")):
        text = PRINTED["forky drained"][name].replace(old, hostile)
        slurm_evidence.add(evidence, name, Result(0, text, ""))
    assert (len(evidence.trays), len(evidence.jobs)) == (8, 2)
    lines = sentences.text(ask(evidence, "2")).split("\n")
    assert len(lines) == len(sentences.text(ask(evidence_of("forky drained"), "2")).splitlines()) + 1
    assert all(line.isprintable() for line in lines)


def test_the_queue_is_analysed_by_request_and_counts_who_waits_for_trays_out_of_service() -> None:
    gone = Node(frozenset(("IDLE", "DRAIN")), "RMA", "root@2026-11-29T03:00:00")
    waiting = [job(number, nodes=4, qos="gold") for number in range(10, 60)]
    evidence = cluster(*waiting, running(1, *EIGHT["r01"]), job(70, nodes=9), job(71, "Dependency"))
    evidence.trays.update(r02t01=gone)
    answer = ask(evidence, "--pending")
    assert answer.waits_for == "operator"
    assert sentences.text(answer) == (
        "52 jobs wait in the queue, most of them wait for an operator: Resources.\n"
        "  1 tray is out of service and 50 jobs wait for it\n"
        "  50 of 52 wait for an operator: Resources (10, 11, 12)\n"
        "  1 of 52 can never start: Resources (70)\n"
        "  1 of 52 wait for Slurm: Dependency (71)\n"
    )


def test_what_may_not_be_read_is_said() -> None:
    evidence = Evidence(NOW)
    slurm_evidence.add(evidence, "trays", Result(1, "", "slurm_load_partitions: Access/permission denied"))
    slurm_evidence.add(evidence, "limits", Result(1, "", "no slurmdbd"))
    ask_them = "of this cluster: ask an administrator"
    assert evidence.missing == [f"you may not read the trays {ask_them}", f"you may not read the limits {ask_them}"]
    # Without the list of trays nothing is guessed from the others.
    assert ask(cluster(job(2, nodes=8), trays={}), "2").sentence == "Job 2 waits for Slurm: Resources."
    with pytest.raises(slurm_evidence.SlurmError, match="squeue failed"):
        slurm_evidence.add(evidence, "jobs", Result(1, "", "slurm_load_jobs error: Unable to contact slurm controller"))
    with pytest.raises(situations.QuestionError, match="There is no job 7 in the queue of cluster"):
        situations.find(evidence, "7")
    with pytest.raises(situations.QuestionError, match=r"^abc is no job ID, which is a number such as 4711\.$"):
        situations.find(evidence, "abc")


def test_next_to_5000_jobs_few_placements_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them costs milliseconds on 576 blocks; the bench has the seconds."""
    names = {f"r{rack:03d}": [f"r{rack:03d}t{tray:02d}" for tray in range(1, 19)] for rack in range(576)}
    trays = dict.fromkeys((tray for members in names.values() for tray in members), IDLE)
    ends = [f"2026-11-29T{5 + number % 18:02d}:{number % 60:02d}:00" for number in range(5000)]
    jobs = {number: running(number, name, end=end) for number, name, end in zip(range(5000), trays, ends)}
    jobs[9999] = job(9999, nodes=360 * 18)
    blocks = {name: tuple(members) for name, members in names.items()}
    evidence = Evidence(NOW, jobs, trays, {"gpu": Partition("gpu", tuple(trays))}, (), blocks, (18,))
    compared: list[int] = []
    places = placement.places
    monkeypatch.setattr(placement, "places", lambda *given: compared.append(1) or places(*given))
    assert situations.of_job(evidence, jobs[9999]).waits_for == "jobs"
    assert len(compared) < 100


def test_the_program_runs_alone(tmp_path: Path) -> None:
    path = tmp_path / "nvlink-explain"
    path.write_bytes(probe.program(sys.executable, "explain/program"))
    path.chmod(0o755)
    done = subprocess.run([path, "--help"], capture_output=True, text=True, check=False, cwd="/")
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage: nvlink-explain" in done.stdout


def test_the_program_answers_from_slurms_programs(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    printed = PRINTED["forky drained"]
    texts = {"squeue": "jobs", "sinfo": "trays"}
    for name, what in texts.items():
        (tmp_path / what).write_text(printed[what])
        slurm_fake.programs(tmp_path, **{name: f"cat {tmp_path / what}"})
    for what in ("partitions", "reservations", "blocks", "settings"):
        (tmp_path / what).write_text(printed[what])
    shown = {"partitions": "partitions", "reservation": "reservations", "topology": "blocks", "config": "settings"}
    cases = "".join(f"*{word}) cat {tmp_path / what} ;;\n" for word, what in shown.items())
    slurm_fake.programs(tmp_path, scontrol=f'case "$*" in {cases} esac', sbatch="exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert program.main(["2", "--json"], {}) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema_version"], document["waits_for"], document["change"]) == (1, "jobs", None)
    assert program.main(["77"], {}) == 1
    assert capsys.readouterr().err.startswith("nvlink-explain: There is no job 77 in the queue")
    with pytest.raises(SystemExit):
        program.main(["2", "--pending"], {})
