# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a fabric to topology.yaml against yaml.safe_dump of the same structure, in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import files
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.placement import place
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import Policy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import slurm_files
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import topology_files
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.blocks import blocks
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.simulation import discover

NAME = "topology"
NOW = "2026-11-21T05:00:00Z"
TRAYS_PER_RACK = 18
DUMP = "`yaml.safe_dump` of the ready structure"
FILE = "fabric to topology.yaml: names folded, rules checked"
BOTH = "fabric to topology.yaml and topology.conf, each checked by the rules of its version"
WHOLE = "fabric.json read, then both"
AIMS = {FILE: "<= 2"}


def table(racks: int, rounds: int, scratch: Path) -> str:
    """The comparison as a Markdown table."""
    shape = {"racks": racks, "trays_per_rack": TRAYS_PER_RACK, "gpus_per_tray": 4, "seed": 1}
    observations = discover(shape, NOW).observations
    fabric = place(None, None, observations, [row.tray for row in observations], NOW, Policy()).fabric
    written = slurm_files.text(blocks(fabric), files.YAML)
    structure = yaml.safe_load(written)
    scratch.mkdir(parents=True, exist_ok=True)
    path = str(scratch / "fabric.json")
    Path(path).write_bytes(fabric_file.serialise(fabric))
    (parsed,) = topology_files.parse_yaml(written)
    steps: dict[str, Callable[[], Any]] = {
        DUMP: lambda: yaml.safe_dump(structure, sort_keys=False),
        "our text of the ready structure": lambda: topology_files.render([parsed], files.YAML),
        FILE: lambda: slurm_files.text(blocks(fabric), files.YAML),
        BOTH: lambda: slurm_files.render(fabric, model.State()),
        WHOLE: lambda: slurm_files.render(fabric_file.load(path), model.State()),
    }
    measured: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds + 1):
        for name, step in steps.items():
            started = time.process_time()
            step()
            if number:
                measured[name].append(time.process_time() - started)
    costs = {name: statistics.median(seconds) for name, seconds in measured.items()}
    lines = [f"| topology of {racks * TRAYS_PER_RACK:,} trays | CPU ms | ratio | aim |", "|---|--:|--:|---|"]
    for name, seconds in costs.items():
        lines.append(f"| {name} | {seconds * 1e3:.1f} | {seconds / costs[DUMP]:.2f} | {AIMS.get(name, '')} |")
    return "\n".join(lines)
