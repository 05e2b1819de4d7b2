# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import urllib.parse
from collections.abc import Sequence
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Address, Observation
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import SourceError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import kubernetes

from ..clients.http_servers import Reply, Request, served

NOW = "2026-11-21T05:00:00Z"
UUID = "9f3c1f52-0a57-4e70-8f3e-3a1c3f2d9b01"
CLIQUE = f"{UUID}.32766"
COUNT = "nvidia.com/gpu.count"
SECRET = "eyJhbGciOiJSUzI1NiJ9.service-account-token"


def node(name: Any, clique: Any = CLIQUE, ready: str = "True", **labels: Any) -> dict[str, Any]:
    """A node as the API server describes it, less what no source reads."""
    reported = {COUNT: "4", "nvidia.com/gpu.product": "NVIDIA-GB200", "nvidia.com/gpu.clique": clique}
    return {
        "metadata": {"name": name, "labels": {key: value for key, value in {**reported, **labels}.items() if value}},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": "10.0.1.1"},
                {"type": "Hostname", "address": "10.9.9.9"},
                {"type": "InternalIP", "address": "fd00::1"},
            ],
            "conditions": [{"type": "Ready", "status": ready, "lastHeartbeatTime": "2026-11-20T01:02:03Z"}],
        },
    }


class ApiServer:
    """Answers as a Kubernetes API server does: pages of `limit` nodes, each but the last with a continue token."""

    def __init__(self, nodes: Sequence[Any], expire: int = 0) -> None:
        self.nodes, self.expire = nodes, expire

    def __call__(self, request: Request, reply: Reply) -> None:
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(request.target).query))
        start, limit = int(query.get("continue", "0").partition("-")[2] or 0), int(query["limit"])
        if start and self.expire:
            self.expire -= 1
            reply.json({"kind": "Status", "code": 410, "reason": "Expired"}, status=410)
            return
        more = f"page-{start + limit}" if start + limit < len(self.nodes) else ""
        items = self.nodes[start : start + limit]
        reply.json({"kind": "NodeList", "metadata": {"continue": more}, "items": items})


def discover(url: str, **options: Any) -> list[Observation]:
    return kubernetes.discover({"api_url": url, "timeout": 60, **options}, NOW).observations


def found(*nodes: Any, **options: Any) -> list[Observation]:
    with served(ApiServer(nodes)) as server:
        return discover(server.url, **options)


def test_a_node_becomes_an_observation() -> None:
    assert found(node("r01t01")) == [
        Observation(
            "r01t01",
            "kubernetes",
            observed_at=NOW,
            identity=(UUID, 32766),
            gpu_count=4,
            addresses=(Address("InternalIP", "10.0.1.1", 0), Address("InternalIP", "fd00::1", 0)),
            kubernetes_node="r01t01",
        )
    ]


def test_the_site_names_the_cluster_of_the_nodes() -> None:
    assert [row.kubernetes_cluster for row in found(node("r01t01"), kubernetes_cluster="k-1.prod")] == ["k-1.prod"]
    with pytest.raises(NvlinkError, match=r"^kubernetes: kubernetes_cluster is '\.\./etc', write a cluster name of "):
        discover("http://127.0.0.1:1", kubernetes_cluster="../etc")


def test_all_pages_are_read_once() -> None:
    nodes = [node(f"t{number}") for number in range(7)]
    with served(ApiServer(nodes)) as server:
        observed = discover(server.url, token=SECRET, page_size=3, label_selector="a=b,c in (d)")
    assert [row.tray for row in observed] == [f"t{number}" for number in range(7)]
    first, second, third = (urllib.parse.parse_qs(request.target.partition("?")[2]) for request in server.requests)
    assert first == {"limit": ["3"], "labelSelector": ["a=b,c in (d)"]}
    assert (second["continue"], third["continue"]) == (["page-3"], ["page-6"])
    assert {request.headers["authorization"] for request in server.requests} == {f"Bearer {SECRET}"}
    assert server.requests[0].target.startswith("/api/v1/nodes?")


def test_a_list_that_expires_is_an_error() -> None:
    nodes = [node(f"t{number}") for number in range(4)]
    with served(ApiServer(nodes, expire=9)) as server, pytest.raises(NvlinkError, match=r"expire.*larger pages"):
        discover(server.url, page_size=2)
    assert len(server.requests) == 2


def test_nodes_without_gpus_are_no_trays_unless_selected() -> None:
    control = {"metadata": {"name": "cp1", "labels": {}}, "status": {"capacity": {"nvidia.com/gpu": "0"}}}
    plugin_only = {"metadata": {"name": "t2"}, "status": {"capacity": {"nvidia.com/gpu": "4"}}}
    assert [(row.tray, row.gpu_count) for row in found(control, node("t1"), plugin_only)] == [("t1", 4), ("t2", 4)]
    assert [row.tray for row in found(control, node("t1"), label_selector="x")] == ["cp1", "t1"]


ANNOTATION = "topograph.run/cluster-id"
ZERO = "00000000-0000-0000-0000-000000000000"
LABELS = ["32766", UUID, f"{UUID}.", f"{UUID}.-1", f"{UUID}.4294967296", f"{UUID}.01", "{{ 1 }}.1", 7, f"{ZERO}.1"]


@pytest.mark.parametrize(
    ("given", "annotation", "expected", "codes"),
    [
        # It keeps its clique, as old as its heartbeat.
        ({"ready": "Unknown"}, None, {"observed_at": "2026-11-20T01:02:03Z", "health": "unknown"}, ["node_not_ready"]),
        *(({"clique": label}, None, {"identity": None}, ["unusable_value"]) for label in (*LABELS, f"{UUID}.1\n")),
        # The annotation of Topograph counts without the label.
        ({}, f"{UUID}.7", {"identity": (UUID, 32766)}, []),
        ({"clique": None}, f"{UUID.upper()}.7", {"identity": (UUID, 7), "gpu_count": 4}, []),
        *(({"clique": None}, other, {"identity": None}, []) for other in ("nvl-domain-1", 7, {"a": 1}, None)),
        *(({COUNT: count}, None, {"gpu_count": 0}, ["unusable_value"]) for count in ("-1", "9" * 40, "²")),
    ],
)
def test_what_a_node_reports(given: Any, annotation: Any, expected: dict[str, Any], codes: list[str]) -> None:
    one, other = node("t1", **given), node("t2")
    one["metadata"]["annotations"] = {ANNOTATION: annotation}
    observed, good = found(one, other)
    assert {key: getattr(observed, key) for key in expected} == expected
    assert [(row["code"], row["tray"]) for row in observed.findings] == [(code, "t1") for code in codes]
    assert not any("{{" in row["message"] for row in observed.findings)
    assert observed.reachable
    assert good.identity == (UUID, 32766)


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        ({"clique": "7"}, f"invalid clique for tray t1; check the pod that writes the label {kubernetes.CLIQUE}."),
        ({COUNT: "-1"}, f"invalid gpu_count for tray t1; check GPU Feature Discovery, which writes the label {COUNT}."),
        (
            {"address": "no"},
            "invalid addresses for tray t1; correct the InternalIP of its node (the kubelet's node-ip).",
        ),
    ],
)
def test_an_invalid_value_of_a_node_is_named_with_who_writes_it(given: Any, reported: str) -> None:
    one = node("t1", **{key: value for key, value in given.items() if key != "address"})
    one["status"]["addresses"] = [{"type": "InternalIP", "address": given.get("address", "198.51.100.11")}]
    (observed,) = found(one)
    assert [row["message"] for row in observed.findings] == [f"Source kubernetes returns an {reported}"]


def test_a_site_names_its_trays_by_expression() -> None:
    nodes = ["r01t01.example.org", "r01t02.example.org"]
    observed = found(*map(node, nodes), tray_name="split('.', metadata.name)[0]")
    assert {row.tray: row.kubernetes_node for row in observed} == {"r01t01": nodes[0], "r01t02": nodes[1]}


def test_nodes_without_a_usable_name_are_counted_and_left_out() -> None:
    nodes = [node("{{ evil }}"), node("t1"), node(None), None, "x"]
    with served(ApiServer(nodes)) as server:
        result = kubernetes.discover({"api_url": server.url, "timeout": 60, "label_selector": "all"}, NOW)
    assert [(row.tray, row.findings) for row in result.observations] == [("t1", ())]
    assert [row["code"] for row in result.findings] == ["source_list_invalid"]
    assert "4 of 5 nodes" in result.findings[0]["message"]


def test_one_name_for_all_nodes_is_found() -> None:
    (observed,) = found(node("a"), node("b"), tray_name="'t1'")
    assert (observed.identity, [row["code"] for row in observed.findings]) == ((UUID, 32766), ["source_list_invalid"])
    (observed,) = found(node("a"), node("b", clique=f"{UUID}.1"), tray_name="'t1'")
    assert (observed.identity, [row["code"] for row in observed.findings]) == (None, ["source_list_invalid"])


@pytest.mark.parametrize("page", [{"kind": "Status"}, {"items": [], "metadata": {"continue": "again"}}])
def test_a_service_that_is_not_a_kubernetes_api(page: Any) -> None:
    reported = "returned no list of objects, or the same page again; set the address"
    with served(lambda _request, reply: reply.json(page)) as server, pytest.raises(NvlinkError, match=reported):
        discover(server.url)
    # Null is what an API server writes for no item.
    with served(lambda _request, reply: reply.json({"kind": "NodeList", "metadata": {}, "items": None})) as server:
        assert discover(server.url) == []


# ----------------------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({}, "kubeconfig or api_url must be set"),
        ({"api_url": "http://x", "context": "c"}, "context belongs to a kubeconfig file; leave it out with api_url"),
        ({"kubeconfig": "/x", "token": SECRET}, "token belongs to api_url"),
        ({"kubeconfig": "/nowhere/config"}, "kubeconfig /nowhere/config cannot be read"),
        ({"api_url": "http://x", "page_size": 0}, "page_size is 0"),
        ({"api_url": "http://x", "tray_name": "a["}, "tray_name is not a valid JMESPath expression"),
        ({"api_ulr": "http://x"}, "'api_ulr' is not a known option; did you mean api_url?"),
        ([{"token": SECRET}], "is not a mapping of options"),
    ],
)
def test_wrong_options(options: Any, reported: str) -> None:
    with pytest.raises(SourceError) as caught:
        kubernetes.discover(options, NOW)
    assert str(caught.value).startswith(f"kubernetes: {reported}")
    assert SECRET not in str(caught.value)
