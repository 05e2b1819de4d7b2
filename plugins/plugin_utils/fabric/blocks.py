# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Seventh step of a placement: blocks of Slurm, whose names and positions are assigned once and never reused. Pure.

A running Slurm that was read gives its blocks to the cliques whose trays it has there.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar, cast

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import Finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.claims import Claims
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    Block,
    Clique,
    Clusters,
    Fabric,
    Identity,
    Observation,
    SlurmCluster,
    Tray,
    tray_finding,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.naming import Names
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.trays import Placed

Running = tuple[str, int]
"""Name and position of a block of a running Slurm."""

_BLOCK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

K = TypeVar("K")


def assign(
    previous: Fabric,
    observed: Mapping[str, Observation],
    claims: Claims,
    names: Names,
    placed: Placed,
    running: Collection[Running] = (),
    unclaimed: Collection[Running] = (),
) -> tuple[Fabric, list[Finding]]:
    """The next fabric: every new clique gets a block, and every cluster one for each clique that has trays there.

    Also the findings about trays that Slurm has in another block. running: all blocks of a running Slurm; no other
    clique gets their names or positions. unclaimed: those without a known tray, which stay reserved.
    """
    cluster_of = {name: _slurm_cluster(previous, name, row) for name, row in observed.items() if row.block}
    queried = set(cluster_of.values())
    # Whose blocks were read is ambiguous where the trays are in several clusters.
    unclaimed = [block for block in unclaimed if _BLOCK_NAME.fullmatch(block[0])] if len(queried) == 1 else []
    cliques = _own_blocks(previous, observed, claims, names, cluster_of, running)
    votes: dict[str, Counter[tuple[tuple[str, str], Running]]] = defaultdict(Counter)
    taken: dict[str, set[Running]] = defaultdict(set)
    for name, cluster in cluster_of.items():
        block = observed[name].block
        if block and cluster:
            taken[cluster].update((block, *running))
            if name in placed.trays:
                votes[cluster][((cluster, placed.trays[name]["clique"]), block)] += 1
    adopted = {place: block for of_one in votes.values() for place, block in _elected(of_one).items()}
    left = {cluster: unclaimed for cluster in queried if cluster}
    clusters = _cluster_blocks(previous, placed.trays, cliques, adopted, taken, left)
    own = [clique["block"] for clique in cliques.values()]
    reserved = reserved_blocks(own, previous.reserved_blocks, unclaimed if queried == {None} else ())
    fabric = Fabric(placed.domains, cliques, placed.trays, previous.overrides, clusters, reserved)
    return fabric, _mismatches(fabric, observed)


def _mismatches(fabric: Fabric, observed: Mapping[str, Observation]) -> list[Finding]:
    """The trays that are in another block in Slurm than in the fabric."""
    findings = []
    for name, observation in observed.items():
        block = fabric.block_of(name) if observation.block and name in fabric.trays else None
        if observation.block and block and block["name"] != observation.block[0]:
            clique = fabric.trays[name]["clique"]
            what = f"is in block {observation.block[0]} of Slurm, but its clique {clique} has block {block['name']}"
            remedy = "apply the topology, or correct the block's name"
            findings.append(tray_finding(name, "slurm_topology_differs", what, remedy))
    return findings


def _slurm_cluster(previous: Fabric, name: str, observation: Observation) -> str | None:
    """The Slurm cluster of a target: the site's current setting, else that of the previous fabric."""
    cluster = observation.slurm_cluster
    if cluster is None and name in previous.trays:
        cluster = previous.trays[name].get("slurm_cluster")
    return cluster or None


def _own_blocks(
    previous: Fabric,
    observed: Mapping[str, Observation],
    claims: Claims,
    names: Names,
    cluster_of: Mapping[str, str | None],
    running: Collection[Running],
) -> dict[str, Clique]:
    """All cliques with their own blocks: a new one gets the block in which Slurm has most of its trays, if it is free.

    Else one with its own name at the next position, after all blocks of that Slurm.
    """
    cliques = dict(previous.cliques)
    blocks = [clique["block"] for clique in cliques.values()]
    seen = {name: observed[name].block for name, cluster in cluster_of.items() if not cluster}
    votes: Counter[tuple[Identity, Running]] = Counter(
        (claims.identity(name), block) for name, block in seen.items() if block and name in claims.trays
    )
    elected = {
        identity: block
        for identity, block in _elected(votes).items()
        if _is_free(block, blocks, previous.reserved_blocks)
    }
    taken: set[Running] = {(block["name"], block["position"]) for block in blocks} | {*previous.reserved_blocks.items()}
    if seen:
        taken.update(running, filter(None, seen.values()))
    words = {name for name, _position in taken}
    positions = itertools.count(1 + max((position for _name, position in taken), default=-1))
    for clique, (domain, clique_id) in names.cliques.items():
        identity = (names.domains[domain]["cluster_uuid"], clique_id)
        name, position = elected.get(identity) or (_free_name(clique, words), next(positions))
        words.add(name)
        cliques[clique] = {
            "domain": domain,
            "clique_id": clique_id,
            "block": {"name": name, "position": position},
        }
    return cliques


def _elected(votes: Counter[tuple[K, Running]]) -> dict[K, Running]:
    """Map each candidate to the block of most of its trays; a block goes to one candidate.

    The first tray in natural order decides between equal numbers.
    """
    chosen: dict[K, Running] = {}
    for (candidate, block), _trays in votes.most_common():
        if candidate not in chosen and block not in chosen.values() and _BLOCK_NAME.fullmatch(block[0]):
            chosen[candidate] = block
    return chosen


def _free_name(clique: str, taken: Collection[str]) -> str:
    """The name of a clique's block: that of the clique, with a number where it is taken."""
    numbered = (f"{clique}_{number}" for number in itertools.count(2))
    return next(word for word in itertools.chain([clique], numbered) if word not in taken)


def _cluster_blocks(
    fabric: Fabric,
    trays: Mapping[str, Tray],
    cliques: Mapping[str, Clique],
    running: Mapping[tuple[str, str], Running],
    reserved: Mapping[str, Collection[Running]],
    unclaimed: Mapping[str, Collection[Running]],
) -> Clusters:
    """The clusters of the next fabric: those of the previous fabric, and those of the trays.

    A Slurm cluster gets a block for a clique with the first tray there: the block of the running Slurm (running, by
    cluster and clique) if it is free, else one with the name of the clique's own block at the next position.
    reserved: Slurm cluster -> all its running blocks; no other clique gets their names or positions.
    unclaimed: Slurm cluster -> its running blocks without a tray of the fabric, which stay reserved.
    The first Slurm cluster of a file takes over the blocks that the file had, since they belong to it.
    """
    before = fabric.clusters.get("slurm", {})
    slurm = {name: cast(SlurmCluster, {**row, "blocks": dict(row["blocks"])}) for name, row in before.items()}
    kubernetes = dict(fabric.clusters.get("kubernetes", {}))
    sizes: Counter[str] = Counter()
    places: set[tuple[str, str]] = set()
    for tray in trays.values():
        if "slurm_cluster" in tray:
            sizes[tray["slurm_cluster"]] += 1
            places.add((tray["slurm_cluster"], tray["clique"]))
        if "kubernetes_cluster" in tray:
            kubernetes.setdefault(tray["kubernetes_cluster"], {})
    if sizes and not slurm:
        heir = min(sizes, key=lambda name: (-sizes[name], name))
        slurm[heir] = {"blocks": {name: clique["block"] for name, clique in fabric.cliques.items()}}
        if fabric.reserved_blocks:
            slurm[heir]["reserved_blocks"] = dict(fabric.reserved_blocks)
    # In the order of the cliques' own blocks, so that the result does not depend on the order of the answers.
    for cluster, clique in sorted(places, key=lambda place: (place[0], cliques[place[1]]["block"]["position"])):
        row = slurm.setdefault(cluster, {"blocks": {}})
        if clique not in row["blocks"]:
            name, adopted = cliques[clique]["block"]["name"], running.get((cluster, clique))
            row["blocks"][clique] = _cluster_block(name, row, adopted, reserved.get(cluster, ()))
    for cluster, row in slurm.items():
        kept = reserved_blocks(row["blocks"].values(), row.pop("reserved_blocks", {}), unclaimed.get(cluster, ()))
        if kept:
            row["reserved_blocks"] = kept
    clusters = Clusters(**fabric.clusters)
    if slurm:
        clusters["slurm"] = slurm
    if kubernetes:
        clusters["kubernetes"] = kubernetes
    return clusters


def _cluster_block(name: str, row: SlurmCluster, adopted: Running | None, running: Collection[Running]) -> Block:
    blocks, kept = row["blocks"].values(), row.get("reserved_blocks", {})
    if adopted and _is_free(adopted, blocks, kept):
        return {"name": adopted[0], "position": adopted[1]}
    taken = [*((block["name"], block["position"]) for block in blocks), *kept.items(), *running]
    names, positions = {name for name, _position in taken}, {position for _name, position in taken}
    return {"name": _free_name(name, names), "position": 1 + max(positions, default=-1)}


def _is_free(block: Running, blocks: Collection[Block], reserved: Mapping[str, int]) -> bool:
    """Whether no clique has the name or position, and the position is not reserved for a block of another name."""
    return all(block[0] != other["name"] and block[1] != other["position"] for other in blocks) and not any(
        block[1] == position and block[0] != name for name, position in reserved.items()
    )


def reserved_blocks(
    blocks: Collection[Block], before: Mapping[str, int], unclaimed: Iterable[Running]
) -> dict[str, int]:
    """Name -> position of the reserved blocks: without those that a clique has now, with the unclaimed ones.

    A block whose position is taken (Slurm numbers only the blocks that it has) goes to the end.
    """
    names, positions = {block["name"] for block in blocks}, {block["position"] for block in blocks}
    kept = {name: position for name, position in before.items() if name not in names}
    for name, position in sorted(unclaimed, key=lambda block: block[1]):
        if name not in names and name not in kept:
            taken = positions.union(kept.values())
            kept[name] = position if position not in taken else 1 + max(taken)
    return kept
