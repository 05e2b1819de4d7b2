# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvbandwidth as an MPIJob: in every clique, and across two, where it must fail."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import schedulers
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.examples import pods
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.schedulers import (
    CLIQUE,
    HOSTNAME,
    Manifest,
    Members,
    Topology,
)

# NVIDIA's own sample image of nvbandwidth with MPI.
BANDWIDTH_IMAGE = "ghcr.io/nvidia/k8s-samples:nvbandwidth-v0.7-8d103163"
BANDWIDTH_TEST = "multinode_device_to_device_memcpy_read_ce"
MAX_NAME = 50
_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"


def each_clique(topology: Topology) -> list[Manifest]:
    """nvbandwidth over all trays of each clique of two or more: one ComputeDomain and one MPIJob per clique."""
    made: list[Manifest] = []
    for clique in topology.cliques:
        if len(clique.nodes) > 1:
            name = _job_name(f"nvbandwidth-{clique.object_name}")
            made += [pods.compute_domain(name), _mpi_job(name, [clique], len(clique.nodes))]
    return made


def two_cliques(topology: Topology) -> list[Manifest]:
    """One ComputeDomain over two cliques with one worker in each; without NVLink between them the test must fail."""
    if len(topology.cliques) < 2:
        return []
    name = _job_name(f"nvbandwidth-{topology.name}-two-cliques")
    return [pods.compute_domain(name), _mpi_job(name, topology.cliques[:2], 2)]


def _job_name(name: str) -> str:
    """A name that fits with -worker-N into the 63 characters of a pod; long names end in a hash."""
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 9]}-{zlib.crc32(name.encode()):08x}"


def _mpi_job(name: str, cliques: Sequence[Members], workers: int) -> Manifest:
    """One worker per tray, one rank per GPU. Anti-affinity separates workers by clique, or by host in one clique."""
    labels = {"app": name, "part": "worker"}
    gpus = max(1, min(clique.gpus for clique in cliques))
    affinity = schedulers.affinity(labels, [clique.text for clique in cliques])
    apart = {"labelSelector": {"matchLabels": labels}, "topologyKey": HOSTNAME if len(cliques) == 1 else CLIQUE}
    affinity["podAntiAffinity"] = {pods.REQUIRED: [apart]}
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
            "tolerations": [dict(row) for row in pods.TOLERATIONS],
            "containers": [
                {
                    "name": "worker",
                    "image": BANDWIDTH_IMAGE,
                    "securityContext": user,
                    "command": ["/usr/sbin/sshd"],
                    "args": ["-De", "-f", "/home/mpiuser/.sshd_config"],
                    "resources": pods.resources(gpus),
                }
            ],
            "resourceClaims": pods.claims(name),
        },
    }
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": pods.metadata(name),
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


def _away_from_gpus() -> Manifest:
    return {"weight": 1, "preference": {"matchExpressions": [{"key": _CONTROL_PLANE, "operator": "Exists"}]}}
