# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole playbook slurm against real slurmctlds with cloud nodes (root)."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import scontrol
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.placement import place
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import Policy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.simulation import discover
from ansible_collections.rackscale.nvlink.tests.integration.slurmctld import ENTER, SUITES, Slurmctld, sandbox
from measure import once

NAME = "slurm"
FEW = 56
TRAYS = 18
NOW = "2026-11-21T05:00:00Z"
PLAN, REHEARSED, APPLY, AGAIN, VERIFY = (
    "`--check` without a rehearsal: plan",
    "`--check`: plan and rehearsal",
    "apply: plan, rehearsal, reconfigure, read-back",
    "apply again: read-back, nothing to change",
    "`verify --tags quick` with test jobs",
)


def table(racks: int, scratch: Path) -> str:
    """One run of each on both versions as a Markdown table."""
    scratch.mkdir(parents=True, exist_ok=True)
    lines = ["| slurmctld | racks | trays | run | wall s | CPU s |", "|---|--:|--:|---|--:|--:|"]
    for suite, version in SUITES.items():
        for number in sorted({FEW, racks}):
            with sandbox(suite, scratch / f"{suite}-{number}-{os.getpid()}") as made:
                for run, wall, cpu in _runs(made, number, scratch):
                    head = f"{version[0]}.{version[1]:02d} | {number:,} | {number * TRAYS:,}"
                    lines.append(f"| {head} | {run} | {wall:.1f} | {cpu:.1f} |")
    return "\n".join(lines)


def _runs(made: Slurmctld, racks: int, scratch: Path) -> list[tuple[str, float, float]]:
    observations = discover({"racks": racks, "trays_per_rack": TRAYS, "gpus_per_tray": 4, "seed": 1}, NOW).observations
    fabric = place(None, None, observations, NOW, Policy()).fabric
    folder = made.directory / "shared"
    folder.mkdir()
    made.share(folder)
    file = folder / "fabric.json"
    file.write_text(json.dumps(fabric.as_dict()))
    nodes = [
        made.nodes(",".join(fabric.trays[tray]["slurm_node"] for tray in clique)) for clique in fabric.members.values()
    ]
    old = made.suite == "trixie"
    made.configure(*nodes, "PartitionName=gpu Nodes=ALL Default=YES", plugin="topology/block" if old else "")
    if old:
        # 24.11 starts with topology/block only with a block.
        first = next(iter(fabric.members.values()))
        line = f"BlockName=first Nodes={','.join(fabric.trays[tray]['slurm_node'] for tray in first)}\n"
        (made.conf_dir / scontrol.FILE_NAMES[scontrol.CONF]).write_text(line)
    made.start()
    # Modules run inside, as on the controller's host.
    python = folder / "python"
    python.write_text(
        f'#!/bin/sh\nexec nsenter -t {made.pid} {" ".join(ENTER)} sh -c \'cd / && exec python3 "$@"\' sh "$@"\n'
    )
    python.chmod(0o755)
    inventory = folder / "hosts.json"
    variables = {
        "ansible_connection": "local",
        "ansible_python_interpreter": str(python),
        "ansible_remote_tmp": str(folder / "tmp"),
    }
    inventory.write_text(json.dumps({"slurm_controller": {"hosts": {"ctl": variables}}}))
    conf = {
        "fabric_file": str(file),
        "slurm_conf_dir": str(made.conf_dir),
        "slurm_topology_override": ["block_vanishes", "nodes_lose_block", "block_shrinks"],
    }

    def run(name: str, playbook: str, *more: str, **extra: object) -> tuple[str, float, float]:
        binary = Path(sys.executable).with_name("ansible-playbook")
        words = [str(binary), "-i", str(inventory), f"rackscale.nvlink.{playbook}", *more]
        cost = once([*words, "-e", json.dumps({**conf, **extra})], os.environ, scratch / "output")
        return name, cost.wall, cost.cpu

    return [
        run(PLAN, "slurm", "--check", slurm_topology_rehearse="never"),
        run(REHEARSED, "slurm", "--check"),
        run(APPLY, "slurm"),
        run(AGAIN, "slurm"),
        run(VERIFY, "verify", "--tags", "quick"),
    ]
