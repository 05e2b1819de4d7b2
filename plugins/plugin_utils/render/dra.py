# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of the NVIDIA DRA driver's chart (0.4 and later) that follow from the fabric.

ComputeDomains beside the device plugin, which is the shape that most clusters have; the role dra_driver knows the
others. resourceApiVersion is left to it as well, since only the cluster can say which version it serves.
"""

from __future__ import annotations

from typing import Any

import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import schedulers

MAX_DOMAIN_NODES = 18
"""What the driver's controller allows in one IMEX domain unless it is told otherwise."""


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
