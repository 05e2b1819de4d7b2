# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes whose GPUs a device plugin allocates too: pure functions of a snapshot.

The kubelet's device manager and DRA do not know of each other's allocations, so a node with both gives each GPU to two
pods. The chart refuses that combination unless gpuResourcesEnabledOverride is set, which all_dra does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import node_selection
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.preflight import (
    Plan,
    Trays,
    containers,
    expected_nodes,
    name_of,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.snapshot import Snapshot
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, as_list, mapped

GPU_DRIVER = "gpu.nvidia.com"
GPU = "nvidia.com/gpu"
DEPLOY = "nvidia.com/gpu.deploy.device-plugin"
"""The label by which GPU Operator places its device plugin: it sets `true` where the label is missing."""
OPERANDS = "nvidia.com/gpu.deploy.operands"
"""With `false` GPU Operator places nothing on a node."""
# Of the device plugin's chart, GPU Operator and GKE. Other vendors have images named k8s-device-plugin too.
_PLUGIN = re.compile(r"nvidia-(gpu-)?device-plugin|nvidia/(\S*/)?k8s-device-plugin")
# Programs in the same image that allocate nothing.
_OTHER_PROGRAMS = re.compile(r"gpu-feature-discovery|mps-control-daemon|config-manager")

Nodes = Mapping[str, Object]


def by_dra(plan: Plan) -> bool:
    """Whether the driver of this plan allocates GPUs."""
    return plan.get("resources.gpus.enabled", True) is not False


def capacity(node: Object) -> int:
    """The GPUs, shares of GPUs and MIG devices that the kubelet has from a device plugin.

    It keeps them in the node's capacity for five minutes after the plugin has stopped, and sets them to 0 then.
    """
    status = mapped(node.get("status"))
    both = (mapped(status.get("allocatable")), mapped(status.get("capacity")))
    return max(sum(_number(value) for key, value in row.items() if is_gpu(key)) for row in both)


def is_gpu(resource: str) -> bool:
    """Whether an extended resource is one of the device plugin, also with time slicing or MIG."""
    return resource in (GPU, f"{GPU}.shared") or resource.startswith("nvidia.com/mig-")


def _number(quantity: Any) -> int:
    """The whole number of a quantity; 1 for one with a suffix, which no device plugin writes."""
    text = str(quantity)
    return int(text) if text.isdecimal() else 1


def requested(pod: Object) -> int:
    """The GPUs that a pod's containers request by the resources of a device plugin.

    Init containers reuse what the containers get; the kubelet gives a pod the larger of both.
    """
    spec = mapped(pod.get("spec"))
    running, starting = (
        [_limits(mapped(row)) for row in as_list(spec.get(key))] for key in ("containers", "initContainers")
    )
    return max(sum(running), *starting, 0)


def _limits(container: Object) -> int:
    limits = mapped(mapped(container.get("resources")).get("limits"))
    return sum(_number(amount) for key, amount in limits.items() if is_gpu(str(key)))


def is_device_plugin(daemon_set: Object) -> bool:
    """Whether a DaemonSet runs NVIDIA's device plugin; GPU Feature Discovery and MPS have the same image."""
    labels = node_selection.labels(daemon_set)
    whole = " ".join(map(str, (name_of(daemon_set), labels.get("app"), labels.get("app.kubernetes.io/name"))))
    for row in containers(daemon_set):
        program = f"{row.get('name')} {row.get('command')} {row.get('args')}"
        if not _OTHER_PROGRAMS.search(program) and _PLUGIN.search(f"{whole} {row.get('image')} {program}"):
            return True
    return False


def owners(snapshot: Snapshot, nodes: Nodes) -> dict[str, list[str]]:
    """What allocates GPUs by a device plugin -> the nodes on which it does: each ClusterPolicy, each DaemonSet that no
    such ClusterPolicy owns, and (empty) an unknown program, where a node has GPUs in its capacity.
    """
    found: dict[str, list[str]] = {}
    policies: set[str] = set()
    for policy in snapshot["cluster_policies"]:
        # GPU Operator's default is true.
        if mapped(mapped(policy.get("spec")).get("devicePlugin")).get("enabled", True) is not False:
            policies |= _uids([policy.get("metadata")])
            found[f"ClusterPolicy {name_of(policy)}"] = [name for name, node in nodes.items() if _deployed(node)]
    for item in snapshot["daemon_sets"]:
        by = _uids(as_list(mapped(item.get("metadata")).get("ownerReferences")))
        if is_device_plugin(item) and not by & policies:
            pod = mapped(mapped(mapped(item.get("spec")).get("template")).get("spec"))
            selected = [name for name, node in nodes.items() if node_selection.selects(pod, node)]
            found[f"DaemonSet {name_of(item)}"] = selected
    known = {name for names in found.values() for name in names}
    found[""] = [name for name, node in nodes.items() if capacity(node) and name not in known]
    return {owner: sorted(names) for owner, names in found.items() if names}


def _uids(rows: Sequence[Any]) -> set[str]:
    return {uid for row in rows if isinstance(uid := mapped(row).get("uid"), str)}


def _deployed(node: Object) -> bool:
    """Whether GPU Operator places its device plugin on a node, or will once it labels the node."""
    labels = node_selection.labels(node)
    return labels.get(DEPLOY) != "false" and labels.get(OPERANDS) != "false"


def check(snapshot: Snapshot, trays: Trays, plan: Plan) -> list[Finding]:
    """P17 and V8: no device plugin on the nodes whose GPUs the driver allocates.

    These are the trays, and other nodes on which the driver's plugin runs or would.
    """
    return list(_check(snapshot, trays, plan)) if by_dra(plan) else []


def _check(snapshot: Snapshot, trays: Trays, plan: Plan) -> Iterator[Finding]:
    for sentence in snapshot["not_readable"]:
        if any(f" {resource};" in sentence for resource in ("daemonsets", "clusterpolicies")):
            message = f"{sentence}, which is needed to know whether a device plugin allocates the GPUs too."
            yield finding("dra_insufficient_permissions", message)
    nodes = {name: node for name, node in expected_nodes(snapshot, trays).items() if node is not None}
    for owner, names in owners(snapshot, nodes).items():
        yield finding("dra_device_plugin", f"{_subject(owner, names)}, and so would the DRA driver; {_STOP}.")
    for owner, names in owners(snapshot, _others(snapshot, nodes, plan)).items():
        message = f"{_subject(owner, names)}, and so would the DRA driver, which runs on nodes outside the trays too"
        yield finding("dra_device_plugin", f"{message}; exclude them by kubeletPlugin.nodeSelector, or {_STOP}.")


def _others(snapshot: Snapshot, nodes: Nodes, plan: Plan) -> Nodes:
    """The nodes apart from these that have GPUs of a device plugin, and whose GPUs the driver allocates or would."""
    plugin = mapped(plan.get("kubeletPlugin", {}))
    published = publishing(snapshot)
    others = {name: node for node in snapshot["nodes"] if (name := name_of(node)) not in nodes and capacity(node)}
    return {
        name: node
        for name, node in others.items()
        if name in published or (plan.stand_alone and node_selection.why_excluded(node, plugin) is None)
    }


def _subject(owner: str, names: list[str]) -> str:
    nodes = summarize(names)
    if owner:
        return f"The device plugin of the {owner} allocates the GPUs of {nodes}"
    return f"The capacity of {nodes} has {GPU}, so a device plugin allocates the GPUs"


_STOP = f"label the nodes {DEPLOY}=false, or remove the device plugin from them, until their capacity has no {GPU}"


def publishing(snapshot: Snapshot) -> set[str]:
    """The nodes whose GPUs the DRA driver publishes."""
    specs = (mapped(item.get("spec")) for item in snapshot["slices"])
    return {str(spec.get("nodeName")) for spec in specs if spec.get("driver") == GPU_DRIVER and spec.get("devices")}
