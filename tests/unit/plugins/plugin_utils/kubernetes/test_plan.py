# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import copy
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import plan as k8s_plan
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import schedulers
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

TOPOLOGY = schedulers.describe(fabrics.fabric(racks=1, trays=2, split=()))
WIDER = schedulers.describe(
    fabrics.fabric(racks=1, trays=2, split=()),
    settings=schedulers.TopologySettings(levels_above=(schedulers.Level("zone", "zone"),)),
)


def live(row: dict[str, Any]) -> dict[str, Any]:
    """An object as the server returns it after an apply."""
    made = copy.deepcopy(row)
    made["metadata"] |= {"uid": "1", "resourceVersion": "5", "managedFields": [], "generation": 1}
    return {**made, "status": {"nodeCount": 2}}


def without_host(row: dict[str, Any]) -> dict[str, Any]:
    made = copy.deepcopy(row)
    made["spec"]["levels"].pop()
    return made


def aliased(row: dict[str, Any]) -> dict[str, Any]:
    made = copy.deepcopy(row)
    made["spec"]["levels"][0]["alias"] = "another"
    return made


KAI, WIDER_KAI = schedulers.objects("kai", TOPOLOGY)[0], schedulers.objects("kai", WIDER)[0]
(KUEUE, FLAVOR), WIDER_KUEUE = schedulers.objects("kueue", TOPOLOGY), schedulers.objects("kueue", WIDER)[0]
OLD_KUEUE = {**KUEUE, "apiVersion": "kueue.x-k8s.io/v1beta1"}
OTHER_FLAVOR = {**FLAVOR, "spec": {**FLAVOR["spec"], "topologyName": "other"}}
BARE_FLAVOR = {**FLAVOR, "spec": {"nodeLabels": FLAVOR["spec"]["nodeLabels"]}}
HYPER_NODE = schedulers.objects("volcano", TOPOLOGY)[0]
RETIERED = {**HYPER_NODE, "spec": {**HYPER_NODE["spec"], "tier": 2}}


@pytest.mark.parametrize(
    ("existing", "desired", "field"),
    [
        (aliased(KAI), KAI, None),
        (KAI, WIDER_KAI, "the labels of spec.levels"),
        (KUEUE, WIDER_KUEUE, None),
        (without_host(KUEUE), KUEUE, "spec.levels"),
        (OLD_KUEUE, {**WIDER_KUEUE, "apiVersion": "kueue.x-k8s.io/v1beta1"}, "spec.levels"),
        (OTHER_FLAVOR, FLAVOR, "spec.topologyName"),
        (BARE_FLAVOR, FLAVOR, None),
        (RETIERED, HYPER_NODE, None),
        ({"spec": None}, KUEUE, "spec.levels"),
    ],
)
def test_a_changed_immutable_field_is_named(
    existing: dict[str, Any], desired: dict[str, Any], field: str | None
) -> None:
    assert k8s_plan.unchangeable(existing, desired) == field


def test_an_immutable_field_of_kueue_is_changed_without_running_workloads() -> None:
    _action, (found,) = k8s_plan.step(live(OTHER_FLAVOR), FLAVOR)
    assert found["message"] == (
        "ResourceFlavor nvlink of kueue.x-k8s.io must be deleted and created again to change spec.topologyName: where "
        "a ClusterQueue uses it, set spec.stopPolicy: HoldAndDrain there, and remove the flavor from it when its "
        "workloads have ended; delete it, of a Topology first the ResourceFlavors that name it, run again, then add "
        "the flavor and clear stopPolicy."
    )
