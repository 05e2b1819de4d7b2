# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Install or remove IMEX per job on a tray: its files, and nvidia-imex.service for the prolog."""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import (
    disk,
    files,
    job_daemon,
    job_files,
    job_state,
    slurm_conf,
)

_TIMEOUT = 30.0


class Result:
    """What changed, or would in check mode: descriptions, texts for a diff (path -> text), findings."""

    def __init__(self) -> None:
        self.changes: list[str] = []
        self.before: dict[str, str] = {}
        self.after: dict[str, str] = {}
        self.findings: list[dict[str, Any]] = []


def present(options: Mapping[str, Any], check: bool) -> Result:
    """Install, unless slurm.conf makes that useless or harmful: then nothing changes."""
    result = Result()
    path, slurm = slurm_conf.read(options["slurm_conf"])
    desired = job_files.desired_state(options, slurm)
    if path is None:
        result.findings.append(
            finding(
                "imex_job_no_slurm",
                "There is no slurm.conf on this tray, so no job would get an IMEX domain; bring up Slurm first, or set"
                " option slurm_conf.",
            )
        )
        return result
    calling = [key for key in ("Prolog", "Epilog") if _calls(slurm.get(key.lower(), ()), key.lower())]
    errors, advice = job_files.judge(desired, slurm, path, calling)
    result.findings += [*errors, *advice]
    if errors:
        return result
    if not desired.settings.members:
        result.findings.append(
            finding(
                "imex_job_not_member",
                "This tray is in no clique of the fabric file, so its jobs get no IMEX domain; run discover and"
                " accept.",
            )
        )
    _release_unit(_unit(), result, check)
    _apply(dict(job_files.files_of(desired, job_files.sources())), result, check)
    return result


def absent(options: Mapping[str, Any], check: bool) -> Result:
    """Remove everything; while a job has its daemon here nothing changes, and a finding reports that."""
    result = Result()
    running_job = job_with_daemon()
    if running_job and options["force"]:
        result.changes.append(f"stop the daemon of job {running_job}")
        if not check:
            job_daemon.clear(job_state.Settings("", (), stop_wait=float(options["stop_wait"])))
    elif running_job:
        result.findings.append(
            finding(
                "imex_job_runs",
                f"Job {running_job} has its IMEX domain on this tray and would lose it; drain the tray and run the role"
                " again when the job has ended, or set option force.",
            )
        )
        return result
    path, slurm = slurm_conf.read(options["slurm_conf"])
    desired_files: dict[str, tuple[str | None, int]] = dict.fromkeys(
        (job_files.PROGRAM, job_state.SETTINGS_FILE, job_files.DROP_IN), (None, 0)
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
            result.findings.append(
                finding(
                    "imex_job_prolog_empty",
                    f"{name} was emptied and stays, because {key} in {path} matches no other file, which Slurm treats"
                    " as an error; remove that line, run scontrol reconfigure, and run the role again.",
                )
            )
    _apply(desired_files, result, check)
    if not check and os.path.isdir(job_state.RUN):
        for name in os.listdir(job_state.RUN):
            os.unlink(os.path.join(job_state.RUN, name))
        os.rmdir(job_state.RUN)
    return result


def _calls(patterns: Sequence[str], entry: str) -> bool:
    """Whether a program that slurm.conf names calls the one of this collection."""
    names = (name for value in patterns for pattern in value.split(",") for name in glob.glob(pattern.strip()))
    return any(f"{job_files.PROGRAM} {entry}" in (disk.read_text(name) or "") for name in names if os.path.isfile(name))


def _is_all(wrapper: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern of slurm.conf matches this file and no other."""
    found = (glob.glob(pattern.strip()) for value in patterns for pattern in value.split(","))
    return any(names == [wrapper] for names in found)


def job_with_daemon() -> str | None:
    """The job whose daemon runs on this tray; None where there is none."""
    state = job_state.state()
    return str(state.get("job") or "unknown") if state is not None and job_daemon.daemons() else None


def _release_unit(unit: Mapping[str, str], result: Result, check: bool) -> None:
    """Leave the unit to the prolog: not enabled, not masked, and not running for a former owner."""
    state = unit.get("UnitFileState", "")
    if state.startswith("masked"):
        _run(["systemctl", "unmask", job_state.UNIT], f"unmask {job_state.UNIT}", result, check)
    elif state.startswith("enabled"):
        _run(["systemctl", "disable", "--quiet", job_state.UNIT], f"disable {job_state.UNIT}", result, check)
    if job_daemon.daemons() and job_state.state() is None:
        _run(["systemctl", "stop", job_state.UNIT], f"stop {job_state.UNIT}, which no job started", result, check)


def _unit() -> dict[str, str]:
    done = child.run(["systemctl", "show", "--property=UnitFileState,ActiveState", job_state.UNIT], _TIMEOUT)
    return dict(line.partition("=")[::2] for line in done.stdout.splitlines())


def _run(command: Sequence[str], change: str, result: Result, check: bool) -> None:
    result.changes.append(change)
    if check:
        return
    done = child.run(command, 120)
    if done.rc != 0:
        raise files.ImexError(
            f"{' '.join(command)} failed ({(done.stderr.strip() or done.error or 'timed out')[:200]}); see the journal"
            " of this tray."
        )


def _apply(desired_files: Mapping[str, tuple[str | None, int]], result: Result, check: bool) -> None:
    """Write or remove files atomically. The wrappers, which Slurm runs, are written last and removed first."""
    names = sorted(desired_files, key=lambda name: (os.path.basename(name) == job_files.NAME, name))
    if all(text is None for text, _mode in desired_files.values()):
        names.reverse()
    reload = False
    for name in names:
        text, mode = desired_files[name]
        before = disk.read_text(name)
        if text == before and (text is None or os.stat(name).st_mode & 0o7777 == mode):
            continue
        result.changes.append(f"{'remove' if text is None else 'write' if before is None else 'change'} {name}")
        # The program is 200 kB of this collection's code, of which a diff is no use.
        result.before[name] = _shown(name, before)
        result.after[name] = _shown(name, text)
        reload = reload or name == job_files.DROP_IN
        if check:
            continue
        if text is None:
            os.unlink(name)
        else:
            disk.write_text(name, text, mode)
    if reload and not check:
        _tidy(os.path.dirname(job_files.DROP_IN))
        done = child.run(["systemctl", "daemon-reload"], _TIMEOUT)
        if done.rc != 0:
            raise files.ImexError(
                f"systemctl daemon-reload failed ({done.stderr.strip()[:200] or 'timed out'}); see the journal."
            )


def _shown(name: str, text: str | None) -> str:
    if text is not None and name == job_files.PROGRAM:
        return f"sha256 {files.digest(text)}\n"
    return text or ""


def _tidy(folder: str) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(folder)  # only where it is empty
