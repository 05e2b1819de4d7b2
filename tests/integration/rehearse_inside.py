# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run one rehearsal on this host, or the test jobs of its slurmctld, as a module does; needs no Ansible.

Standard input: {conf_dir, version, style, topology, blocks: [[name, hostlist], ...],
block_sizes, jobs, timeout, writes: {path: text}, records, bin_dir}.
Standard output: {"rehearsal": ..., "findings": [...]}. With {live: SECONDS, running, conf_dir, bin_dir} it asks the
running slurmctld instead, and prints the result of live_jobs.report(); with {changes: true, conf_dir, bin_dir} that of
live.survey(), with {explain: QUESTION, conf_dir} that of the step explain.
"""

from __future__ import annotations

import json
import os
import sys

from ansible_collections.rackscale.nvlink.plugins.module_utils.explain import controller
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import live
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rehearsal import live_jobs, questions, rehearse
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import Block, Topology


def main() -> None:
    request = json.load(sys.stdin)
    if "changes" in request:
        slurm = Slurm(request.get("bin_dir", ""), 20, request["conf_dir"])
        print(json.dumps(live.survey(slurm, request["conf_dir"], {})))
        return
    if "explain" in request:
        os.chdir("/")
        slurm = Slurm(request.get("bin_dir", ""), 20, request["conf_dir"])
        print(json.dumps(controller.step(slurm, request["conf_dir"], request["explain"])))
        return
    if "live" in request:
        os.chdir("/")  # sbatch must be able to name its folder
        slurm = Slurm(request.get("bin_dir", ""), 20, request["conf_dir"])
        print(
            json.dumps(live_jobs.report(slurm, request["conf_dir"], {**request["running"], "seconds": request["live"]}))
        )
        return
    blocks = tuple(Block(name, tuple(expand(nodes)), nodes) for name, nodes in request["blocks"])
    sizes = tuple(request.get("block_sizes", ()))
    candidate = rehearse.Candidate(
        conf_dir=request["conf_dir"],
        topology=Topology(name=request.get("topology", "nvlink"), blocks=blocks, block_sizes=sizes),
        version=tuple(request["version"]),
        style=request["style"],
        writes={path: text.encode() for path, text in request.get("writes", {}).items()},
        jobs=tuple(questions.TestJob("site", **job) for job in request.get("jobs", ())),
        records=tuple(request.get("records", ())),
    )
    made = rehearse.rehearse(Slurm(request.get("bin_dir", "")), candidate, request.get("timeout", 60))
    print(json.dumps({"rehearsal": made.result(), "findings": rehearse.findings(made, candidate)}))


if __name__ == "__main__":
    main()
