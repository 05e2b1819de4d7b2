# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook partition on two racks with Slurm, IMEX and NVLink switches: all layers follow, and no job is lost."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import nvue

from . import pages
from .conftest import CHECKOUT, lab_command, running_lab
from .test_day_two import CHANGED, ENTRY, Site
from .test_lab import wait_until

sys.path.insert(0, str(CHECKOUT / "tests" / "lab"))
from nvlab import imex, switch

pytestmark = [pytest.mark.lab, pytest.mark.long]

SCENARIO = """\
suite: forky
racks:
  - {name: r01, trays: 4, gpus: 1, switches: 2}
  - {name: r02, trays: 2, gpus: 1, switches: 1}
"""
PLAYBOOK = "ansible-playbook rackscale.nvlink.partition"

# The test of a clique, which on real trays sends data over NVLink.
TESTED = "/run/clique-tested"


class Partitioned(Site):
    """The site, and what its switches, its journals, IMEX and Slurm have."""

    def wish(self, value: Any) -> str:
        return f"{PLAYBOOK} -e '{json.dumps({'nvlink_partitions': {'r01': value}})}'"

    def planned(self, command: str) -> str:
        """The SHA-256 of the plan that a dry run prints."""
        output = self.timed(f"{command} --check --diff")
        [sha256] = set(re.findall(r"\b[0-9a-f]{64}\b", output))
        return str(sha256)

    def timed(self, command: str) -> str:
        started = time.monotonic()
        output = self.type(command).stdout
        print(f"{time.monotonic() - started:.0f} s: {command}")
        return output

    def partitions(self, name: str = "r01sw1") -> dict[int, list[str]]:
        """Partition on the switch -> the slots of its GPUs."""
        hosts = self.racks_inventory["nvlink_switches"]["hosts"][name]
        login = {"username": switch.USER, "password": switch.PASSWORD, "ca_file": hosts["nvue_ca_file"]}
        client = nvue.switch(name, {"url": f"https://127.0.0.1:{hosts['nvue_port']}", **login})
        return {row.id: sorted(gpu.location for gpu in row.gpus) for row in client.partitions()}

    @property
    def racks_inventory(self) -> dict[str, Any]:
        found: dict[str, Any] = yaml.safe_load(self.racks.inventory.read_text())["all"]["children"]
        return found

    def imex_nodes(self, tray: str) -> list[str]:
        """The addresses of the IMEX domain of a tray."""
        return self.racks.exec(tray, "cat", "/etc/nvidia-imex/nodes_config.cfg").stdout.split()

    def blocks(self) -> dict[str, str]:
        shown = self.racks.exec("ctl", "scontrol", "show", "topology").stdout
        return dict(re.findall(r"BlockName=(\S+) .*?Nodes=(\S*)", shown))

    def tiers(self) -> set[str]:
        shown = self.racks.exec("ctl", "sinfo", "-h", "-o", "%R %N").stdout
        return {line for line in shown.splitlines() if line.startswith("lease_")}

    def lines(self) -> list[dict[str, str]]:
        """The lines of the last change of r01."""
        every = [json.loads(line) for line in (self.folder / "fabric.partition-r01.jsonl").read_text().splitlines()]
        begins = max(number for number, line in enumerate(every) if line["step"] == "plan")
        return every[begins:]

    def steps(self) -> dict[str, str]:
        """Step -> its last state, of the last change of r01."""
        return {line["step"]: line["state"] for line in self.lines() if not line["code"]}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Partitioned]:
    folder, lab = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("lab")
    (lab / "racks.yml").write_text(SCENARIO)
    with running_lab(lab, lab / "racks.yml") as racks:
        lab_command("packages", "--name", racks.name, str(imex.packages()))
        site = Partitioned(folder, racks)
        # A partition for each block, so that tiers follow.
        variables = {
            "slurm_tiers": [{"name": "lease", "all": True, "per_block": True}],
            "slurm_tiers_manage_conf": True,
            "imex_owner": "domain",
            "rollout_clique_test": ["touch", TESTED],
        }
        with (folder / "group_vars" / "all.yml").open("a") as file:
            file.write("".join(f"{name}: {json.dumps(value)}\n" for name, value in variables.items()))
        site.type(pages.commands(ENTRY)[0])
        yield site


def test_a_rack_is_split_and_joined_again_while_jobs_run_elsewhere(site: Partitioned) -> None:
    job = site.racks.exec("ctl", "sbatch", "--parsable", "-w", "r02t01", "--wrap=sleep 3000").stdout.strip()
    wait_until(lambda: "r02t01" in site.racks.exec("ctl", "squeue", "-h", "-tR").stdout, "the job runs", 60)
    whole = {tray: site.imex_nodes(tray) for tray in ("r01t01", "r02t01")}
    split = site.wish("2x2")
    before = site.snapshot()
    sha256 = site.planned(split)
    assert site.snapshot() == before
    site.timed(f"{split} -e partition_plan={sha256}")
    assert set(site.steps().values()) == {"done"}, site.steps()
    assert sorted(map(len, site.partitions().values())) == [0, 2, 2]
    cliques = {tray: site.clique(tray) for tray in site.fabric["trays"] if tray.startswith("r01")}
    assert cliques["r01t01"] == cliques["r01t02"] != cliques["r01t03"] == cliques["r01t04"]
    assert site.imex_nodes("r01t01") == whole["r01t01"][:2]
    assert site.imex_nodes("r02t01") == whole["r02t01"]
    assert site.blocks()[cliques["r01t01"]] == "r01t[01-02]"
    assert site.tiers() == {"lease_r01a r01t[01-02]", "lease_r01b r01t[03-04]", "lease_r02 r02t[01-02]"}
    assert site.drained() == {}
    # Of each new clique together, before any job.
    for tray in cliques:
        site.racks.exec(tray, "test", "-e", TESTED)
    assert job in site.racks.exec("ctl", "squeue", "-h", "-tR").stdout
    # A second run changes nothing.
    output = site.timed(split)
    assert {int(number) for _host, number in CHANGED.findall(output)} == {0}

    joined = site.wish("default")
    sha256 = site.planned(joined)
    site.timed(f"{joined} -e partition_plan={sha256}")
    assert sorted(map(len, site.partitions().values())) == [4]
    assert {site.clique(tray) for tray in cliques} == {"r01"}
    assert site.tiers() == {"lease_r01 r01t[01-04]", "lease_r02 r02t[01-02]"}
    assert site.imex_nodes("r01t01") == whole["r01t01"]
    assert site.drained() == {}
    assert job in site.racks.exec("ctl", "squeue", "-h", "-tR").stdout


def test_a_change_that_cannot_be_made_is_undone(site: Partitioned) -> None:
    split, before = site.wish("2x2"), (site.partitions(), site.fabric)
    # Another plan than the one that a person has reviewed, and a job on a tray that changes clique.
    output = site.fails(f"{split} -e partition_plan={'0' * 64}")
    assert "review it again" in output
    job = site.racks.exec("ctl", "sbatch", "--parsable", "-w", "r01t01", "--wrap=sleep 3000").stdout.strip()
    wait_until(lambda: "r01t01" in site.racks.exec("ctl", "squeue", "-h", "-tR").stdout, "the job runs", 60)
    assert "jobs run on 1 tray (r01t01) of NVLink domain r01; wait until that has ended" in site.fails(split)
    sha256 = site.planned(f"{split} -e partition_override=jobs")
    run = f"{split} -e partition_override=jobs -e partition_plan={sha256}"
    assert f"jobs still run on r01t01 ({job})" in site.fails(f"{run} -e drain_wait=2")
    assert set(site.drained()) == {f"r01t0{number}" for number in range(1, 5)}
    assert site.racks.exec("ctl", "scancel", job).returncode == 0

    # Nothing has been sent to the switch, and the trays return.
    output = site.timed(f"{split} -e partition_rollback=true")
    assert "steps left on the way back" in output
    assert (site.partitions(), site.fabric) == before
    assert (site.drained(), set(site.steps().values())) == ({}, {"done"})

    # The switch refuses an addition half-way.
    sha256 = site.planned(split)
    site.racks.set("r01sw1", "refuse=2")
    output = site.fails(f"{split} -e partition_plan={sha256}")
    assert "The partitions of NVLink domain r01 are as before: Switch r01sw1 " in output
    assert "refuses the addition of the GPU " in output
    site.racks.set("r01sw1", "refuse=")
    assert (site.partitions(), site.fabric) == before
    assert (site.drained(), set(site.steps().values())) == ({}, {"done"})
