# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Second step of a placement: known domains and cliques whose cluster UUID or clique ID changed. Pure.

The fabric manager generates these values: a fabric that is built again has another cluster UUID, partitions that are
created again have other clique IDs, and the GPUs stay. So a domain or clique is recognised by its GPUs, where:

- more than half of the GPUs that the fabric file gives it report the new value,
- more than half of the known GPUs that report the new value are its own, where another domain or clique of which most
  observed GPUs report it counts with all of its GPUs, and
- none of its trays reports the old value. While some do, the others have left it.

GPU UUIDs suffice: they are as permanent as fabric GUIDs, which nvidia-smi and most sources do not report. Chassis
serials do not identify a domain, since those of one rack may share a serial; the gate chassis_added objects to a
recognised domain with another chassis. A clique ID is recognised within its domain only, and a cluster UUID of the
fabric file never becomes that of another domain. A clique of one tray is recognised only in a domain of one tray: where
a domain is split per tray, the last tray of a clique would take its name away from those that join it again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar, cast

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    Clique,
    Domain,
    Fabric,
    Identity,
    Observation,
    natural_sorted,
)

V = TypeVar("V", bound=Hashable)


def follow(fabric: Fabric, accepted: Fabric, attached: Mapping[str, Observation]) -> Fabric:
    """The fabric with the cluster UUIDs and clique IDs that its GPUs report now; itself where all report what it has.

    accepted: the fabric of the fabric file, to which a pending proposal adds trays; it has the tray of each GPU.
    attached: tray -> its observation, with an identity.
    """
    reports = {name: row.identity for name, row in attached.items() if row.identity}
    clique_of = {name: tray["clique"] for name, tray in accepted.trays.items()}
    identities = {name: fabric.identity(name) for name in fabric.cliques}
    if all(name in clique_of and identities[clique_of[name]] == now for name, now in reports.items()):
        return fabric
    owners = _owners(accepted, attached)
    with_uuids = _with_uuids(fabric, accepted, owners, reports)
    return _with_clique_ids(with_uuids, accepted, owners, reports)


def changed_domains(before: Fabric, after: Fabric) -> set[str]:
    """The domains of both fabrics whose cluster UUID or clique IDs differ."""
    domains = {
        name
        for name, row in before.domains.items()
        if after.domains.get(name, row)["cluster_uuid"] != row["cluster_uuid"]
    }
    cliques = ((row, after.cliques.get(name, row)) for name, row in before.cliques.items())
    return domains.union(old["domain"] for old, new in cliques if old["clique_id"] != new["clique_id"])


def findings(before: Fabric, after: Fabric) -> Iterator[Finding]:
    """One finding for each domain whose cluster UUID or clique IDs changed."""
    for name in natural_sorted(changed_domains(before, after)):
        uuids = [fabric.domains[name]["cluster_uuid"] for fabric in (before, after)]
        ids = summarize(_renumbered(before, after, name))
        if uuids[0] != uuids[1]:
            message = (
                f"NVLink domain {name} has the cluster UUID {uuids[1]} instead of {uuids[0]}"
                f"{f', and other clique IDs ({ids})' if ids else ''}, with the same GPUs, as after its fabric was "
                "built again; accept the proposal to keep its names and blocks if that is the cause."
            )
            yield finding("domain_uuid_changed", message, domain=name)
        else:
            message = (
                f"NVLink domain {name} has other clique IDs ({ids}) with the same GPUs, as after its partitions were "
                "created again; accept the proposal to keep their names and blocks if that is the cause."
            )
            yield finding("clique_id_changed", message, domain=name)


def _renumbered(before: Fabric, after: Fabric, domain: str) -> Iterator[str]:
    """The cliques of a domain with their old and new clique IDs, where these differ."""
    for name in natural_sorted(before.cliques):
        old = before.cliques[name]
        new = after.cliques.get(name, old)
        if old["domain"] == domain and old["clique_id"] != new["clique_id"]:
            yield f"{name} {old['clique_id']} -> {new['clique_id']}"


Owners = Mapping[str, Mapping[str, int]]
"""Observed tray -> the trays to which the accepted fabric gives its GPUs, with the number of GPUs of each."""


def _owners(accepted: Fabric, attached: Mapping[str, Observation]) -> Owners:
    known = {name: _gpus(accepted, name) for name in accepted.trays}
    owner_of = {gpu: name for name, gpus in known.items() for gpu in gpus}
    return {
        name: Counter(owner_of[gpu] for gpu in row.gpu_uuids or known.get(name, ()) if gpu in owner_of)
        for name, row in attached.items()
    }


def _gpus(accepted: Fabric, tray: str) -> list[str]:
    """The GPUs of a tray; where no source has reported their UUIDs, its name stands for them."""
    return accepted.trays[tray]["gpu_uuids"] or [tray]


def _with_uuids(fabric: Fabric, accepted: Fabric, owners: Owners, reports: Mapping[str, Identity]) -> Fabric:
    uuids = {name: row["cluster_uuid"] for name, row in fabric.domains.items()}
    domain_of = {name: accepted.cliques[tray["clique"]]["domain"] for name, tray in accepted.trays.items()}
    found = _recognised(accepted, uuids, domain_of, owners, {name: uuid for name, (uuid, _id) in reports.items()})
    domains = {
        name: cast(Domain, {**fabric.domains[name], "cluster_uuid": uuid})
        for name, uuid in found.items()
        if uuid not in uuids.values()
    }
    return replace(fabric, domains={**fabric.domains, **domains})


def _with_clique_ids(fabric: Fabric, accepted: Fabric, owners: Owners, reports: Mapping[str, Identity]) -> Fabric:
    """The fabric with new clique IDs; its cluster UUIDs are those that are reported now."""
    identities = {name: (fabric.cluster_uuid(name), row["clique_id"]) for name, row in fabric.cliques.items()}
    names = {identity: name for name, identity in identities.items()}
    clique_of = {name: tray["clique"] for name, tray in accepted.trays.items()}
    recognised = _recognised(accepted, identities, clique_of, owners, reports)
    members, sizes = accepted.members, Counter(accepted.cliques[clique]["domain"] for clique in clique_of.values())
    found = {
        name: identity
        for name, identity in recognised.items()
        if identity[0] == identities[name][0]
        and (len(members[name]) > 1 or sizes[accepted.cliques[name]["domain"]] == 1)
    }
    # An ID that another clique keeps is not free; cliques may exchange theirs.
    while taken := [name for name, identity in found.items() if names.get(identity, name) not in found]:
        for name in taken:
            del found[name]
    cliques = {name: cast(Clique, {**fabric.cliques[name], "clique_id": row[1]}) for name, row in found.items()}
    return replace(fabric, cliques={**fabric.cliques, **cliques})


def _recognised(
    accepted: Fabric,
    values: Mapping[str, V],
    group_of: Mapping[str, str],
    owners: Owners,
    reports: Mapping[str, V],
) -> dict[str, V]:
    """Domain or clique -> the new value by which its GPUs are recognised.

    values: domain or clique -> its known value. group_of: accepted tray -> its domain or clique. reports: observed tray
    -> the value that it reports.
    """
    sizes: Counter[str] = Counter()
    for name, group in group_of.items():
        sizes[group] += len(_gpus(accepted, name))
    reported: dict[V, Counter[str]] = defaultdict(Counter)
    unchanged: set[str] = set()
    for name, value in reports.items():
        for owner, gpus in owners[name].items():
            reported[value][group_of[owner]] += gpus
        # A tray whose GPUs are all new still belongs to its domain.
        groups = {group_of[tray] for tray in (name, *owners[name]) if tray in group_of}
        unchanged.update(group for group in groups if values[group] == value)
    observed: Counter[str] = Counter()
    for gpus_of in reported.values():
        observed.update(gpus_of)
    found = {}
    for value, gpus_of in reported.items():
        for group, gpus in gpus_of.most_common(1):
            # Where groups join, the trays of the other one that are down have joined, too.
            others = sum(
                sizes[other] if known * 2 > observed[other] else known
                for other, known in gpus_of.items()
                if other != group
            )
            if group not in unchanged and gpus * 2 > sizes[group] and gpus > others:
                found[group] = value
    return found
