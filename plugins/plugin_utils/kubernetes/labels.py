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
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import node_names
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import Finding, Subject, finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import natural_sorted
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.schedulers import (
    CLIQUE,
    OWNER,
    Topology,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import Object, as_list, mapped

AUTO, GFD, DRA, COLLECTION, UNKNOWN, NONE, MULTIPLE = (
    "auto",
    "gfd",
    "dra_driver",
    "collection",
    "unknown",
    "none",
    "multiple",
)
CHOICES = (AUTO, GFD, DRA, COLLECTION)

# Each concern on a Node has its own field manager, so that one can be released without the others.
CLIQUE_MANAGER, SLINKY_MANAGER = f"{OWNER}-clique", f"{OWNER}-slinky"
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


@dataclass(frozen=True)
class Verdict:
    """writer: the chosen writer (GFD, DRA, COLLECTION, UNKNOWN, NONE, MULTIPLE); running: the writers that run."""

    writer: str
    running: tuple[str, ...] = ()
    findings: list[Finding] = field(default_factory=list)

    @property
    def by_collection(self) -> bool:
        """Whether this collection writes the labels."""
        return self.writer == COLLECTION


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
    words = [
        container.get("name"),
        container.get("image"),
        *as_list(container.get("command")),
        *as_list(container.get("args")),
    ]
    return any(isinstance(word, str) and _GFD_NAME in word for word in words)


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


def owned(node: Any, part: str, manager: str) -> list[str]:
    """The keys of a node's "labels" or "annotations" that a field manager owns, alone or with others."""
    live = mapped(mapped(mapped(node).get("metadata")).get(part))
    return [key for key in live if manager in managers(node, ("metadata", part, key))]


def label_managers(node: Any, key: str) -> tuple[str, ...]:
    """The field managers that own a label of a node."""
    return managers(node, ("metadata", "labels", key))


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


def decide(choice: str, daemon_sets: Iterable[Any], nodes: Collection[Any], pending: Collection[str] = ()) -> Verdict:
    """Exactly one writer, or findings with the reason why there is none.

    choice: one of CHOICES; AUTO chooses the writer that runs, and the collection where none runs and no unknown field
    manager owns the label. pending: writers that are about to run and count as running.
    """
    running = tuple(sorted({*running_writers(daemon_sets), *pending}))
    past = _past_writers(nodes)
    found: list[Finding] = []
    if len(running) > 1:
        message = (
            f"{TITLES[GFD]} and {TITLES[DRA]} both write the label {CLIQUE}: switch one off, with the GPU Operator's "
            "gfd.enabled or the DRA chart's kubeletPlugin.containers.computeDomains.gpuCliqueLabelEnabled."
        )
        return Verdict(MULTIPLE, running, [finding("k8s_clique_label_writers", message)])
    unknown = {manager: rows for manager, rows in past.items() if manager not in MANAGERS}
    automatic = running[0] if running else UNKNOWN if unknown else COLLECTION
    writer = automatic if choice == AUTO else choice
    if writer == COLLECTION and running:
        message = (
            f"{TITLES[running[0]]} writes the label {CLIQUE}, so this collection does not: switch that off first, "
            "or set label_writer to auto."
        )
        return Verdict(MULTIPLE, running, [finding("k8s_clique_label_writers", message)])
    if writer in (GFD, DRA) and writer not in running:
        other = f", but {TITLES[running[0]]} does" if running else ""
        message = (
            f"{TITLES[writer]} is set as the writer of the label {CLIQUE} and does not run{other}: start it, or change "
            "label_writer."
        )
        message = message[0].upper() + message[1:]
        return Verdict(NONE, running, [finding("k8s_clique_label_writers", message)])
    for manager, rows in unknown.items():
        message = (
            f"The label {CLIQUE} of {summarize(rows)} was written by the unknown field manager {manager}: "
            "remove it, or set label_writer to collection to take the label over."
        )
        found.append(finding("k8s_clique_label_unknown_writer", message))
    for manager, rows in past.items():
        who = MANAGERS.get(manager)
        if who in (GFD, DRA) and who not in running:
            message = (
                f"The label {CLIQUE} of {summarize(rows)} was written by {TITLES[who]}, which no longer "
                f"runs: it stays as it is until {TITLES[writer]} overwrites it."
            )
            found.append(finding("k8s_clique_label_unknown_writer", message))
    return Verdict(writer, running, found)


def _past_writers(nodes: Iterable[Any]) -> dict[str, list[str]]:
    """Field manager -> the nodes whose label it owns; a label that the collection owns counts for the collection alone.

    A manager that wrote the same value before still owns the field, which does not matter.
    """
    found: dict[str, list[str]] = {}
    for node in nodes:
        if CLIQUE in labels(node):
            owners = label_managers(node, CLIQUE)
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
        absent = [node for node in clique.nodes if node not in by_name and node not in renamed]
        placed.update(clique.nodes)
        if absent:
            others = [hints[node] for node in absent if node in hints]
            hint = f" (by host name or address: {summarize(others)})" if others else ""
            message = (
                f"No Node exists for {summarize(absent)} of clique {clique.name}{hint}: join it, or set "
                "fabric_kubernetes_node and run discover and accept."
            )
            found.append(finding("k8s_node_missing", message, clique=clique.name, tray=absent[0]))
        unlabelled = [node for node in clique.nodes if node in by_name and CLIQUE not in labels(by_name[node])]
        if unlabelled:
            message = (
                f"The label {CLIQUE} is missing on {summarize(unlabelled)} of clique {clique.name}, so no scheduler "
                "knows the clique there: see the log of the label's writer, which may be a minute late."
            )
            found.append(finding("k8s_clique_label_missing", message, clique=clique.name, tray=unlabelled[0]))
        for node in clique.nodes:
            if node in by_name and CLIQUE in labels(by_name[node]):
                found += _compare_label(
                    node, str(labels(by_name[node])[CLIQUE]), clique.text, clique.name, node in gpus, gpus.get(node)
                )
    others = natural_sorted(node for node, row in by_name.items() if node not in placed and CLIQUE in labels(row))
    if others:
        message = (
            f"The fabric file has no place for {summarize(others)}, which the label {CLIQUE} puts in a clique: "
            "discover and accept the fabric."
        )
        found.append(finding("tray_unplaced", message, tray=others[0]))
    lacking = [
        node
        for clique in topology.cliques
        for node in clique.nodes
        if node in by_name
        and any(labels(by_name[node]).get(key) != want for key, want in topology.flavor_labels.items())
    ]
    if lacking and flavored:
        selector = ", ".join(f"{key}={value}" for key, value in topology.flavor_labels.items())
        message = (
            f"Kueue and Run:ai select nodes by {selector}, which is missing on {summarize(lacking)}: set "
            "flavor_labels, or label the nodes."
        )
        found.append(finding("k8s_label_missing", message, tray=lacking[0]))
    return found


def _compare_label(node: str, label: str, fabric: str, clique: str, known: bool, gpus: str | None) -> list[Finding]:
    if label == fabric and (not known or gpus == fabric):
        return []
    subject: Subject = {"tray": node, "clique": clique}
    if label == fabric:
        reported = f"report {gpus}" if gpus else "are in no clique"
        message = f"The label of {node} names clique {clique} as the fabric file does, but its GPUs {reported}: "
        return [
            finding(
                "k8s_clique_label_wrong", message + "discover again, and restart the label's writer there.", **subject
            )
        ]
    if known and gpus == fabric:
        message = f"The label of {node} is still {label}, but its GPUs and the fabric file have {fabric}: "
        return [finding("k8s_clique_label_wrong", message + "restart the label's writer there.", **subject)]
    agreed = (
        "as its GPUs report"
        if known and gpus == label
        else "which its GPUs do not report"
        if known
        else "not compared with its GPUs"
    )
    message = f"The label of {node} is {label} ({agreed}), but the fabric file has {fabric}: discover, then accept."
    return [finding("k8s_clique_label_wrong", message, **subject)]


def to_write(topology: Topology, nodes: Collection[Any], gpus: Mapping[str, str | None]) -> dict[str, str]:
    """Node -> the label to write, for every existing Node whose GPUs do not report another clique."""
    existing = {name(node) for node in nodes}
    return {
        node: clique.text
        for clique in topology.cliques
        for node in clique.nodes
        if node in existing and gpus.get(node, clique.text) == clique.text
    }


def to_release(nodes: Iterable[Any], key: str, manager: str) -> list[Any]:
    """The nodes whose label `key` is owned by `manager` and by another one too, so a release does not remove it."""
    return [node for node in nodes if (own := label_managers(node, key)) and manager in own and set(own) != {manager}]


def deprecated(nodes: Iterable[Any]) -> list[Finding]:
    """A finding on nodes with labels of Topograph until 0.5; 1.0 writes others and leaves these."""
    old = [name(node) for node in nodes if any(str(key).startswith(_OLD_TOPOGRAPH) for key in labels(node))]
    if not old:
        return []
    message = (
        f"Labels of Topograph 0.5 or older ({_OLD_TOPOGRAPH}) are on {summarize(natural_sorted(old))}: remove them "
        "when nothing names them."
    )
    return [finding("k8s_topograph_deprecated", message)]
