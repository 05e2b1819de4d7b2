# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pods and ComputeDomains on the nodes of trays, from a server that answers like a Kubernetes API server."""

from __future__ import annotations

import json
import urllib.parse
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import occupants
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.occupants import Occupants
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

from ..clients.http_servers import Reply, Request, served
from . import dra_cluster as world
from .test_snapshot import TOKEN, Cluster

PODS = "/api/v1/pods"
CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
FABRIC = fabrics.fabric(racks=1, trays=4, split=())


class WithPods(Cluster):
    """Answers with the pods of the node that the request names."""

    def __call__(self, request: Request, reply: Reply) -> None:
        path, _mark, query = request.target.partition("?")
        if path != PODS or path in self.statuses:
            return super().__call__(request, reply)
        _field, _equals, node = dict(urllib.parse.parse_qsl(query))["fieldSelector"].partition("=")
        return reply.json({"items": [row for row in self.lists[PODS] if row["spec"]["nodeName"] == node]})


def pod(node: str, name: str, owner: str = "Job", phase: str = "Running") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "jobs", "ownerReferences": [{"kind": owner}]}
    limits = {"limits": {"nvidia.com/gpu": "4"}}
    spec = {"containers": [{"resources": limits}]} if name.endswith("0") else {"resourceClaims": [{"name": "channel"}]}
    spec = {} if name == "web" else spec
    return {"metadata": metadata, "spec": {"nodeName": node, **spec}, "status": {"phase": phase}}


def cluster() -> WithPods:
    """r01t01 has a ComputeDomain and pods, r01t02 only what has no GPU, r01t03 nothing, and r01t04 is no node."""
    nodes = [world.node(f"r01t{number:02d}") for number in (1, 2, 3)]
    nodes[0]["metadata"]["labels"][world.KEY] = "uid-train"
    given = WithPods({**world.installed(), "nodes": nodes, "compute_domains": [world.domain("train")]})
    given.lists[PODS] = [
        pod("r01t01", "train-1"),
        pod("r01t01", "train-0"),
        pod("r01t01", "old", phase="Succeeded"),
        pod("r01t02", "plugin", owner="DaemonSet"),
        pod("r01t02", "web", owner="ReplicaSet"),
    ]
    return given


def read(answers: Cluster, folder: Path) -> dict[str, Occupants]:
    with served(answers) as server:
        rows = {
            "clusters": [{"name": "c", "cluster": {"server": server.url}}],
            "users": [{"name": "u", "user": {"token": TOKEN}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        }
        (folder / "config").write_text(
            json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "x", **rows})
        )
        options = {"kubeconfig": str(folder / "config"), "context": "", "timeout": 5, "kubernetes_cluster": ""}
        found = occupants.of_trays(options, FABRIC, "fabric.json", FABRIC.trays)
        assert {request.method for request in server.requests} == {"GET"}
    return found


def test_of_each_tray_that_is_a_node_its_domains_and_pods_are_found(tmp_path: Path) -> None:
    assert read(cluster(), tmp_path) == {
        "r01t01": Occupants("r01t01", ["ComputeDomain jobs/train"], ["pod jobs/train-0", "pod jobs/train-1"]),
        "r01t02": Occupants("r01t02", [], []),
        "r01t03": Occupants("r01t03", [], []),
    }


@pytest.mark.parametrize(("path", "right"), [(CLAIMS, "list resourceclaims"), (PODS, "pods")])
def test_what_cannot_be_read_is_no_free_tray(path: str, right: str, tmp_path: Path) -> None:
    refusing = cluster()
    refusing.statuses[path] = 403
    with pytest.raises(NvlinkError, match=right):
        read(refusing, tmp_path)
