# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan for one cluster, without an API server; tests/integration/test_k8s_topology.py has a real one."""

from __future__ import annotations

from collections.abc import Collection
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
    """An API server that serves KAI's Topology and has no object."""

    def served(self) -> dict[str, list[str]]:
        return {"kai.scheduler": ["v1alpha1"]}

    def plurals(self, _api: str) -> set[str]:
        return {"topologies"}

    def undeclared(self, _kind: Kind, _names: Collection[str]) -> set[str]:
        return set()

    def items(self, _kind: Kind, **_how: Any) -> list[Any]:
        return []


def test_a_template_of_a_site_with_another_kind_is_refused(tmp_path: Path) -> None:
    own = tmp_path / "kai.yaml.j2"
    own.write_text("---\nkind: Pod\n")
    topology = replace(TOPOLOGY, templates={"kai": str(own)})
    with pytest.raises(schedulers.SchedulersError, match="templates, kai: each object must be a Topology with a name"):
        Planner(cast(Cluster, Server()), topology, DesiredState(names=("kai",))).plan()
