# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the last fabric and what was observed now to the next fabric, with a reason for every step.

Pure: no file and no clock, so equal input gives equal bytes, whatever the order of the observations. The rules:

- A tray is placed, or moved, only by an attached observation. One that is down, in progress, unhealthy or in conflict
  keeps the place it has.
- Only a target of this run may become stale.
- Names and block positions are given once, never changed and never given again: domains and cliques are never removed.
- A domain is its cluster UUID, a clique is (cluster UUID, clique ID); a clique ID alone means nothing.
- A GPU belongs to one tray. A second tray that claims it is in conflict and changes nothing.
"""

from __future__ import annotations

import itertools
import re
import string
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import addresses
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric_file import NODE_NAME
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.model import (
    CONFLICT,
    PRESENT,
    STALE,
    UNKNOWN,
    UNPLACED,
    Change,
    Clique,
    Domain,
    Fabric,
    Finding,
    Observation,
    State,
    Tray,
    TrayState,
    natural_key,
    natural_sorted,
)

_DOMAIN_NAME = re.compile(r"[A-Za-z0-9_]{1,64}")

Identity = tuple[str, int]
"""(cluster UUID, clique ID)"""


class PlacementError(NvlinkError):
    """What a site has written about its trays cannot be followed."""


@dataclass(frozen=True)
class Policy:
    """What a site decides about placement.

    imex_networks: CIDRs, the preferred first, of which a tray's imex_address is taken.
    domain_names: cluster UUID or chassis serial -> name of the NVLink domain, used when the domain is first seen.
    expected_trays: trays that every domain should have; None counts them when a domain is first seen.
    moved_percent: gate; more of the placed trays than this must not move in one go. One tray alone may, unless it is 0.
    """

    imex_networks: tuple[str, ...] = ()
    domain_names: Mapping[str, str] = field(default_factory=dict)
    expected_trays: int | None = None
    moved_percent: float = 10

    def __post_init__(self) -> None:
        addresses.networks(self.imex_networks)
        for key, name in self.domain_names.items():
            if not (isinstance(name, str) and _DOMAIN_NAME.fullmatch(name)):
                raise PlacementError(
                    f"domain_names: {name!r} of {key!r} is not fit for a group name; "
                    "use 1 to 64 letters, digits and underscores"
                )
        if self.expected_trays is not None and self.expected_trays < 1:
            raise PlacementError(f"expected_trays: {self.expected_trays} must be at least 1; leave it out to count")
        if not 0 <= self.moved_percent <= 100:
            raise PlacementError(f"moved_percent: {self.moved_percent} must be a number from 0 to 100")


@dataclass(frozen=True)
class Placement:
    """The next fabric and all that is to be said of it. objections: the gates' findings, empty where none objects."""

    fabric: Fabric
    state: State
    changes: list[Change]
    objections: list[Finding]

    @property
    def findings(self) -> list[Finding]:
        """Every finding: the trays' own, then those of the fabric."""
        return [*(row for tray in self.state.trays.values() for row in tray["findings"]), *self.state.findings]


def place(
    previous: Fabric | None,
    previous_state: State | None,
    observations: Iterable[Observation],
    targets: Collection[str],
    now: str,
    policy: Policy,
) -> Placement:
    """The next fabric and state.

    observations holds at most one for each target; a target without one gave no answer, and one of a tray that is no
    target is ignored. now is UTC as in 2026-11-21T05:00:00Z. PlacementError if what the site says contradicts itself.
    """
    previous = previous or Fabric()
    seen = {name: Observation(name, "", reachable=False, problem="no answer in this run") for name in targets}
    seen.update((observation.tray, observation) for observation in observations if observation.tray in seen)
    run = _Run(previous, seen, now, policy)
    run.settle_claims()
    run.place_claims()
    run.follow_the_site()
    fabric = Fabric(run.domains, run.cliques, run.trays, previous.overrides)
    trays = run.tray_states(previous_state)
    findings = [*run.fabric_findings(previous_state), *_fleet_findings(fabric, trays)]
    objections = [objection for gate in _GATES for objection in gate(previous, run.changes, policy)]
    return Placement(fabric, State(trays, findings, now), run.changes, objections)


def awaiting(placement: Placement, accepted: Fabric | None) -> State:
    """The state to write while a person has yet to accept the placement: the fabric file still says the old places."""
    places = accepted.trays if accepted else {}
    trays = dict(placement.state.trays)
    for change in placement.changes:
        name = change["tray"]
        if name not in trays or change["from"] == change["to"]:
            continue
        message = f"Tray {name} is seen in {change['to']}; accept the proposal to give it that place."
        tray = cast(TrayState, dict(trays[name]))
        tray["findings"] = [*tray["findings"], finding("awaiting_acceptance", message, tray=name)]
        if name not in places:
            # The fabric file does not tell what it would tell of a placed tray, so the state does.
            seen = placement.fabric.trays[name]
            tray["state"], tray["tray_index"], tray["gpu_count"] = UNPLACED, seen["tray_index"], len(seen["gpu_uuids"])
        trays[name] = tray
    return replace(placement.state, trays=trays)


def settled(state: State, accepted: Fabric) -> State:
    """The state after a person has accepted: who awaited that has a place now."""
    trays = {}
    for name, tray in state.trays.items():
        kept = [row for row in tray["findings"] if row["code"] != "awaiting_acceptance"]
        if len(kept) != len(tray["findings"]):
            tray = cast(TrayState, {**tray, "findings": kept})
            if tray["state"] == UNPLACED and name in accepted.trays:
                tray["state"] = PRESENT
                tray.pop("tray_index", None)
                tray.pop("gpu_count", None)
        trays[name] = tray
    return replace(state, trays=trays)


class _Run:
    """One placement under way: drafts of the fabric's parts, changed step by step."""

    def __init__(self, previous: Fabric, seen: Mapping[str, Observation], now: str, policy: Policy) -> None:
        self.previous, self.seen, self.now, self.policy = previous, seen, now, policy
        self.domains: dict[str, Domain] = dict(previous.domains)
        self.cliques: dict[str, Clique] = dict(previous.cliques)
        self.trays: dict[str, Tray] = dict(previous.trays)
        self.changes: list[Change] = []
        # Attached observations that may place their tray, in natural order, and for those that may not: whose GPUs.
        self.claims: dict[str, Observation] = {}
        self.rivals: dict[str, str] = {}
        self._findings: dict[str, list[Finding]] = defaultdict(list)
        self._fabric_findings: list[Finding] = []
        self._imex_networks = addresses.networks(policy.imex_networks)

    # --- who may be placed ---

    def settle_claims(self) -> None:
        """Collect the attached trays, less those that claim a GPU of another tray."""
        for name in natural_sorted(self.seen):
            observation = self.seen[name]
            if observation.identity is None:
                continue
            if not NODE_NAME.fullmatch(name):
                self._say(name, "illegal_tray_name", "cannot stand in a hostlist", "rename it in the inventory")
            elif not observation.gpu_uuids:
                self._say(name, "unusable_value", "reports no usable GPU UUID", "check its driver")
            else:
                self.claims[name] = observation
        self._drop_double_claims()

    def _drop_double_claims(self) -> None:
        """Let each GPU have one tray: the one that has it in the fabric, else the first by name.

        A claim that is dropped falls back to the GPUs that the fabric knows of its tray, which may in turn be claimed
        by another, so a list of contested GPUs is worked off.
        """
        holders: dict[str, set[str]] = defaultdict(set)
        for name in self.trays.keys() | self.claims.keys():
            for uuid in self._gpus_of(name):
                holders[uuid].add(name)
        contested = sorted(uuid for uuid, names in holders.items() if len(names) > 1)
        while contested:
            uuid = contested.pop()
            names = natural_sorted(holders[uuid])
            if len(names) < 2:
                continue
            owner = next((name for name in names if uuid in self._known_gpus(name)), names[0])
            for loser in names:
                if loser == owner:
                    continue
                for claimed in self._gpus_of(loser):
                    holders[claimed].discard(loser)
                del self.claims[loser]
                self.rivals[loser] = owner
                for known in self._known_gpus(loser):
                    holders[known].add(loser)
                    contested.append(known)
        for name, owner in self.rivals.items():
            self._say(name, "tray_known_twice", f"has GPUs of {owner}", "give one tray one name in the inventory")

    def _gpus_of(self, name: str) -> Collection[str]:
        claim = self.claims.get(name)
        return claim.gpu_uuids if claim else self._known_gpus(name)

    def _known_gpus(self, name: str) -> Collection[str]:
        known = self.previous.trays.get(name)
        return known["gpu_uuids"] if known else ()

    # --- places ---

    def place_claims(self) -> None:
        """Give every claim its clique, new names where there are none, and bring its tray up to date."""
        names = self._name_cliques()
        places = {name: names[cast(Identity, claim.identity)] for name, claim in self.claims.items()}
        imex = self._imex_addresses(places)
        for name, claim in self.claims.items():
            self._place(name, claim, places[name], imex[name])
        self._describe_domains(places)

    def _name_cliques(self) -> dict[Identity, str]:
        """Every clique's name by its identity; new ones in the order of their domains' and their own first trays."""
        uuid_of = {name: domain["cluster_uuid"] for name, domain in self.domains.items()}
        domain_of = {uuid: name for name, uuid in uuid_of.items()}
        names = {(uuid_of[row["domain"]], row["clique_id"]): name for name, row in self.cliques.items()}
        new: dict[str, list[Identity]] = defaultdict(list)
        serials: dict[str, set[str]] = defaultdict(set)
        for claim in self.claims.values():
            identity = cast(Identity, claim.identity)
            uuid = identity[0]
            if claim.chassis_serial:
                serials[uuid].add(claim.chassis_serial)
            if identity not in names and identity not in new[uuid]:
                new[uuid].append(identity)
        used = {*self.domains, *self.cliques, *(row["block"]["name"] for row in self.cliques.values())}
        positions = itertools.count(1 + max((row["block"]["position"] for row in self.cliques.values()), default=-1))
        for uuid, identities in new.items():
            if not identities:
                continue
            domain = domain_of.get(uuid)
            if domain is None:
                domain = self._new_domain(uuid, natural_sorted(serials[uuid]), used)
                free = iter([domain]) if len(identities) == 1 else _suffixed(domain, used)
            else:
                free = _suffixed(domain, used)
            for identity in identities:
                name = next(free)
                used.add(name)
                names[identity] = name
                block = {"name": name, "position": next(positions)}
                self.cliques[name] = cast(Clique, {"domain": domain, "clique_id": identity[1], "block": block})
        return names

    def _new_domain(self, uuid: str, serials: list[str], used: set[str]) -> str:
        wanted = [self.policy.domain_names[key] for key in (uuid, *serials) if key in self.policy.domain_names]
        name = next((name for name in wanted if name not in used), None)
        if name is None:
            numbers = itertools.count(len(self.domains) + 1)
            name = next(auto for auto in (f"r{number:02d}" for number in numbers) if auto not in used)
            if wanted:
                message = (
                    f"NVLink domain {uuid} is named {name}, since {wanted[0]} is in use; "
                    f"give it a name of its own in domain_names before accepting it."
                )
                self._fabric_findings.append(finding("domain_name_taken", message, domain=name))
        used.add(name)
        self.domains[name] = {"cluster_uuid": uuid, "chassis_serials": [], "expected_trays": 0}
        return name

    def _place(self, name: str, claim: Observation, clique: str, imex_address: str | None) -> None:
        uuid, clique_id = cast(Identity, claim.identity)
        where, date = f"attached in clique {uuid}.{clique_id}", self.now[:10]
        old = self.previous.trays.get(name)
        if old is None:
            new = self._new_tray(name, claim, clique, imex_address, f"placed {date}: {where}")
            self.trays[name] = new
            self._change(name, None, clique, "placed", new["why"])
            return
        known, gpus = set(old["gpu_uuids"]), set(claim.gpu_uuids)
        new = cast(Tray, dict(old))
        steps: list[tuple[str, str]] = []
        if gpus < known:
            lost = f"shows {len(gpus)} of the {len(known)} GPUs that the fabric file knows"
            self._say(name, "gpu_missing", lost, "reset or replace the missing ones")
        elif gpus != known:
            new["gpu_uuids"] = list(claim.gpu_uuids)
            steps.append(("gpus", f"{len(gpus - known)} of {len(gpus)} GPUs are new"))
        if claim.tray_index is not None and claim.tray_index != old["tray_index"]:
            new["tray_index"] = claim.tray_index
            steps.append(("slot", f"tray_index {_shown(old['tray_index'])} -> {claim.tray_index}"))
        if imex_address != old["imex_address"]:
            new["imex_address"] = imex_address
            steps.append(("address", f"imex_address {_shown(old['imex_address'])} -> {_shown(imex_address)}"))
        swapped = not gpus & known
        if clique != old["clique"]:
            new["clique"] = clique
            new["why"] = f"moved {date} from {old['clique']}: {where}{', all its GPUs are new' if swapped else ''}"
            steps = [("moved", new["why"])]
        elif swapped:
            new["why"] = f"replaced {date}: {where}, all its GPUs are new"
            steps = [("replaced", new["why"])]
        if swapped:
            self._say(name, "tray_replaced", "has none of the GPUs that it had", "accept it if the tray was swapped")
        if steps:
            self.trays[name] = new
            self._change(name, old["clique"], clique, steps[0][0], "; ".join(text for _kind, text in steps))

    def _new_tray(self, name: str, claim: Observation, clique: str, imex_address: str | None, why: str) -> Tray:
        return {
            "clique": clique,
            "tray_index": claim.tray_index,
            "gpu_uuids": list(claim.gpu_uuids),
            "imex_address": imex_address,
            "slurm_node": claim.slurm_node or name,
            "kubernetes_node": claim.kubernetes_node or name,
            "why": why,
        }

    def _imex_addresses(self, places: Mapping[str, str]) -> dict[str, str | None]:
        """An address for every claim, unique in its clique: the one it has while that still serves, else the best.

        An address that several trays show, as a container bridge has it, is no tray's own.
        """
        shown = Counter(row.address for claim in self.claims.values() for row in set(claim.addresses))
        taken: dict[tuple[str, str], str] = {}
        for name, tray in self.trays.items():
            if name not in self.claims and tray["imex_address"]:
                taken[tray["clique"], tray["imex_address"]] = name
        chosen: dict[str, str | None] = {}
        for name, claim in self.claims.items():
            old = self.previous.trays.get(name)
            address = old["imex_address"] if old else None
            # Without a look at its addresses, what was last known stands; so it does while an allowed one is only down.
            if address and not addresses.within(address, self._imex_networks):
                address = None
            shows = address in [row.address for row in claim.addresses] or not claim.addresses
            if address and shows and (places[name], address) not in taken:
                taken[places[name], address] = name
                chosen[name] = address
        for name, claim in self.claims.items():
            if name in chosen:
                continue
            best = addresses.candidates(claim.addresses, self._imex_networks, claim.ansible_host)
            free = (text for text in best if shown[text] == 1 and (places[name], text) not in taken)
            chosen[name] = address = next(free, None) or self._last_address(name, places[name], taken)
            if address:
                taken[places[name], address] = name
            else:
                remedy = "check its addresses and imex_network"
                self._say(name, "imex_address_missing", "has no address of its own for its IMEX domain", remedy)
        return chosen

    def _last_address(self, name: str, clique: str, taken: Mapping[tuple[str, str], str]) -> str | None:
        """What the fabric says, while the tray shows nothing better: an interface that is down loses no address."""
        old = self.previous.trays.get(name)
        address = old["imex_address"] if old else None
        allowed = address and addresses.within(address, self._imex_networks) and (clique, address) not in taken
        return address if allowed else None

    def _describe_domains(self, places: Mapping[str, str]) -> None:
        """Keep what a domain knows of its chassis and size: serials are collected, the expected size only grows."""
        sizes = Counter(self.cliques[tray["clique"]]["domain"] for tray in self.trays.values())
        serials: dict[str, set[str]] = defaultdict(set)
        for name, claim in self.claims.items():
            if claim.chassis_serial:
                serials[self.cliques[places[name]]["domain"]].add(claim.chassis_serial)
        for name, domain in self.domains.items():
            known = domain["chassis_serials"]
            declared = self.policy.expected_trays or domain["expected_trays"]
            expected = max(declared, sizes[name]) if sizes[name] else domain["expected_trays"]
            if expected != domain["expected_trays"] or not serials[name].issubset(known):
                self.domains[name] = {
                    "cluster_uuid": domain["cluster_uuid"],
                    "chassis_serials": natural_sorted({*known, *serials[name]}),
                    "expected_trays": expected,
                }

    # --- what the site says of its trays ---

    def follow_the_site(self) -> None:
        """Take node names and connection addresses from the site, of every target that has a place; it may say none."""
        for name in natural_sorted(self.seen.keys() & self.trays.keys()):
            observation, tray = self.seen[name], self.trays[name]
            said = {
                "slurm_node": observation.slurm_node,
                "kubernetes_node": observation.kubernetes_node,
                "ansible_host": observation.ansible_host if observation.ansible_host != name else None,
            }
            news = {key: value for key, value in said.items() if value and value != tray.get(key)}
            if news:
                steps = "; ".join(f"{key} {_shown(tray.get(key))} -> {value}" for key, value in news.items())
                self.trays[name] = cast(Tray, {**tray, **news})
                if name in self.previous.trays:
                    self._change(name, tray["clique"], tray["clique"], "name", steps)
        for key in ("slurm_node", "kubernetes_node"):
            self._one_tray_each(key)

    def _one_tray_each(self, key: str) -> None:
        owners: dict[str, str] = {}
        for name, tray in self.trays.items():
            node = cast(dict[str, Any], tray)[key]
            owner = owners.setdefault(node, name)
            if owner != name:
                raise PlacementError(
                    f"fabric_{key}: trays {owner} and {name} would both be {node}; let the site's expression differ"
                )

    # --- state ---

    def tray_states(self, previous_state: State | None) -> dict[str, TrayState]:
        """The state of every tray: of the targets as seen now, of the others as it was."""
        before = previous_state.trays if previous_state else {}
        states: dict[str, TrayState] = {}
        for name, tray in before.items():
            if name in self.seen:
                continue
            if name in self.trays and tray["state"] == UNPLACED:
                # A person has placed it by hand; nobody has seen it there yet.
                states[name] = cast(TrayState, {**tray, "state": STALE})
            elif name in self.trays or tray["state"] == UNPLACED:
                states[name] = tray
        for name in natural_sorted(self.seen):
            observation = self.seen[name]
            if name in self.trays or observation.gpu_count or not observation.reachable:
                states[name] = self._tray_state(name, observation, before.get(name))
            else:
                message = f"Host {name} shows no GPU and has no place; leave it out of fabric_hosts if it is no tray."
                self._fabric_findings.append(finding("not_a_tray", message, tray=name))
        return states

    def _tray_state(self, name: str, observation: Observation, before: TrayState | None) -> TrayState:
        placed = name in self.trays
        keeps = f"keeps its place in {self.trays[name]['clique']}" if placed else "gets no place"
        if not observation.reachable:
            word = STALE
            self._say(name, "tray_unreachable", f"{keeps}: {observation.problem}", "bring it back and discover again")
        elif observation.contrary or name in self.rivals:
            word = CONFLICT
            if observation.contrary:
                remedy = "give its GPUs one NVLink partition"
                self._say(name, "tray_not_attached", f"{keeps}: its GPUs are in different cliques", remedy)
        elif name in self.claims:
            word = PRESENT
        elif observation.node_local and not placed:
            # A host whose NVLink ends within it has nothing to be attached to.
            word = UNPLACED
        else:
            word = STALE
            remedy = "see its other findings, then discover again"
            self._say(name, "tray_not_attached", f"{keeps}: not all its GPUs are attached to one clique", remedy)
        # What an unreachable tray said last is still the best that is known of it.
        last = before if before and not observation.reachable else None
        state: TrayState = {
            "state": word if placed else UNPLACED,
            "health": observation.health if observation.reachable else UNKNOWN,
            "observed_at": last["observed_at"] if last else observation.observed_at,
            "source": last["source"] if last else observation.source or None,
            "driver_version": last["driver_version"] if last else observation.driver_version,
            "findings": sorted([*observation.findings, *self._findings.pop(name, [])], key=_finding_key),
        }
        if not placed:
            state["tray_index"] = last.get("tray_index") if last else observation.tray_index
            state["gpu_count"] = last.get("gpu_count", 0) if last else observation.gpu_count
        return state

    def fabric_findings(self, previous_state: State | None) -> list[Finding]:
        """Findings of this run that no tray's state holds, and earlier ones about hosts that were no target now."""
        before = previous_state.findings if previous_state else []
        kept = [row for row in before if row["code"] == "not_a_tray" and row.get("tray") not in self.seen]
        return sorted([*kept, *self._fabric_findings], key=_finding_key)

    # --- small words ---

    def _change(self, name: str, old: str | None, new: str, kind: str, why: str) -> None:
        self.changes.append({"tray": name, "from": old, "to": new, "kind": kind, "why": why})

    def _say(self, name: str, code: str, what: str, remedy: str) -> None:
        self._findings[name].append(finding(code, f"Tray {name} {what}; {remedy}.", tray=name))


def _fleet_findings(fabric: Fabric, trays: Mapping[str, TrayState]) -> Iterator[Finding]:
    """What only all trays of a domain or clique together show."""
    sizes = Counter(fabric.cliques[tray["clique"]]["domain"] for tray in fabric.trays.values())
    for name in natural_sorted(fabric.domains):
        expected = fabric.domains[name]["expected_trays"]
        if 0 < sizes[name] < expected:
            message = f"NVLink domain {name} has {sizes[name]} of {expected} expected trays; discover the others."
            yield finding("domain_incomplete", message, domain=name)
    for clique, members in fabric.members.items():
        versions = {trays[name]["driver_version"] for name in members if name in trays} - {None}
        if len(versions) > 1:
            told = ", ".join(natural_sorted(map(str, versions)))
            message = f"Clique {clique} runs drivers {told}; install one version on all its trays."
            yield finding("drivers_differ", message, clique=clique)


def _moved_too_many(previous: Fabric, changes: Iterable[Change], policy: Policy) -> Iterator[Finding]:
    moved = sum(change["kind"] == "moved" for change in changes)
    allowed = int(len(previous.trays) * policy.moved_percent / 100)
    if moved > (max(1, allowed) if policy.moved_percent else 0):
        message = (
            f"{moved} of {len(previous.trays)} placed trays move at once, more than moved_percent "
            f"{policy.moved_percent:g}; look at the proposal and accept it by its sha256 if that is meant."
        )
        yield finding("moved_percent", message)


Gate = Callable[[Fabric, Iterable[Change], Policy], Iterator[Finding]]
# A gate is one function and a row here.
_GATES: tuple[Gate, ...] = (_moved_too_many,)


def _suffixed(domain: str, used: Collection[str]) -> Iterator[str]:
    """Free clique names of a domain: r01a ... r01z, r01aa ... One that is used meanwhile is not given again."""
    words = (itertools.product(string.ascii_lowercase, repeat=size) for size in itertools.count(1))
    names = (f"{domain}{''.join(word)}" for word in itertools.chain.from_iterable(words))
    return (name for name in names if name not in used)


def _shown(value: object) -> str:
    return "none" if value is None else str(value)


def _finding_key(row: Finding) -> tuple[Any, ...]:
    gpu = row.get("gpu")
    return row["code"], natural_key(row.get("tray", "")), -1 if gpu is None else gpu, row["message"]
