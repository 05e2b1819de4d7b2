# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who writes the label nvidia.com/gpu.clique, whether it is right, and how Topograph's old labels become the new ones.

Pure: Nodes and DaemonSets come as the API server's JSON. Who could write the label is read from the DaemonSets that
run; who did, from the Nodes' managedFields. GPU Feature Discovery leaves the writing to nfd-master, so that name stands
there for it. The DRA driver's plugin writes it where GPU_CLIQUE_LABEL_ENABLED is set (0.5 and later, and always below
the GPU Operator's GPUCluster).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Finding, natural_sorted
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.schedulers import (
    CLIQUE,
    OWNER,
    TOPOGRAPH,
    Topology,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import as_list, mapped

AUTO, GFD, DRA, OURS, UNKNOWN, NOBODY, SEVERAL = "auto", "gfd", "dra_driver", "ours", "unknown", "nobody", "several"
WANTED = (AUTO, GFD, DRA, OURS)

# Each concern of ours on a Node has a field manager of its own, so that letting go of one leaves the others alone.
CLIQUE_MANAGER, SLINKY_MANAGER, TOPOGRAPH_MANAGER = f"{OWNER}-clique", f"{OWNER}-slinky", f"{OWNER}-topograph"
MANAGERS = {
    "nfd-master": GFD,
    "gpu-feature-discovery": GFD,
    "compute-domain-kubelet-plugin": DRA,
    CLIQUE_MANAGER: OURS,
}
TITLES = {
    GFD: "GPU Feature Discovery",
    DRA: "the DRA driver's plugin",
    OURS: "this collection",
    UNKNOWN: "a program that this collection does not know",
}
_GFD_WORD = "gpu-feature-discovery"
_DRA_SWITCH = "GPU_CLIQUE_LABEL_ENABLED"
_SHOWN = 3


@dataclass(frozen=True)
class Verdict:
    """writer: who is to write the label (GFD, DRA, OURS, UNKNOWN, NOBODY, SEVERAL); running: the writers that run."""

    writer: str
    running: tuple[str, ...] = ()
    findings: list[Finding] = field(default_factory=list)

    @property
    def ours(self) -> bool:
        """Whether the labels are ours to write."""
        return self.writer == OURS


def running_writers(daemon_sets: Iterable[Any]) -> tuple[str, ...]:
    """GFD and DRA, those of them whose DaemonSet wants a pod on some node and is set to write the label."""
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


def _is_gfd(container: Mapping[str, Any]) -> bool:
    # Since 0.15 it comes in the device plugin's image, as another command.
    words = [
        container.get("name"),
        container.get("image"),
        *as_list(container.get("command")),
        *as_list(container.get("args")),
    ]
    return any(isinstance(word, str) and _GFD_WORD in word for word in words)


def _is_dra(container: Mapping[str, Any]) -> bool:
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
    """Who owns a label of a node."""
    return managers(node, ("metadata", "labels", key))


def labels(node: Any) -> Mapping[str, Any]:
    """The labels of a node."""
    return mapped(mapped(mapped(node).get("metadata")).get("labels"))


def name(node: Any) -> str:
    """The name of a node."""
    return str(mapped(mapped(node).get("metadata")).get("name"))


def decide(wanted: str, daemon_sets: Iterable[Any], nodes: Collection[Any], coming: Collection[str] = ()) -> Verdict:
    """Exactly one writer, or findings that say why there is none.

    auto takes the one that runs, and ours where none does and nobody unknown holds the label. coming: writers that are
    about to run, which count as if they did.
    """
    running = tuple(sorted({*running_writers(daemon_sets), *coming}))
    past = _past_writers(nodes)
    found: list[Finding] = []
    if len(running) > 1:
        message = (
            f"{TITLES[GFD]} and {TITLES[DRA]} both write the label {CLIQUE}: leave out one, by the GPU Operator's "
            "gfd.enabled or the DRA chart's kubeletPlugin.containers.computeDomains.gpuCliqueLabelEnabled."
        )
        return Verdict(SEVERAL, running, [finding("k8s_clique_label_multiple_writers", message)])
    strangers = {manager: rows for manager, rows in past.items() if manager not in MANAGERS}
    by_itself = running[0] if running else UNKNOWN if strangers else OURS
    writer = by_itself if wanted == AUTO else wanted
    if writer == OURS and running:
        message = (
            f"{TITLES[running[0]]} writes the label {CLIQUE}, so this collection does not: switch it off there first, "
            "or set clique_label to auto."
        )
        return Verdict(SEVERAL, running, [finding("k8s_clique_label_multiple_writers", message)])
    if writer in (GFD, DRA) and writer not in running:
        other = f", while {TITLES[running[0]]} does" if running else ""
        message = (
            f"{TITLES[writer]} is to write the label {CLIQUE} and does not run{other}: start it, or set clique_label."
        )
        message = message[0].upper() + message[1:]
        return Verdict(NOBODY, running, [finding("k8s_clique_label_no_writer", message)])
    for manager, rows in strangers.items():
        message = (
            f"The label {CLIQUE} of {summarize(rows)} was written by {manager}, which this collection does not know: "
            "let it go, or set clique_label to ours to take the label over."
        )
        found.append(finding("k8s_clique_label_unknown_writer", message))
    for manager, rows in past.items():
        who = MANAGERS.get(manager)
        if who in (GFD, DRA) and who not in running:
            message = (
                f"The label {CLIQUE} of {summarize(rows)} was written by {TITLES[who]}, which no longer runs: nobody would "
                f"correct it but {TITLES[writer]}, which takes it over when it next writes."
            )
            found.append(finding("k8s_clique_label_orphaned", message))
    return Verdict(writer, running, found)


def _past_writers(nodes: Iterable[Any]) -> dict[str, list[str]]:
    """Field manager -> the nodes whose label it owns; of a label that is ours too, nobody else.

    Another one that has written the same value before owns it still, and says nothing by that.
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
    """The labels against the fabric file, and against what the trays' GPUs say where that is known.

    gpus: node -> `<uuid>.<id>`, None for a tray whose GPUs are in no clique; a tray that was not asked is no key.
    flavored: whether something selects the nodes by the flavor's labels.
    """
    by_name = {name(node): node for node in nodes}
    found: list[Finding] = []
    placed: set[str] = set()
    for clique in topology.cliques:
        absent = [node for node in clique.nodes if node not in by_name]
        placed.update(clique.nodes)
        if absent:
            message = f"{summarize(absent)} of clique {clique.name} is no Node: join it, or set nvlink_kubernetes_node."
            found.append(finding("k8s_node_missing", message, clique=clique.name, tray=absent[0]))
        unlabelled = [node for node in clique.nodes if node in by_name and CLIQUE not in labels(by_name[node])]
        if unlabelled:
            message = (
                f"{summarize(unlabelled)} of clique {clique.name} lacks the label {CLIQUE}, so no scheduler sees its "
                "place: see the log of the label's writer there, which may be a minute late."
            )
            found.append(finding("k8s_clique_label_missing", message, clique=clique.name, tray=unlabelled[0]))
        for node in clique.nodes:
            if node in by_name and CLIQUE in labels(by_name[node]):
                found += _judged(
                    node, str(labels(by_name[node])[CLIQUE]), clique.text, clique.name, node in gpus, gpus.get(node)
                )
    others = natural_sorted(node for node, row in by_name.items() if node not in placed and CLIQUE in labels(row))
    if others:
        message = f"{summarize(others)} has the label {CLIQUE} and no place in the fabric file: discover and accept the fabric."
        found.append(finding("k8s_clique_label_unplaced", message, tray=others[0]))
    lacking = [
        node
        for clique in topology.cliques
        for node in clique.nodes
        if node in by_name
        and any(labels(by_name[node]).get(key) != want for key, want in topology.flavor_labels.items())
    ]
    if lacking and flavored:
        wanted = ", ".join(f"{key}={value}" for key, value in topology.flavor_labels.items())
        message = (
            f"{summarize(lacking)} lacks {wanted}, by which Kueue and Run:ai select it: set flavor_labels, or label it."
        )
        found.append(finding("k8s_flavor_label_missing", message, tray=lacking[0]))
    return found


def _judged(node: str, label: str, fabric: str, clique: str, asked: bool, gpus: str | None) -> list[Finding]:
    if label == fabric and (not asked or gpus == fabric):
        return []
    subject = {"tray": node, "clique": clique}
    if label == fabric:
        said = f"say {gpus}" if gpus else "are in no clique"
        message = f"The label of {node} names clique {clique} as the fabric file does, but its GPUs {said}: "
        return [
            finding(
                "k8s_clique_label_stale", message + "discover again, and restart the label's writer there.", **subject
            )
        ]
    if asked and gpus == fabric:
        message = f"The label of {node} still says {label} where its GPUs and the fabric file say {fabric}: "
        return [finding("k8s_clique_label_stale", message + "restart the label's writer there.", **subject)]
    agreed = (
        "as its GPUs do"
        if asked and gpus == label
        else "which its GPUs do not say"
        if asked
        else "unchecked by its GPUs"
    )
    message = f"The label of {node} says {label}, {agreed}, where the fabric file says {fabric}: discover, then accept."
    return [finding("k8s_clique_label_wrong", message, **subject)]


def to_write(topology: Topology, nodes: Collection[Any], gpus: Mapping[str, str | None]) -> dict[str, str]:
    """Node -> the clique's text that it is to carry, for every Node that is there and whose GPUs do not deny it."""
    there = {name(node) for node in nodes}
    return {
        node: clique.text
        for clique in topology.cliques
        for node in clique.nodes
        if node in there and gpus.get(node, clique.text) == clique.text
    }


def to_release(nodes: Iterable[Any], key: str, manager: str) -> list[Any]:
    """The nodes whose label `key` belongs to `manager` and to somebody else too: letting go of it removes nothing."""
    return [node for node in nodes if (own := label_managers(node, key)) and manager in own and set(own) != {manager}]


# Topograph.


@dataclass(frozen=True)
class Migration:
    """add: node -> labels to write; remove: node -> old keys to remove; at most one of the two holds something."""

    add: dict[str, dict[str, str]] = field(default_factory=dict)
    remove: dict[str, list[str]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def migrate(stage: str, nodes: Collection[Any], named: Mapping[str, Collection[str]]) -> Migration:
    """Topograph's labels until 0.5 become those since 1.0 in two stages, each node with a label at every moment.

    add copies each old label to its new key where that is missing, and never overwrites one. finish removes the old
    ones, of all nodes or of none: not while a node lacks a new one, nor while an object names an old key. named: what
    an object is called -> the label keys that it names. look does neither.
    """
    old = {name(node): [key for key in TOPOGRAPH if key in labels(node)] for node in nodes}
    old = {node: keys for node, keys in old.items() if keys}
    by_name = {name(node): labels(node) for node in nodes}
    missing = {
        node: {TOPOGRAPH[key]: str(by_name[node][key]) for key in keys if TOPOGRAPH[key] not in by_name[node]}
        for node, keys in old.items()
    }
    missing = {node: keys for node, keys in missing.items() if keys}
    if stage == "add":
        return Migration(add=missing)
    users = sorted(f"{user} names {key}" for user, keys in named.items() for key in keys if key in TOPOGRAPH)
    if stage == "finish":
        found = []
        if missing:
            message = f"Topograph's old labels stay, because {summarize(natural_sorted(missing))} lacks a new one: "
            found.append(
                finding("k8s_topograph_in_use", message + "run with topograph: add, or let Topograph 1.0 write.")
            )
        if old and users:
            message = f"Topograph's old labels stay, because {summarize(users)}: change it to the new key first."
            found.append(finding("k8s_topograph_in_use", message))
        return Migration(findings=found) if found else Migration(remove=old)
    if old:
        message = f"{summarize(natural_sorted(old))} has labels of Topograph 0.5 or older: run with topograph: add, then finish."
        return Migration(findings=[finding("k8s_topograph_deprecated", message)])
    return Migration()


def last_places(nodes: Iterable[Any]) -> list[Finding]:
    """Nodes that lose a place with our copy of Topograph's label: the old one is gone, and nobody else owns the new."""
    losing = []
    for node in nodes:
        there = labels(node)
        mine = [key for key in owned(node, "labels", TOPOGRAPH_MANAGER) if len(set(label_managers(node, key))) == 1]
        if any(new in mine and old not in there for old, new in TOPOGRAPH.items()):
            losing.append(name(node))
    if not losing:
        return []
    message = (
        f"{summarize(natural_sorted(losing))} loses labels of Topograph 1.0 that only this collection wrote, and the old "
        "ones are gone: let Topograph write them, by a restart of it."
    )
    return [finding("k8s_topograph_label_lost", message, tray=natural_sorted(losing)[0])]
