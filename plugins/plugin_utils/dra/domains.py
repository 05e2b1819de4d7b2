# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ComputeDomains while they live, and what they leave behind: pure functions of a snapshot.

A ComputeDomain with numNodes 0 is Ready before it has a node, and a daemon that sees no clique is Ready without IMEX.
So what the workload's claims say is compared with who has joined, node by node.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import GROUP, placing
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.preflight import Plan, Seen, name_of
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import as_list, mapped

DOMAIN_DRIVER = "compute-domain.nvidia.com"
KEY = f"{GROUP}/computeDomain"
"""The label on nodes and on all that belongs to a domain, whose UID is its value; the name of the finalizer too."""
CLEANUP = datetime.timedelta(minutes=20)
"""Twice the period in which the driver takes away what is stale."""
READY = "Ready"


class Member(NamedTuple):
    """A daemon as it entered itself: its clique (empty where it sees none) and its status."""

    clique: str
    status: str


def domain_of(claim: Mapping[str, Any]) -> str | None:
    """The UID of the ComputeDomain that a workload's claim has its channel of."""
    spec = mapped(mapped(claim.get("spec")).get("devices"))
    for row in map(mapped, as_list(spec.get("config"))):
        parameters = mapped(mapped(row.get("opaque")).get("parameters"))
        if parameters.get("kind") == "ComputeDomainChannelConfig" and isinstance(parameters.get("domainID"), str):
            return str(parameters["domainID"])
    return None


class Served:
    """Who is to have a channel and who serves it, by the UID of each ComputeDomain; a snapshot is read once for all."""

    def __init__(self, seen: Seen) -> None:
        self._labelled = labelled(seen)
        self._channels: dict[str, dict[str, bool]] = {}
        self._daemons: dict[str, list[Mapping[str, Any]]] = {}
        for claim in seen["claims"]:
            uid, status = domain_of(claim), mapped(claim.get("status"))
            for row in map(mapped, as_list(mapped(mapped(status.get("allocation")).get("devices")).get("results"))):
                if uid is not None and row.get("driver") == DOMAIN_DRIVER:
                    reserved = bool(as_list(status.get("reservedFor")))
                    self._channels.setdefault(uid, {})[str(row.get("pool"))] = reserved
        for clique in seen["compute_domain_cliques"]:
            rows = map(mapped, as_list(clique.get("daemons")))
            self._daemons.setdefault(str(_uid_label(clique)), []).extend(rows)

    def channels(self, domain: Mapping[str, Any]) -> dict[str, bool]:
        """Node -> whether a pod has it reserved, for each node on which a channel of the domain is allocated."""
        return self._channels.get(uid_of(domain), {})

    def members(self, domain: Mapping[str, Any]) -> dict[str, Member]:
        """Node -> its daemon, by the domain's ComputeDomainCliques, else by its own status."""
        rows = [(row, row.get("name")) for row in map(mapped, as_list(mapped(domain.get("status")).get("nodes")))]
        rows += [(row, row.get("nodeName")) for row in self._daemons.get(uid_of(domain), [])]
        return {str(name): Member(str(row.get("cliqueID") or ""), str(row.get("status"))) for row, name in rows}

    def waiting(self, domain: Mapping[str, Any]) -> dict[str, str]:
        """Node -> why the domain's daemon does not serve there, for those with a channel on which it does not."""
        joined = self.members(domain)
        return {
            node: _why(self._labelled.get(node), uid_of(domain), joined.get(node))
            for node in self.channels(domain)
            if node not in joined or joined[node].status != READY
        }


def uid_of(item: Mapping[str, Any]) -> str:
    return str(mapped(item.get("metadata")).get("uid"))


def living(seen: Seen, plan: Plan) -> list[Finding]:
    """V5: what stands between the workloads of the domains and their channels."""
    if plan.host_managed:
        # There the driver runs no daemons, and says nothing of IMEX.
        return []
    here = [item for item in seen["compute_domains"] if "deletionTimestamp" not in mapped(item.get("metadata"))]
    served = Served(seen)
    return [row for domain in here for row in _judged(served, domain)]


def _judged(served: Served, domain: Mapping[str, Any]) -> Iterator[Finding]:
    name, joined = name_of(domain), served.members(domain)
    wanted, missing = served.channels(domain), served.waiting(domain)
    if missing:
        count = f"{len(wanted) - len(missing)} of {len(wanted)}"
        node, reason = min(missing.items())
        message = f"ComputeDomain {name} has {count} daemons ready: on node {node} {reason}; see kubectl describe"
        yield finding("dra_domain_unready", f"{message} and the log of the driver's pods there.", domain=name)
    blind = [node for node, member in joined.items() if not member.clique]
    if blind:
        message = f"The daemons of ComputeDomain {name} on {summarize(sorted(blind))} see no clique, so its workload has no IMEX"
        yield finding("dra_domain_without_imex", f"{message} there; repair the fabric of those trays.", domain=name)
    cliques = {member.clique for member in joined.values()} - {""}
    if len(cliques) > 1:
        message = f"ComputeDomain {name} is in {len(cliques)} cliques, and no NVLink joins them; bind its workload to"
        yield finding("dra_domain_spans", f"{message} one by affinity to nvidia.com/gpu.clique.", domain=name)


def _why(label: str | None, uid: str, member: Member | None) -> str:
    if member is not None:
        return f"the daemon is {member.status}"
    if label is None:
        return f"the plugin has not set the label {KEY}"
    if label != uid:
        return f"the label {KEY} is of another ComputeDomain ({label}), and a node has one at a time"
    return "no daemon has joined"


def labelled(seen: Seen) -> dict[str, str]:
    """Node -> the UID in its label."""
    rows = {str(mapped(node.get("metadata")).get("name")): placing.labels(node).get(KEY) for node in seen["nodes"]}
    return {name: str(uid) for name, uid in rows.items() if uid is not None}


def remains(seen: Seen) -> dict[str, list[str]]:
    """UID -> everything that bears it, in words; the ComputeDomain itself not among them."""
    found: dict[str, list[str]] = {}
    for node, uid in labelled(seen).items():
        found.setdefault(uid, []).append(f"the label of node {node}")
    for key, kind in (
        ("claim_templates", "ResourceClaimTemplate"),
        ("daemon_sets", "DaemonSet"),
        ("compute_domain_cliques", "ComputeDomainClique"),
    ):
        for item in seen[key]:
            label = _uid_label(item)
            if label is not None:
                found.setdefault(label, []).append(f"{kind} {name_of(item)}")
    for claim in seen["claims"]:
        domain = domain_of(claim)
        if domain is not None:
            found.setdefault(domain, []).append(f"ResourceClaim {name_of(claim)}")
    return found


def _uid_label(item: Mapping[str, Any]) -> str | None:
    label = placing.labels(item).get(KEY)
    return None if label is None else str(label)


def ending(seen: Seen) -> list[Finding]:
    """V6: domains that do not end, and what those that are gone have left.

    Nothing is said where the account may not list ComputeDomains: then everything would look left over.
    """
    if any("computedomains;" in sentence for sentence in seen["not_seen"]):
        return []
    found, left = [], remains(seen)
    for domain in seen["compute_domains"]:
        held = left.pop(uid_of(domain), [])
        since = _time(mapped(domain.get("metadata")).get("deletionTimestamp"))
        if since is not None and seen["read_at"] - since > CLEANUP:
            still = f" ({summarize(sorted(held))} still there)" if held else ""
            message = f"ComputeDomain {name_of(domain)} is being deleted since {since:%H:%M} UTC{still}; only the"
            more = "driver's controller takes its finalizer away, so see that it runs and that no pod uses its claims."
            found.append(finding("dra_domain_stuck", f"{message} {more}", domain=name_of(domain)))
    for uid, rows in sorted(left.items()):
        message = (
            f"Of ComputeDomain {uid}, which is gone, {summarize(sorted(rows))} is left and keeps others off; the driver"
        )
        found.append(
            finding("dra_domain_leftovers", f"{message} cleans up every 10 minutes, remove it if it stays longer.")
        )
    return found


def _time(text: object) -> datetime.datetime | None:
    try:
        return datetime.datetime.strptime(str(text), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.timezone.utc)
    except ValueError:
        return None
