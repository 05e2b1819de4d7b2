# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The blocks of Slurm's topology from the fabric, and host lists as Slurm reads them. Pure.

One block for each clique, in the order of their positions, those of a group together. Blocks, their order and their
sizes come from the fabric file alone; a retired clique and a reserved block have no nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import Finding, worded
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import fold
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import rules
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import (
    CONF,
    YAML,
    Block,
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
