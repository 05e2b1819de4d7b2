# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Apply the policy to a job whose IMEX domain failed, and notify its user."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog.daemon import clear
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog.state import (
    ACTIVE,
    CLIQUE,
    JOB,
    PEER,
    SLURM_TIMEOUT,
    TRAY,
    Failure,
    Job,
    Settings,
    expand,
    job_of,
    lock,
    log,
    members_of,
    note_path,
    read_state,
    shares_its_trays,
    state_of,
    write_text,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize

_PAUSE = 2.0


def apply_policy(settings: Settings, environ: Mapping[str, str], failure: Failure, deadline: float = 0.0) -> int:
    """Report the failure and apply the policy; the exit status of the prolog.

    replace drains the tray at fault only, and requeues the job, which Slurm starts on another tray of the block. A tray
    that waits for others requeues the job without a drain, and not before the deadline: else the job would start on the
    same trays at once, again and again. drain is exit 1: Slurm drains the tray and holds the job. Where no tray is at
    fault (a job that shares its trays, another job's domain in the clique), none is drained: the job is held or
    requeued. A job that another tray requeued, or that its user cancelled, is not changed.
    """
    job = job_of(environ)
    log(f"IMEX on {job.node} for job {job.id}: {failure}", warning=True)
    replace, drain = settings.policy == "replace", settings.policy == "drain"
    if replace and failure.fault == TRAY:
        # First, before anything that takes time. Where scontrol fails, slurmd drains it after exit 1.
        drain = not _drain(job, failure)
    try:
        if read_state() is not None:  # under another owner nothing is left, and the lock would make its folder again
            with lock(time.monotonic() + 1):
                if (read_state() or {}).get("job") == job.id:
                    clear(settings)
    except Failure as second:
        log(f"job {job.id}: {second}", warning=True)
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
        # In the job's log by TaskProlog.
        write_text(note_path(job), f"{reason}; the job runs without IMEX\n")
        _notify(job, f"{reason}; the job runs without IMEX")
        return 0
    if replace and failure.fault in (PEER, CLIQUE):
        while state_of(job) in ACTIVE and time.monotonic() < deadline:
            time.sleep(_PAUSE)
    state = state_of(job)
    # Members of a job that ended stop their daemons, so a failure then is no fault of a tray.
    if state not in ACTIVE and not (drain and failure.fault == TRAY):
        log(f"job {job.id} is {state.lower()} already")
        return 0
    if drain and failure.fault in (TRAY, PEER):
        _notify(job, f"{reason}; the tray is drained")
        _drain(job, failure)
        return 1
    hold = failure.fault == JOB or job.restarts >= settings.max_requeues
    drained = "tray is drained and the " if replace and failure.fault == TRAY else ""
    done_to_job = "held" if hold else "requeued"
    _notify(job, f"{reason}; the {drained}job is {done_to_job}, or cancelled where Slurm cannot requeue it")
    done = _scontrol("requeuehold" if hold else "requeue", job.leader)
    # Other trays of the job may have requeued it at the same time. Slurm requeues batch jobs only.
    if done.rc == 0 or any(word in done.stdout + done.stderr for word in ("pending", "complet")):
        return 0
    if child.run(["scancel", job.leader], SLURM_TIMEOUT).rc == 0:
        return 0
    log(f"job {job.id}: it could not be cancelled, so the prolog fails and Slurm drains the tray", warning=True)
    return 1


def _scontrol(*arguments: str) -> child.Result:
    return child.run(["scontrol", *arguments], SLURM_TIMEOUT)


def _drain(job: Job, failure: Failure) -> bool:
    """Drain this tray with a reason of this collection (OURS of slurm/nodes.py); whether slurmctld did."""
    reason = f"Reason=nvlink: IMEX: {str(failure)[:900]}"
    return _scontrol("update", f"NodeName={job.node}", "State=DRAIN", reason).rc == 0


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


def _notify(job: Job, text: str) -> None:
    """Report to the user: in the job's AdminComment, and by a line of srun and salloc."""
    _scontrol("update", f"JobId={job.id}", f"AdminComment={text[:900]}")
    _scontrol("notify", job.id, text)
