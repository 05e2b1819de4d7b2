# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Topology objects of a Kubernetes cluster's schedulers: one description of the cliques, one function per scheduler.

Every scheduler finds a clique by the node label nvidia.com/gpu.clique, so most objects only name that label and are
valid for any number of cliques. Volcano, Slinky and Topograph need an object for each clique or node.

Pure. Objects are plain dictionaries in the form of JSON; the tests validate them with the schedulers' own
CustomResourceDefinitions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.blocks import TOPOLOGY_NAME

CLIQUE = "nvidia.com/gpu.clique"
HOSTNAME = "kubernetes.io/hostname"
GPU_PRESENT = "nvidia.com/gpu.present"
MANAGED_BY = "app.kubernetes.io/managed-by"
OWNER = "rackscale.nvlink"
"""The value of MANAGED_BY on every managed object, and the field manager."""
SLINKY = "topology.slinky.slurm.net/spec"
NAME = "nvlink"
HEAD = "# Rendered from the fabric file. For the purpose of each object see docs/k8s-topology.md\n"

TOPOGRAPH_DOMAIN = "accelerator.topograph.run/domain"

Manifest = dict[str, Any]
"""An object for the Kubernetes API, as it is written."""

_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_LEVEL_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_SafeDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_SafeDumper):
    """Write a value out each time it occurs, where PyYAML would write an anchor and its aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


class SchedulersError(NvlinkError):
    """A wrong option for the topology of a Kubernetes cluster."""


class Level(NamedTuple):
    """One topology level: nodes in one domain of the level share the value of `label`."""

    label: str
    name: str


CLIQUE_LEVEL = Level(CLIQUE, "rack")
HOST_LEVEL = Level(HOSTNAME, "host")


class Members(NamedTuple):
    """The trays of a clique in one Kubernetes cluster: text is the label's value, nodes are in natural order."""

    name: str
    text: str
    object_name: str
    nodes: tuple[str, ...]
    gpus: int


@dataclass(frozen=True)
class Topology:
    """The topology of one Kubernetes cluster.

    levels go from broad to narrow; the clique is the last but one, the host the last. annotations: node -> its Slurm
    topology, for Slinky. flavor_labels select the nodes of Kueue's flavor.
    """

    cluster: str | None
    cliques: tuple[Members, ...]
    levels: tuple[Level, ...] = (CLIQUE_LEVEL, HOST_LEVEL)
    annotations: Mapping[str, str] = field(default_factory=dict)
    flavor_labels: Mapping[str, str] = field(default_factory=lambda: {GPU_PRESENT: "true"})
    name: str = NAME

    @property
    def keys(self) -> list[str]:
        """The levels' label keys, from broad to narrow."""
        return [level.label for level in self.levels]


def clusters(fabric: model.Fabric) -> list[str | None]:
    """The Kubernetes clusters with trays; [None] for a fabric file that names no clusters."""
    known = fabric.clusters.get("kubernetes", {})
    if not known:
        return [None]
    inhabited = {tray.get("kubernetes_cluster") for tray in fabric.trays.values()}
    return [name for name in model.natural_sorted(known) if name in inhabited]


def describe(
    fabric: model.Fabric,
    cluster: str | None = None,
    above: Iterable[Level] = (),
    name: str = NAME,
    flavor_labels: Mapping[str, str] | None = None,
) -> Topology:
    """The topology of one cluster. above: levels above the clique, broadest first. Raises SchedulersError."""
    levels = (*above, CLIQUE_LEVEL, HOST_LEVEL)
    for level in levels:
        if not _LABEL_KEY.fullmatch(level.label) or len(level.label.rpartition("/")[2]) > 63:
            raise SchedulersError(
                f"levels_above: {level.label!r} is not a label key; write one, such as topology.kubernetes.io/zone"
            )
        if not _LEVEL_NAME.fullmatch(level.name):
            raise SchedulersError(
                f"levels_above: {level.name!r} is not a level name; use lower-case letters, digits and dashes"
            )
    for part, values in (("label", [row.label for row in levels]), ("name", [row.name for row in levels])):
        twice = next((value for value in values if values.count(value) > 1), None)
        if twice is not None:
            raise SchedulersError(f"levels_above: the {part} {twice} is used twice; give each level its own")
    if not _LEVEL_NAME.fullmatch(name):
        raise SchedulersError(f"name: {name!r} is not an object name; use lower-case letters, digits and dashes")
    made, annotations = [], {}
    for clique, trays in fabric.members.items():
        placed = [tray for tray in trays if _in(fabric.trays[tray], cluster) and _usable(fabric.trays[tray])]
        if not placed:
            continue
        gpus = [len(fabric.trays[tray]["gpu_uuids"]) for tray in placed]
        nodes = tuple(fabric.trays[tray]["kubernetes_node"] for tray in placed)
        made.append(Members(clique, fabric.clique_text(clique), object_name(name, clique), nodes, min(gpus)))
        for tray in placed:
            block = fabric.block_of(tray)
            if block is not None:
                annotations[fabric.trays[tray]["kubernetes_node"]] = f"{TOPOLOGY_NAME}:{block['name']}"
    labels = {GPU_PRESENT: "true"} if flavor_labels is None else dict(flavor_labels)
    if not labels:
        raise SchedulersError("flavor_labels: is empty, but Kueue needs one for a flavor with a topology; set one")
    # If the object names of two cliques are equal, the first clique keeps the name, see problems().
    unique: dict[str, Members] = {}
    for row in made:
        unique.setdefault(row.object_name, row)
    return Topology(cluster, tuple(unique.values()), levels, annotations, labels, name)


def object_name(prefix: str, clique: str) -> str:
    """The object name of a clique: lower-case letters, digits and dashes, at most 253 characters."""
    return f"{prefix}-{re.sub('[^a-z0-9]+', '-', clique.lower()).strip('-')}"[:253].rstrip("-")


def _in(tray: model.Tray, cluster: str | None) -> bool:
    return cluster is None or tray.get("kubernetes_cluster") == cluster


def _usable(tray: model.Tray) -> bool:
    return len(tray["kubernetes_node"]) <= 253 and _NODE_NAME.fullmatch(tray["kubernetes_node"]) is not None


def problems(fabric: model.Fabric, cluster: str | None) -> list[model.Finding]:
    """Findings on trays and cliques that are not in the topology."""
    found = []
    owner: dict[str, str] = {}
    for clique, trays in fabric.members.items():
        placed = [tray for tray in trays if _in(fabric.trays[tray], cluster)]
        wrong = [tray for tray in placed if not _usable(fabric.trays[tray])]
        if wrong:
            others = f" (and {count(len(wrong) - 1, 'more tray')} of clique {clique})" if len(wrong) > 1 else ""
            node = fabric.trays[wrong[0]]["kubernetes_node"]
            found.append(
                finding(
                    "k8s_node_missing",
                    f"Tray {wrong[0]}{others} has the kubernetes_node {node}, which is not a Node name: "
                    "set fabric_kubernetes_node to lower-case letters, digits, dots and dashes, then run discover and "
                    "accept.",
                    tray=wrong[0],
                    clique=clique,
                )
            )
        if len(placed) == len(wrong):
            continue
        named = object_name(NAME, clique)
        if owner.setdefault(named, clique) != clique:
            found.append(
                finding(
                    "name_conflict",
                    f"Cliques {owner[named]} and {clique} would both be named {named} in Kubernetes, so the second is "
                    "omitted: rename one of them in the fabric file.",
                    clique=clique,
                )
            )
    return found


# One function per scheduler; each returns complete objects.


def _object(api: str, kind: str, name: str, **content: Any) -> Manifest:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "labels": {MANAGED_BY: OWNER}}, **content}


def kai(topology: Topology) -> list[Manifest]:
    """KAI Scheduler's Topology; the list of labels is immutable, aliases (0.17 and later) are not."""
    aliases = {CLIQUE: "nvlink"}
    levels = [
        {"nodeLabel": level.label, **({"alias": aliases[level.label]} if level.label in aliases else {})}
        for level in topology.levels
    ]
    return [_object("kai.scheduler/v1alpha1", "Topology", topology.name, spec={"levels": levels})]


def kueue(topology: Topology) -> list[Manifest]:
    """Kueue's Topology and the flavor that uses it. The site creates the queues."""
    levels = [{"nodeLabel": key} for key in topology.keys]
    api = "kueue.x-k8s.io/v1beta2"
    flavor = {"nodeLabels": dict(topology.flavor_labels), "topologyName": topology.name}
    return [
        _object(api, "Topology", topology.name, spec={"levels": levels}),
        _object(api, "ResourceFlavor", topology.name, spec=flavor),
    ]


def volcano(topology: Topology) -> list[Manifest]:
    """One HyperNode of tier 1 per clique, which selects its members by the clique label."""
    made = []
    for clique in topology.cliques:
        selector = {"labelMatch": {"matchLabels": {CLIQUE: clique.text}}}
        spec = {"tier": 1, "tierName": "nvlink", "members": [{"type": "Node", "selector": selector}]}
        made.append(_object("topology.volcano.sh/v1alpha1", "HyperNode", clique.object_name, spec=spec))
    return made


def grove(topology: Topology) -> list[Manifest]:
    """Grove's ClusterTopologyBinding, from which Grove creates the objects of its scheduler (KAI: a Topology)."""
    levels = [{"domain": level.name, "key": level.label} for level in topology.levels]
    return [_object("grove.io/v1alpha1", "ClusterTopologyBinding", topology.name, spec={"levels": levels})]


def slinky(topology: Topology) -> list[Manifest]:
    """For each Node the annotation from which Slinky sets its Slurm topology."""
    return [_node(name, annotations={SLINKY: spec}) for name, spec in topology.annotations.items()]


def topograph(topology: Topology) -> list[Manifest]:
    """For each Node Topograph's clique label, for workloads that need it where Topograph does not run."""
    return [_node(node, labels={TOPOGRAPH_DOMAIN: row.text}) for row in topology.cliques for node in row.nodes]


def _node(name: str, **metadata: Any) -> Manifest:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **metadata}}


def runai(topology: Topology, cluster_id: str = "") -> list[Manifest]:
    """Requests to Run:ai's REST API: the network topology, then the node pool that uses it.

    networkTopologyId is the id in the answer to the first request; cluster_id is Run:ai's UUID of the cluster.
    """
    label, value = next(iter(topology.flavor_labels.items()))
    return [
        {
            "method": "POST",
            "path": "/api/v1/network-topologies",
            "body": {"name": topology.name, "clusterId": cluster_id, "levels": topology.keys},
        },
        {
            "method": "POST",
            "path": "/api/v1/node-pools",
            "body": {
                "name": topology.name,
                "clusterId": cluster_id,
                "labelKey": label,
                "labelValue": value,
                "networkTopologyId": "",
                "gpuNetworkAccelerationDetection": "Auto",
                "gpuNetworkAccelerationLabelKey": CLIQUE,
            },
        },
    ]


def lws(topology: Topology) -> list[Manifest]:
    """A hint: the annotation with which each group of a LeaderWorkerSet gets its own clique."""
    return [{"metadata": {"annotations": {"leaderworkerset.sigs.k8s.io/exclusive-topology": CLIQUE}}}]


def pod_affinity(topology: Topology) -> list[Manifest]:
    """A hint: the affinity with which kube-scheduler keeps all pods with one label in one clique."""
    return [{"spec": {"affinity": affinity({"app": "your-app"})}}]


def affinity(labels: Mapping[str, str], cliques: Sequence[str] = ()) -> Manifest:
    """The affinity that keeps pods with these labels in one clique: any clique, or one of the given ones."""
    wanted = (
        {"key": CLIQUE, "operator": "In", "values": list(cliques)} if cliques else {"key": CLIQUE, "operator": "Exists"}
    )
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    return {
        # Nodes without the label would count as one topology domain.
        "nodeAffinity": {required: {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}},
        "podAffinity": {required: [{"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": CLIQUE}]},
    }


class Row(NamedTuple):
    """A scheduler: its objects, and the comment above them in the file."""

    objects: Callable[[Topology], list[Manifest]]
    comment: str


SCHEDULERS: dict[str, Row] = {
    "kai": Row(kai, "KAI Scheduler. Workloads name it in the annotation kai.scheduler/topology."),
    "kueue": Row(
        kueue, "Kueue. Name the flavor in a ClusterQueue; every node of it must carry every label of a level."
    ),
    "volcano": Row(
        volcano, "Volcano. A job requests one clique by networkTopology {mode: hard, highestTierAllowed: 1}."
    ),
    "grove": Row(grove, "Grove. It needs topologyAwareScheduling in Grove's settings."),
    "lws": Row(lws, "LeaderWorkerSet: a hint. Add these annotations to yours."),
    "pod-affinity": Row(
        pod_affinity,
        "kube-scheduler alone: a hint for a pod template. The first pod binds the others to its clique, however full.",
    ),
    "slinky": Row(slinky, "Slinky. kubectl apply --server-side: each Node gets this annotation and nothing else."),
    "runai": Row(runai, "Run:ai. Requests to its REST API; clusterId and networkTopologyId are the site's."),
    "topograph": Row(topograph, "Only where workloads need Topograph's label and Topograph does not run."),
}


def render(fabric: model.Fabric, state: model.State) -> dict[str, str]:
    """``kubernetes/topology-<scheduler>.yaml``; below ``kubernetes/<cluster>/`` where several share the fabric."""
    texts = {}
    for cluster in clusters(fabric):
        topology = describe(fabric, cluster)
        for name, row in SCHEDULERS.items():
            objects = row.objects(topology)
            if objects:
                texts[f"{folder(cluster)}/topology-{name}.yaml"] = f"{HEAD}# {row.comment}\n{dump(objects)}"
    return texts


def findings(fabric: model.Fabric, state: model.State) -> list[model.Finding]:
    """Findings on what is missing in the files, for all clusters."""
    return [row for cluster in clusters(fabric) for row in problems(fabric, cluster)]


def folder(cluster: str | None) -> str:
    """The folder of a cluster's files."""
    return f"kubernetes/{cluster}" if cluster else "kubernetes"


def dump(objects: Iterable[Manifest]) -> str:
    """The objects as YAML documents; the same objects give the same bytes."""
    return "".join(f"---\n{_text(row)}" for row in objects)


def _text(row: Manifest) -> str:
    if row.get("kind") == "Node":
        # There is one per tray, and PyYAML takes a millisecond for each.
        ((kind, values),) = ((key, value) for key, value in row["metadata"].items() if key != "name")
        lines = "".join(f"    {key}: {json.dumps(value)}\n" for key, value in values.items())
        name = json.dumps(row["metadata"]["name"])
        return f"apiVersion: v1\nkind: Node\nmetadata:\n  name: {name}\n  {kind}:\n{lines}"
    return str(yaml.dump(row, Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=120))
