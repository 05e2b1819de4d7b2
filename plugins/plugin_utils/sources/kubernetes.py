# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Source kubernetes: the labels of the nodes of a cluster, read in pages as plain JSON.

GPU Feature Discovery or the DRA driver writes the label nvidia.com/gpu.clique (`<uuid>.<id>`) from NVML; it stays until
one of them writes another value. A node that is NotReady therefore keeps its place: its label counts, with the time of
the node's last heartbeat, and a finding reports it. Labels do not contain the health, which stays unknown.

Without that label the annotation topograph.run/cluster-id counts, which the node data broker of NVIDIA Topograph writes
from nvidia-smi. Topograph's label accelerator.topograph.run/domain does not count: this collection writes it too, from
the fabric file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.doc_fragments import source_kubernetes
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import login
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients.api_server import PAGE, ApiServer
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Observation, SourceResult
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.forms import TIME, identity, text
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options, documented
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, as_list, mapped
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.collector import Collector, tray_name
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.expressions import Expression
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.fields import Field, observation

SOURCE = "kubernetes"
OPTIONS = documented(source_kubernetes.ModuleDocFragment.DOCUMENTATION, SOURCE)

CLIQUE = "nvidia.com/gpu.clique"
CLUSTER_ID = "topograph.run/cluster-id"
COUNT = "nvidia.com/gpu.count"
RESOURCE = "nvidia.com/gpu"
# A node with any of these has GPUs: from GPU Feature Discovery, the GPU Operator and node-feature-discovery.
GPU_LABELS = (
    CLIQUE,
    COUNT,
    "nvidia.com/gpu.product",
    "nvidia.com/gpu.present",
    "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-0302_10de.present",
)
REMEDIES = {
    "clique": f"check the pod that writes the label {CLIQUE}",
    "gpu_count": f"check GPU Feature Discovery, which writes the label {COUNT}",
    "addresses": "correct the InternalIP of its node (the kubelet's node-ip)",
}


def discover(options: Any, now: str) -> SourceResult:
    """Return one observation for each node with GPUs, or for each node that label_selector selects."""
    checked = Options(options, OPTIONS, SOURCE)
    name = Expression(checked.text("tray_name"), f"{SOURCE}: tray_name") if "tray_name" in checked else _name
    selector = checked.text("label_selector")
    query: dict[str, str | int] = {"limit": checked.whole("page_size", PAGE, 1, 10_000)}
    if selector:
        query["labelSelector"] = selector
    fields = _fields(name, checked.cluster("kubernetes_cluster"))
    client = ApiServer(SOURCE, login.client_config(checked))

    def observed(node: Any) -> list[Observation | None]:
        return [_observation(mapped(node), fields, now)] if selector or _has_gpus(mapped(node)) else []

    trays = Collector(SOURCE, "nodes")
    for row in client.listed("/api/v1/nodes", query, keep=observed):
        trays.add(row)
    return trays.result("correct tray_name")


def _fields(name: Field, cluster: str | None) -> dict[str, Field]:
    """Field of an observation -> its value of a node; a node without a usable name of its own has no tray's name."""
    return {
        "name": lambda node: name(node) if tray_name(_name(node)) else None,
        "clique": _clique,
        "gpu_count": _gpu_count,
        "addresses": _addresses,
        "kubernetes_node": _name,
        "kubernetes_cluster": lambda _node: cluster,
    }


def _name(node: Object) -> Any:
    return mapped(node.get("metadata")).get("name")


def _has_gpus(node: Object) -> bool:
    labels = mapped(mapped(node.get("metadata")).get("labels"))
    return any(label in labels for label in GPU_LABELS) or _capacity(node) not in (None, "0")


def _observation(node: Object, fields: Mapping[str, Field], now: str) -> Observation | None:
    """The observation of a node; of one that is NotReady as old as its last heartbeat, up to which it wrote labels."""
    found = observation(SOURCE, node, fields, now, REMEDIES)
    for row in as_list(mapped(node.get("status")).get("conditions")):
        if found and isinstance(row, Mapping) and row.get("type") == "Ready" and row.get("status") != "True":
            heartbeat = text(TIME)(row.get("lastHeartbeatTime"))
            since = f" since {heartbeat}" if heartbeat else ""
            message = f"Node of tray {found.tray} is NotReady{since}, so its labels may be outdated"
            findings = (finding("node_not_ready", message, tray=found.tray), *found.findings)
            return replace(found, observed_at=heartbeat or now, findings=findings)
    return found


def _clique(node: Object) -> Any:
    """The label, else the annotation where it is a clique: other providers of Topograph write IDs of another kind."""
    metadata = mapped(node.get("metadata"))
    label, other = mapped(metadata.get("labels")).get(CLIQUE), mapped(metadata.get("annotations")).get(CLUSTER_ID)
    return other if label is None and identity(other) else label


def _gpu_count(node: Object) -> Any:
    """The label's value, else the node's capacity, which time-slicing multiplies."""
    label = mapped(mapped(node.get("metadata")).get("labels")).get(COUNT)
    return _capacity(node) if label is None else label


def _capacity(node: Object) -> Any:
    return mapped(mapped(node.get("status")).get("capacity")).get(RESOURCE)


def _addresses(node: Object) -> list[Any]:
    """The addresses of type InternalIP, as Kubernetes orders them."""
    rows = map(mapped, as_list(mapped(node.get("status")).get("addresses")))
    return [{**row, "interface": "InternalIP"} for row in rows if row.get("type") == "InternalIP"]
