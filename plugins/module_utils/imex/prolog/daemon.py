# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start and stop the daemon of a job as nvidia-imex.service, whose cgroup outlives the prolog."""

from __future__ import annotations

import time

from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic, child
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import boot, formats
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.processes import processes
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog.state import (
    SLURM_TIMEOUT,
    UNIT,
    DaemonLeft,
    Failure,
    Settings,
    config,
    list_path,
    log,
    read_settings,
    read_state,
    remove,
    state_path,
)


def start_daemon(deadline: float) -> None:
    read_settings()  # a change of owner with allow_jobs does not wait for this prolog
    left = max(0.5, deadline - time.monotonic())
    done = child.run(["systemctl", "start", UNIT], left, acts=True)
    if done.timed_out:
        raise Failure(with_log(f"{UNIT} did not start within {left:.0f} s"))
    if done.rc != 0:
        raise Failure(with_log(f"{UNIT} did not start ({done.reason})"))


def stop_daemon(settings: Settings, others: bool = True) -> None:
    """Stop the unit and verify that its daemon ended. systemd sends SIGTERM, and SIGKILL after TimeoutStopSec.

    ``others``: whether a daemon outside the unit is a Failure. It is never stopped, because it has another owner.
    """
    running = daemons()
    unmanaged = [pid for pid, own in running if not own]
    if unmanaged and others:
        raise Failure(
            f"process {unmanaged[0]} is an IMEX daemon that neither a job nor {UNIT} started; stop it, or give"
            " IMEX to its owner by the role imex"
        )
    if len(unmanaged) == len(running):
        return
    # systemd kills it after stop_wait; a process that is left then hangs in the kernel.
    done = child.run(["systemctl", "stop", UNIT], settings.stop_wait + 10, acts=True)
    left = [pid for pid, own in daemons() if own]
    if left:
        raise DaemonLeft(f"{UNIT} could not be stopped (process {left[0]} is left); reboot the tray")
    if done.rc != 0:
        raise Failure(f"{UNIT} could not be stopped ({done.reason}); reboot the tray")
    if "Result=timeout" in child.run(["systemctl", "show", "--property=Result", UNIT], SLURM_TIMEOUT).stdout:
        log(f"{UNIT} did not end by SIGTERM within {settings.stop_wait:g} s and was killed; see its log", warning=True)


def clear(settings: Settings) -> None:
    started = read_state() or {}
    stop_daemon(settings, others=False)
    remove(formats.PERSIST_FILE)
    # config.cfg may name another list since the job began.
    remove(str(started.get("list") or list_path()))
    if started.get("channel0"):
        remove(f"{boot.CHANNELS}/channel0")
    remove(state_path())


def daemons() -> list[tuple[int, bool]]:
    """The IMEX daemons: (pid, whether it is of nvidia-imex.service), without those that only print their version."""
    return [(process["pid"], f"/{UNIT}" in process["cgroup"]) for process in processes()]


def reconnect_peers() -> None:
    """Have the daemon read its TLS files again and connect to all its peers at once."""
    # The signal would end another process of the unit. systemd before 252 has no --kill-whom; newer ones take both.
    child.run(["systemctl", "kill", "--kill-who=main", "--signal=SIGUSR1", UNIT], SLURM_TIMEOUT, acts=True)


def with_log(text: str) -> str:
    """The sentence with the last error that the daemon has logged since its start."""
    path = config().get("LOG_FILE_NAME")
    lines = atomic.tail(path).rpartition(" is running ")[2].splitlines()
    errors = [line for line in lines if "ERROR" in line or "CRITICAL" in line]
    return f"{text}; {path} has: {errors[-1].strip()[:300]}" if errors else f"{text}; see {path}"
