# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sources that query other services, through ansible-inventory, with working and faulty servers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.clients.http_servers import (
    Reply,
    Request,
    served,
)

from .commands import ansible

UUID = "9f3c1f52-0a57-4e70-8f3e-3a1c3f2d9b01"
SECRET = "s3cr3t-of-this-test-and-no-other"
LIMITS = {"timeout": 1, "deadline": 4}
NO_PROXY = {"no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}


def topograph(url: str) -> dict[str, Any]:
    provider = {"name": "netq", "creds": {"password": SECRET}}
    return {"url": url, "token": SECRET, "provider": provider, "poll_interval": 0.1, **LIMITS}


def rest(url: str) -> dict[str, Any]:
    fields = {"name": "name", "clique": "clique", "gpu_uuids": "gpus", "addresses": "address"}
    return {"url": url, "token": SECRET, "trays": "items", "next": "next", "fields": fields, **LIMITS}


def site(folder: Path, source: str, options: dict[str, Any]) -> Path:
    """An inventory file with a live source on top of an accepted fabric."""
    (folder / "fabric.json").write_bytes(fabric_file.serialise(fabrics.fabric(racks=1, trays=2)))
    path = folder / "live.nvlink.yml"
    config = {"plugin": "rackscale.nvlink.fabric", "sources": [source], source: options}
    path.write_text(json.dumps({**config, "fabric_file": "fabric.json"}))
    return path


@pytest.mark.core
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


def refusing(request: Request, reply: Reply) -> None:
    """Rejects the request and returns the credentials, as some services do."""
    reply.send(401, request.headers.get("authorization", "").encode() + request.body)


def test_a_failing_service_is_one_sentence_and_changes_no_file(tmp_path: Path) -> None:
    with served(refusing) as server:
        path = site(tmp_path, "topograph", topograph(server.url))
        before = {file.name: file.read_bytes() for file in path.parent.iterdir() if file.is_file()}
        done = ansible("ansible-inventory", "-vvv", "-i", path, "--list", check=False, timeout=120, **NO_PROXY)
    assert done.returncode != 0
    # Ansible wraps a message at the terminal's width.
    messages = set(re.findall(r"topograph: http\S+ [^;]*; ", " ".join(done.stderr.split())))
    assert ["rejects the credentials" in message for message in messages] == [True], done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert {file.name: file.read_bytes() for file in path.parent.iterdir() if file.is_file()} == before
