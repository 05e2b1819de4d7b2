# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Examples for KAI Scheduler, which places all pods of a PodGroup at once.

KAI makes one PodGroup of a PyTorchJob or a JobSet that needs all of its pods, but one of each pod of a Deployment, and
one with a minimum of one pod of a StatefulSet. (Its podgrouper, at release 0.17.)
"""

from __future__ import annotations

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.examples import pods
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.schedulers import CLIQUE, Manifest, Topology

QUEUE_LABEL = "kai.scheduler/queue"
SCHEDULER = "kai-scheduler"
UNLIMITED = -1


def workloads(topology: Topology) -> list[Manifest]:
    """A queue of all GPUs, a PyTorchJob in any one clique, and a JobSet over any two."""
    if not topology.cliques:
        return []
    return [*_queues(topology), *_one_clique(topology), *_two_cliques(topology)]


def _queues(topology: Topology) -> list[Manifest]:
    """The queue of workloads and its parent; workloads are submitted to a queue without children."""
    gpus = sum(clique.gpus * len(clique.nodes) for clique in topology.cliques)
    return [_queue(topology.name, gpus), _queue(_leaf(topology), gpus, topology.name)]


def _leaf(topology: Topology) -> str:
    return f"{topology.name}-jobs"


def _queue(name: str, gpus: int, parent: str | None = None) -> Manifest:
    """A queue to which these GPUs are guaranteed; CPUs and memory are not limited."""
    shares = {"cpu": UNLIMITED, "memory": UNLIMITED, "gpu": gpus}
    quotas = {kind: {"quota": quota, "limit": UNLIMITED, "overQuotaWeight": 1} for kind, quota in shares.items()}
    made = pods.metadata(name)
    del made["namespace"]  # queues have none
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": made,
        "spec": {**({"parentQueue": parent} if parent else {}), "resources": quotas},
    }


def _in_one_clique(topology: Topology) -> dict[str, str]:
    return {"kai.scheduler/topology": topology.name, "kai.scheduler/topology-required-placement": CLIQUE}


def _one_clique(topology: Topology) -> list[Manifest]:
    clique = pods.largest(topology, 1)[0]
    name = f"{topology.name}-pytorch"
    size = pods.power_of_two(len(clique.nodes))
    pod = pods.template(
        {"app": name}, name, clique.gpus, pods.LIST_CHANNELS, container="pytorch", schedulerName=SCHEDULER
    )
    # KAI takes no PyTorchJob with a replica type of no pods.
    replicas = {"Master": 1, **({"Worker": size - 1} if size > 1 else {})}
    specs = {part: {"replicas": count, "restartPolicy": "Never", "template": pod} for part, count in replicas.items()}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": pods.metadata(name, {QUEUE_LABEL: _leaf(topology)}, _in_one_clique(topology)),
        "spec": {"pytorchReplicaSpecs": specs},
    }
    return [pods.compute_domain(name), job]


def _two_cliques(topology: Topology) -> list[Manifest]:
    """One Job and one ComputeDomain per NVLink index; the constraint holds for each Job by itself."""
    cliques = pods.largest(topology, 2)
    if len(cliques) < 2:
        return []
    name = f"{topology.name}-kai-indexes"
    size = pods.power_of_two(len(cliques[1].nodes))
    made: list[Manifest] = []
    parts: dict[str, Manifest] = {}
    for index in range(2):
        domain = f"{name}-{index}"
        gpus = min(clique.gpus for clique in cliques)
        pod = pods.template(
            {"app": name}, domain, gpus, pods.LIST_CHANNELS, schedulerName=SCHEDULER, restartPolicy="Never"
        )
        made.append(pods.compute_domain(domain))
        parts[f"index-{index}"] = pods.job_spec(size, pod)
    return [*made, pods.job_set(name, parts, {QUEUE_LABEL: _leaf(topology)}, _in_one_clique(topology))]
