# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Address, Observation, SourceResult
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import rest

from ..clients.http_servers import Reply, Request, served

NOW = "2026-11-21T05:00:00Z"
UUID = "9f3c1f52-0a57-4e70-8f3e-3a1c3f2d9b01"
SECRET = "0123456789abcdef-netbox-token"
COOKBOOK = Path(__file__).resolve().parents[5] / "docs" / "sources.md"


def result(document: Any, folder: Path, fields: dict[str, str]) -> SourceResult:
    path = folder / "cmdb.json"
    path.write_text(json.dumps(document))
    return rest.discover({"file": str(path), "trays": "@", "fields": {"name": "name", **fields}}, NOW)


def discover(document: Any, folder: Path, fields: dict[str, str]) -> list[Observation]:
    return result(document, folder, fields).observations


def from_web(url: str, **options: Any) -> list[Observation]:
    settings = {"url": url, "trays": "items", "fields": {"name": "name"}, "timeout": 60, **options}
    return rest.discover(settings, NOW).observations


FULL = {
    "name": "r01t01",
    "clique": f"{UUID.upper()}.32766",
    "serial": 1820925000123,
    "slot": "3",
    "gpus": ["GPU-11111111-2222", "GPU-11111111-3333"],
    "count": 4,
    "addresses": ["198.51.100.11/24", {"address": "fd00::1", "interface": "host0", "prefix": 64}],
    "driver": "580.95.05",
    "health": "Healthy",
    "at": "2026-11-21T04:00:00Z",
    "slurm": "s1",
    "k8s": "k1",
    "host": "198.51.100.11",
    "of": {"slurm": "gb-prod", "kubernetes": "k1"},
}
FIELDS = {
    "clique": "clique",
    "chassis_serial": "serial",
    "tray_index": "slot",
    "gpu_uuids": "gpus",
    "gpu_count": "count",
    "addresses": "addresses",
    "driver_version": "driver",
    "health": "health",
    "observed_at": "at",
    "slurm_node": "slurm",
    "kubernetes_node": "k8s",
    "ansible_host": "host",
    "slurm_cluster": "of.slurm",
    "kubernetes_cluster": "of.kubernetes",
}


def test_every_field_is_read(tmp_path: Path) -> None:
    assert discover([FULL], tmp_path, FIELDS) == [
        Observation(
            "r01t01",
            "rest",
            observed_at="2026-11-21T04:00:00Z",
            identity=(UUID, 32766),
            chassis_serial="1820925000123",
            tray_index=3,
            gpu_uuids=("GPU-11111111-2222", "GPU-11111111-3333"),
            gpu_count=4,
            addresses=(Address("", "198.51.100.11", 24), Address("host0", "fd00::1", 64)),
            driver_version="580.95.05",
            health="healthy",
            slurm_node="s1",
            kubernetes_node="k1",
            ansible_host="198.51.100.11",
            slurm_cluster="gb-prod",
            kubernetes_cluster="k1",
        )
    ]


def test_a_missing_value_is_unknown_without_a_finding(tmp_path: Path) -> None:
    assert discover([{"name": "t1"}], tmp_path, FIELDS) == [Observation("t1", "rest", observed_at=NOW)]


def test_a_clique_by_its_two_parts(tmp_path: Path) -> None:
    fields = {"cluster_uuid": "uuid", "clique_id": "id"}
    rows = [
        {"name": "t1", "uuid": UUID, "id": "7"},
        {"name": "t2", "uuid": UUID},
        {"name": "t3", "uuid": "00000000-0000-0000-0000-000000000000", "id": 7},
    ]
    assert [row.identity for row in discover(rows, tmp_path, fields)] == [(UUID, 7), None, None]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("clique", "32766"),
        ("cluster_uuid", "x"),
        ("clique_id", -1),
        ("clique_id", True),
        ("clique_id", 2**32),
        ("chassis_serial", "{{ evil }}"),
        ("chassis_serial", "a\nb"),
        ("tray_index", "first"),
        ("gpu_uuids", ["GPU-1", None]),
        ("gpu_uuids", ["GPU-1"] * 2000),
        ("gpu_count", 4.5),
        ("addresses", ["10.0.0.1", "10.0.0.1/x"]),
        ("driver_version", "1; rm"),
        ("health", "meh"),
        ("observed_at", "yesterday"),
        ("problem", True),
        ("slurm_node", "a b"),
        ("kubernetes_node", ["x"]),
        ("slurm_cluster", "../etc"),
        ("ansible_host", "-oProxyCommand=x"),
    ],
)
def test_an_invalid_value_is_a_finding_and_null(tmp_path: Path, field: str, value: Any) -> None:
    (observed,) = discover([{"name": "t1", "v": value}], tmp_path, {field: "v"})
    assert [(row["code"], row["tray"]) for row in observed.findings] == [("unusable_value", "t1")]
    assert field in observed.findings[0]["message"]
    assert observed == Observation("t1", "rest", observed_at=NOW, findings=observed.findings)


def test_trays_without_a_name_are_counted_and_none_at_all_is_an_error(tmp_path: Path) -> None:
    reported = result([{"name": "[all]"}, {"name": "t1"}, 7], tmp_path, {})
    assert reported.observations == [Observation("t1", "rest", observed_at=NOW)]
    assert reported.findings == [
        {
            "code": "source_list_invalid",
            "severity": "warning",
            "message": "Source rest lists 2 of 3 items without a usable tray name, first at position 1; correct the "
            "expression name, or exclude such items in trays.",
        }
    ]
    with pytest.raises(NvlinkError, match="rest: none of 1 items has a usable tray name; correct the expression name"):
        discover([{"nam": "t1"}], tmp_path, {})


def test_added_functions(tmp_path: Path) -> None:
    row = {"name": "R01T01.example.org", "domain": "nmx-1", "x": 1}
    expression = "sub('^r', 'rack', lower(split('.', name)[0]))"
    cluster_uuid = f'pick(`{{"nmx-1": "{UUID}"}}`, domain)'
    fields = {"name": expression, "cluster_uuid": cluster_uuid, "clique_id": "x"}
    (observed,) = discover([row], tmp_path, fields)
    assert (observed.tray, observed.identity) == ("rack01t01", (UUID, 1))


# ------------------------------------------------------------------------------------------------------------- pages


def pages(request: Request, reply: Reply) -> None:
    """Three pages of one tray each, which name the next one in the document and in the header Link."""
    number = int(request.target.partition("page=")[2] or 1)
    there = f"/api/trays?page={number + 1}" if number < 3 else None
    link = {"Link": f'</first>; rel="first", <{there}>; title="a, b"; rel="next"'} if there else {}
    reply.json(
        {"items": [{"name": f"t{number}"}], "next": there, "n": {"other": f"http://198.51.100.1{there}"}}, **link
    )


@pytest.mark.parametrize("follow", ["next", "link"])
def test_pages_are_followed(follow: str) -> None:
    with served(pages) as server:
        observed = from_web(f"{server.url}/api/trays", next=follow, token=SECRET, token_prefix="Token")
    assert [row.tray for row in observed] == ["t1", "t2", "t3"]
    assert {request.headers["authorization"] for request in server.requests} == {f"Token {SECRET}"}


def test_one_page_without_next_and_a_header_of_its_own() -> None:
    with served(pages) as server:
        assert len(from_web(f"{server.url}/api/trays", token=SECRET, token_header="X-Auth-Token")) == 1
    assert server.requests[0].headers["x-auth-token"] == SECRET


@pytest.mark.parametrize(
    ("target", "reported"),
    [
        ("/loop", "names itself as its next page"),
        ("http://localhost/x", "returns a next page on another host"),
        (7, "returns a next page that is not a text"),
    ],
)
def test_an_invalid_next_page(target: Any, reported: str) -> None:
    with (
        served(lambda _request, reply: reply.json({"items": [], "next": target})) as server,
        pytest.raises(NvlinkError, match=reported) as caught,
    ):
        from_web(f"{server.url}/loop", next="next", token=SECRET)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("there", "target"), [("https://127.0.0.1/b", "/b"), ("/a b\r\nX-Evil: y", "/a%20bX-Evil:%20y")]
)
def test_a_next_page_sets_neither_scheme_nor_port_nor_a_header(there: str, target: str) -> None:
    def respond(_request: Request, reply: Reply) -> None:
        reply.json({"items": [], "next": None if len(server.requests) > 1 else there})

    with served(respond) as server:
        from_web(f"{server.url}/a", next="next")
    assert server.requests[1].target == target
    assert "x-evil" not in server.requests[1].headers


def test_too_many_pages() -> None:
    with (
        served(lambda request, reply: reply.json({"items": [], "next": f"{request.target}x"})) as server,
        pytest.raises(NvlinkError, match="is one page more than max_pages, 4; raise max_pages"),
    ):
        from_web(f"{server.url}/a", next="next", max_pages=4)
    assert len(server.requests) == 4


def test_a_page_without_the_list() -> None:
    with (
        served(lambda _request, reply: reply.json({"detail": SECRET})) as server,
        pytest.raises(NvlinkError, match=r"rest: trays returns no list on the page http://127\.0\.0\.1:\d+/a; correct"),
    ):
        from_web(f"{server.url}/a?key={SECRET}")


# ----------------------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({}, "trays is missing"),
        ({"trays": "a[", "fields": {"name": "n"}}, "trays is not a valid JMESPath expression"),
        ({"trays": "a", "fields": {}}, "fields: name is missing"),
        ({"trays": "a", "fields": {"name": 5}}, "fields: name is 5, write a JMESPath expression"),
        ({"trays": "a", "fields": {"name": "n", "uuid": "u"}}, "fields: 'uuid' is not a known option"),
        ({"trays": "a", "fields": {"name": "n"}}, "url or file must be set"),
        ({"trays": "a", "fields": {"name": "n"}, "file": "cmdb.json"}, "file is 'cmdb.json', write an absolute path"),
        (
            {"trays": "a", "fields": {"name": "n"}, "file": "/nowhere.json"},
            "file /nowhere.json cannot be read (No such file",
        ),
        (
            {"trays": "a", "fields": {"name": "n"}, "file": "/dev/zero"},
            "file /dev/zero cannot be read (it is not a reg",
        ),
        ({"trays": "a", "fields": {"name": "n"}, "file": __file__}, f"file {__file__} is not a complete JSON document"),
        ({"trays": "a", "fields": {"name": "n"}, "file": "/x", "token": SECRET}, "token applies to url only"),
        ({"trays": "a", "fields": {"name": "n"}, "url": "http://x", "token_header": "A: b"}, "token_header is no"),
    ],
)
def test_wrong_options(options: Any, reported: str) -> None:
    with pytest.raises(NvlinkError) as caught:
        rest.discover(options, NOW)
    assert str(caught.value).startswith(f"rest: {reported}")
    assert "\n" not in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("expression", "reported"),
    [
        ("sub('(', '', name)", r"calls sub\(\) with an invalid pattern; correct it$"),
        # Checked before anything is read: this branch is never evaluated.
        ("name || lenght(name)", "calls 'lenght', which is not a function; did you mean length"),
        ("lower(name, name)", r"calls lower\(\) with 2 instead of 1 arguments; correct it$"),
    ],
)
def test_a_wrong_call_is_an_error(expression: str, reported: str, tmp_path: Path) -> None:
    with pytest.raises(NvlinkError, match=rf"^rest: fields: name {reported}"):
        discover([{"name": "t1"}], tmp_path, {"name": expression})


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        ("[" + " " * 5000 + "]", r"cannot be read \(it is larger than 4096 bytes\)"),
        ("[" + "[]," * 1000 + "0]", r"file .* has more than 128 values; split it, or raise max_bytes"),
    ],
)
def test_a_file_larger_than_allowed(content: str, reported: str, tmp_path: Path) -> None:
    (tmp_path / "big.json").write_text(content)
    options = {"file": str(tmp_path / "big.json"), "trays": "@", "fields": {"name": "n"}, "max_bytes": 4096}
    with pytest.raises(NvlinkError, match=reported):
        rest.discover(options, NOW)


# ---------------------------------------------------------------------------------------------------------- cookbook


def cookbook() -> dict[str, tuple[Any, dict[str, Any]]]:
    """Heading -> (the page that it shows, the inventory file that it shows) of docs/sources.md."""
    shown = re.findall(
        r"^### ([^\n]+)\n.*?^```json\n(.*?)^```\n.*?^```yaml\n(.*?)^```\n",
        COOKBOOK.read_text(),
        re.MULTILINE | re.DOTALL,
    )
    return {name: (json.loads(page), yaml.safe_load(config)) for name, page, config in shown}


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        (
            "NetBox",
            {"identity": (UUID, 32766), "addresses": (Address("", "198.51.100.11", 24),)},
            {"reachable": False, "problem": "NetBox calls it offline"},
        ),
        (
            "NMX-M",
            {"identity": (UUID, 32766), "health": "healthy"},
            {"chassis_serial": "1820925000123", "health": "unknown"},
        ),
        (
            "A BMC inventory",
            {"identity": None, "reachable": True},
            {"tray": "r01t02", "problem": "its BMC reports that it is off"},
        ),
    ],
)
def test_the_examples_of_the_page(name: str, first: dict[str, Any], second: dict[str, Any], tmp_path: Path) -> None:
    page, config = cookbook()[name]
    options = {key: value for key, value in config["rest"].items() if key in ("trays", "fields")}
    assert not set(config["rest"]) - set(rest.OPTIONS)
    (tmp_path / "page.json").write_text(json.dumps(page))
    observed = rest.discover({**options, "file": str(tmp_path / "page.json")}, NOW).observations
    assert [finding for tray in observed for finding in tray.findings] == []
    for tray, expected in zip(observed, ({"tray": "r01t01", "tray_index": 0, **first}, second), strict=True):
        assert {key: getattr(tray, key) for key in expected} == expected
