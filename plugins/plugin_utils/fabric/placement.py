# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the last fabric and what was observed now to the next fabric, with a reason for every step.

Pure: no file and no clock, so equal input gives equal bytes, whatever the order of the observations. The rules:

- A tray is placed, or moved, only by an attached observation. One that is down, in progress, unhealthy or in conflict
  keeps the place it has.
- Only a target of this run may become stale.
- Names and block positions are given once, never changed and never given again (naming.py).
- A domain is its cluster UUID, a clique is (cluster UUID, clique ID); a clique ID alone means nothing.
- A GPU belongs to one tray. A second tray that claims it is in conflict and changes nothing (claims.py).
- Which Slurm and which Kubernetes cluster a tray is in, the site says; what it does not say stays as it was.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import INFO, finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import addresses
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.claims import double_claims
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.fabric_file import NODE_NAME
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

# What fabric_facts says of a host that was never given a GPU. Anything worse, such as an NVML that hangs, is a tray's.
_NO_TRAYS_CODES = frozenset(
    {"addresses_unknown", "driver_missing", "fabric_unknown", "library_missing", "no_gpu", "smi_missing"}
)
_PENDING = "acceptance_pending"
# These ask for an acceptance, so they end with it.
_UNTIL_ACCEPTED = frozenset({_PENDING, "tray_replaced"})
_BLOCK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

K = TypeVar("K")


@dataclass(frozen=True)
class Placement:
    """The next fabric and all that is to be said of it. objections: the gates' findings, empty where none objects.

    step is what the gates looked at; its fabric lacks the overrides that they were given.
    """

    fabric: Fabric
    state: State
    changes: list[Change]
    objections: list[Finding]
    step: Step

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
    notes: Collection[Finding] = (),
    blocks: Collection[Running] = (),
    unclaimed: Collection[Running] = (),
) -> Placement:
    """The next fabric and state. notes: findings about the sources of the observations, for the state to hold.

    blocks: all of a running Slurm; those of observations are known, others hold their names and positions too.
    unclaimed: those of them that no known tray is in. The fabric keeps them, so that they hold both ever after.
    observations holds at most one for each target; a target without one gave no answer, and one of a tray that is no
    target is ignored. now is UTC as in 2026-11-21T05:00:00Z. PlacementError if what the site says contradicts itself.
    """
    previous = previous or Fabric()
    answers = {observation.tray: observation for observation in observations}
    # Sorted once: everything below goes through the trays in this order.
    seen = {name: answers.get(name) or _silent(name) for name in natural_sorted(targets)}
    _stop_at_conflicts(seen, policy)
    run = _Run(previous, seen, now, policy, blocks, unclaimed)
    run.settle_claims()
    run.place_claims()
    run.follow_the_site()
    clusters = run.cluster_blocks()
    reserved = run.reserved_blocks()
    fabric = Fabric(run.register.domains, run.register.cliques, run.trays, previous.overrides, clusters, reserved)
    run.compare_blocks(fabric)
    trays = run.tray_states(previous_state)
    findings = [*notes, *run.fabric_findings(previous_state), *fleet_findings(fabric, trays, policy)]
    changed = {change["tray"] for change in run.changes}
    times = {name: seen[name].observed_at for name in changed}
    step = Step(previous, fabric, run.changes, now, times, run.mixed & changed)
    return decided(Placement(fabric, State(trays, findings, now), run.changes, [], step), policy)


def decided(placement: Placement, policy: Policy, waiting: Collection[Mapping[str, Any]] = ()) -> Placement:
    """The placement with what the gates say of its step, and in its fabric those that are overridden.

    waiting: what the proposal that it goes on from has overridden.
    """
    objections, overridden = decide(placement.step, policy, waiting)
    fabric = placement.step.fabric
    if overridden:
        fabric = replace(fabric, overrides=[*fabric.overrides, *overridden])
    return replace(placement, fabric=fabric, objections=objections)


def _stop_at_conflicts(seen: Mapping[str, Observation], policy: Policy) -> None:
    inconsistent = [name for name, observation in seen.items() if observation.inconsistent]
    if inconsistent and policy.conflict_policy == ERROR:
        shown = ", ".join(inconsistent[:5]) + (f" and {len(inconsistent) - 5} more" if len(inconsistent) > 5 else "")
        raise PlacementError(
            f"conflict_policy: is error, and the GPUs of {shown} are in different cliques; "
            "give each tray one NVLink partition, or use keep"
        )


def merge_pending(fabric: Fabric, pending: Fabric, targets: Collection[str]) -> Fabric:
    """The fabric with what a pending proposal says of trays that are no targets now.

    A run that sees some trays only, as a job slice does, so adds to what the others proposed instead of undoing it.
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
        _carried_clusters(fabric, pending, trays),
        _carried_reserve([row["block"] for row in {**fabric.cliques, **cliques}.values()], fabric, pending, None),
    )


def _carried_reserve(blocks: Collection[Block], fabric: Fabric, pending: Fabric, cluster: str | None) -> dict[str, int]:
    """The reserved blocks of a fabric and of the pending one, in a Slurm cluster that has these blocks."""
    before, later = (made.reserved(cluster) for made in (fabric, pending))
    return reserved_blocks(blocks, before, later.items())


def _carried_clusters(fabric: Fabric, pending: Fabric, trays: Mapping[str, Tray]) -> Clusters:
    """The clusters of a fabric with what the pending one adds to them for these trays of it."""
    carried = Clusters(**fabric.clusters)
    places = {(tray.get("slurm_cluster"), tray["clique"]) for tray in trays.values()}
    slurm = dict(fabric.clusters.get("slurm", {}))
    for name in {cluster for cluster, _clique in places if cluster}:
        blocks = dict(slurm[name]["blocks"]) if name in slurm else {}
        for clique, block in pending.clusters["slurm"][name]["blocks"].items():
            # The file's first cluster has taken over what the file had.
            if (name, clique) in places or (clique in fabric.cliques and not fabric.slurm_clusters):
                blocks.setdefault(clique, block)
        slurm[name] = {"blocks": blocks}
        reserved = _carried_reserve(blocks.values(), fabric, pending, name)
        if reserved:
            slurm[name]["reserved_blocks"] = reserved
    if slurm:
        carried["slurm"] = slurm
    kubernetes = {tray["kubernetes_cluster"] for tray in trays.values() if "kubernetes_cluster" in tray}
    if kubernetes:
        carried["kubernetes"] = {**{name: {} for name in kubernetes}, **fabric.clusters.get("kubernetes", {})}
    return carried


def mark_pending(placement: Placement, accepted: Fabric | None) -> State:
    """The state to write while a person has yet to accept the placement: the fabric file still says the old places."""
    places = accepted.trays if accepted else {}
    trays = dict(placement.state.trays)
    for change in placement.changes:
        name = change["tray"]
        if name not in trays or change["from"] == change["to"]:
            continue
        message = f"Tray {name} is seen in {change['to']}; accept the proposal to give it that place."
        tray = cast(TrayState, dict(trays[name]))
        tray["findings"] = [*tray["findings"], finding(_PENDING, message, tray=name)]
        if name not in places:
            # The fabric file does not tell what it would tell of a placed tray, so the state does.
            seen = placement.fabric.trays[name]
            tray["state"], tray["tray_index"], tray["gpu_count"] = UNPLACED, seen["tray_index"], len(seen["gpu_uuids"])
        trays[name] = tray
    return replace(placement.state, trays=trays)


def mark_accepted(state: State, accepted: Fabric) -> State:
    """The state after the placement was accepted: who awaited that has a place now."""
    trays = {}
    for name, tray in state.trays.items():
        trays[name] = settled_tray = _without(_UNTIL_ACCEPTED, tray)
        if settled_tray is not tray and tray["state"] == UNPLACED and name in accepted.trays:
            trays[name] = _given_place(settled_tray, PRESENT)
    return replace(state, trays=trays)


def _without(codes: Collection[str], tray: TrayState) -> TrayState:
    """The tray itself if it has none of these findings, else a copy."""
    kept = [row for row in tray["findings"] if row["code"] not in codes]
    return tray if len(kept) == len(tray["findings"]) else cast(TrayState, {**tray, "findings": kept})


def _given_place(tray: TrayState, word: str) -> TrayState:
    """The state of a tray that was unplaced: the fabric file now tells what only the state told."""
    placed = cast(TrayState, {**tray, "state": word})
    placed.pop("tray_index", None)
    placed.pop("gpu_count", None)
    return placed


class _Run:
    """One placement under way: drafts of the fabric's parts, changed step by step."""

    def __init__(
        self,
        previous: Fabric,
        seen: Mapping[str, Observation],
        now: str,
        policy: Policy,
        running: Collection[Running],
        unclaimed: Collection[Running],
    ) -> None:
        self.previous, self.seen, self.now, self.policy = previous, seen, now, policy
        self._running = running
        self._unclaimed = [block for block in unclaimed if _BLOCK_NAME.fullmatch(block[0])]
        self.register = Register(previous, policy.domain_names)
        self.trays: dict[str, Tray] = dict(previous.trays)
        self.changes: list[Change] = []
        # Trays that may enter the clique that only most of their GPUs name, since the policy overrides that gate.
        self.mixed: set[str] = set()
        # Attached observations that may place their tray, and for those that may not: whose GPUs they claim.
        self._claims: dict[str, Observation] = {}
        self._rivals: dict[str, str] = {}
        self._findings: dict[str, list[Finding]] = defaultdict(list)
        self._fabric_findings: list[Finding] = []

    # --- who may be placed ---

    def settle_claims(self) -> None:
        """Collect the attached trays, less those that claim a GPU of another tray."""
        for name, observation in self.seen.items():
            if observation.inconsistent:
                observation = self._by_majority(name, observation)
            if observation.identity is None:
                continue
            if not NODE_NAME.fullmatch(name):
                self._say(name, "illegal_tray_name", "cannot stand in a hostlist", "rename it in the inventory")
            else:
                self._claims[name] = observation
        known = {name: tray["gpu_uuids"] for name, tray in self.previous.trays.items()}
        self._rivals = double_claims(known, {name: claim.gpu_uuids for name, claim in self._claims.items()})
        for name, owner in self._rivals.items():
            del self._claims[name]
            self._say(name, "tray_duplicate", f"has GPUs of {owner}", "give one tray one name in the inventory")

    def _by_majority(self, name: str, observation: Observation) -> Observation:
        """A inconsistent observation, as one of the clique that most GPUs name where the site has decided so.

        A tray that already stands there keeps its place like any other in conflict.
        """
        clique = observation.majority
        if self.policy.conflict_policy != MAJORITY or clique is None or self._stands_in(name, clique):
            return observation
        if "mixed_cliques" in self.policy.override:
            self.mixed.add(name)
            return replace(observation, identity=clique)
        self._say(
            name,
            "mixed_cliques",
            f"has most of its GPUs in clique {clique[0]}.{clique[1]} and does not enter it",
            "give its GPUs one NVLink partition, or name mixed_cliques in override",
        )
        return observation

    def _stands_in(self, name: str, clique: Identity) -> bool:
        tray = self.previous.trays.get(name)
        if tray is None:
            return False
        place = tray["clique"]
        return (self.previous.cluster_uuid(place), self.previous.cliques[place]["clique_id"]) == clique

    # --- places ---

    def place_claims(self) -> None:
        """Give every claim its clique, new names where there are none, and bring its tray up to date."""
        self.register.suggest(self._declared_names())
        self._adopt_blocks()
        self.register.admit((_identity(claim), claim.chassis_serial) for claim in self._claims.values())
        places = {name: self.register.clique_of(_identity(claim)) for name, claim in self._claims.items()}
        networks = addresses.networks(self.policy.imex_networks)
        imex = addresses.imex_addresses(self._claims, places, self.previous.trays, networks)
        for name, claim in self._claims.items():
            self._place(name, claim, places[name], imex[name])
            if imex[name] is None:
                remedy = "check its addresses and imex_network"
                self._say(name, "imex_address_missing", "has no address of its own for its IMEX domain", remedy)
        self._describe_domains(places)

    def _adopt_blocks(self) -> None:
        """A clique without a place is to have the block in which Slurm has most of its trays; a block goes to one."""
        blocks = {name: row.block for name, row in self.seen.items() if row.block and not self._slurm_cluster(name)}
        if blocks:
            votes = Counter((_identity(self._claims[name]), blocks[name]) for name in blocks if name in self._claims)
            held = {*blocks.values(), *self._running}
            self.register.adopt(_elected(votes), sorted(held, key=lambda block: (block[1], block[0])))

    def _slurm_cluster(self, name: str) -> str | None:
        """The Slurm cluster that a target will be in: what the site says now, else what it has said."""
        said = self.seen[name].slurm_cluster
        if said is None and name in self.previous.trays:
            said = self.previous.trays[name].get("slurm_cluster")
        return said or None

    def cluster_blocks(self) -> Clusters:
        """The clusters, with a block in each Slurm for each clique that has trays there."""
        votes: dict[str, Counter[tuple[tuple[str, str], Running]]] = defaultdict(Counter)
        reserved: dict[str, set[Running]] = defaultdict(set)
        for name, row in self.seen.items():
            cluster = self._slurm_cluster(name)
            if row.block and cluster:
                reserved[cluster].update((row.block, *self._running))
                if name in self.trays:
                    votes[cluster][((cluster, self.trays[name]["clique"]), row.block)] += 1
        running = {place: block for of_one in votes.values() for place, block in _elected(of_one).items()}
        unclaimed = {cluster: self._unclaimed for cluster in self._asked_clusters() if cluster}
        return cluster_blocks(self.previous, self.trays, self.register.cliques, running, reserved, unclaimed)

    def reserved_blocks(self) -> dict[str, int]:
        """The blocks that are reserved in the only Slurm that there is."""
        return self.register.reserve(self._unclaimed if self._asked_clusters() == {None} else ())

    def _asked_clusters(self) -> set[str | None]:
        """The Slurm cluster that was asked for its blocks, None for the only one; empty where that cannot be told."""
        clusters = {self._slurm_cluster(name) for name, row in self.seen.items() if row.block}
        return clusters if len(clusters) == 1 else set()

    def compare_blocks(self, fabric: Fabric) -> None:
        """Find the trays that Slurm has in another block than the fabric."""
        for name, observation in self.seen.items():
            block = fabric.block_of(name) if observation.block and name in fabric.trays else None
            if observation.block and block and block["name"] != observation.block[0]:
                clique = fabric.trays[name]["clique"]
                other = f"is in Slurm's block {observation.block[0]}, its clique {clique} has block {block['name']}"
                self._say(name, "block_mismatch", other, "apply the topology, or correct the block's name")

    def _declared_names(self) -> dict[str, str]:
        """Cluster UUID -> the rack that the site declares its trays in; none where they are of several racks."""
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
        # A source that sees no GPU, such as a node label, says nothing about those that are known.
        gpus = set(claim.gpu_uuids) or known
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
        swapped = bool(known) and not gpus & known
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

    def _describe_domains(self, places: Mapping[str, str]) -> None:
        """Keep what a domain knows of its chassis and size: serials are collected, the expected size only grows."""
        domains, cliques = self.register.domains, self.register.cliques
        sizes: Counter[str] = Counter()
        for clique, size in Counter([tray["clique"] for tray in self.trays.values()]).items():
            sizes[cliques[clique]["domain"]] += size
        serials: dict[str, set[str]] = defaultdict(set)
        for clique, serial in {(places[name], claim.chassis_serial) for name, claim in self._claims.items()}:
            if serial:
                serials[cliques[clique]["domain"]].add(serial)
        for name, domain in domains.items():
            expected = domain["expected_trays"]
            if sizes[name]:
                declared = len(self.policy.expected.get(name, ()))
                expected = max(declared or self.policy.expected_trays or expected, sizes[name])
            if expected != domain["expected_trays"] or not serials[name].issubset(domain["chassis_serials"]):
                domains[name] = {
                    "cluster_uuid": domain["cluster_uuid"],
                    "chassis_serials": natural_sorted({*domain["chassis_serials"], *serials[name]}),
                    "expected_trays": expected,
                }

    # --- what the site says of its trays ---

    def follow_the_site(self) -> None:
        """Take names, connection addresses and clusters from the site, of every target that has a place.

        What it does not say stays as it was.
        """
        for name, observation in self.seen.items():
            if name not in self.trays:
                continue
            for kind, said in (("name", _names_by_the_site), ("cluster", _clusters_by_the_site)):
                news = said(observation, self.trays[name])
                if news:
                    self._follow(name, kind, news)
        for kind in ("slurm", "kubernetes"):
            self._one_tray_each(f"{kind}_node", f"{kind}_cluster")

    def _follow(self, name: str, kind: str, news: Mapping[str, str]) -> None:
        """Give a tray what the site says of it; an empty text takes the key away."""
        tray = self.trays[name]
        steps = "; ".join(f"{key} {_shown(tray.get(key))} -> {value or 'none'}" for key, value in news.items())
        self.trays[name] = cast(Tray, {key: value for key, value in {**tray, **news}.items() if value != ""})
        if name in self.previous.trays:
            self._change(name, tray["clique"], tray["clique"], kind, steps)

    def _one_tray_each(self, key: str, cluster_key: str) -> None:
        """One node, one tray: among all trays, or in each cluster where they are in several."""
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
                    f"fabric_{key}: trays {owner} and {name}{of_cluster} would both be {node}; "
                    "let the site's expression differ"
                )

    # --- state ---

    def tray_states(self, previous_state: State | None) -> dict[str, TrayState]:
        """The state of every tray: of the targets as seen now, of the others as it was."""
        before = previous_state.trays if previous_state else {}
        states: dict[str, TrayState] = {}
        for name, tray in before.items():
            if name in self.seen:
                continue
            tray = _without({_PENDING}, tray)
            if name in self.trays and tray["state"] == UNPLACED:
                # A person has placed it by hand; nobody has seen it there yet.
                states[name] = _given_place(tray, STALE)
            elif name in self.trays or tray["state"] == UNPLACED:
                states[name] = tray
        for name, observation in self.seen.items():
            if name in self.trays or _may_be_a_tray(observation):
                states[name] = self._tray_state(name, observation, before.get(name))
            else:
                message = f"Host {name} shows no GPU and has no place; leave it out of fabric_hosts if it is no tray."
                self._fabric_findings.append(finding("not_a_tray", message, tray=name))
        return states

    def _tray_state(self, name: str, observation: Observation, before: TrayState | None) -> TrayState:
        placed = name in self.trays
        if not observation.reachable:
            word, what = STALE, f"{self._keeps(name)}: {observation.problem}"
            self._say(name, "tray_unreachable", what, "bring it back and discover again")
        elif observation.inconsistent or name in self._rivals:
            word = CONFLICT
            if observation.inconsistent:
                what = f"{self._keeps(name)}: its GPUs are in different cliques"
                self._say(name, "tray_not_attached", what, "give its GPUs one NVLink partition")
        elif name in self._claims:
            word = PRESENT
        elif observation.node_local and not placed:
            # A host whose NVLink ends within it has nothing to be attached to.
            word = UNPLACED
        else:
            word, what = STALE, f"{self._keeps(name)}: not all its GPUs are attached to one clique"
            self._say(name, "tray_not_attached", what, "see its other findings, then discover again")
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
        return sorted([*kept, *self._fabric_findings, *self.register.findings], key=_finding_key)

    # --- small words ---

    def _keeps(self, name: str) -> str:
        return f"keeps its place in {self.trays[name]['clique']}" if name in self.trays else "gets no place"

    def _where(self, name: str, claim: Observation) -> str:
        uuid, clique_id = _identity(claim)
        how = "most of its GPUs in" if name in self.mixed else "attached in"
        return f"{how} clique {uuid}.{clique_id}"

    def _change(self, name: str, old: str | None, new: str, kind: str, why: str) -> None:
        self.changes.append({"tray": name, "from": old, "to": new, "kind": kind, "why": why})

    def _say(self, name: str, code: str, what: str, remedy: str) -> None:
        self._findings[name].append(finding(code, f"Tray {name} {what}; {remedy}.", tray=name))


def _silent(name: str) -> Observation:
    return Observation(name, "", reachable=False, problem="no answer in this run")


def _identity(claim: Observation) -> Identity:
    """Of an attached observation, which always has one."""
    return cast(Identity, claim.identity)


def _same_hardware(claim: Observation, tray: Tray) -> bool:
    same_gpus = not claim.gpu_uuids or list(claim.gpu_uuids) == tray["gpu_uuids"]
    return same_gpus and claim.tray_index in (None, tray["tray_index"])


def _may_be_a_tray(observation: Observation) -> bool:
    """Whether a host that has no place looks like a tray at all: not one without a GPU, a driver and a complaint."""
    complaints = (row for row in observation.findings if row["severity"] != INFO and row["code"] not in _NO_TRAYS_CODES)
    return bool(observation.gpu_count or observation.identity or any(complaints)) or not observation.reachable


def _names_by_the_site(observation: Observation, tray: Tray) -> dict[str, str]:
    """The names that the site gives this tray and the fabric does not know yet."""
    slurm, kubernetes, address = observation.slurm_node, observation.kubernetes_node, observation.ansible_host
    if not (slurm or kubernetes or address):
        return {}
    said = {
        "slurm_node": slurm,
        "kubernetes_node": kubernetes,
        "ansible_host": None if address == observation.tray else address,
    }
    return {key: value for key, value in said.items() if value and value != tray.get(key)}


def _clusters_by_the_site(observation: Observation, tray: Tray) -> dict[str, str]:
    """The clusters that the site now has this tray in, empty where it has it in none."""
    if observation.slurm_cluster is None and observation.kubernetes_cluster is None:
        return {}
    said = (("slurm_cluster", observation.slurm_cluster), ("kubernetes_cluster", observation.kubernetes_cluster))
    return {key: value for key, value in said if value is not None and value != tray.get(key, "")}


def _elected(votes: Counter[tuple[K, Running]]) -> dict[K, Running]:
    """Each candidate with the block that most of its trays are in; a block goes to one of them.

    Of equals the one whose tray comes first: the trays are in their natural order, and so are the votes.
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
