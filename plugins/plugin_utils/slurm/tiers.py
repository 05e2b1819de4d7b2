# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The blocks of the fabric and each tier's nodes as one folded hostlist, for the module slurm_tiers. Pure.

module_utils/slurm/tiers/tiers.py validates the tiers.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import blocks as slurm_blocks


def for_cluster(fabric: Fabric, cluster: str | None, tiers: Any) -> dict[str, Any]:
    """Build {name, blocks: [{name, clique, nodes, folded}], hostlists: {tier: hostlist}} of one Slurm cluster.

    ``tiers``: the option of this name; an invalid tier is skipped here, and refused on the host.
    """
    cliques = {view.name: view.clique for view in fabric.slurm_blocks(cluster)}
    blocks = [
        {"name": block.name, "clique": cliques[block.name], "nodes": list(block.nodes), "folded": block.folded}
        for block in slurm_blocks.blocks(fabric, cluster)
    ]
    hostlists = {}
    for tier in tiers if isinstance(tiers, list) else []:
        if not isinstance(tier, dict) or tier.get("per_block") or not isinstance(tier.get("name"), str):
            continue
        names, members = _names(tier, "blocks"), _names(tier, "cliques")
        nodes = [
            node
            for block in blocks
            if tier.get("all") or block["name"] in names or block["clique"] in members
            for node in block["nodes"]
        ]
        hostlists[tier["name"]] = slurm_blocks.fold(nodes)
    return {"name": cluster or "", "blocks": blocks, "hostlists": hostlists}


def _names(tier: dict[str, Any], key: str) -> list[Any]:
    value = tier.get(key)
    return value if isinstance(value, list) else []
