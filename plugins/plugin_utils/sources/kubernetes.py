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

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.doc_fragments import source_kubernetes
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import login
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients.api_server import PAGE, ApiServer
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Address, Observation, SourceResult
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.forms import TIME, identity, is_address, text
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options, documented
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, as_list, mapped, whole
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.collector import Collector, tray_name
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.expressions import Expression

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
MAX_ADDRESSES = 16

_heartbeat_time = text(TIME)


def discover(options: Any, now: str) -> SourceResult:
    """Return one observation for each node with GPUs, or for each node that label_selector selects."""
    checked = Options(options, OPTIONS, SOURCE)
    name = Expression(checked.text("tray_name"), f"{SOURCE}: tray_name") if "tray_name" in checked else None
    selector = checked.text("label_selector")
    query: dict[str, str | int] = {"limit": checked.whole("page_size", PAGE, 1, 10_000)}
    if selector:
        query["labelSelector"] = selector
    cluster = checked.cluster("kubernetes_cluster")
    client = ApiServer(SOURCE, login.client_config(checked))

    def observed(node: Any) -> list[Observation | None]:
        return [_observation(node, name, cluster, now)] if selector or _has_gpus(node) else []

    trays = Collector(SOURCE, "nodes")
    for observation in client.listed("/api/v1/nodes", query, keep=observed):
        trays.add(observation)
    return trays.result("correct tray_name")


def _has_gpus(node: Any) -> bool:
    node = mapped(node)
    labels = mapped(mapped(node.get("metadata")).get("labels"))
    capacity = mapped(mapped(node.get("status")).get("capacity"))
    return any(label in labels for label in GPU_LABELS) or capacity.get(RESOURCE) not in (None, "0")


def _observation(node: Any, expression: Any, cluster: str | None, now: str) -> Observation | None:
    """Convert a node object; None if it has no usable name."""
    node = mapped(node)
    metadata, status = mapped(node.get("metadata")), mapped(node.get("status"))
    labels = mapped(metadata.get("labels"))
    own_name = tray_name(metadata.get("name"))
    tray = tray_name(expression(node)) if expression else own_name
    if tray is None or own_name is None:
        return None
    findings: list[Finding] = []
    observed_at = _observed_at(status, tray, now, findings)
    return Observation(
        tray=tray,
        source=SOURCE,
        observed_at=observed_at,
        identity=_identity(labels, mapped(metadata.get("annotations")), tray, findings),
        gpu_count=_gpu_count(labels, status, tray, findings),
        addresses=_addresses(status),
        findings=tuple(findings),
        kubernetes_node=own_name,
        kubernetes_cluster=cluster,
    )


def _observed_at(status: Object, tray: str, now: str, findings: list[Finding]) -> str:
    """The time up to which the labels can be current: now, or the last heartbeat of a NotReady node."""
    for row in as_list(status.get("conditions")):
        if isinstance(row, Mapping) and row.get("type") == "Ready" and row.get("status") != "True":
            heartbeat = _heartbeat_time(row.get("lastHeartbeatTime"))
            since = f" since {heartbeat}" if heartbeat else ""
            message = f"Node of tray {tray} is NotReady{since}, so its labels may be outdated"
            findings.append(finding("node_not_ready", message, tray=tray))
            return heartbeat or now
    return now


def _identity(labels: Object, annotations: Object, tray: str, findings: list[Finding]) -> tuple[str, int] | None:
    label = labels.get(CLIQUE)
    if label is None:
        # Other providers of Topograph write IDs of another kind.
        return identity(annotations.get(CLUSTER_ID))
    place = identity(label)
    if place is None:
        message = f"Node of tray {tray} has an invalid label {CLIQUE}; check the log of the pod that writes it."
        findings.append(finding("unusable_value", message, tray=tray))
    return place


def _gpu_count(labels: Object, status: Object, tray: str, findings: list[Finding]) -> int:
    """The label's value, else the node's capacity (which time-slicing multiplies), else 0."""
    for value in (labels.get(COUNT), mapped(status.get("capacity")).get(RESOURCE)):
        if value is None:
            continue
        count = whole(int(value)) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,10}", value) else None
        if count is not None:
            return count
        message = f"Node of tray {tray} has an invalid number of GPUs; check the log of GPU Feature Discovery."
        findings.append(finding("unusable_value", message, tray=tray))
    return 0


def _addresses(status: Object) -> tuple[Address, ...]:
    """The addresses of type InternalIP, as Kubernetes orders them."""
    rows = as_list(status.get("addresses"))[:MAX_ADDRESSES]
    texts = [row.get("address") for row in rows if isinstance(row, Mapping) and row.get("type") == "InternalIP"]
    return tuple(Address("InternalIP", text, 0) for text in texts if isinstance(text, str) and is_address(text))
