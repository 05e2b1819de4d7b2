# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook verify against the lab's NVLink switches, which run here: no host of a lab is needed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.tests.lab.nvlab import switch
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.clients.switch_domain import (
    ONE,
    TWO,
    Switches,
)
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.verify.verify_world import World

from . import pages

PAGE = "docs/switches.md"


@pytest.fixture
def rack(tmp_path: Path) -> Iterator[Switches]:
    world = World()
    (tmp_path / "site").mkdir()
    (tmp_path / "site/fabric.json").write_bytes(fabric_file.serialise(world.fabric))
    trays = {tray: row["gpu"] for tray, row in world.trays.items() if tray.startswith("r01")}
    running = Switches(tmp_path / "r01", trays)
    yield running
    running.stop()


@pytest.fixture
def shell(rack: Switches, tmp_path: Path) -> pages.Shell:
    """A shell in the folder of a site, whose password of the switches is in a vault."""
    site, ports = tmp_path / "site", [server.server_port for server in rack.servers]
    hosts = {
        name: {"ansible_host": "127.0.0.1", "nvue_port": port, "nvlink_switch_domain": "r01"}
        for name, port in zip((ONE, TWO), ports, strict=True)
    }
    inventory: dict[str, Any] = {"all": {"children": {"nvlink_switches": {"hosts": hosts}}}}
    (site / "hosts.yml").write_text(yaml.safe_dump(inventory))
    source = {"plugin": "rackscale.nvlink.fabric", "sources": ["fabric_file"], "fabric_file": "fabric.json"}
    (site / "cluster.nvlink.yml").write_text(yaml.safe_dump(source))
    (tmp_path / "vault").write_text("a password of the vault\n")
    made = pages.Shell(site, ANSIBLE_VAULT_PASSWORD_FILE=str(tmp_path / "vault"))
    secret = made.type(f"ansible-vault encrypt_string {switch.PASSWORD} --name nvue_password").stdout
    (site / "group_vars").mkdir()
    login = {"nvue_user": switch.USER, "nvue_ca_file": str(rack.folder / "ca.crt"), "nvue_server_name": "nvlink-switch"}
    (site / "group_vars/nvlink_switches.yml").write_text(f"{yaml.safe_dump(login)}{secret}")
    return made


def verdict(shell: pages.Shell) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((shell.folder / "verdict.json").read_text())
    return found


def test_the_page_of_the_switches_is_followed_and_a_fault_is_named(rack: Switches, shell: pages.Shell) -> None:
    shell.follow(PAGE, keep=("hosts.yml", "group_vars/nvlink_switches.yml"))
    assert (verdict(shell)["failures"], verdict(shell)["layers"]["switch"]) == ([], "checked")
    assert "all layers agree" in shell.reported
    [command] = pages.commands(PAGE)
    rack.fault(health="DEGRADED")
    shell.type(command)
    assert [row["code"] for row in verdict(shell)["failures"]] == ["switch_partition_degraded"]
    assert "warning switch switch_partition_degraded: Switch r01sw1: NVLink partition 32766" in shell.reported
    assert switch.PASSWORD not in shell.reported + (shell.folder / "verdict.json").read_text()
    # Both switches are off.
    rack.stop()
    began = time.monotonic()
    shell.type(command)
    assert time.monotonic() - began < 60
    assert "2 of 2 switches of NVLink domain r01 cannot be read" in verdict(shell)["failures"][0]["message"]
