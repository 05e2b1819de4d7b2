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
    CLAIMS,
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
    WORDS,
    Answer,
    Change,
    Proposal,
    Row,
    clean,
    when,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.explain.slurm_evidence import (
    EXPEDITING,
    Evidence,
    Job,
    Limit,
    seconds_of,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.explain.summary import Health
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import placement, rules
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.nodes import OURS
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import names_of
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize

_TEST = re.compile(r"to start at (\S+) .*on nodes (\S+) in partition (\S+)")
# Seconds from now in which a tested job still counts as one that starts now. To its estimate slurmctld adds the
# node-minutes of the pending jobs that are not behind it, the job itself among them, over the partition's nodes.
_SOON = 90
_YEAR_MINUTES = 365 * 1440
# Requests of `--pending` that are analysed, the most frequent ones: each costs a quarter of a second on 10,368 trays.
_MAX_ANALYSED = 8
# Parts of a reason -> what they limit.
_LIMITED = ("node", "cpu", "mem", "gres", "jobs", "billing")
# From here on a job's ID has the cluster of a federation in it.
_FEDERATED = 1 << 26


class QuestionError(NvlinkError):
    """The question names what Slurm does not show; the message is one sentence."""


def find(evidence: Evidence, words: str) -> Job:
    """The job of that ID, in one of Slurm's forms: 1234, 1234_5, 1234+1."""
    jobs, (array, _line, task) = evidence.jobs.values(), words.partition("_")
    for job in jobs:
        if words in (str(job.number), job.shown):
            return job
    for job in jobs:
        # The waiting tasks of an array are one row, 1234_[5-9%2], which ends in dots where it is long.
        name, _bracket, tasks = job.shown.partition("_")
        listed = names_of(re.sub(r"%\d+", "", tasks)) if "..." not in tasks else [task]
        if name == array and (not task or task in listed):
            return job
    if not words[:1].isdecimal():
        raise QuestionError(f"{clean(words)} is no job ID, which is a number such as 4711.")
    more = ", or PrivateData hides it from you" if "jobs" in evidence.settings.get("privatedata", "") else ""
    where = f"the queue of cluster {clean(evidence.settings.get('clustername', ''))}"
    raise QuestionError(f"There is no job {clean(words)} in {where}: it has ended (sacct -j shows it){more}.")


def of_job(evidence: Evidence, job: Job, health: Health | None = None) -> Answer:
    """Why this job waits, or how it was placed."""
    reasons = (answer(evidence, job) for begins, answer in _REASONS if re.match(begins, job.reason))
    found = next(filter(None, reasons), None)
    # A job that is requeued and held still ends on its trays.
    if found is None and job.active:
        return _running(evidence, job)
    if found is None and job.reason and CLAIMS.match(job.reason):
        found = _of_trays(evidence, job, health or {})
    return found or _answer(job, SLURM, clean(job.reason) or "it has not been considered yet")


def not_weighed(evidence: Evidence, job: Job | None, is_root: bool = False) -> list[str]:
    """What may decide, and these answers leave out, as one text or none."""
    kind, features = evidence.settings.get("preempttype", ""), clean(job.features) if job else ""
    mixed = any("MIXED" in node.words for node in evidence.trays.values())
    found = {
        "the jobs that PrivateData hides from you": "jobs" in evidence.settings.get("privatedata", "") and not is_root,
        f"which running jobs it may preempt (PreemptType={clean(kind)})": kind not in ("", "preempt/none"),
        f"which trays have {features} (--constraint), so that all count": bool(features),
        "whether it fits beside the jobs on trays that are shared": job is not None and job.shared and mixed,
        f"the other components of heterogeneous job {job.het if job else ''}": job is not None and bool(job.het),
        "its siblings in other clusters of the federation": job is not None and job.number >= _FEDERATED,
    }
    return ["; ".join(what for what, applies in found.items() if applies)] if any(found.values()) else []


def _answer(job: Job, waits_for: str, why: str, rows: Sequence[Row] = ()) -> Answer:
    return Answer("job", job.shown, waits_for, f"Job {job.shown} {WORDS[waits_for]}: {why}.", tuple(rows))


# ------------------------------------------------------------------------------------------------- reasons of Slurm


def _launch_failed(evidence: Evidence, job: Job) -> Answer | None:
    """Held after its Prolog failed; that for IMEX leaves its reason in the AdminComment and may hold the job itself."""
    if not job.comment.startswith("IMEX") and "launch" not in job.reason:
        return None
    why = clean(job.comment) or "its Prolog failed; the log of slurmd on its trays has the reason"
    drained = sorted(name for name, node in evidence.trays.items() if node.drained and "IMEX: " in node.reason[:14])
    rows = [Row("drained since IMEX failed there", len(drained), None, (sentences.trays(drained),))] if drained else []
    first = f"scontrol update NodeName={sentences.trays(drained)} State=RESUME, then " if drained else ""
    after = f"after the repair {first}scontrol release {job.number}"
    return _answer(job, OPERATOR, f"its launch failed, {why.rstrip('.')}; {after}", rows)


def _channels(evidence: Evidence, job: Job) -> Answer | None:
    """Where each channel is in use; up to 25.05 a job starts without one. Slurm calls it Resources for a moment."""
    running = [one for one in evidence.jobs.values() if one.active]
    found = re.search(r"imex_channel_count=(\d+)", evidence.settings.get("switchparameters", ""))
    of = int(found[1]) if found else len(running) + 1
    if len(running) < of or evidence.version < (25, 11, 0):
        return None
    end = min((one.end for one in running if one.end), default="")
    row = Row("IMEX channels of the cluster in use, one a job", len(running), of, (), end)
    until = f"; the next job ends {when(end)}" if end else ""
    return _answer(job, JOBS, f"each of the cluster's IMEX channels belongs to a running job{until}", [row])


def _limited(evidence: Evidence, job: Job) -> Answer | None:
    """A limit of a QoS or an account, in the numbers that slurmctld counts."""
    kind = "QoS" if job.reason.startswith("QOS") else "account"
    about = [word for word in _LIMITED if word in job.reason.lower()]
    limits = [one for one in evidence.limits if one.kind == kind and _counts(evidence, one, job)]
    limits = [one for one in limits if any(word in f"{one.key} {one.what}".lower() for word in about)]
    for one in limits:
        # Not the share of others in the same QoS or account.
        if one.key.startswith("Grp") is not ("Grp" in job.reason) or "Min" in one.key:
            continue
        name = f"{one.kind} {clean(one.name)}"
        if one.what == "node" and one.most < job.nodes:
            asks = f"it asks for {count(job.nodes, 'tray')}"
            return _answer(job, NEVER, f"{asks}, and {name} allows {one.most} ({one.key})")
        users = [other for other in evidence.jobs.values() if other.active and _counts(evidence, one, other)]
        if users and (one.used or 0) + (job.nodes if one.what == "node" else 1) > one.most:
            end, jobs = sentences.latest(users), sentences.named_jobs(users)
            row = Row(f"in use of {name}, {one.key} {one.what}".rstrip(), one.used or 0, one.most, (jobs,), end)
            until = f"until {when(end)}" if end else "without an end"
            why = f"{jobs}, {until}; {name} has {one.what or 'jobs'} {one.used} of {one.most} in use"
            return _answer(job, JOBS, why, [row])
    return None


def _counts(evidence: Evidence, limit: Limit, job: Job) -> bool:
    """Whether a job counts in this limit; a partition may have a QoS too."""
    partitions = [evidence.partitions[name].qos for name in job.partitions if name in evidence.partitions]
    names = (job.qos, *partitions) if limit.kind == "QoS" else (job.account,)
    return limit.name in names and limit.holder in ("", job.user, job.account)


_REASONS: tuple[tuple[str, Callable[[Evidence, Job], Answer | None]], ...] = (
    ("launch.failed|.*[Hh]eld", _launch_failed),
    ("NvidiaImexChannels", _channels),
    ("QOS|Assoc", _limited),
)


# ---------------------------------------------------------------------------------------------------------- placement


def _of_trays(evidence: Evidence, job: Job, health: Health) -> Answer | None:
    """What the best of its partitions offers: slurmctld places a job in one of them."""
    known = [name for name in job.partitions if name in evidence.partitions]
    alone = {name: _of_partition(evidence, job._replace(partitions=(name,)), health) for name in known}
    found = {name: answer for name, answer in alone.items() if answer is not None}
    if not found:
        return None
    name, best = min(found.items(), key=lambda one: (SLURM, JOBS, OPERATOR, NEVER).index(one[1].waits_for))
    refused = next((one for one in found if found[one].waits_for == NEVER), name)
    # Priority is Slurm's own word, but for a job whose requeue is expedited, which has none above its own.
    expedited = best.waits_for == SLURM and any(one.state == EXPEDITING for one in evidence.jobs.values())
    if job.reason.startswith("Priority") and best.waits_for != NEVER and not expedited:
        return None
    if refused == name or best.waits_for != SLURM or evidence.version >= (25, 11, 1):
        return best
    why = f"partition {clean(refused)} refuses it, and this release then keeps it waiting in all of its partitions"
    answer = _answer(job, NEVER, f"{why}; {found[refused].sentence.partition(': ')[2].rstrip('.')}", best.evidence)
    return answer._replace(proposals=(Proposal(f"--partition={name}", job.nodes),))


def _of_partition(evidence: Evidence, job: Job, health: Health) -> Answer | None:
    partition = evidence.partitions[job.partitions[0]]
    if broken := _broken(job, partition):
        return _answer(job, NEVER, broken)
    if partition.state != "UP":
        name = clean(partition.name)
        where = f"{' in slurm.conf' if partition.name in evidence.down_in_file else ''}"
        back = f"scontrol update PartitionName={name} State=UP brings it back"
        return _answer(job, OPERATOR, f"partition {name} is {clean(partition.state)}{where}; {back}")
    held = Holding(evidence, job)
    # Without the list of trays, which PrivateData may hide, or of blocks nothing is known.
    if not held.trays or not evidence.trays:
        return None
    fits = held.places(held.idle)
    if fits and (answer := _channels(evidence, job)):
        return answer
    waits_for, why, out = _decide(held, health, f"it needs {sentences.request(job.nodes, job.segment, held.base)}")
    proposals = () if fits else _proposals(held, job)
    return _answer(job, waits_for, why, held.rows())._replace(proposals=proposals, out=out)


def _broken(job: Job, partition: rules.Partition) -> str:
    """Which limit of the partition the job breaks, in a clause; empty for none."""
    name = clean(partition.name)
    asked = f"it asks for {count(job.nodes, 'tray')}, and partition {name}"
    if job.nodes > partition.max_nodes:
        return f"{asked} allows {partition.max_nodes} a job (MaxNodes)"
    if job.nodes < partition.min_nodes:
        return f"{asked} begins at {partition.min_nodes} (MinNodes)"
    if job.nodes > len(partition.nodes):
        return f"{asked} has {len(partition.nodes)}"
    if partition.minutes is not None and (job.minutes is None or job.minutes > partition.minutes):
        limit = "no time limit" if job.minutes is None else f"{job.minutes} minutes"
        return f"it asks for {limit}, and partition {name} allows {partition.minutes} (MaxTime)"
    return ""


def _decide(held: Holding, health: Health, asks: str) -> tuple[str, str, tuple[str, ...]]:
    """The word, why, and the trays out of service that it needs.

    Each step adds what must come free; the last has all trays of its partition.
    """
    idle, job = held.idle, held.job
    if held.places(idle):
        before = held.rivals(idle)
        are = "is" if len(before) == 1 else "are"
        why = f"{sentences.named_jobs(before)} {are} before it" if before else clean(job.reason)
        return SLURM, f"idle trays fit ({asks}), {why}", ()
    timed, out, everything = held.timed(), held.of_kind(OUT), set(held.trays)
    kept = held.of_kind(RESERVED) - timed
    soon = held.ended_by(held.earliest_end())
    # What ends by itself first, then what an operator can end.
    for more in (soon, out, timed | out, kept, timed | kept, timed | out | kept, held.of_kind(BUSY), everything - idle):
        if more and held.places(idle | more):
            return _blocked(held, health, held.needed(idle, more), asks)
    largest = max(held.counts(everything), default=0)
    has = f"at most {largest} in one block, {len(everything)} in all" if held.base else count(len(everything), "tray")
    return NEVER, f"{asks}, and partition {clean(job.partitions[0])} has {has}", ()


def _blocked(held: Holding, health: Health, needed: set[str], asks: str) -> tuple[str, str, tuple[str, ...]]:
    """What keeps these trays, all of which the job needs besides the idle ones."""
    jobs, end = held.jobs(needed)
    for_jobs = f"{jobs}, {f'until {when(end)} at the latest' if end else 'without an end'}"
    clauses, out = [], needed & held.of_kind(OUT)
    if out:
        state, names = held.states(out)[0]
        remedy = clean(health.get(names[0], {}).get("remedy", "")).rstrip(".")
        others = len(out) - len(names)
        more = f" and {count(others, 'other tray is', 'other trays are')} out of service" if others else ""
        todo = f"; {remedy}" if remedy else ""
        clauses.append(f"{sentences.trays(names)} {'is' if len(names) == 1 else 'are'} {state}{more}{todo}")
    for one in held.reservations(needed)[:2]:
        if one.start > held.evidence.now:
            asked = f"its {held.job.minutes} minutes overlap" if held.job.minutes else "it has no time limit before"
            clauses.append(f"{asked} reservation {clean(one.name)}, which begins {when(one.start)}")
        else:
            until = f" until {when(one.end)}" if one.end else ""
            clauses.append(f"reservation {clean(one.name)} keeps {sentences.trays(needed & one.nodes)}{until}")
    if not clauses:
        return JOBS, f"{for_jobs}; {asks}", ()
    after = f", then for {for_jobs}" if jobs else ""
    return OPERATOR, f"{asks}, and {'; '.join(clauses)}{after}", tuple(sorted(out))


def _proposals(held: Holding, job: Job) -> tuple[Proposal, ...]:
    """What could start now: smaller segments, less time before a reservation, fewer trays. At most two are tested."""
    counts, found = held.counts(held.idle), []
    if job.wants:
        return ()
    minutes = held.minutes_before_reservations()
    if minutes:
        found.append(Proposal(f"--time={minutes}", job.nodes, minutes=minutes))
    if held.base and sum(counts) >= job.nodes > 1:
        top = min(job.segment or job.nodes, held.base + 1)
        segments = (size for size in range(top - 1, 0, -1) if job.nodes % size == 0)
        best = next((size for size in segments if held.fits(counts, segment=size)), 0)
        if best:
            note = f"NVLink then joins {best if best > 1 else 'no'} trays"
            found.append(Proposal(f"--segment={best}", job.nodes, note))
    step = job.segment or 1
    sizes = range(min(job.nodes - step, sum(counts)) // step * step, 0, -step)
    fewer = next((size for size in sizes if held.fits(counts, size)), 0)
    if fewer:
        found.append(Proposal(f"--nodes={fewer}", fewer))
    return tuple(found[:2])


def test_options(job: Job, proposal: Proposal) -> list[str]:
    """The arguments of ``sbatch --test-only`` for the job with this change; of equal options the last counts."""
    values = {
        "partition": ",".join(job.partitions),
        "nodes": job.nodes,
        "job-name": f"explain-{job.number}",
        "account": job.account,
        "qos": job.qos,
        "reservation": job.reservation,
        "constraint": job.features,
        "licenses": job.licenses,
        "gres": job.gres.replace("gres/", ""),
        "gpus": job.gpus.rpartition(":")[2],
        "ntasks-per-node": job.tasks // job.nodes if job.tasks > job.nodes else "",
        "exclude": ",".join(job.without),
        "nodelist": ",".join(job.wants),
        "segment": job.segment,
        "time": job.minutes,
    }
    options = [f"--{key}={value}" for key, value in values.items() if value]
    return ["--test-only", *options, *([] if job.shared else ["--exclusive"]), proposal.option, "--wrap=true"]


def confirmed(evidence: Evidence, job: Job, proposal: Proposal, printed: str) -> Change | None:
    """The change where slurmctld's test starts it on trays that are idle now; None for any other outcome."""
    found = _TEST.search(printed)
    if found is None:
        return None
    names, delay = set(names_of(found[2])), seconds_of(found[1]) - seconds_of(evidence.now)
    held = Holding(evidence, job._replace(minutes=proposal.minutes or job.minutes, partitions=(found[3],)))
    queue = [one for one in evidence.jobs.values() if not one.active and set(one.partitions) & set(job.partitions)]
    added = sum(one.nodes * (one.minutes or _YEAR_MINUTES) for one in queue) * 60 / max(1, len(held.trays))
    if not names <= held.idle or delay > _SOON + added:
        return None
    starts = "could start now, if no job before it takes these trays," if held.rivals(names) else "starts now"
    what = count(proposal.nodes, "tray") if proposal.nodes != job.nodes else proposal.option
    note = f"; {proposal.note}" if proposal.note else ""
    return Change(f"It {starts} with {what}{note}.", f"sbatch --test-only {proposal.option}")


def _running(evidence: Evidence, job: Job) -> Answer:
    """Where the job is, and where NVLink ends inside it: between trays of blocks of different cliques."""
    blocks = evidence.blocks or {name: row["trays"] for name, row in evidence.in_summary.items()}
    block = {name: one for one, names in blocks.items() for name in names}
    number = Counter(block.get(name, "no block") for name in job.names)
    where = f"Job {job.shown} runs on {count(len(job.names), 'tray')}"
    cliques = {name: row["clique"] for name, row in evidence.in_summary.items()}
    clique = {name: cliques.get(one, one) for name, one in block.items()}
    if len({clique.get(name) for name in job.names}) < 2:
        inside = f" of block {clean(next(iter(number)))}" if blocks and number else ""
        if len(number) > 1:
            inside = f" of blocks {', '.join(map(clean, sorted(number)))}, which are one clique"
        until = f", until {when(job.end)}" if job.end else ""
        return Answer("job", job.shown, NOTHING, f"{where}{inside}{until}.")
    tasks = job.tasks // len(job.names) if job.tasks % len(job.names) == 0 else 0
    ends = [
        (f"{before} and {after}", f"{at * tasks - 1} and {at * tasks}")
        for at, (before, after) in enumerate(zip(job.names, job.names[1:]), 1)
        if clique.get(before) != clique.get(after)
    ]
    places, ranks = (summarize(one, 3) for one in zip(*ends))
    ranks = f" (ranks {ranks} where its {job.tasks} tasks are in block order)" if tasks else ""
    base = evidence.sizes[0] if evidence.sizes else job.segment or 0
    above = f"; its --segment={job.segment} is above the base block of {base}, so it was not kept"
    why = above if job.segment and job.segment > base else ""
    rows = [Row(f"trays in {clean(name)}", got, len(job.names)) for name, got in number.most_common(sentences.MAX_ROWS)]
    split = "+".join(str(one) for one in sorted(number.values()))
    sentence = f"{where}, {split} in {len(number)} blocks: NVLink ends between {places}{ranks}{why}."
    return Answer("job", job.shown, NOTHING, sentence, tuple(rows))


# ------------------------------------------------------------------------------------------------- the other questions


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
    job = Job("0", 0, "PENDING", "Resources", -1, "", (name,), nodes=size, segment=size)
    held, where = Holding(evidence, job), f"partition {clean(name)}"
    if not held.base:
        raise QuestionError(f"Slurm shows no blocks for {where}: a segment has no meaning there.")
    counts = held.by_block(held.idle)
    number = placement.segments(counts.values(), size)
    what = f"A segment of {size} in {where}"
    if held.base < size:
        why = f"the base block has {count(held.base, 'tray')}, and Slurm refuses a larger --segment or does not keep it"
        waits_for, sentence = NEVER, f"{what} can never start: {why}."
    elif number:
        most = ", ".join(sentences.blocks({block: free for block, free in counts.items() if free >= size})[:6])
        sentence = f"{count(number, 'segment')} of {count(size, 'tray')} can start now in {where}: idle in {most}."
        waits_for = NOTHING
    else:
        waits_for, why, _out = _decide(held, health or {}, f"it needs {count(size, 'tray')} in one block")
        sentence = f"{what} {WORDS[waits_for]}: {why}."
    return Answer("segment", str(size), waits_for, sentence, held.rows())


def of_tray(evidence: Evidence, name: str, health: Health | None = None) -> Answer:
    """In service or not: since when, why, by whom, what brings it back."""
    node, block = evidence.trays.get(name), next((one for one, names in evidence.blocks.items() if name in names), "")
    if node is None:
        raise QuestionError(f"Slurm shows no tray {clean(name)} in a partition: sinfo -a -N lists those that it has.")
    known = (health or {}).get(name, {})
    on = [job for job in evidence.jobs.values() if name in job.names]
    jobs = sentences.named_jobs(on)
    kept = [clean(one.name) for one in evidence.reservations if name in one.nodes and one.start <= evidence.now]
    rows = [Row("on it", len(on), None, (jobs,), sentences.latest(on))] if on else []
    where = f"{name} of block {block}" if block else name
    if is_away(node):
        todo = f"scontrol update NodeName={name} State=RESUME, once it is repaired"
        if known or not node.drained or node.reason.startswith(OURS):
            # It tests the tray before jobs run there, which scontrol does not.
            remedy = clean(known.get("remedy", "")).rstrip(".") or "repair it"
            todo = f"{remedy}, then ansible-playbook rackscale.nvlink.resume -e resume_trays={name}"
        sentence = f"{where} is {sentences.state(node)}; {todo}."
        return Answer("tray", name, OPERATOR, sentence, tuple(rows))
    in_use = f"runs {jobs}" if on else f"is kept by reservation {summarize(kept)}" if kept else "is idle"
    since = f" since {when(known['since'])}" if known.get("since") else ""
    found = f", and {known['state']}{since} by verify: {clean(known['reason'])}" if known.get("reason") else ""
    return Answer("tray", name, NOTHING, f"{where} is in service and {in_use}{found.rstrip('.')}.", tuple(rows))


def of_queue(evidence: Evidence, health: Health | None = None) -> Answer:
    """All that waits, counted by what it waits for, the most first."""
    waiting = sorted((job for job in evidence.jobs.values() if not job.active), key=lambda job: -job.priority)
    requests = Counter(map(_request, waiting))
    analysed = {one for one, _number in requests.most_common(_MAX_ANALYSED)}
    found: dict[Job, Answer] = {}
    causes: dict[tuple[str, str], list[str]] = {}
    stopped = 0
    for job in waiting:
        request = _request(job)
        if request not in found and (request in analysed or not CLAIMS.match(job.reason)):
            found[request] = of_job(evidence, job, health)
        word = found[request].waits_for if request in found else ""
        stopped += bool(request in found and found[request].out)
        causes.setdefault((word, clean(job.reason)), []).append(job.shown)
    first, rows = sentences.counted(causes, {"": "are not analysed", **WORDS}, 3)
    most = f", most of them {rows[0].what}" if rows and rows[0].count * 2 > len(waiting) > 1 else ""
    out = sum(map(is_away, evidence.trays.values()))
    if out and stopped:
        what = f"{'tray is' if out == 1 else 'trays are'} out of service and {count(stopped, 'job waits', 'jobs wait')}"
        rows = (Row(f"{what} for {'it' if out == 1 else 'them'}", out), *rows)
    sentence = f"{count(len(waiting), 'job waits', 'jobs wait')} in the queue{most}."
    return Answer("queue", "", first or SLURM, sentence, rows)


def _request(job: Job) -> Job:
    """The job without what differs between equal requests."""
    return job._replace(shown="", number=0, priority=0, user="", end="", comment="")
