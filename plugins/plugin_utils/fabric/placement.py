# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compute the next fabric from the previous one and the observations of a run, with a reason for every change.

Pure: no file and no clock, so equal input gives equal bytes, whatever the order of the observations. A tray passes each
step once, in this order: claims, identity, partitions, naming (all four in identity.py), addresses (addresses.py),
trays, blocks and states (here), gates (gates.py). A step reads the results of those before it. The rules:

- Only an attached observation places or moves a tray. A tray that is down, in progress, unhealthy or in conflict keeps
  its place.
- Only a target of this run may become stale.
- Names and block positions are assigned once, never changed and never reused.
- A cluster UUID identifies a domain; cluster UUID and clique ID a clique. A clique ID alone identifies nothing. Where
  these values change and the GPUs stay, domains and cliques keep their names.
- A GPU belongs to one tray. A second tray that claims it is in conflict and changes nothing.
- The site sets the Slurm and Kubernetes cluster of a tray; without a value it stays as it was.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import (
    addresses,
    causes,
    gates,
    identity,
    operations,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.identity import Claims, Names
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.merging import Merged
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    CONFLICT,
    PRESENT,
    STALE,
    UNHEALTHY,
    UNKNOWN,
    UNPLACED,
    Block,
    Change,
    Clique,
    Clusters,
    Domain,
    Fabric,
    Observation,
    SlurmCluster,
    State,
    Tray,
    TrayState,
    natural_key,
    natural_sorted,
    tray_finding,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import PlacementError, Policy


@dataclass(frozen=True)
class Placement:
    """The next fabric with its state, changes and findings. objections: findings of the gates that object.

    gates: tray -> the gates that object to its change.
    """

    fabric: Fabric
    state: State
    changes: list[Change]
    objections: list[Finding]
    gates: Mapping[str, Sequence[str]]

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
    sources: Merged | None = None,
    accepted: Fabric | None = None,
    earlier: Sequence[Change] = (),
) -> Placement:
    """Compute the next fabric and state; PlacementError if the site's settings contradict each other.

    observations: at most one for each target. A target without one gave no answer; observations of other trays are
    ignored. now: UTC as in 2026-11-21T05:00:00Z. sources: findings about the sources, for the state, and the blocks of
    a running Slurm: no other clique gets their names and positions, and those without a known tray stay reserved.
    accepted: the fabric of the fabric file, where `previous` has changes of a pending proposal too: its overrides, and
    the changes `earlier` of trays that are not targets, which the gates check together with those of this run.
    """
    sources = sources or Merged([], [])
    previous = previous or Fabric()
    accepted = accepted or previous
    identity.check_names(accepted, policy)
    answers = {observation.tray: observation for observation in observations}
    # Sorted once: all steps process the trays in this order.
    silent = Observation("", "", reachable=False, problem="no answer in this run")
    observed = {name: answers.get(name) or replace(silent, tray=name) for name in natural_sorted(targets)}
    claimed = identity.collect(previous, observed, policy)
    known = identity.follow(previous, accepted, claimed.trays)
    claimed = identity.hold(known, claimed, policy)
    unplaced = len(observed.keys() - claimed.trays.keys() - known.trays.keys())
    claimed, policies = identity.decide(known, claimed, policy, unplaced)
    names = identity.assign(known, claimed, policy)
    networks = addresses.networks(policy.imex_networks)
    imex = addresses.imex_addresses(claimed.trays, names.places, known.trays, networks)
    placed = _placed(known, observed, claimed, names, imex, policies, now, policy)
    fabric, mismatches = _with_blocks(known, observed, names, placed, sources)
    findings = [*claimed.findings, *names.findings, *placed.findings, *mismatches]
    findings += operations.smaller(fabric, observed)
    state = _observed(previous_state, observed, claimed, fabric.trays, findings, now)
    changes = [*earlier, *placed.changes]
    overridden = [row for row in previous.overrides if row not in accepted.overrides]
    fabric = replace(fabric, overrides=accepted.overrides)
    step = gates.Step(accepted, fabric, changes, now, state.trays, observed, unplaced, claimed.held)
    verdict = gates.check(step, policy, overridden)
    found = [*sources.findings, *state.findings, *verdict.findings, *identity.unused_names(fabric, policy)]
    # An override that lets no change through is not recorded: the gate may object in each run.
    recorded = verdict.overridden if fabric != accepted else []
    return Placement(
        replace(fabric, overrides=[*fabric.overrides, *recorded]) if recorded else fabric,
        replace(state, findings=found),
        changes,
        verdict.objections,
        verdict.gates,
    )


# Kind of a change -> the fields of an observation that the site sets.
_SETTINGS = {
    "name": ("slurm_node", "kubernetes_node", "ansible_host"),
    "cluster": ("slurm_cluster", "kubernetes_cluster"),
}


def _placed(
    previous: Fabric,
    observed: Mapping[str, Observation],
    claims: Claims,
    names: Names,
    imex: Mapping[str, str | None],
    policies: Mapping[str, str],
    now: str,
    policy: Policy,
) -> _Trays:
    """Place or update the tray of every claim, then apply the site's settings of every placed target.

    imex: claimed tray -> address. policies: cluster UUID -> policy of a domain that is split per tray. PlacementError
    where the site gives two trays one node.
    """
    draft = _Trays(previous, claims, now)
    for name, clique in names.places.items():
        draft.place(name, clique, imex[name])
    draft.domains = _sized(previous, names, draft.trays, policies, policy)
    for name, observation in observed.items():
        if name in draft.trays:
            draft.set(name, observation)
    for kind in ("slurm", "kubernetes"):
        _check_unique_nodes(draft.trays, f"{kind}_node", f"{kind}_cluster")
    return draft


class _Trays:
    """The trays and domains of the next fabric, and how the trays differ from the previous one."""

    def __init__(self, previous: Fabric, claims: Claims, now: str) -> None:
        self.trays: dict[str, Tray] = dict(previous.trays)
        self.domains: dict[str, Domain] = {}
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
        replaced = bool(known) and not gpus & known
        others = natural_sorted({self._owner_of[gpu] for gpu in gpus & self._owner_of.keys()}) if replaced else []
        whose = f", its GPUs are those of {summarize(others)}" if others else ", all its GPUs are new"
        if clique != old["clique"]:
            new["clique"] = clique
            new["why"] = f"moved {date} from {old['clique']}: {where}{whose if replaced else ''}"
            steps = [("moved", new["why"])]
        elif replaced:
            new["why"] = f"replaced {date}: {where}{whose}"
            steps = [("replaced", new["why"])]
        if others:
            what = f"has the GPUs that {summarize(others)} had"
            self._report(name, "tray_replaced", what, "check whether host names are exchanged before you accept it")
        elif replaced:
            remedy = "accept the proposal if the tray was replaced"
            self._report(name, "tray_replaced", "has none of its previous GPUs", remedy)
        if steps:
            self.trays[name] = new
            self._change(name, old["clique"], clique, steps[0][0], "; ".join(text for _kind, text in steps))

    @cached_property
    def _owner_of(self) -> dict[str, str]:
        """GPU -> its tray in the previous fabric."""
        return {gpu: name for name, tray in self._previous.trays.items() for gpu in tray["gpu_uuids"]}

    def set(self, name: str, observation: Observation) -> None:
        """Set what the site sets for a placed tray; all other values stay. An empty cluster removes the key."""
        for kind, keys in _SETTINGS.items():
            tray = self.trays[name]
            given = {key: getattr(observation, key) for key in keys}
            if given.get("ansible_host") == name:
                del given["ansible_host"]
            values = {key: new for key, new in given.items() if new is not None and new != tray.get(key, "")}
            if values:
                steps = "; ".join(f"{key} {_shown(tray.get(key))} -> {new or 'none'}" for key, new in values.items())
                self.trays[name] = cast(Tray, {key: value for key, value in {**tray, **values}.items() if value != ""})
                if name in self._previous.trays:
                    self._change(name, tray["clique"], tray["clique"], kind, steps)

    def _where(self, name: str) -> str:
        uuid, clique_id = self._claims.identity(name)
        return f"attached in clique {uuid}.{clique_id}"

    def _change(self, name: str, old: str | None, new: str, kind: str, why: str) -> None:
        self.changes.append({"tray": name, "from": old, "to": new, "kind": kind, "why": why})

    def _report(self, name: str, code: str, what: str, remedy: str) -> None:
        self.findings.append(tray_finding(name, code, what, remedy))


def _sized(
    previous: Fabric, names: Names, trays: Mapping[str, Tray], policies: Mapping[str, str], policy: Policy
) -> dict[str, Domain]:
    """The domains with chassis serials, expected size and policy: the size only grows."""
    domain_of = {name: clique["domain"] for name, clique in previous.cliques.items()}
    domain_of.update((name, domain) for name, (domain, _clique_id) in names.cliques.items())
    sizes: Counter[str] = Counter()
    for clique, size in Counter([tray["clique"] for tray in trays.values()]).items():
        sizes[domain_of[clique]] += size
    domains = dict(names.domains)
    for name, domain in names.domains.items():
        expected = domain["expected_trays"]
        if sizes[name]:
            declared = len(policy.expected.get(name, ()))
            expected = max(declared or policy.expected_trays or expected, sizes[name])
        serials = natural_sorted(names.chassis.get(domain["cluster_uuid"], ()))
        domains[name] = {**domain, "chassis_serials": serials, "expected_trays": expected}
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


def _shown(value: object) -> str:
    return "none" if value is None else str(value)


Running = tuple[str, int]
"""Name and position of a block of a running Slurm."""

_BLOCK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def _with_blocks(
    previous: Fabric, observed: Mapping[str, Observation], names: Names, placed: _Trays, sources: Merged
) -> tuple[Fabric, list[Finding]]:
    """The next fabric: every new clique gets a block, and every cluster one for each clique that has trays there.

    A running Slurm that was read gives its blocks to the cliques whose trays it has there. Trays that it has in another
    block are findings.
    """
    cluster_of = {name: _slurm_cluster(previous, name, row) for name, row in observed.items() if row.block}
    queried = set(cluster_of.values())
    # Whose blocks were read is ambiguous where the trays are in several clusters.
    unclaimed = [block for block in sources.unclaimed if _BLOCK_NAME.fullmatch(block[0])] if len(queried) == 1 else []
    running: dict[str | None, set[Running]] = {cluster: set(sources.blocks) for cluster in queried}
    votes: dict[str | None, Counter[tuple[str, Running]]] = defaultdict(Counter)
    for name, cluster in cluster_of.items():
        block = cast(Running, observed[name].block)
        running[cluster].add(block)
        if name in placed.trays and (cluster or name in names.places):
            votes[cluster][placed.trays[name]["clique"], block] += 1
    adopted = {cluster: _elected(of_one) for cluster, of_one in votes.items()}
    own = _Blocks([row["block"] for row in previous.cliques.values()], previous.reserved_blocks, running.get(None, ()))
    cliques = dict(previous.cliques)
    for clique, (domain, clique_id) in names.cliques.items():
        block_of = own.give(clique, adopted.get(None, {}).get(clique))
        cliques[clique] = {"domain": domain, "clique_id": clique_id, "block": block_of}
    left = dict.fromkeys(queried, unclaimed)
    clusters = _clusters(previous, placed.trays, cliques, adopted, running, left)
    blocks = [clique["block"] for clique in cliques.values()]
    reserved = reserved_blocks(blocks, previous.reserved_blocks, left.get(None, ()))
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


def _elected(votes: Counter[tuple[str, Running]]) -> dict[str, Running]:
    """Map each clique to the block of most of its trays; a block goes to one clique.

    The first tray in natural order decides between equal numbers.
    """
    chosen: dict[str, Running] = {}
    for (clique, block), _trays in votes.most_common():
        if clique not in chosen and block not in chosen.values() and _BLOCK_NAME.fullmatch(block[0]):
            chosen[clique] = block
    return chosen


class _Blocks:
    """The names and positions of one Slurm's blocks: given once, and never to another clique.

    reserved: name -> position, of blocks without a clique. running: all blocks of the running Slurm.
    """

    def __init__(self, blocks: Collection[Block], reserved: Mapping[str, int], running: Collection[Running]) -> None:
        self._names, self._positions = {block["name"] for block in blocks}, {block["position"] for block in blocks}
        self._reserved = {position: name for name, position in reserved.items()}
        self._taken = {*self._names, *reserved, *(name for name, _position in running)}
        last = max((*self._positions, *self._reserved, *(position for _name, position in running)), default=-1)
        self._free_positions = itertools.count(last + 1)

    def give(self, name: str, adopted: Running | None) -> Block:
        """The block of a new clique: the running one of its trays if it is free, else one at the next position.

        Its name is then the one given, with a number where it is taken.
        """
        found, position = adopted or ("", -1)
        is_free = adopted and found not in self._names and position not in self._positions
        if not is_free or self._reserved.get(position, found) != found:
            words = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
            found, position = next(word for word in words if word not in self._taken), next(self._free_positions)
        self._names.add(found)
        self._taken.add(found)
        self._positions.add(position)
        return {"name": found, "position": position}


def _clusters(
    fabric: Fabric,
    trays: Mapping[str, Tray],
    cliques: Mapping[str, Clique],
    adopted: Mapping[str | None, Mapping[str, Running]],
    running: Mapping[str | None, Collection[Running]],
    unclaimed: Mapping[str | None, Collection[Running]],
) -> Clusters:
    """The clusters of the next fabric: those of the previous fabric, and those of the trays.

    A Slurm cluster gets a block for a clique with the first tray there. adopted: Slurm cluster -> clique -> the running
    block with most of its trays. running: Slurm cluster -> all its running blocks; unclaimed: those of them without a
    tray of the fabric, which stay reserved.
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
    given: dict[str, _Blocks] = {}
    # In the order of the cliques' own blocks, so that the result does not depend on the order of the answers.
    for cluster, clique in sorted(places, key=lambda place: (place[0], cliques[place[1]]["block"]["position"])):
        row = slurm.setdefault(cluster, {"blocks": {}})
        if cluster not in given:
            kept = row.get("reserved_blocks", {})
            given[cluster] = _Blocks(row["blocks"].values(), kept, running.get(cluster, ()))
        if clique not in row["blocks"]:
            block = given[cluster].give(cliques[clique]["block"]["name"], adopted.get(cluster, {}).get(clique))
            row["blocks"][clique] = block
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


_PENDING = "acceptance_pending"
# Findings that end when the proposal is accepted.
_UNTIL_ACCEPTED = frozenset({_PENDING, "tray_replaced", "domain_uuid_changed", "clique_id_changed"})


def _observed(
    previous: State | None,
    observed: Mapping[str, Observation],
    claims: Claims,
    trays: Mapping[str, Tray],
    found: Iterable[Finding],
    now: str,
) -> State:
    """The state of every tray: targets as observed now, the others as before.

    trays: of the next fabric. found: findings of the placement; those about a tray stand in its state.
    """
    before = previous.trays if previous else {}
    of_tray: dict[str, list[Finding]] = defaultdict(list)
    # Earlier ones about hosts that are not targets now.
    of_fabric = [
        row
        for row in (previous.findings if previous else [])
        if row["code"] == "not_a_tray" and row.get("tray") not in observed
    ]
    for row in found:
        subject = row.get("tray")
        (of_tray[subject] if subject else of_fabric).append(row)
    states: dict[str, TrayState] = {}
    for name, tray in before.items():
        if name in observed:
            continue
        tray = _without({_PENDING}, tray)
        if name in trays and tray["state"] == UNPLACED:
            # Placed by hand; not observed there yet.
            states[name] = _given_place(tray, STALE)
        elif name in trays or tray["state"] == UNPLACED:
            states[name] = tray
    for name, observation in observed.items():
        if name in trays or observation.may_be_a_tray:
            states[name] = _tray_state(observation, claims, trays.get(name), before.get(name), of_tray[name])
        else:
            message = f"Host {name} reports no GPU and has no place; leave it out of fabric_hosts if it is not a tray."
            of_fabric.append(finding("not_a_tray", message, tray=name))
    return State(states, sorted(of_fabric, key=_finding_key), now)


def _tray_state(
    observation: Observation, claims: Claims, tray: Tray | None, before: TrayState | None, found: list[Finding]
) -> TrayState:
    """The state of an observed tray; tray: its row in the next fabric."""
    name = observation.tray
    if not observation.reachable:
        status, what = STALE, f"{_keeps(tray)}: {causes.cause(observation.problem)}"
        found.append(tray_finding(name, "tray_unreachable", what, "restore it and discover again"))
    elif observation.inconsistent or name in claims.rivals:
        status = CONFLICT
        if observation.inconsistent:
            what = f"{_keeps(tray)}: its GPUs are in different cliques"
            found.append(tray_finding(name, "tray_not_attached", what, "give its GPUs one NVLink partition"))
    elif name in claims.trays:
        status = PRESENT
    elif name in claims.held:
        _uuid, domain = claims.held[name]
        status, what = STALE, f"{_keeps(tray)}: not all of NVLink domain {domain} reports its new cluster UUID"
        found.append(tray_finding(name, "rotation_in_progress", what, "discover again when all its trays report it"))
    elif observation.node_local and not tray:
        # NVLink within one host (HGX) is not attached to an NVLink domain, nor is a GPU without NVLink (L40S).
        status = UNPLACED
    else:
        status, what = STALE, f"{_keeps(tray)}: not all its GPUs are attached to one clique"
        remedy = "resolve its other findings, then discover again"
        found.append(tray_finding(name, "tray_not_attached", what, remedy))
    # A rack that attaches other trays has a fabric.
    is_missing = any(row["code"] == "fabric_missing" for row in observation.findings)
    health = UNHEALTHY if is_missing and observation.chassis_serial in claims.chassis else observation.health
    # For an unreachable tray the last observation is kept.
    last = before if before and not observation.reachable else None
    state: TrayState = {
        "state": status if tray else UNPLACED,
        "health": health if observation.reachable else UNKNOWN,
        "observed_at": last["observed_at"] if last else observation.observed_at,
        "source": last["source"] if last else observation.source or None,
        "driver_version": last["driver_version"] if last else observation.driver_version,
        "findings": sorted([*observation.findings, *found], key=_finding_key),
    }
    if not tray:
        state["tray_index"] = last.get("tray_index") if last else observation.tray_index
        state["gpu_count"] = last.get("gpu_count", 0) if last else observation.gpu_count
    return state


def mark_pending(state: State, proposed: Fabric, changes: Iterable[Change], accepted: Fabric | None) -> State:
    """The state to write while a fabric is a pending proposal: the fabric file still has the old places."""
    places = accepted.trays if accepted else {}
    trays = dict(state.trays)
    for change in changes:
        name = change["tray"]
        if name not in trays or change["from"] == change["to"]:
            continue
        message = f"Tray {name} is observed in {change['to']}; accept the proposal to give it that place."
        tray = cast(TrayState, dict(trays[name]))
        tray["findings"] = [*tray["findings"], finding(_PENDING, message, tray=name)]
        if name not in places:
            # The fabric file has no row for the tray yet, so the state holds these values.
            row = proposed.trays[name]
            tray["state"], tray["tray_index"], tray["gpu_count"] = UNPLACED, row["tray_index"], len(row["gpu_uuids"])
        trays[name] = tray
    # A domain whose trays report another cluster UUID has no change of a tray.
    findings = [*state.findings, *identity.findings(accepted or Fabric(), proposed)]
    return replace(state, trays=trays, findings=sorted(findings, key=_finding_key))


def mark_accepted(state: State, accepted: Fabric) -> State:
    """The state after the placement was accepted: pending trays have a place now."""
    trays = {}
    for name, tray in state.trays.items():
        trays[name] = row = _without(_UNTIL_ACCEPTED, tray)
        if row is not tray and tray["state"] == UNPLACED and name in accepted.trays:
            trays[name] = _given_place(row, PRESENT)
    return replace(state, trays=trays, findings=[row for row in state.findings if row["code"] not in _UNTIL_ACCEPTED])


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


def _keeps(tray: Tray | None) -> str:
    return f"keeps its place in {tray['clique']}" if tray else "gets no place"


def _finding_key(row: Finding) -> tuple[Any, ...]:
    gpu = row.get("gpu")
    return row["code"], natural_key(row.get("tray") or ""), -1 if gpu is None else gpu, row["message"]
