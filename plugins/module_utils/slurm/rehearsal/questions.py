# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The questions on blocks that ``sbatch --test-only`` answers, and what it answers. Pure.

Private to this collection; it may change in any release. Python 3.9, standard library only.

One list for the slurmctld of a rehearsal (rehearse.py) and the running one (live_jobs.py), of which each asks a part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import fold
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rules import Partition, partitions_of
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import Topology, names_of

MAX_REASON = 300

Blocks = Mapping[str, Sequence[str]]
"""Block -> the nodes of it that count, in the order of the topology."""


@dataclass(frozen=True)
class TestJob:
    """A test job: its nodes and segment (0: none) in a partition.

    kind: ``block`` (the trays of one block by name), ``spread`` (no block has so many free trays), ``all`` (all trays),
    ``segments`` (of which each block must get a known number), ``partition`` (a partition's own sizes), ``past`` (as
    those of the last weeks), ``site`` (the site's list), ``control`` and ``tray`` (of live_jobs.py). block: the block
    under test. trays, without: nodes that the job requires or excludes. required: its refusal is an error.
    """

    __test__ = False  # not a test class of pytest

    kind: str
    nodes: int
    partition: str = ""
    segment: int = 0
    block: str = ""
    trays: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    required: bool = False

    def arguments(self) -> list[str]:
        """The arguments of sbatch."""
        made = ["--test-only", "--exclusive", f"--nodes={self.nodes}", "--chdir=/", "--output=/dev/null"]
        for option, value in (("partition", self.partition), ("segment", str(self.segment or ""))):
            made += [f"--{option}={value}"] if value else []
        for option, nodes in (("nodelist", self.trays), ("exclude", self.without)):
            made += [f"--{option}={fold(nodes)}"] if nodes else []
        return [*made, "--wrap", "true"]


@dataclass(frozen=True)
class Question:
    """A job, and the number of nodes that each block must give it; without ``parts`` it must only be placed."""

    job: TestJob
    parts: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Answer:
    """What the results of a job have in common: the job, and the outcome in a word."""

    kind: str
    nodes: int
    partition: str
    segment: int
    block: str
    outcome: str


@dataclass
class Outcome(Answer):
    """The result of one test job: placed (on these nodes, in these blocks), refused, or unanswered."""

    on: str = ""
    blocks: list[str] = field(default_factory=list)
    reason: str = ""
    required: bool = False


def partitions(records: Sequence[Mapping[str, str]], topology: Topology) -> list[Partition]:
    """The partitions that are up and schedule with this topology, the default first; without any, all that are up.

    In the latter a job gets no blocks, which the answers then show.
    """
    up = [record for record in records if record.get("State") == "UP" and record.get("ReqResv") != "YES"]
    found = partitions_of(sorted(up, key=lambda record: record.get("Default") != "YES"))
    return [one for one in found if one.uses(topology)] or found


def of_blocks(blocks: Blocks, usable: Sequence[Partition], limit: int | None) -> Iterator[Question]:
    """The questions on these blocks. limit: the largest segment that a job may have; None for any, 1 for no segment."""
    reach = [(one, within(blocks, one)) for one in usable]
    if reach:
        widest, here = max(reach, key=lambda row: sum(map(len, row[1].values())))
        yield from (one for one in _of_all(widest, here, limit) if widest.fits(one.job.nodes))
    for name in blocks:
        fitting = [(here[name], one) for one, here in reach if here[name] and one.fits(len(here[name]))]
        if fitting:
            trays, best = max(fitting, key=lambda row: len(row[0]))
            # Above the base size only a segment keeps a job in one block; before 25.11 there is none so large.
            yield Question(TestJob("block", len(trays), best.name, 0 if limit else len(trays), name, trays))
    for one, here in reach:
        full = max(map(len, here.values()), default=0)
        for size in sorted({1, full, full + 1}) if full else ():
            yield Question(TestJob("partition", size, one.name))


def within(blocks: Blocks, partition: Partition) -> dict[str, tuple[str, ...]]:
    """The blocks with those of their nodes that a partition has."""
    nodes = frozenset(partition.nodes)
    return {name: tuple(node for node in members if node in nodes) for name, members in blocks.items()}


def _of_all(partition: Partition, blocks: Blocks, limit: int | None) -> Iterator[Question]:
    """The jobs over several blocks. blocks: with their nodes of this partition alone."""
    counts = {name: len(members) for name, members in blocks.items() if members}
    free = {node for members in blocks.values() for node in members}
    outside = tuple(sorted(frozenset(partition.nodes) - free))
    segment = segment_of([*counts.values()], limit)
    parts = {name: number // segment * segment for name, number in counts.items() if number >= segment > 0}
    if len(parts) > 1:
        yield Question(TestJob("segments", sum(parts.values()), partition.name, segment, without=outside), parts)
    if len(counts) > 1:
        yield Question(TestJob("all", len(free), partition.name, without=outside))
    for size in sorted({*counts.values()} - {1}):
        # Exclude trays of each block until none has `size` left: only several together have.
        taken = tuple(node for members in blocks.values() for node in members[size - 1 :])
        if len(free) - len(taken) >= size:
            yield Question(TestJob("spread", size, partition.name, without=(*outside, *taken)))


def segment_of(counts: Sequence[int], limit: int | None) -> int:
    """The segment size that leaves nodes over in most blocks, the largest of those; 0 where none does.

    Where segments are ignored, a job takes these nodes too, which shows it.
    """
    most = max(counts, default=0)
    sizes = range(2, min(most, most if limit is None else limit) + 1)
    rated = ((sum(number > size and number % size > 0 for number in counts), size) for size in sizes)
    blocks, best = max(rated, default=(0, 0))
    return best if blocks else 0


_PREFIX = re.compile(r"^(sbatch: )?((error|fatal): )?(allocation failure: )?")
_TESTED = re.compile(r"Job \d+ to start at (\S+)(?: a)? using \d+ processors on nodes (\S+) in partition (\S+)")


def evaluate(job: TestJob, status: int | None, output: str, where: Mapping[str, str]) -> Outcome:
    """Parse the output of ``sbatch --test-only``; status None where it did not end in time. where: node -> block."""
    outcome = Outcome(job.kind, job.nodes, job.partition, job.segment, job.block, "unanswered", required=job.required)
    found = _TESTED.search(output)
    if found and status == 0:
        outcome.outcome, outcome.on = "placed", found[2]
        outcome.partition = job.partition or found[3]
        outcome.blocks = list(dict.fromkeys(where[node] for node in names_of(found[2]) if node in where))
    elif status is not None:
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        outcome.outcome = "refused"
        outcome.reason = _PREFIX.sub("", lines[-1] if lines else "")[:MAX_REASON]
    return outcome
