# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of the NVIDIA DRA driver's chart (0.4 and later) that follow from the fabric.

For ComputeDomains with GPUs by the device plugin, the most common shape, or by DRA; the role dra_driver supports the
others and sets resourceApiVersion, since only the cluster knows the version that it serves.
"""

from __future__ import annotations

import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import chart_values
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.cliques import Topology
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import schedulers
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import RenderContext


@schedulers.of_each_cluster
def render(topology: Topology, context: RenderContext) -> dict[str, str]:
    """``dra-values``."""
    made = chart_values.of_cliques(topology, context.gpus_by_dra)
    return {"dra-values": "---\n" + yaml.safe_dump(made, sort_keys=False, default_flow_style=False)}
