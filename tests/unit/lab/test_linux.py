# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's system calls."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LAB = Path(__file__).parents[2] / "lab"
A_SIGNAL_WITHIN_THE_FORK = """
import os, signal
from nvlab import linux

def leave(number, frame):
    raise SystemExit(128 + number)

signal.signal(signal.SIGTERM, leave)
os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGTERM))
if linux.fork() == 0:
    os._exit(0)
print("the signal is lost")
"""


def test_a_signal_during_a_fork_is_not_lost() -> None:
    command = [sys.executable, "-c", A_SIGNAL_WITHIN_THE_FORK]
    done = subprocess.run(command, cwd=LAB, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "")
