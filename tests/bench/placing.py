# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Placement and the writing of both files against Python's own json on the same documents, in one process."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, storage
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.placement import Placement, place
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import Policy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.simulation import discover

NAME = "placement"
NOW = "2026-11-21T05:00:00Z"
TRAYS_PER_RACK = 18
JSON = "json.load and json.dumps(indent=1, sort_keys=True)"
FIRST = "the first discovery: place, check, write both"
NEXT = "the next one, 1 % of the trays with a new GPU: read and check both, place, check, write both"
AIMS = {FIRST: "<= 4", NEXT: "<= 5"}


def table(racks: int, rounds: int, scratch: Path) -> str:
    """The comparison as a Markdown table."""
    scratch.mkdir(parents=True, exist_ok=True)
    path = scratch / "fabric.json"
    shape = {"racks": racks, "trays_per_rack": TRAYS_PER_RACK, "gpus_per_tray": 4, "seed": 1}
    observations = discover(shape, NOW).observations
    changed = [
        replace(row, gpu_uuids=("GPU-new-" + row.tray, *row.gpu_uuids[1:])) if number % 100 == 0 else row
        for number, row in enumerate(observations)
    ]
    files = (path, Path(fabric_file.state_path(str(path))))

    def first() -> None:
        _write(path, place(None, None, observations, NOW, Policy()))

    def following() -> None:
        fabric, state = fabric_file.load(str(path)), fabric_file.load_state(str(path))
        _write(path, place(fabric, state, changed, NOW, Policy()))

    def plain() -> None:
        for file in files:
            document = json.loads(file.read_text())
            json.dumps(document, indent=1, sort_keys=True)

    first()
    for file in files:
        text = file.read_text()
        if json.dumps(json.loads(text), indent=1, sort_keys=True) + "\n" != text:
            raise SystemExit(f"{file.name} is not what json.dumps() writes: nothing was compared")
    steps: dict[str, Callable[[], None]] = {JSON: plain, FIRST: first, NEXT: following}
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
    for number in range(rounds + 1):
        for name, step in steps.items():
            if name == NEXT:
                first()
            wall, cpu = time.perf_counter(), time.process_time()
            step()
            if number:
                measured[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    costs = {name: [statistics.median(part) for part in zip(*runs, strict=True)] for name, runs in measured.items()}
    trays = f"{racks * TRAYS_PER_RACK:,}"
    lines = [f"| {trays} trays | wall ms | CPU ms | wall ratio | CPU ratio | aim |", "|---|--:|--:|--:|--:|---|"]
    for name, (wall, cpu) in costs.items():
        ratios = f"{wall / costs[JSON][0]:.2f} | {cpu / costs[JSON][1]:.2f}"
        lines.append(f"| {name} | {wall * 1e3:.0f} | {cpu * 1e3:.0f} | {ratios} | {AIMS.get(name, '')} |")
    return "\n".join(lines)


def _write(path: Path, placement: Placement) -> None:
    """As the action fabric_file does it."""
    fabric_file.check(placement.fabric.as_dict(), str(path))
    storage.write_atomic(str(path), fabric_file.serialise(placement.fabric))
    storage.write_atomic(fabric_file.state_path(str(path)), fabric_file.serialise(placement.state))
