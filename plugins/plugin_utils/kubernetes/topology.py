# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One Kubernetes cluster brought to what the fabric file says of it: look, plan, apply.

Everything is looked at and dry-run by the API server before anything is written, so that what it would refuse stops the
run while nothing is changed. Each write is whole by itself; a run that is cut off goes on with the next run. Nodes come
first, many at one time, then the schedulers' objects one after the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import ERROR, finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import labels as k8s_labels
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import plan as k8s_plan
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.api import (
    DAEMON_SET,
    NODE,
    Cluster,
    K8sError,
    Kind,
    Work,
    run_concurrently,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.plan import DELETE, RECREATE, UPDATE, Step
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import schedulers
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.schedulers import (
    CLIQUE,
    OWNER,
    SLINKY,
    Object,
    Topology,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import mapped

# Scheduler -> its kinds as (group, versions that this collection knows with the best first, kind, plural).
KINDS: dict[str, tuple[tuple[str, tuple[str, ...], str, str], ...]] = {
    "kai": (("kai.scheduler", ("v1alpha1",), "Topology", "topologies"),),
    "kueue": (
        ("kueue.x-k8s.io", ("v1beta2", "v1beta1"), "Topology", "topologies"),
        ("kueue.x-k8s.io", ("v1beta2", "v1beta1"), "ResourceFlavor", "resourceflavors"),
    ),
    "volcano": (("topology.volcano.sh", ("v1alpha1",), "HyperNode", "hypernodes"),),
    "grove": (("grove.io", ("v1alpha1",), "ClusterTopologyBinding", "clustertopologybindings"),),
    "slinky": (),
}
SLINKY_GROUP = "slinky.slurm.net"
# A finding that says a writing cannot be as wanted: then nothing is written at all. One that only tells of a label
# stops nothing, the objects being right whatever the label is.
STOPS = frozenset(
    (
        "k8s_clique_label_no_writer",
        "k8s_clique_label_multiple_writers",
        "k8s_object_unmanaged",
        "k8s_recreate_required",
        "k8s_runai_conflict",
        "k8s_scheduler_missing",
        "k8s_topograph_in_use",
    )
)


@dataclass(frozen=True)
class DesiredState:
    """What the site wants. names: schedulers, None for those that are installed; runai: whether Run:ai is told as well.

    coming: as k8s_labels.decide() has them, gpus: as compare() does.
    """

    names: tuple[str, ...] | None = None
    present: bool = True
    clique_label: str = k8s_labels.AUTO
    topograph: str = "look"
    allow_recreate: bool = False
    runai: bool = False
    coming: tuple[str, ...] = ()
    gpus: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Change:
    """One step with how it looks before and after, and the call that makes it. node: the Node that it is about."""

    step: Step
    before: Any
    after: Any
    make: Callable[[], Any]
    node: str | None = None


@dataclass
class Plan:
    """What a cluster needs; stopped where a finding forbids to write. done: the changes that apply() has made."""

    schedulers: list[str] = field(default_factory=list)
    writer: str = ""
    changes: list[Change] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    done: list[Change] = field(default_factory=list)

    @property
    def stopped(self) -> list[Finding]:
        """The findings that forbid to write."""
        return [row for row in self.findings if row["severity"] == ERROR and row["code"] in STOPS]

    def apply(self) -> None:
        """Make all changes, those of Nodes side by side; the first error ends it, with how many others there were."""
        for _of_nodes, rows in itertools.groupby(self.changes, lambda change: change.node is not None):
            changes = list(rows)
            done, errors = run_concurrently([Work(change.node or "", change.make) for change in changes])
            self.done += [change for position, change in enumerate(changes) if position in done]
            if errors:
                more = f" (and {len(errors) - 1} more such errors)" if len(errors) > 1 else ""
                raise K8sError(f"{errors[0]}{more}")


class Planner:
    """Looks at one cluster and plans; every change keeps a call that makes it."""

    def __init__(self, cluster: Cluster, topology: Topology, wishes: DesiredState) -> None:
        self._cluster, self._topology, self._wishes = cluster, topology, wishes
        self._nodes: list[Any] = []
        self._plan = Plan()

    def plan(self) -> Plan:
        """What is to be done; nothing is written."""
        served = self._cluster.served()
        self._nodes = self._cluster.items(NODE, metadata=True)
        plan = self._plan
        plan.schedulers = self._installed(served)
        # What an untold scheduler has matters to the end of a migration alone, and needs a right of its own.
        looked_at = KINDS if self._wishes.topograph == "finish" else plan.schedulers
        live = {name: self._live(name, served) for name in looked_at if KINDS[name] and self._serves(name, served)}
        chosen = [name for name in plan.schedulers if name in live]
        if self._wishes.present:
            self._labels()
            if "slinky" in plan.schedulers:
                self._annotations()
            self._topograph_add()
            for name in chosen:
                self._objects(name, live[name], "kai" in chosen)
        else:
            self._release()
        for name in reversed(chosen):
            self._surplus(live[name], self._wanted(name, live[name], False) if self._wishes.present else [])
        if self._wishes.present:
            self._topograph_finish(live)
        return plan

    # Schedulers' objects.

    def _serves(self, name: str, served: Mapping[str, list[str]]) -> bool:
        if name == "slinky":
            return SLINKY_GROUP in served
        return all(set(versions) & set(served.get(group, ())) for group, versions, _kind, _plural in KINDS[name])

    def _installed(self, served: Mapping[str, list[str]]) -> list[str]:
        names = KINDS if self._wishes.names is None else self._wishes.names
        found = []
        for name in names:
            if self._serves(name, served):
                found.append(name)
            elif self._wishes.names is not None and self._wishes.present:
                message = (
                    f"The cluster has no CustomResourceDefinition of {name}: install it, or leave it out of schedulers."
                )
                self._plan.findings.append(finding("k8s_scheduler_missing", message))
        # KAI's Topology comes before Grove's object that names it.
        return [name for name in KINDS if name in found]

    def _live(self, name: str, served: Mapping[str, list[str]]) -> dict[Kind, dict[str, Any]]:
        """Kind -> name -> object, of all owners. A kind that an old release lacks is left out."""
        found = {}
        for group, versions, kind, plural in KINDS[name]:
            version = next(version for version in versions if version in served[group])
            row = Kind(f"{group}/{version}", kind, plural)
            if plural in self._cluster.plurals(row.api):
                found[row] = {k8s_labels.name(item): item for item in self._cluster.items(row)}
        return found

    def _wanted(self, name: str, live: Mapping[Kind, Any], with_kai: bool) -> list[tuple[Kind, Object]]:
        by_name = {kind.name: kind for kind in live}
        made = []
        for row in schedulers.SCHEDULERS[name].objects(self._topology):
            if row["kind"] in by_name:
                kind = by_name[row["kind"]]
                row = {**row, "apiVersion": kind.api}
                if name == "grove" and with_kai:
                    # Otherwise Grove would make a second Topology of its own for KAI.
                    own = {"schedulerName": "kai-scheduler", "topologyReference": self._topology.name}
                    row = {**row, "spec": {**row["spec"], "schedulerTopologyBindings": [own]}}
                made.append((kind, row))
        return made

    def _objects(self, name: str, live: Mapping[Kind, dict[str, Any]], with_kai: bool) -> None:
        for kind, wanted in self._wanted(name, live, with_kai):
            there = live[kind].get(wanted["metadata"]["name"])
            action, found = k8s_plan.step(there, wanted, self._wishes.allow_recreate)
            self._plan.findings += found
            if action is not None:
                self._object(action, kind, wanted, there)

    def _object(self, action: str, kind: Kind, wanted: Object, there: dict[str, Any] | None) -> None:
        what = f"{kind.name} {wanted['metadata']['name']} of {kind.group}"
        before = k8s_plan.content(there) if there else None
        if action == RECREATE:
            # The server cannot dry-run what comes after a deletion, so it is asked about the same under another name.
            trial = {**wanted, "metadata": {**wanted["metadata"], "name": f"{wanted['metadata']['name']}-trial"}}
            self._cluster.apply(kind, trial, OWNER, dry_run=True)
            after: Any = wanted
            why = f"{k8s_plan.unchangeable(there or {}, wanted)} cannot be changed in place"
        else:
            after = k8s_plan.content(self._cluster.apply(kind, wanted, OWNER, force=True, dry_run=True))
            why = ""
            if after == before:
                return
        self._add(Step(action, what, why), before, after, partial(self._make, action, kind, wanted, there))

    def _make(self, action: str, kind: Kind, wanted: Object, there: dict[str, Any] | None) -> None:
        if action != RECREATE or there is None:
            self._cluster.apply(kind, wanted, OWNER, force=True)
            return
        self._cluster.delete(kind, there)
        try:
            self._cluster.apply(kind, wanted, OWNER, force=True)
        except NvlinkError as error:
            raise K8sError(f"{error}; {self._put_back(kind, there)}") from None

    def _put_back(self, kind: Kind, there: dict[str, Any]) -> str:
        """Make again what was deleted, and say whether it is there."""
        what = f"{kind.name} {k8s_labels.name(there)}"
        try:
            self._cluster.apply(kind, k8s_plan.content(there), OWNER, force=True)
        except NvlinkError:
            return f"{what} is deleted and could not be made again as it was, so run again to make the new one"
        return f"{what} was made again as it was"

    def _surplus(self, live: Mapping[Kind, dict[str, Any]], wanted: Iterable[tuple[Kind, Object]]) -> None:
        """Ours that nothing wants any more: a clique that is gone, or all of them."""
        why = "the fabric file no longer has it" if self._wishes.present else "state is absent"
        kept = {(kind, row["metadata"]["name"]) for kind, row in wanted}
        for kind in reversed(list(live)):
            for name, there in live[kind].items():
                if (kind, name) not in kept and k8s_plan.is_ours(there):
                    step = Step(DELETE, f"{kind.name} {name} of {kind.group}", why)
                    self._add(step, k8s_plan.content(there), None, partial(self._cluster.delete, kind, there))

    # Nodes.

    def _release(self) -> None:
        """Let go of all that is ours on Nodes; what somebody else owns too stays there."""
        concerns = [(k8s_labels.CLIQUE_MANAGER, "labels"), (k8s_labels.TOPOGRAPH_MANAGER, "labels")]
        if self._wishes.names is None or "slinky" in self._wishes.names:
            concerns.append((k8s_labels.SLINKY_MANAGER, "annotations"))
        for node in self._nodes:
            for manager, part in concerns:
                if k8s_labels.owned(node, part, manager):
                    self._node(node, manager, part, {}, False)
        self._plan.findings += k8s_labels.last_places(self._nodes)

    def _labels(self) -> None:
        running = self._cluster.items(DAEMON_SET)
        verdict = k8s_labels.decide(self._wishes.clique_label, running, self._nodes, self._wishes.coming)
        self._plan.writer = verdict.writer
        self._plan.findings += verdict.findings
        if verdict.ours:
            after = self._write_labels()
        else:
            # What only we own stays until the one writer has it too: no Node is to be without a label.
            after, manager = self._nodes, k8s_labels.CLIQUE_MANAGER
            for node in k8s_labels.to_release(after, CLIQUE, manager):
                self._node(node, manager, "labels", {}, False)
        flavored = self._wishes.runai or "kueue" in self._plan.schedulers
        self._plan.findings += k8s_labels.compare(self._topology, after, self._wishes.gpus, flavored)

    def _write_labels(self) -> list[Any]:
        """The Nodes as they will be."""
        manager = k8s_labels.CLIQUE_MANAGER
        texts = k8s_labels.to_write(self._topology, self._nodes, self._wishes.gpus)
        placed = {node for clique in self._topology.cliques for node in clique.nodes}
        after = []
        for node in self._nodes:
            name, labels = k8s_labels.name(node), k8s_labels.labels(node)
            own = manager in k8s_labels.label_managers(node, CLIQUE)
            if name in texts:
                if not own or labels.get(CLIQUE) != texts[name]:
                    self._node(node, manager, "labels", {CLIQUE: texts[name]}, True)
                node = _labelled(node, {**labels, CLIQUE: texts[name]})
            elif own and name not in placed:
                self._node(node, manager, "labels", {}, False)
                if set(k8s_labels.label_managers(node, CLIQUE)) == {manager}:
                    node = _labelled(node, {key: value for key, value in labels.items() if key != CLIQUE})
            after.append(node)
        return after

    def _annotations(self) -> None:
        manager = k8s_labels.SLINKY_MANAGER
        wanted = self._topology.annotations
        for node in self._nodes:
            name = k8s_labels.name(node)
            live = mapped(mapped(node["metadata"]).get("annotations")).get(SLINKY)
            owners = k8s_labels.managers(node, ("metadata", "annotations", SLINKY))
            if name in wanted:
                if live is not None and live != wanted[name] and manager not in owners:
                    owner = ", ".join(owners) or "somebody else"
                    message = (
                        f"Node {name} has the annotation {SLINKY}: {live} from {owner}, so it is left: remove it, or "
                        "leave slinky out of schedulers."
                    )
                    self._plan.findings.append(finding("k8s_object_unmanaged", message, tray=name))
                elif live != wanted[name] or manager not in owners:
                    self._node(node, manager, "annotations", {SLINKY: wanted[name]}, False)
            elif manager in owners:
                self._node(node, manager, "annotations", {}, False)

    def _node(self, node: Any, manager: str, part: str, values: Mapping[str, str], force: bool) -> None:
        """Let `manager` own exactly these labels or annotations of a Node."""
        name = k8s_labels.name(node)
        # With the uid the server refuses to make a Node of that name should this one have gone. An empty map would be
        # owned as such, and the manager would not be forgotten.
        metadata = {"name": name, "uid": node["metadata"]["uid"], **({part: dict(values)} if values else {})}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
        live = mapped(node["metadata"].get(part))
        owned = k8s_labels.owned(node, part, manager)
        keys = {*values, *owned}
        before = {key: live[key] for key in keys if key in live}
        shared = {key for key in owned if set(k8s_labels.managers(node, ("metadata", part, key))) != {manager}}
        after = {**{key: live[key] for key in shared}, **values}
        if values:
            told = ", ".join(f"{key}: {value}" for key, value in values.items())
            why = f"own {told}, which is there" if before == after else told
        else:
            why = f"let go of {', '.join(sorted(owned))}" + (", which others keep" if shared else "")
        self._add(
            Step(UPDATE, f"Node {name}", why),
            {part: before},
            {part: after},
            partial(self._cluster.apply, NODE, body, manager, force=force, metadata=True),
            name,
        )

    def _topograph_add(self) -> None:
        if self._wishes.topograph != "add":
            return
        manager = k8s_labels.TOPOGRAPH_MANAGER
        added = k8s_labels.migrate("add", self._nodes, {}).add
        for node in self._nodes:
            new = added.get(k8s_labels.name(node))
            if new:
                # An apply holds all that its manager owns, so what an earlier run added is in it too.
                live = k8s_labels.labels(node)
                kept = {key: str(live[key]) for key in k8s_labels.owned(node, "labels", manager)}
                self._node(node, manager, "labels", {**kept, **new}, False)

    def _topograph_finish(self, live: Mapping[str, Mapping[Kind, dict[str, Any]]]) -> None:
        if self._wishes.topograph == "add":
            return
        named: dict[str, list[str]] = {}
        for kinds in live.values():
            for kind, rows in kinds.items():
                for name, row in rows.items():
                    levels = mapped(row.get("spec")).get("levels")
                    levels = levels if isinstance(levels, list) else []
                    keys = [str(mapped(level).get("nodeLabel") or mapped(level).get("key")) for level in levels]
                    named[f"{kind.name} {name} of {kind.group}"] = keys
        named["levels_above"] = self._topology.keys
        migration = k8s_labels.migrate(self._wishes.topograph, self._nodes, named)
        self._plan.findings += migration.findings
        for node in self._nodes:
            name = k8s_labels.name(node)
            old = migration.remove.get(name)
            if old:
                labels = k8s_labels.labels(node)
                patch = {"metadata": {"uid": node["metadata"]["uid"], "labels": dict.fromkeys(old)}}
                self._add(
                    Step(UPDATE, f"Node {name}", f"remove {', '.join(old)}"),
                    {"labels": {key: labels[key] for key in old}},
                    {"labels": {}},
                    partial(self._cluster.merge, NODE, name, patch, k8s_labels.TOPOGRAPH_MANAGER),
                    name,
                )

    def _add(self, step: Step, before: Any, after: Any, make: Callable[[], Any], node: str | None = None) -> None:
        self._plan.changes.append(Change(step, before, after, make, node))


def _labelled(node: Any, labels: Mapping[str, Any]) -> Any:
    """The node with these labels; of the rest nothing is copied, since there may be ten thousand."""
    return {**node, "metadata": {**node["metadata"], "labels": labels}}
