# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs that no new ComputeDomain can use: pure functions of a snapshot.

The driver's plugin labels a node with one ComputeDomain, refuses a second one there, and publishes one channel per
node. So a ComputeDomain takes whole nodes, and the GPUs that its pod leaves free on a node are stranded until it ends.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import device_plugins, domains, node_selection
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.preflight import Trays, expected_nodes, name_of
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.snapshot import Snapshot
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.cliques import CLIQUE, HOSTNAME
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, mapped

_NEEDED = ("pods", "resourceclaims", "computedomains", "computedomaincliques")
"""The lists without which the free GPUs of a node are unknown."""


class CliqueUse(NamedTuple):
    """The nodes of a clique and its ComputeDomains.

    free_nodes: the nodes that a new ComputeDomain can use: with a free GPU, Ready and not cordoned.
    stranded_gpus: free GPUs on the nodes of ComputeDomains, None where they could not be read. blocked_by:
    ComputeDomain -> its nodes of this clique, both sorted.
    """

    nodes: int
    free_nodes: int
    stranded_gpus: int | None
    blocked_by: dict[str, list[str]]


def unreadable(snapshot: Snapshot) -> list[str]:
    """The missing rights, as sentences without a full stop, for which the numbers are unknown."""
    return [row for row in snapshot["not_readable"] if any(f" {name};" in row for name in _NEEDED)]


def cliques(snapshot: Snapshot, members: Mapping[str, Mapping[str, int]]) -> dict[str, CliqueUse]:
    """The use of each clique by ComputeDomains; members: clique -> node -> its GPUs."""
    taken, used, is_known = owners(snapshot), allocated(snapshot), not unreadable(snapshot)
    closed = {name_of(node) for node in snapshot["nodes"] if _is_cordoned(node) or domains.is_lost(node)}
    found = {}
    for clique, gpus in members.items():
        blocked_by: dict[str, list[str]] = defaultdict(list)
        for node in sorted(gpus):
            for name in taken.get(node, ()):
                blocked_by[name].append(node)
        stranded = sum(max(gpus[node] - used[node], 0) for node in gpus if node in taken) if is_known else None
        free = [node for node in gpus.keys() - taken.keys() - closed if not gpus[node] or gpus[node] > used[node]]
        found[clique] = CliqueUse(len(gpus), len(free), stranded, dict(sorted(blocked_by.items())))
    return found


def free_nodes(snapshot: Snapshot, trays: Trays) -> dict[str, list[str]]:
    """Clique -> the host name labels of its expected nodes without a ComputeDomain; a node can have only one."""
    taken = owners(snapshot)
    found: dict[str, list[str]] = defaultdict(list)
    for name, node in sorted(expected_nodes(snapshot, trays).items()):
        has = node_selection.labels(node or {})
        if CLIQUE in has and name not in taken:
            found[str(has[CLIQUE])].append(str(has.get(HOSTNAME, name)))
    return dict(sorted(found.items()))


def beside(snapshot: Snapshot, trays: Trays) -> dict[str, list[str]]:
    """Clique with free nodes -> the ComputeDomains on its other nodes."""
    taken, free = owners(snapshot), free_nodes(snapshot, trays)
    found: dict[str, set[str]] = defaultdict(set)
    for name, node in expected_nodes(snapshot, trays).items():
        if (clique := str(node_selection.labels(node or {}).get(CLIQUE))) in free:
            found[clique].update(taken.get(name, ()))
    return {clique: sorted(names) for clique, names in sorted(found.items()) if names}


def _is_cordoned(node: Object) -> bool:
    return mapped(node.get("spec")).get("unschedulable") is True


def owners(snapshot: Snapshot) -> dict[str, list[str]]:
    """Node -> the ComputeDomains that have it: by its label, a channel that is allocated there, or a daemon."""
    names = {domains.uid_of(item): name_of(item) for item in snapshot["compute_domains"]}
    found: dict[str, set[str]] = defaultdict(set)
    for node, uid in domains.labelled(snapshot).items():
        found[node].add(names.get(uid, f"deleted ComputeDomain {uid}"))
    channels = domains.Channels(snapshot)
    for item in snapshot["compute_domains"]:
        for node in (*channels.allocated(item), *channels.members(item)):
            found[node].add(name_of(item))
    return {node: sorted(rows) for node, rows in found.items()}


def allocated(snapshot: Snapshot) -> Counter[str]:
    """Node -> its GPUs in use, by claims of the DRA driver and by the requests of pods to a device plugin."""
    devices = {
        (str(row.get("pool")), str(row.get("device")))
        for claim in snapshot["claims"]
        for row in domains.results(claim)
        # Administrative access does not keep others from a device.
        if row.get("driver") == device_plugins.GPU_DRIVER and row.get("adminAccess") is not True
    }
    used = Counter(node for node, _device in devices)
    for pod in snapshot["pods"]:
        # With DRAExtendedResource the requests of a pod are a claim, which is counted above.
        if not mapped(pod.get("status")).get("extendedResourceClaimStatus"):
            used[str(mapped(pod.get("spec")).get("nodeName"))] += device_plugins.requested(pod)
    return used


def sentences(found: Mapping[str, CliqueUse]) -> list[str]:
    """A sentence for each clique with stranded GPUs, and for each whose free GPUs are unknown."""
    rows = []
    for clique, use in found.items():
        if use.blocked_by and use.stranded_gpus != 0:
            names = summarize([f"{name} ({summarize(nodes)})" for name, nodes in use.blocked_by.items()])
            gpus = "an unknown number of GPUs is" if use.stranded_gpus is None else _are(use.stranded_gpus)
            free = f"{use.free_nodes} of {count(use.nodes, 'node')} can take a new ComputeDomain"
            rows.append(f"Clique {clique}: {gpus} stranded by {names}; {free}.")
    return rows


def _are(number: int) -> str:
    return f"{count(number, 'GPU')} {'is' if number == 1 else 'are'}"
