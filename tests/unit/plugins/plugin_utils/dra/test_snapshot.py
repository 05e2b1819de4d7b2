# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Snapshots of servers that answer like a Kubernetes API server, or wrongly."""

from __future__ import annotations

import urllib.parse
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import http, login
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import preflight
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.snapshot import LISTS, Reader, api_version
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.dra import dra_cluster as world

from ..clients.http_servers import Reply, Request, served

TOKEN = "eyJhbGciOiJSUzI1NiJ9.the-token-of-a-service-account"


class Cluster:
    """Answers from a snapshot, two objects per page; statuses: path -> the HTTP status of its rejection."""

    def __init__(self, snapshot: dict[str, Any], statuses: dict[str, int] | None = None) -> None:
        self.statuses = statuses or {}
        self.objects: dict[str, Any] = {"/version": {"gitVersion": snapshot["version"]}}
        groups = {**snapshot["groups"], "networking.k8s.io": ["v1"], "resource.nvidia.com": ["v1beta1"]}
        rows = [{"name": name, "versions": [{"version": word} for word in words]} for name, words in groups.items()]
        self.objects["/apis"] = {"groups": rows}
        for name, crd in snapshot["crds"].items():
            self.objects[f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"] = crd
        self.lists = {"/api/v1/nodes": snapshot["nodes"], "/api/v1/secrets": snapshot["releases"]}
        for key, (group, version, resource) in LISTS.items():
            self.lists[f"/apis/{group}/{version or groups[group][0]}/{resource}"] = snapshot[key]

    def __call__(self, request: Request, reply: Reply) -> None:
        assert request.headers["authorization"] == f"Bearer {TOKEN}"
        path, _mark, query = request.target.partition("?")
        if path in self.statuses:
            reply.json({"kind": "Status"}, self.statuses[path])
        elif path in self.lists:
            start = int(dict(urllib.parse.parse_qsl(query)).get("continue", 0))
            page = self.lists[path][start : start + 2]
            more = {"continue": str(start + 2)} if start + 2 < len(self.lists[path]) else {}
            reply.json({"items": page, "metadata": more})
        elif self.objects.get(path) is not None:
            reply.json(self.objects[path])
        else:
            reply.json({"kind": "Status"}, 404)


def read(cluster: Cluster, **which: bool) -> tuple[dict[str, Any], list[Request]]:
    with served(cluster) as server:
        config = login.client_config(Options({"api_url": server.url, "token": TOKEN}, login.OPTIONS, "dra_driver"))
        return Reader(config).snapshot(**which), server.requests


def test_a_snapshot_is_the_cluster() -> None:
    world_ = {**world.installed(), "nodes": [world.node(name) for name in world.names(5)]}
    snapshot, requests = read(Cluster(world_))
    for key in ("version", "nodes", "crds", "releases", *LISTS):
        assert snapshot[key] == world_[key], key
    assert api_version(snapshot["groups"]) == "v1"
    assert preflight.preflight(snapshot, world.trays(), world.plan()) == []
    assert {request.method for request in requests} == {"GET"}
    # Of Helm's Secrets the metadata alone.
    secrets = next(request for request in requests if request.target.startswith("/api/v1/secrets"))
    assert "as=PartialObjectMetadataList" in secrets.headers["accept"]
    assert "labelSelector=owner%3Dhelm" in secrets.target


def test_of_managed_fields_the_time_of_the_last_change_is_kept() -> None:
    times = ["2026-11-21T11:58:00Z", "2026-11-21T11:59:00Z", "2026-11-21T11:00:00Z"]
    claim = world.claim("work")
    claim["metadata"]["managedFields"] = [{"manager": "x", "time": time} for time in times]
    snapshot, _requests = read(Cluster({**world.installed(), "claims": [claim]}))
    assert snapshot["claims"] == [world.changed(world.claim("work"), 1)]


def test_pods_that_wait_and_queues_are_read_only_for_those_who_ask() -> None:
    """Of a pod what it asks for, of a node who wrote its clique label."""
    served_ = Cluster({**world.installed(), "groups": {**world.installed()["groups"], "kueue.x-k8s.io": ["v1beta2"]}})
    pod = {"metadata": {"name": "p", "namespace": "jobs", "annotations": {"pod-group-name": "g", "note": "x" * 9000}}}
    pod |= {"spec": {"schedulerName": "kai-scheduler", "volumes": [{}]}, "status": {"phase": "Pending", "podIP": "::1"}}
    served_.lists["/api/v1/pods"], served_.lists["/apis/kueue.x-k8s.io/v1beta2/workloads"] = [pod], [{"metadata": {}}]
    fields = {"f:metadata": {"f:labels": {"f:nvidia.com/gpu.clique": {}}}}
    served_.lists["/api/v1/nodes"][0]["metadata"]["managedFields"] = [
        {"manager": "nfd-master", "time": "2026-11-21T11:00:00Z", "fieldsV1": fields}
    ]
    snapshot, requests = read(served_, queues=True)
    request = next(row.target for row in requests if row.target.startswith("/api/v1/pods"))
    assert "spec.nodeName" not in request
    assert snapshot["workloads"] == [{"metadata": {}}]
    assert snapshot["pods"] == [
        {
            "metadata": {"name": "p", "namespace": "jobs", "annotations": {"pod-group-name": "g"}},
            "spec": {"schedulerName": "kai-scheduler", "nodeName": None, "containers": [], "initContainers": []},
            "status": {"phase": "Pending"},
        }
    ]
    assert snapshot["nodes"][0]["metadata"]["cliqueManagers"] == ["nfd-master"]
    assert read(served_)[0]["pods"] == []


class Changing(Cluster):
    """A ComputeDomain ends after the first answer with it, and another begins before the last one."""

    def __call__(self, request: Request, reply: Reply) -> None:
        path = request.target.partition("?")[0]
        super().__call__(request, reply)
        if path.endswith("/computedomains"):
            self.lists[path] = [world.domain("begins")]


def test_a_domain_that_begins_or_ends_meanwhile_is_known() -> None:
    """Other lists may have its objects, which are no leftovers."""
    snapshot, _requests = read(Changing(world.working()))
    names = [row["metadata"]["name"] for row in snapshot["compute_domains"]]
    assert names == ["cd", "begins"]


def test_of_the_status_of_a_node_only_what_checks_read_is_kept() -> None:
    node = world.node("r01t01")
    rows = [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": "False"}]
    amounts = {"cpu": "144", "nvidia.com/gpu": "4"}
    node["status"] |= {"conditions": rows, "capacity": amounts, "allocatable": amounts, "images": [{"names": ["x"]}]}
    snapshot, _requests = read(Cluster({**world.installed(), "nodes": [node]}))
    kept = {"nvidia.com/gpu": "4"}
    info = {"containerRuntimeVersion": "containerd://2.1.4", "kubeletVersion": "v1.34.4"}
    assert snapshot["nodes"][0]["status"] == {
        "nodeInfo": info,
        "conditions": rows[1:],
        "capacity": kept,
        "allocatable": kept,
    }


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/apis/resource.nvidia.com/v1beta1/computedomains", "may not list computedomains; give it the verb list"),
        ("/api/v1/secrets", "may not list secrets"),
        (
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/computedomains.resource.nvidia.com",
            "may not get customresourcedefinitions",
        ),
    ],
)
def test_a_missing_right_is_named(path: str, words: str) -> None:
    snapshot, _requests = read(Cluster(world.installed(), {path: 403}))
    found = preflight.preflight(snapshot, world.trays(), world.plan())
    assert [row["code"] for row in found] == ["dra_not_readable"]
    assert words in found[0]["message"]


def test_unreadable_nodes_are_an_error() -> None:
    with pytest.raises(http.HttpError, match="refuses access"):
        read(Cluster(world.installed(), {"/api/v1/nodes": 403}))


def test_the_best_served_version_is_taken() -> None:
    for served_, best in ((["v1beta1", "v1beta2"], "v1beta2"), (["v1", "v1beta1"], "v1"), (["v2"], None), ([], None)):
        assert api_version({"resource.k8s.io": served_}) == best
