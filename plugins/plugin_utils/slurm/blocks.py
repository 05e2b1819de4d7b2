# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The blocks and the switches of Slurm's topology from the fabric, and host lists as Slurm reads them. Pure.

One block for each clique, in the order of their positions, those of a group together. Blocks, their order and their
sizes come from the fabric file alone; a retired clique and a reserved block have no nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import Finding, worded
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import fold
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import rules
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import (
    CONF,
    YAML,
    Block,
    SlurmError,
    Topology,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model

TOPOLOGY_NAME = "nvlink"
# Without a cluster the version is unknown: each file is for the newest tested Slurm that reads it.
RENDERED_FOR: dict[str, rules.Version] = {YAML: (26, 5, 5), CONF: (24, 11, 5)}


def blocks(fabric: model.Fabric, cluster: str | None = None) -> tuple[Block, ...]:
    """One block for each clique of a cluster, in Slurm's order; nodes are the trays' NodeNames.

    Reserved blocks are included without nodes.
    """
    made = []
    for view in fabric.slurm_blocks(cluster):
        nodes = tuple(fabric.trays[name]["slurm_node"] for name in view.trays)
        made.append(Block(view.name, nodes, fold(nodes), view.group))
    return tuple(made)


def candidate(
    made: Sequence[Block], style: str, block_sizes: Sequence[int] = (), aggregate: bool = False
) -> tuple[rules.Candidate, list[Finding]]:
    """What the role slurm_topology would write into the file of a style, and the findings about it.

    block_sizes, aggregate: the site's settings; SlurmError where both are set.
    """
    version = RENDERED_FOR[style]
    kept, found = rules.drop_placeholders(made, version)
    sizes, objections = rules.choose_sizes(kept, version, block_sizes, aggregate)
    topology = Topology(
        name=TOPOLOGY_NAME if style == YAML else "default",
        blocks=kept,
        block_sizes=sizes,
    )
    checked = rules.Candidate(version=version, style=style, topology=topology)
    return checked, [worded(row) for row in (*found, *objections, *rules.lint(checked))]


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
