# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fourth step of a placement: names of domains and cliques, assigned once, stable, never reused. Pure."""

from __future__ import annotations

import itertools
import string
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.claims import Claims
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    Domain,
    Fabric,
    Identity,
    natural_sorted,
    tray_finding,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import PlacementError, Policy

Attached = tuple[Identity, str | None]
"""The clique of an attached tray, and its chassis serial."""

Chassis = set[tuple[str, str]]
"""(cluster UUID, chassis serial)."""


@dataclass(frozen=True)
class Names:
    """The names of a run. None is removed, so no name is reused.

    domains: all that ever had a name; new ones without chassis and size. cliques: new clique -> (domain, clique ID).
    places: claimed tray -> clique. chassis: those that a domain has or gets.
    """

    domains: dict[str, Domain]
    cliques: dict[str, tuple[str, int]]
    places: dict[str, str]
    chassis: Chassis
    findings: list[Finding]


def assign(previous: Fabric, claims: Claims, policy: Policy) -> Names:
    """Name the domains and cliques that have no name yet, in the order of the trays."""
    chassis, findings = _confirmed_chassis(previous, claims)
    register = _Register(previous, _suggested(previous, claims, policy))
    attached = ((claims.identity(name), claim.chassis_serial) for name, claim in claims.trays.items())
    register.name((identity, serial if (identity[0], serial) in chassis else None) for identity, serial in attached)
    places = {name: register.clique_of[claims.identity(name)] for name in claims.trays}
    return Names(register.domains, register.cliques, places, chassis, [*findings, *register.findings])


def check(accepted: Fabric, policy: Policy) -> None:
    """PlacementError where the site gives an accepted domain another name than it has, which would have no effect."""
    for name, domain in accepted.domains.items():
        given = policy.domain_names.get(domain["cluster_uuid"], name)
        if given != name:
            raise PlacementError(
                f"domain_names: {domain['cluster_uuid']} is the NVLink domain {name}, and names stay as they are; "
                f"write {name} instead of {given}, or remove it"
            )


def unused(fabric: Fabric, policy: Policy) -> Iterator[Finding]:
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
    """The chassis that a domain has or gets, and findings about the others.

    Two trays must report a chassis that the domain does not have, so that no single tray can add one. A domain without
    a serial takes those of single trays if no two of them agree, as in a rack of one tray.
    """
    known = {(row["cluster_uuid"], serial) for row in previous.domains.values() for serial in row["chassis_serials"]}
    reported: dict[str, Counter[str]] = defaultdict(Counter)
    for name, claim in claims.trays.items():
        if claim.chassis_serial:
            reported[claims.identity(name)[0]][claim.chassis_serial] += 1
    confirmed = set(known)
    for uuid, serials in reported.items():
        several = {serial for serial, trays in serials.items() if trays > 1}
        first = not several and not any(domain == uuid for domain, _serial in known)
        confirmed.update((uuid, serial) for serial in (serials if first else several))
    findings = []
    for name, claim in claims.trays.items():
        if claim.chassis_serial and (claims.identity(name)[0], claim.chassis_serial) not in confirmed:
            what = f"alone in its NVLink domain reports the chassis {claim.chassis_serial}"
            remedy = "check its place and its baseboard controller"
            findings.append(tray_finding(name, "tray_misplaced", what, remedy))
    return confirmed, findings


class _Register:
    """All domains and cliques that ever had a name."""

    def __init__(self, fabric: Fabric, domain_names: Mapping[str, str]) -> None:
        self.domains: dict[str, Domain] = dict(fabric.domains)
        self.cliques: dict[str, tuple[str, int]] = {}
        self.clique_of = {
            (fabric.domains[clique["domain"]]["cluster_uuid"], clique["clique_id"]): name
            for name, clique in fabric.cliques.items()
        }
        self.findings: list[Finding] = []
        self._domain_names = domain_names
        self._domain_of = {domain["cluster_uuid"]: name for name, domain in fabric.domains.items()}
        self._chassis_of = {name: set(domain["chassis_serials"]) for name, domain in fabric.domains.items()}
        self._used = _used(fabric)

    def name(self, trays: Iterable[Attached]) -> None:
        """Name the domains and cliques that have no name yet, in the order of the trays."""
        cliques: dict[str, dict[Identity, None]] = defaultdict(dict)
        serials: dict[str, set[str]] = defaultdict(set)
        for identity, serial in trays:
            if identity not in self.clique_of:
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
                name = next(names)
                self._used.add(name)
                self.clique_of[identity] = name
                self.cliques[name] = (domain, identity[1])

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
                    "set another name in domain_names before you accept it."
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
