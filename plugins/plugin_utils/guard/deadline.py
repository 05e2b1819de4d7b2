# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A time limit for what Ansible asks a host: a host that never answers, or never stops answering, fails alone.

Ansible's keyword `timeout` ends the task and leaves its ssh client running. Here the programs that the task has started
are killed, and Ansible's connection plugin sees the end of its client.
"""

from __future__ import annotations

import contextlib
import glob
import os
import resource
import signal
import subprocess
import threading
from collections.abc import Collection, Iterator

_SECONDS_BETWEEN_KILLS = 0.2


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[threading.Event]:
    """Kill all programs that this process starts in the block, once `seconds` have passed, until the block ends.

    What ran before it stays: the inventory plugin runs in the process whose children are Ansible's workers. It raises
    nothing: what waits for a killed program returns, and the event is set.
    """
    expired, done, older = threading.Event(), threading.Event(), _children(os.getpid())

    def kill() -> None:
        wait = seconds
        while not done.wait(wait):
            expired.set()
            kill_children(older)
            wait = _SECONDS_BETWEEN_KILLS

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    try:
        yield expired
    finally:
        done.set()
        thread.join()


def kill_children(spared: Collection[int] = ()) -> None:
    """Kill all programs that this process has started, and those that they have started; not those of `spared`."""
    for pid in descendants(os.getpid(), spared):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def descendants(pid: int, spared: Collection[int] = ()) -> list[int]:
    """The processes below a process, the nearest first, without those of `spared` and below them."""
    found: list[int] = []
    level = [pid]
    while level:
        level = [child for parent in level for child in _children(parent) if child not in spared]
        found += level
    return found


def _children(pid: int) -> list[int]:
    if os.path.isdir("/proc/self/task"):
        pids: list[int] = []
        for of_thread in glob.glob(f"/proc/{pid}/task/*/children"):
            with contextlib.suppress(OSError), open(of_thread, encoding="ascii") as file:
                pids += map(int, file.read().split())
        return pids
    listed = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in listed.stdout.split()]


@contextlib.contextmanager
def limited_memory(more: int) -> Iterator[None]:
    """Let this process get at most `more` bytes of address space above what it has; MemoryError beyond.

    A worker keeps all that a host prints in memory. Without /proc (macOS) there is no limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            limit = int(file.read().split()[0]) * resource.getpagesize() + more
    except OSError:
        yield
        return
    limits = (each for each in (limit, soft, hard) if each != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_AS, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
