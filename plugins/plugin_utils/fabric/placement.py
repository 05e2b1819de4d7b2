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
- The site sets the Slurm and Kubernetes cluster of a tray, and how a clique is split in Slurm's topology (split.py);
  without a value these stay as they were.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import (
    addresses,
    gates,
    identity,
    operations,
    products,
    split,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.differences import tray_changes
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
    tray_finding,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import PlacementError, Policy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.host_errors import cause
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import natural_key, natural_sorted
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, finding, keeping_place


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
    now: str,
    policy: Policy,
    sources: Merged | None = None,
    accepted: Fabric | None = None,
) -> Placement:
    """Compute the next fabric and state; PlacementError if the site's settings contradict each other.

    observations: one for each target of this run, also where it gave no answer. now: UTC as in 2026-11-21T05:00:00Z.
    sources: findings about the sources, for the state, and the blocks of a running Slurm: no other clique gets their
    names and positions, and those without a known tray stay reserved. accepted: the fabric of the
    fabric file, where `previous` has changes of a pending proposal too, which the gates check together with those of
    this run.
    """
    sources = sources or Merged([], [])
    previous = previous or Fabric()
    accepted = accepted or previous
    identity.check_names(accepted, policy)
    # Sorted once: all steps process the trays in this order.
    observed = {row.tray: row for row in sorted(observations, key=lambda row: natural_key(row.tray))}
    claimed = identity.collect(previous, observed, policy)
    # A tray that was moved on purpose does not take the name of its clique along.
    unmoved = {name: row for name, row in claimed.trays.items() if name not in policy.moves}
    known = identity.follow(previous, accepted, unmoved)
    claimed = identity.hold(known, claimed, policy)
    unplaced = len(observed.keys() - claimed.trays.keys() - known.trays.keys())
    claimed, policies = identity.decide(known, claimed, policy, unplaced)
    # Trays whose claim has no effect keep their GPUs, which another one may have reported.
    claimed = identity.without_rivals(known, claimed, "discover again when the domain of that one has changed")
    names = identity.assign(known, claimed, policy)
    imex = addresses.imex_addresses(claimed.trays, names.places, known.trays, policy.networks)
    # The tray of each claim, then the site's settings of each placed target.
    placed = _Trays(known, claimed, now)
    for name, clique in names.places.items():
        placed.place(name, clique, imex[name])
    placed.domains = _sized(known, names, placed.trays, policies, policy)
    for name in observed.keys() & placed.trays.keys():
        placed.set(name, observed[name])
    for kind in ("slurm", "kubernetes"):
        _check_unique_nodes(placed.trays, f"{kind}_node", f"{kind}_cluster")
    fabric, mismatches = _with_blocks(replace(known, overrides=accepted.overrides), observed, names, placed, sources)
    fabric = split.applied(fabric, policy.slurm_topology_split)
    findings = [*claimed.findings, *names.findings, *placed.findings, *mismatches]
    findings += operations.smaller(fabric, observed)
    findings += [finding("gpu_missing", message) for message, _trays in products.fewer_gpus(observed)]
    state = _observed(previous_state, observed, claimed, fabric.trays, findings, now)
    changes = tray_changes(accepted, fabric)
    overridden = [row for row in previous.overrides if row not in accepted.overrides]
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


# The fields of an observation that the site sets.
_SETTINGS = ("slurm_node", "kubernetes_node", "ansible_host", "slurm_cluster", "kubernetes_cluster")


class _Trays:
    """The trays and domains of the next fabric."""

    def __init__(self, previous: Fabric, claims: Claims, now: str) -> None:
        self.trays: dict[str, Tray] = dict(previous.trays)
        self.domains: dict[str, Domain] = {}
        self.findings: list[Finding] = []
        self._previous, self._claims, self._date = previous, claims, now[:10]

    def place(self, name: str, clique: str, imex_address: str | None) -> None:
        """Place a claimed tray in a clique, or update what changed."""
        old, claim = self._previous.trays.get(name), self._claims.trays[name]
        if old is None:
            self.trays[name] = {
                "clique": clique,
                "tray_index": claim.tray_index,
                "gpu_uuids": list(claim.gpu_uuids),
                "imex_address": imex_address,
                "slurm_node": claim.slurm_node or name,
                "kubernetes_node": claim.kubernetes_node or name,
                "why": f"placed {self._date}: {self._where(name)}",
            }
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
        if gpus < known:
            lost = f"reports {len(gpus)} of its {count(len(known), 'GPU')} in the fabric file"
            self._report(name, "gpu_missing", lost, "reset or replace the missing GPUs")
        elif gpus != known:
            new["gpu_uuids"] = list(claim.gpu_uuids)
        if claim.tray_index is not None:
            new["tray_index"] = claim.tray_index
        new["clique"], new["imex_address"] = clique, imex_address
        if clique != old["clique"]:
            new.pop("block", None)
        replaced = bool(known) and not gpus & known
        others = natural_sorted({self._owner_of[gpu] for gpu in gpus & self._owner_of.keys()}) if replaced else []
        whose = f", its GPUs are those of {summarize(others)}" if others else ", all its GPUs are new"
        if clique != old["clique"]:
            new["why"] = f"moved {date} from {old['clique']}: {where}{whose if replaced else ''}"
        elif replaced:
            new["why"] = f"replaced {date}: {where}{whose}"
        if others:
            what = f"has the GPUs that {summarize(others)} had"
            self._report(name, "tray_replaced", what, "check whether host names are exchanged before you accept it")
        elif replaced:
            remedy = "accept the proposal if the tray was replaced"
            self._report(name, "tray_replaced", "has none of its previous GPUs", remedy)
        self.trays[name] = new

    @cached_property
    def _owner_of(self) -> dict[str, str]:
        """GPU -> its tray in the previous fabric."""
        return {gpu: name for name, tray in self._previous.trays.items() for gpu in tray["gpu_uuids"]}

    def set(self, name: str, observation: Observation) -> None:
        """Set what the site sets for a placed tray; all other values stay. An empty cluster removes the key."""
        given = {key: getattr(observation, key) for key in _SETTINGS}
        if given["ansible_host"] == name:
            del given["ansible_host"]
        values = {**self.trays[name], **{key: new for key, new in given.items() if new is not None}}
        self.trays[name] = cast(Tray, {key: value for key, value in values.items() if value != ""})

    def _where(self, name: str) -> str:
        uuid, clique_id = self._claims.identity(name)
        return f"attached in clique {uuid}.{clique_id}"

    def _report(self, name: str, code: str, what: str, remedy: str) -> None:
        self.findings.append(tray_finding(name, code, what, remedy))


def _sized(
    previous: Fabric, names: Names, trays: Mapping[str, Tray], policies: Mapping[str, str], policy: Policy
) -> dict[str, Domain]:
    """The domains with chassis serials, expected size and policy: the size only grows."""
    domain_of = {name: clique["domain"] for name, clique in previous.cliques.items()}
    domain_of.update((name, domain) for name, (domain, _clique_id) in names.cliques.items())
    sizes = Counter(domain_of[tray["clique"]] for tray in trays.values())
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
    owners: dict[tuple[str | None, str], str] = {}
    for name, tray in cast(Mapping[str, dict[str, Any]], trays).items():
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


Running = tuple[str, int]
"""Name and position of a block of a running Slurm."""


def _with_blocks(
    previous: Fabric, observed: Mapping[str, Observation], names: Names, placed: _Trays, sources: Merged
) -> tuple[Fabric, list[Finding]]:
    """The next fabric: every new clique gets a block, and every cluster one for each clique that has trays there.

    A running Slurm that was read gives its blocks to the cliques whose trays it has there. Trays that it has in another
    block are findings.
    """
    slurm = _LiveBlocks(previous, observed, names, placed.trays, sources)
    kept = {name: row["block"] for name, row in previous.cliques.items()}
    own, reserved = slurm.blocks(None, kept, previous.reserved_blocks, {name: name for name in names.cliques})
    cliques = dict(previous.cliques)
    for clique, (domain, clique_id) in names.cliques.items():
        cliques[clique] = {"domain": domain, "clique_id": clique_id, "block": own[clique]}
    clusters = _clusters(previous, placed.trays, cliques, slurm)
    fabric = Fabric(placed.domains, cliques, placed.trays, previous.overrides, clusters, reserved)
    return fabric, _mismatches(fabric, observed)


def _mismatches(fabric: Fabric, observed: Mapping[str, Observation]) -> list[Finding]:
    """The trays that are in another block in Slurm than in the fabric."""
    findings = []
    for name, observation in observed.items():
        block = fabric.block_of.get(name) if observation.block else None
        if observation.block and block and block["name"] != observation.block[0]:
            clique = fabric.trays[name]["clique"]
            what = f"is in block {observation.block[0]} of Slurm, but its clique {clique} has block {block['name']}"
            remedy = "apply the topology, or correct the block's name"
            findings.append(tray_finding(name, "slurm_topology_differs", what, remedy))
    return findings


def _elected(votes: Counter[tuple[str, Running]]) -> dict[str, Running]:
    """Map each clique to the block of most of its trays; a block goes to one clique.

    The first tray in natural order decides between equal numbers.
    """
    chosen: dict[str, Running] = {}
    for (clique, block), _trays in votes.most_common():
        if clique not in chosen and block not in chosen.values() and split.BLOCK_NAME.fullmatch(block[0]):
            chosen[clique] = block
    return chosen


class _LiveBlocks:
    """What the running Slurms that were read say about blocks; a Slurm cluster is None where there is only one.

    adopted: cluster -> clique -> the block with most of its trays. running: cluster -> all its blocks. unclaimed: those
    without a tray of the fabric, of the only cluster that was read.
    """

    def __init__(
        self,
        previous: Fabric,
        observed: Mapping[str, Observation],
        names: Names,
        trays: Mapping[str, Tray],
        sources: Merged,
    ) -> None:
        votes: dict[str | None, Counter[tuple[str, Running]]] = defaultdict(Counter)
        self._running: dict[str | None, set[Running]] = {}
        for name, row in observed.items():
            if row.block:
                known = previous.trays[name].get("slurm_cluster") if name in previous.trays else None
                cluster = (known if row.slurm_cluster is None else row.slurm_cluster) or None
                self._running.setdefault(cluster, set(sources.blocks)).add(row.block)
                if name in trays and (cluster or name in names.places):
                    votes[cluster][trays[name]["clique"], row.block] += 1
        self._adopted = {cluster: _elected(of_one) for cluster, of_one in votes.items()}
        # Whose blocks were read is ambiguous where the trays are in several clusters.
        self._split = previous.split_blocks
        unclaimed = [block for block in sources.unclaimed if split.BLOCK_NAME.fullmatch(block[0])]
        self._unclaimed = dict.fromkeys(self._running, unclaimed) if len(self._running) == 1 else {}

    def blocks(
        self, cluster: str | None, kept: Mapping[str, Block], reserved: Mapping[str, int], wanted: Mapping[str, str]
    ) -> tuple[dict[str, Block], dict[str, int]]:
        """(clique -> its block, the reserved blocks) of a cluster: given once, and never to another clique.

        kept: clique -> the block that it has. reserved: name -> position, of blocks without a clique. wanted: other
        clique -> the name of its block. It gets the running block of its trays if that is free, else one at the next
        position, whose name has a number where it is taken.
        """
        running, blocks = self._running.get(cluster, ()), dict(kept)
        at = {position: name for name, position in reserved.items()}
        given = [*kept.values(), *self._split]
        names, positions = {row["name"] for row in given}, {row["position"] for row in given}
        taken = {*names, *reserved, *(name for name, _position in running)}
        last = max((*positions, *at, *(position for _name, position in running)), default=-1)
        free_positions = itertools.count(last + 1)
        for clique, word in wanted.items():
            name, position = self._adopted.get(cluster, {}).get(clique, ("", -1))
            if not name or name in names or position in positions or at.get(position, name) != name:
                words = itertools.chain([word], (f"{word}_{number}" for number in itertools.count(2)))
                name, position = next(free for free in words if free not in taken), next(free_positions)
            names.add(name)
            taken.add(name)
            positions.add(position)
            blocks[clique] = {"name": name, "position": position}
        taken_now = [*blocks.values(), *self._split]
        return blocks, reserved_blocks(taken_now, reserved, self._unclaimed.get(cluster, ()))


def _clusters(
    fabric: Fabric, trays: Mapping[str, Tray], cliques: Mapping[str, Clique], running: _LiveBlocks
) -> Clusters:
    """The clusters of the next fabric: those of the previous fabric, and those of the trays.

    A Slurm cluster gets a block for a clique with the first tray there. The first Slurm cluster of a file takes over
    the blocks that the file had, since they belong to it.
    """
    slurm = dict(fabric.clusters.get("slurm", {}))
    in_cluster = [tray for tray in trays.values() if "slurm_cluster" in tray]
    sizes = Counter(tray["slurm_cluster"] for tray in in_cluster)
    if sizes and not slurm:
        heir = min(sizes, key=lambda name: (-sizes[name], name))
        slurm[heir] = {"blocks": {name: row["block"] for name, row in fabric.cliques.items()}}
        slurm[heir]["reserved_blocks"] = dict(fabric.reserved_blocks)
    wanted: dict[str, dict[str, str]] = {cluster: {} for cluster in (*slurm, *sorted(sizes))}
    # In the order of the cliques' own blocks, so that the result does not depend on the order of the answers.
    for tray in sorted(in_cluster, key=lambda tray: cliques[tray["clique"]]["block"]["position"]):
        wanted[tray["slurm_cluster"]][tray["clique"]] = cliques[tray["clique"]]["block"]["name"]
    for cluster, words in wanted.items():
        row = slurm.get(cluster, SlurmCluster(blocks={}))
        new = {clique: word for clique, word in words.items() if clique not in row["blocks"]}
        slurm[cluster] = slurm_cluster(*running.blocks(cluster, row["blocks"], row.get("reserved_blocks", {}), new))
    return with_clusters(fabric, slurm, trays)


def slurm_cluster(blocks: dict[str, Block], reserved: dict[str, int]) -> SlurmCluster:
    """A Slurm cluster of the fabric file, with its reserved blocks where it has some."""
    return SlurmCluster(blocks=blocks, reserved_blocks=reserved) if reserved else SlurmCluster(blocks=blocks)


def with_clusters(fabric: Fabric, slurm: dict[str, SlurmCluster], trays: Mapping[str, Tray]) -> Clusters:
    """The clusters of a fabric with these Slurm clusters, and the Kubernetes clusters of these trays."""
    kubernetes = {tray["kubernetes_cluster"] for tray in trays.values() if "kubernetes_cluster" in tray}
    clusters = Clusters(**fabric.clusters)
    if slurm:
        clusters["slurm"] = slurm
    if kubernetes:
        clusters["kubernetes"] = {**{name: {} for name in sorted(kubernetes)}, **fabric.clusters.get("kubernetes", {})}
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
            states[name] = {**tray, "state": STALE}
        elif name in trays or tray["state"] == UNPLACED:
            states[name] = tray
    for name, observation in observed.items():
        if name in trays or observation.may_be_a_tray:
            states[name] = _tray_state(observation, claims, trays.get(name), before.get(name), of_tray[name])
        else:
            of_fabric.append(finding("not_a_tray", f"Host {name} reports no GPU and has no place", tray=name))
    return State(states, sorted(of_fabric, key=_finding_key), now, previous.acknowledged if previous else {})


def _tray_state(
    observation: Observation, claims: Claims, tray: Tray | None, before: TrayState | None, found: list[Finding]
) -> TrayState:
    """The state of an observed tray; tray: its row in the next fabric."""
    name = observation.tray
    if not observation.reachable:
        status, what = STALE, f"{_keeps(tray)}: {cause(observation.problem)}"
        found.append(keeping_place(tray_finding(name, "tray_unreachable", what, "bring it back and discover again")))
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
    return {
        "state": status if tray else UNPLACED,
        "health": health if observation.reachable else UNKNOWN,
        "observed_at": last["observed_at"] if last else observation.observed_at,
        "source": last["source"] if last else observation.source or None,
        "driver_version": last["driver_version"] if last else observation.driver_version,
        "tray_index": last.get("tray_index") if last else observation.tray_index,
        "gpu_count": last.get("gpu_count", 0) if last else observation.gpu_count,
        "findings": sorted([*observation.findings, *found], key=_finding_key),
    }


def mark_pending(state: State, proposed: Fabric, accepted: Fabric | None) -> State:
    """The state to write while a fabric is a pending proposal: the fabric file still has the old places."""
    places = accepted.trays if accepted else {}
    trays = dict(state.trays)
    for change in tray_changes(accepted or Fabric(), proposed):
        name = change["tray"]
        if name not in trays or change["from"] == change["to"]:
            continue
        message = f"Tray {name} is observed in {change['to']}; accept the proposal to give it that place."
        rows = [*trays[name]["findings"], finding(_PENDING, message, tray=name)]
        status = trays[name]["state"] if name in places else UNPLACED
        trays[name] = {**trays[name], "state": status, "findings": rows}
    # A domain whose trays report another cluster UUID has no change of a tray.
    findings = [*state.findings, *identity.findings(accepted or Fabric(), proposed)]
    return replace(state, trays=trays, findings=sorted(findings, key=_finding_key))


def mark_accepted(state: State, accepted: Fabric) -> State:
    """The state after the placement was accepted: pending trays have a place now."""
    trays = {}
    for name, tray in state.trays.items():
        trays[name] = row = _without(_UNTIL_ACCEPTED, tray)
        if row is not tray and tray["state"] == UNPLACED and name in accepted.trays:
            trays[name] = {**row, "state": PRESENT}
    return replace(state, trays=trays, findings=[row for row in state.findings if row["code"] not in _UNTIL_ACCEPTED])


def _without(codes: Collection[str], tray: TrayState) -> TrayState:
    """The state of a tray without findings of these codes; the same object if it has none."""
    kept = [row for row in tray["findings"] if row["code"] not in codes]
    return tray if len(kept) == len(tray["findings"]) else cast(TrayState, {**tray, "findings": kept})


def _keeps(tray: Tray | None) -> str:
    return f"keeps its place in {tray['clique']}" if tray else "gets no place"


def _finding_key(row: Finding) -> tuple[Any, ...]:
    gpu = row.get("gpu")
    return row["code"], natural_key(row.get("tray") or ""), -1 if gpu is None else gpu, row["message"]
