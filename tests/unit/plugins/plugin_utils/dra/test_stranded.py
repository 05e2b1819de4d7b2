# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs that no new ComputeDomain can use, because another one has their node."""

from __future__ import annotations

from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import stranded

from . import dra_cluster as world

MEMBERS = {"a": {"r01t01": 4, "r01t02": 4}, "b": {"r02t01": 4}}


def cluster(**more: Any) -> dict[str, Any]:
    """Two cliques; more: node -> the UID in its label."""
    names = [name for gpus in MEMBERS.values() for name in gpus]
    nodes = [world.node(name, labels={world.KEY: more[name]} if name in more else {}) for name in names]
    return {**world.empty(), "nodes": nodes, "pods": [], "compute_domains": [world.domain("train")]}


def pod(node: str, gpus: int, **status: Any) -> dict[str, Any]:
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}}
    return {
        "metadata": {"name": f"pod-{node}", "namespace": "jobs"},
        "spec": {"nodeName": node, "containers": [{"resources": limits}]},
        "status": {"phase": "Running", **status},
    }


def claim(node: str, *devices: str, **more: Any) -> dict[str, Any]:
    rows = [{"driver": "gpu.nvidia.com", "pool": node, "device": device, **more} for device in devices]
    return {"metadata": {"name": f"gpus-{node}"}, "status": {"allocation": {"devices": {"results": rows}}}}


def test_the_gpus_that_a_domain_leaves_free_on_its_node_are_stranded() -> None:
    given = cluster(r01t01="uid-train")
    given["pods"] = [pod("r01t01", 1), pod("r01t02", 3)]
    found = stranded.cliques(given, MEMBERS)
    assert found["a"] == stranded.CliqueUse(2, 1, 3, {"jobs/train": ["r01t01"]})
    assert found["b"] == stranded.CliqueUse(1, 1, 0, {})
    assert stranded.sentences(found) == [
        "Clique a: 3 GPUs are stranded by jobs/train (r01t01); 1 of 2 nodes can take a new ComputeDomain."
    ]
    # One whose GPUs other pods have can take no pod of another.
    given["pods"] = [pod("r01t01", 1), pod("r01t02", 4)]
    assert stranded.cliques(given, MEMBERS)["a"].free_nodes == 0
    # So are those of a node whose label names a deleted domain.
    left = stranded.cliques(cluster(r02t01="uid-old"), MEMBERS)
    assert left["b"] == stranded.CliqueUse(1, 0, 4, {"deleted ComputeDomain uid-old": ["r02t01"]})


def test_a_node_that_takes_no_pods_is_not_free() -> None:
    cordoned, lost = cluster(), cluster()
    cordoned["nodes"][0]["spec"]["unschedulable"] = True
    lost["nodes"][0]["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    for closed in (cordoned, lost):
        assert stranded.cliques(closed, MEMBERS)["a"] == stranded.CliqueUse(2, 1, 0, {})
    # Its GPUs are stranded like those of any other node, and the node counts once.
    both = cluster(r01t01="uid-train")
    both["nodes"][0]["spec"]["unschedulable"] = True
    assert stranded.cliques(both, MEMBERS)["a"] == stranded.CliqueUse(2, 1, 4, {"jobs/train": ["r01t01"]})


def test_gpus_of_claims_count_once() -> None:
    given = cluster(r01t01="uid-train")
    shared = claim("r01t01", "gpu-0", "gpu-1")
    monitoring = claim("r01t01", "gpu-2", adminAccess=True)
    # DRAExtendedResource: the pod's request is served by a claim.
    served = pod("r01t01", 2, extendedResourceClaimStatus={"resourceClaimName": "x"})
    given |= {"claims": [shared, shared, monitoring], "pods": [served]}
    assert stranded.cliques(given, MEMBERS)["a"].stranded_gpus == 2


def test_a_node_is_taken_by_its_channel_or_daemon_before_it_has_the_label() -> None:
    by_channel = {**cluster(), "claims": [world.claim("work", node="r01t02", of="train")]}
    by_daemon = {**cluster(), "compute_domain_cliques": [world.members("train", r01t02="NotReady")]}
    by_status = cluster()
    by_status["compute_domains"][0]["status"] = {"nodes": [{"name": "r01t02", "status": "Ready"}]}
    for taken in (by_channel, by_daemon, by_status):
        assert stranded.cliques(taken, MEMBERS)["a"] == stranded.CliqueUse(2, 1, 4, {"jobs/train": ["r01t02"]})


def test_unreadable_pods_or_claims_make_the_number_unknown_not_zero() -> None:
    for resource in ("pods", "resourceclaims", "computedomains", "computedomaincliques"):
        sentence = f"The account may not list {resource}; give it the verb list in all namespaces"
        given = {**cluster(r01t01="uid-train"), "not_readable": [sentence, "The account may not list mpijobs; x"]}
        found = stranded.cliques(given, MEMBERS)
        assert stranded.unreadable(given) == [sentence]
        assert (found["a"].stranded_gpus, found["b"].stranded_gpus) == (None, None)
        (text,) = stranded.sentences(found)
        assert "an unknown number of GPUs is stranded by jobs/train (r01t01)" in text
