# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The system calls of mounts, and facts about processes."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

from .errors import LabError

MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, fstype: str | None = None, flags: int = 0, data: str | None = None) -> None:
    result = _libc.mount(
        source.encode(),
        target.encode(),
        fstype.encode() if fstype else None,
        ctypes.c_ulong(flags),
        data.encode() if data else None,
    )
    _check(result, f"mount {source} on {target}")


def umount(target: str, flags: int = MNT_DETACH) -> None:
    _check(_libc.umount2(target.encode(), flags), f"umount {target}")


def mounts_below(directory: str) -> list[str]:
    """The mount points inside a directory, the innermost and latest first."""
    targets = [line.split(" ")[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [target for target in reversed(targets) if target.startswith(f"{directory}/")]


def fork() -> int:
    """os.fork() with no signal in between: Python ignores what a handler raises inside its hooks after a fork."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        return os.fork()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def start_time(pid: int) -> int | None:
    """Clock ticks after boot when `pid` started, so that both name one process for ever; None when it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name may hold blanks and brackets: count the fields behind its last bracket.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])


def is_alive(pid: int, started: int) -> bool:
    return start_time(pid) == started


def cgroup_root() -> Path:
    """Where the machine's cgroup v2 hierarchy is mounted (also next to v1 hierarchies)."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _source, target, fstype = line.split(" ")[:3]
        if fstype == "cgroup2":
            return Path(target)
    raise LabError("no cgroup v2 hierarchy is mounted: mount one (mount -t cgroup2 none /sys/fs/cgroup/unified).")
