# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Canary secrets: none of them is in what Ansible prints at its highest verbosity, or in any file that a run writes.

Slurm's own secrets, munge's key and slurmdbd's password, are in test_slurm_role.py, which has real daemons.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.clients.http_servers import (
    Authority,
    Reply,
    Request,
    served,
)
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.clients.test_login import kubeconfig

from .commands import LOCAL, ansible

CANARY = "c4n4ry-of-this-test-and-of-no-other"
CLIQUE = "9f3c1f52-0a57-4e70-8f3e-3a1c3f2d9b01.32766"
REST_FIELDS = {"name": "name", "clique": "clique", "gpu_uuids": "gpus"}
TRAY = {"name": "r01t01", "clique": CLIQUE, "gpus": ["GPU-a"]}


class Run:
    """Plays in a folder whose every output and file is kept: log, fact cache, inventory cache, results, pages."""

    def __init__(self, folder: Path) -> None:
        self.kept = folder / "kept"  # what the plays write
        self.given = folder / "given"  # what the site wrote, secrets included
        self.kept.mkdir()
        self.given.mkdir()
        self.printed = ""

    def play(self, *arguments: str, check: bool = True, **variables: Any) -> str:
        """Run ansible-playbook with variables from a file; its output."""
        values = self.given / "values.json"
        values.write_text(json.dumps({**LOCAL, "fabric_file": str(self.kept / "fabric.json"), **variables}))
        done = ansible(
            "ansible-playbook",
            *("-i", "localhost,", "-vvvv", "--diff", "-e", f"@{values}", *arguments),
            check=check,
            ANSIBLE_INJECT_INVOCATION="true",
            ANSIBLE_LOG_PATH=str(self.kept / "ansible.log"),
            ANSIBLE_CACHE_PLUGIN="jsonfile",
            ANSIBLE_CACHE_PLUGIN_CONNECTION=str(self.kept / "facts"),
            no_proxy="127.0.0.1",
        )
        self.printed += done.stdout + done.stderr
        return done.stdout + done.stderr

    def task(self, module: str, arguments: dict[str, Any], variables: dict[str, Any] | None = None) -> str:
        """Run one task on localhost, which fails; its output."""
        play = self.given / "play.yml"
        task = {"name": "A task", module: arguments, "vars": variables or {}}
        play.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": [task]}]))
        return self.play(str(play), check=False)

    def holds(self, *secrets: str) -> list[str]:
        """Where one of the secrets is, in any of the forms in which programs show text."""
        forms = [form for secret in secrets for form in (secret, base64.b64encode(secret.encode()).decode())]
        texts = {"the output": self.printed}
        texts |= {str(path): path.read_text(errors="replace") for path in self.kept.rglob("*") if path.is_file()}
        return sorted({where for where, text in texts.items() for form in forms if form in text})


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def reflecting(status: int) -> Callable[[Request, Reply], None]:
    """A server that rejects a request and returns all that it was sent."""

    def respond(request: Request, reply: Reply) -> None:
        reply.send(status, "\n".join(request.headers.values()).encode() + request.body)

    return respond


def test_the_search_finds_what_a_play_prints_and_writes(run: Run) -> None:
    """The tests below are able to fail."""
    run.task("ansible.builtin.copy", {"content": CANARY, "dest": str(run.kept / "verdict.json")})
    assert run.holds(CANARY) == [str(run.kept / "ansible.log"), str(run.kept / "verdict.json"), "the output"]


def test_the_keys_of_slurm_are_not_among_the_printed_arguments(run: Run) -> None:
    for step in ("install_key", "prepare_tray"):
        arguments = {"step": step, "key": CANARY, "slurm_conf": "no such option"}
        assert "slurm_conf" in run.task("rackscale.nvlink.slurm_step", arguments)
    assert run.holds(CANARY) == []


def test_a_discovery_an_edit_a_verdict_and_a_report_keep_the_token_of_their_source(run: Run) -> None:
    def respond(request: Request, reply: Reply) -> None:
        assert request.headers["authorization"] == f"Bearer {CANARY}"
        reply.json({"items": [TRAY]})

    with served(respond) as server:
        source = {"url": f"{server.url}/trays", "token": CANARY, "trays": "items", "fields": REST_FIELDS}
        sources = {"fabric_sources": [{"rest": source}]}
        run.play("rackscale.nvlink.discover", **sources, fabric_accept="gates")
        assert server.requests
        more = {"render_dir": str(run.kept / "pages"), "verdict_file": str(run.kept / "verdict.json")}
        more["junit_file"] = str(run.kept / "verdict.xml")
        run.play("rackscale.nvlink.verify", "--tags", "quick", check=False, **sources, **more)
        run.play("rackscale.nvlink.render", "--tags", "report", **sources, **more)
    names = {path.name for path in run.kept.rglob("*")}
    assert {"fabric.json", "fabric.audit.jsonl", "verdict.json", "verdict.xml", "ansible.log"} <= names
    assert any(name.endswith(".html") for name in names)
    assert run.holds(CANARY) == []


def test_a_refused_discovery_prints_no_credentials_that_the_server_returns(run: Run) -> None:
    with served(reflecting(401)) as server:
        provider = {"name": "netq", "creds": {"password": f"{CANARY}-2"}}
        source = {"topograph": {"url": server.url, "token": CANARY, "provider": provider}}
        printed = run.play("rackscale.nvlink.discover", check=False, fabric_sources=[source])
    assert "rejects the credentials" in " ".join(printed.split())
    assert run.holds(CANARY) == []


def test_the_token_and_the_client_key_of_a_kubeconfig_stay_in_it(run: Run) -> None:
    """Also towards Run:ai, whose token is an option of the same task."""
    authority = Authority(run.given)
    certificate, key = authority.client
    user = {
        "token": CANARY,
        "client-certificate-data": base64.b64encode(certificate.read_bytes()).decode(),
        "client-key-data": base64.b64encode(key.read_bytes()).decode(),
    }
    with served(reflecting(401), authority.server_context(client_certificate=True)) as server:
        config = str(kubeconfig(run.given, user, server.url, **{"certificate-authority": str(authority.ca_file)}))
        sources = [{"kubernetes": {"kubeconfig": config}}]
        refused = run.play("rackscale.nvlink.discover", check=False, fabric_sources=sources)
        assert "rejects the credentials" in " ".join(refused.split())
        with served(lambda _request, reply: reply.json({"items": [TRAY]})) as trays:
            rest = {"url": trays.url, "trays": "items", "fields": REST_FIELDS}
            run.play("rackscale.nvlink.discover", fabric_sources=[{"rest": rest}], fabric_accept="gates")
        runai = {"url": server.url, "cluster_id": "c", "token": f"{CANARY}-2", "ca_file": str(authority.ca_file)}
        arguments = {"fabric_file": str(run.kept / "fabric.json"), "api": {"kubeconfig": config}}
        printed = run.task("rackscale.nvlink.k8s_topology", {**arguments, "runai": runai})
        assert "rejects the credentials" in " ".join(printed.split())
        assert server.requests
    secret = "".join(key.read_text().splitlines()[1:-1])
    assert run.holds(CANARY, secret, key.read_text(), user["client-key-data"]) == []
