# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of active and deleted ComputeDomains: pure functions of a snapshot.

A ComputeDomain with numNodes 0 is Ready before it has a node, and a daemon that finds no clique is Ready without IMEX.
So the claims of the workload are compared with the daemons that have joined, node by node. A daemon writes its own
status, so after a node is lost its entry and the domain stay Ready: the Node's condition decides.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import fold
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import GROUP, node_selection
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.preflight import name_of
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.snapshot import Snapshot
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, as_list, mapped

DOMAIN_DRIVER = "compute-domain.nvidia.com"
KEY = f"{GROUP}/computeDomain"
"""The label on nodes and on all objects of a domain, with the domain's UID as value; also the name of its finalizer."""
CLEANUP_TIME = datetime.timedelta(minutes=20)
"""Twice the interval of the driver's cleanup."""
READY = "Ready"
PROBE = "nvlink-probe"
"""The label app.kubernetes.io/name of the objects of templates/probe.yaml.j2."""


class Member(NamedTuple):
    """A daemon's own entry: its clique (empty where it finds none) and its status."""

    clique: str
    status: str


def domain_of(claim: Object) -> str | None:
    """The UID of the ComputeDomain whose channel a workload's claim requests."""
    spec = mapped(mapped(claim.get("spec")).get("devices"))
    for row in map(mapped, as_list(spec.get("config"))):
        parameters = mapped(mapped(row.get("opaque")).get("parameters"))
        if parameters.get("kind") == "ComputeDomainChannelConfig" and isinstance(parameters.get("domainID"), str):
            return str(parameters["domainID"])
    return None


def results(claim: Object) -> list[Object]:
    """The devices that are allocated to a claim."""
    allocation = mapped(mapped(claim.get("status")).get("allocation"))
    return [mapped(row) for row in as_list(mapped(allocation.get("devices")).get("results"))]


class Channels:
    """The allocated channels and the daemons of each ComputeDomain, by its UID; reads a snapshot once for all.

    registered: the nodes with a ResourceSlice of the driver's plugin.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._labelled = labelled(snapshot)
        self._lost = {name_of(node) for node in snapshot["nodes"] if is_lost(node)}
        specs = [mapped(item.get("spec")) for item in snapshot["slices"]]
        self.registered = {str(spec.get("nodeName")) for spec in specs if spec.get("driver") == DOMAIN_DRIVER}
        self._channels: dict[str, dict[str, bool]] = {}
        self._daemons: dict[str, list[Object]] = {}
        for claim in snapshot["claims"]:
            uid, reserved = domain_of(claim), bool(as_list(mapped(claim.get("status")).get("reservedFor")))
            for row in results(claim):
                if uid is not None and row.get("driver") == DOMAIN_DRIVER:
                    self._channels.setdefault(uid, {})[str(row.get("pool"))] = reserved
        for clique in snapshot["compute_domain_cliques"]:
            rows = map(mapped, as_list(clique.get("daemons")))
            self._daemons.setdefault(str(node_selection.labels(clique).get(KEY)), []).extend(rows)

    def allocated(self, domain: Object) -> dict[str, bool]:
        """Node -> whether a pod has reserved the channel, for each node on which one of the domain is allocated."""
        return self._channels.get(uid_of(domain), {})

    def members(self, domain: Object) -> dict[str, Member]:
        """Node -> its daemon, from the domain's ComputeDomainCliques, else its own status; Ready only if both agree."""
        rows = [(row, row.get("name")) for row in map(mapped, as_list(mapped(domain.get("status")).get("nodes")))]
        rows += [(row, row.get("nodeName")) for row in self._daemons.get(uid_of(domain), [])]
        found: dict[str, Member] = {}
        for row, name in rows:
            before = found.get(str(name), Member("", READY)).status
            status = str(row.get("status")) if before == READY else before
            found[str(name)] = Member(str(row.get("cliqueID") or ""), status)
        return found

    def pending(self, domain: Object) -> dict[str, str]:
        """Node -> the reason why the domain's daemon is not ready there, for nodes with a channel.

        The reason is the first step that is missing of those in which a node joins, or joins again after a reboot.
        """
        joined = self.members(domain)
        reasons = {node: self._why(node, uid_of(domain), joined.get(node)) for node in self.allocated(domain)}
        return {node: reason for node, reason in reasons.items() if reason is not None}

    def _why(self, node: str, uid: str, member: Member | None) -> str | None:
        label = self._labelled.get(node)
        if node in self._lost:
            return "the kubelet does not report Ready, so what the daemon there reported is outdated"
        if node not in self.registered:
            return "the plugin has published no ResourceSlice"
        if member is not None:
            return None if member.status == READY else f"the daemon is {member.status}"
        if label is None:
            return f"the plugin has not set the label {KEY}"
        if label != uid:
            return f"the label {KEY} names another ComputeDomain ({label}), and a node can have only one"
        return "no daemon has joined"


def is_new(item: Object, snapshot: Snapshot, minutes: int) -> bool:
    """Whether an object has changed less than so many minutes before the snapshot; none has within 0."""
    changed = _time(mapped(item.get("metadata")).get("changedAt"))
    return changed is not None and abs(snapshot["read_at"] - changed) < datetime.timedelta(minutes=minutes)


def uid_of(item: Object) -> str:
    return str(mapped(item.get("metadata")).get("uid"))


def check_active(snapshot: Snapshot) -> list[Finding]:
    """V5: reasons why workloads of the domains do not get their channels; not for host_managed, without daemons."""
    active = [item for item in snapshot["compute_domains"] if "deletionTimestamp" not in mapped(item.get("metadata"))]
    channels = Channels(snapshot)
    return [row for domain in active for row in _check(channels, domain)]


def _check(channels: Channels, domain: Object) -> Iterator[Finding]:
    name, joined = name_of(domain), channels.members(domain)
    allocated, missing = channels.allocated(domain), channels.pending(domain)
    if missing:
        ready = f"{len(allocated) - len(missing)} of {count(len(allocated), 'daemon')}"
        node, reason = min(missing.items())
        message = f"ComputeDomain {name} has {ready} ready: on node {node} {reason}; see kubectl describe"
        message = f"{message} and the log of the driver's pods there."
        yield finding("dra_plugin_unready", message, domain=name, nodes=sorted(missing))
    elif allocated and mapped(domain.get("status")).get("status") == "NotReady":
        nodes = f"with {len(joined)} of spec.numNodes {mapped(domain.get('spec')).get('numNodes', 0)}"
        message = f"ComputeDomain {name} is NotReady {nodes}, though the daemons of its workload are Ready; see kubectl"
        yield finding("dra_plugin_unready", f"{message} describe and the log of the driver's controller.", domain=name)
    without = sorted(node for node, member in joined.items() if not member.clique)
    if without:
        message = f"The daemons of ComputeDomain {name} find no clique on {summarize(without)}, so its workload has no"
        message = f"{message} IMEX there"
        yield finding("dra_clique_unknown", message, domain=name, nodes=without)
    cliques: dict[str, list[str]] = {}
    for node, member in sorted(joined.items()):
        cliques.setdefault(member.clique, []).append(node)
    parts = [fold(nodes) for clique, nodes in cliques.items() if clique]
    if len(parts) > 1:
        message = f"ComputeDomain {name} spans {len(parts)} cliques without NVLink between {summarize(parts)}"
        yield finding("dra_domain_spans", message, domain=name)


def is_lost(node: Object) -> bool:
    """Whether the kubelet of a node does not report Ready."""
    rows = map(mapped, as_list(mapped(node.get("status")).get("conditions")))
    return any(row.get("type") == READY and row.get("status") != "True" for row in rows)


def labelled(snapshot: Snapshot) -> dict[str, str]:
    """Node -> the UID in its label."""
    rows = {name_of(node): node_selection.labels(node).get(KEY) for node in snapshot["nodes"]}
    return {name: str(uid) for name, uid in rows.items() if uid is not None}


def probes(snapshot: Snapshot) -> list[Object]:
    """The DaemonSets and ComputeDomains of the role's probe, which removes them at its end unless it is killed."""
    rows = (*snapshot["daemon_sets"], *snapshot["compute_domains"])
    return [row for row in rows if node_selection.labels(row).get("app.kubernetes.io/name") == PROBE]


def leftovers(snapshot: Snapshot) -> dict[str, list[str]]:
    """UID -> the objects that carry it, as kind and name, without the ComputeDomain itself."""
    found: dict[str, list[str]] = {}
    for node, uid in labelled(snapshot).items():
        found.setdefault(uid, []).append(f"the label of node {node}")
    for items, kind in (
        (snapshot["claim_templates"], "ResourceClaimTemplate"),
        (snapshot["daemon_sets"], "DaemonSet"),
        (snapshot["compute_domain_cliques"], "ComputeDomainClique"),
    ):
        for item in items:
            label = node_selection.labels(item).get(KEY)
            if label is not None:
                found.setdefault(str(label), []).append(f"{kind} {name_of(item)}")
    for claim in snapshot["claims"]:
        domain = domain_of(claim)
        if domain is not None:
            found.setdefault(domain, []).append(f"ResourceClaim {name_of(claim)}")
    return found


def check_deleted(snapshot: Snapshot) -> list[Finding]:
    """V6: domains whose deletion does not finish, and leftovers of deleted ones.

    No findings where the account may not list ComputeDomains, since everything would appear to be a leftover.
    """
    if any("computedomains;" in sentence for sentence in snapshot["not_readable"]):
        return []
    found, remaining = [], leftovers(snapshot)
    for domain in snapshot["compute_domains"]:
        objects = remaining.pop(uid_of(domain), [])
        since = _time(mapped(domain.get("metadata")).get("deletionTimestamp"))
        if since is not None and snapshot["read_at"] - since > CLEANUP_TIME:
            still = f" (remaining: {summarize(sorted(objects))})" if objects else ""
            message = f"ComputeDomain {name_of(domain)} has been in deletion since {since:%H:%M} UTC{still}; only the"
            more = "driver's controller removes its finalizer, so check that it runs and that no pod uses its claims."
            found.append(finding("dra_domain_stuck", f"{message} {more}", domain=name_of(domain)))
    for uid, rows in sorted(remaining.items()):
        message = f"Leftovers of the deleted ComputeDomain {uid} block others: {summarize(sorted(rows))}; the driver"
        message = f"{message} cleans up every 10 minutes, so remove them if they stay longer."
        found.append(finding("dra_domain_leftovers", message))
    return found


def _time(text: object) -> datetime.datetime | None:
    try:
        return datetime.datetime.strptime(str(text), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.timezone.utc)
    except ValueError:
        return None
