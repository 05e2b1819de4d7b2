# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The DRA driver enabled and checked node by node; test_dra_driver_waves.py has real DaemonSet controllers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import (
    checks,
    device_plugins,
    linter,
    node_waves,
    versions,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.preflight import preflight
from hypothesis import given
from hypothesis import strategies as st

from . import dra_cluster as world

UID = "uid-plugin"
OWNED = [{"uid": UID, "kind": "DaemonSet"}]
Change = Callable[[dict[str, Any]], Any]


def restricted(**more: Any) -> Any:
    return world.plan(node_waves.restricted(world.LABELLED), waves=True, **more)


def plugin() -> dict[str, Any]:
    made = world.daemon_set()
    made["metadata"]["uid"] = UID
    return dict(made)


def pod(node: str, revision: str = "new", **status: Any) -> dict[str, Any]:
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}
    labels = {node_waves.HASH: revision}
    metadata = {"name": f"plugin-{node}", "namespace": world.NAMESPACE, "labels": labels, "ownerReferences": OWNED}
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": status or ready}


def world_of_two() -> dict[str, Any]:
    """Both nodes enabled, each with a pod of the newest revision."""
    cluster = world.installed()
    for node in cluster["nodes"]:
        node["metadata"]["labels"][node_waves.LABEL] = node_waves.VALUE
    return {"snapshot": cluster, "pods": [pod(name) for name in world.names()]}


def evaluated(given: dict[str, Any], revision: str | None = "new") -> dict[str, str]:
    pods = node_waves.pods_by_node(plugin(), given["pods"])
    return node_waves.evaluate(given["snapshot"], world.trays(), restricted(), pods, revision)


def test_own_values_stay_except_the_update_strategy() -> None:
    own = {"kubeletPlugin": {"nodeSelector": {"site": "x"}, "updateStrategy": {"type": "RollingUpdate"}}}
    made = node_waves.restricted(own)["kubeletPlugin"]
    assert made["nodeSelector"] == {"site": "x", node_waves.LABEL: node_waves.VALUE}
    assert made["updateStrategy"]["type"] == "OnDelete"
    assert linter.check_values(node_waves.restricted(world.LABELLED), versions.pinned("0.5.0"), world.NAMESPACE) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda given: given["snapshot"]["nodes"].pop(0), "The cluster has no node r01t01"),
        (lambda given: given["pods"].pop(0), "No pod of the driver's plugin is on node r01t01."),
        (
            lambda given: (
                given["pods"].pop(0),
                given["snapshot"]["nodes"][0]["metadata"]["labels"].pop(node_waves.LABEL),
            ),
            f"on node r01t01: it lacks the label {node_waves.LABEL}=true",
        ),
        (lambda given: given["pods"].__setitem__(0, pod("r01t01", "old")), "is of an old revision"),
        (
            lambda given: given["pods"].__setitem__(
                0,
                pod(
                    "r01t01",
                    containerStatuses=[
                        {"name": "gpus", "state": {"running": {}}},
                        {
                            "name": "compute-domains",
                            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "x"}},
                        },
                    ],
                ),
            ),
            "is not ready: compute-domains CrashLoopBackOff, x; see kubectl describe",
        ),
        (
            lambda given: given["pods"].__setitem__(
                0,
                pod("r01t01", conditions=[{"type": "PodScheduled", "status": "False", "message": "0/9 nodes fit."}]),
            ),
            "is not ready: 0/9 nodes fit; see",
        ),
        (lambda given: given["snapshot"]["slices"].pop(0), "no ResourceSlice of compute-domain.nvidia.com on r01t01"),
    ],
)
def test_the_reason_of_a_node_is_one_sentence_and_concerns_no_other_node(change: Change, words: str) -> None:
    given = world_of_two()
    assert evaluated(given) == {}
    change(given)
    found = evaluated(given)
    assert list(found) == ["r01t01"]
    assert words in found["r01t01"]
    assert found["r01t01"].endswith(".")


def test_deleted_pods_and_pods_of_other_daemon_sets_do_not_count() -> None:
    given = world_of_two()
    given["pods"][0]["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
    given["pods"][1]["metadata"]["ownerReferences"] = [{"uid": "uid-other"}]
    assert node_waves.pods_by_node(plugin(), given["pods"]) == {}


def test_the_newest_revision_has_the_highest_number_once_observed() -> None:
    def row(number: int, name: str, owner: str = UID) -> dict[str, Any]:
        metadata = {"labels": {node_waves.HASH: name}, "ownerReferences": [{"uid": owner}]}
        return {"metadata": metadata, "revision": number}

    rows = [row(2, "rolled-back-to"), row(1, "first"), row(9, "other", "uid-other")]
    assert node_waves.newest_revision(plugin(), rows) == "rolled-back-to"
    late = plugin()
    late["metadata"]["generation"] = 2
    assert node_waves.newest_revision(late, rows) is None
    assert evaluated(world_of_two(), None).keys() == set(world.names())


def test_before_the_first_wave_nothing_is_missing_and_the_preflight_covers_all_nodes() -> None:
    cluster, plan = world.installed(), restricted()
    cluster["daemon_sets"][0]["status"].update(dict.fromkeys(("desiredNumberScheduled", "numberReady"), 0))
    assert checks.check(*node_waves.enabled_only(cluster, world.trays()), plan) == []
    assert node_waves.pending(cluster, world.trays()) == world.names()
    assert [row["code"] for row in node_waves.report_pending(cluster, world.trays(), plan)] == ["dra_waves_pending"]
    codes = {row["code"] for row in preflight(world.empty(), world.trays(), plan)}
    assert "dra_node_not_selected" in codes
    assert "dra_node_not_selected" not in {
        row["code"] for row in preflight(node_waves.with_all_enabled(world.empty()), world.trays(), plan)
    }


def test_old_pods_between_waves_are_no_error() -> None:
    given, plan = world_of_two(), restricted()
    given["snapshot"]["daemon_sets"][0]["status"]["updatedNumberScheduled"] = 1
    assert checks.check(*node_waves.enabled_only(given["snapshot"], world.trays()), plan) == []
    (found,) = node_waves.report_pending(given["snapshot"], world.trays(), plan)
    assert "has 1 pod of the old revision" in found["message"]


def with_device_plugin() -> dict[str, Any]:
    """Both nodes in GPU Operator's hands; the first has been labelled by a wave."""
    cluster = world.installed()
    cluster["cluster_policies"] = [world.cluster_policy()]
    cluster["nodes"][0]["metadata"]["labels"][device_plugins.DEPLOY] = "false"
    return cluster


def test_only_gpus_that_the_driver_would_allocate_are_taken_from_a_device_plugin() -> None:
    cluster, names = with_device_plugin(), set(world.names())
    all_dra = world.plan(shape="all_dra", waves=True)
    assert node_waves.with_device_plugin(cluster, names, all_dra) == {"r01t02"}
    assert node_waves.with_device_plugin(cluster, {"r01t01"}, all_dra) == set()
    assert node_waves.with_device_plugin(cluster, names, restricted()) == set()


amounts = st.integers(min_value=0, max_value=8)


@given(st.lists(amounts, max_size=3), st.lists(amounts, max_size=3))
def test_init_containers_share_the_gpus_of_the_containers(running: list[int], starting: list[int]) -> None:
    def rows(numbers: list[int]) -> list[dict[str, Any]]:
        return [{"resources": {"limits": {"nvidia.com/gpu": str(number), "cpu": "1"}}} for number in numbers]

    pod = {"spec": {"containers": rows(running), "initContainers": rows(starting)}}
    assert device_plugins.requested(pod) == max(sum(running), *starting, 0)
