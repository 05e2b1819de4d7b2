# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Example workloads of a cluster, one file per scheduler or operator: one row in EXAMPLES each.

Pure. An example that the cluster is too small for has no objects, so no file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import schedulers
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import DEFAULT, RenderContext
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.examples import (
    bandwidth,
    gpu_claims,
    kai,
    kube_scheduler,
    kueue,
)


class Example(NamedTuple):
    """objects returns complete objects, none for a cluster that is too small; comment stands above them in the file."""

    objects: Callable[[schedulers.Topology], list[schedulers.Manifest]]
    comment: str


EXAMPLES: dict[str, Example] = {
    "statefulset": Example(
        kube_scheduler.stateful_set, "kube-scheduler: a service in one named clique. Name one with enough free trays."
    ),
    "jobset": Example(
        kube_scheduler.job_set,
        "kube-scheduler, JobSet: a job larger than a clique, one ComputeDomain per NVLink index, in named cliques.",
    ),
    "lws": Example(
        kube_scheduler.leader_worker_set,
        "kube-scheduler, LeaderWorkerSet: one group per clique and NVLink index. Keep other pods off these cliques.",
    ),
    "kai": Example(
        kai.workloads,
        "KAI Scheduler, PyTorchJob and JobSet: queues, a job in any one clique, and one with a clique for each half.",
    ),
    "kueue": Example(kueue.workloads, "Kueue, JobSet: queues, a Job in any one clique, and a job of two equal halves."),
    "nvbandwidth": Example(
        bandwidth.each_clique, "nvbandwidth within each clique. It needs the MPI operator and a free clique."
    ),
    "two-cliques": Example(
        bandwidth.two_cliques, "Must fail: there is no NVLink between cliques. If it reports NVLink, a label is wrong."
    ),
}


def render(fabric: model.Fabric, state: model.State, context: RenderContext = DEFAULT) -> dict[str, str]:
    """``kubernetes/example-*.yaml``; below ``kubernetes/<cluster>/`` where several share the fabric."""
    texts = {}
    for cluster in schedulers.clusters(fabric):
        topology = schedulers.describe(fabric, cluster)
        for name, example in EXAMPLES.items():
            objects = example.objects(topology)
            if objects:
                objects = gpu_claims.by_claims(objects) if context.gpus_by_dra else objects
                text = f"{schedulers.HEAD}# {example.comment}\n{schedulers.dump(objects)}"
                texts[f"{schedulers.folder(cluster)}/example-{name}.yaml"] = text
    return texts
