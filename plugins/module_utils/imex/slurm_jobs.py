# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find Slurm jobs that would break if IMEX stopped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, host_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import processes
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import slurmd
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count

# squeue's error for a node that slurmctld does not have.
_UNKNOWN_NODE = "invalid node name"
_NO_SLURM = ("configuration source", "Unable to process configuration", "No such file")


def running_on(nodes: Sequence[str], timeout: float = 30.0) -> tuple[list[str], str | None]:
    """(jobs on these nodes, why they are unknown or None), by one call of squeue for the clique.

    Without squeue or a Slurm cluster on this tray, the job steps that run on it.
    """
    conf, prefix = slurmd.find()
    folders = (os.environ.get("PATH", ""), f"{prefix}/bin", "/usr/bin", "/usr/local/bin", "/opt/slurm/bin")
    program = shutil.which("squeue", path=os.pathsep.join(folders))
    if program is None or not nodes:
        return job_steps(), None
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "SQUEUE_"))}
    if conf:
        environment["SLURM_CONF"] = conf
    command = [program, "--noheader", f"--nodelist={','.join(nodes)}", "--states=R,S,CG,CF", "--format=%i (%u)"]
    done = child.run(command, timeout, env={**environment, "LC_ALL": "C"})
    if done.rc == 0:
        return sorted({line.strip() for line in done.stdout.splitlines() if line.strip()}), None
    if any(text in done.stderr for text in _NO_SLURM):
        return job_steps(), None
    return [], done.stderr.strip().partition("\n")[0] or "squeue timed out"


def job_steps() -> list[str]:
    """The number of Slurm job steps on this tray, as one phrase; empty for none."""
    # slurmstepd infinity is Slurm's own, of no job.
    running = processes.processes("slurmstepd".__eq__)
    steps = [step for step in running if not any("infinity" in word for word in step["argv"])]
    return [f"{count(len(steps), 'job step')} on this tray"] if steps else []


def blocking_finding(jobs: Sequence[str], unknown: str | None, why: Sequence[str]) -> HostFinding:
    """The finding that blocks a change. ``jobs``, ``unknown``: of running_on(). ``why``: what needs the stop."""
    what = "; ".join(why) or "a change"
    if unknown:
        case = "imex_node" if _UNKNOWN_NODE in unknown.lower() else "imex"
        return host_finding("slurm_unreachable", case, reason=what, error=unknown)
    return host_finding("jobs_running", "imex", jobs=jobs, reason=what)
