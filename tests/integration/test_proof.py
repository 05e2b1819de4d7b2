# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The whole way once: trays are discovered, accepted, given to Slurm, and jobs follow them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from .commands import ansible
from .conftest import RunningLab, running_lab

pytestmark = pytest.mark.lab

CHANGE = """\
- name: Change the tray
  ansible.builtin.copy:
    dest: /opt/changed
    content: ""
    mode: "0600"
"""


class Site:
    """One lab with its fabric file; every method is what an operator would type."""

    def __init__(self, racks: RunningLab, directory: Path) -> None:
        self.racks = racks
        self.directory = directory
        self.fabric_file = directory / "fabric.json"
        self.inventory = directory / "cluster.nvlink.yml"
        self.inventory.write_text(
            json.dumps({"plugin": "rackscale.nvlink.fabric", "sources": ["fabric_file"], "fabric_file": "fabric.json"})
        )

    def playbook(self, name: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run one of the collection's playbooks on the lab; both its inventory and the fabric's are given."""
        inventories = ["-i", str(self.racks.inventory)]
        if self.fabric_file.exists():
            inventories += ["-i", str(self.inventory)]
        file = f"fabric_file={self.fabric_file}"
        command = ["ansible-playbook", *inventories, f"rackscale.nvlink.{name}", "-e", file]
        return ansible(*command, *arguments, check=check)

    def slurm(self) -> str:
        return self.playbook("slurm", "-e", "slurm_topology_manage_conf=true", "--diff").stdout

    def rollout(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Drain, change and resume the trays of r01b."""
        hook = self.directory / "hook.yml"
        hook.write_text(CHANGE)
        steps = {"rollout_steps": ["drain", "hook", "resume"], "rollout_hook": str(hook), "rollout_trays": "r01b"}
        return self.playbook("rollout", "-e", json.dumps({"rollout_name": "change", **steps}), *arguments, check=check)

    def members(self, clique: str) -> set[str]:
        trays = json.loads(self.fabric_file.read_text())["trays"]
        return {name for name, tray in trays.items() if tray["clique"] == clique}

    def job(self, *arguments: str) -> set[str]:
        """Where the tasks of a real job ran."""
        done = self.racks.exec("ctl", "timeout", "120", "srun", "--time=1", *arguments, "hostname")
        return set(done.stdout.split())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The tests of this module are steps of one sequence."""
    directory = tmp_path_factory.mktemp("site")
    with running_lab(directory, "four-forky.yml") as racks:
        yield Site(racks, directory)


def test_the_trays_are_discovered_over_ssh_accepted_and_slurms_blocks(site: Site) -> None:
    site.playbook("discover", "-e", "fabric_accept=gates")
    assert site.members("r01a") == {"r01t01", "r01t02"}
    assert site.members("r01b") == {"r01t03", "r01t04"}
    site.slurm()
    running = site.racks.exec("ctl", "scontrol", "show", "topology").stdout
    assert re.search(r"BlockName=r01a .*Nodes=r01t\[01-02\]", running)
    assert re.search(r"BlockName=r01b .*Nodes=r01t\[03-04\]", running)


def test_a_job_as_wide_as_a_clique_runs_inside_it(site: Site) -> None:
    cliques = [site.members("r01a"), site.members("r01b")]
    assert site.job("--nodes=2") in cliques
    assert site.job("--nodes=2", "--nodelist=r01t03") == site.members("r01b")
    assert site.job("--nodes=4") == cliques[0] | cliques[1]


def test_a_rollout_changes_no_tray_on_which_a_job_runs(site: Site) -> None:
    submit = ("sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", "--nodelist=r01t03", "--wrap=sleep 900")
    job = site.racks.exec("ctl", *submit).stdout.strip()
    wait = f"for i in $(seq 300); do [ $(squeue -h -j {job} -o %T) = RUNNING ] && exit; sleep 0.2; done; squeue; exit 1"
    site.racks.exec("ctl", "bash", "-c", wait)
    reason = "RMA 4711 State=IDLE"
    site.racks.exec("ctl", "scontrol", "update", "nodename=r01t02", "state=drain", f"reason={reason}")
    shown = site.playbook("render", "--tags", "report", "-e", "report_jobs=true").stdout
    assert re.search(rf"r01t03 .* {job}\b", shown), "its jobs stand next to a tray"
    assert re.search(r"r01t02 .* drained: RMA 4711", shown)
    verdict = site.directory / "verdict.json"
    site.playbook("verify", "--tags", "quick", "-e", f"verdict_file={verdict}", "-e", "verify_fail=false")
    nodes = json.loads(verdict.read_text())["slurm_nodes"]
    assert (nodes["r01t02"], sorted(nodes)) == (f"DRAIN+IDLE: {reason}", [f"r01t0{tray}" for tray in range(1, 5)])
    written = ("-e", f"render_dir={site.directory / 'rendered'}", "-e", f"verdict_file={verdict}")
    site.playbook("render", *written, "-e", '{"fabric_renderers": ["metrics"]}')
    numbers = (site.directory / "rendered" / "metrics" / "nvlink_fabric.prom").read_text()
    # One is drained, and the job runs on one.
    assert re.findall(r'idle_trays\{block="(\w+)".*\} (\d)', numbers) == [("r01a", "1"), ("r01b", "1")]
    assert re.findall(r'idle_segments\{segment="(\d)"\} (\d)', numbers) == [("1", "2"), ("2", "0")]
    site.racks.exec("ctl", "scontrol", "update", "nodename=r01t02", "state=resume")
    stopped = site.rollout("-e", "rollout_drain_wait=1", check=False)
    assert stopped.returncode != 0
    assert f"job {job} still runs after 1 seconds; wait for it to end" in " ".join(stopped.stdout.split())
    site.racks.exec("r01t03", "test", "!", "-e", "/opt/changed")
    assert site.racks.exec("ctl", "squeue", "-h", "-j", job, "-o", "%T").stdout.strip() == "RUNNING"

    site.racks.exec("ctl", "scancel", job)
    site.rollout()
    site.racks.exec("r01t03", "test", "-e", "/opt/changed")
    assert site.job("--nodes=2", "--nodelist=r01t03") == site.members("r01b")


def test_a_job_across_two_cliques_is_refused_if_one_would_hold_it(site: Site) -> None:
    done = site.racks.exec(
        "ctl", "timeout", "60", "srun", "--nodes=2", "--nodelist=r01t01,r01t03", "hostname", check=False
    )
    assert done.returncode != 0
    assert "Requested node configuration is not available" in done.stderr
    log = site.racks.exec("ctl", "sh", "-c", "cat /var/log/slurmctld.log").stdout
    assert "do not have shared block" in log, "it is the topology that refuses it"


def test_a_tray_moves_when_its_gpus_report_another_clique_and_the_next_job_follows_it(site: Site) -> None:
    """A proposal is reviewed by its sha256."""
    site.racks.set("r01t02", "clique=2")
    site.playbook("discover")
    proposed = json.loads((site.directory / "fabric.proposed.json").read_text())
    moved = {name: row["clique"] for name, row in proposed["fabric"]["trays"].items() if name[:3] == "r01"}
    assert moved == {"r01t01": "r01a", "r01t02": "r01b", "r01t03": "r01b", "r01t04": "r01b"}
    assert "r01t02" in site.members("r01a"), "nothing moves before a person accepts"

    site.playbook("accept", "-e", f"fabric_proposal={proposed['sha256']}")
    assert "r01t02" in site.members("r01b")
    assert "r01t02: r01a -> r01b" in site.slurm()
    assert site.job("--nodes=3") == {"r01t02", "r01t03", "r01t04"}
