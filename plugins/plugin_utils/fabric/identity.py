# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which domain and clique a tray is in, and their names: the first steps of a placement, in this order. Pure.

- collect(): which observations place their tray. A GPU belongs to one tray: a second tray that claims it is in conflict
  and changes nothing.
- follow(): known domains and cliques whose cluster UUID or clique ID changed.
- hold(): domains of which only a part reports a new cluster UUID yet.
- decide(): NVLink domains that are split per tray, and the policy of the site for them. NVIDIA's infra-controller can
  give each idle tray an NVLink partition of its own, and moves its GPUs to that of a tenant when it creates an instance
  (issue 1559). What such a domain should be to Slurm is for the site to decide.
- assign(): names of domains and cliques, assigned once, stable, never reused.

The fabric manager generates cluster UUIDs and clique IDs: a fabric that is built again has another cluster UUID,
partitions that are created again have other clique IDs, and the GPUs stay. So a domain or clique is recognised by its
GPUs, where:

- more than half of the GPUs that the fabric file gives it report the new value,
- at least half of the known GPUs that report the new value are its own, where another domain or clique of which most
  observed GPUs report it counts with all of its GPUs; of two with as many, the first by name keeps its name, and
- none of its trays reports the old value.

GPU UUIDs suffice: they are as permanent as fabric GUIDs, which nvidia-smi and most sources do not report. Chassis
serials do not identify a domain, since those of one rack may share a serial; the gate chassis_changed objects to a
recognised domain with another chassis. A clique ID is recognised within its domain only, and a cluster UUID of the
fabric file never becomes that of another domain. A clique of one tray is recognised only in a domain of one tray: where
a domain is split per tray, the last tray of a clique would take its name away from those that join it again.
"""

from __future__ import annotations

import itertools
import string
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar, cast

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    KEEP_BLOCK,
    Clique,
    Domain,
    Fabric,
    Identity,
    Observation,
    tray_finding,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import ASK, PlacementError, Policy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import equal, natural_key, natural_sorted
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.forms import NODE_NAME, RESERVED


@dataclass(frozen=True)
class Claims:
    """The attached trays of a run.

    trays: the observations that place their tray, each with an identity. rivals: rejected tray -> the owner of the GPUs
    that it claims. held: tray without effect -> the new cluster UUID that it reports and its domain (see hold()).
    """

    trays: dict[str, Observation]
    rivals: dict[str, str]
    findings: list[Finding]
    held: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @cached_property
    def chassis(self) -> set[str | None]:
        """The serials of the chassis of all attached trays."""
        return {claim.chassis_serial for claim in self.trays.values()}

    def identity(self, tray: str) -> Identity:
        """The clique in which a tray of `trays` is attached."""
        return cast(Identity, self.trays[tray].identity)


def collect(previous: Fabric, observed: Mapping[str, Observation], policy: Policy) -> Claims:
    """Collect the attached trays, without those that claim a GPU of another tray."""
    trays: dict[str, Observation] = {}
    findings: list[Finding] = []
    for name, observation in observed.items():
        if observation.identity is None:
            continue
        if name in RESERVED or name in policy.groups:
            what = "has the name of the controller or of a group of the inventory"
            findings.append(tray_finding(name, "illegal_tray_name", what, "rename it in its source"))
        elif NODE_NAME.fullmatch(name):
            trays[name] = observation
        else:
            what = "has a name that is not valid in a Slurm hostlist"
            findings.append(tray_finding(name, "illegal_tray_name", what, "rename it in the inventory"))
    return without_rivals(previous, Claims(trays, {}, findings), "give each tray a single name in the inventory")


def without_rivals(fabric: Fabric, claims: Claims, remedy: str) -> Claims:
    """The claims without those of a GPU of another tray: one that claims it too, or one that keeps what it has."""
    known = {name: tray["gpu_uuids"] for name, tray in fabric.trays.items()}
    rivals = _double_claims(known, {name: claim.gpu_uuids for name, claim in claims.trays.items()})
    found = [tray_finding(name, "illegal_tray_name", f"reports GPUs of {rivals[name]}", remedy) for name in rivals]
    return replace(
        claims,
        trays={name: row for name, row in claims.trays.items() if name not in rivals},
        rivals={**claims.rivals, **rivals},
        findings=[*claims.findings, *found],
    )


def _double_claims(known: Mapping[str, Collection[str]], claims: Mapping[str, Collection[str]]) -> dict[str, str]:
    """Map each tray whose claim is dropped to the tray that keeps the GPU.

    known: tray -> its GPUs in the fabric file, where a GPU has one tray. claims: tray -> GPUs that it reports now.
    A GPU goes to its tray in the fabric, unless that tray now reports others; else to the first tray by name. A tray
    whose claim is dropped falls back to its GPUs in the fabric, which another tray may claim in turn.
    """
    claims = dict(claims)
    claimants: dict[str, set[str]] = defaultdict(set)
    for name, gpus in {**known, **claims}.items():
        for gpu in gpus:
            claimants[gpu].add(name)
    contested = sorted(gpu for gpu, names in claimants.items() if len(names) > 1)
    dropped: dict[str, str] = {}
    while contested:
        gpu_uuid = contested.pop()
        names = natural_sorted(claimants[gpu_uuid])
        owner = next((name for name in names if gpu_uuid in known.get(name, ())), None) or next(iter(names), None)
        for name in names:
            if name == owner or owner is None:
                continue
            for gpu in claims.pop(name):
                claimants[gpu].discard(name)
            for gpu in known.get(name, ()):
                claimants[gpu].add(name)
                contested.append(gpu)
            dropped[name] = owner
    return dropped


V = TypeVar("V", bound=Hashable)


def follow(fabric: Fabric, accepted: Fabric, attached: Mapping[str, Observation]) -> Fabric:
    """The fabric with the cluster UUIDs and clique IDs that its GPUs report now; itself where all report what it has.

    accepted: the fabric of the fabric file, to which a pending proposal adds trays; it has the tray of each GPU.
    attached: tray -> its observation, with an identity.
    """
    reports = {name: row.identity for name, row in attached.items() if row.identity}
    clique_of = {name: tray["clique"] for name, tray in accepted.trays.items()}
    identities = {name: fabric.identity(name) for name in fabric.cliques}
    if not clique_of or all(name in clique_of and identities[clique_of[name]] == now for name, now in reports.items()):
        return fabric
    owners = _owners(accepted, attached)
    with_uuids = _with_uuids(fabric, accepted, owners, reports)
    return _with_clique_ids(with_uuids, accepted, owners, reports)


def hold(known: Fabric, claims: Claims, policy: Policy) -> Claims:
    """The claims without those of a new cluster UUID that only a part of a domain reports yet.

    At least half of the trays that report it are trays of that domain, with their GPUs and in their positions. All of
    them keep what they have until follow() recognises the domain. known: the fabric of follow(). A UUID that the site
    names is that of another domain.
    """
    named = {row["cluster_uuid"] for row in known.domains.values()} | policy.domain_names.keys()
    reporting = equal((claims.identity(name)[0], name) for name in claims.trays)
    held: dict[str, tuple[str, str]] = {}
    for uuid in reporting.keys() - named:
        names = reporting[uuid]
        domains = [domain for name in names if (domain := _unchanged_domain(known, name, claims.trays[name]))]
        if len(set(domains)) == 1 and len(domains) * 2 >= len(names):
            held.update(dict.fromkeys(names, (uuid, domains[0])))
    return replace(claims, trays={name: row for name, row in claims.trays.items() if name not in held}, held=held)


def _unchanged_domain(known: Fabric, name: str, claim: Observation) -> str | None:
    """The domain of a tray that has the GPUs, slot and chassis that the fabric has for it; None for any other tray."""
    tray = known.trays.get(name)
    if tray is None or not set(claim.gpu_uuids) <= set(tray["gpu_uuids"]):
        return None
    domain = known.cliques[tray["clique"]]["domain"]
    serials = known.domains[domain]["chassis_serials"]
    same_chassis = not serials or claim.chassis_serial in (None, *serials)
    return domain if same_chassis and claim.tray_index in (None, tray["tray_index"]) else None


def changed_domains(before: Fabric, after: Fabric) -> set[str]:
    """The domains of both fabrics whose cluster UUID or clique IDs differ."""
    domains = {
        name
        for name, row in before.domains.items()
        if after.domains.get(name, row)["cluster_uuid"] != row["cluster_uuid"]
    }
    return domains.union(_renumbered(before, after)) & after.domains.keys()


def findings(before: Fabric, after: Fabric) -> Iterator[Finding]:
    """One finding for each domain whose cluster UUID or clique IDs changed."""
    renumbered = _renumbered(before, after)
    for name in natural_sorted(changed_domains(before, after)):
        uuids = [fabric.domains[name]["cluster_uuid"] for fabric in (before, after)]
        ids = summarize(renumbered.get(name, ()))
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


def _renumbered(before: Fabric, after: Fabric) -> dict[str, list[str]]:
    """Domain -> its cliques with their old and new clique IDs, where these differ."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in natural_sorted(before.cliques.keys() & after.cliques.keys()):
        old, new = before.cliques[name], after.cliques[name]
        if old["clique_id"] != new["clique_id"]:
            found[old["domain"]].append(f"{name} {old['clique_id']} -> {new['clique_id']}")
    return found


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
    reported = {name: uuid for name, (uuid, _id) in reports.items()}
    found = _recognised(accepted, uuids, accepted.domain_of, owners, reported)
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
        for group, gpus in sorted(gpus_of.items(), key=lambda item: (-item[1], natural_key(item[0])))[:1]:
            # Where groups join, the trays of the other one that are down have joined, too.
            others = sum(
                sizes[other] if known * 2 > observed[other] else known
                for other, known in gpus_of.items()
                if other != group
            )
            if group not in unchanged and gpus * 2 > sizes[group] and gpus >= others:
                found[group] = value
    return found


# One tray that leaves a clique of two is no split per tray.
_MIN_TRAYS = 2


def decide(fabric: Fabric, claims: Claims, policy: Policy, unplaced: int) -> tuple[Claims, dict[str, str]]:
    """The claims where trays keep their block, and cluster UUID -> policy of the domains to which one applies.

    unplaced: as in alone().

    The policy of the site precedes that of the fabric file; without either the gate tray_partitions decides.
    """
    known = {row["cluster_uuid"]: row.get("tray_partitions", ASK) for row in fabric.domains.values()}
    policies: dict[str, str] = {}
    trays = dict(claims.trays)
    for uuid, names in alone(fabric, {name: claims.identity(name) for name in claims.trays}, unplaced).items():
        chosen = known.get(uuid, ASK) if policy.tray_partitions == ASK else policy.tray_partitions
        if chosen == ASK:
            continue
        policies[uuid] = chosen
        for name in names & claims.trays.keys() & fabric.trays.keys() if chosen == KEEP_BLOCK else ():
            place = fabric.identity(fabric.trays[name]["clique"])
            if place[0] == uuid:
                trays[name] = replace(trays[name], identity=place)
    return replace(claims, trays=trays), policies


def alone(fabric: Fabric, reported: Mapping[str, Identity], unplaced: int = 0) -> dict[str, set[str]]:
    """Cluster UUID -> the trays that are each alone in a clique, of domains that are split per tray or have a policy.

    A domain is split per tray where at least half of its trays, and at least two, are each alone. reported: observed
    tray -> its clique; all others are where the fabric has them. unplaced: the number of trays without a place that
    gave no answer; each of them may share a clique with one that seems alone.
    """
    cliques = {name: fabric.identity(tray["clique"]) for name, tray in fabric.trays.items()}
    cliques.update(reported)
    sizes = Counter(cliques.values())
    trays: Counter[str] = Counter(uuid for uuid, _clique_id in cliques.values())
    single: dict[str, set[str]] = defaultdict(set)
    for name, identity in cliques.items():
        if sizes[identity] == 1:
            single[identity[0]].add(name)
    split = {uuid for uuid, names in single.items() if len(names) >= max(_MIN_TRAYS + unplaced, trays[uuid] / 2)}
    decided = {row["cluster_uuid"] for row in fabric.domains.values() if "tray_partitions" in row}
    return {uuid: single[uuid] for uuid in sorted(split | decided)}


Chassis = Mapping[str, set[str]]
"""Cluster UUID -> the chassis serials of its domain."""


def assign(previous: Fabric, claims: Claims, policy: Policy) -> Names:
    """Name the domains and cliques that have no name yet, in the order of the trays."""
    chassis, findings = _confirmed_chassis(previous, claims)
    names = Names(previous, _suggested(previous, claims, policy), chassis, findings)
    names.name(claims, policy.provisional)
    return names


def check_names(accepted: Fabric, policy: Policy) -> None:
    """PlacementError where the site gives an accepted domain another name than it has, which would have no effect."""
    for name, domain in accepted.domains.items():
        given = policy.domain_names.get(domain["cluster_uuid"], name)
        if given != name:
            raise PlacementError(
                f"domain_names: {domain['cluster_uuid']} is the NVLink domain {name}, and names stay as they are; "
                f"write {name} instead of {given}, or remove it"
            )


def unused_names(fabric: Fabric, policy: Policy) -> Iterator[Finding]:
    """A finding for each name that no domain of the fabric has."""
    known: dict[str, set[str]] = defaultdict(set)
    for name, domain in fabric.domains.items():
        for key in (domain["cluster_uuid"], *domain["chassis_serials"]):
            known[key].add(name)
    for key, given in policy.domain_names.items():
        if given not in fabric.domains:
            has = f"is of NVLink domain {summarize(natural_sorted(known[key]))}" if known[key] else "is not known yet"
            message = f"{given} in fabric_domain_names names no NVLink domain: {key} {has}; discover it, or correct it."
            yield finding("name_conflict", message)


def _suggested(previous: Fabric, claims: Claims, policy: Policy) -> dict[str, str]:
    """Cluster UUID or chassis serial -> name of a new domain: the site's, else that under which it expects the trays.

    A domain whose trays are expected under several names, or under one that is in use, has none of the latter.
    """
    expected: dict[str, set[str]] = defaultdict(set)
    for name in claims.trays.keys() & policy.expected_in.keys():
        expected[claims.identity(name)[0]].add(policy.expected_in[name])
    names = dict(policy.domain_names)
    taken = {*_used(previous), *names.values()}
    for uuid, found in expected.items():
        if len(found) == 1 and taken.isdisjoint(found):
            names.setdefault(uuid, *found)
    return names


def _used(fabric: Fabric) -> set[str]:
    return {*fabric.domains, *fabric.cliques, *(clique["block"]["name"] for clique in fabric.cliques.values())}


def _confirmed_chassis(previous: Fabric, claims: Claims) -> tuple[Chassis, list[Finding]]:
    """The chassis that each domain has then, and findings about others that single trays report.

    Two trays must report a chassis that the domain does not have, so that no single tray can add one. A domain without
    a serial takes those of single trays if no two of them agree, as in a rack of one tray. A domain loses a chassis
    where all its trays report others.
    """
    chassis = {row["cluster_uuid"]: {*row["chassis_serials"]} for row in previous.domains.values()}
    reported: dict[str, Counter[str]] = defaultdict(Counter)
    for name, claim in claims.trays.items():
        if claim.chassis_serial:
            reported[claims.identity(name)[0]][claim.chassis_serial] += 1
    silent = {
        previous.cluster_uuid(tray["clique"])
        for name, tray in previous.trays.items()
        if name not in claims.trays or not claims.trays[name].chassis_serial
    }
    for uuid, serials in reported.items():
        known, several = chassis.get(uuid, set()), {serial for serial, trays in serials.items() if trays > 1}
        now = known.union(several if several or known else serials)
        chassis[uuid] = now if uuid in silent else now.intersection(serials) or now
    findings = []
    for name, claim in claims.trays.items():
        if claim.chassis_serial and claim.chassis_serial not in chassis[claims.identity(name)[0]]:
            what = f"alone in its NVLink domain reports the chassis {claim.chassis_serial}"
            remedy = "check its place and its baseboard controller"
            findings.append(tray_finding(name, "tray_misplaced", what, remedy))
    return chassis, findings


class Names:
    """All domains and cliques that ever had a name, and those that get one in this run. None is removed or reused.

    domains: all; new ones without chassis and size. cliques: new clique -> (domain, clique ID). places: claimed tray ->
    clique. chassis: those that each domain has then.
    """

    def __init__(
        self, fabric: Fabric, domain_names: Mapping[str, str], chassis: Chassis, findings: list[Finding]
    ) -> None:
        self.domains: dict[str, Domain] = dict(fabric.domains)
        self.cliques: dict[str, tuple[str, int]] = {}
        self.places: dict[str, str] = {}
        self.chassis, self.findings = chassis, findings
        self._clique_of = {fabric.identity(name): name for name in fabric.cliques}
        self._domain_names = domain_names
        self._domain_of = {domain["cluster_uuid"]: name for name, domain in fabric.domains.items()}
        self._chassis_of = {name: set(domain["chassis_serials"]) for name, domain in fabric.domains.items()}
        self._used = _used(fabric)

    def name(self, claims: Claims, provisional: bool) -> None:
        """Name the domains and cliques that have no name yet, in the order of the trays; provisional: as in Policy."""
        cliques: dict[str, dict[Identity, None]] = defaultdict(dict)
        serials: dict[str, set[str]] = defaultdict(set)
        for tray, claim in claims.trays.items():
            identity = claims.identity(tray)
            if identity not in self._clique_of:
                cliques[identity[0]][identity] = None
                if claim.chassis_serial and claim.chassis_serial in self.chassis[identity[0]]:
                    serials[identity[0]].add(claim.chassis_serial)
        for uuid, identities in cliques.items():
            domain = self._domain_of.get(uuid)
            alone = domain is None and len(identities) == 1
            domain = domain or self._new_domain(uuid, natural_sorted(serials[uuid]))
            names = iter([domain]) if alone else self._suffixed(domain)
            for identity in identities:
                name = f"{domain}_{identity[1]}" if provisional else next(names)
                self._used.add(name)
                self._clique_of[identity] = name
                self.cliques[name] = (domain, identity[1])
        self.places = {tray: self._clique_of[claims.identity(tray)] for tray in claims.trays}

    def _new_domain(self, uuid: str, serials: Collection[str]) -> str:
        names = [self._domain_names[key] for key in (uuid, *serials) if key in self._domain_names]
        name = next((name for name in names if name not in self._used), None)
        if name is None and uuid not in self._domain_names:
            name = self._name_in_chassis(serials)
        if name is None:
            numbers = itertools.count(len(self.domains) + 1)
            name = next(auto for auto in map("r{:02d}".format, numbers) if auto not in self._used)
            if names:
                message = (
                    f"NVLink domain {uuid} is named {name}, since {names[0]} is in use; "
                    "set another name in fabric_domain_names before you accept it."
                )
                self.findings.append(finding("name_conflict", message, domain=name))
        self._used.add(name)
        self._domain_of[uuid] = name
        self._chassis_of[name] = set(serials)
        self.domains[name] = {"cluster_uuid": uuid, "chassis_serials": [], "expected_trays": 0}
        return name

    def _name_in_chassis(self, serials: Iterable[str]) -> str | None:
        """A numbered name (hall_2) for a further domain of a chassis that the site names; None where it names none.

        The mini-racks of Vera Rubin are several domains whose trays report the serial of one rack
        (NVIDIA/infra-controller issue 4132).
        """
        for serial in serials:
            name = self._domain_names.get(serial)
            if name and serial in self._chassis_of.get(name, ()):
                numbered = (f"{name}_{number}" for number in itertools.count(2))
                taken = {*self._used, *self._domain_names.values()}
                return next(word for word in numbered if word not in taken)
        return None

    def _suffixed(self, domain: str) -> Iterator[str]:
        """Free clique names of a domain: r01a ... r01z, r01aa ..."""
        words = (itertools.product(string.ascii_lowercase, repeat=size) for size in itertools.count(1))
        names = (f"{domain}{''.join(word)}" for word in itertools.chain.from_iterable(words))
        return (name for name in names if name not in self._used)
