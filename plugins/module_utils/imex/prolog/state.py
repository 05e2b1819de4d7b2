# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings, the job and the state of its daemon, as the program of IMEX per job reads them on a tray."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import syslog
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils import actions, atomic, child, hostlist
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import formats

SETTINGS_FILE = "/etc/nvidia-imex/nvlink-job.json"
RUN = "/run/nvlink-imex-job"
UNIT = "nvidia-imex.service"
DAEMON = "nvidia-imex"
POLICIES = ("replace", "drain", "requeue", "run")
# Seconds that a failed prolog needs after its wait: find the cause, stop the daemon, notify the user, requeue.
MARGIN = 60
# Seconds after its wait in which a prolog at fault drains its tray and requeues the job; the others wait for that.
GRACE = 15.0
TRAY, PEER, JOB, CLIQUE = "tray", "peer", "job", "clique"
SLURM_TIMEOUT = 10.0
ACTIVE = ("RUNNING", "CONFIGURING", "SUSPENDED")


class Failure(formats.ImexError):
    """Why a job gets no IMEX domain. ``fault``: this tray, perhaps a peer, the job, or another job in the clique."""

    def __init__(self, message: str, fault: str = TRAY) -> None:
        super().__init__(message)
        self.fault = fault


class DaemonLeft(Failure):
    """The daemon does not stop: the only failure by which an epilog has Slurm drain its tray."""


class Settings(NamedTuple):
    """The settings file. ``members``: (Slurm node, line of the node list) of this tray's clique, in order.

    ``owner``, ``clique``, ``generation`` and ``sha256`` are the record by which others know this list; ``list_port``:
    where each member offers the file. ``gpus_counted``: whether Slurm gives each GPU to one job (GresTypes). ``gpus``:
    the driver's folder of the GPUs.
    """

    clique: str
    members: tuple[tuple[str, str], ...]
    owner: str = "job"
    generation: int = 0
    sha256: str = ""
    policy: str = "replace"
    wait: float = 60.0
    stop_wait: float = 20.0
    min_trays: int = 2
    max_requeues: int = 3
    channel0: bool = False
    path: str = ""
    proc_devices: str = "/proc/devices"
    list_port: int = 50006
    gpus_counted: bool = False
    gpus: str = "/proc/driver/nvidia/gpus"


class Job(NamedTuple):
    """The job, from the environment of a prolog."""

    id: str
    node: str
    nodelist: str
    trays: int
    restarts: int
    environ: Mapping[str, str]

    @property
    def leader(self) -> str:
        """The job that can be requeued and cancelled: of a heterogeneous job, its first component."""
        return self.environ.get("SLURM_HET_JOB_ID") or self.id


def settings_of(text: str) -> Settings:
    """Parse the settings file; Failure for any other text."""
    try:
        data = json.loads(text)
        found = Settings(**{**data, "members": tuple((str(node), str(line)) for node, line in data["members"])})
        if found.policy in POLICIES and found.wait > 0:
            return found
    except (ValueError, KeyError, TypeError):
        pass
    raise Failure(f"{SETTINGS_FILE} is not a settings file of the role imex; run the role on this tray")


def read_settings() -> Settings:
    """The settings file; Failure where it is gone, because IMEX got another owner: no fault of the tray."""
    text = atomic.read_text(SETTINGS_FILE)
    if text is None:
        raise Failure("IMEX got another owner on this tray before the job had its domain; run the job again", CLIQUE)
    return settings_of(text)


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
        raise Failure(f"{error} is not set; run this program from Prolog or Epilog of Slurm") from None


def shares_its_trays(environ: Mapping[str, str]) -> str | None:
    """How the job shares its trays with others, as NAME=VALUE; None where it has them exclusively.

    26.05 sets SLURM_JOB_EXCLUSIVE, and SLURM_JOB_OVERSUBSCRIBE=NO for shared trays too; 24.11 sets NO for exclusive
    trays and OK for others.
    """
    if "SLURM_JOB_EXCLUSIVE" in environ:
        name, alone = "SLURM_JOB_EXCLUSIVE", {"NODE", "TOPO", "YES"}
    else:
        name, alone = "SLURM_JOB_OVERSUBSCRIBE", {"NO", "TOPO"}
    value = environ.get(name, "")
    return None if value in alone else f"{name}={value}"


def has_no_gpu(settings: Settings, environ: Mapping[str, str]) -> bool:
    """Whether Slurm allocates GPUs and gave the job none on this tray: a job without GPUs needs no IMEX."""
    return settings.gpus_counted and not environ.get("SLURM_JOB_GPUS")


def owns_every_gpu(settings: Settings, environ: Mapping[str, str]) -> bool:
    """Whether the job has all GPUs of this tray, so that no other job here can need IMEX.

    MIG instances are not numbers in SLURM_JOB_GPUS, and do not count.
    """
    given = environ.get("SLURM_JOB_GPUS", "").split(",")
    gpus = os.listdir(settings.gpus) if os.path.isdir(settings.gpus) else []
    return settings.gpus_counted and all(map(str.isdecimal, given)) and len(set(given)) == len(gpus) > 0


def squeue(*arguments: str) -> child.Result:
    # Its fields here contain no text of a user, as the names and comments of scontrol show job do.
    return child.run(["squeue", "--noheader", *arguments], SLURM_TIMEOUT)


def state_of(job: Job) -> str:
    """The job's state in Slurm; RUNNING where slurmctld does not answer."""
    done = squeue(f"--jobs={job.id}", "--states=all", "--format=%A %T")
    # A row for each component of a heterogeneous job.
    states = dict(line.split() for line in done.stdout.splitlines() if len(line.split()) == 2)
    return states.get(job.id, "RUNNING")


def expand(nodelist: str) -> list[str]:
    """The names of a hostlist; one that cannot be expanded is no fault of a tray."""
    try:
        return hostlist.expand(nodelist)
    except hostlist.HostlistError as error:
        raise Failure(str(error).rstrip("."), JOB) from None


def members_of(settings: Settings, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The job's trays in this clique, in the order of the node list, which is the same on all of them."""
    nodes = set(names)
    return tuple(member for member in settings.members if member[0] in nodes)


def state_path() -> str:
    return os.path.join(RUN, "state.json")


def read_state() -> dict[str, Any] | None:
    """The job whose daemon this program started: job, list (its path) and channel0; None where it started none."""
    text = atomic.read_text(state_path())
    if not text:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}


def write_state(state: Mapping[str, Any]) -> None:
    write_text(state_path(), json.dumps(state, sort_keys=True) + "\n")


def config() -> formats.Config:
    return formats.Config(atomic.read_text(formats.CONFIG_FILE) or "")


def list_path() -> str:
    return config().get("IMEX_NODE_CONFIG_FILE") or formats.NODES_FILE


def note_path(job: Job) -> str:
    return os.path.join(RUN, f"note.{job.id}")


def write_text(path: str, text: str) -> None:
    """Replace a file in one step. It need not survive a power loss, which ends the job."""
    try:
        atomic.make_folders(os.path.dirname(path))
        atomic.write(path, text.encode(), 0o644, durable=False, follow=False)
    except OSError as error:
        raise Failure(f"{path} cannot be written ({error.strerror}); free space, or correct its folder") from None


def remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
        actions.record(f"remove {path}")


@contextlib.contextmanager
def lock(deadline: float) -> Iterator[None]:
    """One prolog or epilog at a time on a tray; the kernel releases it when a process is killed."""
    atomic.make_folders(RUN)
    with open(os.open(os.path.join(RUN, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "rb") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() >= deadline:
                    raise Failure(
                        "another prolog or epilog of IMEX still runs on this tray; find what it waits for with ps"
                    ) from None
                time.sleep(0.05)
        yield


def log(text: str, warning: bool = False) -> None:
    syslog.openlog("nvlink-imex-job", syslog.LOG_PID, syslog.LOG_DAEMON)
    syslog.syslog(syslog.LOG_ERR if warning else syslog.LOG_INFO, text)
    if warning:
        os.write(2, f"nvlink-imex-job: {text}\n".encode("utf-8", "replace"))
