# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words of the collection as data: observation, fabric, state.

Pure: no file, no clock, no Ansible. What the two files hold stays the plain dictionaries that JSON gives, typed here
by TypedDict: with ten thousand trays an object a tray would cost more than reading the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NotRequired, TypedDict

SCHEMA_VERSION = 1
ZERO_UUID = "00000000-0000-0000-0000-000000000000"

Identity = tuple[str, int]
"""A clique: (cluster UUID, clique ID)."""

Finding = dict[str, Any]
"""code, severity, message and the subject: tray, clique, domain, block (strings), gpu (index)."""

# Words of a tray's state and health, as the host vars nvlink_state and nvlink_health say them.
PRESENT, STALE, CONFLICT, UNPLACED = "present", "stale", "conflict", "unplaced"
HEALTHY, DEGRADED, UNHEALTHY, UNKNOWN = "healthy", "degraded", "unhealthy", "unknown"
_WORST_FIRST = (UNHEALTHY, DEGRADED, UNKNOWN, HEALTHY)

_NUMBER = re.compile(r"([0-9]+)")


class Domain(TypedDict):
    """One NVLink domain; cluster_uuid is its identity."""

    cluster_uuid: str
    chassis_serials: list[str]
    expected_trays: int


class Block(TypedDict):
    """Where a clique stands in Slurm's topology; given once, never reused."""

    name: str
    position: int


class Clique(TypedDict):
    """One NVLink partition; (cluster_uuid of its domain, clique_id) is its identity."""

    domain: str
    clique_id: int
    block: Block


class SlurmCluster(TypedDict):
    """One Slurm among several: clique name -> its block there. A block without trays is retired and stays."""

    blocks: dict[str, Block]
    reserved_blocks: NotRequired[dict[str, int]]


class Clusters(TypedDict, total=False):
    """Clusters that share the fabric, by name. Of a Kubernetes cluster the file holds no more than its name."""

    slurm: dict[str, SlurmCluster]
    kubernetes: dict[str, dict[str, Any]]


class Tray(TypedDict):
    """One compute host and its place. slurm_cluster and kubernetes_cluster: a name in clusters, absent in none."""

    clique: str
    tray_index: int | None
    gpu_uuids: list[str]
    imex_address: str | None
    slurm_node: str
    kubernetes_node: str
    why: str
    ansible_host: NotRequired[str]
    slurm_cluster: NotRequired[str]
    kubernetes_cluster: NotRequired[str]


class TrayState(TypedDict):
    """What is volatile about one tray."""

    state: str
    health: str
    observed_at: str | None
    source: str | None
    driver_version: str | None
    findings: list[Finding]
    # Only of a tray without a place: a placed one has these in the fabric file.
    tray_index: NotRequired[int | None]
    gpu_count: NotRequired[int]


Change = TypedDict("Change", {"tray": str, "from": str | None, "to": str | None, "kind": str, "why": str})
"""One tray's step from one fabric to the next, from a clique to a clique.

kind: placed, moved, replaced (all GPUs new), gpus (some new), slot, address, name or cluster.
"""


@dataclass(frozen=True)
class BlockView:
    """A block with its trays, as the renderers want it; a retired one has no trays, a reserved one no clique either."""

    name: str
    position: int
    clique: str
    trays: tuple[str, ...]


@dataclass(frozen=True)
class Fabric:
    """Identity and place of every tray: the fabric file's content. Never changed after it is made.

    reserved_blocks: block name -> position, of blocks that a Slurm has and no clique. Nobody else gets either.
    """

    domains: Mapping[str, Domain] = field(default_factory=dict)
    cliques: Mapping[str, Clique] = field(default_factory=dict)
    trays: Mapping[str, Tray] = field(default_factory=dict)
    overrides: list[dict[str, Any]] = field(default_factory=list)
    clusters: Clusters = field(default_factory=Clusters)
    reserved_blocks: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Fabric:
        """Wrap a checked document; see fabric_file.load() for one that may be wrong."""
        return cls(
            document["domains"],
            document["cliques"],
            document["trays"],
            document["overrides"],
            document.get("clusters", Clusters()),
            document.get("reserved_blocks", {}),
        )

    def as_dict(self) -> dict[str, Any]:
        """The document that the fabric file holds; without clusters or reserved blocks it has no such key."""
        document = {
            "schema_version": SCHEMA_VERSION,
            "domains": self.domains,
            "cliques": self.cliques,
            "trays": self.trays,
            "overrides": self.overrides,
        }
        seldom = {"clusters": self.clusters, "reserved_blocks": self.reserved_blocks}
        return {**document, **{key: value for key, value in seldom.items() if value}}

    @cached_property
    def members(self) -> dict[str, list[str]]:
        """Clique name -> its trays' names in natural order; every clique is a key, also a retired one."""
        members: dict[str, list[str]] = {name: [] for name in self.cliques}
        for name in natural_sorted(self.trays):
            members[self.trays[name]["clique"]].append(name)
        return members

    def blocks(self, cluster: str | None = None) -> list[BlockView]:
        """Every block that a Slurm cluster ever gave a position, in that order, with its trays there.

        Without a cluster: of the fabric as a whole, one block a clique with all its trays.
        """
        blocks = {name: clique["block"] for name, clique in self.cliques.items()}
        if cluster is not None:
            blocks = self.clusters["slurm"][cluster]["blocks"]
        return [
            BlockView(block["name"], block["position"], name, tuple(self._members_in(name, cluster)))
            for name, block in sorted(blocks.items(), key=lambda item: item[1]["position"])
        ]

    def slurm_blocks(self, cluster: str | None = None) -> list[BlockView]:
        """Every block that Slurm is to have, in the order of their positions: blocks(), and those that are reserved."""
        reserved = [BlockView(name, position, "", ()) for name, position in self.reserved(cluster).items()]
        return sorted([*self.blocks(cluster), *reserved], key=lambda view: view.position)

    def reserved(self, cluster: str | None = None) -> Mapping[str, int]:
        """The reserved blocks of a Slurm cluster, or of the only one."""
        if cluster is None:
            return self.reserved_blocks
        row = self.clusters.get("slurm", {}).get(cluster)
        return row.get("reserved_blocks", {}) if row else {}

    def _members_in(self, clique: str, cluster: str | None) -> list[str]:
        names = self.members[clique]
        return names if cluster is None else [n for n in names if self.trays[n].get("slurm_cluster") == cluster]

    def block_of(self, tray: str) -> Block | None:
        """The block of a tray in its Slurm cluster; None where there are clusters and it is in none of them."""
        place = self.trays[tray]
        if "slurm_cluster" in place:
            return self.clusters["slurm"][place["slurm_cluster"]]["blocks"][place["clique"]]
        return None if self.clusters.get("slurm") else self.cliques[place["clique"]]["block"]

    @property
    def slurm_clusters(self) -> list[str]:
        """The Slurm clusters that share the fabric, in natural order; none where there is but the implicit one."""
        return natural_sorted(self.clusters.get("slurm", ()))

    def cluster_uuid(self, clique: str) -> str:
        """The cluster UUID of a clique's domain."""
        return self.domains[self.cliques[clique]["domain"]]["cluster_uuid"]

    def clique_text(self, clique: str) -> str:
        """`<uuid>.<id>`, as facts, host vars and the node label nvidia.com/gpu.clique write a clique."""
        return f"{self.cluster_uuid(clique)}.{self.cliques[clique]['clique_id']}"


@dataclass(frozen=True)
class State:
    """What is volatile about the trays: the state file's content. Holds unplaced trays, which the fabric does not."""

    trays: Mapping[str, TrayState] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    written_at: str | None = None

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> State:
        """Wrap a checked document; see fabric_file.load_state() for one that may be wrong."""
        return cls(document["trays"], document["findings"], document["written_at"])

    def as_dict(self) -> dict[str, Any]:
        """The document that the state file holds."""
        return {
            "schema_version": SCHEMA_VERSION,
            "written_at": self.written_at,
            "trays": self.trays,
            "findings": self.findings,
        }

    def fingerprint(self) -> tuple[dict[str, dict[str, Any]], list[Finding]]:
        """The state without what differs each time though nothing has changed: when a tray was seen, and in which words
        ssh complained of one that does not answer."""
        trays = {
            name: {key: value for key, value in tray.items() if key != "observed_at"}
            | {"findings": [_without_words(row) for row in tray["findings"]]}
            for name, tray in self.trays.items()
        }
        return trays, self.findings


def _without_words(row: Finding) -> Finding:
    return {**row, "message": ""} if row["code"] == "tray_unreachable" else row


@dataclass(frozen=True)
class Address:
    """One address of a tray, text as the tray wrote it."""

    interface: str
    address: str
    prefix: int


@dataclass(frozen=True)
class Observation:
    """What one source says of one tray at one time.

    reachable is False where nothing usable came back; problem then says why in a few words. gpu_uuids is empty where
    no GPU was seen. identity is (cluster UUID, clique ID) of an attached tray, else None. inconsistent is True where the
    tray's GPUs are attached in different cliques, majority is the one that more than half of them name. node_local is
    True where they form a fabric that names no domain (HGX).
    block is the name and position of the block that a running Slurm has it in.
    slurm_node, kubernetes_node and ansible_host are what the site says, None where it says nothing; so are
    slurm_cluster and kubernetes_cluster, which are empty where it says that the tray is in none.
    """

    tray: str
    source: str
    reachable: bool = True
    problem: str = ""
    observed_at: str | None = None
    identity: Identity | None = None
    inconsistent: bool = False
    majority: Identity | None = None
    block: tuple[str, int] | None = None
    node_local: bool = False
    chassis_serial: str | None = None
    tray_index: int | None = None
    gpu_uuids: tuple[str, ...] = ()
    gpu_count: int = 0
    addresses: tuple[Address, ...] = ()
    driver_version: str | None = None
    health: str = UNKNOWN
    findings: tuple[Finding, ...] = ()
    slurm_node: str | None = None
    kubernetes_node: str | None = None
    ansible_host: str | None = None
    slurm_cluster: str | None = None
    kubernetes_cluster: str | None = None


def natural_key(name: str) -> tuple[list[str | int], str]:
    """Sort key by which r2 stands before r10; the text itself decides between r1 and r01."""
    parts: list[Any] = _NUMBER.split(name)
    parts[1::2] = map(int, parts[1::2])
    return parts, name


def natural_sorted(names: Iterable[str]) -> list[str]:
    """The names in natural order."""
    return sorted(names, key=natural_key)


def gpu_health(health: Mapping[str, Any]) -> str:
    """One GPU's health from its fabric health rows (fabric_facts contract).

    A driver that gives rows but no summary is judged by its rows; one that gives neither is unknown, not bad.
    """
    summary = health.get("summary")
    if summary == "unhealthy" or health.get("route_unhealthy") is True:
        return UNHEALTHY
    if summary == "limited_capacity" or health.get("degraded_bandwidth") is True:
        return DEGRADED
    rows_are_clear = health.get("route_unhealthy") is False and health.get("degraded_bandwidth") is False
    return HEALTHY if summary == "healthy" or (summary is None and rows_are_clear) else UNKNOWN


def worst_health(healths: Iterable[str]) -> str:
    """The worst GPU decides for its tray; no GPU at all is unknown."""
    seen = set(healths)
    return next((word for word in _WORST_FIRST if word in seen), UNKNOWN)
