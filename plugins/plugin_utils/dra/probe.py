# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A ComputeDomain for a trial in each clique, and whether its channel reached a pod on every node: pure functions.

A pod of a DaemonSet claims a channel and is ready when it sees channel0, so nobody need read its log. The negative
trial has one ComputeDomain on a node of each of two cliques: it must come up, and stay two cliques.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import GROUP, domains, placing
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.preflight import (
    Plan,
    Seen,
    Trays,
    expected_nodes,
    name_of,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import mapped

PREFIX = "nvlink-probe-"
ACROSS = f"{PREFIX}across"
"""The name of the negative trial's objects."""
LABEL = "app.kubernetes.io/name"
CLIQUE, HOSTNAME = "nvidia.com/gpu.clique", "kubernetes.io/hostname"
CHANNEL = "/dev/nvidia-caps-imex-channels/channel0"


def free_cliques(seen: Seen, trays: Trays) -> dict[str, list[str]]:
    """Clique -> the nodes that the driver is to run on and that no ComputeDomain holds; a node holds one at a time."""
    found: dict[str, list[str]] = {}
    for name, node in expected_nodes(seen, trays).items():
        has = placing.labels(node or {})
        if CLIQUE in has and domains.KEY not in has:
            found.setdefault(str(has[CLIQUE]), []).append(name)
    return found


def objects(seen: Seen, trays: Trays, namespace: str, image: str, across: bool = False) -> list[dict[str, Any]]:
    """What is applied for the trial: a ComputeDomain and a DaemonSet for each clique with a free node.

    across: one for a free node of each of the first two cliques instead; nothing where there are no two.
    """
    known = {str(mapped(node.get("metadata")).get("name")): placing.labels(node) for node in seen["nodes"]}
    made: list[dict[str, Any]] = []
    free = sorted(free_cliques(seen, trays).items())
    if across:
        hosts = [str(known[nodes[0]].get(HOSTNAME, nodes[0])) for _clique, nodes in free[:2]]
        return [_domain(ACROSS, namespace), _daemon_set(ACROSS, namespace, image, hosts)] if len(hosts) == 2 else []
    for clique, nodes in free:
        hosts = [str(known[node].get(HOSTNAME, node)) for node in nodes]
        made += [_domain(_name(clique), namespace), _daemon_set(_name(clique), namespace, image, hosts)]
    return made


def _name(clique: str) -> str:
    return PREFIX + clique.replace(".", "-")


def _domain(name: str, namespace: str) -> dict[str, Any]:
    # An older definition of the kind demands numNodes.
    channel = {"resourceClaimTemplate": {"name": f"{name}-channel"}, "allocationMode": "Single"}
    return {
        "apiVersion": f"{GROUP}/v1beta1",
        "kind": "ComputeDomain",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"numNodes": 0, "channel": channel},
    }


def _daemon_set(name: str, namespace: str, image: str, hosts: Sequence[str]) -> dict[str, Any]:
    labels = {LABEL: name}
    term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": list(hosts)}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    container = {
        "name": "main",
        "image": image,
        "command": ["sleep", "86400"],
        "readinessProbe": {"exec": {"command": ["test", "-e", CHANNEL]}, "periodSeconds": 1},
        "resources": {"claims": [{"name": "channel"}]},
    }
    pod = {
        "affinity": {"nodeAffinity": required},
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "resourceClaims": [{"name": "channel", "resourceClaimTemplateName": f"{name}-channel"}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    }


def judge(seen: Seen, made: Sequence[Mapping[str, Any]], plan: Plan) -> list[Finding]:
    """V5 of the trial's objects: the first thing that does not yet work, for each clique."""
    served, names = domains.Served(seen), {name_of(row) for row in made}
    sets = {name_of(item): item for item in seen["daemon_sets"]}
    live = {name_of(item): item for item in seen["compute_domains"]}
    found = []
    for name in sorted(names):
        trouble = _trouble(served, live.get(name), mapped(sets.get(name)), plan)
        if trouble:
            message = f"The trial {name} does not get through: {trouble}."
            found.append(finding("dra_probe_failed", message, domain=name))
        elif name.endswith(f"/{ACROSS}") and not plan.host_managed:
            found += _crossed(served, live[name], seen)
    return found


def _crossed(served: domains.Served, domain: Mapping[str, Any], seen: Seen) -> list[Finding]:
    """What is wrong where a domain over two cliques is not two cliques, each that of its node's label."""
    joined = served.members(domain)
    labels = {name_of(node): str(placing.labels(node).get(CLIQUE)) for node in seen["nodes"]}
    wrong = {node: member.clique for node, member in joined.items() if member.clique != labels.get(node)}
    if wrong:
        node, clique = min(wrong.items())
        message = (
            f"The trial across two cliques has the daemon of node {node} in {clique or 'no clique'}, and the node's"
            f" label {CLIQUE} says {labels.get(node)}; restart the label's writer there, or discover again."
        )
        return [finding("dra_probe_cliques_merged", message, domain=name_of(domain))]
    if len({member.clique for member in joined.values()}) < len(joined):
        message = (
            f"The nodes {summarize(sorted(joined))} of the trial across two cliques have joined one clique, so they would be"
            f" taken to have NVLink; compare the label {CLIQUE} with the GPUs of both."
        )
        return [finding("dra_probe_cliques_merged", message, domain=name_of(domain))]
    return []


def _trouble(
    served: domains.Served, domain: Mapping[str, Any] | None, pods: Mapping[str, Any], plan: Plan
) -> str | None:
    if domain is None:
        return "its ComputeDomain is not there; see whether somebody deleted it"
    status = mapped(pods.get("status"))
    wanted = status.get("desiredNumberScheduled")
    if not wanted:
        return "its DaemonSet wants no pod; see that the controller manager runs"
    held = served.channels(domain)
    if len(held) < wanted:
        return f"{len(held)} of {wanted} claims are allocated; see kubectl describe resourceclaim in its namespace"
    idle = [node for node, reserved in held.items() if not reserved]
    if idle:
        return f"the claims on {summarize(sorted(idle))} are allocated and not reserved; see kubectl describe pod there"
    missing = {} if plan.host_managed else served.waiting(domain)
    if missing:
        node, reason = next(iter(sorted(missing.items())))
        return f"on node {node} {reason}; see the log of the driver's pods there"
    ready = status.get("numberReady", 0)
    if ready < wanted:
        return f"{CHANNEL} is seen in {ready} of {wanted} pods; see kubectl describe pod of the others"
    return None


def left(seen: Seen, uids: Sequence[str]) -> list[Finding]:
    """V6 of the trial: what its ComputeDomains, by their UIDs, have left."""
    there = [f"ComputeDomain {name_of(item)}" for item in seen["compute_domains"] if domains.uid_of(item) in uids]
    rows = [*there, *(row for uid, rows in domains.remains(seen).items() if uid in uids for row in rows)]
    if not rows:
        return []
    message = (
        f"The trial has left {summarize(sorted(rows))}; see that the driver's controller runs, which takes it away."
    )
    return [finding("dra_probe_leftovers", message)]
