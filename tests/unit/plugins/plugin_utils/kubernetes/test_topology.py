# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan for one cluster, without an API server; tests/integration/test_k8s_topology.py has a real one."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any, cast

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.api import Cluster, Kind
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.topology import DesiredState, Planner
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import schedulers
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

TOPOLOGY = schedulers.describe(fabrics.fabric(racks=1, trays=2, split=()))


class Server:
    """An API server with KAI's definition, without nodes. objects: name -> what was written."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}

    def served(self) -> dict[str, list[str]]:
        return {"kai.scheduler": ["v1alpha1"]}

    def plurals(self, _api: str) -> set[str]:
        return {"topologies"}

    def undeclared(self, _kind: Kind, _names: Collection[str]) -> set[str]:
        return set()

    def items(self, kind: Kind, **_how: Any) -> list[Any]:
        return [copy.deepcopy(row) for row in self.objects.values() if row["kind"] == kind.name]

    def apply(self, _kind: Kind, body: Mapping[str, Any], _manager: str, dry_run: bool = False, **_how: Any) -> Any:
        made = copy.deepcopy(dict(body))
        made["metadata"] |= {"uid": "1", "resourceVersion": "5", "managedFields": []}
        if not dry_run:
            self.objects[made["metadata"]["name"]] = made
        return made


def test_a_plan_writes_nothing_and_is_empty_once_it_is_applied() -> None:
    server = Server()
    planner = (cast(Cluster, server), TOPOLOGY, DesiredState(names=("kai",)))
    plan = Planner(*planner).plan()
    assert [change.step.action for change in plan.changes] == ["create"]
    assert server.objects == {}
    plan.apply()
    assert list(server.objects) == [TOPOLOGY.name]
    assert Planner(*planner).plan().changes == []
