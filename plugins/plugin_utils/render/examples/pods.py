# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the examples share: a ComputeDomain, the pods that claim its channel, and the size of a job.

A ComputeDomain does not place its pods and is Ready without any node: the scheduler keeps the pods in one clique.
numNodes is always set, since an older CustomResourceDefinition requires it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import schedulers
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.schedulers import (
    CLIQUE,
    Manifest,
    Members,
    Topology,
)

NAMESPACE = "default"
SHELL_IMAGE = "docker.io/library/busybox:1.37"
LIST_CHANNELS = "ls -l /dev/nvidia-caps-imex-channels"
SERVE = f"{LIST_CHANNELS} && sleep 86400"
# GPU Operator and cloud providers taint GPU nodes with this key.
TOLERATIONS = ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def metadata(
    name: str, labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None
) -> Manifest:
    """An object's metadata in the examples' namespace."""
    made: Manifest = {"name": name, "namespace": NAMESPACE, "labels": {schedulers.MANAGED_BY: schedulers.OWNER}}
    made["labels"].update(labels or {})
    return {**made, **({"annotations": dict(annotations)} if annotations else {})}


def compute_domain(name: str) -> Manifest:
    """A ComputeDomain whose claim template is named <name>-channel."""
    channel = {"resourceClaimTemplate": {"name": f"{name}-channel"}, "allocationMode": "Single"}
    return {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomain",
        "metadata": metadata(name),
        "spec": {"numNodes": 0, "channel": channel},
    }


def claims(domain: str) -> list[Manifest]:
    """A pod's claim for a channel of a ComputeDomain."""
    return [{"name": "channel", "resourceClaimTemplateName": f"{domain}-channel"}]


def resources(gpus: int) -> Manifest:
    """A container's share of a tray: all of its GPUs, and the pod's channel."""
    return {"limits": {"nvidia.com/gpu": max(gpus, 1)}, "claims": [{"name": "channel"}]}


def in_cliques(cliques: Sequence[Members]) -> Manifest:
    """The affinity to the nodes of these cliques."""
    wanted = {"key": CLIQUE, "operator": "In", "values": [clique.text for clique in cliques]}
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}}}


def template(
    labels: Mapping[str, str],
    domain: str,
    gpus: int,
    script: str,
    annotations: Mapping[str, str] | None = None,
    container: str = "main",
    **spec: Any,
) -> Manifest:
    """The template of pods that take a whole tray each and claim a channel of a ComputeDomain.

    gpus: of a tray. container: its name. spec: further fields of the pod's spec.
    """
    main = {"name": container, "image": SHELL_IMAGE, "command": ["sh", "-c", script], "resources": resources(gpus)}
    return {
        "metadata": {"labels": dict(labels), **({"annotations": dict(annotations)} if annotations else {})},
        "spec": {
            **spec,
            "tolerations": [dict(row) for row in TOLERATIONS],
            "containers": [main],
            "resourceClaims": claims(domain),
        },
    }


def job_spec(pods: int, pod: Manifest) -> Manifest:
    """The spec of a Job that runs its pods at the same time and never repeats one of them."""
    return {"completions": pods, "parallelism": pods, "backoffLimit": 0, "template": pod}


def job_set(
    name: str,
    parts: Mapping[str, Manifest],
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Manifest:
    """A JobSet of one Job per part: name -> spec of its Job. annotations: of each of these Jobs."""
    above = {"metadata": {"annotations": dict(annotations)}} if annotations else {}
    jobs = [{"name": part, "replicas": 1, "template": {**above, "spec": spec}} for part, spec in parts.items()]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata(name, labels),
        "spec": {"replicatedJobs": jobs},
    }


def largest(topology: Topology, count: int) -> list[Members]:
    """The cliques with the most nodes, in the order of the topology where they have equally many."""
    return sorted(topology.cliques, key=lambda clique: -len(clique.nodes))[:count]


def power_of_two(nodes: int) -> int:
    """The largest power of two that is not above a number of nodes: 16 of 18, so two trays are spare."""
    return 1 << (nodes.bit_length() - 1)
