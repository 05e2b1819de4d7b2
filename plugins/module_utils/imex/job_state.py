# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the program of imex_owner job knows on a tray: its settings, the job, and what it has started here.

What runs stands in RUN, which no boot survives, so an epilog knows whether the daemon is its job's own.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import files

SETTINGS_FILE = "/etc/nvidia-imex/nvlink-job.json"
RUN = "/run/nvlink-imex-job"
UNIT = "nvidia-imex.service"
DAEMON = "nvidia-imex"
POLICIES = ("drain", "requeue", "run")
SCOPES = ("job", "clique_exclusive")
# What a failed prolog still has to do after its wait: ask why, stop the daemon, tell the user, requeue. Seconds.
MARGIN = 60
TRAY, PEER, JOB, CLIQUE = "tray", "peer", "job", "clique"
SLURM_TIMEOUT = 10.0


class Failure(files.ImexError):
    """Why a job gets no IMEX domain: by fault of this tray, perhaps of a peer, of the job, or its clique is taken."""

    def __init__(self, message: str, fault: str = TRAY) -> None:
        super().__init__(message)
        self.fault = fault


class Settings(NamedTuple):
    """What the role says. ``members``: (node in Slurm, line of the list) of this tray's clique, in the list's order."""

    clique: str
    members: tuple[tuple[str, str], ...]
    policy: str = "drain"
    scope: str = "job"
    wait: float = 60.0
    stop_wait: float = 20.0
    min_trays: int = 2
    max_requeues: int = 3
    channel0: bool = False
    path: str = ""
    proc_devices: str = "/proc/devices"


class Job(NamedTuple):
    """What Slurm says of the job in the environment of a prolog."""

    id: str
    node: str
    nodelist: str
    trays: int
    restarts: int
    environ: Mapping[str, str]


def settings_of(text: str) -> Settings:
    """The settings from their file; Failure when it is none of ours."""
    try:
        data = json.loads(text)
        found = Settings(**{**data, "members": tuple((str(node), str(line)) for node, line in data["members"])})
        if found.policy in POLICIES and found.scope in SCOPES and found.wait > 0:
            return found
    except (ValueError, KeyError, TypeError):
        pass
    raise Failure(f"{SETTINGS_FILE} is not what the imex role writes; run the role on this tray")


def job_of(environ: Mapping[str, str]) -> Job:
    try:
        return Job(
            environ["SLURM_JOB_ID"],
            environ["SLURMD_NODENAME"],
            environ["SLURM_JOB_NODELIST"],
            int(environ.get("SLURM_JOB_NUM_NODES", "0")),
            int(environ.get("SLURM_JOB_RESTART_COUNT") or 0),
            environ,
        )
    except (KeyError, ValueError) as error:
        raise Failure(f"Slurm does not say which job this is ({error}); this is for its Prolog and Epilog") from None


def shares_its_trays(environ: Mapping[str, str]) -> str | None:
    """How the job shares its trays with others, as NAME=VALUE; None where it has them alone.

    26.05 has SLURM_JOB_EXCLUSIVE and there says SLURM_JOB_OVERSUBSCRIBE=NO of shared trays too; 24.11 says NO of
    trays that the job has alone and OK of others.
    """
    if "SLURM_JOB_EXCLUSIVE" in environ:
        name, alone = "SLURM_JOB_EXCLUSIVE", {"NODE", "TOPO", "YES"}
    else:
        name, alone = "SLURM_JOB_OVERSUBSCRIBE", {"NO", "TOPO"}
    value = environ.get(name, "")
    return None if value in alone else f"{name}={value}"


def holds_whole_blocks(environ: Mapping[str, str]) -> bool:
    """Whether Slurm keeps every other job from the blocks of this one (--exclusive=topo)."""
    return "TOPO" in (environ.get("SLURM_JOB_EXCLUSIVE"), environ.get("SLURM_JOB_OVERSUBSCRIBE"))


def members_of(settings: Settings, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The job's trays in this clique, in the order that all of them have in common."""
    wanted = set(names)
    return tuple(member for member in settings.members if member[0] in wanted)


def state() -> dict[str, Any] | None:
    """What this program has started here: job, clique, trays and channel0; None for nothing."""
    text = read_text(os.path.join(RUN, "state.json"))
    if not text:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}


def write_state(state: Mapping[str, Any]) -> None:
    write_text(os.path.join(RUN, "state.json"), json.dumps(state, sort_keys=True) + "\n")


def list_path() -> str:
    return files.Config(read_text(files.CONFIG_FILE)).get("IMEX_NODE_CONFIG_FILE") or files.NODES_FILE


def note_path(job: Job) -> str:
    return os.path.join(RUN, f"note.{job.id}")


def write_text(path: str, text: str) -> None:
    """The whole file or none of it."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(text)
        os.fchmod(file.fileno(), 0o644)
    os.replace(f"{path}.new", path)


def remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def read_text(path: str, most: int = 1 << 20) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(most)
    except OSError:
        return ""


class Lock:
    """One prolog or epilog at a time on a tray; the kernel lets go of it for one that was killed."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline

    def __enter__(self) -> None:
        import fcntl

        os.makedirs(RUN, mode=0o755, exist_ok=True)
        self._file = os.open(os.path.join(RUN, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                if time.monotonic() >= self._deadline:
                    os.close(self._file)
                    raise Failure(
                        "another prolog or epilog of IMEX still runs on this tray; see what it waits for"
                    ) from None
                time.sleep(0.05)

    def __exit__(self, *_error: object) -> None:
        os.close(self._file)


def log(text: str, warning: bool = False) -> None:
    import syslog

    syslog.openlog("nvlink-imex-job", syslog.LOG_PID, syslog.LOG_DAEMON)
    syslog.syslog(syslog.LOG_ERR if warning else syslog.LOG_INFO, text)
    if warning:
        os.write(2, f"nvlink-imex-job: {text}\n".encode("utf-8", "replace"))


def reason_of(done: child.Result) -> str:
    text = (done.error or done.stderr.strip() or done.stdout.strip() or f"exit {done.rc}").splitlines()[0]
    return text[:200]
