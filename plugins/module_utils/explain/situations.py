# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence and a question -> an answer. Pure.

Private to this collection; it may change in any release. Python 3.9, standard library only.

A reason of Slurm that is not about trays is given as it is. Where Slurm waits for trays, the trays of the job's
partitions are sorted by what holds them (holding.py), and the answer is what must come free before they suffice.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.explain import sentences
from ansible_collections.rackscale.nvlink.plugins.module_utils.explain.holding import (
    BUSY,
    OUT,
    RESERVED,
    Holding,
    is_away,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.explain.sentences import (
    JOBS,
    NEVER,
    NOTHING,
    OPERATOR,
    SLURM,
    Answer,
    Change,
    Proposal,
    Row,
    clean,
    when,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.explain.slurm_evidence import (
    ACTIVE,
    PENDING,
    Evidence,
    Job,
    Partition,
    seconds_of,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.explain.summary import Health
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import HostlistError, expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize

_PLACEMENT = re.compile(r"Resources|ReqNodeNotAvail|Nodes required for job|.*topolog", re.IGNORECASE)
_TEST = re.compile(r"to start at (\S+) .*on nodes (\S+) in partition")
# Seconds from now in which a tested job still counts as one that starts now. To its estimate slurmctld adds the
# node-minutes of the pending jobs that are not behind it, the job itself among them, over the partition's nodes.
_SOON = 90
_YEAR_MINUTES = 365 * 1440
# Requests of `--pending` that are analysed, the most frequent ones: each costs a quarter of a second on 10,368 trays.
_MAX_ANALYSED = 8
# From here on a job's ID has the cluster of a federation in it.
_FEDERATED = 1 << 26


class QuestionError(NvlinkError):
    """The question names what Slurm does not show; the message is one sentence."""


def find(evidence: Evidence, words: str) -> Job:
    """The job of that ID, in one of Slurm's forms: 1234, 1234_5, 1234+1."""
    jobs = evidence.jobs.values()
    number = int(words) if words.isdecimal() else 0
    found = evidence.jobs.get(number) or next((job for job in jobs if job.shown == words), None)
    # The waiting tasks of an array are one row, 1234_[5-9].
    found = found or next((job for job in jobs if job.shown.startswith(f"{words.partition('_')[0]}_[")), None)
    if found is None:
        hides = "jobs" in evidence.settings.get("privatedata", "")
        more = ", or PrivateData hides it from you" if hides else ""
        raise QuestionError(f"There is no job {clean(words)} in the queue: it has ended (sacct -j shows it){more}.")
    return found


def of_job(evidence: Evidence, job: Job, health: Health | None = None) -> Answer:
    """Why this job waits, or how it was placed."""
    if job.state in ACTIVE:
        return _running(evidence, job)
    for begins, answer in _REASONS:
        if re.match(begins, job.reason):
            found = answer(evidence, job)
            if found is not None:
                return found
    if _PLACEMENT.match(job.reason):
        return _waits_for_trays(evidence, job, health or {})
    return _slurm(evidence, job)


def not_weighed(evidence: Evidence, job: Job | None) -> list[str]:
    """What may decide, and these answers leave out, as one text or none."""
    kind, features = evidence.settings.get("preempttype", "(null)"), clean(job.features) if job else ""
    found = {
        f"which running jobs it may preempt (PreemptType={clean(kind)})": kind not in ("(null)", "preempt/none"),
        f"which trays have {features} (--constraint), so that all count": bool(features),
        f"the other components of heterogeneous job {job.het if job else ''}": job is not None and bool(job.het),
        "its siblings in other clusters of the federation": job is not None and job.number >= _FEDERATED,
    }
    return ["; ".join(what for what, applies in found.items() if applies)] if any(found.values()) else []


def _slurm(_evidence: Evidence, job: Job) -> Answer:
    reason = clean(job.reason) or "it has not been considered yet"
    return _answer(job, SLURM, f"Job {_name(job)} waits for Slurm: {reason}.")


def _answer(job: Job, waits_for: str, sentence: str, rows: Sequence[Row] = ()) -> Answer:
    return Answer("job", _name(job), waits_for, sentence, tuple(rows))


def _name(job: Job) -> str:
    return clean(job.shown)


# ------------------------------------------------------------------------------------------------- reasons of Slurm


def _partition_limit(evidence: Evidence, job: Job) -> Answer | None:
    """Never, where a limit of each of its partitions says so.

    slurmctld calls it PartitionNodeLimit, for a moment PartitionConfig, and behind such a job Priority.
    """
    broken = [_broken(job, evidence.partitions[name]) for name in job.partitions if name in evidence.partitions]
    if not broken or len(broken) < len(job.partitions):
        return None
    refused = [limit for limit in broken if limit]
    if len(refused) == len(broken):
        return _answer(job, NEVER, f"Job {_name(job)} can never start: {'; '.join(refused)}.")
    if not refused or not job.reason.startswith("Partition"):
        return None
    # Before 25.11.1 a job of several partitions waits in all when one refuses it.
    taken = [name for name, limit in zip(job.partitions, broken) if not limit]
    answer = _answer(job, NEVER, f"Job {_name(job)} waits in all of its partitions since one refuses it: {refused[0]}.")
    return answer._replace(proposals=(Proposal((f"--partition={taken[0]}",), job.nodes),))


def _broken(job: Job, partition: Partition) -> str:
    """Which limit of the partition the job breaks, in a clause; empty for none."""
    name, number = clean(partition.name), len(partition.nodes)
    if partition.most is not None and job.nodes > partition.most:
        return f"it asks for {count(job.nodes, 'tray')}, and partition {name} allows {partition.most} a job (MaxNodes)"
    if job.nodes < partition.least:
        return f"it asks for {count(job.nodes, 'tray')}, and partition {name} begins at {partition.least} (MinNodes)"
    if job.nodes > number:
        return f"it asks for {count(job.nodes, 'tray')}, and partition {name} has {number}"
    if partition.minutes is not None and (job.minutes is None or job.minutes > partition.minutes):
        asked = "no time limit" if job.minutes is None else f"{job.minutes} minutes"
        return f"it asks for {asked}, and partition {name} allows {partition.minutes} (MaxTime)"
    return ""


def _partition_down(evidence: Evidence, job: Job) -> Answer | None:
    known = [evidence.partitions[name] for name in job.partitions if name in evidence.partitions]
    down = [f"partition {clean(one.name)} is {clean(one.state)}" for one in known if one.state != "UP"]
    if not down:
        return None
    back = clean(known[0].name)
    remedy = f"scontrol update PartitionName={back} State=UP brings it back"
    return _answer(job, OPERATOR, f"Job {_name(job)} waits for an operator: {summarize(down)}; {remedy}.")


def _launch_failed(evidence: Evidence, job: Job) -> Answer:
    """Held by Slurm after its Prolog failed; the Prolog for IMEX leaves its reason in the AdminComment."""
    why = clean(job.comment) or "its Prolog failed; the log of slurmd on its trays has the reason"
    drained = sorted(name for name, node in evidence.trays.items() if node.drained and node.reason.startswith("IMEX"))
    rows = [Row("drained since IMEX failed there", len(drained), None, (sentences.trays(drained),))] if drained else []
    first = f"scontrol update NodeName={sentences.trays(drained)} State=RESUME, then " if drained else ""
    after = f"after the repair {first}scontrol release {job.number}"
    return _answer(
        job, OPERATOR, f"Job {_name(job)} is held since its launch failed: {why.rstrip('.')}; {after}.", rows
    )


def _channels(evidence: Evidence, job: Job) -> Answer | None:
    """Where each channel is in use; up to 25.05 a job starts without one. Slurm calls it Resources for a moment."""
    running = [one for one in evidence.jobs.values() if one.state in ACTIVE]
    found = re.search(r"imex_channel_count=(\d+)", evidence.settings.get("switchparameters", ""))
    of = int(found[1]) if found else len(running) + 1
    if len(running) < of or evidence.version < (25, 11, 0):
        return None
    ends = sorted(one.end for one in running if one.end)
    row = Row("IMEX channels of the cluster in use, one a job", len(running), of, (), ends[0] if ends else "")
    sentence = f"Job {_name(job)} waits for jobs: each of the cluster's IMEX channels belongs to a running job"
    return _answer(job, JOBS, f"{sentence}{f'; the next job ends {when(ends[0])}' if ends else ''}.", [row])


def _quota(evidence: Evidence, job: Job) -> Answer | None:
    """Limits of a QoS or an account: those of one job are never met, the others wait for the jobs that count."""
    word = clean(job.reason)
    of_qos = word.startswith("QOS")
    what = f"the QoS {clean(job.qos)}" if of_qos else "its account"
    limits = evidence.qos.get(job.qos, {}) if of_qos else {}
    shown = ", ".join(f"{key} {clean(value)}" for key, value in limits.items() if value and key != "Name")
    limit = f" ({shown})" if shown else ""
    if "PerJob" in word or "PerNode" in word:
        asked = f"it asks for {count(job.nodes, 'tray')}"
        return _answer(job, NEVER, f"Job {_name(job)} can never start: {asked}, above {what}{limit}: {word}.")
    own = "User" in word or "PU" in word
    holders = [one for one in evidence.jobs.values() if one.state in ACTIVE and of_qos and one.qos == job.qos]
    holders = [one for one in holders if one.user == job.user or not own]
    if not holders or "Minutes" in word:
        return None
    ends = [one.end for one in holders]
    end = max(ends) if all(ends) else ""
    names = sentences.named_jobs([(one.shown, one.user) for one in holders])
    row = Row(f"trays of {what} in use", sum(len(one.names) for one in holders), None, (names,), end)
    return _answer(job, JOBS, f"Job {_name(job)} waits for {names}: {what} is at its limit{limit}.", [row])


_REASONS: tuple[tuple[str, Callable[[Evidence, Job], Answer | None]], ...] = (
    ("Partition(Node|Time)Limit|PartitionConfig|Priority|Resources", _partition_limit),
    ("Partition(Down|Inactive)", _partition_down),
    (r"launch.failed.requeued.held|.*[Pp]rolog.*(fail|error)", _launch_failed),
    ("NvidiaImexChannels", _channels),
    ("QOS|Assoc", _quota),
)


# ---------------------------------------------------------------------------------------------------------- placement


def _waits_for_trays(evidence: Evidence, job: Job, health: Health) -> Answer:
    held = Holding(evidence, job)
    if not held.trays:
        return _slurm(evidence, job)
    if held.places(held.idle()) and (answer := _channels(evidence, job)):
        return answer
    asks = f"it needs {sentences.request(job.nodes, job.segment, held.base)}"
    waits_for, sentence, out = _decide(held, job, health, f"Job {_name(job)}", asks)
    proposals = () if held.places(held.idle()) else _proposals(held, job)
    return _answer(job, waits_for, sentence, held.rows())._replace(proposals=proposals, out=out)


def _decide(held: Holding, job: Job, health: Health, who: str, asks: str) -> tuple[str, str, int]:
    """The word, the sentence, and the number of trays out of service that it needs.

    Each step adds what must come free; the last has all trays of its partitions.
    """
    idle = held.idle()
    if held.places(idle):
        before = held.rivals(idle)
        jobs = sentences.named_jobs([(one.shown, one.user) for one in before])
        why = f"{jobs} {'is' if len(before) == 1 else 'are'} before it" if before else clean(job.reason)
        return SLURM, f"{who} waits for Slurm: idle trays fit ({asks}), {why}.", 0
    timed, out, everything = held.timed(), held.of_kind(OUT), set(held.trays)
    kept = held.of_kind(RESERVED) - timed
    soon = held.ended_by(held.earliest_end())
    # What ends by itself first, then what an operator can end.
    for more in (soon, out, timed | out, kept, timed | kept, timed | out | kept, held.of_kind(BUSY), everything - idle):
        if more and held.places(idle | more):
            return _blocked(held, health, held.needed(idle, more), who, asks)
    largest = max(held.counts(everything), default=0)
    return NEVER, f"{who} can never start: {asks}, and {held.where} has {held.most(largest, len(everything))}.", 0


def _blocked(held: Holding, health: Health, needed: set[str], who: str, asks: str) -> tuple[str, str, int]:
    """What keeps these trays, all of which the job needs besides the idle ones."""
    jobs, reservations = held.holders(needed), {by for name in needed for by in held.trays[name].by}
    end = max((held.trays[name].until for name in needed if held.trays[name].kind == BUSY), default="")
    endless = any(held.trays[name].kind == BUSY and not held.trays[name].until for name in needed)
    for_jobs = f"{sentences.named_jobs(jobs)}, {'without an end' if endless else f'until {when(end)} at the latest'}"
    clauses, out = [], needed & held.of_kind(OUT)
    if out:
        state, names = held.states(out)[0]
        remedy = clean(health.get(names[0], {}).get("remedy", "")).rstrip(".")
        others = len(out) - len(names)
        more = f" and {count(others, 'other tray is', 'other trays are')} out of service" if others else ""
        todo = f"; {remedy}" if remedy else ""
        clauses.append(f"{sentences.trays(names)} {'is' if len(names) == 1 else 'are'} {state}{more}{todo}")
    for one in [one for one in held.evidence.reservations if one.name in reservations][:2]:
        trays = sentences.trays(needed & one.nodes)
        if one.start > held.evidence.now:
            asked = f"its {held.job.minutes} minutes overlap" if held.job.minutes else "it has no time limit before"
            clauses.append(f"{asked} reservation {clean(one.name)}, which begins {when(one.start)}")
        else:
            until = f" until {when(one.end)}" if one.end else ""
            clauses.append(f"reservation {clean(one.name)} keeps {trays}{until}")
    if not clauses:
        return JOBS, f"{who} waits for {for_jobs}: {asks}.", 0
    after = f", and then for {for_jobs}" if jobs else ""
    return OPERATOR, f"{who} waits for an operator{after}: {asks}, and {'; '.join(clauses)}.", len(out)


def _proposals(held: Holding, job: Job) -> tuple[Proposal, ...]:
    """What could start now: smaller segments, less time before a reservation, fewer trays."""
    counts, found = held.counts(held.idle()), []
    if job.wants:
        return ()
    minutes = held.minutes_before_reservations(job)
    if minutes:
        found.append(Proposal((f"--time={minutes}",), job.nodes, minutes=minutes))
    if held.base and sum(counts) >= job.nodes > 1:
        top = min(job.segment or job.nodes, held.base + 1)
        segments = (size for size in range(top - 1, 0, -1) if job.nodes % size == 0)
        best = next((size for size in segments if held.fits(counts, segment=size)), 0)
        if best:
            found.append(
                Proposal((f"--segment={best}",), job.nodes, f"NVLink then joins {best if best > 1 else 'no'} trays")
            )
    step = job.segment or 1
    low, high = 0, (job.nodes - 1) // step
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if held.fits(counts, middle * step) else (low, middle - 1)
    if low:
        found.append(Proposal((f"--nodes={low * step}",), low * step))
    return tuple(found[:2])


def test_options(job: Job, proposal: Proposal) -> list[str]:
    """The arguments of ``sbatch --test-only`` for the job with this change; of equal options the last counts."""
    options = [f"--partition={','.join(job.partitions)}", f"--nodes={job.nodes}", f"--job-name=explain-{job.number}"]
    values = {"qos": job.qos, "reservation": job.reservation, "constraint": job.features}
    values.update({"exclude": ",".join(job.without), "nodelist": ",".join(job.wants)})
    options += [f"--{key}={value}" for key, value in values.items() if value]
    options += [f"--segment={job.segment}"] if job.segment else []
    options += [f"--time={job.minutes}"] if job.minutes else []
    return ["--test-only", *options, *([] if job.shared else ["--exclusive"]), *proposal.options, "--wrap=true"]


def confirmed(evidence: Evidence, job: Job, proposal: Proposal, printed: str) -> Change | None:
    """The change where slurmctld's test starts it on trays that are idle now; None for any other outcome."""
    found = _TEST.search(printed)
    if found is None:
        return None
    try:
        names, delay = set(expand(found[2])), seconds_of(found[1]) - seconds_of(evidence.now)
    except (ValueError, HostlistError):
        return None
    held = Holding(evidence, job._replace(minutes=proposal.minutes or job.minutes))
    queue = [
        one for one in evidence.jobs.values() if one.state in PENDING and set(one.partitions) & set(job.partitions)
    ]
    added = sum(one.nodes * (one.minutes or _YEAR_MINUTES) for one in queue) * 60 / max(1, len(held.trays))
    if not names <= held.idle() or delay > _SOON + added:
        return None
    starts = "could start now: jobs before it may take these trays" if held.rivals(names) else "starts now"
    what = f"with {proposal.nodes} trays" if proposal.nodes != job.nodes else f"with {' '.join(proposal.options)}"
    note = f"; {proposal.note}" if proposal.note else ""
    return Change(f"It {starts} {what}{note}.", f"sbatch --test-only {' '.join(proposal.options)}")


def _running(evidence: Evidence, job: Job) -> Answer:
    """Where the job is, and where NVLink ends inside it: between trays of different blocks."""
    blocks = evidence.blocks or evidence.cliques
    block = {name: one for one, names in blocks.items() for name in names}
    number = Counter(block.get(name, "no block") for name in job.names)
    where = f"Job {_name(job)} runs on {count(len(job.names), 'tray')}"
    if len(number) < 2:
        inside = f" of block {clean(next(iter(number)))}" if blocks and number else ""
        return _answer(job, NOTHING, f"{where}{inside}{f', {sentences.until(job.end)}' if job.end else ''}.")
    ends = [pair for pair in zip(job.names, job.names[1:]) if block.get(pair[0]) != block.get(pair[1])]
    places = summarize([f"{before} and {after}" for before, after in ends], 3)
    base = evidence.sizes[0] if evidence.sizes else job.segment or 0
    above = f"; its --segment={job.segment} is above the base block of {base}, so it was not kept"
    why = above if job.segment and job.segment > base else ""
    rows = [Row(f"trays in {clean(name)}", got, len(job.names)) for name, got in number.most_common(sentences.MAX_ROWS)]
    split = "+".join(str(one) for one in sorted(number.values()))
    return _answer(job, NOTHING, f"{where}, {split} in {len(number)} blocks: NVLink ends between {places}{why}.", rows)


# ------------------------------------------------------------------------------------------------- the other questions

_WAITS = {
    JOBS: "wait for jobs",
    OPERATOR: "wait for an operator",
    NEVER: "can never start",
    SLURM: "wait for Slurm",
    NOTHING: "wait for nothing",
}


def partition_of(evidence: Evidence, job: Job | None, tray: str = "", name: str = "") -> str:
    """The partition that a question is about: of the job, of the tray, the named one, or Slurm's default."""
    known = evidence.partitions.values()
    if job is not None:
        return job.partitions[0]
    if tray:
        return next((one.name for one in known if tray in one.nodes), "")
    return next((one.name for one in known if (one.name == name if name else one.default)), "")


def of_segment(evidence: Evidence, size: int, partition: str = "", health: Health | None = None) -> Answer:
    """How many segments of this size can start now, per block, and when the next."""
    name = partition_of(evidence, None, name=partition)
    if not name:
        which = clean(partition) or "that is the default"
        raise QuestionError(f"There is no partition {which}: name one by --partition.")
    job = Job("0", 0, "PD", "Resources", -1, "", (name,), nodes=size, segment=size)
    held, where = Holding(evidence, job), clean(name)
    if not held.base:
        raise QuestionError(f"Slurm shows no blocks for partition {where}: a segment has no meaning there.")
    counts = held.by_block(held.idle())
    number = sum(free // size for free in counts.values())
    if held.base < size:
        why = f"the base block has {count(held.base, 'tray')}, and Slurm refuses a larger --segment or does not keep it"
        waits_for, sentence = NEVER, f"A segment of {size} can never start in one block: {why}."
    elif number:
        most = ", ".join(sentences.blocks({block: free for block, free in counts.items() if free >= size})[:6])
        sentence = f"{count(number, 'segment')} of {count(size, 'tray')} can start now in {where}: idle in {most}."
        waits_for = NOTHING
    else:
        asks = f"it needs {count(size, 'tray')} in one block"
        waits_for, sentence, _out = _decide(held, job, health or {}, f"A segment of {size} in {where}", asks)
    return Answer("segment", str(size), waits_for, sentence, held.rows())


def of_tray(evidence: Evidence, name: str, health: Health | None = None) -> Answer:
    """In service or not: since when, why, by whom, what brings it back."""
    node, block = evidence.trays.get(name), next((one for one, names in evidence.blocks.items() if name in names), "")
    if node is None:
        raise QuestionError(f"Slurm shows no tray {clean(name)} in a partition: sinfo -a -N lists those that it has.")
    known = (health or {}).get(name, {})
    on = [job for job in evidence.jobs.values() if name in job.names]
    jobs = sentences.named_jobs([(job.shown, job.user) for job in on])
    kept = [one.name for one in evidence.reservations if name in one.nodes and one.start <= evidence.now]
    rows = [Row("on it", len(on), None, (jobs,), max(job.end for job in on))] if on else []
    where = f"{name} of block {block}" if block else name
    if is_away(node):
        remedy = clean(known.get("remedy", "")) or f"scontrol update NodeName={name} State=RESUME, once it is repaired"
        sentence = f"{where} is {sentences.state(node)}; {remedy.rstrip('.')}."
        return Answer("tray", name, OPERATOR, sentence, tuple(rows))
    in_use = f"runs {jobs}" if on else f"is kept by reservation {summarize(kept)}" if kept else "is idle"
    found = f", and {known['state']} by the last verify: {clean(known['reason'])}" if known.get("reason") else ""
    return Answer("tray", name, NOTHING, f"{where} is in service and {in_use}{found}.", tuple(rows))


def of_queue(evidence: Evidence, health: Health | None = None) -> Answer:
    """All that waits, counted by what it waits for, the most first."""
    waiting = sorted((job for job in evidence.jobs.values() if job.state in PENDING), key=lambda job: -job.priority)
    requests = Counter(map(_request, waiting))
    analysed = {one for one, _number in requests.most_common(_MAX_ANALYSED)}
    found: dict[Job, Answer] = {}
    counted: dict[tuple[str, str], list[Job]] = {}
    stopped = 0
    for job in waiting:
        request = _request(job)
        if request not in found and (request in analysed or not _PLACEMENT.match(job.reason)):
            found[request] = of_job(evidence, job, health)
        word = _WAITS[found[request].waits_for] if request in found else "are not analysed"
        stopped += bool(request in found and found[request].out)
        counted.setdefault((word, clean(job.reason)), []).append(job)
    ranked = sorted(counted.items(), key=lambda one: (-len(one[1]), one[0][0] == _WAITS[SLURM], one[0]))
    rows = [
        Row(f"{word}: {label}", len(jobs), len(waiting), tuple(map(_name, jobs[:3]))) for (word, label), jobs in ranked
    ]
    most = f", most of them {rows[0].what}" if rows and rows[0].count * 2 > len(waiting) > 1 else ""
    out = sum(map(is_away, evidence.trays.values()))
    if out and stopped:
        what = f"{'tray is' if out == 1 else 'trays are'} out of service and {count(stopped, 'job waits', 'jobs wait')}"
        rows.insert(0, Row(f"{what} for {'it' if out == 1 else 'them'}", out))
    sentence = f"{count(len(waiting), 'job waits', 'jobs wait')} in the queue{most}."
    waits_for = next((word for word, text in _WAITS.items() if ranked and ranked[0][0][0] == text), NOTHING)
    return Answer("queue", "", waits_for, sentence, tuple(rows))


def _request(job: Job) -> Job:
    """The job without what differs between equal requests."""
    return job._replace(shown="", number=0, priority=0, user="", start="", end="", comment="")
