# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run benchmark jobs on a block of trays, in a reservation that excludes other jobs.

Private to this collection; it may change in any release. Python 3.9, standard library only.

The reservation has no IGNORE_JOBS, so Slurm refuses it where jobs run, and a program never shares a tray with a user's
job. It is deleted whatever the result of the jobs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.nodes import partition_words
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import SlurmError

RESERVATION = "nvlink-benchmark-"
CHANNELS = "/dev/nvidia-caps-imex-channels"
# What each task prints about its place; the pause makes the jobs on both halves of a block overlap.
PLACEMENT = (
    f'channels=$(ls {CHANNELS} 2>/dev/null | tr "\\n" ",");'
    ' echo "node=$SLURMD_NODENAME address=$SLURM_TOPOLOGY_ADDR channels=$channels"; sleep 2'
)
MAX_OUTPUT = 1 << 20
# The exit status of timeout where it has ended the program. It kills none: its status would be that of a killed task.
OF_TIMEOUT = 124
# Seconds that srun has to end its job.
GRACE = 20
_LABEL = re.compile(r" *([0-9]+): ?(.*)")
_TAIL = 400


def run_jobs(
    slurm: Slurm, reservation: str, commands: Sequence[tuple[Sequence[str], str]], seconds: int
) -> list[dict[str, Any]]:
    """Run (nodes, command) concurrently; of each rc (None on a timeout), tasks (number -> output), end of stderr."""
    # srun passes the signal of timeout on to its job.
    srun = ["timeout", str(seconds), slurm.program("srun"), f"--reservation={reservation}"]
    srun += ["--ntasks-per-node=1", "--exclusive", f"--time={max(1, seconds // 60)}", "--input=none", "--label"]
    srun += ["--job-name=nvlink-benchmark", "--chdir=/"]
    partitions = partition_words(slurm.records("partitions"), [nodes for nodes, _command in commands])
    programs = [
        [*srun, *where, f"--nodelist={','.join(nodes)}", f"--nodes={len(nodes)}", "--", "bash", "-c", command]
        for (nodes, command), where in zip(commands, partitions)
    ]
    return [
        {
            "rc": None if done.timed_out or done.rc == OF_TIMEOUT else done.rc,
            "tasks": tasks_of(done.stdout[:MAX_OUTPUT]),
            "stderr": done.stderr.strip()[-_TAIL:],
        }
        for done in child.run_each(programs, seconds + GRACE, len(programs), slurm.environment(), acts=True)
    ]


def tasks_of(text: str) -> dict[str, str]:
    """Task -> its lines, from the output of ``srun --label``."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        match = _LABEL.fullmatch(line)
        if match:
            found.setdefault(match.group(1), []).append(match.group(2))
    return {task: "\n".join(lines) + "\n" for task, lines in found.items()}


def halves(nodes: Sequence[str]) -> list[list[str]]:
    """Split a block into two parts that run concurrently; a block of one tray is one part."""
    middle = (len(nodes) + 1) // 2
    return [list(part) for part in (nodes[:middle], nodes[middle:]) if part]


def run_on_block(slurm: Slurm, block: str, nodes: Sequence[str], programs: Sequence[Arguments]) -> dict[str, Any]:
    """Reserve a block and run its jobs: {block, refused_reason, placement: [job, ...], programs: [{name, ...job}]}.

    refused_reason: why Slurm refuses the reservation, empty where it does not. programs: mappings with name, command
    and seconds. SlurmError where the reservation cannot be deleted.
    """
    reservation = f"{RESERVATION}{block}"
    seconds = 120 + sum(int(program["seconds"]) for program in programs)
    created = slurm.reserve(reservation, nodes, "root", str(seconds // 60 + 2), "MAINT")
    row: dict[str, Any] = {"block": block, "refused_reason": "", "placement": [], "programs": []}
    if created.rc != 0:
        row["refused_reason"] = created.reason
        return row
    try:
        row["placement"] = run_jobs(slurm, reservation, [(part, PLACEMENT) for part in halves(nodes)], 60)
        for program in programs:
            done = run_jobs(slurm, reservation, [(nodes, str(program["command"]))], int(program["seconds"]))
            row["programs"].append({"name": program["name"], **done[0]})
    finally:
        deleted = slurm.release(reservation)
    if deleted.rc != 0:
        raise SlurmError(
            f"The reservation {reservation} cannot be deleted ({deleted.reason.rstrip('.')}): run scontrol delete"
            f" ReservationName={reservation}."
        )
    return row
