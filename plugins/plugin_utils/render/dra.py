# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of the NVIDIA DRA driver's chart (0.4 and later) that follow from the fabric.

For ComputeDomains with GPUs by the device plugin, the most common shape, or by DRA; the role dra_driver supports the
others and sets resourceApiVersion, since only the cluster knows the version that it serves.
"""

from __future__ import annotations

from typing import Any

import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import schedulers
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import DEFAULT, RenderContext

MAX_DOMAIN_NODES = 18
"""The default limit of the driver's controller for nodes in one IMEX domain."""


def values(topology: schedulers.Topology, gpus_by_dra: bool = False) -> dict[str, Any]:
    """The chart's values for one cluster."""
    made: dict[str, Any] = {
        "nvidiaDriverRoot": "/",
        "resources": {"gpus": {"enabled": gpus_by_dra}, "computeDomains": {"enabled": True}},
    }
    if gpus_by_dra:
        made["gpuResourcesEnabledOverride"] = True
    largest = max((len(clique.nodes) for clique in topology.cliques), default=0)
    if largest > MAX_DOMAIN_NODES:
        limit = {"name": "MAX_NODES_PER_IMEX_DOMAIN", "value": str(largest)}
        made["controller"] = {"containers": {"computeDomain": {"env": [limit]}}}
    return made


def render(fabric: model.Fabric, state: model.State, context: RenderContext = DEFAULT) -> dict[str, str]:
    """``kubernetes/dra-values.yaml``; below ``kubernetes/<cluster>/`` where several share the fabric."""
    texts = {}
    for cluster in schedulers.clusters(fabric):
        made = values(schedulers.describe(fabric, cluster, context.topology), context.gpus_by_dra)
        text = yaml.safe_dump(made, sort_keys=False, default_flow_style=False)
        texts[f"{schedulers.folder(cluster)}/dra-values.yaml"] = f"{schedulers.HEAD}---\n{text}"
    return texts
