# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The DRA driver in waves: one Helm release for the cluster, whose plugin is enabled on nodes wave by wave.

Two values of the chart restrict it. A nodeSelector keeps the plugin off nodes without the collection's label, and the
update strategy OnDelete keeps the pods of an older release until they are deleted. A wave labels its nodes, deletes the
old pods, and waits for what the new ones publish. Where the driver begins to allocate GPUs, a wave first cordons its
nodes, labels them so that the device plugin leaves, and waits until no pod has a GPU of it. Everything except
PluginRollout is pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import (
    checks,
    device_plugins,
    node_selection,
    preflight,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.preflight import Plan, Snapshot, Trays
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.values import Values, merged
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import labels as k8s_labels
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.api import (
    NODE,
    Cluster,
    Kind,
    run_concurrently,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import Object, as_list, mapped, sentence

LABEL, VALUE = "rackscale.nvlink/dra-driver", "true"
MANAGER = "rackscale.nvlink-dra"
"""The field manager of that label, of the label that keeps the device plugin off, and of the cordon of a wave."""
GRACE = 300.0
"""Seconds for which the kubelet keeps the GPUs of a device plugin that has stopped in the node's capacity."""
HASH = "controller-revision-hash"
"""The label in which the DaemonSet controller records the revision of a pod."""


def restricted(values: Values) -> Values:
    """The chart's values with the plugin restricted; they override a site's own update strategy."""
    restriction = {"kubeletPlugin": {"nodeSelector": {LABEL: VALUE}, "updateStrategy": {"type": "OnDelete"}}}
    return merged(values, restriction)


def is_restricted(daemon_set: Object) -> bool:
    """Whether the installed plugin is restricted."""
    template = mapped(mapped(mapped(daemon_set.get("spec")).get("template")).get("spec"))
    return mapped(template.get("nodeSelector")).get(LABEL) == VALUE


def is_enabled(node: Object) -> bool:
    return node_selection.labels(node).get(LABEL) == VALUE


def is_without_device_plugin(node: Object) -> bool:
    return node_selection.labels(node).get(device_plugins.DEPLOY) == "false"


def is_left_cordoned(node: Object) -> bool:
    """Whether a wave may have cordoned a node; who has is in its managed fields, by which a cordon is released."""
    return is_without_device_plugin(node) and mapped(node.get("spec")).get("unschedulable") is True


def with_device_plugin(snapshot: Snapshot, names: Collection[str], plan: Plan) -> set[str]:
    """Those of the nodes whose GPUs a device plugin allocates and the driver of this plan would."""
    if not device_plugins.by_dra(plan):
        return set()
    nodes = {name: node for node in snapshot["nodes"] if (name := preflight.name_of(node)) in names}
    return device_plugins.served(snapshot, nodes)


def why_not_removed(snapshot: Snapshot, names: Collection[str], pods: Mapping[str, Sequence[Object]]) -> dict[str, str]:
    """Node -> the reason, as a sentence, why the driver must not allocate its GPUs yet; pods: those on each node."""
    nodes = {name: node for node in snapshot["nodes"] if (name := preflight.name_of(node)) in names}
    found = {}
    for owner, on in device_plugins.owners(snapshot, nodes).items():
        for name in on:
            found[name] = _still_there(owner, name)
    for name in names:
        using = sorted(preflight.name_of(pod) for pod in pods.get(name, ()) if device_plugins.has_gpus(pod))
        if using:
            found[name] = f"Pods on node {name} have GPUs of the device plugin ({summarize(using)}); delete them first."
    return found


def _still_there(owner: str, node: str) -> str:
    if not owner:
        return f"The capacity of node {node} still has {device_plugins.GPU}; check that no device plugin runs there."
    exclude = f"exclude nodes with the label {device_plugins.DEPLOY}=false by its affinity"
    return f"The device plugin of the {owner} still runs on node {node}; {exclude}."


def node_fields(node: Object, enabled: bool, without_device_plugin: bool, cordoned: bool) -> Object:
    """The fields of a node that this collection owns, for a server-side apply; a field that is left out is released."""
    labels = {LABEL: VALUE} if enabled else {}
    labels |= {device_plugins.DEPLOY: "false"} if without_device_plugin else {}
    # With the uid the server does not create a node if this one was deleted meanwhile.
    metadata = {
        "name": preflight.name_of(node),
        "uid": node["metadata"]["uid"],
        **({"labels": labels} if labels else {}),
    }
    spec = {"spec": {"unschedulable": True}} if cordoned else {}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, **spec}


def with_all_enabled(snapshot: Snapshot) -> Snapshot:
    """The snapshot as it will be after the last wave, for a preflight."""
    nodes: list[Object] = []
    for node in snapshot["nodes"]:
        metadata = mapped(node.get("metadata"))
        has = {**mapped(metadata.get("labels")), LABEL: VALUE}
        nodes.append({**node, "metadata": {**metadata, "labels": has}})
    return {**snapshot, "nodes": nodes}


def enabled_only(snapshot: Snapshot, trays: Trays) -> tuple[Snapshot, dict[str, preflight.Tray]]:
    """The snapshot and the trays without those whose wave is pending."""
    nodes = [node for node in snapshot["nodes"] if is_enabled(node)]
    names = {preflight.name_of(node) for node in nodes}
    return {**snapshot, "nodes": nodes}, {name: tray for name, tray in trays.items() if tray.node in names}


def pending(snapshot: Snapshot, trays: Trays) -> list[str]:
    """The nodes whose wave is pending, sorted."""
    expected = preflight.expected_nodes(snapshot, trays)
    return sorted(name for name, node in expected.items() if node is not None and not is_enabled(node))


def report_pending(snapshot: Snapshot, trays: Trays, plan: Plan) -> list[Finding]:
    """A finding on pending waves: nodes without the plugin, and pods of an older revision."""
    without = pending(snapshot, trays)
    status = mapped(mapped(checks.plugin(snapshot, plan)).get("status"))
    old = _number(status.get("desiredNumberScheduled")) - _number(status.get("updatedNumberScheduled"))
    if not without and old <= 0:
        return []
    parts = [f"is not yet on {summarize(sorted(without))}"] if without else []
    parts += [f"has {count(old, 'pod')} of the old revision"] if old > 0 else []
    message = f"The driver's plugin {' and '.join(parts)}; continue with playbook rollout and -e rollout_name=dra."
    return [finding("dra_waves_pending", message)]


def newest_revision(daemon_set: Object, revisions: Sequence[Object]) -> str | None:
    """The hash of the newest revision; None while the controller has not observed the DaemonSet."""
    metadata = mapped(daemon_set.get("metadata"))
    if mapped(daemon_set.get("status")).get("observedGeneration") != metadata.get("generation"):
        return None
    mine = [row for row in revisions if _owned_by(row, metadata.get("uid"))]
    last = max(mine, key=lambda row: _number(row.get("revision")), default={})
    return node_selection.labels(last).get(HASH)


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _owned_by(item: Object, uid: Any) -> bool:
    owners = map(mapped, as_list(mapped(item.get("metadata")).get("ownerReferences")))
    return any(row.get("uid") == uid for row in owners)


def revision_of(pod: Object) -> Any:
    """The hash of a pod's revision."""
    return node_selection.labels(pod).get(HASH)


def pods_by_node(daemon_set: Object, pods: Sequence[Object]) -> dict[str, Object]:
    """Node -> the pod of the plugin there that is not being deleted."""
    uid = mapped(daemon_set.get("metadata")).get("uid")
    return {
        str(mapped(pod.get("spec")).get("nodeName")): pod
        for pod in pods
        if _owned_by(pod, uid) and mapped(pod.get("metadata")).get("deletionTimestamp") is None
    }


def evaluate(
    snapshot: Snapshot, trays: Trays, plan: Plan, pods: Mapping[str, Object], revision: str | None
) -> dict[str, str]:
    """Tray -> the reason why its node is not done, as a sentence; without trays that are done."""
    names = {tray.node for tray in trays.values()}
    nodes = {preflight.name_of(node): node for node in snapshot["nodes"] if preflight.name_of(node) in names}
    slices = [item for item in snapshot["slices"] if mapped(item.get("spec")).get("nodeName") in names]
    selected: Snapshot = {**snapshot, "nodes": list(nodes.values()), "slices": slices}
    found = {}
    for name, tray in trays.items():
        why = _reason(selected, name, tray, plan, nodes, pods.get(tray.node), revision)
        if why:
            found[name] = why
    return found


def _reason(
    selected: Snapshot,
    name: str,
    tray: preflight.Tray,
    plan: Plan,
    nodes: Object,
    pod: Object | None,
    revision: str | None,
) -> str:
    if tray.node not in nodes:
        return f"The cluster has no node {tray.node}; join it, or correct the kubernetes_node of the tray."
    if pod is None:
        reason = node_selection.why_excluded(nodes[tray.node], mapped(plan.get("kubeletPlugin", {})))
        return f"No pod of the driver's plugin is on node {tray.node}{f': {reason}' if reason else ''}."
    what = f"The pod {preflight.name_of(pod)} on node {tray.node}"
    if revision is None or revision_of(pod) != revision:
        return f"{what} is of an old revision; check that the controller manager runs."
    reason = _unready(pod)
    if reason:
        return f"{what} is not ready: {reason}; see kubectl describe and its log."
    return next((row["message"] for row in checks.published(selected, {name: tray}, plan)), "")


def _unready(pod: Object) -> str:
    """The kubelet's reason why a pod is not ready; empty if it is."""
    status = mapped(pod.get("status"))
    conditions = {row.get("type"): row for row in map(mapped, as_list(status.get("conditions")))}
    if mapped(conditions.get("Ready")).get("status") == "True":
        return ""
    return next(_reasons(status, conditions), str(status.get("phase") or "the kubelet has not reported it"))


def _reasons(status: Object, conditions: Mapping[Any, Object]) -> Iterator[str]:
    for key in ("initContainerStatuses", "containerStatuses"):
        for row in map(mapped, as_list(status.get(key))):
            state = mapped(mapped(row.get("state")).get("waiting"))
            if state:
                texts = [sentence(state.get(key)) for key in ("reason", "message")]
                yield f"{sentence(row.get('name'))} {', '.join(text for text in texts if text)}"
    for kind in ("PodScheduled", "Ready"):
        message = sentence(mapped(conditions.get(kind)).get("message"))
        if message and mapped(conditions.get(kind)).get("status") == "False":
            yield message


class PluginRollout:
    """Labels nodes and deletes pods."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def pods(self, daemon_set: Object) -> dict[str, Object]:
        """pods_by_node() of the pods that run now."""
        namespace = str(mapped(daemon_set.get("metadata")).get("namespace"))
        return pods_by_node(daemon_set, self._cluster.items(_pods(namespace), _selector(daemon_set)))

    def revision(self, daemon_set: Object) -> str | None:
        """newest_revision() of the current ControllerRevisions."""
        namespace = str(mapped(daemon_set.get("metadata")).get("namespace"))
        kind = Kind("apps/v1", "ControllerRevision", f"namespaces/{namespace}/controllerrevisions")
        return newest_revision(daemon_set, self._cluster.items(kind, _selector(daemon_set)))

    def pods_of(self, names: Collection[str]) -> dict[str, list[Object]]:
        """The pods on each of these nodes."""
        every = Kind("v1", "Pod", "pods")
        return {name: self._cluster.items(every, fields=f"spec.nodeName={name}") for name in names}

    def reserve(self, nodes: Collection[Object]) -> None:
        """Cordon nodes and label them so that the device plugin leaves."""
        self._write([node_fields(node, is_enabled(node), True, True) for node in nodes], set())

    def restore(self, nodes: Collection[Object]) -> None:
        """Undo reserve()."""
        self._write([node_fields(node, is_enabled(node), False, False) for node in nodes], set())

    def enable(self, nodes: Collection[Object], done: set[str], reserved: Collection[str] = ()) -> None:
        """Label nodes; adds the names of the labelled ones to `done`, also when an error ends the call.

        reserved: the names of those that reserve() has cordoned, which stay so. The device plugin stays off those that
        it has left.
        """
        rows = [(node, preflight.name_of(node) in reserved) for node in nodes]
        self._write(
            [node_fields(node, True, kept or is_without_device_plugin(node), kept) for node, kept in rows], done
        )

    def uncordon(self, nodes: Collection[Object]) -> None:
        """Release the cordon of reserve(); that of an administrator stays."""
        self._write([node_fields(node, True, True, False) for node in nodes], set())

    def disable(self, nodes: Collection[Object]) -> None:
        """Release all fields of nodes; a label stays where another manager owns it too."""
        self._write([node_fields(node, False, False, False) for node in nodes], set())

    def delete_pods(self, pods: Collection[Object]) -> None:
        """Delete exactly these pods, by their UIDs."""

        def delete(pod: Object) -> None:
            self._cluster.delete(_pods(str(pod["metadata"]["namespace"])), pod)

        _done, errors = run_concurrently(([pod] for pod in pods), delete)
        if errors:
            raise errors[0]

    def labelled_nodes(self) -> list[Object]:
        """The nodes whose label this collection owns."""
        rows = self._cluster.items(NODE, f"{LABEL}={VALUE}", metadata=True)
        return [row for row in rows if LABEL in k8s_labels.owned(row, "labels", MANAGER)]

    def _write(self, bodies: Sequence[Object], done: set[str]) -> None:
        write = partial(self._cluster.apply, NODE, manager=MANAGER, force=True, metadata=True)
        written, errors = run_concurrently(([body] for body in bodies), write)
        done.update(str(body["metadata"]["name"]) for body in written)
        if errors:
            raise errors[0]


def _pods(namespace: str) -> Kind:
    return Kind("v1", "Pod", f"namespaces/{namespace}/pods")


def _selector(daemon_set: Object) -> str:
    labels = mapped(mapped(mapped(daemon_set.get("spec")).get("selector")).get("matchLabels"))
    return ",".join(f"{key}={value}" for key, value in labels.items())
