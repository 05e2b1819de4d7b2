# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node objects as a kubelet, node-feature-discovery and GPU Feature Discovery write them for a tray. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.rackscale.nvlink.tests.lab.nvml import fleets

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
        yield node(name, hardware["facts"], version, scenario.tray(name).address)


def of_fleet(racks: int, version: str) -> Iterator[dict[str, Any]]:
    """Node objects of any number of simulated racks of 18 trays."""
    for name, facts in fleets.fleet(racks=racks, trays_per_rack=18, gpus_per_tray=4).items():
        yield node(name, facts, version, facts["addresses"][0]["address"])


def node(name: str, facts: Mapping[str, Any], version: str, address: str) -> dict[str, Any]:
    """A Node of a tray with GPU Feature Discovery's labels.

    facts: as fabric_facts gives them. version: of Kubernetes.
    """
    count = str(len(facts["gpus"]))
    labels = {
        "kubernetes.io/hostname": name,
        KEPT_ALIVE: "true",
        **NFD,
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.count": count,
        **({CLIQUE: facts["clique"]} if facts["clique"] else {}),
    }
    room = {"cpu": "144", "memory": "960Gi", "pods": "110", "ephemeral-storage": "1Ti", "nvidia.com/gpu": count}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"providerID": f"nvlink-lab://{name}"},
        "status": {
            "capacity": room,
            "allocatable": dict(room),
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "nodeInfo": {"containerRuntimeVersion": RUNTIME, "kubeletVersion": f"v{version}"},
        },
    }
