# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Examples for Kueue with topology-aware scheduling, which admits a workload once all of its pods have their nodes.

Since 0.18 Kueue counts claims too, and admits no workload whose DeviceClass has no name in its configuration: the
class of the channels needs CHANNEL_RESOURCE there.
"""

from __future__ import annotations

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.examples import pods
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.schedulers import CLIQUE, Manifest, Topology

API = "kueue.x-k8s.io/v1beta2"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
CHANNEL_RESOURCE = "nvidia.com/compute-domain-channel"
"""The name in resources.deviceClassMappings for compute-domain-default-channel.nvidia.com."""


def workloads(topology: Topology) -> list[Manifest]:
    """The queues, a Job in any one clique, and a JobSet of two equal halves, each in any one clique."""
    if not topology.cliques:
        return []
    return [*_queues(topology), *_one_clique(topology), *_halves(topology)]


def _queues(topology: Topology) -> list[Manifest]:
    """A ClusterQueue with all GPUs of the flavor, and its LocalQueue; each tray has one channel."""
    quotas = {
        "nvidia.com/gpu": sum(clique.gpus * len(clique.nodes) for clique in topology.cliques),
        CHANNEL_RESOURCE: sum(len(clique.nodes) for clique in topology.cliques),
    }
    flavor = {
        "name": topology.name,
        "resources": [{"name": name, "nominalQuota": quota} for name, quota in quotas.items()],
    }
    group = {"coveredResources": list(quotas), "flavors": [flavor]}
    cluster = pods.metadata(topology.name)
    del cluster["namespace"]  # a ClusterQueue has none
    return [
        {
            "apiVersion": API,
            "kind": "ClusterQueue",
            "metadata": cluster,
            "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
        },
        {
            "apiVersion": API,
            "kind": "LocalQueue",
            "metadata": pods.metadata(topology.name),
            "spec": {"clusterQueue": topology.name},
        },
    ]


def _one_clique(topology: Topology) -> list[Manifest]:
    clique = pods.largest(topology, 1)[0]
    name = f"{topology.name}-kueue"
    constraint = {"kueue.x-k8s.io/podset-required-topology": CLIQUE}
    pod = pods.template({"app": name}, name, clique.gpus, pods.LIST_CHANNELS, constraint, restartPolicy="Never")
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": pods.metadata(name, {QUEUE_LABEL: topology.name}),
        "spec": pods.job_spec(pods.power_of_two(len(clique.nodes)), pod),
    }
    return [pods.compute_domain(name), job]


def _halves(topology: Topology) -> list[Manifest]:
    """One pod set in two slices. They share a template, so a ComputeDomain too: it has an IMEX domain per clique."""
    cliques = pods.largest(topology, 2)
    if len(cliques) < 2:
        return []
    name = f"{topology.name}-halves"
    half = pods.power_of_two(len(cliques[1].nodes))
    constraint = {
        "kueue.x-k8s.io/podset-slice-required-topology": CLIQUE,
        "kueue.x-k8s.io/podset-slice-size": str(half),
    }
    gpus = min(clique.gpus for clique in cliques)
    pod = pods.template({"app": name}, name, gpus, pods.LIST_CHANNELS, constraint, restartPolicy="Never")
    job_set = pods.job_set(name, {"workers": pods.job_spec(2 * half, pod)}, {QUEUE_LABEL: topology.name})
    return [pods.compute_domain(name), job_set]
