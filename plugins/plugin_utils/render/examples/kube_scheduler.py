# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Examples for kube-scheduler, which places pod after pod and knows no gangs.

Affinity between a workload's pods does not help: the first pod binds the others to its clique, however full that is.
So the cliques are named (StatefulSet, JobSet), or whole cliques are reserved for one kind of workload (LWS).
"""

from __future__ import annotations

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import schedulers
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.examples import pods
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.schedulers import Manifest, Topology


def stateful_set(topology: Topology) -> list[Manifest]:
    """A StatefulSet of two pods in the first clique, started at once, with stable names."""
    if not topology.cliques:
        return []
    clique = topology.cliques[0]
    name = f"{topology.name}-service"
    labels = {"app": name}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": pods.metadata(name),
        # IMEX and NCCL connect before the pods are ready.
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": dict(labels)},
    }
    workload = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": pods.metadata(name),
        "spec": {
            "replicas": min(2, len(clique.nodes)),
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": dict(labels)},
            "template": pods.template(labels, name, clique.gpus, pods.SERVE, affinity=pods.in_cliques([clique])),
        },
    }
    return [pods.compute_domain(name), service, workload]


def job_set(topology: Topology) -> list[Manifest]:
    """A job larger than a clique: for each NVLink index (here two) a named clique, a Job and a ComputeDomain."""
    cliques = pods.largest(topology, 2)
    if len(cliques) < 2:
        return []
    name = f"{topology.name}-two-indexes"
    size = pods.power_of_two(len(cliques[1].nodes))
    made: list[Manifest] = []
    parts: dict[str, Manifest] = {}
    for index, clique in enumerate(cliques):
        domain = f"{name}-{index}"
        affinity = pods.in_cliques([clique])
        pod = pods.template(
            {"app": name}, domain, clique.gpus, pods.LIST_CHANNELS, affinity=affinity, restartPolicy="Never"
        )
        made.append(pods.compute_domain(domain))
        parts[f"index-{index}"] = pods.job_spec(size, pod)
    return [*made, pods.job_set(name, parts)]


def leader_worker_set(topology: Topology) -> list[Manifest]:
    """For each NVLink index (at most two) a LeaderWorkerSet as large as the smallest clique, exclusive to its clique.

    All groups of one LeaderWorkerSet share a claim template, so each index has a LeaderWorkerSet of one group.
    """
    made: list[Manifest] = []
    for index, _clique in enumerate(topology.cliques[:2]):
        name = f"{topology.name}-replica-{index}"
        gpus = min(clique.gpus for clique in topology.cliques)
        exists = {"key": schedulers.CLIQUE, "operator": "Exists"}
        # A node without the label is in no domain, where the exclusive affinity does not apply.
        affinity = {"nodeAffinity": {pods.REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [exists]}]}}}
        group = {
            "size": min(len(clique.nodes) for clique in topology.cliques),
            "workerTemplate": pods.template({"app": name}, name, gpus, pods.SERVE, affinity=affinity),
        }
        workload = {
            "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "kind": "LeaderWorkerSet",
            "metadata": pods.metadata(
                name, annotations={"leaderworkerset.sigs.k8s.io/exclusive-topology": schedulers.CLIQUE}
            ),
            "spec": {"replicas": 1, "leaderWorkerTemplate": group},
        }
        made += [pods.compute_domain(name), workload]
    return made
