# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start and stop the daemon of a job as nvidia-imex.service, whose cgroup outlives the prolog."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import worded
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import boot, facts, files, survey
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog.state import (
    DAEMON,
    RUN,
    SLURM_TIMEOUT,
    UNIT,
    Failure,
    Settings,
    list_path,
    log,
    read_state,
    read_text,
    reason_of,
    remove,
)

_CAUSE_TIMEOUT = 12.0


def start_daemon(deadline: float) -> None:
    left = max(0.5, deadline - time.monotonic())
    done = child.run(["systemctl", "start", UNIT], left)
    if done.timed_out:
        raise Failure(cause(f"{UNIT} did not start within {left:.0f} s; see its log"))
    if done.rc != 0:
        raise Failure(cause(f"{UNIT} did not start ({reason_of(done)}); see its log"))


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
    done = child.run(["systemctl", "stop", UNIT], settings.stop_wait + 10)
    left = [pid for pid, own in daemons() if own]
    if left or done.rc != 0:
        why = f"process {left[0]} is left" if left else reason_of(done)
        raise Failure(f"{UNIT} could not be stopped ({why}); reboot the tray")
    if "Result=timeout" in child.run(["systemctl", "show", "--property=Result", UNIT], SLURM_TIMEOUT).stdout:
        log(f"{UNIT} did not end by SIGTERM within {settings.stop_wait:g} s and was killed; see its log", warning=True)


def clear(settings: Settings) -> None:
    started = read_state() or {}
    stop_daemon(settings, others=False)
    remove(files.PERSIST_FILE)
    remove(list_path())
    if started.get("channel0"):
        remove(f"{boot.CHANNELS}/channel0")
    remove(os.path.join(RUN, "state.json"))


def daemons() -> list[tuple[int, bool]]:
    """The IMEX daemons: (pid, whether it is of nvidia-imex.service)."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and _name_of(entry) == DAEMON.encode():
            fields = read_text(f"/proc/{entry}/stat", 4096).rpartition(")")[2].split()
            if fields and fields[0] not in "ZX" and not survey.is_version_query(entry):
                found.append((int(entry), f"/{UNIT}" in read_text(f"/proc/{entry}/cgroup", 65536)))
    return found


def _name_of(pid: str) -> bytes:
    """The comm of a process, read as bytes by one call, because a tray has thousands of processes."""
    try:
        file = os.open(f"/proc/{pid}/comm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(file, 64).rstrip(b"\n")
    except OSError:  # the process ended
        return b""
    finally:
        os.close(file)


def reconnect_peers() -> None:
    for pid, own in daemons():
        if own:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGUSR1)


def cause(otherwise: str) -> str:
    """The reason as fabric_facts reports it, a fault in the log first; read only after a failure."""
    found = child.call(_find_cause, _CAUSE_TIMEOUT).value
    return str(found) if found else otherwise


def _find_cause() -> str | None:
    read = survey.survey(timeout=2.0, prolog_files=())
    found = map(worded, facts.assemble(read)["findings"])
    errors = [entry for entry in found if entry["severity"] == "error"]
    general = ("imex_unit_down", "imex_unit_down", "imex_not_ready", "imex_not_ready")
    errors.sort(key=lambda entry: entry["code"] in general)
    # The caller has a more exact message for a start that hangs.
    left_out = ("imex_channels_off", "imex_channel_missing", "imex_unit_starting")
    causes = [entry for entry in errors if entry["code"] not in left_out]
    return causes[0]["message"].rstrip(".") if causes else None
