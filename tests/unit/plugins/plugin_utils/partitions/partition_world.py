# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A domain whose switch, GPUs and fabric file change together, as plans and placements leave them."""

from __future__ import annotations

from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import nvue
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric, Observation
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.placement import place
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import GATES, Policy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions import partition_plan
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_plan import Objection, Plan, Seen
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.places import DEFAULT_CLIQUE, Gpu, locate
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.wish import parse

NOW = "2026-11-21T05:00:00Z"
Row = dict[str, Any]


class Rack:
    """Domain r01 of a site. partitions: ID -> name, mode, limit and GPUs, as the switch has them."""

    def __init__(self, fabric: Fabric, **seen: Any) -> None:
        self.fabric, self.seen = fabric, seen
        self.trays = [tray for tray, row in fabric.trays.items() if fabric.cliques[row["clique"]]["domain"] == "r01"]
        self.partitions: dict[int, Row] = {DEFAULT_CLIQUE: self.partition("Default Partition", 1024)}
        self.down: set[str] = set()
        self.forgotten: set[str] = set()
        self.used: set[int] = set()
        self.made: set[int] = set()
        for tray in self.trays:
            clique = fabric.trays[tray]["clique"]
            number = fabric.cliques[clique]["clique_id"]
            self.partitions.setdefault(number, self.partition(clique, 0))["gpus"] += self.gpus(tray)

    def partition(self, name: str, limit: int) -> Row:
        return {"name": name, "mode": "full_bandwidth", "limit": limit, "gpus": []}

    def gpus(self, tray: str) -> list[nvue.Gpu]:
        at = self.trays.index(tray)
        return [nvue.Gpu(f"1.{at + 1}.1.{gpu}", f"0x{at:08x}{gpu:08x}") for gpu in range(1, 5)]

    def listed(self) -> list[nvue.Partition]:
        return [
            nvue.Partition(
                number, row["name"], row.get("health", "healthy"), row["mode"], row["limit"], tuple(row["gpus"])
            )
            for number, row in self.partitions.items()
        ]

    def partition_of(self, tray: str) -> int:
        first = self.gpus(tray)[0]
        return next(number for number, row in self.partitions.items() if first in row["gpus"])

    def known(self) -> dict[str, list[Gpu]]:
        return {
            tray: [Gpu((gpu.uid,), gpu.location.partition(".")[2]) for gpu in self.gpus(tray)]
            for tray in self.trays
            if tray not in self.forgotten
        }

    def read(self, by: str = "nvue") -> Seen:
        uuid = self.fabric.domains["r01"]["cluster_uuid"]
        answers = {tray: (uuid, self.partition_of(tray)) for tray in self.trays if tray not in self.down}
        partitions = None if by == "hand" else self.listed()
        places = locate(self.known(), self.listed())
        return Seen(**{"partitions": partitions, "places": places, "observed": answers} | self.seen)

    def plan(self, wish: Any, by: str = "nvue") -> tuple[Plan, list[Objection]]:
        wishes = parse({"r01": wish}, self.fabric)
        return partition_plan.make("r01", wishes["r01"], self.fabric, self.read(by), self.used, self.made)

    def planned(self, plan: Plan) -> Fabric:
        """The fabric file after a plan."""
        uuid = self.fabric.domains["r01"]["cluster_uuid"]
        observations = [
            Observation(
                tray,
                "ansible_facts",
                observed_at=NOW,
                identity=(uuid, plan["clique_ids"].get(tray, self.partition_of(tray))),
                gpu_uuids=tuple(self.fabric.trays[tray]["gpu_uuids"]),
            )
            for tray in self.trays
            if tray not in self.down
        ]
        policy = Policy(override=GATES)
        return place(self.fabric, None, observations, NOW, policy).fabric

    def apply(self, plan: Plan) -> None:
        """The calls of a plan, each of which a switch may refuse."""
        rows = {row["id"]: row for row in plan["after"]}
        for verb, number, tray, location, uid in partition_plan.operations(plan):
            gpu = nvue.Gpu(location, uid)
            if verb == nvue.UPDATE and number not in self.partitions:
                row = rows[number]
                self.partitions[number] = self.partition(row["name"], row["limit"] or 0) | {"mode": row["mode"]}
                self.made.add(number)
                self.used.add(number)
            if verb == nvue.DELETE:
                assert not self.partitions.pop(number)["gpus"]
            elif verb == nvue.RESTORE:
                self.partitions[number]["gpus"].remove(gpu)
            else:
                assert gpu in self.gpus(tray)
                assert all(gpu not in row["gpus"] for row in self.partitions.values())
                self.partitions[number]["gpus"].append(gpu)

    def change(self, wish: Any) -> Plan:
        """Plan, change the switch, and accept the fabric file that was planned."""
        plan, objections = self.plan(wish)
        assert objections == []
        planned = self.planned(plan)
        self.apply(plan)
        self.fabric = planned
        return plan

    def shape(self) -> dict[str, list[str]]:
        """Clique with trays -> its trays."""
        return {name: trays for name, trays in self.fabric.members.items() if trays and name.startswith("r01")}
