# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs are allocated by one program: a device plugin next to the DRA driver's GPUs is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import device_plugins

from . import dra_cluster as world

GPU_OPERATOR = {"nodeSelector": {device_plugins.DEPLOY: "true"}}
DEPLOYED = {device_plugins.DEPLOY: "true"}
EXCLUDED = {device_plugins.DEPLOY: "false"}
OWNED = [{"kind": "ClusterPolicy", "uid": "uid-policy"}]


def cluster(*daemon_sets: Any, labels: Any = None, **more: Any) -> dict[str, Any]:
    nodes = [world.node(name, labels=dict(labels or {})) for name in world.names()]
    return {**world.empty(), "nodes": nodes, "daemon_sets": list(daemon_sets), **more}


def with_capacity(given: dict[str, Any], amount: str = "4", resource: str = "nvidia.com/gpu") -> dict[str, Any]:
    given["nodes"][0]["status"]["capacity"] = {resource: amount}
    return given


def messages(given: dict[str, Any], shape: str = "all_dra", **more: Any) -> list[str]:
    found = device_plugins.check(given, world.trays(), world.plan(shape=shape, **more))
    assert {row["code"] for row in found} <= {"dra_device_plugin", "dra_insufficient_permissions"}
    for row in found:
        assert row["severity"] == "error"
        assert row["message"].endswith(".")
        assert "\n" not in row["message"]
    return [row["message"] for row in found]


IMAGE = "nvcr.io/nvidia/k8s-device-plugin:v0.19.0"


def plugin(*rows: dict[str, Any], name: str = "x") -> dict[str, Any]:
    """A cluster with a DaemonSet of these containers."""
    return cluster(world.device_plugin(name, containers=list(rows)))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: cluster(world.device_plugin(pod=GPU_OPERATOR), labels=DEPLOYED),
            "of the DaemonSet gpu-operator/nvidia-device-plugin-daemonset allocates the GPUs of r01t01, r01t02,",
        ),
        (lambda: plugin({"name": "nvidia-device-plugin", "image": "m/k:1"}), "DaemonSet gpu-operator/x allocates"),
        (
            lambda: plugin({"name": "main", "image": "m/k:1", "command": ["nvidia-device-plugin"]}),
            "DaemonSet gpu-operator/x allocates",
        ),
        (
            lambda: cluster(cluster_policies=[world.cluster_policy()]),
            "of the ClusterPolicy cluster-policy allocates the GPUs of r01t01, r01t02,",
        ),
        (lambda: with_capacity(cluster()), "The capacity of r01t01 has nvidia.com/gpu, so a device plugin allocates"),
        (lambda: with_capacity(cluster(), "7", "nvidia.com/mig-1g.24gb"), "The capacity of r01t01 has nvidia.com/gpu"),
    ],
)
def test_each_trace_of_a_device_plugin_is_one_finding(make: Callable[[], dict[str, Any]], words: str) -> None:
    (message,) = messages(make())
    assert words in message
    assert message.endswith("until their capacity has no nvidia.com/gpu.")
    assert messages(make(), shape="gpu_cluster") == [message]
    # Without GPUs by DRA the device plugin is what allocates them.
    for shape in ("compute_domains", "host_managed"):
        assert messages(make(), shape=shape) == []


@pytest.mark.parametrize(
    "make",
    [
        cluster,
        lambda: with_capacity(cluster(), "0"),
        lambda: with_capacity(cluster(), "2", "example.com/gpu"),
        lambda: cluster(world.device_plugin(pod=GPU_OPERATOR), labels=EXCLUDED),
        lambda: cluster(cluster_policies=[world.cluster_policy()], labels=EXCLUDED),
        lambda: cluster(cluster_policies=[world.cluster_policy()], labels={device_plugins.OPERANDS: "false"}),
        lambda: cluster(cluster_policies=[world.cluster_policy(False)]),
        lambda: cluster(world.gfd()),
        lambda: plugin(
            {"name": "gpu-feature-discovery-ctr", "image": IMAGE},
            {"name": "gpu-feature-discovery-sidecar", "image": IMAGE, "command": ["config-manager"]},
            name="nvidia-device-plugin-gpu-feature-discovery",
        ),
        lambda: plugin({"name": "mps-control-daemon-ctr", "image": IMAGE}, name="nvidia-device-plugin-mps"),
        lambda: plugin({"name": "gpus", "image": "registry.k8s.io/dra-driver-nvidia/dra-driver-nvidia-gpu"}),
    ],
)
def test_what_allocates_no_gpu_is_no_finding(make: Callable[[], dict[str, Any]]) -> None:
    assert messages(make()) == []


def test_gpu_operators_daemon_set_is_reported_as_its_cluster_policy() -> None:
    theirs = world.device_plugin(pod=GPU_OPERATOR, ownerReferences=OWNED)
    given = with_capacity(cluster(theirs, labels=DEPLOYED, cluster_policies=[world.cluster_policy(True)]))
    (message,) = messages(given)
    assert "ClusterPolicy cluster-policy" in message


def test_a_taint_that_it_does_not_tolerate_keeps_a_device_plugin_off() -> None:
    given = cluster(world.device_plugin())
    given["nodes"][0]["spec"]["taints"] = [{"key": "dra", "effect": "NoSchedule"}]
    (message,) = messages(given)
    assert "the GPUs of r01t02," in message


@pytest.mark.parametrize(
    ("own", "more", "amount", "found"),
    [
        ({}, {}, "8", True),
        # A selector keeps the driver off.
        ({}, {"labels": {"nvidia.com/gpu.present": "false"}}, "8", False),
        ({"kubeletPlugin": {"nodeSelector": {"rack": "nvl72"}}}, {}, "8", False),
        ({}, {"taints": [{"key": "dra", "effect": "NoSchedule"}]}, "8", False),
        # Without GPUs of a device plugin the node may have none at all.
        ({}, {}, "0", False),
    ],
)
def test_a_node_with_gpus_outside_the_trays_counts_where_the_driver_would_run(
    own: dict[str, Any], more: dict[str, Any], amount: str, found: bool
) -> None:
    other = world.node("h01", **more)
    other["status"]["capacity"] = {device_plugins.GPU: amount}
    given = cluster()
    given["nodes"].append(other)
    texts = [row["message"] for row in device_plugins.check(given, world.trays(), world.plan(own, shape="all_dra"))]
    assert bool(texts) is found
    for text in texts:
        assert text.startswith("The capacity of h01 has nvidia.com/gpu, so a device plugin allocates the GPUs, and so")
        assert "which runs on nodes outside the trays too; exclude them by kubeletPlugin.nodeSelector" in text
    # GPU Operator decides where its driver runs: where it publishes GPUs.
    published = {**given, "slices": [world.slices("h01", "gpu-0", driver=device_plugins.GPU_DRIVER)]}
    assert messages(given, shape="gpu_cluster") == []
    assert len(messages(published, shape="gpu_cluster")) == (amount != "0")


@pytest.mark.parametrize("resource", ["daemonsets", "clusterpolicies"])
def test_a_list_that_cannot_be_read_is_an_error(resource: str) -> None:
    sentence = f"The account may not list {resource}; give it the verb list in all namespaces"
    given = cluster(not_readable=[sentence])
    assert messages(given) == [f"{sentence}, which is needed to know whether a device plugin allocates the GPUs too."]
    assert messages(given, shape="compute_domains") == []


def test_init_containers_share_the_gpus_of_the_containers() -> None:
    def rows(*numbers: int) -> list[dict[str, Any]]:
        return [{"resources": {"limits": {"nvidia.com/gpu": str(number), "cpu": "1"}}} for number in numbers]

    assert device_plugins.requested({"spec": {"containers": rows(2, 1), "initContainers": rows(1, 2)}}) == 3
    assert device_plugins.requested({"spec": {"containers": rows(1), "initContainers": rows(4, 2)}}) == 4
    assert device_plugins.requested({"spec": {"containers": []}}) == 0
