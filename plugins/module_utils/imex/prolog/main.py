# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""IMEX per job: the program that Slurm runs as Prolog, Epilog and TaskProlog on a tray.

The role imex copies this package, and the modules that it imports, to the tray. Each is imported at the top, so a
program that has started is complete, also where its files are removed while it waits.

The prolog forms one IMEX domain of the job's trays in this tray's clique. The settings file names the members of the
clique, so a prolog that succeeds runs two programs only (systemctl, nvidia-imex-ctl) and sends no request to slurmctld;
only that of a heterogeneous job sends one, for the nodes of the other components, and one that waits for peers longer
than usual, for the job's state. Where the domain is not up in time, the policy decides about the job.

The state of the job's daemon is in RUN, which is cleared at boot. By it an epilog finds whether the daemon is of its
own job: it may run twice, without a prolog, or after a prolog that was killed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import boot, formats
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog.daemon import (
    clear,
    start_daemon,
    stop_daemon,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog.failure import apply_policy
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog.state import (
    CLIQUE,
    GRACE,
    JOB,
    RUN,
    SETTINGS_FILE,
    TRAY,
    DaemonLeft,
    Failure,
    Job,
    Settings,
    expand,
    has_no_gpu,
    job_of,
    list_path,
    lock,
    log,
    members_of,
    note_path,
    owns_every_gpu,
    read_settings,
    read_state,
    remove,
    shares_its_trays,
    squeue,
    write_state,
    write_text,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog.wait import wait_for_peers

# Slurm runs prologs without PATH.
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ENTRIES = {"prolog_slurmd": "prolog", "epilog_slurmd": "epilog", "prolog_task": "task"}


def prolog(settings: Settings, environ: Mapping[str, str]) -> None:
    """Bring up the job's IMEX domain, or raise Failure; returns at once where the job needs none on this tray."""
    began = time.monotonic()
    deadline = began + settings.wait
    job = job_of(environ)
    shared = shares_its_trays(environ)
    if shared and has_no_gpu(settings, environ):
        return
    if shared and owns_every_gpu(settings, environ):
        shared = None
    members = members_of(settings, [job.node] if job.trays == 1 else expand(job.nodelist))
    if job.node in dict(settings.members):
        _check_components(settings, environ)
    with lock(deadline):
        if len(members) < settings.min_trays or job.node not in dict(members):
            if not shared and read_state() is not None and not _other_job(job):
                clear(settings)  # left by a job whose epilog did not run
            return
        if shared:
            raise Failure(
                f"the job shares its trays ({shared}), but a tray has one IMEX daemon for one job; submit it with"
                " --exclusive, with all GPUs of its trays (--gpus-per-node), or to a partition of whole nodes",
                JOB,
            )
        read_settings()  # they may be gone since it waits
        other = _other_job(job)
        if other:
            raise Failure(
                f"job {other} has its IMEX domain on this tray and is still there, as a suspended job is; wait for"
                " its end, or have Slurm preempt by requeue or cancel instead of suspend",
                CLIQUE,
            )
        write_state({"job": job.id, "list": list_path()})
        stop_daemon(settings)
        remove(formats.PERSIST_FILE)
        # The role checked the lines.
        write_text(list_path(), formats.nodes_text(line for _node, line in members))
        if settings.channel0:
            _channel0(settings)
        start_daemon(deadline)
        wait_for_peers(settings, job, members, deadline)
        waited = time.monotonic() - began
        log(f"job {job.id}: IMEX domain of {len(members)} trays of clique {settings.clique} ready in {waited:.1f} s")


def _other_job(job: Job) -> str:
    """The job that has its daemon here and that Slurm still has on this tray; empty for none.

    slurmctld is asked only where a daemon of another job is left, which its epilog stops otherwise.
    """
    started = str((read_state() or {}).get("job") or job.id)
    if started == job.id:
        return ""
    done = squeue(f"--nodelist={job.node}", "--states=running,suspended,stopped", "--format=%A")
    if done.rc != 0:
        raise Failure(f"squeue --nodelist={job.node} failed ({done.reason}); start slurmctld", CLIQUE)
    return started if started in done.stdout.split() else ""


def _check_components(settings: Settings, environ: Mapping[str, str]) -> None:
    """Raise Failure where two components of a heterogeneous job have trays in this clique: each would get a domain.

    The prolog is given the nodes of its own component only, so it asks slurmctld, for heterogeneous jobs alone.
    """
    leader = environ.get("SLURM_HET_JOB_ID", "")
    if not leader:
        return
    done = squeue(f"--jobs={leader}", "--states=all", "--format=%i %N")
    if done.rc != 0:
        raise Failure(f"squeue --jobs={leader} failed ({done.reason}); start slurmctld", CLIQUE)
    found: dict[str, tuple[tuple[str, str], ...]] = {}
    for line in done.stdout.splitlines():
        component, _blank, nodelist = line.strip().partition(" ")
        members = members_of(settings, expand(nodelist)) if nodelist else ()
        if members:
            found[f"+{component.partition('+')[2] or '?'}"] = members
    # Components that share one tray need no domain: within a tray GPUs reach each other without IMEX.
    if len(found) > 1 and len(set().union(*found.values())) >= settings.min_trays:
        raise Failure(
            f"components {', '.join(found)} of heterogeneous job {leader} have trays in clique {settings.clique}, and"
            " each would get an IMEX domain of its own; submit them as one component, or as jobs of their own",
            JOB,
        )


def _channel0(settings: Settings) -> None:
    """Create channel0 with the major of this boot, open to every user, because all GPUs of the tray are this job's."""
    major = boot.major_of_channels(settings.proc_devices)
    if major is None:
        raise Failure("the driver has no IMEX channels; set NVreg_ImexChannelCount above 0 and reboot the tray")
    if boot.make_channels([0], major):
        write_state({**(read_state() or {}), "channel0": True})


def epilog(settings: Settings, environ: Mapping[str, str]) -> None:
    """Stop the job's daemon and remove its files; does nothing where the daemon is not of this job."""
    job = job_of(environ)
    with lock(time.monotonic() + settings.stop_wait):
        started = read_state()
        if started is not None and started.get("job") == job.id:
            clear(settings)
    remove(note_path(job))


def task(environ: Mapping[str, str]) -> None:
    """TaskProlog: print the prolog's note into the job's log, once per tray and step."""
    if environ.get("SLURM_LOCALID", "0") == "0":
        note = atomic.read_text(os.path.join(RUN, f"note.{environ.get('SLURM_JOB_ID', '')}"))
        if note:
            sys.stdout.write(f"print {note}")


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run prolog, epilog or task, by the argument or by Slurm's environment; the exit status."""
    entry = arguments[0] if arguments else _ENTRIES.get(environ.get("SLURM_SCRIPT_CONTEXT", ""), "")
    if entry == "task":
        task(environ)
        return 0
    if entry not in ("prolog", "epilog"):
        os.write(2, b"usage: nvlink-imex-job prolog|epilog|task, from Slurm's Prolog, Epilog and TaskProlog\n")
        return 2
    settings, deadline, failure = Settings("", ()), 0.0, None
    try:
        try:
            settings = read_settings()
            deadline = time.monotonic() + settings.wait + GRACE
        except (Failure, OSError, ValueError) as error:
            if entry == "prolog":
                raise
            if os.path.exists(SETTINGS_FILE):  # a daemon is stopped without settings too
                log(f"job {environ.get('SLURM_JOB_ID')}: {error}", warning=True)
        os.environ["PATH"] = f"{settings.path}:{SYSTEM_PATH}".lstrip(":")
        (prolog if entry == "prolog" else epilog)(settings, environ)
    except Failure as error:
        failure = error
    except Exception as error:  # an error of this program must not leave a job hanging
        # Each tray of the job may have the same bug; a full disk is the tray's own.
        fault = TRAY if isinstance(error, OSError) else CLIQUE
        failure = Failure(f"{type(error).__name__}: {error}; this is a bug of nvlink-imex-job, please report it", fault)
    if failure is None:
        return 0
    try:
        if entry == "prolog":
            return apply_policy(settings, environ, failure, deadline)
        log(f"job {environ.get('SLURM_JOB_ID')}: {failure}", warning=True)
    except Exception as error:  # as above
        os.write(2, f"nvlink-imex-job: {failure}; and then {type(error).__name__}: {error}\n".encode())
    # Slurm drains the tray of a failed epilog, and presumes broken hardware for a job with --requeue=expedite.
    return int(entry == "prolog" or isinstance(failure, DaemonLeft))
