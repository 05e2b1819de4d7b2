# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compute the next fabric from the previous one and the observations of a run, with a reason for every change.

Pure: no file and no clock, so equal input gives equal bytes, whatever the order of the observations. The rules:

- Only an attached observation places or moves a tray. A tray that is down, in progress, unhealthy or in conflict keeps
  its place.
- Only a target of this run may become stale.
- Names and block positions are assigned once, never changed and never reused (naming.py).
- A cluster UUID identifies a domain; cluster UUID and clique ID a clique. A clique ID alone identifies nothing.
- A GPU belongs to one tray. A second tray that claims it is in conflict and changes nothing (claims.py).
- The site sets the Slurm and Kubernetes cluster of a tray; without a value it stays as it was.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import INFO, finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import addresses
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.claims import double_claims
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.gates import Step, decide, fleet_findings
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    CONFLICT,
    PRESENT,
    STALE,
    UNKNOWN,
    UNPLACED,
    Block,
    Change,
    Clusters,
    Fabric,
    Finding,
    Identity,
    Observation,
    State,
    Tray,
    TrayState,
    natural_key,
    natural_sorted,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.naming import (
    Register,
    Running,
    cluster_blocks,
    reserved_blocks,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import (
    ERROR,
    MAJORITY,
    PlacementError,
    Policy,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import NODE_NAME

# Findings of fabric_facts on a host without GPUs. A host with any other problem, such as an NVML that hangs, is a tray.
_NO_GPU_CODES = frozenset(
    {"addresses_unknown", "driver_missing", "fabric_unknown", "library_missing", "no_gpu", "smi_missing"}
)
_PENDING = "acceptance_pending"
# Findings that end when the proposal is accepted.
_UNTIL_ACCEPTED = frozenset({_PENDING, "tray_replaced"})
_BLOCK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

K = TypeVar("K")


@dataclass(frozen=True)
class Placement:
    """The next fabric with its state, changes and findings. objections: findings of the gates that object.

    step: the input of the gates; its fabric is without the overrides of this run.
    """

    fabric: Fabric
    state: State
    changes: list[Change]
    objections: list[Finding]
    step: Step

    @property
    def findings(self) -> list[Finding]:
        """All findings: those of the trays, then those of the fabric."""
        return [*(row for tray in self.state.trays.values() for row in tray["findings"]), *self.state.findings]


def place(
    previous: Fabric | None,
    previous_state: State | None,
    observations: Iterable[Observation],
    targets: Collection[str],
    now: str,
    policy: Policy,
    notes: Collection[Finding] = (),
    blocks: Collection[Running] = (),
    unclaimed: Collection[Running] = (),
) -> Placement:
    """Compute the next fabric and state; PlacementError if the site's settings contradict each other.

    observations: at most one for each target. A target without one gave no answer; observations of other trays are
    ignored. now: UTC as in 2026-11-21T05:00:00Z. notes: findings about the sources, for the state. blocks: all blocks
    of a running Slurm, whose names and positions are reserved. unclaimed: those of them without a known tray; the
    fabric keeps them reserved.
    """
    previous = previous or Fabric()
    answers = {observation.tray: observation for observation in observations}
    # Sorted once: all steps below process the trays in this order.
    observed = {name: answers.get(name) or _no_answer(name) for name in natural_sorted(targets)}
    _reject_conflicts(observed, policy)
    run = _Run(previous, observed, now, policy, blocks, unclaimed)
    run.collect_claims()
    run.place_claims()
    run.apply_site_settings()
    clusters = run.cluster_blocks()
    reserved = run.reserved_blocks()
    fabric = Fabric(run.register.domains, run.register.cliques, run.trays, previous.overrides, clusters, reserved)
    run.compare_blocks(fabric)
    trays = run.tray_states(previous_state)
    findings = [*notes, *run.fabric_findings(previous_state), *fleet_findings(fabric, trays, policy)]
    changed = {change["tray"] for change in run.changes}
    times = {name: observed[name].observed_at for name in changed}
    step = Step(previous, fabric, run.changes, now, times, run.mixed & changed)
    return decided(Placement(fabric, State(trays, findings, now), run.changes, [], step), policy)


def decided(placement: Placement, policy: Policy, pending: Collection[Mapping[str, Any]] = ()) -> Placement:
    """The placement with the objections of the gates, and with overridden gates recorded in its fabric.

    pending: override rows of the pending proposal.
    """
    objections, overridden = decide(placement.step, policy, pending)
    fabric = placement.step.fabric
    if overridden:
        fabric = replace(fabric, overrides=[*fabric.overrides, *overridden])
    return replace(placement, fabric=fabric, objections=objections)


def _reject_conflicts(observed: Mapping[str, Observation], policy: Policy) -> None:
    inconsistent = [name for name, observation in observed.items() if observation.inconsistent]
    if inconsistent and policy.conflict_policy == ERROR:
        raise PlacementError(
            f"conflict_policy: is error, and the GPUs of {summarize(inconsistent)} are in different cliques; "
            "give each tray one NVLink partition, or use keep"
        )


def merge_pending(fabric: Fabric, pending: Fabric, targets: Collection[str]) -> Fabric:
    """The fabric with the changes that a pending proposal has for trays that are not targets of this run.

    A run on some of the trays, such as a job slice, thus adds to the pending proposal instead of undoing it.
    """
    trays = {
        name: tray for name, tray in pending.trays.items() if name not in targets and tray != fabric.trays.get(name)
    }
    cliques = {tray["clique"]: pending.cliques[tray["clique"]] for tray in trays.values()}
    domains = {clique["domain"]: pending.domains[clique["domain"]] for clique in cliques.values()}
    return Fabric(
        {**fabric.domains, **domains},
        {**fabric.cliques, **cliques},
        {**fabric.trays, **trays},
        fabric.overrides,
        _merged_clusters(fabric, pending, trays),
        _merged_reserved([row["block"] for row in {**fabric.cliques, **cliques}.values()], fabric, pending, None),
    )


def _merged_reserved(blocks: Collection[Block], fabric: Fabric, pending: Fabric, cluster: str | None) -> dict[str, int]:
    """The reserved blocks of a fabric and of the pending one in a Slurm cluster; blocks: those with a clique there."""
    before, later = (source.reserved(cluster) for source in (fabric, pending))
    return reserved_blocks(blocks, before, later.items())


def _merged_clusters(fabric: Fabric, pending: Fabric, trays: Mapping[str, Tray]) -> Clusters:
    """The clusters of a fabric, extended by those of the pending fabric for these of its trays."""
    merged = Clusters(**fabric.clusters)
    places = {(tray.get("slurm_cluster"), tray["clique"]) for tray in trays.values()}
    slurm = dict(fabric.clusters.get("slurm", {}))
    for name in {cluster for cluster, _clique in places if cluster}:
        blocks = dict(slurm[name]["blocks"]) if name in slurm else {}
        for clique, block in pending.clusters["slurm"][name]["blocks"].items():
            # The first cluster of the file has taken over the blocks that the file had.
            if (name, clique) in places or (clique in fabric.cliques and not fabric.slurm_clusters):
                blocks.setdefault(clique, block)
        slurm[name] = {"blocks": blocks}
        reserved = _merged_reserved(blocks.values(), fabric, pending, name)
        if reserved:
            slurm[name]["reserved_blocks"] = reserved
    if slurm:
        merged["slurm"] = slurm
    kubernetes = {tray["kubernetes_cluster"] for tray in trays.values() if "kubernetes_cluster" in tray}
    if kubernetes:
        merged["kubernetes"] = {**{name: {} for name in kubernetes}, **fabric.clusters.get("kubernetes", {})}
    return merged


def mark_pending(placement: Placement, accepted: Fabric | None) -> State:
    """The state to write while the placement is a pending proposal: the fabric file still has the old places."""
    places = accepted.trays if accepted else {}
    trays = dict(placement.state.trays)
    for change in placement.changes:
        name = change["tray"]
        if name not in trays or change["from"] == change["to"]:
            continue
        message = f"Tray {name} is observed in {change['to']}; accept the proposal to give it that place."
        tray = cast(TrayState, dict(trays[name]))
        tray["findings"] = [*tray["findings"], finding(_PENDING, message, tray=name)]
        if name not in places:
            # The fabric file has no row for the tray yet, so the state holds these values.
            row = placement.fabric.trays[name]
            tray["state"], tray["tray_index"], tray["gpu_count"] = UNPLACED, row["tray_index"], len(row["gpu_uuids"])
        trays[name] = tray
    return replace(placement.state, trays=trays)


def mark_accepted(state: State, accepted: Fabric) -> State:
    """The state after the placement was accepted: pending trays have a place now."""
    trays = {}
    for name, tray in state.trays.items():
        trays[name] = row = _without(_UNTIL_ACCEPTED, tray)
        if row is not tray and tray["state"] == UNPLACED and name in accepted.trays:
            trays[name] = _given_place(row, PRESENT)
    return replace(state, trays=trays)


def _without(codes: Collection[str], tray: TrayState) -> TrayState:
    """The state of a tray without findings of these codes; the same object if it has none."""
    kept = [row for row in tray["findings"] if row["code"] not in codes]
    return tray if len(kept) == len(tray["findings"]) else cast(TrayState, {**tray, "findings": kept})


def _given_place(tray: TrayState, status: str) -> TrayState:
    """The state of a tray that was unplaced: index and number of GPUs are in the fabric file now."""
    placed = cast(TrayState, {**tray, "state": status})
    placed.pop("tray_index", None)
    placed.pop("gpu_count", None)
    return placed


class _Run:
    """One placement: drafts of the fabric's parts, changed step by step."""

    def __init__(
        self,
        previous: Fabric,
        observed: Mapping[str, Observation],
        now: str,
        policy: Policy,
        running: Collection[Running],
        unclaimed: Collection[Running],
    ) -> None:
        self.previous, self.observed, self.now, self.policy = previous, observed, now, policy
        self._running = running
        self._unclaimed = [block for block in unclaimed if _BLOCK_NAME.fullmatch(block[0])]
        self.register = Register(previous, policy.domain_names)
        self.trays: dict[str, Tray] = dict(previous.trays)
        self.changes: list[Change] = []
        # Trays that may enter the clique of most of their GPUs, since the policy overrides the gate mixed_cliques.
        self.mixed: set[str] = set()
        # Attached observations that place their tray; for rejected ones, the owner of the GPUs that they claim.
        self._claims: dict[str, Observation] = {}
        self._rivals: dict[str, str] = {}
        self._findings: dict[str, list[Finding]] = defaultdict(list)
        self._fabric_findings: list[Finding] = []

    # --- which trays are placed ---

    def collect_claims(self) -> None:
        """Collect the attached trays, without those that claim a GPU of another tray."""
        for name, observation in self.observed.items():
            if observation.inconsistent:
                observation = self._by_majority(name, observation)
            if observation.identity is None:
                continue
            if not NODE_NAME.fullmatch(name):
                self._report(
                    name,
                    "illegal_tray_name",
                    "has a name that is not valid in a Slurm hostlist",
                    "rename it in the inventory",
                )
            else:
                self._claims[name] = observation
        known = {name: tray["gpu_uuids"] for name, tray in self.previous.trays.items()}
        self._rivals = double_claims(known, {name: claim.gpu_uuids for name, claim in self._claims.items()})
        for name, owner in self._rivals.items():
            del self._claims[name]
            self._report(
                name, "tray_duplicate", f"reports GPUs of {owner}", "give each tray a single name in the inventory"
            )

    def _by_majority(self, name: str, observation: Observation) -> Observation:
        """An inconsistent observation; with conflict_policy majority, attached in the clique of most of its GPUs.

        A tray that is placed there already keeps its place like any other in conflict.
        """
        clique = observation.majority
        if self.policy.conflict_policy != MAJORITY or clique is None or self._is_placed_in(name, clique):
            return observation
        if "mixed_cliques" in self.policy.override:
            self.mixed.add(name)
            return replace(observation, identity=clique)
        self._report(
            name,
            "mixed_cliques",
            f"has most of its GPUs in clique {clique[0]}.{clique[1]}, but not all, and is not placed there",
            "give its GPUs one NVLink partition, or name mixed_cliques in override",
        )
        return observation

    def _is_placed_in(self, name: str, clique: Identity) -> bool:
        tray = self.previous.trays.get(name)
        if tray is None:
            return False
        place = tray["clique"]
        return (self.previous.cluster_uuid(place), self.previous.cliques[place]["clique_id"]) == clique

    # --- places ---

    def place_claims(self) -> None:
        """Name new domains and cliques, and place or update the tray of every claim."""
        self.register.suggest(self._declared_names())
        self._adopt_blocks()
        chassis = self._confirmed_chassis()
        self.register.register(
            (identity, claim.chassis_serial if (identity[0], claim.chassis_serial) in chassis else None)
            for claim in self._claims.values()
            for identity in (_identity(claim),)
        )
        places = {name: self.register.clique_of(_identity(claim)) for name, claim in self._claims.items()}
        networks = addresses.networks(self.policy.imex_networks)
        imex = addresses.imex_addresses(self._claims, places, self.previous.trays, networks)
        for name, claim in self._claims.items():
            self._place(name, claim, places[name], imex[name])
            if imex[name] is None:
                remedy = "check its addresses and imex_network"
                self._report(name, "imex_address_missing", "has no usable address for its IMEX domain", remedy)
        self._describe_domains(chassis)

    def _confirmed_chassis(self) -> set[tuple[str, str]]:
        """(cluster UUID, serial) of each chassis that a domain has or gets.

        Two trays must report a chassis that the domain does not have, so that no single tray can add one. A domain
        without a serial takes those of single trays if no two of them agree, as in a rack of one tray.
        """
        known = {
            (row["cluster_uuid"], serial) for row in self.previous.domains.values() for serial in row["chassis_serials"]
        }
        reported: dict[str, Counter[str]] = defaultdict(Counter)
        for claim in self._claims.values():
            if claim.chassis_serial:
                reported[_identity(claim)[0]][claim.chassis_serial] += 1
        confirmed = set(known)
        for uuid, serials in reported.items():
            several = {serial for serial, trays in serials.items() if trays > 1}
            first = not several and not any(domain == uuid for domain, _serial in known)
            confirmed.update((uuid, serial) for serial in (serials if first else several))
        for name, claim in self._claims.items():
            if claim.chassis_serial and (_identity(claim)[0], claim.chassis_serial) not in confirmed:
                what = f"alone in its NVLink domain reports the chassis {claim.chassis_serial}"
                self._report(name, "chassis_unconfirmed", what, "check its place and its baseboard controller")
        return confirmed

    def _adopt_blocks(self) -> None:
        """Give each new clique the block in which Slurm has most of its trays; a block goes to one clique."""
        blocks = {name: row.block for name, row in self.observed.items() if row.block and not self._slurm_cluster(name)}
        if blocks:
            votes = Counter((_identity(self._claims[name]), blocks[name]) for name in blocks if name in self._claims)
            reserved = {*blocks.values(), *self._running}
            self.register.adopt(_elected(votes), sorted(reserved, key=lambda block: (block[1], block[0])))

    def _slurm_cluster(self, name: str) -> str | None:
        """The Slurm cluster of a target: the site's current setting, else that of the previous fabric."""
        cluster = self.observed[name].slurm_cluster
        if cluster is None and name in self.previous.trays:
            cluster = self.previous.trays[name].get("slurm_cluster")
        return cluster or None

    def cluster_blocks(self) -> Clusters:
        """The clusters, with a block in each Slurm cluster for each clique that has trays there."""
        votes: dict[str, Counter[tuple[tuple[str, str], Running]]] = defaultdict(Counter)
        reserved: dict[str, set[Running]] = defaultdict(set)
        for name, row in self.observed.items():
            cluster = self._slurm_cluster(name)
            if row.block and cluster:
                reserved[cluster].update((row.block, *self._running))
                if name in self.trays:
                    votes[cluster][((cluster, self.trays[name]["clique"]), row.block)] += 1
        running = {place: block for of_one in votes.values() for place, block in _elected(of_one).items()}
        unclaimed = {cluster: self._unclaimed for cluster in self._queried_clusters() if cluster}
        return cluster_blocks(self.previous, self.trays, self.register.cliques, running, reserved, unclaimed)

    def reserved_blocks(self) -> dict[str, int]:
        """The reserved blocks of a single, unnamed Slurm cluster."""
        return self.register.reserve(self._unclaimed if self._queried_clusters() == {None} else ())

    def _queried_clusters(self) -> set[str | None]:
        """The Slurm cluster whose blocks were read, None for a single unnamed one; empty where that is ambiguous."""
        clusters = {self._slurm_cluster(name) for name, row in self.observed.items() if row.block}
        return clusters if len(clusters) == 1 else set()

    def compare_blocks(self, fabric: Fabric) -> None:
        """Report the trays that are in another block in Slurm than in the fabric."""
        for name, observation in self.observed.items():
            block = fabric.block_of(name) if observation.block and name in fabric.trays else None
            if observation.block and block and block["name"] != observation.block[0]:
                clique = fabric.trays[name]["clique"]
                other = (
                    f"is in block {observation.block[0]} of Slurm, but its clique {clique} has block {block['name']}"
                )
                self._report(name, "block_mismatch", other, "apply the topology, or correct the block's name")

    def _declared_names(self) -> dict[str, str]:
        """Cluster UUID -> the name under which the site expects its trays; left out where these are several names."""
        racks: dict[str, set[str]] = defaultdict(set)
        for name in self._claims.keys() & self.policy.racks.keys():
            racks[_identity(self._claims[name])[0]].add(self.policy.racks[name])
        return {uuid: next(iter(names)) for uuid, names in racks.items() if len(names) == 1}

    def _place(self, name: str, claim: Observation, clique: str, imex_address: str | None) -> None:
        old = self.previous.trays.get(name)
        if old is None:
            why = f"placed {self.now[:10]}: {self._where(name, claim)}"
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

    def _update(self, name: str, old: Tray, claim: Observation, clique: str, imex_address: str | None) -> None:
        date, where = self.now[:10], self._where(name, claim)
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

    def _describe_domains(self, chassis: Collection[tuple[str, str]]) -> None:
        """Update chassis serials and expected size of the domains: serials are collected, the size only grows."""
        domains, cliques = self.register.domains, self.register.cliques
        sizes: Counter[str] = Counter()
        for clique, size in Counter([tray["clique"] for tray in self.trays.values()]).items():
            sizes[cliques[clique]["domain"]] += size
        serials: dict[str, set[str]] = defaultdict(set)
        for uuid, serial in chassis:
            serials[uuid].add(serial)
        for name, domain in domains.items():
            expected = domain["expected_trays"]
            if sizes[name]:
                declared = len(self.policy.expected.get(name, ()))
                expected = max(declared or self.policy.expected_trays or expected, sizes[name])
            added = serials[domain["cluster_uuid"]].difference(domain["chassis_serials"])
            if added or expected != domain["expected_trays"]:
                domains[name] = {
                    "cluster_uuid": domain["cluster_uuid"],
                    "chassis_serials": natural_sorted({*domain["chassis_serials"], *added}),
                    "expected_trays": expected,
                }

    # --- settings of the site ---

    def apply_site_settings(self) -> None:
        """Apply the site's node names, connection addresses and clusters to every placed target.

        Values that the site does not set stay as they were.
        """
        for name, observation in self.observed.items():
            if name not in self.trays:
                continue
            for kind, changed in (("name", _changed_names), ("cluster", _changed_clusters)):
                values = changed(observation, self.trays[name])
                if values:
                    self._set(name, kind, values)
        for kind in ("slurm", "kubernetes"):
            self._check_unique_nodes(f"{kind}_node", f"{kind}_cluster")

    def _set(self, name: str, kind: str, values: Mapping[str, str]) -> None:
        """Set values of a tray; an empty text removes the key."""
        tray = self.trays[name]
        steps = "; ".join(f"{key} {_shown(tray.get(key))} -> {value or 'none'}" for key, value in values.items())
        self.trays[name] = cast(Tray, {key: value for key, value in {**tray, **values}.items() if value != ""})
        if name in self.previous.trays:
            self._change(name, tray["clique"], tray["clique"], kind, steps)

    def _check_unique_nodes(self, key: str, cluster_key: str) -> None:
        """Raise PlacementError if two trays have the same node name, in the same cluster where there are several."""
        rows = cast(list[dict[str, Any]], [*self.trays.values()])
        if len({(tray.get(cluster_key), tray[key]) for tray in rows}) == len(rows):
            return
        owners: dict[tuple[str | None, str], str] = {}
        for name, tray in zip(self.trays, rows, strict=True):
            node, cluster = tray[key], tray.get(cluster_key)
            owner = owners.setdefault((cluster, node), name)
            if owner != name:
                of_cluster = f" of cluster {cluster}" if cluster else ""
                raise PlacementError(
                    f"fabric_{key}: trays {owner} and {name}{of_cluster} would both be node {node}; set different names"
                )

    # --- state ---

    def tray_states(self, previous_state: State | None) -> dict[str, TrayState]:
        """The state of every tray: targets as observed now, the others as before."""
        before = previous_state.trays if previous_state else {}
        states: dict[str, TrayState] = {}
        for name, tray in before.items():
            if name in self.observed:
                continue
            tray = _without({_PENDING}, tray)
            if name in self.trays and tray["state"] == UNPLACED:
                # Placed by hand; not observed there yet.
                states[name] = _given_place(tray, STALE)
            elif name in self.trays or tray["state"] == UNPLACED:
                states[name] = tray
        for name, observation in self.observed.items():
            if name in self.trays or _may_be_a_tray(observation):
                states[name] = self._tray_state(name, observation, before.get(name))
            else:
                message = (
                    f"Host {name} reports no GPU and has no place; leave it out of fabric_hosts if it is not a tray."
                )
                self._fabric_findings.append(finding("not_a_tray", message, tray=name))
        return states

    def _tray_state(self, name: str, observation: Observation, before: TrayState | None) -> TrayState:
        placed = name in self.trays
        if not observation.reachable:
            status, what = STALE, f"{self._keeps(name)}: {observation.problem}"
            self._report(name, "tray_unreachable", what, "restore it and discover again")
        elif observation.inconsistent or name in self._rivals:
            status = CONFLICT
            if observation.inconsistent:
                what = f"{self._keeps(name)}: its GPUs are in different cliques"
                self._report(name, "tray_not_attached", what, "give its GPUs one NVLink partition")
        elif name in self._claims:
            status = PRESENT
        elif observation.node_local and not placed:
            # NVLink within one host (HGX) is not attached to an NVLink domain.
            status = UNPLACED
        else:
            status, what = STALE, f"{self._keeps(name)}: not all its GPUs are attached to one clique"
            self._report(name, "tray_not_attached", what, "resolve its other findings, then discover again")
        # For an unreachable tray the last observation is kept.
        last = before if before and not observation.reachable else None
        state: TrayState = {
            "state": status if placed else UNPLACED,
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
        """Findings of this run without a tray state, and earlier ones about hosts that are not targets now."""
        before = previous_state.findings if previous_state else []
        kept = [row for row in before if row["code"] == "not_a_tray" and row.get("tray") not in self.observed]
        return sorted([*kept, *self._fabric_findings, *self.register.findings], key=_finding_key)

    # --- messages and changes ---

    def _keeps(self, name: str) -> str:
        return f"keeps its place in {self.trays[name]['clique']}" if name in self.trays else "gets no place"

    def _where(self, name: str, claim: Observation) -> str:
        uuid, clique_id = _identity(claim)
        how = "most of its GPUs attached in" if name in self.mixed else "attached in"
        return f"{how} clique {uuid}.{clique_id}"

    def _change(self, name: str, old: str | None, new: str, kind: str, why: str) -> None:
        self.changes.append({"tray": name, "from": old, "to": new, "kind": kind, "why": why})

    def _report(self, name: str, code: str, what: str, remedy: str) -> None:
        self._findings[name].append(finding(code, f"Tray {name} {what}; {remedy}.", tray=name))


def _no_answer(name: str) -> Observation:
    return Observation(name, "", reachable=False, problem="no answer in this run")


def _identity(claim: Observation) -> Identity:
    """The identity of an attached observation, which is never None."""
    return cast(Identity, claim.identity)


def _same_hardware(claim: Observation, tray: Tray) -> bool:
    same_gpus = not claim.gpu_uuids or list(claim.gpu_uuids) == tray["gpu_uuids"]
    return same_gpus and claim.tray_index in (None, tray["tray_index"])


def _may_be_a_tray(observation: Observation) -> bool:
    """Whether a host without a place may be a tray: it has GPUs, or a finding that a host without GPUs cannot have."""
    problems = (row for row in observation.findings if row["severity"] != INFO and row["code"] not in _NO_GPU_CODES)
    return bool(observation.gpu_count or observation.identity or any(problems)) or not observation.reachable


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


def _elected(votes: Counter[tuple[K, Running]]) -> dict[K, Running]:
    """Map each candidate to the block of most of its trays; a block goes to one candidate.

    The first tray in natural order decides between equal numbers.
    """
    chosen: dict[K, Running] = {}
    for (candidate, block), _trays in votes.most_common():
        if candidate not in chosen and block not in chosen.values() and _BLOCK_NAME.fullmatch(block[0]):
            chosen[candidate] = block
    return chosen


def _shown(value: object) -> str:
    return "none" if value is None else str(value)


def _finding_key(row: Finding) -> tuple[Any, ...]:
    gpu = row.get("gpu")
    return row["code"], natural_key(row.get("tray", "")), -1 if gpu is None else gpu, row["message"]
