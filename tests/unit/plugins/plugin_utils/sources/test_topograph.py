# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Observation
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import topograph

from ..clients.http_servers import Reply, Request, Responder, served

NOW = "2026-11-21T05:00:00Z"
UUID = "9f3c1f52-0a57-4e70-8f3e-3a1c3f2d9b01"
SECRET = "creds-of-the-fabric-manager"
CONF = f"""# block001={UUID}.32766
BlockName=block001 Nodes=r01t[01-02]
# block002={UUID}.1
BlockName=block002 Nodes=r02t01
BlockName=block003
BlockSizes=2
"""
YAML = """- topology: blocks
  block:
    blocks: [{block: block1, nodes: "r01t[01-02]"}, {block: block2}]
- topology: rest
  flat: true
"""


class Topograph:
    """Answers as Topograph does: a request ID, 202 so many times, then what it ends with."""

    def __init__(self, body: str = CONF, status: int = 200, pending: int = 0, request: str = "1f2e3d") -> None:
        self.body, self.status, self.pending, self.request = body, status, pending, request

    def __call__(self, request: Request, reply: Reply) -> None:
        if request.method == "POST":
            reply.send(202, f"{self.request}\n".encode())
        elif self.pending:
            self.pending -= 1
            reply.send(202, b"pending")
        else:
            reply.send(self.status, self.body.encode(errors="surrogateescape"))


def discover(url: str, **options: Any) -> list[Observation]:
    settings = {"url": url, "provider": {"name": "infiniband-bm"}, "poll_interval": 0.05, "timeout": 60, **options}
    return topograph.discover(settings, NOW).observations


def found(body: str, **options: Any) -> list[Observation]:
    with served(Topograph(body)) as server:
        return discover(server.url, **options)


def refused(respond: Any, **options: Any) -> str:
    with served(respond) as server, pytest.raises(NvlinkError) as caught:
        discover(server.url, **options)
    assert str(caught.value).startswith("topograph: http://127.0.0.1:")
    assert SECRET not in str(caught.value)
    return str(caught.value)


def test_blocks_with_cliques_as_domains() -> None:
    first, second, third = found(CONF)
    assert first == Observation("r01t01", "topograph", observed_at=NOW, identity=(UUID, 32766), slurm_node="r01t01")
    assert (second.tray, second.identity) == ("r01t02", (UUID, 32766))
    assert (third.tray, third.identity) == ("r02t01", (UUID, 1))


def test_the_requests_and_their_number() -> None:
    with served(Topograph(pending=2)) as server:
        provider = {"name": "netq", "params": {"apiUrl": "https://nmx"}, "creds": {"username": "u", "password": SECRET}}
        discover(f"{server.url}/", provider=provider, nodes=[{"region": "local", "instances": {"i1": "r01t01"}}])
    post, *polls = server.requests
    assert (post.method, post.target) == ("POST", "/v1/generate")
    assert json.loads(post.body) == {
        "provider": provider,
        "engine": {"name": "slurm", "params": {"plugin": "topology/block"}},
        "nodes": [{"region": "local", "instances": {"i1": "r01t01"}}],
    }
    assert [(poll.method, poll.target) for poll in polls] == [("GET", "/v1/topology?uid=1f2e3d")] * 3


@pytest.mark.parametrize(
    ("domain", "named"),
    [
        (UUID, f"the domain {UUID}"),
        ("00000000-0000-0000-0000-000000000000.1", "the domain 00000000-0000-0000-0000-000000000000.1"),
        ("{{x}}\x1b[31m", "the domain { {x}} [31m"),
        ("", "no domain"),
    ],
)
def test_a_domain_that_is_no_clique_gives_no_place(domain: str, named: str) -> None:
    (observed,) = found(f"# b1={domain}\nBlockName=b1 Nodes=t1\n")
    assert (observed.tray, observed.reachable, observed.identity) == ("t1", True, None)
    assert [(row["code"], row["tray"]) for row in observed.findings] == [("unusable_value", "t1")]
    assert observed.findings[0]["message"] == (
        f"Source topograph returns an invalid clique for tray t1; its block has {named}, which must be a clique: use a "
        "provider that reads nvidia-smi or the label nvidia.com/gpu.clique, and the format topology.conf."
    )


def test_each_invalid_field_has_its_own_remedy() -> None:
    rows = [{"id": "-bad node", "labels": {topograph.DOMAIN: f"{UUID}.1"}}]
    (observed,) = found(json.dumps({"instances": rows}), tray_name="sub('^.*$', 't1', node)")
    assert (observed.identity, observed.slurm_node) == ((UUID, 1), None)
    assert [row["message"] for row in observed.findings] == [
        "Source topograph returns an invalid slurm_node for tray t1; correct the node's name there."
    ]


def test_topology_yaml_has_no_domains() -> None:
    observed = found(YAML)
    assert [(row.tray, row.identity) for row in observed] == [("r01t01", None), ("r01t02", None)]
    assert {row["code"] for tray in observed for row in tray.findings} == {"unusable_value"}
    # But a block may have the name of its domain.
    assert {row.identity for row in found(YAML.replace("block1", f"{UUID}.7"))} == {(UUID, 7)}


def test_a_site_names_its_trays_by_expression_and_their_slurm() -> None:
    observed = found(CONF, tray_name="sub('^r', 'rack', node)", slurm_cluster="alpha")
    assert [(row.tray, row.slurm_node, row.slurm_cluster) for row in observed][:1] == [("rack01t01", "r01t01", "alpha")]


def test_polling_ends_at_the_deadline() -> None:
    """Polls so far apart that the deadline lies between two of them, not in the middle of an answer."""
    message = refused(Topograph(pending=10_000), deadline=3, poll_interval=2)
    assert "has no topology yet after 3 seconds; raise deadline" in message


def test_an_unknown_request_differs_from_a_failed_one() -> None:
    assert "does not know the request 1f2e3d" in refused(Topograph(status=404))
    assert "fails (HTTP 502: ***), 3 times" in refused(Topograph(SECRET, status=502), token=SECRET)
    assert "has no topology (***); correct provider" in refused(Topograph(SECRET, status=400), token=SECRET)


def test_a_refused_request_hides_the_credentials_of_the_provider_and_quotes_no_page() -> None:
    provider = {"name": "x", "creds": {"k": [SECRET]}}
    reply = refused(lambda _request, reply: reply.send(400, f"no {SECRET} here".encode()), provider=provider)
    assert "fails (HTTP 400: no *** here); " in reply
    page = refused(lambda _request, reply: reply.send(400, b"<html>busy</html>", Content_Type="text/html"))
    assert "fails (HTTP 400); see" in page


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("block topology contains no accelerator domains", "set provider.params.accelerator: {source: nvidia-smi}, "),
        ("cannot determine blockSizes: topology contains no blocks", "run sudo ibnetdiscover on a node: "),
    ],
)
def test_a_block_topology_without_blocks_has_its_remedy(reason: str, remedy: str) -> None:
    """Texts of pkg/translate of Topograph 1.0."""
    assert f"has no topology ({reason}); {remedy}" in refused(Topograph(f"{reason}\n", status=400))


@pytest.mark.parametrize(
    ("body", "reported"),
    [
        (f"{'x ' * 8_190}{SECRET}", "(x x x"),
        (f"{'a ' * 149}{SECRET}", "(a a a"),
        ("{{ lookup('pipe', 'id') }}; done\n\tnow", "({ { lookup('pipe', 'id') }}, done now)"),
        ("password=hunter2 of netq", "(password=*** of netq)"),
    ],
)
def test_a_reason_is_one_short_sentence_without_a_secret(body: str, reported: str) -> None:
    message = refused(Topograph(body, status=400), token=SECRET)
    assert reported in message
    assert len(message) < 500
    assert SECRET[:8] not in message
    assert "hunter2" not in message


@pytest.mark.parametrize("request_id", ["", "../etc", "x" * 200])
def test_a_service_that_is_not_topograph(request_id: str) -> None:
    assert "returned no request ID" in refused(Topograph(request=request_id))


@pytest.mark.parametrize(
    ("body", "reported"),
    [
        (
            "OK",
            "writes its topology elsewhere; leave out the engine's topologyConfigPath, or read what the engine slinky",
        ),
        ('{"instances": []}', "returns a topology without blocks; set the engine slurm"),
        ('{"instances": ', "cannot be parsed (Expecting value"),
        ('{"a":' * 100_000, "cannot be parsed"),
        ("SwitchName=s1 Nodes=t[1-2]\n", "returns a topology without blocks"),
        ("BlockName=b Nodes=t[1-\n", "cannot be parsed (The hostlist"),
        ("- topology: a\n  block: {\n", "cannot be parsed (Line 3"),
        (f"BlockName=b Nodes={SECRET}[1-\n", "cannot be parsed"),
        ("BlockName=b Nodes=t[1-65536]\n" * 10, "have more than"),
        ("-\n" * 2_100_000, "cannot be parsed (has more than 2097152 values)"),
        ("\udcff\udcfe", "cannot be parsed (it is not UTF-8)"),
    ],
)
def test_a_topology_that_cannot_be_used(body: str, reported: str) -> None:
    assert reported in refused(Topograph(body), token=SECRET)


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({"url": None}, "url is missing"),
        ({"provider": None}, "provider is missing"),
        ({"provider": [{"creds": SECRET}]}, "provider is not a mapping"),
        ({"provider": {}}, "provider: name is missing"),
        ({"provider": {"name": "x", "credentials": SECRET}}, "provider: 'credentials' is not a known option; did you"),
        ({"engine": {"name": "slurm", "params": {"a": {1, 2}}}}, "engine: params: has a value without a JSON type"),
        ({"poll_interval": 0}, "poll_interval is 0"),
        ({"kubeconfig": "in-cluster"}, "kubeconfig belongs to config_map; leave it out with url"),
    ],
)
def test_wrong_options(options: dict[str, Any], reported: str) -> None:
    with pytest.raises(NvlinkError) as caught:
        discover(**{"url": "http://127.0.0.1:1", **options})
    assert str(caught.value).startswith(f"topograph: {reported}")
    assert SECRET not in str(caught.value)


def test_instances_of_the_engine_graph() -> None:
    """As pkg/engines/graph of Topograph 1.0 writes them; an instance without a domain is a tray without a clique."""
    rows = [
        {"id": "r01t01", "network_layers": ["l1", "s1"], "labels": {topograph.DOMAIN: f"{UUID}.32766", "gpu": "GB200"}},
        {"id": "r01t02", "network_layers": [], "labels": {topograph.DOMAIN: "nvl-1"}},
        {"id": "r01t03"},
    ]
    observed = found(json.dumps({"instances": rows}), engine={"name": "graph"})
    assert {row.tray: row.identity for row in observed} == {"r01t01": (UUID, 32766), "r01t02": None, "r01t03": None}
    assert [[row["code"] for row in tray.findings] for tray in observed] == [[], *[["unusable_value"]] * 2]


def config_map(data: Any) -> Responder:
    """An API server with one ConfigMap, as the engine slinky writes it."""

    def respond(request: Request, reply: Reply) -> None:
        if request.target == "/api/v1/namespaces/slurm/configmaps/slurm-config":
            reply.json({"kind": "ConfigMap", "data": data})
        else:
            reply.json({"kind": "Status", "code": 404}, 404)

    return respond


def read_config_map(url: str, **options: Any) -> list[Observation]:
    names = {"namespace": "slurm", "name": "slurm-config"}
    settings = {"api_url": url, "token": SECRET, "config_map": names, "timeout": 60, **options}
    return topograph.discover(settings, NOW).observations


def test_a_config_map_of_the_engine_slinky() -> None:
    with served(config_map({"slurm.conf": "", "topology.conf": CONF})) as server:
        observed = read_config_map(server.url, slurm_cluster="alpha")
    assert [(row.tray, row.identity, row.slurm_cluster) for row in observed][-1] == ("r02t01", (UUID, 1), "alpha")
    assert [request.method for request in server.requests] == ["GET"]
    assert server.requests[0].headers["authorization"] == f"Bearer {SECRET}"


@pytest.mark.parametrize(
    ("data", "options", "reported"),
    [
        ({"topology.yaml": YAML}, {}, "has no key topology.conf; set config_map.key; it has topology.yaml"),
        (None, {}, "has no key topology.conf; set config_map.key; it has none"),
        ({}, {"config_map": {"namespace": "slurm", "name": "other"}}, "does not exist (HTTP 404); correct config_map"),
        ({}, {"config_map": {"namespace": "../..", "name": "x"}}, "config_map: namespace is '../..', write the namesp"),
        ({}, {"provider": {"name": "dra"}}, "provider and config_map are both set; keep one"),
    ],
)
def test_a_config_map_that_cannot_be_used(data: Any, options: dict[str, Any], reported: str) -> None:
    with served(config_map(data)) as server, pytest.raises(NvlinkError) as caught:
        read_config_map(server.url, **options)
    assert reported in str(caught.value)
    assert SECRET not in str(caught.value)
