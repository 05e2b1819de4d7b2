# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sources that query other services, through ansible-inventory, with working and faulty servers."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.clients.http_servers import (
    Authority,
    Reply,
    Request,
    Responder,
    served,
)

from .commands import ansible

UUID = "9f3c1f52-0a57-4e70-8f3e-3a1c3f2d9b01"
SECRET = "s3cr3t-of-this-test-and-no-other"
LIMITS = {"timeout": 1, "deadline": 4}
NO_PROXY = {"no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}


def kubernetes(url: str) -> dict[str, Any]:
    return {"api_url": url, "token": SECRET, **LIMITS}


def topograph(url: str) -> dict[str, Any]:
    provider = {"name": "netq", "creds": {"password": SECRET}}
    return {"url": url, "token": SECRET, "provider": provider, "poll_interval": 0.1, **LIMITS}


def rest(url: str) -> dict[str, Any]:
    fields = {"name": "name", "clique": "clique", "gpu_uuids": "gpus", "addresses": "address"}
    return {"url": url, "token": SECRET, "trays": "items", "next": "next", "fields": fields, **LIMITS}


OPTIONS = {"kubernetes": kubernetes, "topograph": topograph, "rest": rest}


def site(folder: Path, source: str, options: dict[str, Any]) -> Path:
    """An inventory file with a live source on top of an accepted fabric."""
    (folder / "fabric.json").write_bytes(fabric_file.serialise(fabrics.fabric(racks=1, trays=2)))
    path = folder / "live.nvlink.yml"
    config = {"plugin": "rackscale.nvlink.fabric", "sources": [source], source: options}
    path.write_text(json.dumps({**config, "fabric_file": "fabric.json"}))
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_trays_of_a_service_become_hosts(tmp_path: Path) -> None:
    def respond(request: Request, reply: Reply) -> None:
        second = request.target.endswith("2")
        row = {"clique": f"{UUID}.32766", "address": f"10.0.0.{2 if second else 1}/24"}
        row |= {"name": "r01t02", "gpus": ["GPU-b"]} if second else {"name": "r01t01", "gpus": ["GPU-a"]}
        reply.json({"items": [row], "next": None if second else "/trays?page=2"})

    with served(respond) as server:
        path = site(tmp_path, "rest", rest(f"{server.url}/trays"))
        done = ansible("ansible-inventory", "-i", path, "--list", "--export", **NO_PROXY)
    found = json.loads(done.stdout)
    assert found["nvlink_clique_new_9f3c1f52_32766"]["hosts"] == ["r01t01", "r01t02"]
    assert found["nvlink_clique_new_9f3c1f52_32766"]["vars"]["nvlink_clique"] == f"{UUID}.32766"
    assert found["_meta"]["hostvars"]["r01t02"]["nvlink_imex_address"] == "10.0.0.2"


def drip(_request: Request, reply: Reply) -> None:
    reply.send(200, b"", Content_Length="1000000")
    while reply.pause(0.05):
        reply.raw.write(b" ")


def huge(_request: Request, reply: Reply) -> None:
    reply.send(200, b"", Content_Length=str(100_000_000))
    for _number in range(100):
        reply.raw.write(b" " * 1_000_000)


def silent(_request: Request, reply: Reply) -> None:
    reply.pause(60)


def refusing(status: int) -> Responder:
    """Rejects the request and returns the credentials, as some services do."""
    return lambda request, reply: reply.send(status, request.headers.get("authorization", "").encode() + request.body)


BAD: dict[str, tuple[Responder, str]] = {
    "500": (refusing(500), "failed with HTTP 500"),
    "401": (refusing(401), "rejects the credentials"),
    "403": (refusing(403), "refuses access"),
    "redirect loop": (lambda request, reply: reply.send(302, Location=request.target), "redirects"),
    "silence": (silent, "gave no complete answer in"),
    "drip": (drip, "gave no complete answer in"),
    "huge": (huge, "returns more than 67108864 bytes"),
}
# Topograph receives JSON and answers with text.
BROKEN_JSON = (lambda _request, reply: reply.send(200, b'{"items": [{"name": "r01t0'), "that are not a JSON document")


@pytest.mark.any_core
@pytest.mark.parametrize(
    ("source", "bad"),
    [*((source, bad) for source in OPTIONS for bad in BAD), ("kubernetes", "broken JSON"), ("rest", "broken JSON")],
)
def test_a_failing_service_is_one_sentence_in_time_and_changes_no_file(tmp_path: Path, source: str, bad: str) -> None:
    respond, reported = {**BAD, "broken JSON": BROKEN_JSON}[bad]
    with served(respond) as server:
        check_refusal(site(tmp_path, source, OPTIONS[source](server.url)), reported)


@pytest.mark.any_core
@pytest.mark.parametrize("source", OPTIONS)
def test_a_service_that_does_not_exist(tmp_path: Path, source: str) -> None:
    with served(silent) as server:
        url = server.url
    check_refusal(site(tmp_path, source, OPTIONS[source](url)), "refuses the connection")


@pytest.mark.any_core
@pytest.mark.parametrize("source", OPTIONS)
def test_a_service_with_a_wrong_certificate_gets_no_token(tmp_path: Path, source: str) -> None:
    (tmp_path / "pki").mkdir()
    right, wrong = Authority(tmp_path / "pki", "right"), Authority(tmp_path / "pki", "wrong")
    with served(silent, right.server_context()) as server:
        options = {**OPTIONS[source](server.url), "ca_file": str(wrong.ca_file)}
        check_refusal(site(tmp_path, source, options), "has a certificate that is not accepted")
    assert server.requests == []


def check_refusal(path: Path, reported: str) -> None:
    before, start = contents(path.parent), time.monotonic()
    done = ansible("ansible-inventory", "-vvv", "-i", path, "--list", check=False, timeout=60, **NO_PROXY)
    # The limit of these sources is four seconds; Ansible's own start is the rest.
    assert time.monotonic() - start < 30
    assert done.returncode != 0
    sentences = {line for line in one_line(done.stderr) if reported in line}
    assert len(sentences) == 1, done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert contents(path.parent) == before


def one_line(text: str) -> list[str]:
    """The messages in Ansible's output, which it wraps at the terminal's width, without the text around them."""
    joined = re.sub(r"\s+", " ", text)
    return sorted(set(re.findall(r"(?:kubernetes|topograph|rest): http\S+ [^;]*; ", joined)))
