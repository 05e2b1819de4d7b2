# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a task with srun returned, as a job of the benchmark. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import as_list, mapped

MAX_OUTPUT = 1 << 20
# The exit status of timeout where it has ended the program, or has killed it.
OF_TIMEOUT = (124, 137)
_LABEL = re.compile(r" *([0-9]+): ?(.*)")
_TAIL = 400


def row_of(results: Mapping[str, Any], programs: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The row of a block for benchmarks.evaluate(). results: an element of the option results of slurm_benchmark."""
    reserved, jobs = mapped(results.get("reserved")), as_list(results.get("programs"))
    refused = "" if reserved.get("rc") == 0 else str(reserved.get("stderr") or reserved.get("msg") or "no answer")
    return {
        "block": str(results.get("block")),
        "refused_reason": refused,
        "placement": [job_of(mapped(job)) for job in as_list(results.get("halves"))],
        "programs": [{"name": program["name"], **job_of(mapped(job))} for program, job in zip(programs, jobs)],
    }


def job_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """rc (None on a timeout), tasks (number -> output) and the end of stderr."""
    rc = result.get("rc")
    return {
        "rc": None if rc in OF_TIMEOUT else rc,
        "tasks": tasks_of(str(result.get("stdout") or "")[:MAX_OUTPUT]),
        "stderr": str(result.get("stderr") or "").strip()[-_TAIL:],
    }


def tasks_of(text: str) -> dict[str, str]:
    """Task -> its lines, from the output of ``srun --label``."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        match = _LABEL.fullmatch(line)
        if match:
            found.setdefault(match.group(1), []).append(match.group(2))
    return {task: "\n".join(lines) + "\n" for task, lines in found.items()}
