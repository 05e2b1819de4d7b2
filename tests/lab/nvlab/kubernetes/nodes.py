# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node objects as a kubelet, node-feature-discovery and GPU Feature Discovery write them for a tray. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils import simulation

from ..gpus import hardware_of
from ..scenario import Scenario

CLIQUE = "nvidia.com/gpu.clique"
PATH = "api/v1/nodes"
RUNTIME = "containerd://2.1.4"
KEPT_ALIVE = "nvlink-lab/kept-alive"
# The PCI labels of node-feature-discovery, by which the DRA driver's DaemonSet selects nodes.
NFD = {
    "feature.node.kubernetes.io/pci-10de.present": "true",
    "feature.node.kubernetes.io/pci-0302_10de.present": "true",
}


def of_scenario(scenario: Scenario, version: str) -> Iterator[dict[str, Any]]:
    """A Node object for each tray of a lab, with the labels of its GPUs."""
    for name, hardware in hardware_of(scenario).items():
        address = scenario.tray(name).address
        yield node(name, hardware["facts"], version, address, lost=hardware["lost"])


def of_fleet(racks: int, version: str, trays_per_rack: int = 18, gpus_per_tray: int = 4) -> Iterator[dict[str, Any]]:
    """Node objects of any number of simulated racks."""
    fleet = simulation.fleet(racks=racks, trays_per_rack=trays_per_rack, gpus_per_tray=gpus_per_tray)
    for name, facts in fleet.items():
        yield node(name, facts, version, facts["addresses"][0]["address"])


def node(name: str, facts: Mapping[str, Any], version: str, address: str, lost: Iterable[int] = ()) -> dict[str, Any]:
    """A Node of a tray with GPU Feature Discovery's labels.

    facts: as fabric_facts gives them. version: of Kubernetes. lost: indexes of GPUs that do not answer.
    """
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "arm64",
        "kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "arm64",
        "beta.kubernetes.io/os": "linux",
        KEPT_ALIVE: "true",
        **NFD,
        **feature_labels(facts, lost),
    }
    count = str(len(facts["gpus"]))
    room = {"cpu": "144", "memory": "960Gi", "pods": "110", "ephemeral-storage": "1Ti", "hugepages-2Mi": "0"}
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        },
        "spec": {"providerID": f"nvlink-lab://{name}"},
        "status": {
            "capacity": {**room, "nvidia.com/gpu": count},
            "allocatable": {**room, "nvidia.com/gpu": count},
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "conditions": [
                _condition(kind, now) for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
            ],
            "nodeInfo": {
                "architecture": "arm64",
                "bootID": "00000000-0000-4000-8000-000000000000",
                "containerRuntimeVersion": RUNTIME,
                "kernelVersion": "6.8.0-1030-nvidia-64k",
                "kubeProxyVersion": "",
                "kubeletVersion": f"v{version}",
                "machineID": "0" * 32,
                "operatingSystem": "linux",
                "osImage": "Ubuntu 24.04.3 LTS",
                "systemUUID": "00000000-0000-4000-8000-000000000000",
            },
        },
    }


def _condition(kind: str, now: str) -> dict[str, str]:
    ready = kind == "Ready"
    reason = "KubeletReady" if ready else f"KubeletHasNo{kind}"
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    return {"type": kind, "status": str(ready), "reason": reason, "message": "kubelet says so", **times}


def feature_labels(facts: Mapping[str, Any], lost: Iterable[int]) -> dict[str, str]:
    """GPU Feature Discovery's labels of a tray, the clique's by its own rule."""
    gone = set(lost)
    gpus = [gpu for gpu in facts["gpus"] if gpu["index"] not in gone]
    if not gpus:
        return {}
    clique = gfd_clique(gpus)
    return {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.count": str(len(gpus)),
        "nvidia.com/gpu.product": str(gpus[0]["name"]).replace(" ", "-"),
        **({CLIQUE: clique} if clique else {}),
    }


def gfd_clique(gpus: Iterable[Mapping[str, Any]]) -> str | None:
    """The clique as GPU Feature Discovery 0.17 and later write it: GPUs that are not attached are skipped, and
    two cliques on one tray give no label. The health summary is ignored."""
    places = {_place(gpu) for gpu in gpus if _attached(gpu)}
    return places.pop() if len(places) == 1 else None


def _attached(gpu: Mapping[str, Any]) -> bool:
    fabric = gpu["fabric"]
    return bool(fabric["state"] == "completed" and fabric["status"] == "success" and fabric["cluster_uuid"])


def _place(gpu: Mapping[str, Any]) -> str:
    return f"{gpu['fabric']['cluster_uuid']}.{gpu['fabric']['clique_id']}"
