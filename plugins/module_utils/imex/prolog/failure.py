# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Apply the policy to a job whose IMEX domain failed, and notify its user."""

from __future__ import annotations

import contextlib
import os
import pwd
import time
from collections.abc import Mapping

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog.daemon import clear
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog.state import (
    JOB,
    PEER,
    SLURM_TIMEOUT,
    TRAY,
    Failure,
    Job,
    Lock,
    Settings,
    expand,
    job_of,
    log,
    members_of,
    note_path,
    read_state,
    shares_its_trays,
    write_text,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize

_NOTE_TIMEOUT = 5.0
_ACTIVE = ("RUNNING", "CONFIGURING", "SUSPENDED")


def apply_policy(settings: Settings, environ: Mapping[str, str], failure: Failure) -> int:
    """Report the failure and apply the policy; the exit status of the prolog.

    drain is exit 1: Slurm drains the tray and requeues the job. Where the tray is not at fault (a job that shares its
    trays, another job's domain in the clique), the tray is not drained: the job is cancelled or requeued. A job that
    another tray requeued, or that its user cancelled, is not changed.
    """
    job = job_of(environ)
    reason = f"IMEX on {job.node} for job {job.id}: {failure}"
    log(reason, warning=True)
    try:
        with Lock(time.monotonic() + 1):
            started = read_state()
            if started is not None and started.get("job") == job.id:
                clear(settings)
    except Failure as second:
        log(f"job {job.id}: {second}", warning=True)
    fields = _query_job(job)
    without = _without_gpus(settings, job) if failure.fault == PEER and shares_its_trays(environ) else ()
    if without:
        # Its prologs start no daemon there.
        failure = Failure(
            f"the job has no GPU on {summarize(without)}, so no IMEX domain; request the same GPUs on each tray"
            " (--gpus-per-node)",
            JOB,
        )
        reason = f"IMEX on {job.node} for job {job.id}: {failure}"
    if settings.policy == "run":
        # Slurm truncates a batch job's log when its script starts, so TaskProlog prints the note again.
        write_text(note_path(job), f"{reason}; the job runs without IMEX\n")
        _notify(job, fields, f"{reason}; the job runs without IMEX")
        return 0
    drain = settings.policy == "drain"
    # Members of a job that ended stop their daemons, so a failure then is no fault of a tray.
    if fields["JobState"] not in _ACTIVE and not (drain and failure.fault == TRAY):
        _notify(job, fields, f"{reason}; the job is {fields['JobState'].lower()} already")
        return 0
    if drain and failure.fault in (TRAY, PEER):
        _notify(job, fields, f"{reason}; the tray is drained")
        _scontrol("update", f"NodeName={job.node}", "State=DRAIN", f"Reason=IMEX: {str(failure)[:900]}")
        return 1
    if failure.fault != JOB:
        hold = job.restarts >= settings.max_requeues
        _notify(job, fields, f"{reason}; the job is {'held' if hold else 'requeued'}")
        done = _scontrol("requeuehold" if hold else "requeue", job.leader)
        # Other trays of the job may have requeued it at the same time.
        if done.rc == 0 or any(word in done.stdout + done.stderr for word in ("pending", "complet")):
            return 0
        # Slurm requeues batch jobs only.
    else:
        _notify(job, fields, f"{reason}; the job is cancelled")
    if child.run(["scancel", job.leader], SLURM_TIMEOUT).rc == 0:
        return 0
    log(f"job {job.id}: it could not be cancelled, so the prolog fails and Slurm drains the tray", warning=True)
    return 1


def _scontrol(*arguments: str) -> child.Result:
    return child.run(["scontrol", *arguments], SLURM_TIMEOUT)


def _query_job(job: Job) -> dict[str, str]:
    """The fields of scontrol show job; empty where slurmctld does not answer."""
    found = _scontrol("show", "job", job.id).stdout
    lines = [line.strip() for line in found.splitlines()]
    fields = dict(word.partition("=")[::2] for line in lines for word in line.split() if "=" in word)
    # These have a line of their own and may contain blanks.
    fields.update(line.partition("=")[::2] for line in lines if line.startswith(("StdOut=", "WorkDir=")))
    fields["JobName"] = found.partition("JobName=")[2].partition("\n")[0]
    # A name or comment of the job may contain the other words, which decide only where the user is notified.
    done = child.run(["squeue", "--noheader", f"--jobs={job.id}", "--states=all", "--format=%A %T"], SLURM_TIMEOUT)
    # A row for each component of a heterogeneous job.
    states = dict(line.split() for line in done.stdout.splitlines() if len(line.split()) == 2)
    fields["JobState"] = states.get(job.id, "RUNNING")
    return fields


def _without_gpus(settings: Settings, job: Job) -> list[str]:
    """The job's trays in this clique on which it has no GPU, by the lines "Nodes=... GRES=..." of its allocation."""
    names = []
    for line in _scontrol("--details", "show", "job", job.id).stdout.splitlines():
        fields = dict(word.partition("=")[::2] for word in line.split())
        if "Nodes" in fields and "gpu" not in fields.get("GRES", "gpu"):
            # A comment of the job may have such a line.
            with contextlib.suppress(Failure):
                names += expand(fields["Nodes"])
    return [node for node, _line in members_of(settings, names)]


def _notify(job: Job, fields: Mapping[str, str], text: str) -> None:
    """Write a line to the job's log: by scontrol notify for srun and salloc, to the output file of a batch job."""
    if fields.get("BatchFlag", "0") == "0":
        _scontrol("notify", job.id, text)
        return
    path = _expanded(fields.get("StdOut", ""), job, fields)
    if path:
        # On a tray without the user's file system the line goes to a local file.
        child.call(_append, _NOTE_TIMEOUT, path, f"{text}\n", job.environ.get("SLURM_JOB_UID", ""))


def _expanded(path: str, job: Job, fields: Mapping[str, str]) -> str | None:
    """The output file of a batch job, with its pattern expanded; None where it is unknown or must not be written."""
    task = fields.get("ArrayTaskId", "")
    known = {
        "j": job.id,
        "J": job.id,
        "A": fields.get("ArrayJobId", job.id),
        "a": task if task.isdecimal() else "4294967294",
        "N": fields.get("BatchHost", job.node),
        "n": "0",
        "t": "0",
        "s": "batch",
        "u": job.environ.get("SLURM_JOB_USER", ""),
        "x": fields.get("JobName", ""),
        "%": "%",
    }
    made, rest = "", path
    while "%" in rest:
        before, _mark, rest = rest.partition("%")
        digits = len(rest) - len(rest.lstrip("0123456789"))
        letter = rest[digits : digits + 1]
        if not known.get(letter):
            return None
        made += before + known[letter].zfill(min(int(rest[:digits] or 0), 10))
        rest = rest[digits + 1 :]
    made = os.path.join(fields.get("WorkDir", "/"), made + rest)
    return made if made.startswith("/") and not made.startswith("/dev/") else None


def _append(path: str, text: str, uid: str) -> bool:
    """Append in a child process with the rights of the job's user."""
    user = pwd.getpwuid(int(uid))
    os.initgroups(user.pw_name, user.pw_gid)
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)
    flags = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_CREAT
    with open(os.open(path, flags, 0o644), "a", encoding="utf-8") as file:
        file.write(text)
    return True
