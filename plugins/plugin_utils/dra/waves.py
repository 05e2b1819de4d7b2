# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The DRA driver in waves: one Helm release for the cluster, whose plugin comes onto a node when its turn has come.

Two values of the chart hold it back. A nodeSelector keeps the plugin from nodes without a label of ours, and the update
strategy OnDelete leaves the pods of an older release alone until somebody deletes them. So a wave is: the label on its
nodes, the old pods away, and a wait for what the new ones publish. Everything but Gate is pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import checks, placing, preflight
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.preflight import Plan, Seen, Trays
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.values import merged
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import labels as k8s_labels
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.api import (
    NODE,
    Cluster,
    Kind,
    Work,
    run_concurrently,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import as_list, mapped, sentence

LABEL, VALUE = "rackscale.nvlink/dra-driver", "true"
MANAGER = "rackscale.nvlink-dra"
"""The field manager of that label, and of nothing else."""
HASH = "controller-revision-hash"
"""The label by which the DaemonSet controller says of which revision a pod is."""


def held_back(values: Mapping[str, Any]) -> dict[str, Any]:
    """The chart's values with the plugin held back; a person's own update strategy would let all go at once."""
    ours = {"kubeletPlugin": {"nodeSelector": {LABEL: VALUE}, "updateStrategy": {"type": "OnDelete"}}}
    return merged(values, ours)


def holds_back(daemon_set: Mapping[str, Any]) -> bool:
    """Whether the plugin that is installed is held back."""
    template = mapped(mapped(mapped(daemon_set.get("spec")).get("template")).get("spec"))
    return mapped(template.get("nodeSelector")).get(LABEL) == VALUE


def is_let_in(node: Mapping[str, Any]) -> bool:
    return placing.labels(node).get(LABEL) == VALUE


def all_let_in(seen: Seen) -> dict[str, Any]:
    """A snapshot as it will be after the last wave, for a preflight."""
    nodes = []
    for node in seen["nodes"]:
        metadata = mapped(node.get("metadata"))
        has = {**mapped(metadata.get("labels")), LABEL: VALUE}
        nodes.append({**node, "metadata": {**metadata, "labels": has}})
    return {**seen, "nodes": nodes}


def let_in(seen: Seen, trays: Trays) -> tuple[dict[str, Any], dict[str, preflight.Tray]]:
    """The snapshot and the trays without those that still wait for their wave."""
    nodes = [node for node in seen["nodes"] if is_let_in(node)]
    names = {preflight.name_of(node) for node in nodes}
    return {**seen, "nodes": nodes}, {name: tray for name, tray in trays.items() if tray.node in names}


def waiting(seen: Seen, trays: Trays) -> list[str]:
    """The nodes whose wave is still to come, in order."""
    expected = preflight.expected_nodes(seen, trays)
    return sorted(name for name, node in expected.items() if node is not None and not is_let_in(node))


def to_come(seen: Seen, trays: Trays, plan: Plan) -> list[Finding]:
    """What the waves have not come to, as a finding: nodes without the plugin, and pods of an older kind."""
    without = waiting(seen, trays)
    status = mapped(mapped(checks.plugin(seen, plan)).get("status"))
    old = _number(status.get("desiredNumberScheduled")) - _number(status.get("updatedNumberScheduled"))
    if not without and old <= 0:
        return []
    told = [f"is not yet on {summarize(sorted(without))}"] if without else []
    told += [f"has {old} pods of the old kind"] if old > 0 else []
    message = f"The driver's plugin {' and '.join(told)}; go on with playbook rollout and -e rollout_name=dra."
    return [finding("dra_waves_pending", message)]


def newest(daemon_set: Mapping[str, Any], revisions: Sequence[Mapping[str, Any]]) -> str | None:
    """The hash of the revision that new pods are of; None while Kubernetes has not looked at the DaemonSet."""
    metadata = mapped(daemon_set.get("metadata"))
    if mapped(daemon_set.get("status")).get("observedGeneration") != metadata.get("generation"):
        return None
    mine = [row for row in revisions if _owned_by(row, metadata.get("uid"))]
    last = max(mine, key=lambda row: _number(row.get("revision")), default={})
    return placing.labels(last).get(HASH)


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _owned_by(item: Mapping[str, Any], uid: Any) -> bool:
    owners = map(mapped, as_list(mapped(item.get("metadata")).get("ownerReferences")))
    return any(row.get("uid") == uid for row in owners)


def revision_of(pod: Mapping[str, Any]) -> Any:
    """The hash of a pod's revision."""
    return placing.labels(pod).get(HASH)


def on_nodes(daemon_set: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Node -> the pod of the plugin there that is not about to go."""
    uid = mapped(daemon_set.get("metadata")).get("uid")
    return {
        str(mapped(pod.get("spec")).get("nodeName")): pod
        for pod in pods
        if _owned_by(pod, uid) and mapped(pod.get("metadata")).get("deletionTimestamp") is None
    }


def judge(
    seen: Seen, trays: Trays, plan: Plan, pods: Mapping[str, Mapping[str, Any]], revision: str | None
) -> dict[str, str]:
    """Tray -> why its node is not done, in one sentence; without those that are."""
    names = {tray.node for tray in trays.values()}
    nodes = {preflight.name_of(node): node for node in seen["nodes"] if preflight.name_of(node) in names}
    slices = [item for item in seen["slices"] if mapped(item.get("spec")).get("nodeName") in names]
    part = {**seen, "nodes": list(nodes.values()), "slices": slices}
    found = {}
    for name, tray in trays.items():
        why = _why_not(part, name, tray, plan, nodes, pods.get(tray.node), revision)
        if why:
            found[name] = why
    return found


def _why_not(
    part: Seen,
    name: str,
    tray: preflight.Tray,
    plan: Plan,
    nodes: Mapping[str, Any],
    pod: Mapping[str, Any] | None,
    revision: str | None,
) -> str:
    if tray.node not in nodes:
        return f"It should be node {tray.node}, which the cluster lacks; join it, or correct its kubernetes_node."
    if pod is None:
        reason = placing.why_not(nodes[tray.node], mapped(plan.get("kubeletPlugin", {})))
        return f"No pod of the driver's plugin is on node {tray.node}{f': {reason}' if reason else ''}."
    what = f"The pod {preflight.name_of(pod)} on node {tray.node}"
    if revision is None or revision_of(pod) != revision:
        return f"{what} is not of the new kind; see that the controller manager runs."
    reason = _unready(pod)
    if reason:
        return f"{what} is not ready: {reason}; see kubectl describe and its log."
    return next((row["message"] for row in checks.published(part, {name: tray}, plan)), "")


def _unready(pod: Mapping[str, Any]) -> str:
    """Why a pod is not ready, in the kubelet's words; empty if it is."""
    status = mapped(pod.get("status"))
    conditions = {row.get("type"): row for row in map(mapped, as_list(status.get("conditions")))}
    if mapped(conditions.get("Ready")).get("status") == "True":
        return ""
    return next(_reasons(status, conditions), str(status.get("phase") or "it was not looked at"))


def _reasons(status: Mapping[str, Any], conditions: Mapping[Any, Mapping[str, Any]]) -> Iterator[str]:
    for key in ("initContainerStatuses", "containerStatuses"):
        for row in map(mapped, as_list(status.get(key))):
            held = mapped(mapped(row.get("state")).get("waiting"))
            if held:
                words = [sentence(held.get(word)) for word in ("reason", "message")]
                yield f"{sentence(row.get('name'))} {', '.join(word for word in words if word)}"
    for kind in ("PodScheduled", "Ready"):
        said = sentence(mapped(conditions.get(kind)).get("message"))
        if said and mapped(conditions.get(kind)).get("status") == "False":
            yield said


class Gate:
    """Writes what the rest of this module decides."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def pods(self, daemon_set: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
        """on_nodes() of what runs now."""
        namespace = str(mapped(daemon_set.get("metadata")).get("namespace"))
        return on_nodes(daemon_set, self._cluster.items(_pods(namespace), _selector(daemon_set)))

    def revision(self, daemon_set: Mapping[str, Any]) -> str | None:
        """newest() of what is recorded now."""
        namespace = str(mapped(daemon_set.get("metadata")).get("namespace"))
        kind = Kind("apps/v1", "ControllerRevision", f"namespaces/{namespace}/controllerrevisions")
        return newest(daemon_set, self._cluster.items(kind, _selector(daemon_set)))

    def open(self, nodes: Collection[Mapping[str, Any]], done: set[str]) -> None:
        """Label nodes; `done` gets the names of those that are, also where the first error of one ends it."""
        self._write(nodes, {LABEL: VALUE}, done)

    def close(self, nodes: Collection[Mapping[str, Any]]) -> None:
        """Let go of our label on nodes; one that somebody else owns too stays."""
        self._write(nodes, {}, set())

    def delete(self, pods: Collection[Mapping[str, Any]]) -> None:
        """Delete exactly these pods."""
        works = [
            Work(preflight.name_of(pod), partial(self._cluster.delete, _pods(str(pod["metadata"]["namespace"])), pod))
            for pod in pods
        ]
        _done, errors = run_concurrently(works)
        if errors:
            raise errors[0]

    def ours(self) -> list[Mapping[str, Any]]:
        """The nodes of which we own the label."""
        rows = self._cluster.items(NODE, f"{LABEL}={VALUE}", metadata=True)
        return [row for row in rows if LABEL in k8s_labels.owned(row, "labels", MANAGER)]

    def _write(self, nodes: Collection[Mapping[str, Any]], labels: Mapping[str, str], done: set[str]) -> None:
        works, names = [], []
        for node in nodes:
            name = preflight.name_of(node)
            # With the uid the server makes no node of that name should this one have gone.
            metadata = {"name": name, "uid": node["metadata"]["uid"], **({"labels": dict(labels)} if labels else {})}
            body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
            works.append(Work(name, partial(self._cluster.apply, NODE, body, MANAGER, force=True, metadata=True)))
            names.append(name)
        written, errors = run_concurrently(works)
        done.update(names[position] for position in written)
        if errors:
            raise errors[0]


def _pods(namespace: str) -> Kind:
    return Kind("v1", "Pod", f"namespaces/{namespace}/pods")


def _selector(daemon_set: Mapping[str, Any]) -> str:
    wanted = mapped(mapped(mapped(daemon_set.get("spec")).get("selector")).get("matchLabels"))
    return ",".join(f"{key}={value}" for key, value in wanted.items())
