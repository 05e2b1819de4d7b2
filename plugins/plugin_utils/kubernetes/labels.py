# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The clique label of Nodes (nvidia.com/gpu.clique): its writer and its correctness.

Pure: Nodes and DaemonSets are the API server's JSON. Current writers are found by the DaemonSets that run, past writers
by the Nodes' managedFields. GPU Feature Discovery writes through nfd-master, so it appears under that name. The DRA
driver's plugin writes the label where GPU_CLIQUE_LABEL_ENABLED is set (0.5 and later, and always with the GPU
Operator's GPUCluster).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils import node_names
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import natural_sorted
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, Subject, finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.cliques import CLIQUE, OWNER, SLINKY, Topology
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, as_list, mapped

AUTO, GFD, DRA, COLLECTION, UNKNOWN, NONE, MULTIPLE = (
    "auto",
    "gfd",
    "dra_driver",
    "collection",
    "unknown",
    "none",
    "multiple",
)

CLIQUE_MANAGER = f"{OWNER}-clique"
MANAGERS = {
    "nfd-master": GFD,
    "gpu-feature-discovery": GFD,
    "compute-domain-kubelet-plugin": DRA,
    CLIQUE_MANAGER: COLLECTION,
}
TITLES = {
    GFD: "GPU Feature Discovery",
    DRA: "the DRA driver's plugin",
    COLLECTION: "this collection",
    UNKNOWN: "an unknown program",
}
_GFD_NAME = "gpu-feature-discovery"
_DRA_SWITCH = "GPU_CLIQUE_LABEL_ENABLED"
_OLD_TOPOGRAPH = "network.topology.nvidia.com/"


def running_writers(daemon_sets: Iterable[Any]) -> tuple[str, ...]:
    """The ones of GFD and DRA whose DaemonSet is scheduled on a node and configured to write the label."""
    found = set()
    for row in daemon_sets:
        status = mapped(mapped(row).get("status"))
        if status.get("desiredNumberScheduled", 0) == 0:
            continue
        spec = mapped(mapped(mapped(mapped(row).get("spec")).get("template")).get("spec"))
        for container in as_list(spec.get("containers")):
            if _is_gfd(mapped(container)):
                found.add(GFD)
            if _is_dra(mapped(container)):
                found.add(DRA)
    return tuple(sorted(found))


def _is_gfd(container: Object) -> bool:
    # Since 0.15 it is another command in the device plugin's image.
    words = (container.get("name"), container.get("image"), container.get("command"), container.get("args"))
    return _GFD_NAME in str(words)


def _is_dra(container: Object) -> bool:
    rows = [mapped(row) for row in as_list(container.get("env"))]
    return any(row.get("name") == _DRA_SWITCH and str(row.get("value")).lower() in ("true", "1") for row in rows)


def managers(node: Any, path: Sequence[str]) -> tuple[str, ...]:
    """The field managers that own a field of an object, as ("metadata", "labels", CLIQUE)."""
    found = []
    for row in as_list(mapped(mapped(node).get("metadata")).get("managedFields")):
        fields = mapped(mapped(row).get("fieldsV1"))
        for part in path:
            if f"f:{part}" not in fields:
                break
            fields = mapped(fields[f"f:{part}"])
        else:
            found.append(str(mapped(row).get("manager")))
    return tuple(found)


class Field(NamedTuple):
    """A label or annotation of Nodes that the collection owns by a field manager of its own.

    part: "labels" or "annotations". force: whether it is taken from other managers.
    """

    part: str
    key: str
    manager: str
    force: bool

    def live(self, node: Any) -> Any:
        """Its value on a node; None without one."""
        return mapped(mapped(mapped(node).get("metadata")).get(self.part)).get(self.key)

    def owners(self, node: Any) -> set[str]:
        """The field managers that own it on a node."""
        return set(managers(node, ("metadata", self.part, self.key)))


# Each has its own field manager, so that one can be released without the other.
CLIQUE_LABEL = Field("labels", CLIQUE, CLIQUE_MANAGER, True)
SLINKY_ANNOTATION = Field("annotations", SLINKY, f"{OWNER}-slinky", False)


def labels(node: Any) -> Object:
    """The labels of a node."""
    return mapped(mapped(mapped(node).get("metadata")).get("labels"))


def name(node: Any) -> str:
    """The name of a node."""
    return str(mapped(mapped(node).get("metadata")).get("name"))


def names(node: Any) -> node_names.NodeNames:
    """The name of a node, its host name label and, where its status was read, its addresses."""
    addresses = (mapped(row).get("address") for row in as_list(mapped(mapped(node).get("status")).get("addresses")))
    others = (labels(node).get("kubernetes.io/hostname"), *addresses)
    return node_names.NodeNames(name(node), tuple(other for other in others if isinstance(other, str)))


def decide(
    choice: str, daemon_sets: Iterable[Any], nodes: Collection[Any], pending: Collection[str] = ()
) -> tuple[str, list[Finding]]:
    """(the writer: GFD, DRA, COLLECTION or UNKNOWN; NONE or MULTIPLE with the finding why there is not one, findings).

    choice: AUTO, GFD, DRA or COLLECTION; AUTO chooses the writer that runs, and the collection where none runs and no
    unknown field manager owns the label. pending: writers that are about to run and count as running.
    """
    running = tuple(sorted({*running_writers(daemon_sets), *pending}))
    past = _past_writers(nodes)
    found: list[Finding] = []
    unknown = {manager: rows for manager, rows in past.items() if manager not in MANAGERS}
    automatic = running[0] if running else UNKNOWN if unknown else COLLECTION
    writer = automatic if choice == AUTO else choice
    problem = remedy = ""
    if len(running) > 1:
        problem = f"{TITLES[GFD]} and {TITLES[DRA]} both write the label {CLIQUE}"
        switch = "kubeletPlugin.containers.computeDomains.gpuCliqueLabelEnabled"
        remedy = f"switch one off, with the GPU Operator's gfd.enabled or the DRA chart's {switch}"
    elif writer == COLLECTION and running:
        problem = f"{TITLES[running[0]]} writes the label {CLIQUE}, so this collection does not"
        remedy = "switch that off first, or set label_writer (variable k8s_topology_label_writer) to auto"
    elif writer in (GFD, DRA) and writer not in running:
        other = f", but {TITLES[running[0]]} does" if running else ""
        problem = f"{TITLES[writer]} is set as the writer of the label {CLIQUE} and does not run{other}"
        remedy = "start it, or change label_writer (variable k8s_topology_label_writer)"
    if problem:
        writer = MULTIPLE if len(running) > 1 or writer == COLLECTION else NONE
        message = f"{problem[0].upper()}{problem[1:]}: {remedy}."
        return writer, [finding("k8s_clique_label_writers", message)]
    for manager, rows in unknown.items():
        message = f"The label {CLIQUE} of {summarize(rows)} was written by the unknown field manager {manager}: remove"
        remedy = "it, or set label_writer (variable k8s_topology_label_writer) to collection to take the label over."
        found.append(finding("k8s_clique_label_unknown_writer", f"{message} {remedy}"))
    for manager, rows in past.items():
        who = MANAGERS.get(manager)
        if who in (GFD, DRA) and who not in running:
            message = f"The label {CLIQUE} of {summarize(rows)} was written by {TITLES[who]}, which no longer runs: it"
            remedy = f"stays as it is until {TITLES[writer]} overwrites it."
            found.append(finding("k8s_clique_label_unknown_writer", f"{message} {remedy}"))
    return writer, found


def _past_writers(nodes: Iterable[Any]) -> dict[str, list[str]]:
    """Field manager -> the nodes whose label it owns; a label that the collection owns counts for the collection alone.

    A manager that wrote the same value before still owns the field, which does not matter.
    """
    found: dict[str, list[str]] = {}
    for node in nodes:
        if CLIQUE in labels(node):
            owners = managers(node, ("metadata", "labels", CLIQUE))
            for manager in (CLIQUE_MANAGER,) if CLIQUE_MANAGER in owners else owners:
                found.setdefault(manager, []).append(name(node))
    return {manager: natural_sorted(rows) for manager, rows in sorted(found.items())}


def compare(
    topology: Topology, nodes: Collection[Any], gpus: Mapping[str, str | None], flavored: bool = True
) -> list[Finding]:
    """Compare the labels with the fabric file, and with the cliques that the trays' GPUs report where known.

    gpus: node -> `<uuid>.<id>`, None for a tray whose GPUs are in no clique; trays that were not queried are left out.
    flavored: whether a scheduler selects the nodes by the flavor's labels.
    """
    by_name = {name(node): node for node in nodes}
    wanted = [node for clique in topology.cliques for node in clique.nodes]
    # A node's own kubelet sets the label and the addresses: they are hints, and stop no run of the others.
    renamed = node_names.renamed(wanted, [node_names.NodeNames(node) for node in by_name])
    hints = node_names.renamed(wanted, map(names, nodes))
    found: list[Finding] = []
    placed: set[str] = set(renamed.values())
    if renamed:
        message = node_names.sentence("Kubernetes", renamed, "fabric_kubernetes_node")
        found.append(finding("node_renamed", message, tray=next(iter(renamed))))
    for clique in topology.cliques:
        placed.update(clique.nodes)
        absent = [node for node in clique.nodes if node not in by_name and node not in renamed]
        if absent:
            others = [hints[node] for node in absent if node in hints]
            hint = f" (by host name or address: {summarize(others)})" if others else ""
            message = f"No Node exists for {summarize(absent)} of clique {clique.name}{hint}"
            found.append(finding("k8s_node_missing", message, clique=clique.name, tray=absent[0], nodes=absent))
        existing = {node: labels(by_name[node]).get(CLIQUE) for node in clique.nodes if node in by_name}
        unlabelled = [node for node, label in existing.items() if label is None]
        if unlabelled:
            message = f"The label {CLIQUE} is missing on {summarize(unlabelled)} of clique {clique.name}, so no"
            message = f"{message} scheduler knows the clique there"
            about: Subject = {"clique": clique.name, "tray": unlabelled[0], "nodes": unlabelled}
            found.append(finding("k8s_clique_label_missing", message, **about))
        for node, label in existing.items():
            if label is not None:
                found += _compare_label(node, str(label), clique.text, clique.name, node in gpus, gpus.get(node))
    others = natural_sorted(node for node, row in by_name.items() if node not in placed and CLIQUE in labels(row))
    if others:
        message = f"The fabric file has no place for {summarize(others)}, which the label {CLIQUE} puts in a clique:"
        found.append(finding("tray_unplaced", f"{message} discover and accept the fabric.", tray=others[0]))
    selector = topology.flavor_labels.items()
    lacking = [node for node in wanted if node in by_name and not selector <= labels(by_name[node]).items()]
    if lacking and flavored:
        text = ", ".join(f"{key}={value}" for key, value in selector)
        message = f"Kueue and Run:ai select nodes by {text}, which is missing on {summarize(lacking)}"
        found.append(finding("k8s_label_missing", message, tray=lacking[0]))
    return found


def _compare_label(node: str, label: str, fabric: str, clique: str, known: bool, gpus: str | None) -> list[Finding]:
    """A finding unless the label, the fabric file and, where known, the GPUs agree."""
    if label == fabric and (not known or gpus == fabric):
        return []
    reported = "its GPUs are not known"
    if known:
        reported = f"its GPUs report {gpus}" if gpus else "its GPUs are in no clique"
    remedy = "discover, then accept"
    if label == fabric:
        remedy = "discover again, and restart the label's writer there"
    elif known and gpus == fabric:
        remedy = "restart the label's writer there"
    message = f"The label of {node} is {label}, the fabric file has {fabric}, and {reported}: {remedy}."
    return [finding("k8s_clique_label_wrong", message, tray=node, clique=clique)]


def to_write(topology: Topology, nodes: Collection[Any], gpus: Mapping[str, str | None]) -> dict[str, str]:
    """Node -> the label to write, for every existing Node whose GPUs do not report another clique."""
    existing = {name(node) for node in nodes}
    return {
        node: clique.text
        for clique in topology.cliques
        for node in clique.nodes
        if node in existing and gpus.get(node, clique.text) == clique.text
    }


def deprecated(nodes: Iterable[Any]) -> list[Finding]:
    """A finding on nodes with labels of Topograph until 0.5; 1.0 writes others and leaves these."""
    old = [name(node) for node in nodes if any(str(key).startswith(_OLD_TOPOGRAPH) for key in labels(node))]
    if not old:
        return []
    message = f"Labels of Topograph 0.5 or older ({_OLD_TOPOGRAPH}) are on {summarize(natural_sorted(old))}"
    return [finding("k8s_topograph_deprecated", message)]
