# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The data model of the collection: observation, fabric, state.

Pure: no file, no clock, no Ansible. The contents of both files stay plain dictionaries as decoded from JSON, typed by
TypedDict: one object for each of ten thousand trays would cost more than reading the file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal, NotRequired, TypedDict

from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import natural_sorted
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import INFO

SCHEMA_VERSION = 1

Identity = tuple[str, int]
"""A clique: (cluster UUID, clique ID)."""

# Values of the host variables nvlink_state and nvlink_health.
PRESENT, STALE, CONFLICT, UNPLACED = "present", "stale", "conflict", "unplaced"
HEALTHY, DEGRADED, UNHEALTHY, UNKNOWN = "healthy", "degraded", "unhealthy", "unknown"
_WORST_FIRST = (UNHEALTHY, DEGRADED, UNKNOWN, HEALTHY)

# Findings of fabric_facts on a host without GPUs. A host with any other problem, such as an NVML that hangs, is a tray.
_NO_GPU_CODES = frozenset({"addresses_unknown", "driver_missing", "fabric_unknown", "no_gpu"})


# What a site does with the trays of a domain that are each alone in a clique.
OWN_BLOCK, LEAVE_OUT, KEEP_BLOCK = "own_block", "leave_out", "keep_block"


class Domain(TypedDict):
    """One NVLink domain; cluster_uuid is its identity.

    tray_partitions: own_block, leave_out or keep_block, where the domain is or was split per tray and the site has
    decided.
    """

    cluster_uuid: str
    chassis_serials: list[str]
    expected_trays: int
    tray_partitions: NotRequired[str]


class Block(TypedDict):
    """Name and position of a clique's block in Slurm's topology; assigned once, never reused."""

    name: str
    position: int


class Clique(TypedDict):
    """One NVLink partition; (cluster_uuid of its domain, clique_id) is its identity.

    group: a level above the clique that a person has named, such as a second NVLink level or a leaf of the scale-out
    network. Slurm aggregates the blocks of a group. split_blocks: name -> position of its further blocks, where the
    site splits it in Slurm's topology (split.py); one without trays is retired and stays.
    """

    domain: str
    clique_id: int
    block: Block
    group: NotRequired[str]
    split_blocks: NotRequired[dict[str, int]]


class SlurmCluster(TypedDict):
    """One of several Slurm clusters: clique name -> its block there. A block without trays is retired and stays."""

    blocks: dict[str, Block]
    reserved_blocks: NotRequired[dict[str, int]]


class Clusters(TypedDict, total=False):
    """Clusters that share the fabric, by name. A Kubernetes cluster has a name only."""

    slurm: dict[str, SlurmCluster]
    kubernetes: dict[str, dict[str, Any]]


class Tray(TypedDict):
    """One compute tray (host) and its place. slurm_cluster, kubernetes_cluster: a name in clusters; absent: in none.

    block: a name in split_blocks of its clique; absent: the tray is in the clique's own block.
    """

    clique: str
    tray_index: int | None
    gpu_uuids: list[str]
    imex_address: str | None
    slurm_node: str
    kubernetes_node: str
    why: str
    ansible_host: NotRequired[str]
    block: NotRequired[str]
    slurm_cluster: NotRequired[str]
    kubernetes_cluster: NotRequired[str]


class TrayState(TypedDict):
    """The volatile values of one tray."""

    state: str
    health: str
    observed_at: str | None
    source: str | None
    driver_version: str | None
    findings: list[Finding]
    # As observed: a tray without a place has no row in the fabric file. Earlier releases left them out for others.
    tray_index: NotRequired[int | None]
    gpu_count: NotRequired[int]
    # Of a state in Slurm alone, which no state file has.
    reason: NotRequired[str]


Change = TypedDict("Change", {"tray": str, "from": str | None, "to": str | None, "kind": str, "why": str})
"""The change of one tray from one fabric to the next; from and to are cliques.

kind: placed, moved, replaced (all GPUs new), gpus (some new), slot, address, name, cluster, block or removed.
"""


@dataclass(frozen=True)
class BlockView:
    """A block with its trays, for renderers; a retired block has no trays, a reserved block no clique either."""

    name: str
    position: int
    clique: str
    trays: tuple[str, ...]
    group: str = ""


@dataclass(frozen=True)
class Fabric:
    """Identity and place of every tray: the content of the fabric file. Immutable.

    reserved_blocks: block name -> position, for blocks of a running Slurm without a clique. Names and positions are not
    given to another block.
    """

    domains: Mapping[str, Domain] = field(default_factory=dict)
    cliques: Mapping[str, Clique] = field(default_factory=dict)
    trays: Mapping[str, Tray] = field(default_factory=dict)
    overrides: list[dict[str, Any]] = field(default_factory=list)
    clusters: Clusters = field(default_factory=Clusters)
    reserved_blocks: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Fabric:
        """Wrap a checked document; fabric_file.load() checks one."""
        return cls(**_without_version(document))

    def as_dict(self) -> dict[str, Any]:
        """The document of the fabric file; clusters and reserved_blocks are left out when empty."""
        return _document(self, optional=("clusters", "reserved_blocks"))

    @cached_property
    def members(self) -> dict[str, list[str]]:
        """Clique name -> names of its trays in natural order; retired cliques are keys too."""
        members: dict[str, list[str]] = {name: [] for name in self.cliques}
        for name in natural_sorted(self.trays):
            members[self.trays[name]["clique"]].append(name)
        return members

    @cached_property
    def domain_of(self) -> dict[str, str]:
        """Tray -> its domain."""
        return {name: self.cliques[tray["clique"]]["domain"] for name, tray in self.trays.items()}

    def trays_of(self, names: str) -> list[str]:
        """The trays of hostlists, clique names and domain names; any other name is that of a new tray."""
        found: dict[str, None] = {}
        for name in expand(names):
            found.update(dict.fromkeys(self._named(name)))
        return list(found)

    def _named(self, name: str) -> Iterator[str]:
        if name in self.trays or not (name in self.domains or name in self.cliques):
            yield name
            return
        for clique, trays in self.members.items():
            if name in (clique, self.cliques[clique]["domain"]):
                yield from trays

    def blocks(self, cluster: str | None = None) -> list[BlockView]:
        """All blocks of a Slurm cluster in the order of their positions, with their trays there; retired ones too.

        Without a cluster: one block for each clique of the fabric, with all its trays, also where it is left out of the
        blocks (is_left_out).
        """
        blocks = {name: clique["block"] for name, clique in self.cliques.items()}
        if cluster is not None:
            blocks = self.clusters["slurm"][cluster]["blocks"]
        return [
            BlockView(
                block["name"],
                block["position"],
                name,
                tuple(tray for tray in self.members[name] if cluster in (None, self.trays[tray].get("slurm_cluster"))),
                self.cliques[name].get("group", ""),
            )
            for name, block in sorted(blocks.items(), key=lambda item: item[1]["position"])
        ]

    def slurm_blocks(self, cluster: str | None = None) -> list[BlockView]:
        """All blocks for Slurm's topology in its order: blocks(), split ones and reserved ones by position.

        A clique that is left out of the blocks has one without trays. The trays of a split block are in it alone.

        The blocks of a group stand together, at the position of its first one, and those without a group after them.
        """
        reserved = [BlockView(name, position, "", ()) for name, position in self.reserved(cluster).items()]
        whole = [replace(view, trays=()) if self.is_left_out(view.clique) else view for view in self.blocks(cluster)]
        own = [part for view in whole for part in self.parts(view)]
        views = sorted([*own, *reserved], key=lambda view: view.position)
        first: dict[str, int] = {}
        for view in views:
            first.setdefault(view.group, view.position)
        return sorted(views, key=lambda view: (not view.group, first[view.group]))

    def parts(self, view: BlockView) -> list[BlockView]:
        """The blocks of a clique, its own one first; view: its block with all its trays."""
        split = self.cliques[view.clique].get("split_blocks")
        if not split:
            return [view]
        in_block: dict[str, list[str]] = {view.name: [], **{name: [] for name in split}}
        for tray in view.trays:
            in_block[self.trays[tray].get("block", view.name)].append(tray)
        positions = {view.name: view.position, **split}
        return [replace(view, name=name, position=positions[name], trays=tuple(in_block[name])) for name in in_block]

    @property
    def is_split(self) -> bool:
        """Whether a clique has several blocks with trays in one Slurm."""
        return any("block" in tray for tray in self.trays.values())

    @property
    def split_blocks(self) -> list[Block]:
        """The further blocks of all cliques that are or were split, also those without trays."""
        rows = [row["split_blocks"] for row in self.cliques.values() if "split_blocks" in row]
        return [{"name": name, "position": position} for row in rows for name, position in row.items()]

    def reserved(self, cluster: str | None = None) -> Mapping[str, int]:
        """The reserved blocks of a Slurm cluster; without a cluster, of the only one."""
        if cluster is None:
            return self.reserved_blocks
        row = self.clusters.get("slurm", {}).get(cluster)
        return row.get("reserved_blocks", {}) if row else {}

    @cached_property
    def block_of(self) -> dict[str, Block]:
        """Tray -> its block in its Slurm cluster.

        Without trays that are in no cluster where there are some, and those whose clique is left out of the blocks.
        """
        views = [view for cluster in self.slurm_clusters or (None,) for view in self.slurm_blocks(cluster)]
        return {tray: {"name": view.name, "position": view.position} for view in views for tray in view.trays}

    def is_left_out(self, clique: str) -> bool:
        """Whether a clique is left out of the blocks: it has one tray, and its domain the policy leave_out."""
        domain = self.domains[self.cliques[clique]["domain"]]
        return domain.get("tray_partitions") == LEAVE_OUT and len(self.members[clique]) == 1

    @property
    def slurm_clusters(self) -> list[str]:
        """The names of the Slurm clusters that share the fabric, in natural order; empty for a single, unnamed one."""
        return natural_sorted(self.clusters.get("slurm", ()))

    def clusters_with_trays(self, kind: Literal["slurm", "kubernetes"]) -> list[str | None]:
        """The clusters of a kind (slurm, kubernetes) that have trays, in natural order; [None] for a file without."""
        named = self.clusters.get(kind, ())
        used = {tray.get(f"{kind}_cluster") for tray in self.trays.values()}
        return [name for name in natural_sorted(named) if name in used] if named else [None]

    def identity(self, clique: str) -> Identity:
        """The cluster UUID and clique ID of a clique."""
        return self.cluster_uuid(clique), self.cliques[clique]["clique_id"]

    def cluster_uuid(self, clique: str) -> str:
        """The cluster UUID of a clique's domain."""
        return self.domains[self.cliques[clique]["domain"]]["cluster_uuid"]

    def clique_text(self, clique: str) -> str:
        """`<uuid>.<id>`: the form of a clique in facts, host variables and the node label nvidia.com/gpu.clique."""
        return f"{self.cluster_uuid(clique)}.{self.cliques[clique]['clique_id']}"


@dataclass(frozen=True)
class State:
    """The volatile values of all trays: the content of the state file. Includes unplaced trays."""

    trays: Mapping[str, TrayState] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    written_at: str | None = None
    acknowledged: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Tray in repair -> reason, who, until (RFC 3339, in UTC): verify has its failures as notes until then."""

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> State:
        """Wrap a checked document; fabric_file.load_state() checks one."""
        return cls(**_without_version(document))

    def as_dict(self) -> dict[str, Any]:
        """The document of the state file."""
        return _document(self, optional=("acknowledged",))

    def fingerprint(self) -> tuple[dict[str, dict[str, Any]], list[Finding]]:
        """The state without values that differ in each run: observation times and ssh's error texts."""
        trays = {
            name: {key: value for key, value in tray.items() if key != "observed_at"}
            | {"findings": [_without_message(row) for row in tray["findings"]]}
            for name, tray in self.trays.items()
        }
        return trays, self.findings


def _document(of: Fabric | State, optional: Collection[str]) -> dict[str, Any]:
    """The fields as the file has them, with its schema version; optional: those that are left out when empty."""
    given = {row.name: getattr(of, row.name) for row in fields(of)}
    kept = {name: value for name, value in given.items() if value or name not in optional}
    return {"schema_version": SCHEMA_VERSION, **kept}


def _without_version(document: Mapping[str, Any]) -> dict[str, Any]:
    """The fields in a document, which a schema has checked: it has no others."""
    return {name: value for name, value in document.items() if name != "schema_version"}


def _without_message(row: Finding) -> Finding:
    return {**row, "message": ""} if row["code"] == "tray_unreachable" else row


@dataclass(frozen=True)
class Address:
    """One address of a tray, as the tray reports it."""

    interface: str
    address: str
    prefix: int


@dataclass(frozen=True)
class Observation:
    """What one source reports of one tray at one time.

    reachable: False without a usable answer; problem is then the reason in a few words. gpu_uuids: empty where no GPU
    is known. identity: (cluster UUID, clique ID) of an attached tray, else None. inconsistent: whether the GPUs of the
    tray are attached in different cliques. node_local: whether they have no fabric beyond the host (HGX, PCIe).
    cliques: kind of operation -> IDs of the cliques that all GPUs of the tray have, empty for a driver that does not
    report them. fabric_guids: of its GPUs, as an NVLink switch may list them. product: the name of its GPUs, empty
    where the source has none. block: name and position of the tray's block in a running Slurm. host_id: number of the
    host in its slot (tray_index). slurm_node, kubernetes_node, ansible_host, slurm_cluster, kubernetes_cluster: set by
    the site, None where it sets none; an empty cluster means that the tray is in none.
    """

    tray: str
    source: str
    reachable: bool = True
    problem: str = ""
    observed_at: str | None = None
    identity: Identity | None = None
    inconsistent: bool = False
    block: tuple[str, int] | None = None
    node_local: bool = False
    cliques: Mapping[str, frozenset[int]] = field(default_factory=dict)
    chassis_serial: str | None = None
    tray_index: int | None = None
    host_id: int | None = None
    gpu_uuids: tuple[str, ...] = ()
    fabric_guids: tuple[str, ...] = ()
    gpu_count: int = 0
    product: str = ""
    addresses: tuple[Address, ...] = ()
    driver_version: str | None = None
    health: str = UNKNOWN
    findings: tuple[Finding, ...] = ()
    slurm_node: str | None = None
    kubernetes_node: str | None = None
    ansible_host: str | None = None
    slurm_cluster: str | None = None
    kubernetes_cluster: str | None = None

    @property
    def may_be_a_tray(self) -> bool:
        """Whether a host without a place may be a tray: it has GPUs, or a finding that one without GPUs cannot have."""
        problems = (row for row in self.findings if row["severity"] != INFO and row["code"] not in _NO_GPU_CODES)
        return bool(self.gpu_count or self.identity or any(problems)) or not self.reachable


@dataclass(frozen=True)
class SourceResult:
    """The result of one source: observations of trays, and findings about the source as a whole."""

    observations: list[Observation]
    findings: list[Finding] = field(default_factory=list)
    # Name and position of every block of a running Slurm, blocks without nodes included.
    blocks: tuple[tuple[str, int], ...] = ()


def tray_finding(tray: str, code: str, what: str, remedy: str) -> Finding:
    """A finding about a tray: `Tray NAME <what>; <remedy>.`"""
    return finding(code, f"Tray {tray} {what}; {remedy}.", tray=tray)


def gpu_health(health: Mapping[str, Any]) -> str:
    """The health of one GPU from its fabric health values (see fabric_facts).

    Without a summary the other values decide; without either the health is unknown. A disconnected fabric
    manager counts beside a healthy summary.
    """
    summary = health.get("summary")
    if summary == "unhealthy" or health.get("route_unhealthy") is True:
        return UNHEALTHY
    disconnected = health.get("fabric_manager_connected") is False
    if disconnected or summary == "limited_capacity" or health.get("degraded_bandwidth") is True:
        return DEGRADED
    rows_are_clear = health.get("route_unhealthy") is False and health.get("degraded_bandwidth") is False
    return HEALTHY if summary == "healthy" or (summary is None and rows_are_clear) else UNKNOWN


def worst_health(healths: Iterable[str]) -> str:
    """The health of a tray: that of its worst GPU; unknown without a GPU."""
    found = set(healths)
    return next((health for health in _WORST_FIRST if health in found), UNKNOWN)
