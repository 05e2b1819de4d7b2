# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A rehearsal: this host's own slurmctld loads files before they are written, and says where jobs would run.

Private to this collection; it may change in any release. Python 3.9, standard library only.

The slurmctld of a rehearsal runs in a sandbox (sandbox.py), with a slurm.conf that is made of the site's
(rehearsal_conf.py) and nodes of State=CLOUD, which all count as idle. Test jobs are asked for with ``sbatch
--test-only``; none is ever queued. What that can tell, and what not:

- A topology or partition that slurmctld refuses is seen with the daemon's own words. To be sure that it is the
  candidate that is refused and not the sandbox, the site's files of now are then loaded without any topology.
- Every test job meets an empty cluster, all trays up. Whether a job would wait for others is no question here; one that
  is refused here would wait for ever there.

Seen on slurmctld 24.11.5 and 26.05.5: a required node list (-w) as long as the job is honoured within what the blocks
allow; a job longer than its list is refused even where it could be placed, so sizes above a block's are asked without.
"""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import HostlistError, expand, fold
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import (
    files,
    rehearsal_conf,
    rules,
    sandbox,
    settings,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError, Topology
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.planning import Plan
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rehearsal_conf import OPEN_PARTITION
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.surveying import Survey, read_file

Finding = dict[str, Any]
# Up to so many blocks or partitions each gets every size; beyond, each its full size, and one of each shape the others.
MANY = 64
MAX_WORKERS = 4
_EXPLAINED = 20

_SETTINGS = f"""\
SlurmctldHost={sandbox.HOST}({sandbox.ADDRESS})
SlurmctldPort=6817
SlurmdPort=6818
SlurmUser=nvlink-daemon
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={sandbox.FOLDER}/state
SlurmctldPidFile={sandbox.FOLDER}/state/pid
SlurmctldLogFile={sandbox.FOLDER}/state/log
SlurmctldDebug=info
ProctrackType=proctrack/pgid
TaskPlugin=task/none
EnforcePartLimits=ALL
MailProg=/bin/true
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=60
MessageTimeout=60
"""
# Clients need none of the nodes, so they read none.
_CLIENT = "".join(
    f"{line}\n"
    for line in _SETTINGS.splitlines()
    if line.startswith(("SlurmctldHost", "SlurmctldPort", "Slurm", "Auth"))
)


@dataclass(frozen=True)
class TestJob:
    """One question: nodes and segment (0: none) of a job in a partition.

    kind: ``block`` (the trays of one block by name), ``spread`` (no block has so many free trays), ``larger`` (one tray
    more than a block), ``partition`` (a partition's own sizes), ``site`` (the site's list). block: the block that the
    question is about. trays, without: node lists that the job requires or excludes. required: refusing it is an error.
    user: whose job it is, with account and qos; such a job meets the accounting records, others do not.
    """

    __test__ = False  # no test class of pytest's

    kind: str
    nodes: int
    partition: str = ""
    segment: int = 0
    block: str = ""
    trays: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    required: bool = False
    user: str = ""
    account: str = ""
    qos: str = ""

    def arguments(self) -> list[str]:
        said = ["--test-only", "--exclusive", f"--nodes={self.nodes}", "--chdir=/", "--output=/dev/null"]
        for option, value in (
            ("partition", self.partition),
            ("segment", str(self.segment or "")),
            ("account", self.account),
            ("qos", self.qos),
        ):
            said += [f"--{option}={value}"] if value else []
        for option, nodes in (("nodelist", self.trays), ("exclude", self.without)):
            said += [f"--{option}={fold(nodes)}"] if nodes else []
        return [*said, "--wrap", "true"]


@dataclass
class Outcome:
    """What slurmctld said to one test job: placed (on these nodes, in these blocks), refused, or unanswered."""

    kind: str
    nodes: int
    partition: str
    segment: int
    block: str
    outcome: str
    on: str = ""
    blocks: list[str] = field(default_factory=list)
    reason: str = ""
    required: bool = False
    user: str = ""


@dataclass
class Rehearsal:
    """What a rehearsal showed; ``ran`` is false where it could not be held, and ``why`` says it then.

    loaded: slurmctld took the files; fatal: its words where it did not. seconds: of the whole.
    """

    ran: bool
    why: str = ""
    loaded: bool = False
    fatal: str = ""
    version: str = ""
    seconds: float = 0.0
    complete: bool = True
    outcomes: list[Outcome] = field(default_factory=list)
    left_out: list[dict[str, str]] = field(default_factory=list)
    added: list[str] = field(default_factory=list)

    def result(self) -> dict[str, Any]:
        """As plain values, with how many jobs had which outcome."""
        counts = {name: sum(1 for said in self.outcomes if said.outcome == name) for name in ("placed", "refused")}
        return {**asdict(self), **counts, "seconds": round(self.seconds, 2)}


# Always left out, whatever slurm.conf says.
_NOT_THERE = (
    {"setting": "jobs and reservations", "where": "state", "why": "a rehearsal is an empty cluster"},
    {"setting": "states of nodes", "where": "state", "why": "in a rehearsal every tray is up"},
)
_NO_RECORDS = "a rehearsal has no accounting records but for jobs that name a user"
# What slurmctld has saved of slurmdbd, which it goes by when it starts and slurmdbd does not answer.
_RECORDS = ("assoc_mgr_state", "last_tres", "clustername")


@dataclass(frozen=True)
class Wanted:
    """What is to be rehearsed: the folder as it would be after ``writes``, and the jobs that matter to the site."""

    conf_dir: str
    topology: Topology
    version: rules.Version
    style: str
    writes: Mapping[str, bytes] = field(default_factory=dict)
    jobs: tuple[TestJob, ...] = ()
    segments: tuple[int, ...] = ()
    records: tuple[Mapping[str, str], ...] = ()
    state_dir: str = ""

    @property
    def users(self) -> dict[str, int]:
        """Whose jobs are asked for, with their numbers: slurmctld's records hold these too."""
        return {job.user: _number(job.user) for job in self.jobs if job.user}


# What a module that rehearses has as options; their words are the documentation fragment ``rehearsal``.
OPTIONS: dict[str, dict[str, Any]] = {
    "rehearse": {"type": "str", "choices": ["auto", "always", "never"], "default": "auto"},
    "rehearse_jobs": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "nodes": {"type": "int", "required": True},
            "segment": {"type": "int", "default": 0},
            "partition": {"type": "str", "default": ""},
            "required": {"type": "bool", "default": False},
            "user": {"type": "str", "default": ""},
            "account": {"type": "str", "default": ""},
            "qos": {"type": "str", "default": ""},
        },
    },
    "rehearse_timeout": {"type": "int", "default": 120},
    "rehearsal_file": {"type": "path"},
}


def of_topology(plan: Plan, params: Mapping[str, Any]) -> Rehearsal | None:
    """Rehearse a topology that is to be applied; its findings join the plan's."""
    held, found = before_apply(plan.survey, plan.topology, plan.writes, plan.reconfigure, params)
    plan.findings += found
    return held


def before_apply(
    seen: Survey, topology: Topology | None, writes: Mapping[str, bytes], loads: bool, params: Mapping[str, Any]
) -> tuple[Rehearsal | None, list[Finding]]:
    """Rehearse what slurmctld is to load: the folder as it would be after ``writes``, with these blocks.

    loads: whether the running slurmctld is to load it; else only ``rehearse: always`` rehearses. params: values of
    OPTIONS, and ``segments`` where a module has them. None where there is nothing to rehearse: a standby loads nothing,
    a slurmctld whose plugin reads no topology.conf has no blocks.
    """
    mode, timeout = params["rehearse"], params["rehearse_timeout"]
    jobs = tuple(TestJob("site", **job) for job in params["rehearse_jobs"])
    if timeout <= 0:
        raise SlurmError(f"rehearse_timeout is {timeout}: use a number of seconds above 0.")
    for job in jobs:
        if job.nodes < 1 or job.segment < 0:
            raise SlurmError(
                f"rehearse_jobs has a job of {job.nodes} nodes with segment {job.segment}: use at least one node, and 0"
                " for no segment."
            )
        if (job.account or job.qos) and not job.user:
            raise SlurmError("rehearse_jobs has a job with an account or a QoS and no user: name whose job it is.")
        if job.user and not _number(job.user):
            raise SlurmError(f"rehearse_jobs has a job of {job.user!r}, who is root or no user of this host: name one.")
    blocks = seen.style == files.YAML or loads or settings.satisfies("TopologyPlugin", seen.plugin)
    if mode == "never" or seen.acting or topology is None or not blocks or not (loads or mode == "always"):
        return None, []
    wanted = Wanted(
        conf_dir=seen.conf_dir,
        topology=topology,
        version=seen.version,
        style=seen.style,
        writes=writes,
        jobs=jobs,
        segments=tuple(params.get("segments", ())),
        records=tuple(files.parse_records(seen.slurm.ask("-a", "-o", "show", "nodes"))),
        state_dir=seen.config.get("statesavelocation", ""),
    )
    held = rehearse(seen.slurm, wanted, timeout)
    return held, findings(held, wanted, demanded=mode == "always")


def _number(user: str) -> int:
    """The number of a user of this host; 0 of root, and where there is no such user."""
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):
        return 0


def rehearse(slurm: Slurm, wanted: Wanted, timeout: float) -> Rehearsal:
    """Hold the rehearsal, in at most ``timeout`` seconds; never raises for what this host or slurmctld does not let.

    SlurmError only for files of the site that cannot be read.
    """
    started = time.monotonic()
    topology = rehearsal_conf.partition_topology(wanted.version, wanted.style, wanted.topology.name)
    blocks = wanted.topology.blocks
    derived = rehearsal_conf.derive(wanted.conf_dir, wanted.writes, blocks, topology, wanted.records)
    held = Rehearsal(
        ran=False,
        version=rules.show_version(wanted.version),
        left_out=[*_NOT_THERE, *derived.left_out],
        added=list(derived.added),
    )
    programs = {}
    for name in ("slurmctld", "scontrol", "sbatch"):
        try:
            programs[name] = os.path.realpath(slurm.program(name))
        except SlurmError:
            held.why = f"there is no {name} in {slurm.bin_dir or 'PATH'}"
            return held
    try:
        # What is there now, without any topology.
        bare = rehearsal_conf.derive(wanted.conf_dir, records=wanted.records, bare=True)

        accounting = derived
        if wanted.users:
            accounting = rehearsal_conf.derive(
                wanted.conf_dir, wanted.writes, blocks, topology, wanted.records, accounting=True
            )
        saved = {name: read_file(os.path.join(wanted.state_dir, name)) for name in _RECORDS if wanted.users}

        def work(place: sandbox.Sandbox) -> dict[str, Any]:
            return _work(place, derived, bare, accounting, saved, wanted)

        said = sandbox.inside(work, programs, timeout, wanted.users)
    except sandbox.Timeout as error:
        held.why, held.complete = str(error), False
    except sandbox.SandboxUnavailable as error:
        held.why = str(error)
    except SlurmError as error:
        held.why = str(error).rstrip(".")
    else:
        held.ran = not said.get("control")
        held.why = "its slurmctld does not load the site's slurm.conf even without a topology" if not held.ran else ""
        held.loaded = said["loaded"]
        held.fatal = said["fatal"] if held.ran else said["control"]
        held.complete = said.get("complete", True)
        held.outcomes = [Outcome(**outcome) for outcome in said.get("outcomes", ())]
        held.left_out.append(
            {"setting": "QoS, accounts and limits", "where": "accounting", "why": said.get("records") or _NO_RECORDS}
        )
    held.seconds = time.monotonic() - started
    return held


# ------------------------------------------------------------------------------------------------- inside the sandbox


def _work(
    place: sandbox.Sandbox,
    derived: rehearsal_conf.Derived,
    bare: rehearsal_conf.Derived,
    accounting: rehearsal_conf.Derived,
    saved: Mapping[str, bytes | None],
    wanted: Wanted,
) -> dict[str, Any]:
    fatal = _load(place, derived)
    if fatal:
        # Is it the candidate? The site's files of now, without any topology, tell.
        return {"loaded": False, "fatal": fatal, "control": _load(place, bare)}
    partitions = _partitions(place)
    jobs = make_jobs(wanted, partitions, derived.nodes)
    outcomes = _ask(place, [job for job in jobs if not job.user], wanted.topology)
    personal = [job for job in jobs if job.user]
    why = ""
    if personal:
        place.end()
        why = _load_records(place, accounting, saved)
        if why:
            place.end()
            _load(place, derived)
            personal = [replace(job, user="", account="", qos="") for job in personal]
        outcomes += _ask(place, personal, wanted.topology)
    complete = all(outcome.outcome != "unanswered" for outcome in outcomes)
    told = [asdict(outcome) for outcome in outcomes]
    return {"loaded": True, "fatal": "", "complete": complete, "outcomes": told, "records": why}


def _load_records(place: sandbox.Sandbox, accounting: rehearsal_conf.Derived, saved: Mapping[str, bytes | None]) -> str:
    """Start slurmctld with the accounting records that the site's has saved; empty once it answers, else why not."""
    for name, data in saved.items():
        if data is None:
            return f"the site's slurmctld has saved no {name}"
        path = place.write(f"state/{name}", data)
        os.chmod(path, 0o600)
        os.chown(path, sandbox.DAEMON, sandbox.DAEMON)
    fatal = _load(place, accounting)
    return f"slurmctld does not start with the records that it has saved ({fatal})" if fatal else ""


def _load(place: sandbox.Sandbox, derived: rehearsal_conf.Derived) -> str:
    """Start slurmctld with these files; empty once it answers, else its own words."""
    place.owned(place.path("state"))
    place.owned("/run/slurmctld")
    for name in (*files.FILE_NAMES.values(), "state/log"):
        if os.path.exists(place.path(name)):
            os.unlink(place.path(name))
    for name, text in derived.files.items():
        place.write(name, text)
    place.write("cgroup.conf", "CgroupPlugin=disabled\n")
    place.write("client/cgroup.conf", "CgroupPlugin=disabled\n")
    cluster = next((line for line in derived.text.splitlines() if line.lower().startswith("clustername=")), "")
    plugins = [line for line in derived.text.splitlines() if line.lower().startswith("plugindir=")]
    lines = [cluster or "ClusterName=rehearsal", *plugins]
    place.write("client/slurm.conf", _CLIENT + "".join(f"{line}\n" for line in lines))
    conf = place.write("slurm.conf", ("" if cluster else "ClusterName=rehearsal\n") + _SETTINGS + derived.text)
    daemon = place.start("slurmctld", "-D", "-f", conf, output="state/output", SLURM_CONF=conf)
    while daemon.poll() is None:
        if place.left <= 0:
            raise sandbox.Timeout(f"its slurmctld does not answer in time ({_last_words(place)})")
        if _client(place, "scontrol", "ping").stdout.find(" is UP") >= 0:
            return ""
        time.sleep(0.02)
    return _last_words(place) or f"it ended with {daemon.returncode}"


def _client(place: sandbox.Sandbox, name: str, *arguments: str, user: str = "") -> subprocess.CompletedProcess[str]:
    number = place.users.get(user, sandbox.USER)
    return place.run(name, *arguments, user=number, SLURM_CONF=place.path("client/slurm.conf"))


def _read(place: sandbox.Sandbox, name: str, start: int = 0) -> str:
    try:
        with open(place.path(name), "rb") as file:
            file.seek(start)
            return file.read(1 << 20).decode("utf-8", "replace")
    except OSError:
        return ""


def _last_words(place: sandbox.Sandbox) -> str:
    """The last fatal line of the log, else the last error, else the last line; without its time."""
    lines = [line for name in ("state/output", "state/log") for line in _read(place, name).splitlines() if line.strip()]
    for mark in ("fatal: ", "error: "):
        found = [line.partition(mark)[2].strip() for line in lines if mark in line]
        if found:
            return found[-1][:300]
    return re.sub(r"^\[[^]]*\]\s*", "", lines[-1])[:300] if lines else ""


def _partitions(place: sandbox.Sandbox) -> list[rules.Partition]:
    found = []
    for record in files.parse_records(_client(place, "scontrol", "-a", "-o", "show", "partitions").stdout):
        nodes, topology = record.get("Nodes", ""), record.get("Topology", "")
        try:
            names = tuple(expand("" if nodes == "(null)" else nodes))
        except HostlistError:
            names = ()
        found.append(rules.Partition(record.get("PartitionName", ""), names, "" if topology == "(null)" else topology))
    return found


def _ask(place: sandbox.Sandbox, jobs: Sequence[TestJob], topology: Topology) -> list[Outcome]:
    where = {node: block.name for block in topology.blocks for node in block.nodes}

    def one(job: TestJob) -> Outcome:
        if place.left <= 0:
            return judge(job, None, "", where)
        try:
            done = _client(place, "sbatch", *job.arguments(), user=job.user)
        except (subprocess.TimeoutExpired, OSError):
            return judge(job, None, "", where)
        return judge(job, done.returncode, f"{done.stdout}\n{done.stderr}", where)

    with ThreadPoolExecutor(min(MAX_WORKERS, os.cpu_count() or 1)) as pool:
        outcomes = list(pool.map(one, jobs))
    refused = [(job, said) for job, said in zip(jobs, outcomes) if said.outcome == "refused"]
    if refused and place.left > 1:
        place.run("scontrol", "setdebug", "debug2", user=sandbox.DAEMON, SLURM_CONF=place.path("client/slurm.conf"))
    for job, said in refused[:_EXPLAINED]:
        if place.left > 1:
            # Once more alone: what the log says meanwhile is about this job.
            start = os.path.getsize(place.path("state/log"))
            one(job)
            said.reason = explained(_read(place, "state/log", start)) or said.reason
    return outcomes


_PREFIX = re.compile(r"^(sbatch: )?((error|fatal): )?(allocation failure: )?")
_TESTED = re.compile(r"Job \d+ to start at (\S+)(?: a)? using \d+ processors on nodes (\S+) in partition (\S+)")


def judge(job: TestJob, status: int | None, said: str, where: Mapping[str, str]) -> Outcome:
    """What sbatch's words mean; status None where it did not end in time. where: node -> block."""
    outcome = Outcome(
        job.kind, job.nodes, job.partition, job.segment, job.block, "unanswered", required=job.required, user=job.user
    )
    found = _TESTED.search(said)
    if found and status == 0:
        outcome.outcome, outcome.on = "placed", found[2]
        outcome.partition = job.partition or found[3]
        try:
            nodes = expand(found[2])
        except HostlistError:
            nodes = []
        outcome.blocks = list(dict.fromkeys(where[node] for node in nodes if node in where))
    elif status is not None:
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        outcome.outcome = "refused"
        outcome.reason = re.sub(
            r"^(sbatch: )?((error|fatal): )?(allocation failure: )?", "", lines[-1] if lines else ""
        )
    return outcome


_TELLING = re.compile(
    r"greater than|less than|too many|too few|not supported|not have|exceed|unable|invalid", re.IGNORECASE
)
_WHO_SAYS = re.compile(r"^\[[^]]*\]\s*((error|info|debug\d?|verbose): *)?([a-z_/]+: *)*(JobId=\d+ *)?")


def explained(log: str) -> str:
    """The line of slurmctld's log that says why it refused a job, without time and place; empty where none does."""
    lines = [line for line in log.splitlines() if _TELLING.search(line) and "_slurm_rpc_job_will_run" not in line]
    return _WHO_SAYS.sub("", lines[-1]).strip()[:300] if lines else ""


# -------------------------------------------------------------------------------------------------------- test jobs


def make_jobs(wanted: Wanted, partitions: Sequence[rules.Partition], known: frozenset[str]) -> list[TestJob]:
    """All questions of a rehearsal: of every block, of every partition on this topology, and the site's own."""
    blocks = [tuple(node for node in block.nodes if node in known) for block in wanted.topology.blocks]
    names = [block.name for block in wanted.topology.blocks]
    jobs = list(_of_blocks(names, blocks))
    mine = [
        partition
        for partition in partitions
        if partition.name != OPEN_PARTITION
        and (partition.topology == wanted.topology.name or (not partition.topology and wanted.topology.cluster_default))
    ]
    jobs += _of_partitions(mine, wanted.topology, wanted.segments)
    return jobs + list(wanted.jobs)


def _of_blocks(names: Sequence[str], blocks: Sequence[tuple[str, ...]]) -> Iterable[TestJob]:
    few = sum(1 for nodes in blocks if nodes) <= MANY
    shapes: set[int] = set()
    for name, nodes in zip(names, blocks):
        full = len(nodes)
        every = few or full not in shapes
        for size in sorted({1, full // 2, full} - {0}):
            if nodes and (size == full or every):
                yield TestJob("block", size, OPEN_PARTITION, block=name, trays=nodes[:size])
        shapes.add(full)
    total = sum(len(nodes) for nodes in blocks)
    for size in sorted(shapes - {0}):
        if size < total:
            yield TestJob("larger", size + 1, OPEN_PARTITION)
        # So many trays of each block are taken away that none has `size` left: only several together have.
        taken = tuple(node for nodes in blocks for node in nodes[size - 1 :])
        if size > 1 and total - len(taken) >= size:
            yield TestJob("spread", size, OPEN_PARTITION, without=taken)


def _of_partitions(
    partitions: Sequence[rules.Partition], topology: Topology, segments: Sequence[int]
) -> Iterable[TestJob]:
    where = {node: block.name for block in topology.blocks for node in block.nodes}
    shapes: set[tuple[int, ...]] = set()
    for partition in partitions:
        counts: dict[str, int] = {}
        for node in partition.nodes:
            if node in where:
                counts[where[node]] = counts.get(where[node], 0) + 1
        if not counts:
            continue
        full = max(counts.values())
        shape = tuple(sorted(counts.values()))
        every = len(partitions) <= MANY or shape not in shapes
        shapes.add(shape)
        for size in sorted({1, full // 2, full, full + 1} - {0}):
            if every or size == full:
                yield TestJob("partition", size, partition.name)
        for segment in segments if every else ():
            if 2 * segment <= len(partition.nodes):
                yield TestJob("partition", 2 * segment, partition.name, segment)


# ----------------------------------------------------------------------------------------------------------- verdict


def findings(held: Rehearsal, wanted: Wanted, demanded: bool = False) -> list[Finding]:
    """What a rehearsal means for the apply. demanded: the site wants one always, so that none at all is an error."""
    if not held.ran and not held.complete:
        message = f"The apply was not rehearsed: {held.why}; raise rehearse_timeout."
        return [finding("slurm_rehearsal_missing" if demanded else "slurm_rehearsal_unfinished", message)]
    if not held.ran and held.fatal:
        message = (
            f"The apply was not rehearsed: {held.why} ({held.fatal}); see that slurmctld would start with its files,"
            " or set rehearse to never."
        )
        return [finding("slurm_rehearsal_missing" if demanded else "slurm_rehearsal_unfinished", message)]
    if not held.ran:
        message = (
            f"The apply was not rehearsed: {held.why}; run it as root on the Slurm controller's host, with Slurm's"
            " clients there and not in a container."
        )
        return [finding("slurm_rehearsal_missing" if demanded else "slurm_rehearsal_skipped", message)]
    if not held.loaded:
        message = (
            f"In the rehearsal slurmctld {held.version} refuses the new files ({held.fatal}): correct what it names,"
            " nothing was written."
        )
        return [finding("slurm_rehearsal_refused", message)]
    found: list[Finding] = []
    sizes = {block.name: len(block.nodes) for block in wanted.topology.blocks}
    base = wanted.topology.block_sizes[0] if wanted.topology.block_sizes else 0
    for said in held.outcomes:
        found += _verdict(said, sizes, base)
    if not held.complete:
        unanswered = sum(1 for said in held.outcomes if said.outcome == "unanswered")
        message = (
            f"The rehearsal was over before {unanswered} of {len(held.outcomes)} test jobs were answered: raise"
            " rehearse_timeout."
        )
        found.append(finding("slurm_rehearsal_missing" if demanded else "slurm_rehearsal_unfinished", message))
    return found


def _verdict(said: Outcome, sizes: Mapping[str, int], base: int) -> Iterable[Finding]:
    job = f"a job of {said.nodes} {'tray' if said.nodes == 1 else 'trays'}"
    if said.segment:
        job += f" with --segment={said.segment}"
    if said.user:
        job += f" of {said.user}"
    if said.kind == "block":
        outside = [block for block in said.blocks if block != said.block]
        if said.outcome == "refused" or outside:
            why = f"would be refused ({said.reason})" if said.outcome == "refused" else f"would run in {outside[0]}"
            message = (
                f"Rehearsal: {job} on trays of block {said.block}, which has {sizes[said.block]}, {why}: compare the"
                " block with slurm.conf."
            )
            yield finding("slurm_rehearsal_block", message, block=said.block)
    elif said.kind == "spread" and said.outcome == "placed":
        where = f"over {len(said.blocks)} blocks"
        if said.nodes <= base:
            message = f"Rehearsal: {job}, no more than the base size {base}, runs {where}: see the release notes."
            yield finding("slurm_rehearsal_block", message)
        else:
            message = (
                f"Rehearsal: {job}, as many as a whole block has, is spread {where} while no block is free, for the"
                f" base size is {base}: give such a block a partition of its own."
            )
            yield finding("slurm_rehearsal_spread", message)
    elif said.outcome == "refused" and said.kind == "site":
        message = (
            f"Rehearsal: {job} in partition {said.partition or '(the default)'} would wait for ever ({said.reason}):"
            " correct its size, or the partition's trays and limits."
        )
        yield finding("slurm_rehearsal_job_required" if said.required else "slurm_rehearsal_job", message)
