# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import cliques, objects
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import plan as k8s_plan
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

TOPOLOGY = cliques.describe(fabrics.fabric(racks=1, trays=2, split=()))
WHERE = "k8s_topology: https://192.0.2.1/apis/x/nvlink fails"
FLAVOR = 'ResourceFlavor.kueue.x-k8s.io "nvlink" is invalid: spec: Invalid value: "object": '


@pytest.mark.parametrize(
    ("scheduler", "reason", "message"),
    [
        (
            "kueue",
            f"HTTP 422: {FLAVOR}nodeLabels are immutable when topologyName is set",
            'ResourceFlavor nvlink of kueue.x-k8s.io must be deleted and created again (spec: Invalid value: "object": '
            "nodeLabels are immutable when topologyName is set): where a ClusterQueue uses it, set spec.stopPolicy: "
            "HoldAndDrain there, and remove the flavor from it when its workloads have ended; delete it, of a Topology "
            "first the ResourceFlavors that name it, run again, then add the flavor and clear stopPolicy.",
        ),
        (
            "kai",
            'HTTP 422: Topology.kai.scheduler "nvlink" is invalid: spec.levels: nodeLabel structure is immutable',
            "Topology nvlink of kai.scheduler must be deleted and created again (spec.levels: nodeLabel structure is "
            "immutable): delete it when no running workload names it, and run again.",
        ),
        ("kueue", f"HTTP 422: {FLAVOR}at least one nodeLabel is required when topology is set", None),
        ("kueue", "HTTP 500: the field is immutable", None),
    ],
)
def test_an_update_of_an_immutable_field_is_a_finding_with_its_remedy(
    scheduler: str, reason: str, message: str | None
) -> None:
    desired = objects.made(scheduler, TOPOLOGY)[-1]
    found = k8s_plan.immutable(desired, f"{WHERE} ({reason}); see its reason, or the server's log")
    assert (found and found["message"]) == message
