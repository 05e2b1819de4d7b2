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
from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, host_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import files, job_files, slurm_conf
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog import daemon, state
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog.wait import outdated

_TIMEOUT = 30.0
_UNITS = (job_files.SOCKET_UNIT, job_files.SERVICE_UNIT)


def present(options: Arguments, host: Host) -> list[HostFinding]:
    """Install, unless slurm.conf makes that useless or harmful: then nothing changes. The findings."""
    path, slurm = slurm_conf.read(options["slurm_conf"])
    settings = job_files.settings_of(options, slurm)
    if path is None:
        return [host_finding("slurm_conf_inconsistent", "no_file")]
    calling = [key for key in ("Prolog", "Epilog") if _calls(slurm.get(key.lower(), ()), key.lower())]
    errors, advice = job_files.evaluate(settings, options, slurm, path, calling)
    if errors:
        return [*errors, *advice]
    if not settings.members:
        advice.append(host_finding("tray_unplaced", "job"))
    # Nothing changes where trays of the clique that this run leaves out would keep other members.
    members = dict(settings.members)
    missed = outdated(settings, {node: members[node] for node in options["outside"] if node in members})
    if missed:
        return [host_finding("imex_clique_partial", "job", trays=missed, clique=settings.clique)]
    _require_python(options["python"])
    _release_unit(host)
    _apply(dict(job_files.files_of(settings, options)), host)
    host.run(job_files.SOCKET, restart=job_files.SOCKET_UNIT in host.before)
    _remove_folders(host, job_files.LIBRARY)
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
    plain = (state.SETTINGS_FILE, job_files.DROP_IN, job_files.BOOT, *_UNITS)
    desired_files: dict[str, tuple[bytes | None, int]] = dict.fromkeys(plain, (None, 0))
    places = [
        ("Prolog", f"{options['prolog_dir']}/{job_files.NAME}"),
        ("Epilog", f"{options['epilog_dir']}/{job_files.NAME}"),
        ("TaskProlog", job_files.PROGRAM),
    ]
    for key, name in places:
        desired_files[name] = (None, 0)
        if os.path.exists(name) and _is_all(name, slurm.get(key.lower(), ())):
            desired_files[name] = (job_files.NOOP.encode(), 0o755)
            findings.append(host_finding("slurm_conf_advice", "emptied", file=name, key=key, path=path))
    if os.path.exists(job_files.SOCKET_UNIT):
        host.change(f"stop {job_files.SOCKET}", "systemctl", "disable", "--quiet", "--now", job_files.SOCKET)
    _apply(desired_files, host)
    _remove_folders(host, job_files.LIBRARY, state.RUN)
    return findings


def _require_python(python: str) -> None:
    done = child.run([python, "-IS", "-c", "import sys; assert sys.version_info >= (3, 9), sys.version"], _TIMEOUT)
    if done.rc != 0:
        raise files.ImexError(
            f"{python} cannot run the program of IMEX per job ({done.reason}); set option python to a Python 3.9 or"
            " later."
        )


def _remove_folders(host: Host, *folders: str) -> None:
    for folder in filter(os.path.isdir, folders):
        if host.change(f"remove {folder}"):
            shutil.rmtree(folder)


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


def _apply(desired_files: Mapping[str, tuple[bytes | None, int]], host: Host) -> None:
    """Write or remove files atomically. The wrappers, which Slurm runs, are written last and removed first."""
    names = sorted(desired_files, key=lambda name: (os.path.basename(name) == job_files.NAME, name))
    if all(data is None for data, _mode in desired_files.values()):
        names.reverse()
    for name in names:
        data, mode = desired_files[name]
        host.file(name, data, mode=mode)
    if not host.check and not host.before.keys().isdisjoint((job_files.DROP_IN, *_UNITS)):
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(job_files.DROP_IN))  # only where it is empty
        host.require("systemctl", "daemon-reload")
