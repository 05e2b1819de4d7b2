# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two racks of 36 real hosts, the second one split: discovered in two ways, broken in many, and no tray is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .commands import ansible
from .conftest import RunningLab, running_lab

pytestmark = [pytest.mark.lab, pytest.mark.long]

RACK_1 = [f"r01t{tray:02d}" for tray in range(1, 19)]
RACK_2 = [f"r02t{tray:02d}" for tray in range(1, 19)]
STOPPED = [*RACK_1[:5], RACK_2[0]]
HANGING = RACK_1[5:7]
LOST, ZERO = RACK_1[7], RACK_1[8]
TROUBLED = {*STOPPED, *HANGING, LOST, ZERO}


class Racks:
    """The lab with the files of one site."""

    def __init__(self, lab: RunningLab, directory: Path) -> None:
        self.lab, self.directory = lab, directory
        self.fabric_file = directory / "fabric.json"

    def discover(self, *sources: dict[str, Any] | str, file: Path | None = None, **more: object) -> str:
        """Run discover with gates, through the named sources; what it printed, on one line."""
        options = {
            "fabric_file": str(file or self.fabric_file),
            "fabric_hosts": "trays",
            "fabric_facts_timeout": 3,
            "fabric_accept": "gates",
            "fabric_sources": list(sources),
            **more,
        }
        done = ansible(
            "ansible-playbook",
            "-i",
            self.lab.inventory,
            "--forks=20",
            "rackscale.nvlink.discover",
            "-e",
            json.dumps(options),
        )
        return " ".join((done.stdout + done.stderr).split())

    @property
    def ssh(self) -> dict[str, Any]:
        config = f"/run/nvlink-lab/{self.lab.name}/ssh_config"
        return {"ssh": {"hosts": "r[01-02]t[01-18]", "ssh_options": ["-F", config], "timeout": 3, "connect_timeout": 5}}

    @property
    def fabric(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.fabric_file.read_text())
        return document

    @property
    def states(self) -> dict[str, str]:
        document = json.loads((self.directory / "fabric.state.json").read_text())
        return {name: tray["state"] for name, tray in document["trays"].items()}


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Racks]:
    """The tests of this module are the steps of one story."""
    directory = tmp_path_factory.mktemp("racks")
    with running_lab(directory, "two-racks.yml") as lab:
        yield Racks(lab, directory)


def test_over_ssh_and_over_ansible_the_file_is_the_same_to_the_byte(racks: Racks) -> None:
    other = racks.directory / "by-ssh.json"
    racks.discover("ansible_facts")
    racks.discover(racks.ssh, file=other)
    assert other.read_bytes() == racks.fabric_file.read_bytes()
    assert sorted(racks.fabric["trays"]) == RACK_1 + RACK_2
    assert [racks.fabric["trays"][name]["clique"] for name in (RACK_1[0], RACK_2[0], RACK_2[17])] == [
        "r01",
        "r02a",
        "r02b",
    ]


def test_after_many_faults_every_tray_has_its_place_and_a_reason(racks: Racks) -> None:
    before = racks.fabric_file.read_bytes()
    for name in STOPPED:
        racks.lab.stop(name)
    for name in HANGING:
        racks.lab.set(name, "nvml=hang", "smi=hang")
    racks.lab.set(LOST, "gpu2.lost=true")
    racks.lab.set(ZERO, "uuid=00000000-0000-0000-0000-000000000000")
    racks.discover("ansible_facts")
    assert racks.fabric_file.read_bytes() == before
    assert {name for name, state in racks.states.items() if state == "stale"} == TROUBLED


def test_a_split_rack_that_is_joined_again_moves_with_a_reason_for_each_tray(racks: Racks) -> None:
    before = racks.fabric
    for name in RACK_2:
        if name not in STOPPED:
            racks.lab.set(name, "clique=32766")
    racks.discover(racks.ssh, fabric_override="moved_percent,clique_shrank")
    after = racks.fabric
    assert sorted(after["trays"]) == sorted(before["trays"])
    joined = {name for name in RACK_2 if after["trays"][name]["clique"] == "r02c"}
    assert joined == set(RACK_2) - set(STOPPED)
    for name in joined:
        assert after["trays"][name]["why"].startswith("moved ")
    unmoved = set(after["trays"]) - joined
    assert {name: after["trays"][name] for name in unmoved} == {name: before["trays"][name] for name in unmoved}
    # What was given is never given again: the split cliques stand there still.
    assert {name: before["cliques"][name] for name in before["cliques"]}.items() <= after["cliques"].items()
