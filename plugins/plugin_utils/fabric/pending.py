# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Before a placement: the changes that a pending proposal has for trays that are not targets of the run. Pure.

A domain with another cluster UUID, other clique IDs or another policy keeps them if not all its trays are targets.

A run on some of the trays, such as a job slice, thus adds to the pending proposal instead of undoing it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import identity
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Block, Clusters, Fabric, Tray
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.placement import (
    reserved_blocks,
    slurm_cluster,
    with_clusters,
)


def merge_pending(fabric: Fabric, pending: Fabric, targets: Collection[str]) -> Fabric:
    """The fabric with the changes that a pending proposal has for trays that are not targets of this run."""
    trays = {
        name: tray for name, tray in pending.trays.items() if name not in targets and tray != fabric.trays.get(name)
    }
    kept = kept_domains(fabric, pending, targets)
    places = {tray["clique"] for tray in trays.values()}
    places.update(name for name, clique in fabric.cliques.items() if clique["domain"] in kept)
    cliques = {name: pending.cliques[name] for name in places}
    domains = {clique["domain"]: pending.domains[clique["domain"]] for clique in cliques.values()}
    return Fabric(
        {**fabric.domains, **domains},
        {**fabric.cliques, **cliques},
        {**fabric.trays, **trays},
        pending.overrides,
        _merged_clusters(fabric, pending, trays),
        _merged_reserved([row["block"] for row in {**fabric.cliques, **cliques}.values()], fabric, pending, None),
    )


def kept_domains(fabric: Fabric, pending: Fabric, targets: Collection[str]) -> set[str]:
    """The domains that differ in the pending proposal in more than their size, where not all trays are targets."""
    others = {domain for name, domain in fabric.domain_of.items() if name not in targets}
    decided = {
        name
        for name in fabric.domains.keys() & pending.domains.keys()
        if fabric.domains[name].get("tray_partitions") != pending.domains[name].get("tray_partitions")
    }
    return (identity.changed_domains(fabric, pending) | decided) & others


def _merged_reserved(blocks: Collection[Block], fabric: Fabric, pending: Fabric, cluster: str | None) -> dict[str, int]:
    """The reserved blocks of a fabric and of the pending one in a Slurm cluster; blocks: those with a clique there."""
    before, later = (source.reserved(cluster) for source in (fabric, pending))
    return reserved_blocks(blocks, before, later.items())


def _merged_clusters(fabric: Fabric, pending: Fabric, trays: Mapping[str, Tray]) -> Clusters:
    """The clusters of a fabric, extended by those of the pending fabric for these of its trays."""
    places = {(tray.get("slurm_cluster"), tray["clique"]) for tray in trays.values()}
    slurm = dict(fabric.clusters.get("slurm", {}))
    for name in {cluster for cluster, _clique in places if cluster}:
        blocks = dict(slurm[name]["blocks"]) if name in slurm else {}
        for clique, block in pending.clusters["slurm"][name]["blocks"].items():
            # The first cluster of the file has taken over the blocks that the file had.
            if (name, clique) in places or (clique in fabric.cliques and not fabric.slurm_clusters):
                blocks.setdefault(clique, block)
        slurm[name] = slurm_cluster(blocks, _merged_reserved(blocks.values(), fabric, pending, name))
    return with_clusters(fabric, slurm, trays)
