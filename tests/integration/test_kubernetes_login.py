# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Logins at a real API server: by a plugin with a real certificate or token, and by a pod's service account."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics
from nvlab import scenario
from nvlab.kubernetes import certificates, nodes, plane, users
from nvlab.kubernetes.plane import ControlPlane

from .commands import ansible, environment
from .conftest import OLDEST_KUBERNETES
from .workloads import FOUR

pytestmark = [pytest.mark.lab, pytest.mark.kubernetes]

RULES = [users.rule("", ["nodes"], ["get", "list"]), users.rule("apps", ["daemonsets"], ["list"])]
VERSION = "client.authentication.k8s.io/v1"
# Prints the observations of a source, or its error message.
OBSERVE = """
import json, sys
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import sources
try:
    result = sources.observe("kubernetes", json.loads(sys.argv[1]), "2026-11-21T05:00:00Z")
except NvlinkError as error:
    sys.exit(str(error))
print(json.dumps({row.tray: row.identity for row in result.observations}))
"""
EVERYTHING = ["r01t01", "r01t02", "r01t03", "r01t04"]
# In a mount namespace of its own, at the paths that a kubelet gives a pod.
POD = """
folder=/run/secrets/kubernetes.io/serviceaccount
mount -t tmpfs none /run && mkdir -p $folder && cp "$0/token" "$0/ca.crt" $folder && exec "$@"
"""


@pytest.fixture(scope="module")
def trays(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with the Nodes of four trays, and the service account `plugin-reader`."""
    plane.add_trays(control_plane, scenario.parse(FOUR))
    users.user(control_plane, "plugin-reader", RULES)
    yield control_plane
    for row in control_plane.api().items(nodes.PATH):
        control_plane.api().delete(f"{nodes.PATH}/{row['metadata']['name']}")


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files, in which no file is left; short, since Ansible makes a socket in it."""
    with tempfile.TemporaryDirectory(prefix="nvlink-") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)
        assert [path for path in Path(folder).rglob("*") if path.is_file() or "login" in path.name] == []


def credential(**status: Any) -> str:
    return json.dumps({"apiVersion": VERSION, "kind": "ExecCredential", "status": status})


def by_plugin(running: ControlPlane, folder: Path, script: str, outside: bool = False) -> Path:
    """The kubeconfig file of a user whose login plugin is a shell script."""
    (folder / "plugin").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "plugin").chmod(0o755)
    user = {"exec": {"apiVersion": VERSION, "command": "./plugin", "interactiveMode": "Never"}}
    server = f"https://{running.outside_address()}" if outside else running.server
    target = folder / "config"
    certificates.write_kubeconfig(target, certificates.kubeconfig(running.directory / "pki", server, user))
    return target


def of_certificate(running: ControlPlane, folder: Path) -> str:
    """A plugin that hands out the administrator's certificate."""
    texts = [(running.directory / "pki" / f"admin.{kind}").read_text() for kind in ("crt", "key")]
    (folder / "credential").write_text(credential(clientCertificateData=texts[0], clientKeyData=texts[1]))
    return "cat credential"


PLAY = """
- hosts: localhost
  gather_facts: false
  tasks:
    - rackscale.nvlink.k8s_topology: {{fabric_file: "{fabric}", api: {{kubeconfig: "{kubeconfig}", timeout: 60}}}}
"""


def test_an_ansible_worker_logs_in_by_a_plugin_and_leaves_no_key(
    trays: ControlPlane, tmp_path: Path, scratch: Path
) -> None:
    """Workers are forked and end without the exit handlers of Python."""
    (tmp_path / "fabric.json").write_bytes(fabric_file.serialise(fabrics.fabric(racks=1, trays=4)))
    kubeconfig = by_plugin(trays, tmp_path, of_certificate(trays, tmp_path), outside=True)
    (tmp_path / "play.yml").write_text(PLAY.format(fabric=tmp_path / "fabric.json", kubeconfig=kubeconfig))
    done = ansible("ansible-playbook", tmp_path / "play.yml", "--check", "--diff", "-vvv", TMPDIR=str(scratch))
    assert "failed=0" in done.stdout, done.stdout
    assert "PRIVATE KEY" not in done.stdout + done.stderr


@pytest.mark.long
@OLDEST_KUBERNETES
def test_the_service_account_of_a_pod(trays: ControlPlane, tmp_path: Path, scratch: Path) -> None:
    (tmp_path / "token").write_text(users.token_of(users.user(trays, "plugin-reader", RULES)))
    (tmp_path / "ca.crt").write_text(trays.authority.read_text())
    host, port = trays.server.removeprefix("https://").split(":")
    path = f"PYTHONPATH={environment()['ANSIBLE_COLLECTIONS_PATH']}"
    service = ["env", path, f"KUBERNETES_SERVICE_HOST={host}", f"KUBERNETES_SERVICE_PORT={port}"]
    program = [*service, sys.executable, "-c", OBSERVE, json.dumps({"kubeconfig": "in-cluster"})]
    done = trays.run("unshare", "--mount", "sh", "-c", POD, tmp_path, *program)
    assert sorted(json.loads(done.stdout)) == EVERYTHING
