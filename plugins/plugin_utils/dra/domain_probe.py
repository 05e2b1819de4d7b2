# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The probe: a ComputeDomain in each clique whose channel must reach a pod on every node. Pure functions.

Each pod of a DaemonSet claims a channel and is ready once channel0 exists in it, so no log need be read. Names are the
same each time, so a probe continues, and removes, what one that was killed has left.
"""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import GROUP, domains, node_selection, stranded
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.preflight import (
    Plan,
    Snapshot,
    Trays,
    expected_nodes,
    name_of,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import Object, mapped

PREFIX = "nvlink-probe-"
LABEL = "app.kubernetes.io/name"
CLIQUE, HOSTNAME = "nvidia.com/gpu.clique", "kubernetes.io/hostname"
CHANNEL = "/dev/nvidia-caps-imex-channels/channel0"


def free_cliques(snapshot: Snapshot, trays: Trays, namespace: str) -> dict[str, list[str]]:
    """Clique -> the expected nodes without another ComputeDomain than the probe's; a node can have only one."""
    taken = stranded.owners(snapshot)
    found: dict[str, list[str]] = {}
    for name, node in expected_nodes(snapshot, trays).items():
        has = node_selection.labels(node or {})
        if CLIQUE in has and set(taken.get(name, ())) <= {f"{namespace}/{_name(str(has[CLIQUE]))}"}:
            found.setdefault(str(has[CLIQUE]), []).append(name)
    return found


def objects(snapshot: Snapshot, trays: Trays, namespace: str, image: str) -> list[Object]:
    """The objects of the probe: a ComputeDomain and a DaemonSet for each clique with a free node."""
    known = {str(mapped(node.get("metadata")).get("name")): node_selection.labels(node) for node in snapshot["nodes"]}
    made: list[Object] = []
    for clique, nodes in sorted(free_cliques(snapshot, trays, namespace).items()):
        hosts = [str(known[node].get(HOSTNAME, node)) for node in nodes]
        made += [_domain(_name(clique), namespace), _daemon_set(_name(clique), namespace, image, hosts)]
    return made


def _name(clique: str) -> str:
    return PREFIX + clique.replace(".", "-")


def _domain(name: str, namespace: str) -> Object:
    # An older CRD requires numNodes.
    channel = {"resourceClaimTemplate": {"name": f"{name}-channel"}, "allocationMode": "Single"}
    return {
        "apiVersion": f"{GROUP}/v1beta1",
        "kind": "ComputeDomain",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"numNodes": 0, "channel": channel},
    }


def _daemon_set(name: str, namespace: str, image: str, hosts: Sequence[str]) -> Object:
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


def evaluate(snapshot: Snapshot, made: Sequence[Object], plan: Plan) -> list[Finding]:
    """V5 of the probe: for each clique the first step that has not succeeded."""
    channels, names = domains.Channels(snapshot), {name_of(row) for row in made}
    sets = {name_of(item): item for item in snapshot["daemon_sets"]}
    live = {name_of(item): item for item in snapshot["compute_domains"]}
    found = []
    for name in sorted(names):
        problem = _problem(channels, live.get(name), mapped(sets.get(name)), plan)
        if problem:
            message = f"The probe {name} fails: {problem}."
            found.append(finding("dra_plugin_unready", message, domain=name))
    return found


def _problem(channels: domains.Channels, domain: Object | None, pods: Object, plan: Plan) -> str | None:
    if domain is None:
        return "its ComputeDomain does not exist; find out who deleted it"
    status = mapped(pods.get("status"))
    desired = status.get("desiredNumberScheduled")
    if not desired:
        return "its DaemonSet is scheduled on no node; check that the controller manager runs"
    allocated = channels.allocated(domain)
    if len(allocated) < desired:
        return f"{len(allocated)} of {count(desired, 'claim')} allocated; see kubectl describe resourceclaim"
    idle = [node for node, reserved in allocated.items() if not reserved]
    if idle:
        return f"the claims on {summarize(sorted(idle))} are allocated and not reserved; see kubectl describe pod there"
    missing = {} if plan.host_managed else channels.pending(domain)
    if missing:
        node, reason = next(iter(sorted(missing.items())))
        return f"on node {node} {reason}; see the log of the driver's pods there"
    ready = status.get("numberReady", 0)
    if ready < desired:
        return f"{CHANNEL} exists in {ready} of {count(desired, 'pod')}; see kubectl describe pod of the others"
    return None


def find_leftovers(snapshot: Snapshot, uids: Sequence[str]) -> list[Finding]:
    """V6 of the probe: leftovers of its ComputeDomains, given by their UIDs."""
    existing = [
        f"ComputeDomain {name_of(item)}" for item in snapshot["compute_domains"] if domains.uid_of(item) in uids
    ]
    rows = [*existing, *(row for uid, rows in domains.leftovers(snapshot).items() if uid in uids for row in rows)]
    if not rows:
        return []
    message = f"The probe left {summarize(sorted(rows))}; check that the driver's controller runs, which removes it."
    return [finding("dra_domain_stuck", message)]
