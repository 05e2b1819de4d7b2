# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection's own part of a plan of NVLink partitions: every rack from 1x18 to 2x9, without switch and Slurm."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import nvue
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.placement import place
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import GATES, Policy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions import partition_plan, places, wish
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_plan import Plan, Seen
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.domain_map import change_map
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.simulation import discover

NAME = "partitions"
NOW = "2026-11-21T05:00:00Z"
TRAYS_PER_RACK = 18
MAKE = "read the wish, find all GPUs in the lists of the switches, plan each rack"
PLACE = "place the trays where the plans put them"
SHOW = "text, map and SHA-256"
ALL = "all of it"


def table(racks: int, rounds: int) -> str:
    """The times as a Markdown table."""
    shape = {"racks": racks, "trays_per_rack": TRAYS_PER_RACK, "gpus_per_tray": 4, "seed": 1}
    observations = discover(shape, NOW).observations
    fabric = place(None, None, observations, NOW, Policy()).fabric
    known, listed = _gpus(fabric.members)
    observed = {row.tray: row.identity for row in observations}
    found: dict[str, Any] = {}

    def make() -> None:
        wishes = wish.parse(dict.fromkeys(fabric.domains, "2x9"), fabric)
        found["plans"] = []
        for name, wanted in wishes.items():
            partitions = listed[name]
            seen = Seen(partitions, places.locate(known[name], partitions), observed)
            plan, objections = partition_plan.make(name, wanted, fabric, seen, (), ())
            if objections:
                raise SystemExit(f"{objections[0].message}: nothing was measured")
            found["plans"].append((plan, seen))

    def placed() -> None:
        ids = {tray: number for plan, _seen in found["plans"] for tray, number in plan["clique_ids"].items()}
        moved = [replace(row, identity=((row.identity or ("", 0))[0], ids[row.tray])) for row in observations]
        found["fabric"] = place(fabric, None, moved, NOW, Policy(override=GATES)).fabric

    def show() -> None:
        planned = found["fabric"]
        plans: list[Plan] = [partition_plan.named(plan, (), planned)[0] for plan, _seen in found["plans"]]
        change_map(fabric, planned, State())
        for plan, (_plan, seen) in zip(plans, found["plans"], strict=True):
            partition_plan.text(plan, fabric, planned, seen)
        partition_plan.sha(plans, planned, GATES, ())

    steps: dict[str, Callable[[], None]] = {MAKE: make, PLACE: placed, SHOW: show}
    measured: dict[str, list[float]] = {name: [] for name in (*steps, ALL)}
    for number in range(rounds + 1):
        walls = {}
        for name, step in steps.items():
            wall = time.perf_counter()
            step()
            walls[name] = time.perf_counter() - wall
        walls[ALL] = sum(walls.values())
        for name, wall in walls.items() if number else ():
            measured[name].append(wall)
    lines = [f"| {racks * TRAYS_PER_RACK:,} trays | wall s | aim |", "|---|--:|---|"]
    for name, times in measured.items():
        lines.append(f"| {name} | {statistics.median(times):.1f} | {'<= 5' if name == ALL else ''} |")
    return "\n".join(lines)


Trays = dict[str, list[places.Gpu]]


def _gpus(members: dict[str, list[str]]) -> tuple[dict[str, Trays], dict[str, list[nvue.Partition]]]:
    """Domain -> the GPUs that its trays report; domain -> the partitions that its switch lists."""
    known: dict[str, Trays] = {}
    listed = {}
    for rack, (domain, trays) in enumerate(members.items()):
        found: list[nvue.Gpu] = []
        known[domain] = {}
        for slot, tray in enumerate(trays, 1):
            gpus = [nvue.Gpu(f"1.{slot}.1.{gpu}", f"0x{rack:08x}{slot * 8 + gpu:08x}") for gpu in range(1, 5)]
            known[domain][tray] = [places.Gpu((gpu.uid,), places.place(gpu)) for gpu in gpus]
            found += gpus
        default = nvue.Partition(wish.DEFAULT_CLIQUE, "Default", "healthy", "full_bandwidth", 1024, tuple(found))
        listed[domain] = [default]
    return known, listed
