# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ask the running slurmctld where it would place jobs, by ``sbatch --test-only``, which queues none.

Private to this collection; it may change in any release. Python 3.9, standard library only.

``scontrol show topology`` prints the blocks of a topology, not what the scheduler does with them. Observed on slurmctld
24.11.5 and 26.05.5: with SelectType=select/linear, or where a partition was moved to another topology by ``scontrol
update``, segments are ignored while the blocks look right. From source (SchedMD/slurm pull request 225): 25.05 to
26.05.3 may drop a node from block scheduling that ``show topology`` still lists.

The questions: segments of which each block must get a known number, a job of all trays, and for each block a job on all
its usable trays by name; each tray alone where that job is refused. What is refused is asked again in a rehearsal with
the files of this host, which separates faults of the running slurmctld from those of its files. Trays that are drained
or down are left out; jobs that run only delay the start that slurmctld predicts.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import rules, scontrol
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rehearsal import questions
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rehearsal.questions import (
    Answer,
    Outcome,
    Question,
    TestJob,
    evaluate,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rehearsal.rehearse import (
    MAX_WORKERS,
    Candidate,
    rehearse,
    shown_nodes,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize

# Seconds that one question may take; sbatch itself waits for MessageTimeout.
QUESTION = 10.0
# Questions between two looks at the time limit.
_BATCH = 2 * MAX_WORKERS
_LATE = "the time limit was reached"
# A rehearsal that has less time than this is left out.
MIN_REHEARSAL = 3.0
# Jobs that a rehearsal repeats.
MAX_REHEARSED = 20
# The questions whose answers the blocks promise, so that the running slurmctld is asked.
_KINDS = ("segments", "all", "block")
# All other refusals are of the job's account, user or partition and show nothing of the blocks.
_BY_TOPOLOGY = ("requested node configuration is not available", "topology")


@dataclass
class Row(Answer):
    """A job that slurmctld does not place as its blocks promise.

    outcome: ``refused``, or ``spread`` where segments are not whole inside the blocks. trays: those of the block that
    are refused alone. placed_on: the nodes that it got. rehearsed: the outcome of the same job in a rehearsal, empty
    where there was none.
    """

    reason: str = ""
    trays: list[str] = field(default_factory=list)
    placed_on: str = ""
    rehearsed: str = ""


@dataclass
class Answers:
    """planned, asked: numbers of questions. why: the reason why slurmctld could not be asked, or not to the end.

    left_out: trays of blocks that no question names, since they are unavailable or in no partition that takes the job.
    counts: the usable trays of each block in the partition of the job of all trays; empty without such a job.
    """

    planned: int = 0
    asked: int = 0
    why: str = ""
    seconds: float = 0.0
    left_out: int = 0
    counts: list[int] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def result(self) -> dict[str, Any]:
        return {**asdict(self), "seconds": round(self.seconds, 2)}


def report(slurm: Slurm, conf_dir: str, change: Arguments) -> dict[str, Any] | None:
    """Ask for at most ``seconds`` of the change. None without a block topology.

    change: topology, that runs, in the form of topology.yaml; style of its file; version; seconds.
    """
    started = time.monotonic()
    topologies = scontrol.topologies_of(change["topology"])
    if not topologies:
        return None
    answers = Answers()
    try:
        candidate = Candidate(conf_dir, topologies[0], rules.parse_version(change["version"]), change["style"])
        _ask(slurm, candidate, answers, started + change["seconds"])
    except SlurmError as error:
        answers.why = str(error).rstrip(".")
    answers.seconds = time.monotonic() - started
    return answers.result()


def _ask(slurm: Slurm, candidate: Candidate, answers: Answers, until: float) -> None:
    slurm.program("sbatch")
    topology = candidate.topology
    records = tuple(slurm.records("nodes"))
    states = {record["NodeName"]: record.get("State", "").upper().split("+") for record in records}
    usable = {name for name, state in states.items() if rules.UNAVAILABLE.isdisjoint(state)}
    blocks = {block.name: tuple(node for node in block.nodes if node in usable) for block in topology.blocks}
    where = {node: name for name, members in blocks.items() for node in members}
    asker = _Asker(slurm, answers, where, until)
    found, asked = _accepted(asker, blocks, candidate)
    answers.left_out = len({node for block in topology.blocks for node in block.nodes})
    answers.left_out -= len({tray for one in asked for tray in one.job.trays})
    for whole in (one.job for one in asked if one.job.kind == "all"):
        reach = next(partition for partition in found if partition.name == whole.partition)
        answers.counts = [*map(len, questions.within(blocks, reach).values())]
    parts = {one.job: one.parts for one in asked}
    wrong = []
    for job, outcome in asker.ask(list(parts)):
        row = evaluated(job, outcome, parts[job], where)
        if row is not None:
            wrong.append((job, row))
        elif outcome.outcome == "refused":
            answers.why = answers.why or f"partition {job.partition}: {outcome.reason}"
    for job, row in wrong:
        if row.kind == "block":
            alone = [replace(job, kind="tray", nodes=1, segment=0, trays=(tray,)) for tray in job.trays]
            row.trays = [one.trays[0] for one, outcome in asker.ask(alone) if outcome.outcome == "refused"]
    answers.rows = [row for _job, row in wrong]
    left = until - time.monotonic()
    if wrong and left > MIN_REHEARSAL:
        some = wrong[:MAX_REHEARSED]
        again = replace(candidate, jobs=tuple(job for job, _row in some), only_jobs=True, records=records)
        rehearsal = rehearse(slurm, again, left)
        for (job, row), outcome in zip(some, rehearsal.outcomes):
            row.rehearsed = _verdict(evaluated(job, outcome, parts[job], where), outcome)


def _accepted(
    asker: _Asker, blocks: questions.Blocks, candidate: Candidate
) -> tuple[list[rules.Partition], list[Question]]:
    """The partitions that take a job of this user, and the questions there.

    One that refuses any job shows nothing of the blocks.
    """
    answers, topology = asker.answers, candidate.topology
    found = questions.partitions(asker.slurm.records("partitions"), topology)
    limit = rules.segment_limit(candidate.version, topology.block_sizes[0])
    refusal = "no partition that is up has a tray of its blocks" if asker.where else ""
    accepted: set[str] = set()
    while True:
        asked = [one for one in questions.of_blocks(blocks, found, limit) if one.job.kind in _KINDS]
        used = {one.job.partition for one in asked} - accepted
        controls = [
            TestJob("control", partition.min_nodes, partition.name) for partition in found if partition.name in used
        ]
        for _job, outcome in asker.ask(controls):
            if outcome.outcome == "placed":
                accepted.add(outcome.partition)
            else:
                refusal = f"partition {outcome.partition}: {outcome.reason}"
        if answers.why or used <= accepted:
            break
        found = [partition for partition in found if partition.name in accepted or partition.name not in used]
    if not asked:
        answers.why = answers.why or refusal
    return found, asked


def _verdict(row: Row | None, outcome: Outcome) -> str:
    """The outcome of a rehearsed job as that of a row; empty where it shows nothing of the blocks."""
    if row is not None:
        return row.outcome
    return "placed" if outcome.outcome == "placed" else ""


class _Asker:
    """Asks within the time limit and stops at the first question without an answer."""

    def __init__(self, slurm: Slurm, answers: Answers, where: Mapping[str, str], until: float) -> None:
        self.slurm, self.answers, self.where, self.until = slurm, answers, where, until

    def ask(self, jobs: Sequence[TestJob]) -> Iterator[tuple[TestJob, Outcome]]:
        """The jobs with their outcomes, those that were answered."""
        answers = self.answers
        answers.planned += len(jobs)
        found: list[tuple[TestJob, Outcome]] = []
        for start in range(0, len(jobs), _BATCH):
            left = self.until - time.monotonic()
            if left <= 0 and not answers.why:
                answers.why = _LATE
            if answers.why:
                break
            some = jobs[start : start + _BATCH]
            timeout = min(QUESTION, left * MAX_WORKERS / _BATCH)
            words = [job.arguments() for job in some]
            for job, done in zip(some, self.slurm.call_each("sbatch", words, timeout, MAX_WORKERS)):
                status = None if done.timed_out else done.rc
                outcome = evaluate(job, status, f"{done.stdout}\n{done.stderr}", self.where)
                if outcome.outcome == "unanswered":
                    answers.why = answers.why or (_LATE if timeout < QUESTION else f"no answer in {QUESTION:.0f} s")
                else:
                    answers.asked += 1
                    found.append((job, outcome))
        return iter(found)


# ------------------------------------------------------------------------------------------------------ pure functions


def evaluated(job: TestJob, outcome: Outcome, parts: Mapping[str, int], where: Mapping[str, str]) -> Row | None:
    """The row of a job that is not placed as promised; None where it is, or where its refusal has another reason."""
    row = Row(job.kind, job.nodes, job.partition, job.segment, job.block, outcome.outcome, outcome.reason)
    if outcome.outcome == "refused":
        return row if any(text in outcome.reason.lower() for text in _BY_TOPOLOGY) else None
    if outcome.outcome != "placed" or not parts:
        return None
    got = Counter(where.get(node, "") for node in expand(outcome.on))
    if dict(got) == dict(parts):
        return None
    row.outcome, row.placed_on = "spread", shown_nodes(outcome.on)
    text = (f"{got[name]} of {name}" for name in parts if got[name] != parts[name])
    row.reason = summarize(text)
    return row
