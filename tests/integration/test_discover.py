# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""discover and accept as a site runs them: real ansible-playbook processes, and trays that are directories here."""

from __future__ import annotations

import functools
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.tests.lab.nvml import local_trays
from ansible_collections.rackscale.nvlink.tests.lab.nvml.fleets import fleet

from .commands import CONFIG, ansible, environment, on_terminal


class Site:
    """Two racks of two trays, an inventory of them and a directory for the fabric file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / "site" / "fabric.json"
        self.path.parent.mkdir()
        self.facts = fleet(racks=2, trays_per_rack=2)
        self.hosts: dict[str, dict[str, Any]] = {}
        # Of the group all.
        self.variables: dict[str, Any] = {}
        self.ssh = local_trays.program(directory / "ssh", local_trays.SSH_TO_NOWHERE)
        for name in self.facts:
            self.set_site(name)
            self.hosts[name] = {
                "ansible_connection": "local",
                "ansible_python_interpreter": str(directory / name / "python"),
                "fabric_facts_backend": "nvidia_smi",
                "fabric_facts_ip": "ip",
            }

    def set_site(self, name: str) -> None:
        """Write the current facts of a tray, which its programs print."""
        local_trays.write_tray(self.directory / name, self.facts[name])

    def move(self, name: str, clique_id: int) -> None:
        for gpu in self.facts[name]["gpus"]:
            gpu["fabric"]["clique_id"] = clique_id
        self.set_site(name)

    def cut_off(self, *names: str) -> None:
        for name in names:
            self.hosts[name].update(ansible_connection="ssh", ansible_ssh_executable=str(self.ssh))

    def write_inventory(self) -> Path:
        inventory = self.directory / "hosts.yml"
        inventory.write_text(yaml.safe_dump({"all": {"vars": self.variables}, "trays": {"hosts": self.hosts}}))
        return inventory

    def discover(self, *arguments: str, check: bool = True, **environment: str) -> str:
        inventory = self.write_inventory()
        extra = ("-e", f"fabric_file={self.path}", *arguments)
        done = ansible(
            "ansible-playbook", "-i", inventory, "rackscale.nvlink.discover", *extra, check=check, **environment
        )
        return self._said(done, check)

    def accept(self, *arguments: str, check: bool = True) -> str:
        extra = ("-e", f"fabric_file={self.path}", *arguments)
        return self._said(ansible("ansible-playbook", "rackscale.nvlink.accept", *extra, check=check), check)

    def answer(self, word: str) -> tuple[int, str]:
        """(exit status, output) of accept on a terminal where a person types this word when it asks."""
        accept = ("-m", "ansible", "playbook", "rackscale.nvlink.accept", "-e", f"fabric_file={self.path}")
        settings = environment(ANSIBLE_CONFIG=str(CONFIG))
        return on_terminal(word, "yes or no", (sys.executable, *accept), self.path.parent, settings)

    def _said(self, done: subprocess.CompletedProcess[str], check: bool) -> str:
        assert check or done.returncode != 0, done.stdout
        return done.stdout + done.stderr

    def accept_first(self) -> None:
        """Place what a first discovery by gates leaves; it runs once, and its files are the same for each site."""
        self.write_inventory()
        for name, (content, mode) in first_discovery().items():
            (self.path.parent / name).write_bytes(content)
            (self.path.parent / name).chmod(mode)

    def files(self) -> dict[str, bytes]:
        return {child.name: child.read_bytes() for child in self.path.parent.iterdir()}

    def fabric(self) -> dict[str, Any]:
        return json.loads(self.path.read_text())

    def states(self) -> dict[str, str]:
        trays = json.loads(self.path.with_name("fabric.state.json").read_text())["trays"]
        return {name: tray["state"] for name, tray in trays.items()}


@functools.cache
def first_discovery() -> dict[str, tuple[bytes, int]]:
    """File -> (content, mode) after the first discovery of a site whose trays are all up."""
    with tempfile.TemporaryDirectory(prefix="nvlink-site-") as folder:
        site = Site(Path(folder))
        site.discover("-e", "fabric_accept=gates")
        files = [child for child in site.path.parent.iterdir() if child.is_file()]
        assert {child.name for child in files} >= {"fabric.json", "fabric.state.json"}
        return {child.name: (child.read_bytes(), child.stat().st_mode) for child in files}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture
def discovered(site: Site) -> Site:
    """A site with an accepted fabric file."""
    site.accept_first()
    return site


def shown(output: str) -> list[str]:
    """The lines that discover shows at its end, its summary last."""
    found: list[str] = json.loads(re.findall(r'"msg": (\[.*?\n    \])', output, re.DOTALL)[-1])
    return found


def message(output: str) -> str:
    """The summary of discover."""
    return shown(output)[-1]


def changed(output: str) -> int:
    return sum(map(int, re.findall(r"changed=(\d+)", output)))


def sha256_of(output: str) -> str:
    return re.findall(r"fabric_proposal=([0-9a-f]{64})", output)[-1]


def test_a_proposal_from_discovery_to_acceptance(site: Site) -> None:
    proposed = site.discover("--diff")
    assert "4 trays, 4 placed: review " in message(proposed)
    assert [line.split()[:4] for line in shown(proposed)[:2]] == [
        ["tray", "from", "to", "why"],
        ["r01t[01-02]", "none", "r01", "placed"],
    ]
    assert "\nr01t01: none -> r01 (placed " in proposed
    review = site.path.with_name("fabric.proposed.md").read_text()
    assert "    r01t[01-02]  none  r01  placed " in review
    assert not site.path.exists()
    # Ansible shows no difference of a task that changes nothing.
    repeated = site.discover("--diff")
    assert changed(repeated) == 0
    assert "r01t01: none -> r01 (" in shown(repeated)[0]

    refused = site.accept("-e", f"fabric_proposal={'0' * 64}", check=False)
    assert f"fabric.proposed.json: sha256 is {sha256_of(proposed)}, not the 0000" in refused
    assert not site.path.exists()

    assert changed(site.accept("-e", f"fabric_proposal={sha256_of(proposed)}")) == 1
    assert sorted(site.files()) == ["fabric.audit.jsonl", "fabric.json", "fabric.state.json"]
    assert [tray["imex_address"] for tray in site.fabric()["trays"].values()] == [
        f"10.0.{rack}.{tray}" for rack in (1, 2) for tray in (1, 2)
    ]

    before = site.path.read_bytes()
    again = site.discover()
    assert (changed(again), site.path.read_bytes()) == (0, before)
    assert message(again).endswith(f"no tray changes its place in {site.path}")
    assert site.states() == dict.fromkeys(site.facts, "present")


def test_accept_shows_the_proposal_and_asks_on_a_terminal(site: Site) -> None:
    sha256 = sha256_of(site.discover())
    before = site.files()
    for status, output in ((2, site.accept(check=False)), site.answer("no")):
        assert status == 2
        assert "r01t[01-02]" in output
        assert f"rackscale.nvlink.accept -e fabric_file={site.path} -e fabric_proposal={sha256}" in output
        assert site.files() == before
    status, output = site.answer("yes")
    assert (status, hashlib.sha256(site.path.read_bytes()).hexdigest()) == (0, sha256), output


@pytest.mark.long
def test_a_proposal_of_another_job_is_accepted_by_its_sum_and_file_alone(discovered: Site, tmp_path: Path) -> None:
    """The project folder is only read by the job that discovers, whose state folder is gone when another accepts."""
    site, before = discovered, discovered.files()
    site.move("r02t02", 5)
    state, artifact = tmp_path / "state", tmp_path / "artifact.json"
    state.mkdir()
    sha256 = sha256_of(site.discover("-e", f"fabric_state_dir={state}"))
    assert site.files() == before
    (state / "fabric.proposed.json").rename(artifact)
    for left in state.iterdir():
        left.unlink()
    site.accept("-e", f"fabric_proposal={sha256}", "-e", f"fabric_proposal_file={artifact}")
    assert site.fabric()["trays"]["r02t02"]["clique"] == "r02a"


def test_trays_that_are_down_or_broken_keep_their_places(discovered: Site) -> None:
    before = discovered.path.read_bytes()
    discovered.cut_off("r01t01")
    # A tray on which no module can run at all.
    (discovered.directory / "r01t02" / "python").write_text("#!/bin/sh\nexit 1\n")
    # A tray that answers something else.
    (discovered.directory / "r02t01" / "nvidia-smi.xml").write_text("{{ lookup('pipe', 'id') }}\n<oops>")
    output = discovered.discover("-e", "fabric_accept=gates")
    assert discovered.path.read_bytes() == before
    assert discovered.states() == {"r01t01": "stale", "r01t02": "stale", "r02t01": "stale", "r02t02": "present"}
    assert shown(output) == [
        "stale: 1 tray (r01t01): connect to host: No route to host",
        "stale: 1 tray (r01t02): its Python interpreter returned no result",
        "stale: 1 tray (r02t01): not all its GPUs are attached to one clique",
        f"4 trays, 3 stale: no tray changes its place in {discovered.path}",
    ]


def test_hostile_text_is_never_evaluated(site: Site) -> None:
    evil = "{{ lookup('pipe', 'touch ' ~ inventory_dir ~ '/owned') }}"
    xml = site.directory / "r01t01" / "nvidia-smi.xml"
    serial = site.facts["r01t01"]["chassis_serial"]
    xml.write_text(xml.read_text().replace(serial, evil).replace("580.173.02", evil + "\n[1-3]"))
    site.hosts["r01t02"]["ansible_ssh_executable"] = str(site.ssh)
    site.ssh.write_text(f'#!/bin/sh\necho "{evil}" >&2\nexit 255\n')
    site.cut_off("r01t02")
    site.discover("-e", "fabric_accept=gates", "--diff")
    assert not (site.directory / "owned").exists()
    assert b"{{" not in b"".join(site.files().values())
    assert site.fabric()["trays"]["r01t01"]["clique"] == "r01"


@pytest.mark.long
def test_node_names_of_the_site(site: Site) -> None:
    variables = {
        "fabric_slurm_node": "gpu-{{ inventory_hostname[1:3] }}-{{ inventory_hostname[4:] }}",
        "fabric_slurm_cluster": "{{ 'alpha' if inventory_hostname != 'r02t02' else 'beta' }}",
        "fabric_kubernetes_cluster": "k1",
        "fabric_domain_names": {site.facts["r02t01"]["chassis_serial"]: "hall_b"},
        "fabric_expected_trays": 18,
        "imex_network": ["10.0.0.0/16"],
        "fabric_accept": "gates",
    }
    # As variables of the inventory, for extra variables reach every host in any case.
    site.variables = variables
    site.discover()
    fabric = site.fabric()
    nodes = [f"gpu-{name[1:3]}-{name[4:]}" for name in site.facts]
    assert [tray["slurm_node"] for tray in fabric["trays"].values()] == nodes
    assert sorted(fabric["cliques"]) == ["hall_b", "r01"]
    assert fabric["domains"]["r01"]["expected_trays"] == 18
    assert fabric["clusters"]["kubernetes"] == {"k1": {}}
    blocks = {name: sorted(cluster["blocks"]) for name, cluster in fabric["clusters"]["slurm"].items()}
    assert blocks == {"alpha": ["hall_b", "r01"], "beta": ["hall_b"]}


def test_a_variable_of_the_run_that_only_trays_have_is_an_error(site: Site) -> None:
    site.hosts["r02t01"]["fabric_moved_percent"] = 50
    site.hosts["r02t02"] |= {"imex_network": ["10.0.0.0/16"], "tray_reading": "ansible"}
    output = site.discover(check=False)
    names = "fabric_moved_percent, imex_network, tray_reading"
    assert f"{names}: set for trays with another value than for localhost, where it" in output
    assert site.files() == {}


@pytest.mark.long
def test_a_variable_of_the_group_all_sets_the_batches_and_none_sets_the_hosts(site: Site) -> None:
    site.variables = {"fabric_serial": 1, "fabric_accept": "gates"}
    assert site.discover("-e", "fabric_hosts=r01*").count("TASK [Read the GPUs]") == 2
    assert sorted(site.fabric()["trays"]) == ["r01t01", "r01t02"]
    site.cut_off("r01t02")
    nobody = site.discover("--limit", "r01t02,localhost", check=False)
    assert "no tray answered: 1 tray (r01t02): connect to host: No route to host; correct this " in nobody
    assert site.states() == {"r01t01": "present", "r01t02": "stale"}, "a run changes only its targets"
    site.variables["fabric_hosts"] = "r01*"
    output = " ".join(site.discover(check=False).split())
    assert "Ansible does not read the hosts of a play; put these hosts into the group trays, or use -e " in output
