# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring one Kubernetes cluster to the state of the fabric file: inspect, plan, apply.

Everything is read and dry-run by the API server before anything is written, so a rejection stops the run before a
change. Each write is complete in itself; the next run continues an interrupted one. Nodes come first, concurrently,
then the schedulers' objects one after the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients.http import HttpError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import ERROR
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import KubernetesError, objects
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import labels as k8s_labels
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import plan as k8s_plan
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.api import (
    DAEMON_SET,
    NODE,
    Cluster,
    Kind,
    run_concurrently,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.cliques import (
    CLIQUE,
    MANAGED_BY,
    OWNER,
    SLINKY,
    Topology,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.plan import (
    CREATE,
    DELETE,
    KUEUE,
    UPDATE,
    Step,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, mapped

SLINKY_GROUP = "slinky.slurm.net"
# Scheduler -> its kinds as (group, supported versions with the preferred one first, kind, plural).
KINDS: dict[str, tuple[tuple[str, tuple[str, ...], str, str], ...]] = {
    "kai": (("kai.scheduler", ("v1alpha1",), "Topology", "topologies"),),
    "kueue": (
        (KUEUE, ("v1beta2", "v1beta1"), "Topology", "topologies"),
        (KUEUE, ("v1beta2", "v1beta1"), "ResourceFlavor", "resourceflavors"),
    ),
    "volcano": (("topology.volcano.sh", ("v1alpha1",), "HyperNode", "hypernodes"),),
    "grove": (("grove.io", ("v1alpha1",), "ClusterTopologyBinding", "clustertopologybindings"),),
    "slinky": (),
}
NAMES_OF_LEVELS = ("alias", "tierName")
"""Fields that KAI until 0.16 and Volcano until 1.13 lack: they name a level, and are left out there."""
Named = Mapping[str, Object]
"""Name -> object, of one kind."""
# Findings that prevent every write. A wrong label prevents none, since the objects are right whatever the label is.
BLOCKING = frozenset(
    (
        "k8s_clique_label_writers",
        "node_renamed",
        "object_unmanaged",
        "jobs_running",
        "k8s_scheduler_missing",
    )
)


@dataclass(frozen=True)
class DesiredState:
    """The options. names: schedulers, None for the installed ones; runai: whether Run:ai is configured as well.

    label_writer and pending: as in k8s_labels.decide(); gpus: as in compare().
    """

    names: tuple[str, ...] | None = None
    present: bool = True
    label_writer: str = k8s_labels.AUTO
    runai: bool = False
    pending: tuple[str, ...] = ()
    gpus: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Change:
    """One step with the states before and after, and the call that makes it. node: the Node that changes, if any."""

    step: Step
    before: Any
    after: Any
    make: Callable[[], Any]
    node: str | None = None


@dataclass
class Plan:
    """The changes of a cluster. done: those that apply() has made."""

    schedulers: list[str] = field(default_factory=list)
    writer: str = ""
    changes: list[Change] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    done: list[Change] = field(default_factory=list)

    @property
    def blockers(self) -> list[Finding]:
        """The findings that prevent every write."""
        return [row for row in self.findings if row["severity"] == ERROR and row["code"] in BLOCKING]

    def apply(self) -> None:
        """Make all changes, those of Nodes concurrently; stops at an error, which names the number of further ones."""
        for _of_nodes, rows in itertools.groupby(self.changes, lambda change: change.node is not None):
            queues: dict[str | None, list[Change]] = {}
            for change in rows:
                queues.setdefault(change.node, []).append(change)
            done, errors = run_concurrently(queues.values(), lambda change: change.make())
            self.done += done
            if errors:
                more = f" (and {count(len(errors) - 1, 'more error')})" if len(errors) > 1 else ""
                raise KubernetesError(f"{errors[0]}{more}")


class Planner:
    """Reads one cluster and plans its changes, each with the call that makes it."""

    def __init__(self, cluster: Cluster, topology: Topology, desired: DesiredState) -> None:
        self._cluster, self._topology, self._desired = cluster, topology, desired
        self._nodes: list[Any] = []
        self._plan = Plan()

    def plan(self) -> Plan:
        """The plan; nothing is written."""
        served = self._cluster.served()
        self._nodes = self._cluster.items(NODE, metadata=True)
        plan = self._plan
        installed = self._installed(served)
        plan.schedulers = list(installed)
        live = {name: self._live(kinds) for name, kinds in installed.items() if kinds}
        wanted: dict[str, list[tuple[Kind, Object]]] = {}
        if self._desired.present:
            wanted = {name: self._desired_objects(name, list(kinds), "kai" in live) for name, kinds in live.items()}
            self._labels()
            if "slinky" in plan.schedulers:
                self._annotations()
            for name, rows in wanted.items():
                self._objects(rows, live[name])
        else:
            self._release()
        for name in reversed(live):
            self._remove_unneeded(live[name], wanted.get(name, ()))
        if self._desired.present:
            plan.findings += k8s_labels.deprecated(self._nodes)
        return plan

    # Schedulers' objects.

    def _kinds(self, name: str, served: Mapping[str, list[str]]) -> list[Kind]:
        """The kinds of a scheduler as the API server serves them; none where an old release lacks one of them."""
        found = []
        for group, versions, kind, plural in KINDS[name]:
            version = next((version for version in versions if version in served.get(group, ())), None)
            if version is None or kind not in self._cluster.resources(f"{group}/{version}"):
                return []
            found.append(Kind(f"{group}/{version}", kind, plural))
        return found

    def _installed(self, served: Mapping[str, list[str]]) -> dict[str, list[Kind]]:
        """Scheduler -> its kinds, of the schedulers to configure."""
        names = KINDS if self._desired.names is None else self._desired.names
        found = {}
        # KAI's Topology comes before Grove's object that names it.
        for name in (name for name in KINDS if name in names):
            kinds = self._kinds(name, served)
            if kinds or (name == "slinky" and SLINKY_GROUP in served):
                found[name] = kinds
            elif self._desired.names is not None and self._desired.present:
                needed = " and ".join(kind for _group, _versions, kind, _plural in KINDS[name]) or "any kind"
                message = f"The cluster does not serve {needed} of {name} in a known version"
                self._plan.findings.append(finding("k8s_scheduler_missing", message))
        return found

    def _live(self, kinds: Iterable[Kind]) -> dict[Kind, Named]:
        """Kind -> name -> object, managed or not."""
        return {kind: {k8s_labels.name(item): item for item in self._cluster.items(kind)} for kind in kinds}

    def _desired_objects(self, name: str, kinds: Iterable[Kind], with_kai: bool) -> list[tuple[Kind, Object]]:
        by_name = {kind.name: kind for kind in kinds}
        undeclared = {kind: self._cluster.undeclared(kind, NAMES_OF_LEVELS) for kind in by_name.values()}
        made = []
        for row in objects.made(name, self._topology):
            kind = by_name.get(str(mapped(row).get("kind")))
            if kind is None or not k8s_plan.is_managed(row) or k8s_labels.name(row) == "None":
                what = f"each object must be a {' or '.join(by_name)} with a name and the label {MANAGED_BY}: {OWNER}"
                raise KubernetesError(f"templates, {name}: {what}; correct the template")
            row = without({**row, "apiVersion": kind.api}, undeclared[kind])
            if name == "grove" and with_kai:
                # Otherwise Grove creates a second Topology for KAI.
                own = {"schedulerName": "kai-scheduler", "topologyReference": self._topology.name}
                row = {**row, "spec": {**row["spec"], "schedulerTopologyBindings": [own]}}
            made.append((kind, row))
        return made

    def _objects(self, rows: Iterable[tuple[Kind, Object]], live: Mapping[Kind, Named]) -> None:
        for kind, desired in rows:
            existing = live[kind].get(desired["metadata"]["name"])
            if existing and not k8s_plan.is_managed(existing):
                self._plan.findings.append(k8s_plan.unmanaged(desired))
                continue
            before = k8s_plan.content(existing) if existing else None
            apply = partial(self._cluster.apply, kind, desired, OWNER, force=True)
            try:
                after = k8s_plan.content(apply(dry_run=True))
            except HttpError as error:
                refused = k8s_plan.immutable(desired, str(error)) if existing else None
                if refused is None:
                    raise
                self._plan.findings.append(refused)
                continue
            if after != before:
                action = UPDATE if existing else CREATE
                step = Step(action, f"{kind.name} {desired['metadata']['name']} of {kind.group}")
                self._add(step, before, after, apply)

    def _remove_unneeded(self, live: Mapping[Kind, Named], desired: Iterable[tuple[Kind, Object]]) -> None:
        """Delete managed objects that are not desired any more: those of a removed clique, or all of them."""
        why = "the fabric file no longer has it" if self._desired.present else "state is absent"
        kept = {(kind, row["metadata"]["name"]) for kind, row in desired}
        for kind in reversed(list(live)):
            for name, existing in live[kind].items():
                if (kind, name) not in kept and k8s_plan.is_managed(existing):
                    step = Step(DELETE, f"{kind.name} {name} of {kind.group}", why)
                    self._add(step, k8s_plan.content(existing), None, partial(self._cluster.delete, kind, existing))

    # Nodes.

    def _release(self) -> None:
        """Release all labels and annotations of Nodes; those that another manager owns too stay."""
        self._own(k8s_labels.CLIQUE_LABEL, {})
        if self._desired.names is None or "slinky" in self._desired.names:
            self._own(k8s_labels.SLINKY_ANNOTATION, {})

    def _labels(self) -> None:
        field = k8s_labels.CLIQUE_LABEL
        running = self._cluster.items(DAEMON_SET)
        writer, found = k8s_labels.decide(self._desired.label_writer, running, self._nodes, self._desired.pending)
        self._plan.writer = writer
        self._plan.findings += found
        if writer == k8s_labels.COLLECTION:
            texts = k8s_labels.to_write(self._topology, self._nodes, self._desired.gpus)
            kept = {node for clique in self._topology.cliques for node in clique.nodes}
        else:
            # A label that only the collection owns stays until its writer owns it too: no Node is left without a label.
            texts, kept = {}, {k8s_labels.name(node) for node in self._nodes if field.owners(node) == {field.manager}}
        self._own(field, texts, kept)
        changed = {change.node: change.after["labels"] for change in self._plan.changes}
        after = [_labelled(node, changed.get(k8s_labels.name(node))) for node in self._nodes]
        flavored = self._desired.runai or "kueue" in self._plan.schedulers
        self._plan.findings += k8s_labels.compare(self._topology, after, self._desired.gpus, flavored)

    def _annotations(self) -> None:
        field, texts = k8s_labels.SLINKY_ANNOTATION, dict(self._topology.annotations)
        for node in self._nodes:
            name, live, owners = k8s_labels.name(node), field.live(node), field.owners(node)
            if name in texts and live not in (None, texts[name]) and field.manager not in owners:
                owner = ", ".join(sorted(owners)) or "another writer"
                message = (
                    f"Node {name} has the annotation {SLINKY}: {live} from {owner}, so it is not changed: remove "
                    "it, or remove slinky from schedulers."
                )
                self._plan.findings.append(finding("object_unmanaged", message, tray=name))
                del texts[name]
        self._own(field, texts)

    def _own(self, field: k8s_labels.Field, texts: Mapping[str, str], kept: Collection[str] = ()) -> None:
        """Let the collection own these values of a field, by Node, and release it on all others but `kept`."""
        for node in self._nodes:
            name, live, owners = k8s_labels.name(node), field.live(node), field.owners(node)
            value = texts.get(name)
            is_own, is_shared = field.manager in owners, bool(owners - {field.manager})
            if (is_own and live == value) or (value is None and (not is_own or name in kept)):
                continue
            # With the uid the server rejects the apply if the Node was deleted meanwhile, instead of creating one. An
            # empty map would be owned as such, and the manager would not disappear.
            metadata = {"name": name, "uid": node["metadata"]["uid"]}
            if value is None:
                after = live if is_shared else None
                why = f"release {field.key}" + (", which other managers keep" if is_shared else "")
            else:
                after, metadata[field.part] = value, {field.key: value}
                why = f"{field.key}: {value}"
                why = f"own {why}, which is already set" if live == value else why
            self._add(
                Step(UPDATE, f"Node {name}", why),
                {field.part: {field.key: live} if live is not None else {}},
                {field.part: {field.key: after} if after is not None else {}},
                partial(
                    self._cluster.apply,
                    NODE,
                    {"apiVersion": "v1", "kind": "Node", "metadata": metadata},
                    field.manager,
                    force=field.force,
                    metadata=True,
                ),
                name,
            )

    def _add(self, step: Step, before: Any, after: Any, make: Callable[[], Any], node: str | None = None) -> None:
        self._plan.changes.append(Change(step, before, after, make, node))


def without(value: Any, names: Collection[str]) -> Any:
    """A value without the keys of these names, at any depth."""
    if isinstance(value, Mapping):
        return {key: without(item, names) for key, item in value.items() if key not in names}
    return [without(item, names) for item in value] if isinstance(value, list) else value


def _labelled(node: Any, clique: Mapping[str, str] | None) -> Any:
    """The node with this clique label; the rest is shared, not copied, since there may be ten thousand nodes."""
    if clique is None:
        return node
    labels = {key: value for key, value in k8s_labels.labels(node).items() if key != CLIQUE}
    return {**node, "metadata": {**node["metadata"], "labels": {**labels, **clique}}}
