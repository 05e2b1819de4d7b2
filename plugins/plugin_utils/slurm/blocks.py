# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The blocks and the switches of Slurm's topology from the fabric, and host lists as Slurm reads them. Pure.

One block for each clique, in the order of their positions, those of a group together. Blocks, their order and their
sizes come from the fabric file alone; a retired clique and a reserved block have no nodes.
"""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import fold
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import Block, SlurmError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model


def blocks(fabric: model.Fabric, cluster: str | None = None) -> tuple[Block, ...]:
    """One block for each clique of a cluster, in Slurm's order; nodes are the trays' NodeNames.

    Reserved blocks are included without nodes.
    """
    made = []
    for view in fabric.slurm_blocks(cluster):
        nodes = tuple(fabric.trays[name]["slurm_node"] for name in view.trays)
        made.append(Block(view.name, nodes, fold(nodes), view.group))
    return tuple(made)


def switches(name: str, places: Mapping[str, tuple[str, str]]) -> list[dict[str, str]]:
    """The switches of the tree ``name`` from node -> (leaf, spine or ""); SlurmError where a leaf has two spines.

    Several switches at the top get a common switch ``<name>-core``, since Slurm starts no job across switches that are
    not connected.
    """
    nodes: dict[str, list[str]] = {}
    spine_of: dict[str, str] = {}
    for node, (leaf, spine) in places.items():
        nodes.setdefault(leaf, []).append(node)
        known = spine_of.setdefault(leaf, spine)
        if known != spine:
            raise SlurmError(
                f"The leaf switch {leaf} has the spines {known or 'none'} and {spine or 'none'} (at {node}): set the"
                " same spine on all its trays."
            )
    below: dict[str, list[str]] = {}
    for leaf, spine in spine_of.items():
        if spine:
            below.setdefault(spine, []).append(leaf)
    tops = [*below, *(leaf for leaf, spine in spine_of.items() if not spine)]
    if len(tops) > 1:
        below = {f"{name}-core": tops, **below}
    return [
        *({"switch": spine, "children": fold(model.natural_sorted(leaves))} for spine, leaves in below.items()),
        *({"switch": leaf, "nodes": fold(nodes[leaf])} for leaf in model.natural_sorted(nodes)),
    ]
