# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sixth step of a placement: the trays of the next fabric and the sizes of its domains, with every change. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import Finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.claims import Claims
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    Change,
    Domain,
    Fabric,
    Observation,
    Tray,
    natural_sorted,
    tray_finding,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.naming import Names
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import PlacementError, Policy


@dataclass(frozen=True)
class Placed:
    """The trays and domains of the next fabric, and how the trays differ from the previous one."""

    trays: dict[str, Tray]
    domains: dict[str, Domain]
    changes: list[Change]
    findings: list[Finding]


def place(
    previous: Fabric,
    observed: Mapping[str, Observation],
    claims: Claims,
    names: Names,
    imex: Mapping[str, str | None],
    policies: Mapping[str, str],
    now: str,
    policy: Policy,
) -> Placed:
    """Place or update the tray of every claim, then apply the site's settings of every placed target.

    imex: claimed tray -> address. policies: cluster UUID -> policy of a domain that is split per tray. PlacementError
    where the site gives two trays one node.
    """
    draft = _Draft(previous, claims, now)
    for name, clique in names.places.items():
        draft.place(name, clique, imex[name])
    domains = _sized(previous, names, draft.trays, policies, policy)
    for name, observation in observed.items():
        if name in draft.trays:
            # Values that the site does not set stay as they were.
            if names_set := _changed_names(observation, draft.trays[name]):
                draft.set(name, "name", names_set)
            if clusters_set := _changed_clusters(observation, draft.trays[name]):
                draft.set(name, "cluster", clusters_set)
    for kind in ("slurm", "kubernetes"):
        _check_unique_nodes(draft.trays, f"{kind}_node", f"{kind}_cluster")
    return Placed(draft.trays, domains, draft.changes, draft.findings)


class _Draft:
    """The trays of the next fabric while they are changed one after the other."""

    def __init__(self, previous: Fabric, claims: Claims, now: str) -> None:
        self.trays: dict[str, Tray] = dict(previous.trays)
        self.changes: list[Change] = []
        self.findings: list[Finding] = []
        self._previous, self._claims, self._date = previous, claims, now[:10]

    def place(self, name: str, clique: str, imex_address: str | None) -> None:
        """Place a claimed tray in a clique, or update what changed."""
        old, claim = self._previous.trays.get(name), self._claims.trays[name]
        if old is None:
            why = f"placed {self._date}: {self._where(name)}"
            self.trays[name] = {
                "clique": clique,
                "tray_index": claim.tray_index,
                "gpu_uuids": list(claim.gpu_uuids),
                "imex_address": imex_address,
                "slurm_node": claim.slurm_node or name,
                "kubernetes_node": claim.kubernetes_node or name,
                "why": why,
            }
            self._change(name, None, clique, "placed", why)
        elif (clique, imex_address) != (old["clique"], old["imex_address"]) or not _same_hardware(claim, old):
            self._update(name, old, claim, clique, imex_address)
        if imex_address is None:
            remedy = "check its addresses and imex_network"
            self._report(name, "imex_address_invalid", "has no usable address for its IMEX domain", remedy)

    def _update(self, name: str, old: Tray, claim: Observation, clique: str, imex_address: str | None) -> None:
        date, where = self._date, self._where(name)
        known = set(old["gpu_uuids"])
        # A source that reports no GPUs, such as a node label, does not remove the known ones.
        gpus = set(claim.gpu_uuids) or known
        new = cast(Tray, dict(old))
        steps: list[tuple[str, str]] = []
        if gpus < known:
            lost = f"reports {len(gpus)} of its {count(len(known), 'GPU')} in the fabric file"
            self._report(name, "gpu_missing", lost, "reset or replace the missing GPUs")
        elif gpus != known:
            new["gpu_uuids"] = list(claim.gpu_uuids)
            steps.append(("gpus", f"{len(gpus - known)} of {count(len(gpus), 'GPU')} new"))
        if claim.tray_index is not None and claim.tray_index != old["tray_index"]:
            new["tray_index"] = claim.tray_index
            steps.append(("slot", f"tray_index {_shown(old['tray_index'])} -> {claim.tray_index}"))
        if imex_address != old["imex_address"]:
            new["imex_address"] = imex_address
            steps.append(("address", f"imex_address {_shown(old['imex_address'])} -> {_shown(imex_address)}"))
        swapped = bool(known) and not gpus & known
        if clique != old["clique"]:
            new["clique"] = clique
            new["why"] = f"moved {date} from {old['clique']}: {where}{', all its GPUs are new' if swapped else ''}"
            steps = [("moved", new["why"])]
        elif swapped:
            new["why"] = f"replaced {date}: {where}, all its GPUs are new"
            steps = [("replaced", new["why"])]
        if swapped:
            self._report(
                name, "tray_replaced", "has none of its previous GPUs", "accept the proposal if the tray was replaced"
            )
        if steps:
            self.trays[name] = new
            self._change(name, old["clique"], clique, steps[0][0], "; ".join(text for _kind, text in steps))

    def set(self, name: str, kind: str, values: Mapping[str, str]) -> None:
        """Set values of a tray; an empty text removes the key."""
        tray = self.trays[name]
        steps = "; ".join(f"{key} {_shown(tray.get(key))} -> {value or 'none'}" for key, value in values.items())
        self.trays[name] = cast(Tray, {key: value for key, value in {**tray, **values}.items() if value != ""})
        if name in self._previous.trays:
            self._change(name, tray["clique"], tray["clique"], kind, steps)

    def _where(self, name: str) -> str:
        uuid, clique_id = self._claims.identity(name)
        how = "most of its GPUs attached in" if name in self._claims.mixed else "attached in"
        return f"{how} clique {uuid}.{clique_id}"

    def _change(self, name: str, old: str | None, new: str, kind: str, why: str) -> None:
        self.changes.append({"tray": name, "from": old, "to": new, "kind": kind, "why": why})

    def _report(self, name: str, code: str, what: str, remedy: str) -> None:
        self.findings.append(tray_finding(name, code, what, remedy))


def _sized(
    previous: Fabric, names: Names, trays: Mapping[str, Tray], policies: Mapping[str, str], policy: Policy
) -> dict[str, Domain]:
    """The domains with chassis serials, expected size and policy: serials are collected, the size only grows."""
    domain_of = {name: clique["domain"] for name, clique in previous.cliques.items()}
    domain_of.update((name, domain) for name, (domain, _clique_id) in names.cliques.items())
    sizes: Counter[str] = Counter()
    for clique, size in Counter([tray["clique"] for tray in trays.values()]).items():
        sizes[domain_of[clique]] += size
    serials: dict[str, set[str]] = defaultdict(set)
    for uuid, serial in names.chassis:
        serials[uuid].add(serial)
    domains = dict(names.domains)
    for name, domain in names.domains.items():
        expected = domain["expected_trays"]
        if sizes[name]:
            declared = len(policy.expected.get(name, ()))
            expected = max(declared or policy.expected_trays or expected, sizes[name])
        added = serials[domain["cluster_uuid"]].difference(domain["chassis_serials"])
        if added or expected != domain["expected_trays"]:
            serials_of = natural_sorted({*domain["chassis_serials"], *added})
            domains[name] = {**domain, "chassis_serials": serials_of, "expected_trays": expected}
        if domain["cluster_uuid"] in policies:
            domains[name] = {**domains[name], "tray_partitions": policies[domain["cluster_uuid"]]}
    return domains


def _check_unique_nodes(trays: Mapping[str, Tray], key: str, cluster_key: str) -> None:
    """Raise PlacementError if two trays have the same node name, in the same cluster where there are several."""
    rows = cast(list[dict[str, Any]], [*trays.values()])
    if len({(tray.get(cluster_key), tray[key]) for tray in rows}) == len(rows):
        return
    owners: dict[tuple[str | None, str], str] = {}
    for name, tray in zip(trays, rows, strict=True):
        node, cluster = tray[key], tray.get(cluster_key)
        owner = owners.setdefault((cluster, node), name)
        if owner != name:
            of_cluster = f" of cluster {cluster}" if cluster else ""
            raise PlacementError(
                f"fabric_{key}: trays {owner} and {name}{of_cluster} would both be node {node}; set different names"
            )


def _same_hardware(claim: Observation, tray: Tray) -> bool:
    same_gpus = not claim.gpu_uuids or list(claim.gpu_uuids) == tray["gpu_uuids"]
    return same_gpus and claim.tray_index in (None, tray["tray_index"])


def _changed_names(observation: Observation, tray: Tray) -> dict[str, str]:
    """Node names and address that the site sets and that differ from the fabric."""
    slurm, kubernetes, address = observation.slurm_node, observation.kubernetes_node, observation.ansible_host
    if not (slurm or kubernetes or address):
        return {}
    values = {
        "slurm_node": slurm,
        "kubernetes_node": kubernetes,
        "ansible_host": None if address == observation.tray else address,
    }
    return {key: value for key, value in values.items() if value and value != tray.get(key)}


def _changed_clusters(observation: Observation, tray: Tray) -> dict[str, str]:
    """Clusters that the site sets and that differ from the fabric; empty where the tray is to be in none."""
    if observation.slurm_cluster is None and observation.kubernetes_cluster is None:
        return {}
    values = (("slurm_cluster", observation.slurm_cluster), ("kubernetes_cluster", observation.kubernetes_cluster))
    return {key: value for key, value in values if value is not None and value != tray.get(key, "")}


def _shown(value: object) -> str:
    return "none" if value is None else str(value)
