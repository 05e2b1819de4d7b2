# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An answer, its words, and its two forms: text and JSON. Pure.

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.explain.slurm_evidence import EXPEDITING, Job
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import fold
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import rules
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.nodes import Node
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, one_line, shortened, summarize

SCHEMA_VERSION = 1
JOBS, OPERATOR, NEVER, SLURM, NOTHING = "jobs", "operator", "never", "slurm", "nothing"
WORDS = {
    JOBS: "waits for jobs",
    OPERATOR: "waits for an operator",
    NEVER: "can never start",
    SLURM: "waits for Slurm",
    NOTHING: "waits for nothing",
}
"""waits_for -> how a first line begins, after the name of what waits."""
MAX_ROWS = 5
# Characters of a text that somebody else wrote.
MAX_WORDS = 160


@dataclass(frozen=True)
class Row:
    """One line of evidence: ``count`` of ``of`` trays are ``what``; of: None where there is no whole.

    names: what they are, ``r01 8`` for eight of a block. until: a local time in ISO form, empty for none.
    """

    what: str
    count: int
    of: int | None = None
    names: tuple[str, ...] = ()
    until: str = ""


class Change(NamedTuple):
    """What would end the wait, and the test that has confirmed it."""

    sentence: str
    confirmed_by: str


class Proposal(NamedTuple):
    """A change that is still to be tested. option: of sbatch, in place of the job's own."""

    option: str
    nodes: int
    note: str = ""
    minutes: int = 0


class Answer(NamedTuple):
    """waits_for: jobs, operator, never, slurm or nothing.

    No part of the JSON: proposals, the cheapest first; out, the trays out of service that it waits for.
    """

    kind: str
    subject: str
    waits_for: str
    sentence: str
    evidence: tuple[Row, ...] = ()
    change: Change | None = None
    proposals: tuple[Proposal, ...] = ()
    out: tuple[str, ...] = ()


def clean(words: str) -> str:
    """A text of a user or an operator as part of one line: no control characters, none that turn the direction."""
    return shortened(" ".join(one_line(words[:1000]).split()), MAX_WORDS)


def when(time: str) -> str:
    """An ISO time to the minute."""
    return time[:16].replace("T", " ")


def trays(names: Iterable[str], limit: int = 6) -> str:
    """Names of trays: folded, or counted where that is long."""
    names = list(names)
    folded = fold(sorted(names))
    return folded if len(folded) <= 60 else summarize(names, limit)


def blocks(counts: Mapping[str, int]) -> tuple[str, ...]:
    """``r01 8``, the largest first."""
    ranked = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return tuple(f"{name} {number}" for name, number in ranked if number)


def state(node: Node) -> str:
    """Why a tray runs no new job: ``drained: GPU 2 lost, since 2026-11-21 15:10, by root``."""
    words = node.words
    if "DOWN" in words:
        what = "down"
    elif "DRAIN" in words:
        what = "draining" if words & {"ALLOCATED", "MIXED"} else "drained"
    else:
        # IDLE+NOT_RESPONDING: slurmctld has not set it DOWN yet.
        what = next((word.lower().replace("_", " ") for word in sorted(words & rules.UNAVAILABLE)), "unknown")
    who, _at, since = node.by.partition("@")
    reason = f": {clean(node.reason)}" if node.reason else ""
    return f"{what}{reason}{f', since {when(since)}' if since else ''}{f', by {clean(who)}' if who else ''}"


def request(nodes: int, segment: int | None, base: int) -> str:
    """What a job asks of the blocks: ``4 trays in one block``."""
    if segment and nodes > segment:
        return f"{nodes} trays in {count(nodes // segment, 'segment')} of {segment}, each in one block"
    if base and nodes <= max(base, segment or 0):
        return f"{count(nodes, 'tray')} in one block" if nodes > 1 else "1 tray"
    if base:
        return f"{nodes} trays in at most {-(-nodes // base)} blocks"
    return count(nodes, "tray")


def named_jobs(jobs: Iterable[Job], hidden: bool = False) -> str:
    """``job 7 of kim``, or counted. hidden: whether there are others, which this user may not see."""
    rows = ((job, " (expedited requeue)" if job.state == EXPEDITING else "") for job in jobs)
    names = [f"job {job.shown} of {clean(job.user)}{expedited}" for job, expedited in rows]
    return summarize([*names, *(["jobs that you may not see"] if hidden else [])], 3)


def counted(
    causes: Mapping[tuple[str, str], Sequence[str]], words: Mapping[str, str], named: int | None = None
) -> tuple[str, tuple[Row, ...]]:
    """(waits_for of the most frequent cause, the rows), of waits_for and its cause -> what waits.

    words: as WORDS. named: how many of a row are named, None for all.
    """
    total = sum(map(len, causes.values()))
    ranked = sorted(causes.items(), key=lambda one: (-len(one[1]), one[0][0] == SLURM, one[0]))
    # The plural of the verb.
    rows = (
        Row(f"{words[word].replace('s ', ' ', 1)}: {why}", len(names), total, tuple(names[:named]))
        for (word, why), names in ranked
    )
    return ranked[0][0][0] if ranked else NOTHING, tuple(rows)


def latest(jobs: Iterable[Job]) -> str:
    """When the last of these jobs ends; empty where one has no end."""
    ends = [job.end for job in jobs]
    return max(ends) if ends and all(ends) else ""


def text(answer: Answer, notes: Sequence[str] = ()) -> str:
    """The answer for a terminal: its sentence, the evidence, the change, and what is not known."""
    lines = [answer.sentence, *(f"  {_line(row)}" for row in answer.evidence[:MAX_ROWS])]
    if answer.change is not None:
        lines.append(f"{answer.change.sentence.rstrip('.')} ({answer.change.confirmed_by}).")
    lines += [f"Not known: {note}." for note in notes]
    return "".join(f"{one_line(line)}\n" for line in lines)


def _line(row: Row) -> str:
    number = str(row.count) if row.of is None else f"{row.count} of {row.of}"
    names = f" ({summarize(row.names, 6)})" if row.names else ""
    return f"{number} {row.what}{names}{f' until {when(row.until)}' if row.until else ''}"


def as_dict(answer: Answer, notes: Sequence[str] = ()) -> dict[str, Any]:
    """The document of ``--json``, schema_version 1: the fields of Answer, and ``unknown``, what could not be read."""
    rows = [{**asdict(row), "names": list(row.names), "until": row.until or None} for row in answer.evidence]
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": answer.kind,
        "subject": answer.subject,
        "waits_for": answer.waits_for,
        "sentence": one_line(answer.sentence),
        "evidence": rows[:MAX_ROWS],
        "change": None if answer.change is None else answer.change._asdict(),
        "unknown": list(notes),
    }
