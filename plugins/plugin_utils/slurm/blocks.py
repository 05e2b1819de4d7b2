# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The blocks of Slurm's topology from the fabric, and host lists as Slurm reads them. Pure.

One block for each clique, several where the site splits it, in the order of their positions, those of a group together.
Blocks, their order and their sizes come from the fabric file alone; retired and reserved blocks have no nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import fold
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import rules
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import (
    CONF,
    YAML,
    Block,
    SlurmError,
    Topology,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, worded
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import clusters, linter

T = TypeVar("T")
TOPOLOGY_NAME = "nvlink"
# Without a cluster the version is unknown: each file is for the newest tested Slurm that reads it.
RENDERED_FOR: dict[str, rules.Version] = {YAML: (26, 5, 5), CONF: (24, 11, 5)}


def blocks(fabric: model.Fabric, cluster: str | None = None) -> tuple[Block, ...]:
    """The blocks of each clique of a cluster, in Slurm's order; nodes are the trays' NodeNames.

    Reserved blocks are included without nodes.
    """
    made = []
    for view in fabric.slurm_blocks(cluster):
        nodes = tuple(fabric.trays[name]["slurm_node"] for name in view.trays)
        clique = view.clique if "split_blocks" in fabric.cliques.get(view.clique, ()) else ""
        made.append(Block(view.name, nodes, fold(nodes), view.group, clique))
    return tuple(made)


def of_options(options: Arguments) -> dict[str, Sequence[Block]]:
    """Slurm cluster -> its blocks, by the options of slurm_topology; "" for whichever runs.

    FabricFileError where the fabric file or the cluster is not there.
    """
    if options["blocks"] is not None:
        rows = options["blocks"]
        return {"": [Block(row["name"], tuple(row["nodes"]), fold(row["nodes"]), row["group"]) for row in rows]}
    fabric = fabric_file.load(options["fabric_file"])
    chosen = clusters.each(fabric, options["cluster"], options["fabric_file"])
    return {here: blocks(fabric, cluster) for here, cluster in chosen.items()}


def of_cluster(known: Mapping[str, T], here: str) -> T:
    """The value of the cluster that runs; here: its ClusterName. SlurmError where it is not known."""
    # Slurm stores a ClusterName in lower case.
    found = [value for name, value in known.items() if name == "" or name.lower() == here.lower()]
    if not found:
        raise SlurmError(
            f"slurmctld's ClusterName is {here or 'not shown'}, and the fabric file's Slurm clusters are"
            f" {', '.join([*known][:5])}: set slurm_topology_cluster to the one that runs."
        )
    return found[0]


def candidate(
    made: Sequence[Block], style: str, block_sizes: Sequence[int] = ()
) -> tuple[linter.Candidate, list[Finding]]:
    """What the role slurm_topology would write into the file of a style, and the findings about it.

    block_sizes: the site's setting.
    """
    version = RENDERED_FOR[style]
    kept, found = linter.drop_placeholders(made, version)
    sizes, objections = linter.choose_sizes(kept, version, block_sizes)
    topology = Topology(
        name=TOPOLOGY_NAME if style == YAML else "default",
        blocks=kept,
        block_sizes=sizes,
    )
    checked = linter.Candidate(version=version, style=style, topology=topology)
    return checked, [worded(row) for row in (*found, *objections, *linter.lint(checked))]
