# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Install or remove IMEX per job on a tray: its files, and nvidia-imex.service for the prolog."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
from collections.abc import Mapping, Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic, child
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host, write
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, host_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import files, job_files, slurm_conf
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog import daemon, state

_TIMEOUT = 30.0


def present(options: Arguments, host: Host) -> list[HostFinding]:
    """Install, unless slurm.conf makes that useless or harmful: then nothing changes. The findings."""
    path, slurm = slurm_conf.read(options["slurm_conf"])
    desired = job_files.desired_state(options, slurm)
    if path is None:
        return [host_finding("slurm_conf_inconsistent", "no_file")]
    calling = [key for key in ("Prolog", "Epilog") if _calls(slurm.get(key.lower(), ()), key.lower())]
    errors, advice = job_files.evaluate(desired, slurm, path, calling)
    if errors:
        return [*errors, *advice]
    if not desired.settings.members:
        advice.append(host_finding("tray_unplaced", "job"))
    _release_unit(host)
    # Ansible may run with umask 077, but TaskProlog runs as the job's user.
    umask = os.umask(0o022)
    try:
        library = job_files.sources()
        _write_library(library, desired.python, host)
        _apply(dict(job_files.files_of(desired, library)), host)
    finally:
        os.umask(umask)
    return advice


def absent(options: Arguments, host: Host) -> list[HostFinding]:
    """Remove everything; while a job has its daemon here nothing changes, and a finding reports that."""
    running_job = job_with_daemon()
    if running_job and options["force"]:
        if host.change(f"stop the daemon of job {running_job}"):
            daemon.clear(state.Settings("", (), stop_wait=float(options["stop_wait"])))
    elif running_job:
        return [host_finding("jobs_running", "job", job=running_job)]
    findings = []
    path, slurm = slurm_conf.read(options["slurm_conf"])
    desired_files: dict[str, tuple[str | None, int]] = dict.fromkeys(
        (job_files.PROGRAM, state.SETTINGS_FILE, job_files.DROP_IN, job_files.BOOT), (None, 0)
    )
    places = [
        ("Prolog", f"{options['prolog_dir']}/{job_files.NAME}"),
        ("Epilog", f"{options['epilog_dir']}/{job_files.NAME}"),
        ("TaskProlog", job_files.PROGRAM),
    ]
    for key, name in places:
        desired_files[name] = (None, 0)
        if os.path.exists(name) and _is_all(name, slurm.get(key.lower(), ())):
            desired_files[name] = (job_files.NOOP, 0o755)
            findings.append(host_finding("slurm_conf_advice", "emptied", file=name, key=key, path=path))
    _apply(desired_files, host)
    if os.path.isdir(job_files.LIBRARY):
        host.change(f"remove {job_files.LIBRARY}")
    for folder in (job_files.LIBRARY, state.RUN) if not host.check else ():
        if os.path.isdir(folder):
            shutil.rmtree(folder)
    return findings


def _write_library(library: Mapping[str, str], python: str, host: Host) -> None:
    """Write the program's modules, and start the program once: that shows that Python runs it, and caches byte code.

    PROGRAM uses the new folder only afterwards. The version that it has used stays until the next one, because a prolog
    may be starting from there.
    """
    folder = job_files.folder_of(library)
    program = job_files.program(python, library)
    used = atomic.read_text(job_files.PROGRAM) or ""
    sound = _is_sound(job_files.LIBRARY)
    complete = sound and all(atomic.read_text(os.path.join(folder, name)) == text for name, text in library.items())
    if complete and used == program:
        return
    if not complete:
        host.change(f"write {folder}")
    if host.check:
        return
    try:
        if not complete:
            versions = glob.glob(f"{job_files.LIBRARY}/*")
            stale = [path for path in versions if path == folder or path not in used] if sound else [job_files.LIBRARY]
            for path in stale:
                shutil.rmtree(path, ignore_errors=True)
            for name, text in library.items():
                write(os.path.join(folder, name), text.encode(), "root", 0o644)
        # TaskProlog of no job does nothing.
        done = child.run(
            [python, "-IS", "-c", f"import sys; assert sys.version_info >= (3, 9), sys.version\n{program}", "task"],
            _TIMEOUT,
            env={},
        )
        if done.rc != 0:
            raise files.ImexError(
                f"{python} cannot run the program of IMEX per job ({done.reason}); set option python to a Python 3.9 or"
                " later."
            )
    except NvlinkError:
        if folder not in used:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _is_sound(folder: str) -> bool:
    """Whether everybody may read the folder with all that is in it, and nobody else may write there."""
    if not os.path.isdir(folder):
        return False
    places = [os.path.join(parent, name) for parent, folders, names in os.walk(folder) for name in folders + names]
    found = [os.lstat(place) for place in [folder, *places]]
    return all(status.st_uid == os.geteuid() and status.st_mode & 0o026 == 0o004 for status in found)


def _calls(patterns: Sequence[str], entry: str) -> bool:
    """Whether a program that slurm.conf names calls the one of this collection."""
    names = (name for value in patterns for pattern in value.split(",") for name in glob.glob(pattern.strip()))
    return any(f"{job_files.PROGRAM} {entry}" in (atomic.read_text(name) or "") for name in names)


def _is_all(wrapper: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern of slurm.conf matches this file and no other."""
    found = (glob.glob(pattern.strip()) for value in patterns for pattern in value.split(","))
    return any(names == [wrapper] for names in found)


def job_with_daemon() -> str | None:
    """The job whose daemon runs on this tray; None where there is none."""
    started = state.read_state()
    return str(started.get("job") or "unknown") if started is not None and daemon.daemons() else None


def _release_unit(host: Host) -> None:
    """Leave the unit to the prolog: not enabled, not masked, and not running for a former owner."""
    unit = state.UNIT
    enabled = host.call("systemctl", "show", "--property=UnitFileState", "--value", unit).stdout
    if enabled.startswith("masked"):
        host.change(f"unmask {unit}", "systemctl", "unmask", unit)
    elif enabled.startswith("enabled"):
        host.change(f"disable {unit}", "systemctl", "disable", "--quiet", unit)
    if daemon.daemons() and state.read_state() is None:
        host.change(f"stop {unit}, which no job started", "systemctl", "stop", unit)


def _apply(desired_files: Mapping[str, tuple[str | None, int]], host: Host) -> None:
    """Write or remove files atomically. The wrappers, which Slurm runs, are written last and removed first."""
    names = sorted(desired_files, key=lambda name: (os.path.basename(name) == job_files.NAME, name))
    if all(text is None for text, _mode in desired_files.values()):
        names.reverse()
    changed = set()
    for name in names:
        text, mode = desired_files[name]
        if host.file(name, None if text is None else text.encode(), mode=mode):
            changed.add(name)
    if job_files.DROP_IN in changed and not host.check:
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(job_files.DROP_IN))  # only where it is empty
        host.require("systemctl", "daemon-reload")
