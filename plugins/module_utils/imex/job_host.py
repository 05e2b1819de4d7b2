# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""imex_owner job on a tray, made true: its files, and nvidia-imex.service left to the prolog."""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import ERROR, finding
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
    """What was done, or would be in check mode: words for people, the texts for a diff, findings."""

    def __init__(self) -> None:
        self.changes: list[str] = []
        self.before: dict[str, str] = {}
        self.after: dict[str, str] = {}
        self.findings: list[dict[str, Any]] = []


def present(options: Mapping[str, Any], check: bool) -> Result:
    """Install, unless Slurm's settings would make it useless or harmful: then nothing changes."""
    result = Result()
    path, slurm = slurm_conf.read(options["slurm_conf"])
    want = job_files.wanted(options, slurm)
    if path is None:
        result.findings.append(
            finding(
                "imex_job_no_slurm",
                "There is no slurm.conf on this tray, so no job would get its IMEX; bring up Slurm first, or set"
                " imex_job_slurm_conf to where it is.",
            )
        )
        return result
    called = [key for key in ("Prolog", "Epilog") if _calls(slurm.get(key.lower(), ()), key.lower())]
    refused, notes = job_files.judge(want, slurm, path, called)
    result.findings += [*refused, *notes]
    if refused:
        return result
    if not want.settings.members:
        result.findings.append(
            finding(
                "imex_job_not_member",
                "This tray is in no clique of the fabric file, so its jobs get no IMEX; discover and accept it.",
            )
        )
    unit = _unit()
    _leave_to_prolog(unit, result, check)
    then = {name: (text, mode) for name, (text, mode) in job_files.files_of(want, job_files.sources()).items()}
    _apply(then, result, check)
    return result


def absent(options: Mapping[str, Any], check: bool) -> Result:
    """Take everything away; a job that runs keeps its daemon and its epilog, with a finding."""
    result = Result()
    holder = holder_of()
    if holder and options["force"]:
        result.changes.append(f"stop the daemon of job {holder}")
        if not check:
            job_daemon.clear(job_state.Settings("", (), stop_wait=float(options["stop_wait"])))
    elif holder:
        result.findings.append(
            finding(
                "imex_job_runs",
                f"Job {holder} has its IMEX on this tray and would lose it; drain the tray and run the role again when"
                " the job has ended, or set imex_allow_jobs.",
            )
        )
        return result
    path, slurm = slurm_conf.read(options["slurm_conf"])
    then: dict[str, tuple[str | None, int]] = dict.fromkeys(
        (job_files.PROGRAM, job_state.SETTINGS_FILE, job_files.DROP_IN), (None, 0)
    )
    places = [
        ("Prolog", f"{options['prolog_dir']}/{job_files.NAME}"),
        ("Epilog", f"{options['epilog_dir']}/{job_files.NAME}"),
        ("TaskProlog", job_files.PROGRAM),
    ]
    for key, name in places:
        then[name] = (None, 0)
        if os.path.exists(name) and _is_all(name, slurm.get(key.lower(), ())):
            then[name] = (job_files.NOTHING, 0o755)
            result.findings.append(
                finding(
                    "imex_job_prolog_empty",
                    f"{name} does nothing any more and stays, because {key} in {path} names no other file, and Slurm"
                    f" calls it an error where {key} finds none; take that line away, reconfigure, run the role again.",
                )
            )
    _apply(then, result, check)
    if not check and os.path.isdir(job_state.RUN):
        for name in os.listdir(job_state.RUN):
            os.unlink(os.path.join(job_state.RUN, name))
        os.rmdir(job_state.RUN)
    return result


def _calls(patterns: Sequence[str], entry: str) -> bool:
    """Whether a program that slurm.conf names calls ours."""
    names = (name for value in patterns for pattern in value.split(",") for name in glob.glob(pattern.strip()))
    return any(f"{job_files.PROGRAM} {entry}" in (disk.read_text(name) or "") for name in names if os.path.isfile(name))


def _is_all(wrapper: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern of slurm.conf finds this file and no other."""
    found = (glob.glob(pattern.strip()) for value in patterns for pattern in value.split(","))
    return any(names == [wrapper] for names in found)


def holder_of() -> str | None:
    """The job that has its daemon on this tray now."""
    state = job_state.state()
    return str(state.get("job") or "unknown") if state is not None and job_daemon.daemons() else None


def _leave_to_prolog(unit: Mapping[str, str], result: Result, check: bool) -> None:
    """Nothing but the prolog starts the unit: not enabled, not masked, and not run by an owner before."""
    state = unit.get("UnitFileState", "")
    if state.startswith("masked"):
        _do(["systemctl", "unmask", job_state.UNIT], f"unmask {job_state.UNIT}", result, check)
    elif state.startswith("enabled"):
        _do(["systemctl", "disable", "--quiet", job_state.UNIT], f"disable {job_state.UNIT}", result, check)
    if job_daemon.daemons() and job_state.state() is None:
        _do(["systemctl", "stop", job_state.UNIT], f"stop {job_state.UNIT}, which no job has started", result, check)


def _unit() -> dict[str, str]:
    done = child.run(["systemctl", "show", "--property=UnitFileState,ActiveState", job_state.UNIT], _TIMEOUT)
    return dict(line.partition("=")[::2] for line in done.stdout.splitlines())


def _do(command: Sequence[str], words: str, result: Result, check: bool) -> None:
    result.changes.append(words)
    if check:
        return
    done = child.run(command, 120)
    if done.rc != 0:
        raise files.ImexError(
            f"{' '.join(command)} failed ({(done.stderr.strip() or done.error or 'no answer')[:200]})."
        )


def _apply(then: Mapping[str, tuple[str | None, int]], result: Result, check: bool) -> None:
    """Each file whole or not at all; the wrappers last to come and first to go, as they are what Slurm runs."""
    names = sorted(then, key=lambda name: (os.path.basename(name) == job_files.NAME, name))
    if all(text is None for text, _mode in then.values()):
        names.reverse()
    reload = False
    for name in names:
        text, mode = then[name]
        before = disk.read_text(name)
        if text == before and (text is None or os.stat(name).st_mode & 0o7777 == mode):
            continue
        result.changes.append(f"{'remove' if text is None else 'write' if before is None else 'change'} {name}")
        # The program is 200 kB of this collection's own code, which nobody reads as a diff.
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
            raise files.ImexError(f"systemctl daemon-reload failed ({done.stderr.strip()[:200] or 'no answer'}).")


def _shown(name: str, text: str | None) -> str:
    if text is not None and name == job_files.PROGRAM:
        return f"sha256 {files.digest(text)}\n"
    return text or ""


def _tidy(folder: str) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(folder)  # only where it is empty


def failed(result: Result) -> list[str]:
    """The sentences of the errors."""
    return [note["message"] for note in result.findings if note["severity"] == ERROR]
