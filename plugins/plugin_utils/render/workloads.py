# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Example workloads of a cluster, one file per scheduler or operator: one template of the role k8s_topology each.

An example that the cluster is too small for renders to nothing, so there is no file of it.
"""

from __future__ import annotations

import zlib
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import objects
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.cliques import Topology
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import schedulers
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import RenderContext

WORKLOADS = ("statefulset", "jobset", "lws", "kai", "kueue", "nvbandwidth", "two-cliques")
MAX_NAME = 50


@schedulers.of_each_cluster
def render(topology: Topology, context: RenderContext) -> dict[str, str]:
    """``example-<workload>``, of the workloads that fit; none for a cluster without cliques."""
    if not topology.cliques:
        return {}
    values = {**_values(topology), "gpus_by_dra": context.gpus_by_dra}
    made, texts = objects.environment("examples"), {}
    for name in WORKLOADS:
        text = made.get_template(f"{name}.yaml.j2").render(values).strip()
        if text:
            texts[f"example-{name}"] = f"{text}\n"
    return texts


def _values(topology: Topology) -> dict[str, Any]:
    """The variables of the templates.

    power_of_two: the largest one that is not above a clique's number of nodes: 16 of 18, so two trays are spare.
    """
    cliques = [
        {
            "text": clique.text,
            "job": _job_name(f"nvbandwidth-{clique.object_name}"),
            "nodes": len(clique.nodes),
            "gpus": max(clique.gpus, 1),
            "power_of_two": 1 << (len(clique.nodes).bit_length() - 1),
        }
        for clique in topology.cliques
    ]
    return {
        "topology": topology.name,
        "cliques": cliques,
        "largest": sorted(cliques, key=lambda clique: -int(clique["nodes"])),
        "all_gpus": sum(clique.gpus * len(clique.nodes) for clique in topology.cliques),
    }


def _job_name(name: str) -> str:
    """A name that fits with -worker-N into the 63 characters of a pod; long names end in a hash."""
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 9]}-{zlib.crc32(name.encode()):08x}"
