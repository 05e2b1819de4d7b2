# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of the NVIDIA DRA driver's chart (0.4 and later) that follow from the fabric.

For ComputeDomains next to the device plugin, the most common shape; the role dra_driver supports the others and sets
resourceApiVersion, since only the cluster knows the version that it serves.
"""

from __future__ import annotations

from typing import Any

import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import schedulers

MAX_DOMAIN_NODES = 18
"""The default limit of the driver's controller for nodes in one IMEX domain."""


def values(topology: schedulers.Topology) -> dict[str, Any]:
    """The chart's values for one cluster."""
    made: dict[str, Any] = {
        "nvidiaDriverRoot": "/",
        "resources": {"gpus": {"enabled": False}, "computeDomains": {"enabled": True}},
    }
    largest = max((len(clique.nodes) for clique in topology.cliques), default=0)
    if largest > MAX_DOMAIN_NODES:
        limit = {"name": "MAX_NODES_PER_IMEX_DOMAIN", "value": str(largest)}
        made["controller"] = {"containers": {"computeDomain": {"env": [limit]}}}
    return made


def render(fabric: model.Fabric, state: model.State) -> dict[str, str]:
    """``kubernetes/dra-values.yaml``; below ``kubernetes/<cluster>/`` where several share the fabric."""
    texts = {}
    for cluster in schedulers.clusters(fabric):
        text = yaml.safe_dump(values(schedulers.describe(fabric, cluster)), sort_keys=False, default_flow_style=False)
        texts[f"{schedulers.folder(cluster)}/dra-values.yaml"] = f"{schedulers.HEAD}---\n{text}"
    return texts
