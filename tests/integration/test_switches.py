# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook verify against the lab's NVLink switches: alone, and with trays whose GPUs follow them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import nvue
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.tests.lab.nvlab import paths, switch
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.clients.switch_domain import (
    ONE,
    TWO,
    Switches,
)
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.verify.verify_world import World

from . import pages
from .conftest import LabFactory, RunningLab
from .test_lab import wait_until

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
    rack.fault(mcast_limit="16")
    wanted = {"r01": {"r01": {"trays": "r01t[01-04]", "multicast_limit": 1024, "resiliency": "adaptive_bandwidth"}}}
    shell.type(f"{command} -e '{json.dumps({'nvlink_partitions': wanted})}'")
    assert [row["code"] for row in verdict(shell)["failures"]] == ["switch_partition_mode", "switch_multicast_limit"]
    rack.fault(health="DEGRADED", mcast_limit="1024")
    shell.type(command)
    assert [row["code"] for row in verdict(shell)["failures"]] == ["switch_partition_degraded"]
    assert "warning switch switch_partition_degraded: Switch r01sw1: NVLink partition 32766" in shell.reported
    # Both switches are off.
    rack.stop()
    began = time.monotonic()
    shell.type(f"{command} -vvvv")
    assert time.monotonic() - began < 60
    assert "2 of 2 switches of NVLink domain r01 cannot be read" in verdict(shell)["failures"][0]["message"]
    assert switch.PASSWORD not in shell.reported + (shell.folder / "verdict.json").read_text()


@pytest.mark.lab
@pytest.mark.long
def test_the_gpus_of_a_rack_follow_its_switch(lab: LabFactory, tmp_path: Path) -> None:
    with lab("switches.yml") as racks:
        made = pages.Shell(tmp_path)
        (tmp_path / "hosts.yml").write_text(racks.inventory.read_text())
        source = {"plugin": "rackscale.nvlink.fabric", "sources": ["fabric_file"], "fabric_file": "fabric.json"}
        (tmp_path / "cluster.nvlink.yml").write_text(yaml.safe_dump(source))
        made.type("ansible-playbook -i hosts.yml rackscale.nvlink.discover -e fabric_accept=gates")
        command = f"{pages.commands(PAGE)[0].replace('--tags quick ', '')} -e verify_fail=false"
        made.type(command)
        assert verdict(made)["layers"]["switch"] == "checked"
        before = [row["code"] for row in verdict(made)["failures"]]
        assert not [code for code in before if code.startswith("switch")]
        # A GPU leaves its partition, and the switch alone is the cause.
        [slot, host, *modules] = _places(racks)
        racks.set("r01sw1", f"out=1.{slot}.{host}.{modules[0]}")
        wait_until(lambda: "In Progress" in racks.exec("r01t01", "nvidia-smi", "-q", "-x").stdout, "the GPU leaves")
        made.type(command)
        after = [row for row in verdict(made)["failures"] if row["code"] not in before]
        assert [(row["layer"], row["code"], row["severity"], row["trays"]) for row in after] == [
            ("switch", "switch_gpu_unassigned", "error", ["r01t01"])
        ]
        # It joins a partition of its own, as its NVML reports.
        racks.set("r01sw1", "out=")
        switches = yaml.safe_load(racks.inventory.read_text())["all"]["children"]["nvlink_switches"]
        own = switches["hosts"]["r01sw1"]
        login = {"username": switch.USER, "password": switch.PASSWORD, "ca_file": own["nvue_ca_file"]}
        client = nvue.switch("r01sw1", {"url": f"https://127.0.0.1:{own['nvue_port']}", **login})
        gpu = f"1.{slot}.{host}.{modules[0]}"
        assert client.act("/sdn/partition/5", nvue.CREATE, {"name": "r01b", "location": [gpu]}, 60).state == nvue.DONE
        wait_until(
            lambda: "<cliqueId>5</cliqueId>" in racks.exec("r01t01", "nvidia-smi", "-q", "-x").stdout, "it joins"
        )
        # As a witness of discover the switch is quoted beside the GPUs, and places no tray.
        before = (tmp_path / "fabric.json").read_bytes()
        sources = json.dumps({"fabric_sources": ["ansible_facts", "nvue"]})
        made.type(f"ansible-playbook -i hosts.yml rackscale.nvlink.discover -e '{sources}'")
        assert (tmp_path / "fabric.json").read_bytes() == before
        found = json.loads((tmp_path / "fabric.state.json").read_text())["findings"]
        [text] = [row["message"] for row in found if row["code"] == "sources_disagree"]
        assert "lists GPUs of r01t01 of NVLink domain r01 in NVLink partition 5 and 32766, and the GPUs report" in text


def _places(racks: RunningLab) -> list[int]:
    """Slot and host of r01t01, and the modules of its GPUs."""
    facts = json.loads((paths.state_of(racks.name) / "hosts/r01t01/hardware.json").read_text())["facts"]
    return [facts["slot_number"], facts["host_id"], *(gpu["module_id"] for gpu in facts["gpus"])]
