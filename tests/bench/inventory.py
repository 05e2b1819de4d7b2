# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory plugin against a script that prints the same as ready JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.placement import place
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import Policy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.simulation import discover
from measure import Cost, environment, interleaved

NAME = "inventory"
NOW = "2026-11-21T05:00:00Z"
TRAYS_PER_RACK = 18
AIMS = {"fabric file": "1.15, memory 1.2", "simulation": "1.5"}
SCRIPT = "script with ready JSON"
_HEAD = (
    "| trays | command | inventory | wall s | CPU s | memory MB | wall ratio | CPU ratio | memory ratio | aim |",
    "|--:|---|---|--:|--:|--:|--:|--:|--:|--:|",
)


def table(racks: int, rounds: int, scratch: Path) -> str:
    """The comparison as a Markdown table."""
    return "\n".join([*_HEAD, *_rows(racks, _compare(racks, rounds, scratch))])


def _compare(racks: int, rounds: int, scratch: Path) -> dict[str, dict[str, Cost]]:
    """Command -> inventory -> cost. Order matters: what is divided by stands first."""
    scratch.mkdir(parents=True, exist_ok=True)
    tools = Path(sys.executable).parent
    settings = environment(scratch)
    inventories = _inventories(racks, scratch, tools, settings)
    commands = {
        "ansible all --list-hosts": lambda path: [str(tools / "ansible"), "-i", path, "all", "--list-hosts"],
        "ansible-inventory --list": lambda path: [str(tools / "ansible-inventory"), "-i", path, "--list"],
    }
    costs = {}
    for text, command in commands.items():
        runs = {name: command(str(path)) for name, path in inventories.items()}
        costs[text] = interleaved(runs, settings, scratch, rounds)
    # The last outputs are those of --list: all must equal that of the fabric file.
    printed = {name: _sorted(json.loads((scratch / name).read_text())) for name in inventories if name != "simulation"}
    for name, inventory in printed.items():
        if inventory != printed["fabric file"]:
            raise SystemExit(f"the {name} and the fabric file do not give the same inventory: nothing was compared")
    return costs


def _inventories(racks: int, scratch: Path, tools: Path, settings: Mapping[str, str]) -> dict[str, Path]:
    shape = {"racks": racks, "trays_per_rack": TRAYS_PER_RACK, "gpus_per_tray": 4, "seed": 1}
    observations = discover(shape, NOW).observations
    placed = place(None, None, observations, NOW, Policy())
    (scratch / "fabric.json").write_bytes(fabric_file.serialise(placed.fabric))
    (scratch / "fabric.state.json").write_bytes(fabric_file.serialise(placed.state))
    paths = {
        SCRIPT: scratch / "script.sh",
        "fabric file": scratch / "file.nvlink.yml",
        "simulation": scratch / "simulated.nvlink.yml",
    }
    plugin = "plugin: rackscale.nvlink.fabric\n"
    paths["fabric file"].write_text(f"{plugin}sources: [fabric_file]\nfabric_file: fabric.json\n")
    paths["simulation"].write_text(f"{plugin}sources: [simulation]\nsimulation: {json.dumps(shape)}\n")
    command = [str(tools / "ansible-inventory"), "-i", str(paths["fabric file"]), "--list", "--export"]
    with (scratch / "ready.json").open("wb") as file:
        subprocess.run(command, env=settings, stdout=file, check=True)
    paths[SCRIPT].write_text(f"#!/bin/sh\nexec cat {scratch}/ready.json\n")
    paths[SCRIPT].chmod(0o755)
    return paths


def _rows(racks: int, compared: Mapping[str, Mapping[str, Cost]]) -> list[str]:
    rows = []
    for command, costs in compared.items():
        floor = costs[SCRIPT]
        for name, cost in costs.items():
            ratios = (cost.wall / floor.wall, cost.cpu / floor.cpu, cost.memory / floor.memory)
            shown = " | ".join(f"{ratio:.2f}" for ratio in ratios)
            used = f"{cost.wall:.2f} | {cost.cpu:.2f} | {cost.memory:.0f}"
            aim = AIMS.get(name, "")
            rows.append(f"| {racks * TRAYS_PER_RACK:,} | `{command}` | {name} | {used} | {shown} | {aim} |")
    return rows


def _sorted(inventory: dict[str, Any]) -> dict[str, Any]:
    """The output of --list, without empty groups and with hosts and groups sorted."""
    empty = {name for group in inventory.values() for name in group.get("children", ())} - inventory.keys()
    return {
        name: {key: sorted({*value} - empty) if isinstance(value, list) else value for key, value in group.items()}
        for name, group in inventory.items()
    }
