# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rehearse a change: a private slurmctld on this host loads files before they are written and places test jobs.

Private to this collection; it may change in any release. Python 3.9, standard library only.

The slurmctld of a rehearsal runs in a sandbox (sandbox.py), with a slurm.conf derived from the site's
(rehearsal_conf.py) and nodes of State=CLOUD, which all count as idle. Test jobs are submitted with ``sbatch
--test-only``; none is ever queued. What a rehearsal shows, and what it does not:

- A topology or partition that slurmctld refuses is reported with the daemon's error message. To be sure that the new
  files are at fault and not the sandbox, the site's present files are then loaded without any topology.
- Every test job is placed on an empty cluster with all trays up. Whether it would wait for other jobs is not shown; one
  that is refused here would be pending for ever on the real cluster.

Observed on slurmctld 24.11.5 and 26.05.5: a node list (-w) as long as the job is honoured within what the blocks allow;
a job longer than its list is refused even where it could be placed, so sizes above a block's are tested without a list.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, host_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import rules, scontrol
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rehearsal import (
    history,
    questions,
    rehearsal_conf,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rehearsal.questions import (
    MAX_REASON,
    Outcome,
    TestJob,
    evaluate,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rehearsal.rehearsal_conf import OPEN_PARTITION
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.sandbox import (
    DAEMON,
    Sandbox,
    SandboxUnavailable,
    Timeout,
    run_inside,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.sandbox_slurmctld import (
    client,
    load,
    read,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import SlurmError, Topology
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize

MAX_WORKERS = 4
# Refused jobs whose reason is looked up in slurmctld's log.
_MAX_EXPLAINED = 20
# Characters of a hostlist in the result; that of a job on 576 racks may have more than the text of an answer may have.
MAX_HOSTLIST = 4096
# What nodes of State=CLOUD need.
_POWER_SAVING = "SuspendProgram=/bin/true\nResumeProgram=/bin/true\nSuspendTime=60\n"


@dataclass
class Rehearsal:
    """The result of a rehearsal; ``ran`` is false where it was not possible, ``why`` is the reason then.

    loaded: slurmctld accepted the files; fatal: its error message where it did not. seconds: duration of the whole.
    left_out: what could not be considered, and why, a clause each.
    """

    ran: bool
    why: str = ""
    loaded: bool = False
    fatal: str = ""
    version: str = ""
    seconds: float = 0.0
    complete: bool = True
    outcomes: list[Outcome] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def result(self) -> dict[str, Any]:
        """The rehearsal as JSON-compatible values, with the number of placed and of refused jobs."""
        counts = {name: sum(1 for row in self.outcomes if row.outcome == name) for name in ("placed", "refused")}
        rows = [{**asdict(row), "on": shown_nodes(row.on)} for row in self.outcomes]
        return {**asdict(self), **counts, "seconds": round(self.seconds, 2), "outcomes": rows}


@dataclass(frozen=True)
class Candidate:
    """The configuration to rehearse: ``conf_dir`` as it would be after ``writes`` (path -> bytes), and the test jobs.

    topology: the one under test. style: format of the topology file (files.CONF, files.YAML). records: running nodes
    (``scontrol show nodes``). no_history: why the jobs of the last weeks are unknown. only_jobs: submit ``jobs`` alone.
    """

    conf_dir: str
    topology: Topology
    version: rules.Version
    style: str
    writes: Mapping[str, bytes | None] = field(default_factory=dict)
    jobs: tuple[TestJob, ...] = ()
    records: tuple[Mapping[str, str], ...] = ()
    no_history: str = ""
    only_jobs: bool = False


def shown_nodes(hostlist: str) -> str:
    """A hostlist for a result, which slurmctld has made; of a long one the first nodes and the number of the others."""
    return hostlist if len(hostlist) <= MAX_HOSTLIST else summarize(expand(hostlist))


def before_apply(
    slurm: Slurm, change: Arguments, writes: Mapping[str, bytes | None], conf_dir: str
) -> tuple[Rehearsal, list[HostFinding]]:
    """Rehearse the files that slurmctld is to load: the folder as it would be after ``writes``.

    change: ``topology`` (one, in the form of topology.yaml), ``style`` of its file, ``rehearsal`` (jobs, timeout and
    mandatory, by the options of the modules that rehearse).
    """
    wanted = change["rehearsal"]
    jobs = tuple(TestJob("site", **job) for job in wanted["jobs"])
    _check(jobs, wanted["timeout"])
    config = slurm.config()
    past, no_history = history.read(slurm, config)
    (topology,) = scontrol.topologies_of(change["topology"])
    candidate = Candidate(
        conf_dir=conf_dir,
        topology=topology,
        version=slurm.version(),
        style=change["style"],
        writes=writes,
        jobs=(*jobs, *past),
        records=tuple(slurm.records("nodes")),
        no_history=no_history,
    )
    rehearsal = rehearse(slurm, candidate, wanted["timeout"])
    return rehearsal, findings(rehearsal, candidate, wanted["mandatory"])


def _check(jobs: Iterable[TestJob], timeout: float) -> None:
    """SlurmError for a value that no type excludes."""
    if timeout <= 0:
        raise SlurmError(f"rehearse_timeout is {timeout}: use a number of seconds above 0.")
    for job in jobs:
        if job.nodes < 1 or job.segment < 0:
            raise SlurmError(
                f"rehearse_jobs has a job of {job.nodes} nodes with segment {job.segment}: use at least one node, and 0"
                " for no segment."
            )


def rehearse(slurm: Slurm, candidate: Candidate, timeout: float) -> Rehearsal:
    """Run the rehearsal in at most ``timeout`` seconds.

    What this host or slurmctld does not permit is part of the result. SlurmError only for files of the site that cannot
    be read.
    """
    started = time.monotonic()
    # From 25.05 on a partition chooses one of topology.yaml.
    chooses = candidate.version >= rules.YAML_SINCE and candidate.style == scontrol.YAML
    topology, blocks = candidate.topology.name if chooses else "", candidate.topology.blocks
    derived = rehearsal_conf.derive(candidate.conf_dir, candidate.writes, blocks, topology, candidate.records)
    rehearsal = Rehearsal(
        ran=False,
        version=rules.show_version(candidate.version),
        left_out=[f"jobs of the last {history.DAYS} days: {candidate.no_history}"] if candidate.no_history else [],
    )
    programs = {}
    for name in ("slurmctld", "scontrol", "sbatch"):
        try:
            programs[name] = os.path.realpath(slurm.program(name))
        except SlurmError:
            rehearsal.why = f"there is no {name} in {slurm.bin_dir or 'PATH'}"
            return rehearsal
    try:
        # The present files, without any topology.
        bare = rehearsal_conf.derive(candidate.conf_dir, records=candidate.records, bare=True)
        reply = run_inside(lambda sandbox: _work(sandbox, derived, bare, candidate), programs, timeout)
    except Timeout as error:
        rehearsal.why, rehearsal.complete = str(error), False
    except SandboxUnavailable as error:
        rehearsal.why = str(error)
    except SlurmError as error:
        rehearsal.why = str(error).rstrip(".")
    else:
        rehearsal.ran = not reply.get("control")
        if not rehearsal.ran:
            rehearsal.why = "its slurmctld does not load the site's slurm.conf even without a topology"
        rehearsal.loaded = reply["loaded"]
        rehearsal.fatal = reply["fatal"] if rehearsal.ran else reply["control"]
        rehearsal.complete = reply.get("complete", True)
        rehearsal.outcomes = [Outcome(**outcome) for outcome in reply.get("outcomes", ())]
    rehearsal.seconds = time.monotonic() - started
    return rehearsal


# ------------------------------------------------------------------------------------------------- inside the sandbox


def _work(
    sandbox: Sandbox, derived: rehearsal_conf.Derived, bare: rehearsal_conf.Derived, candidate: Candidate
) -> dict[str, Any]:
    fatal = _load(sandbox, derived)
    if fatal:
        # The control: whether the present files load without any topology.
        return {"loaded": False, "fatal": fatal, "control": _load(sandbox, bare)}
    shown = client(sandbox, "scontrol", "-a", "-o", "show", "partitions").stdout
    partitions = scontrol.parse_records(shown)
    jobs = list(candidate.jobs) if candidate.only_jobs else make_jobs(candidate, partitions, derived.nodes)
    outcomes = _submit(sandbox, jobs, candidate.topology)
    complete = all(outcome.outcome != "unanswered" for outcome in outcomes)
    # vars(), since asdict() copies deeply: little time is left to return thousands of outcomes after the limit.
    rows = [vars(outcome) for outcome in outcomes]
    return {"loaded": True, "fatal": "", "complete": complete, "outcomes": rows}


def _load(sandbox: Sandbox, derived: rehearsal_conf.Derived) -> str:
    return load(sandbox, _POWER_SAVING + derived.text, derived.files)


def _submit(sandbox: Sandbox, jobs: Sequence[TestJob], topology: Topology) -> list[Outcome]:
    """Submit test jobs concurrently; the reason of the first refused ones comes from slurmctld's log."""
    where = {node: block.name for block in topology.blocks for node in block.nodes}

    def one(job: TestJob) -> Outcome:
        if sandbox.left <= 0:
            return evaluate(job, None, "", where)
        try:
            done = client(sandbox, "sbatch", *job.arguments())
        except (subprocess.TimeoutExpired, OSError):
            return evaluate(job, None, "", where)
        return evaluate(job, done.returncode, f"{done.stdout}\n{done.stderr}", where)

    with ThreadPoolExecutor(min(MAX_WORKERS, os.cpu_count() or 1)) as pool:
        outcomes = list(pool.map(one, jobs))
    refused = [(job, outcome) for job, outcome in zip(jobs, outcomes) if outcome.outcome == "refused"]
    if refused and sandbox.left > 1:
        sandbox.run("scontrol", "setdebug", "debug2", user=DAEMON, SLURM_CONF=sandbox.path("client/slurm.conf"))
    for job, outcome in refused[:_MAX_EXPLAINED]:
        if sandbox.left > 1:
            # Once more alone, so that the new lines of the log are about this job.
            start = os.path.getsize(sandbox.path("state/log"))
            one(job)
            outcome.reason = explained(read(sandbox, "state/log", start)) or outcome.reason
    return outcomes


_EXPLAINING = re.compile(
    r"greater than|less than|too many|too few|not supported|not have|exceed|unable|invalid", re.IGNORECASE
)
_LOG_PREFIX = re.compile(r"^\[[^]]*\]\s*((error|info|debug\d?|verbose): *)?([a-z_/]+: *)*(JobId=\d+ *)?")


def explained(log: str) -> str:
    """The reason for a refused job in slurmctld's log, without timestamp and function name; empty if there is none."""
    lines = [line for line in log.splitlines() if _EXPLAINING.search(line) and "_slurm_rpc_job_will_run" not in line]
    return _LOG_PREFIX.sub("", lines[-1]).strip()[:MAX_REASON] if lines else ""


def make_jobs(candidate: Candidate, partitions: Sequence[Mapping[str, str]], known: frozenset[str]) -> list[TestJob]:
    """All test jobs: the questions on blocks in the open partition, those of each other partition, and the site's.

    partitions: as the sandbox shows them. known: the nodes that it has.
    """
    topology = candidate.topology
    blocks = {block.name: tuple(node for node in block.nodes if node in known) for block in topology.blocks}
    # The open partition first: of several with all trays it is the one that is asked.
    usable = sorted(questions.partitions(partitions, topology), key=lambda one: one.name != OPEN_PARTITION)
    # Without segments, so that a block's job is placed in its block by the topology alone.
    asked = [one.job for one in questions.of_blocks(blocks, usable, limit=1)]
    jobs = [job for job in asked if (job.kind == "partition") is (job.partition != OPEN_PARTITION)]
    here = {record.get("PartitionName") for record in partitions}
    return jobs + [job for job in candidate.jobs if job.kind != "past" or job.partition in here]


# ----------------------------------------------------------------------------------------------------------- verdict


def findings(rehearsal: Rehearsal, candidate: Candidate, mandatory: bool = False) -> list[HostFinding]:
    """The findings of a rehearsal. mandatory: ``rehearse`` is ``always``, so that a missing rehearsal is an error."""
    code = "slurm_rehearsal_refused" if mandatory else "slurm_rehearsal_job"
    if not rehearsal.ran and not rehearsal.complete:
        return [host_finding(code, "late", why=rehearsal.why)]
    if not rehearsal.ran and rehearsal.fatal:
        return [host_finding(code, "failed", why=rehearsal.why, error=rehearsal.fatal)]
    if not rehearsal.ran:
        code = "slurm_rehearsal_refused" if mandatory else "slurm_rehearsal_skipped"
        return [host_finding(code, "impossible", why=rehearsal.why)]
    if not rehearsal.loaded:
        return [host_finding("slurm_rehearsal_refused", "files", version=rehearsal.version, error=rehearsal.fatal)]
    found: list[HostFinding] = []
    sizes = {block.name: len(block.nodes) for block in candidate.topology.blocks}
    base = next(iter((*candidate.topology.block_sizes, *filter(None, sizes.values()))), 0)
    for outcome in rehearsal.outcomes:
        found += _verdict(outcome, sizes, base)
    if not rehearsal.complete:
        unanswered = sum(1 for outcome in rehearsal.outcomes if outcome.outcome == "unanswered")
        found.append(host_finding(code, "ended", number=unanswered, jobs=count(len(rehearsal.outcomes), "test job")))
    return found


def _verdict(outcome: Outcome, sizes: Mapping[str, int], base: int) -> Iterable[HostFinding]:
    job = f"a job of {count(outcome.nodes, 'tray')}"
    if outcome.segment:
        job += f" with --segment={outcome.segment}"
    if outcome.kind == "block":
        outside = [block for block in outcome.blocks if block != outcome.block]
        if outcome.outcome == "refused" or outside:
            refused = outcome.outcome == "refused"
            why = f"would be refused ({outcome.reason})" if refused else f"would run in {outside[0]}"
            size = count(sizes[outcome.block], "tray")
            yield host_finding("slurm_rehearsal_refused", "block", block=outcome.block, job=job, size=size, why=why)
    elif outcome.kind == "spread" and outcome.outcome == "placed":
        where = f"over {count(len(outcome.blocks), 'block')}"
        if outcome.nodes <= base:
            yield host_finding("slurm_rehearsal_refused", "spread", job=job, base=base, where=where)
        else:
            yield host_finding("slurm_clique_above_base", "rehearsal", job=job, where=where, base=base)
    elif outcome.outcome == "refused" and outcome.kind == "all":
        filled = [size for size in sizes.values() if size]
        allowed = -(-outcome.nodes // max(base, 1))
        why = (
            f"since slurmctld allows it {count(allowed, 'block')} of the base size {base} and its trays are in"
            f" {len(filled)}"
            if allowed < len(filled)
            else "since slurmctld counts whole groups of a larger block size only"
        )
        yield host_finding("slurm_rehearsal_job", "all", job=job, why=why, segment=math.gcd(*filled))
    elif outcome.outcome == "refused" and outcome.kind == "past":
        yield host_finding(
            "slurm_rehearsal_job",
            "past",
            job=job,
            partition=outcome.partition,
            days=history.DAYS,
            reason=outcome.reason,
        )
    elif outcome.outcome == "refused" and outcome.kind == "site":
        code = "slurm_rehearsal_refused" if outcome.required else "slurm_rehearsal_job"
        yield host_finding(code, "site", job=job, partition=outcome.partition or "(the default)", reason=outcome.reason)
