# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cliques of a fabric for one Kubernetes cluster: the label's value and the nodes of each, and the levels above.

Every scheduler finds a clique by the node label nvidia.com/gpu.clique, so most of their objects only name that label
and are valid for any number of cliques. Volcano, Slinky and Topograph need an object for each clique or node.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.fabric_file import FabricFileError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import KubernetesError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.blocks import TOPOLOGY_NAME
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import nearest, shown

CLIQUE = "nvidia.com/gpu.clique"
GPU_PRESENT = "nvidia.com/gpu.present"
HOSTNAME = "kubernetes.io/hostname"
MANAGED_BY = "app.kubernetes.io/managed-by"
OWNER = "rackscale.nvlink"
"""The value of MANAGED_BY on every managed object, and the field manager."""
SLINKY = "topology.slinky.slurm.net/spec"

_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_LEVEL_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


class Level(NamedTuple):
    """One topology level: nodes in one domain of the level share the value of `label`."""

    label: str
    name: str


@dataclass(frozen=True)
class TopologySettings:
    """A site's settings of the topology of Kubernetes' schedulers, as the module k8s_topology documents them.

    name: of the objects. levels_above: the clique, broadest first. templates: scheduler -> the file that a site has
    instead of the role's template.
    """

    name: str = "nvlink"
    levels_above: tuple[Level, ...] = ()
    flavor_labels: Mapping[str, str] = field(default_factory=lambda: {GPU_PRESENT: "true"})
    templates: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> TopologySettings:
        """Those of a module's options of the same names."""
        levels = tuple(Level(row["label"], row["name"]) for row in options["levels_above"])
        labels = {str(key): str(value) for key, value in options["flavor_labels"].items()}
        return cls(options["name"], levels, labels, options["templates"])


DEFAULT = TopologySettings()
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
    topology, for Slinky. flavor_labels select the nodes of Kueue's flavor. templates: scheduler -> the file that a site
    has instead of the role's template.
    """

    cluster: str | None
    cliques: tuple[Members, ...]
    levels: tuple[Level, ...] = (CLIQUE_LEVEL, HOST_LEVEL)
    annotations: Mapping[str, str] = field(default_factory=dict)
    flavor_labels: Mapping[str, str] = field(default_factory=lambda: {GPU_PRESENT: "true"})
    name: str = TopologySettings.name
    templates: Mapping[str, str] = field(default_factory=dict)


def choose(fabric: model.Fabric, cluster: Any, path: str) -> str | None:
    """The Kubernetes cluster that an option names, or the only one; None for a fabric file that names none."""
    names = sorted(fabric.clusters.get("kubernetes", {}))
    if not cluster:
        if len(names) > 1:
            raise FabricFileError(
                f"{path}: has several Kubernetes clusters; set k8s_topology_kubernetes_cluster to {', '.join(names)}"
            )
        return names[0] if names else None
    if not names:
        raise FabricFileError(f"{path}: has no Kubernetes clusters; remove k8s_topology_kubernetes_cluster")
    if cluster not in names:
        raise FabricFileError(f"{path}: has no Kubernetes cluster {shown(cluster)}{nearest(cluster, names)}")
    return str(cluster)


def describe(
    fabric: model.Fabric,
    cluster: str | None = None,
    settings: TopologySettings = DEFAULT,
) -> Topology:
    """The topology of one cluster. Raises KubernetesError."""
    levels, name = (*settings.levels_above, CLIQUE_LEVEL, HOST_LEVEL), settings.name
    for level in levels:
        # Grove's limit for the whole key, with its prefix.
        if not _LABEL_KEY.fullmatch(level.label) or len(level.label) > 63:
            what = "is not a label key of at most 63 characters; write one, such as topology.kubernetes.io/zone"
            raise KubernetesError(f"levels_above: {level.label!r} {what}")
        if not _LEVEL_NAME.fullmatch(level.name):
            raise KubernetesError(
                f"levels_above: {level.name!r} is not a level name; use lower-case letters, digits and dashes"
            )
    for part, values in (("label", [row.label for row in levels]), ("name", [row.name for row in levels])):
        twice = next((value for value in values if values.count(value) > 1), None)
        if twice is not None:
            raise KubernetesError(f"levels_above: the {part} {twice} is used twice; give each level its own")
    if not _LEVEL_NAME.fullmatch(name):
        raise KubernetesError(f"name: {name!r} is not an object name; use lower-case letters, digits and dashes")
    made, annotations = [], {}
    for clique, trays in fabric.members.items():
        placed = [tray for tray in trays if _in(fabric.trays[tray], cluster) and _usable(fabric.trays[tray])]
        if not placed:
            continue
        gpus = [len(fabric.trays[tray]["gpu_uuids"]) for tray in placed]
        nodes = tuple(fabric.trays[tray]["kubernetes_node"] for tray in placed)
        made.append(Members(clique, fabric.clique_text(clique), object_name(name, clique), nodes, min(gpus)))
        for tray in placed:
            block = fabric.block_of.get(tray)
            if block is not None:
                annotations[fabric.trays[tray]["kubernetes_node"]] = f"{TOPOLOGY_NAME}:{block['name']}"
    if not settings.flavor_labels:
        raise KubernetesError("flavor_labels: is empty, but Kueue needs one for a flavor with a topology; set one")
    # If the object names of two cliques are equal, the first clique keeps the name, see problems().
    unique: dict[str, Members] = {}
    for row in made:
        unique.setdefault(row.object_name, row)
    cliques = tuple(unique.values())
    return Topology(cluster, cliques, levels, annotations, settings.flavor_labels, name, settings.templates)


def object_name(prefix: str, clique: str) -> str:
    """The object name of a clique: lower-case letters, digits and dashes, at most 253 characters."""
    return f"{prefix}-{re.sub('[^a-z0-9]+', '-', clique.lower()).strip('-')}"[:253].rstrip("-")


def _in(tray: model.Tray, cluster: str | None) -> bool:
    return cluster is None or tray.get("kubernetes_cluster") == cluster


def _usable(tray: model.Tray) -> bool:
    return len(tray["kubernetes_node"]) <= 253 and _NODE_NAME.fullmatch(tray["kubernetes_node"]) is not None


def problems(fabric: model.Fabric, cluster: str | None, settings: TopologySettings = DEFAULT) -> list[model.Finding]:
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
        named = object_name(settings.name, clique)
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
