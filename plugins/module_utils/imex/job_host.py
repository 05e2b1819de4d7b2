# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""IMEX per job on a tray: what its slurm.conf means for it, its files, and its removal under another owner."""

from __future__ import annotations

import base64
import contextlib
import glob
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic, child
from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host, HostError
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, host_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import domain, formats, job_files, slurm_conf
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.parts import Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog import daemon, state

_TIMEOUT = 30.0


class Blocked(HostError):
    """A finding forbids the change."""

    def __init__(self, finding: HostFinding) -> None:
        super().__init__(finding["code"])
        self.findings = [finding]


def read(owner: str, options: Mapping[str, Any], members: Sequence[str]) -> Slurm:
    """What IMEX per job needs of Slurm here. options: the variables imex_job_* of the role. members: of the clique."""
    wrappers = job_files.wrappers(options)
    path, settings = slurm_conf.read(options["imex_job_slurm_conf"])
    shared = job_files.shared_partitions(members, settings.get(slurm_conf.SHARED_PARTITIONS, ()))
    known = {key: values for key, values in settings.items() if key in job_files.KEYS}
    running = _jobs_running()
    return {
        "path": path,
        "settings": {**known, slurm_conf.SHARED_PARTITIONS: shared} if owner == domain.JOB else {},
        "called": [key for key in wrappers if _calls(settings.get(key.lower(), ()), key.lower())],
        "alone": _alone({**wrappers, "TaskProlog": job_files.PROGRAM}, settings),
        "python": _python_error(options["imex_job_python"]) if owner == domain.JOB else "",
        "job": str(running[0]["values"]["job"]) if running else None,
    }


def findings_of(desired: domain.DesiredState, slurm: Slurm, allow_jobs: bool) -> list[HostFinding]:
    """The findings on IMEX per job, before anything changes. Raises ImexError."""
    path = slurm["path"]
    if desired.owner != domain.JOB:
        kept = [
            host_finding("slurm_conf_advice", "emptied", file=name, key=key, path=path)
            for name, key in slurm["alone"].items()
        ]
        return kept if allow_jobs or slurm["job"] is None else [job_running(slurm["job"]), *kept]
    if path is None:
        return [host_finding("slurm_conf_inconsistent", "no_file")]
    if slurm["python"]:
        raise formats.ImexError(
            f"{desired.job['imex_job_python']} cannot run the program of IMEX per job ({slurm['python']}); set"
            " imex_job_python to a Python 3.9 or later."
        )
    settings = slurm["settings"]
    found = job_files.evaluate(job_files.settings_of(desired, 0, settings), settings, path)
    return found if desired.entries else [*found, host_finding("tray_unplaced", "job")]


def job_running(job: str) -> HostFinding:
    """The finding on a job whose daemon runs on this tray."""
    return host_finding("jobs_running", "job", job=job)


def _jobs_running() -> list[HostFinding]:
    started = state.read_state()
    if started is None or not daemon.daemons():
        return []
    return [job_running(str(started.get("job") or "unknown"))]


def uncalled(desired: domain.DesiredState, slurm: Slurm) -> list[HostFinding]:
    """The finding on a slurm.conf that names no file of IMEX per job, nor a program that calls one."""
    if desired.owner != domain.JOB:
        return []
    missing = [
        f"{key}={os.path.dirname(name)}/*"
        for key, name in job_files.wrappers(desired.job).items()
        if not job_files.names(slurm["settings"], key, name) and key not in slurm["called"]
    ]
    if not missing:
        return []
    words = {"path": slurm["path"], "lines": " and ".join(missing), "program": job_files.PROGRAM}
    return [host_finding("slurm_conf_inconsistent", "prolog", **words)]


def files_of(desired: domain.DesiredState, generation: int, slurm: Slurm) -> dict[str, tuple[bytes | None, int]]:
    """path -> (content or None for absent, mode). The wrappers, which Slurm runs, come last and go first.

    A program of an earlier release reads the settings of a later one, not the other way round, so these come first.
    """
    if desired.owner != domain.JOB:
        return {
            name: (job_files.NOOP.encode() if name in slurm["alone"] else None, 0o755)
            for name in job_files.paths(desired.job)
        }
    settings = job_files.settings_of(desired, generation, slurm["settings"])
    return {
        state.SETTINGS_FILE: (job_files.render_settings(settings).encode(), 0o644),
        job_files.PROGRAM: (base64.b64decode(desired.job_program), 0o755),
        **{
            name: (job_files.wrapper(key.lower()).encode(), 0o755)
            for key, name in job_files.wrappers(desired.job).items()
        },
    }


def write(made: Mapping[str, tuple[bytes | None, int]], host: Host) -> None:
    """Write or remove files of files_of()."""
    for name, (data, mode) in made.items():
        host.file(name, data, mode=mode)


def forbid_jobs() -> None:
    """Raise Blocked where a job has its daemon on this tray: one may have begun since the phase inspect."""
    for found in _jobs_running():
        raise Blocked(found)


def leave(
    desired: domain.DesiredState,
    made: Mapping[str, tuple[bytes | None, int]],
    host: Host,
    job: str | None,
    allow_jobs: bool,
) -> None:
    """Remove IMEX per job, with the daemon of a job where ``allow_jobs``; else Blocked. made: files_of().

    job: the one whose daemon ran when the tray was read; a change looks again.

    A prolog without its daemon ends first; one that comes to the lock later finds no settings. So the lock is released
    before the daemon is stopped, for which an epilog would wait too long, and one that still starts another is stopped
    again. The lock itself stays: two prologs could hold two of them.
    """
    with contextlib.ExitStack() as locked:
        running = [job_running(job)] if job else []
        if not host.check:
            running = _wait_for_prolog(locked) if os.path.exists(state.SETTINGS_FILE) else _jobs_running()
        if running and not allow_jobs and not host.check:
            raise Blocked(running[0])
        write(made, host)
        if not running:
            host.file(state.state_path(), None)
    for found in running:
        if host.change(f"stop the daemon of job {found['values']['job']}"):
            _stop_daemons(state.Settings("", (), stop_wait=float(desired.job["imex_job_stop_wait"])))


def _stop_daemons(settings: state.Settings) -> None:
    """Stop the daemon of a job, and what a prolog does that had read the settings before they went."""
    deadline = time.monotonic() + _TIMEOUT
    while True:
        daemon.clear(settings)
        with contextlib.ExitStack() as locked:
            if _is_locked(locked, deadline):
                daemon.clear(settings)
                return


def _wait_for_prolog(locked: contextlib.ExitStack) -> list[HostFinding]:
    """The finding on a job with its daemon, at once; where there is none, when ``locked`` has the lock of prologs."""
    deadline = time.monotonic() + _TIMEOUT
    while True:
        running = _jobs_running()
        if running:
            return running
        if _is_locked(locked, deadline):
            return _jobs_running()


def _is_locked(locked: contextlib.ExitStack, deadline: float) -> bool:
    """Whether ``locked`` got the lock of prologs within a second. Raises ImexError after the deadline."""
    try:
        locked.enter_context(state.lock(time.monotonic() + 1))
        return True
    except state.Failure:
        if time.monotonic() < deadline:
            return False
        raise formats.ImexError(
            f"the prolog or epilog of a job has not ended on this tray within {_TIMEOUT:g} s; run the role again when"
            " it has, and read journalctl -t nvlink-imex-job"
        ) from None


def _python_error(python: str) -> str:
    """Why this Python cannot run the program; empty where it can."""
    done = child.run([python, "-IS", "-c", "import sys; assert sys.version_info >= (3, 9), sys.version"], _TIMEOUT)
    return "" if done.rc == 0 else done.reason


def _calls(patterns: Sequence[str], entry: str) -> bool:
    """Whether a program that slurm.conf names calls the one of this collection."""
    names = (name for pattern in patterns for name in glob.glob(pattern))
    return any(f"{job_files.PROGRAM} {entry}" in (atomic.read_text(name) or "") for name in names)


def _alone(places: Mapping[str, str], slurm: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """path -> key of slurm.conf, of the files that match alone what it names: without them Slurm fails every job."""
    present = {name: key for key, name in places.items() if os.path.exists(name)}
    found = {name: map(glob.glob, slurm.get(key.lower(), ())) for name, key in present.items()}
    return {name: present[name] for name, matches in found.items() if [name] in matches}
