# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Example workloads of a cluster: a ComputeDomain within one clique, nvbandwidth in every clique, and one across two.

A ComputeDomain does not place its pods and is Ready without any node: the pods' affinity to the clique label keeps them
together. numNodes is always set, since an older CustomResourceDefinition requires it.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import schedulers
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.schedulers import (
    CLIQUE,
    HOSTNAME,
    Members,
    Object,
    Topology,
)

NAMESPACE = "default"
SHELL_IMAGE = "docker.io/library/busybox:1.37"
# NVIDIA's own sample image of nvbandwidth with MPI.
BANDWIDTH_IMAGE = "ghcr.io/nvidia/k8s-samples:nvbandwidth-v0.7-8d103163"
BANDWIDTH_TEST = "multinode_device_to_device_memcpy_read_ce"
MAX_NAME = 50
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"


def compute_domain(name: str) -> Object:
    """A ComputeDomain whose claim template is named <name>-channel."""
    channel = {"resourceClaimTemplate": {"name": f"{name}-channel"}, "allocationMode": "Single"}
    return {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomain",
        "metadata": _metadata(name),
        "spec": {"numNodes": 0, "channel": channel},
    }


def one_clique(topology: Topology) -> list[Object]:
    """A Deployment in any clique with free nodes, and a Job that is bound to the first clique."""
    if not topology.cliques:
        return []
    clique = topology.cliques[0]
    listing = "ls -l /dev/nvidia-caps-imex-channels"
    anywhere, bound = f"{topology.name}-any-clique", f"{topology.name}-one-clique"
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(anywhere),
        "spec": {
            "replicas": min(2, len(clique.nodes)),
            "selector": {"matchLabels": {"app": anywhere}},
            "template": _template(anywhere, clique.gpus, f"{listing} && sleep 86400", ()),
        },
    }
    template = _template(bound, clique.gpus, listing, (clique.text,))
    template["spec"]["restartPolicy"] = "Never"
    count = len(clique.nodes)
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(bound),
        "spec": {"completions": count, "parallelism": count, "backoffLimit": 0, "template": template},
    }
    return [compute_domain(anywhere), deployment, compute_domain(bound), job]


def bandwidth(topology: Topology) -> list[Object]:
    """nvbandwidth over all trays of each clique of two or more: one ComputeDomain and one MPIJob per clique."""
    made: list[Object] = []
    for clique in topology.cliques:
        if len(clique.nodes) > 1:
            name = _job_name(f"nvbandwidth-{clique.object_name}")
            made += [compute_domain(name), _mpi_job(name, [clique], len(clique.nodes))]
    return made


def two_cliques(topology: Topology) -> list[Object]:
    """One ComputeDomain over two cliques with one worker in each; without NVLink between them the test must fail."""
    if len(topology.cliques) < 2:
        return []
    name = _job_name(f"nvbandwidth-{topology.name}-two-cliques")
    return [compute_domain(name), _mpi_job(name, topology.cliques[:2], 2)]


FILES = {
    "example-one-clique.yaml": (
        one_clique,
        "Pods of one ComputeDomain in one clique: in any (Deployment), in the first (Job).",
    ),
    "example-nvbandwidth.yaml": (
        bandwidth,
        "nvbandwidth within each clique. It needs the MPI operator and a free clique.",
    ),
    "example-two-cliques.yaml": (
        two_cliques,
        "Must fail: there is no NVLink between cliques. If it reports NVLink, a label is wrong.",
    ),
}


def render(fabric: model.Fabric, state: model.State) -> dict[str, str]:
    """``kubernetes/example-*.yaml``; below ``kubernetes/<cluster>/`` where several share the fabric."""
    texts = {}
    for cluster in schedulers.clusters(fabric):
        topology = schedulers.describe(fabric, cluster)
        for name, (make, comment) in FILES.items():
            objects = make(topology)
            if objects:
                text = f"{schedulers.HEAD}# {comment}\n{schedulers.dump(objects)}"
                texts[f"{schedulers.folder(cluster)}/{name}"] = text
    return texts


def _job_name(name: str) -> str:
    """A name that fits with -worker-N into the 63 characters of a pod; long names end in a hash."""
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 9]}-{zlib.crc32(name.encode()):08x}"


def _metadata(name: str) -> Object:
    return {"name": name, "namespace": NAMESPACE, "labels": {schedulers.MANAGED_BY: schedulers.OWNER}}


def _claims(name: str) -> list[Object]:
    return [{"name": "channel", "resourceClaimTemplateName": f"{name}-channel"}]


def _resources(gpus: int) -> Object:
    return {"limits": {"nvidia.com/gpu": max(gpus, 1)}, "claims": [{"name": "channel"}]}


def _template(name: str, gpus: int, script: str, cliques: Sequence[str]) -> Any:
    labels = {"app": name}
    container = {
        "name": "main",
        "image": SHELL_IMAGE,
        "command": ["sh", "-c", script],
        "resources": _resources(gpus),
    }
    return {
        "metadata": {"labels": labels},
        "spec": {
            "affinity": schedulers.affinity(labels, cliques),
            "containers": [container],
            "resourceClaims": _claims(name),
        },
    }


def _mpi_job(name: str, cliques: Sequence[Members], workers: int) -> Object:
    """One worker per tray, one rank per GPU. Anti-affinity separates workers by clique, or by host in one clique."""
    labels = {"app": name, "part": "worker"}
    gpus = max(1, min(clique.gpus for clique in cliques))
    affinity = schedulers.affinity(labels, [clique.text for clique in cliques])
    apart = {"labelSelector": {"matchLabels": labels}, "topologyKey": HOSTNAME if len(cliques) == 1 else CLIQUE}
    affinity["podAntiAffinity"] = {_REQUIRED: [apart]}
    if len(cliques) > 1:
        del affinity["podAffinity"]
    ranks = ["--map-by", f"ppr:{gpus}:node", "-np", str(gpus * workers)]
    # The sample image runs sshd as its own user, which mpirun needs to reach the workers.
    user = {"runAsUser": 1000}
    launcher = {
        "metadata": {"labels": {"app": name, "part": "launcher"}},
        "spec": {
            "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [_away_from_gpus()]}},
            "tolerations": [{"key": _CONTROL_PLANE, "operator": "Exists", "effect": "NoSchedule"}],
            "containers": [
                {
                    "name": "launcher",
                    "image": BANDWIDTH_IMAGE,
                    "securityContext": user,
                    "command": ["mpirun"],
                    "args": ["--bind-to", "core", *ranks, "nvbandwidth", "-t", BANDWIDTH_TEST],
                }
            ],
        },
    }
    worker = {
        "metadata": {"labels": labels},
        "spec": {
            "affinity": affinity,
            "containers": [
                {
                    "name": "worker",
                    "image": BANDWIDTH_IMAGE,
                    "securityContext": user,
                    "command": ["/usr/sbin/sshd"],
                    "args": ["-De", "-f", "/home/mpiuser/.sshd_config"],
                    "resources": _resources(gpus),
                }
            ],
            "resourceClaims": _claims(name),
        },
    }
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": _metadata(name),
        "spec": {
            "slotsPerWorker": gpus,
            "launcherCreationPolicy": "WaitForWorkersReady",
            "runPolicy": {"cleanPodPolicy": "Running"},
            "sshAuthMountPath": "/home/mpiuser/.ssh",
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": launcher},
                "Worker": {"replicas": workers, "template": worker},
            },
        },
    }


def _away_from_gpus() -> Object:
    return {"weight": 1, "preference": {"matchExpressions": [{"key": _CONTROL_PLANE, "operator": "Exists"}]}}
