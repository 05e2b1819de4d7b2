# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run commands in turns and measure time, CPU and memory of each."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cost:
    """Cost of one run with its children: wall clock and CPU time in s, memory of the largest process in MB."""

    wall: float
    cpu: float
    memory: float


def environment(scratch: Path, **more: str) -> dict[str, str]:
    """Ansible's defaults, whatever the user has configured."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "CLUSTERSHELL_"))}
    (scratch / "ansible.cfg").touch()
    return {
        **kept,
        "ANSIBLE_CONFIG": str(scratch / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": str(next((Path(sys.prefix) / "lib").glob("python3*")) / "site-packages"),
        "ANSIBLE_HOME": str(scratch / "home"),
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_NOCOLOR": "true",
        **more,
    }


def once(command: Sequence[str], environment: Mapping[str, str], output: Path) -> Cost:
    """Run a command to its end, its standard output into a file; SystemExit if it fails."""
    with output.open("wb") as file:
        started = time.perf_counter()
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=file)
        _pid, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed with exit status {process.returncode}")
    return Cost(wall, used.ru_utime + used.ru_stime, _megabytes(used))


def interleaved(
    commands: Mapping[str, Sequence[str]], environment: Mapping[str, str], outputs: Path, rounds: int
) -> dict[str, Cost]:
    """Median cost of each command; all run once in every round, so that other load affects all of them alike.

    A first round warms the disk cache and is not counted. The last output of each is in outputs/<name>.
    """
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name, command in commands.items():
            cost = once(command, environment, outputs / name)
            if number or not rounds:
                costs[name].append(cost)
    return {name: _median(measured) for name, measured in costs.items()}


def _median(costs: Sequence[Cost]) -> Cost:
    return Cost(*(statistics.median(getattr(cost, part) for cost in costs) for part in ("wall", "cpu", "memory")))


def _megabytes(used: resource.struct_rusage) -> float:
    return used.ru_maxrss / 1024
