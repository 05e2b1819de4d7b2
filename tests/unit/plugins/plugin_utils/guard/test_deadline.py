# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The end of a question, in processes of its own: what it started is gone, what others started stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HEAD = """
import os, subprocess, sys
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.deadline import (
    deadline, descendants, limited_memory
)
"""


def run(text: str) -> str:
    done = subprocess.run([sys.executable, "-c", HEAD + text], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_program_that_never_ends_is_killed_with_what_it_started() -> None:
    printed = run("""
with deadline(5) as end:
    # The shell's own child holds the pipe, as a program behind sudo or sshpass does.
    child = subprocess.Popen(["sh", "-c", "sleep 1000 & echo $!; wait"], stdout=subprocess.PIPE, text=True)
    below = int(child.stdout.readline())
    child.stdout.read()
    child.wait()
print(end.is_set(), child.returncode, below, descendants(os.getpid()))
""")
    expired, status, below, left = printed.split(maxsplit=3)
    assert (expired, status, left.strip()) == ("True", "-9", "[]")
    state = Path(f"/proc/{below}/stat")
    # A zombie that nobody has waited for yet is dead.
    assert not state.exists() or state.read_text().split()[2] == "Z"


def test_what_ran_before_stays_with_what_it_starts() -> None:
    printed = run("""
# It starts another program within the block.
older = subprocess.Popen(["sh", "-c", "read line; sleep 1000 & echo $!; wait"], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
with deadline(1) as end:
    child = subprocess.Popen(["sleep", "1000"])
    older.stdin.write("go\\n")
    older.stdin.flush()
    below = int(older.stdout.readline())
    child.wait()
print(end.is_set(), child.returncode, older.poll(), descendants(os.getpid()) == [older.pid, below])
for pid in (below, older.pid):
    os.kill(pid, 9)
""")
    assert printed.split() == ["True", "-9", "None", "True"]


def test_memory_is_limited_only_inside() -> None:
    printed = run("""
try:
    with limited_memory(64 * 1024 * 1024):
        bytearray(256 * 1024 * 1024)
except MemoryError:
    print("refused")
print(len(bytearray(256 * 1024 * 1024)))
""")
    assert printed.split() == ["refused", str(256 * 1024 * 1024)]
