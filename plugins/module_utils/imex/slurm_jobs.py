# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs that a stop of IMEX would break."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import processes
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.host_changes import SECONDS
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize

_NO_SLURM = ("configuration source", "Unable to process configuration", "No such file")


def running_on(nodes: Sequence[str], timeout: float = SECONDS) -> tuple[list[str], str | None]:
    """Jobs on these nodes by Slurm's word, and why that is unknown. Without a Slurm here there are none.

    One call for the clique, and only where a daemon must stop. Without Slurm's word the steps on this tray count.
    """
    program = shutil.which("squeue", path=f"{os.environ.get('PATH', '')}:/usr/bin:/usr/local/bin:/opt/slurm/bin")
    if program is None or not nodes:
        return processes.job_steps(), None
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "SQUEUE_"))}
    question = [program, "--noheader", f"--nodelist={','.join(nodes)}", "--states=R,S,CG,CF", "--format=%i (%u)"]
    said = child.run(question, timeout, env={**environment, "LC_ALL": "C"})
    if said.rc == 0:
        return sorted({line.strip() for line in said.stdout.splitlines() if line.strip()}), None
    if any(text in said.stderr for text in _NO_SLURM):
        return processes.job_steps(), None
    return [], said.stderr.strip().partition("\n")[0] or "squeue gave no answer in time"


def in_the_way(jobs: Sequence[str], unknown: str | None, why: Sequence[str]) -> dict[str, Any]:
    """The finding that stops a change, from what running_on() says and what the change is."""
    what = "; ".join(why) or "a change"
    if unknown:
        return finding(
            "imex_jobs_unknown",
            f"IMEX of this clique must stop for {what}, and Slurm does not say whether jobs run on it ({unknown});"
            " bring slurmctld back, or allow it with imex_allow_jobs.",
        )
    shown = summarize(jobs)
    return finding(
        "imex_jobs_running",
        f"Jobs run on this clique ({shown}) and would break, since IMEX must stop for {what}; wait for them, or"
        " allow it with imex_allow_jobs.",
    )
