# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan for one cluster, without an API server; tests/integration/test_k8s_topology.py has a real one."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.api import Cluster, Kind
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.topology import DesiredState, Planner
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import schedulers
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

TOPOLOGY = schedulers.describe(fabrics.fabric(racks=1, trays=2, split=()))


class Server:
    """An API server with one group of definitions, without nodes. objects: (kind, name) -> what was written."""

    def __init__(self, api: str = "kai.scheduler/v1alpha1", plurals: Collection[str] = ("topologies",)) -> None:
        self.objects: dict[tuple[str, str], Any] = {}
        self._api, self._plurals = api, set(plurals)

    def served(self) -> dict[str, list[str]]:
        group, _slash, version = self._api.partition("/")
        return {group: [version]}

    def plurals(self, _api: str) -> set[str]:
        return self._plurals

    def undeclared(self, _kind: Kind, _names: Collection[str]) -> set[str]:
        return set()

    def items(self, kind: Kind, **_how: Any) -> list[Any]:
        return [copy.deepcopy(row) for row in self.objects.values() if row["kind"] == kind.name]

    def apply(self, _kind: Kind, body: Mapping[str, Any], _manager: str, dry_run: bool = False, **_how: Any) -> Any:
        made = copy.deepcopy(dict(body))
        made["metadata"] |= {"uid": "1", "resourceVersion": "5", "managedFields": []}
        if not dry_run:
            self.objects[made["kind"], made["metadata"]["name"]] = made
        return made


def test_a_plan_writes_nothing_and_is_empty_once_it_is_applied() -> None:
    server = Server()
    planner = (cast(Cluster, server), TOPOLOGY, DesiredState(names=("kai",)))
    plan = Planner(*planner).plan()
    assert [change.step.action for change in plan.changes] == ["create"]
    assert server.objects == {}
    plan.apply()
    assert list(server.objects) == [("Topology", TOPOLOGY.name)]
    assert Planner(*planner).plan().changes == []


def test_a_kueue_without_a_known_topology_gets_no_flavor() -> None:
    """Kueue 0.13 serves Topology as v1alpha1 alone."""
    server = Server("kueue.x-k8s.io/v1beta1", ["resourceflavors", "clusterqueues"])
    plan = Planner(cast(Cluster, server), TOPOLOGY, DesiredState(names=("kueue",))).plan()
    assert ([row["code"] for row in plan.blockers], plan.changes) == (["k8s_scheduler_missing"], [])


def test_a_template_of_a_site_with_another_kind_is_refused(tmp_path: Path) -> None:
    own = tmp_path / "kai.yaml.j2"
    own.write_text("---\nkind: Pod\n")
    topology = replace(TOPOLOGY, templates={"kai": str(own)})
    with pytest.raises(schedulers.SchedulersError, match="templates, kai: each object must be a Topology with a name"):
        Planner(cast(Cluster, Server()), topology, DesiredState(names=("kai",))).plan()
