# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes of this tray, found by name."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import survey
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count


def pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdecimal()]


def name(pid: int) -> str:
    return (atomic.read_text(f"/proc/{pid}/comm") or "").strip()


def has_argument(pid: int, text: str) -> bool:
    return text in (atomic.read_text(f"/proc/{pid}/cmdline") or "")


def unmanaged_daemons() -> list[dict[str, Any]]:
    """The finding for an IMEX daemon that the DRA driver did not start."""
    found = []
    for pid in pids():
        if name(pid) == survey.DAEMON:
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/cgroup", encoding="utf-8") as file:
                    if "kubepods" in file.read() or has_argument(pid, "/imexd/"):
                        continue
                found.append(pid)
    return [
        finding(
            "imex_two_owners",
            f"{survey.UNIT} is masked, but process {pid} is an IMEX daemon that the DRA driver did not start; stop it.",
        )
        for pid in found[:1]
    ]


def job_steps() -> list[str]:
    """The number of Slurm job steps on this tray, as one phrase; empty for none."""
    steps = [pid for pid in pids() if name(pid) == "slurmstepd" and not has_argument(pid, "infinity")]
    return [f"{count(len(steps), 'job step')} on this tray"] if steps else []
