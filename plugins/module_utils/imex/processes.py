# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find processes of this tray by their names; for the facts, the changes and the prolog."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from typing import TypedDict

DAEMON = "nvidia-imex"
_END_SECONDS = 0.2


class Process(TypedDict):
    pid: int
    name: str
    argv: list[str]
    cgroup: str
    """All lines: on a hybrid cgroup the unit is in some of them only."""
    started_at: float | None
    """Seconds since the epoch."""


def processes(wanted: Callable[[str], bool] = DAEMON.__eq__, proc: str = "/proc") -> list[Process]:
    """The processes with a wanted name, by default the IMEX daemons, that have not ended."""
    found: list[Process] = []
    boot = re.search(r"(?m)^btime ([0-9]+)", _read(f"{proc}/stat"))
    for entry in filter(str.isdecimal, os.listdir(proc)):
        name = _read(f"{proc}/{entry}/comm").strip()
        if not wanted(name):
            continue
        fields = _stat(entry, proc)
        if len(fields) > 19 and fields[0] not in "ZX" and not (name == DAEMON and is_version_query(entry, proc)):
            argv = _read(f"{proc}/{entry}/cmdline").split("\0")[:-1]
            cgroup = _read(f"{proc}/{entry}/cgroup")
            started = float(boot.group(1)) + int(fields[19]) / os.sysconf("SC_CLK_TCK") if boot else None
            found.append({"pid": int(entry), "name": name, "argv": argv, "cgroup": cgroup, "started_at": started})
    return sorted(found, key=lambda process: process["pid"])


def is_version_query(pid: str, proc: str = "/proc") -> bool:
    """Whether a process called nvidia-imex only prints its version, as for the facts of another run, or has ended.

    A process that ends has no arguments any more. One that hangs there is a daemon, whose session the driver keeps.
    """
    argv = _read(f"{proc}/{pid}/cmdline").split("\0")
    if argv != [""]:
        return "--version" in argv
    time.sleep(_END_SECONDS)
    return _stat(pid, proc)[:1] in ([], ["Z"], ["X"])


def _stat(pid: str, proc: str = "/proc") -> list[str]:
    """The fields of a process from its state on; none where it has ended."""
    return _read(f"{proc}/{pid}/stat").rpartition(")")[2].split()


def _read(path: str) -> str:
    """A file of /proc; empty where there is none. Unbuffered, because a tray has thousands of processes."""
    try:
        with open(path, "rb", buffering=0) as file:
            return (file.read(1 << 16) or b"").decode("utf-8", "replace")
    except OSError:
        return ""
