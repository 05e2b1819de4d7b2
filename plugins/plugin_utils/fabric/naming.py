# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Assign names and positions to domains, cliques and blocks: once, stable, never reused."""

from __future__ import annotations

import itertools
import string
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import cast

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    Block,
    Clique,
    Clusters,
    Domain,
    Fabric,
    Finding,
    Identity,
    SlurmCluster,
    Tray,
    natural_sorted,
)

Attached = tuple[Identity, str | None]
"""The clique of an attached tray, and its chassis serial."""

Running = tuple[str, int]
"""Name and position of a block of a running Slurm."""


class Register:
    """All domains and cliques that ever had a name. None is removed, so no name or position is reused."""

    def __init__(self, fabric: Fabric, domain_names: Mapping[str, str]) -> None:
        self.domains: dict[str, Domain] = dict(fabric.domains)
        self.cliques: dict[str, Clique] = dict(fabric.cliques)
        self.findings: list[Finding] = []
        self._domain_names = dict(domain_names)
        self._domain_of = {domain["cluster_uuid"]: name for name, domain in fabric.domains.items()}
        self._clique_of = {
            (fabric.domains[clique["domain"]]["cluster_uuid"], clique["clique_id"]): name
            for name, clique in fabric.cliques.items()
        }
        blocks = [clique["block"] for clique in fabric.cliques.values()]
        self._used = {*fabric.domains, *fabric.cliques, *(block["name"] for block in blocks)}
        self._positions_used = {block["position"] for block in blocks}
        self._block_names = {block["name"] for block in blocks}
        self._reserved = fabric.reserved_blocks
        self._block_names.update(self._reserved)
        self._positions = itertools.count(1 + max((*self._positions_used, *self._reserved.values()), default=-1))
        self._adopted: dict[Identity, tuple[str, int]] = {}

    def suggest(self, names: Mapping[str, str]) -> None:
        """Suggest names by cluster UUID, for domains that the site does not name; a name in use is ignored."""
        taken = {*self._used, *self._domain_names.values()}
        for uuid, name in names.items():
            if name not in taken:
                self._domain_names.setdefault(uuid, name)

    def adopt(self, blocks: Mapping[Identity, tuple[str, int]], reserved: Iterable[tuple[str, int]]) -> None:
        """Assign blocks of a running Slurm to new cliques, where the block's name and position are free.

        reserved: all blocks of that Slurm; no other clique gets their names or positions.
        """
        self._adopted = dict(blocks)
        running = list(reserved)
        self._block_names.update(name for name, _position in running)
        positions = {*self._positions_used, *self._reserved.values(), *(position for _name, position in running)}
        self._positions = itertools.count(1 + max(positions, default=-1))
        own = [clique["block"] for clique in self.cliques.values()]
        self._adopted = {
            identity: block for identity, block in self._adopted.items() if _is_free(block, own, self._reserved)
        }

    def reserve(self, unclaimed: Iterable[Running]) -> dict[str, int]:
        """The blocks without a clique: those reserved before, and the unclaimed ones of a running Slurm."""
        return reserved_blocks([clique["block"] for clique in self.cliques.values()], self._reserved, unclaimed)

    def clique_of(self, identity: Identity) -> str:
        """The name of a registered clique."""
        return self._clique_of[identity]

    def register(self, trays: Iterable[Attached]) -> None:
        """Name the domains and cliques that have no name yet, in the order of the trays."""
        cliques: dict[str, dict[Identity, None]] = defaultdict(dict)
        serials: dict[str, set[str]] = defaultdict(set)
        for identity, serial in trays:
            if identity not in self._clique_of:
                cliques[identity[0]][identity] = None
                if serial:
                    serials[identity[0]].add(serial)
        for uuid, identities in cliques.items():
            domain = self._domain_of.get(uuid)
            if domain is None:
                domain = self._new_domain(uuid, natural_sorted(serials[uuid]))
                names = iter([domain]) if len(identities) == 1 else self._suffixed(domain)
            else:
                names = self._suffixed(domain)
            for identity in identities:
                self._new_clique(next(names), domain, identity)

    def _new_domain(self, uuid: str, serials: Collection[str]) -> str:
        names = [self._domain_names[key] for key in (uuid, *serials) if key in self._domain_names]
        name = next((name for name in names if name not in self._used), None)
        if name is None:
            numbers = itertools.count(len(self.domains) + 1)
            name = next(auto for auto in map("r{:02d}".format, numbers) if auto not in self._used)
            if names:
                message = (
                    f"NVLink domain {uuid} is named {name}, since {names[0]} is in use; "
                    "set another name in domain_names before you accept it."
                )
                self.findings.append(finding("domain_name_taken", message, domain=name))
        self._used.add(name)
        self._domain_of[uuid] = name
        self.domains[name] = {"cluster_uuid": uuid, "chassis_serials": [], "expected_trays": 0}
        return name

    def _new_clique(self, name: str, domain: str, identity: Identity) -> None:
        self._used.add(name)
        self._clique_of[identity] = name
        adopted = self._adopted.get(identity)
        if adopted:
            block: Block = {"name": adopted[0], "position": adopted[1]}
        else:
            numbered = (f"{name}_{number}" for number in itertools.count(2))
            free = (word for word in itertools.chain([name], numbered) if word not in self._block_names)
            block = {"name": next(free), "position": next(self._positions)}
        self._block_names.add(block["name"])
        self.cliques[name] = {"domain": domain, "clique_id": identity[1], "block": block}

    def _suffixed(self, domain: str) -> Iterator[str]:
        """Free clique names of a domain: r01a ... r01z, r01aa ..."""
        words = (itertools.product(string.ascii_lowercase, repeat=size) for size in itertools.count(1))
        names = (f"{domain}{''.join(word)}" for word in itertools.chain.from_iterable(words))
        return (name for name in names if name not in self._used)


def cluster_blocks(
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
    numbered = (f"{name}_{number}" for number in itertools.count(2))
    free = (word for word in itertools.chain([name], numbered) if word not in names)
    return {"name": next(free), "position": 1 + max(positions, default=-1)}


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
