# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Last step of a placement: gates that stop its acceptance without review, and findings about domains and cliques.

A gate or a finding is one function and a row in its table. A gate's name is the code of its finding; it also names the
trays whose changes it objects to.
"""

from __future__ import annotations

import datetime
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import identity
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    Change,
    Fabric,
    Observation,
    TrayState,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import PlacementError, Policy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import equal, natural_sorted
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, Subject, finding

Changes = Sequence[Change]
TrayStates = Mapping[str, TrayState]
Objection = tuple[Finding, Collection[str]]
"""A gate's finding, and the trays whose changes it objects to."""

# Kinds of changes of a tray's place or identity.
_OF_PLACE = ("placed", "moved", "replaced")
# By which the clock of a host may be ahead.
_MAX_SKEW = datetime.timedelta(minutes=5)
CLUSTER_KEYS = ("slurm_cluster", "kubernetes_cluster")


@dataclass(frozen=True)
class Step:
    """The change from one fabric to the next, which the gates check.

    states: tray -> its next state. observed: tray -> its observation in this run. unplaced: as in identity.alone().
    held: as in identity.Claims.
    """

    previous: Fabric
    fabric: Fabric
    changes: Changes
    now: str
    states: TrayStates = field(default_factory=dict)
    observed: Mapping[str, Observation] = field(default_factory=dict)
    unplaced: int = 0
    held: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def trays(self, *kinds: str) -> list[str]:
        """The trays with a change of one of these kinds; of any, if none is given."""
        return [change["tray"] for change in self.changes if not kinds or change["kind"] in kinds]

    def left(self, domain: str) -> list[str]:
        """The trays that move out of a clique of this domain."""
        return [tray for tray in self.trays("moved") if self.previous.domain_of.get(tray) == domain]

    def entered(self, domain: str, *kinds: str) -> list[str]:
        """The trays with a change of one of these kinds, any if none is given, that are in this domain then."""
        return [tray for tray in self.trays(*kinds) if self.fabric.domain_of.get(tray) == domain]


@dataclass(frozen=True)
class Verdict:
    """The result of all gates.

    objections: findings of those that object. gates: tray -> the gates that object to its change.
    overridden: a row for the fabric file for each gate that would object. findings: about domains, cliques and
    clusters.
    """

    objections: list[Finding]
    gates: dict[str, list[str]]
    overridden: list[dict[str, Any]]
    findings: list[Finding]


def check(step: Step, policy: Policy, pending: Collection[Mapping[str, Any]] = ()) -> Verdict:
    """Check all gates, and the next fabric as a whole.

    pending: override rows of the pending proposal. Each applies to exactly the same objection; an objection that has
    changed since must be overridden again.
    """
    accepted = {(row["gate"], row["what"]): dict(row) for row in pending}
    objections, overridden = [], []
    gates: dict[str, list[str]] = defaultdict(list)
    for row, concerned in (found for gate in _GATES for found in gate(step, policy)):
        before = accepted.get((row["code"], row["message"]))
        if before or row["code"] in policy.override:
            overridden.append(before or {"gate": row["code"], "when": step.now, "what": row["message"]})
        else:
            objections.append(row)
            for tray in concerned:
                gates[tray] = [*dict.fromkeys([*gates[tray], row["code"]])]
    findings = [row for of_fleet in _CHECKS for row in of_fleet(step.fabric, step.states, policy)]
    return Verdict(objections, gates, overridden, findings)


# --- gates ---


def _moved_too_many(step: Step, policy: Policy) -> Iterator[Objection]:
    moved, placed = len({*step.trays("moved"), *_changed_cluster(step)}), len(step.previous.trays)
    allowed = int(placed * policy.moved_percent / 100)
    if moved > (max(1, allowed) if policy.moved_percent else 0):
        message = (
            f"{moved} of {count(placed, 'placed tray')} would move in one run, more than fabric_moved_percent "
            f"{policy.moved_percent:g}; review the proposal and accept it by its sha256 if this is intended."
        )
        yield finding("moved_percent", message), step.trays("moved", "cluster")


def _changed_cluster(step: Step) -> list[str]:
    """Trays that leave a Slurm or Kubernetes cluster: the cluster loses a tray as a clique does by a move."""
    left = []
    for name in step.trays("cluster"):
        before, after = step.previous.trays.get(name), step.fabric.trays[name]
        if before and any(before.get(key, after.get(key)) != after.get(key) for key in CLUSTER_KEYS):
            left.append(name)
    return left


def _merged_or_split(step: Step, policy: Policy) -> Iterator[Objection]:
    """A domain whose trays all join another one has merged; one whose trays divide, some into a new one, has split.

    A tray that moves to another domain is neither, nor is a domain whose cluster UUID changes as a whole (_other_ids).
    """
    if not step.trays("moved"):
        return
    came, went = _moves(step)
    for new in natural_sorted(came):
        gone = natural_sorted(old for old in came[new] if old != new and went[old] == {new})
        if gone and len(came[new]) > 1:
            message = (
                f"NVLink domain {new} takes all trays of {summarize(gone)}; check the NVLink switches "
                "before you accept it."
            )
            yield finding("domain_merged", message, domain=new), [*step.left(new), *step.entered(new, "moved")]
    for old in natural_sorted(went):
        parts = natural_sorted(went[old])
        if len(parts) > 1 and not went[old] <= went.keys():
            message = (
                f"NVLink domain {old} splits into {summarize(parts)}; check the NVLink switches before you accept it."
            )
            yield finding("domain_split", message, domain=old), [*step.left(old), *step.entered(old, "moved")]


def _rotating(step: Step, policy: Policy) -> Iterator[Objection]:
    """A domain of which only a part reports a new cluster UUID."""
    sizes = Counter(step.fabric.domain_of.values())
    for uuid, domain in sorted(set(step.held.values())):
        trays = [tray for tray, row in step.held.items() if row == (uuid, domain)]
        message = (
            f"NVLink domain {domain} gets the cluster UUID {uuid}, so far on {len(trays)} of "
            f"{count(sizes[domain], 'tray')} ({summarize(trays)}): its names stay until the others report it too"
        )
        yield finding("rotation_in_progress", message, domain=domain), trays


def _other_ids(step: Step, policy: Policy) -> Iterator[Objection]:
    """A known domain with another cluster UUID or other clique IDs; one that joins a new domain with new GPUs.

    Domains that report each other's cluster UUIDs are one finding.
    """
    for row in identity.findings(step.previous, step.fabric):
        yield row, step.left(str(row["domain"]))
    came, went = _moves(step)
    whole = {old: min(new) for old, new in went.items() if len(new) == 1 and new != {old} and new <= went.keys()}
    exchanged = natural_sorted(old for old, new in whole.items() if came[new] == {old})
    if exchanged:
        message = (
            f"All trays of {summarize(exchanged)} report the cluster UUID of another NVLink domain, which its own trays"
            " have left, so they would take its block; check the NVLink switches before you accept it."
        )
        yield (
            finding("domain_uuid_changed", message, domain=exchanged[0]),
            [tray for old in exchanged for tray in step.left(old)],
        )
    for old in natural_sorted(went):
        new = min(went[old])
        if new not in went and (went[old], came[new]) == ({new}, {old}):
            message = (
                f"All trays of NVLink domain {old} join {new} with the cluster UUID "
                f"{step.fabric.domains[new]['cluster_uuid']}, and too few of their GPUs are known to keep the name; "
                "check which trays these are before you accept it."
            )
            yield finding("domain_uuid_changed", message, domain=old), step.left(old)


def _shrank(step: Step, policy: Policy) -> Iterator[Objection]:
    if not step.trays("moved"):
        return
    sizes = dict.fromkeys(step.fabric.domains, policy.expected_trays) if policy.expected_trays else {}
    sizes.update((name, len(trays)) for name, trays in policy.expected.items())
    cliques = [Counter(tray["clique"] for tray in fabric.trays.values()) for fabric in (step.previous, step.fabric)]
    domains = [Counter(domains.values()) for domains in (step.previous.domain_of, step.fabric.domain_of)]
    for name in natural_sorted(sizes):
        is_clique = name not in step.fabric.domains or (name in policy.expected and name in step.fabric.cliques)
        before, after = (sums[name] for sums in (cliques if is_clique else domains))
        if after < min(before, sizes[name]):
            message = (
                f"{'Clique' if is_clique else 'NVLink domain'} {name} shrinks from {before} to {after} of"
                f" {count(sizes[name], 'expected tray')}; find the missing trays before you accept it."
            )
            subject: Subject = {"clique": name} if is_clique else {"domain": name}
            moved = [row["tray"] for row in step.changes if (row["kind"], row["from"]) == ("moved", name)]
            yield finding("clique_shrank", message, **subject), moved if is_clique else step.left(name)


def _unknown(step: Step, policy: Policy) -> Iterator[Objection]:
    """New trays that are not declared or are declared elsewhere, and domains with more trays than each has."""
    placed, entered = step.trays("placed"), set(step.trays("moved")).intersection(_elsewhere(step.previous, policy))
    unknown = [tray for tray in placed if tray not in policy.expected_in] if policy.expected else []
    if unknown:
        message = (
            f"Trays not in expected and not in the fabric file: {summarize(unknown)}; declare them, or "
            "override the gate."
        )
        yield finding("unknown_trays", message), unknown
    elsewhere = _elsewhere(step.fabric, policy).items()
    places = equal((place, tray) for tray, place in elsewhere if tray in entered.union(placed))
    for (name, clique), trays in sorted(places.items()):
        message = (
            f"Trays expected in {name} would be placed in clique {clique}: {summarize(natural_sorted(trays))}; check "
            "their NVLink switches, or correct expected."
        )
        yield finding("unknown_trays", message, clique=clique), trays
    before, after = Counter(step.previous.domain_of.values()), Counter(step.fabric.domain_of.values())
    for name in natural_sorted(after.keys() - policy.expected.keys()) if policy.expected_trays else []:
        if after[name] > max(before[name], policy.expected_trays or 0):
            message = (
                f"NVLink domain {name} would have {count(after[name], 'tray')}, and expected_trays is "
                f"{policy.expected_trays}; check its NVLink switches, or correct fabric_expected_trays."
            )
            yield finding("unknown_trays", message, domain=name), step.entered(name, "placed", "moved")


def _elsewhere(fabric: Fabric, policy: Policy) -> dict[str, tuple[str, str]]:
    """Tray -> (the domain or clique in which it is declared, the clique that it is in), where these differ.

    A declared name that nothing has yet differs from the clique of its trays where other declared trays are in it.
    """
    declared: dict[str, set[str]] = defaultdict(set)
    for tray, name in policy.expected_in.items():
        if tray in fabric.trays:
            declared[fabric.trays[tray]["clique"]].add(name)
    found = {}
    for clique, names in declared.items():
        own = (clique, fabric.cliques[clique]["domain"])
        wrong = {
            name for name in names.difference(own) if len(names) > 1 or name in fabric.cliques or name in fabric.domains
        }
        for tray in fabric.members[clique] if wrong else ():
            if policy.expected_in.get(tray) in wrong:
                found[tray] = (policy.expected_in[tray], clique)
    return found


def _too_old(step: Step, policy: Policy) -> Iterator[Objection]:
    if policy.max_age is None:
        return
    now = datetime.datetime.fromisoformat(step.now)
    times_of = now - datetime.timedelta(seconds=policy.max_age), now + _MAX_SKEW
    # Also of a tray that an earlier run has observed, whose proposal this one adds to.
    times = {name: row["observed_at"] for name, row in step.states.items()}
    old = [tray for tray in step.trays(*_OF_PLACE) if not _is_in(times.get(tray), *times_of)]
    if old:
        message = (
            f"The observations that change the places of {summarize(old)} are older than fabric_max_age, "
            f"{policy.max_age:g} seconds, or from the future; observe them again, or correct their clocks."
        )
        yield finding("source_too_old", message), old


def _lost_addresses(step: Step, _policy: Policy) -> Iterator[Objection]:
    before = step.previous.trays
    lost = [
        name
        for name, tray in step.fabric.trays.items()
        if tray["imex_address"] is None and name in before and before[name]["imex_address"]
    ]
    if lost:
        message = (
            f"{count(len(lost), 'tray')} would lose imex_address ({summarize(natural_sorted(lost))}), because no"
            " address of theirs is in imex_network; correct imex_network."
        )
        yield finding("imex_addresses_lost", message), lost


def _other_chassis(step: Step, policy: Policy) -> Iterator[Objection]:
    # A chassis that another domain has comes with trays that move, which other gates check.
    known = {serial for domain in step.previous.domains.values() for serial in domain["chassis_serials"]}
    for name in [name for name in step.previous.domains if name in step.fabric.domains]:
        before, now = (set(fabric.domains[name]["chassis_serials"]) for fabric in (step.previous, step.fabric))
        if before and now - known:
            message = (
                f"NVLink domain {name} gets the chassis {summarize(natural_sorted(now - known))}; "
                "check the place of the trays that report it before you accept it."
            )
            yield finding("chassis_changed", message, domain=name), step.entered(name)
        elif now < before:
            message = (
                f"No tray of NVLink domain {name} reports the chassis {summarize(natural_sorted(before - now))} any "
                "more; check where its trays are installed before you accept it."
            )
            yield finding("chassis_changed", message, domain=name), step.entered(name)


def _one_slot(step: Step, policy: Policy) -> Iterator[Objection]:
    """Trays of one domain in the same slot of a chassis, of which one is new there: one of them reports another's."""
    entered, domain_of = set(step.trays(*_OF_PLACE, "slot")), step.fabric.domain_of
    slots = equal(
        ((domain_of[name], row.chassis_serial, row.tray_index, row.host_id), name)
        for name, row in step.observed.items()
        if row.identity and name in domain_of and row.chassis_serial and row.tray_index is not None
    )
    for (domain, serial, index, _host_id), trays in slots.items():
        if len(trays) > 1 and not entered.isdisjoint(trays):
            message = (
                f"Trays {summarize(trays)} of NVLink domain {domain} all report tray_index {index} of the chassis "
                f"{serial}; check where they are installed before you accept it."
            )
            yield finding("slot_conflict", message, domain=domain), trays


def _split_per_tray(step: Step, policy: Policy) -> Iterator[Objection]:
    """Trays that enter cliques of their own in a domain that is split per tray, where the site has not decided."""
    entered, sizes = set(step.trays("placed", "moved")), Counter(step.fabric.domain_of.values())
    single = identity.alone(step.fabric, {}, step.unplaced)
    for name in natural_sorted(step.fabric.domains):
        domain = step.fabric.domains[name]
        trays = single.get(domain["cluster_uuid"], set())
        if "tray_partitions" not in domain and len(entered & trays) > 1:
            message = (
                f"NVLink domain {name} is split per tray: {len(trays)} of its {sizes[name]} trays are each alone in a "
                "clique; ask your provider, or set fabric_tray_partitions to own_block, leave_out or keep_block."
            )
            yield finding("tray_partitions", message, domain=name), step.entered(name, "placed", "moved")


def _moves(step: Step) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Domain -> those that its trays were in before; domain before -> those that its trays are in now."""
    came: dict[str, set[str]] = defaultdict(set)
    went: dict[str, set[str]] = defaultdict(set)
    # A proposal that a person has edited may lack trays and domains.
    for tray in step.previous.domain_of.keys() & step.fabric.domain_of.keys():
        came[step.fabric.domain_of[tray]].add(step.previous.domain_of[tray])
        went[step.previous.domain_of[tray]].add(step.fabric.domain_of[tray])
    return came, went


def _is_in(observed_at: str | None, oldest: datetime.datetime, newest: datetime.datetime) -> bool:
    """Whether a time is valid and between the allowed ones."""
    try:
        return observed_at is not None and oldest <= datetime.datetime.fromisoformat(observed_at) <= newest
    except (ValueError, TypeError):
        return False


# --- findings ---


def _in_no_cluster(fabric: Fabric, trays: TrayStates, policy: Policy) -> Iterator[Finding]:
    if not any(fabric.clusters.values()):
        return
    outside = natural_sorted(
        name for name, tray in fabric.trays.items() if not any(key in tray for key in CLUSTER_KEYS)
    )
    if outside:
        message = (
            f"Trays in no Slurm or Kubernetes cluster: {summarize(outside)}; set fabric_slurm_cluster on these hosts."
        )
        yield finding("tray_in_no_cluster", message)


def _incomplete_domains(fabric: Fabric, trays: TrayStates, policy: Policy) -> Iterator[Finding]:
    sizes = Counter(fabric.domain_of.values())
    for name in natural_sorted(fabric.domains):
        expected = fabric.domains[name]["expected_trays"]
        # A domain without any tray is retired, not incomplete.
        if 0 < sizes[name] < expected:
            message = f"NVLink domain {name} has {sizes[name]} of {count(expected, 'expected tray')}"
            yield finding("domain_incomplete", message, domain=name)


def _differing_drivers(fabric: Fabric, trays: TrayStates, policy: Policy) -> Iterator[Finding]:
    versions: dict[str, set[str]] = {clique: set() for clique in fabric.cliques}
    for name, tray in fabric.trays.items():
        version = trays[name]["driver_version"] if name in trays else None
        if version:
            versions[tray["clique"]].add(version)
    for clique in natural_sorted(clique for clique, several in versions.items() if len(several) > 1):
        found = ", ".join(natural_sorted(versions[clique]))
        message = f"Clique {clique} runs drivers {found}"
        yield finding("drivers_differ", message, clique=clique)


def _several_chassis(fabric: Fabric, trays: TrayStates, policy: Policy) -> Iterator[Finding]:
    for name in natural_sorted(fabric.domains):
        serials = fabric.domains[name]["chassis_serials"]
        if len(serials) > 1:
            message = f"NVLink domain {name} spans the chassis {summarize(serials)}; this is valid, as in NVL36x2."
            yield finding("domain_two_chassis", message, domain=name)


def _against_expected(fabric: Fabric, trays: TrayStates, policy: Policy) -> Iterator[Finding]:
    elsewhere = _elsewhere(fabric, policy)
    for name in natural_sorted(policy.expected):
        placed = [tray for tray in policy.expected[name] if tray in fabric.trays]
        missing = natural_sorted(set(policy.expected[name]).difference(placed))
        alone = [tray for tray in placed if tray not in elsewhere]
        # A domain that is not powered yet has no name either, and few of its trays are elsewhere. No single tray may
        # stop a run.
        if len(alone) > max(1, len(missing)) and name not in fabric.domains and name not in fabric.cliques:
            cliques = natural_sorted({fabric.trays[tray]["clique"] for tray in placed})
            raise PlacementError(
                f"expected: {name} is the name of no NVLink domain or clique, and its trays are in"
                f" {summarize(cliques)}; write the name that they have"
            )
        if missing:
            message = f"Trays expected in {name} have no place: {summarize(missing)}"
            subject: Subject = {"domain": name} if name in fabric.domains else {}
            yield finding("domain_incomplete", message, **subject)
    for tray in natural_sorted(elsewhere):
        what = "Tray {} is expected in {} and placed in {}".format(tray, *elsewhere[tray])
        yield finding("tray_misplaced", what, tray=tray)


_GATES: tuple[Callable[[Step, Policy], Iterable[Objection]], ...] = (
    _moved_too_many,
    _merged_or_split,
    _rotating,
    _shrank,
    _unknown,
    _too_old,
    _other_chassis,
    _one_slot,
    _other_ids,
    _split_per_tray,
    _lost_addresses,
)
_CHECKS: tuple[Callable[[Fabric, TrayStates, Policy], Iterable[Finding]], ...] = (
    _incomplete_domains,
    _differing_drivers,
    _several_chassis,
    _against_expected,
    _in_no_cluster,
)
