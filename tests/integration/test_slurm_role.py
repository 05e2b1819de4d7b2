# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Slurm brought up on hosts that have none, then run by a site: trays added, replaced, down, and things that fail.

The whole story is told on Slurm 24.11 with munge; its first half again on 26.05 with auth/slurm.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .commands import ansible
from .conftest import RunningLab, running_lab

pytestmark = pytest.mark.lab

# What the lab has not: a driver with a device number, cgroup controllers in its containers, much memory for MariaDB.
LAB = {
    "slurm_imex_channels": 64,
    "slurm_imex_dev_major": 4,
    "slurm_cgroup_settings": {
        "CgroupPlugin": "disabled",
        "ConstrainCores": None,
        "ConstrainRAMSpace": None,
        "ConstrainDevices": None,
    },
    "slurm_settings": {
        "ProctrackType": "proctrack/pgid",
        "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "PrologFlags": "Alloc",
        "MessageTimeout": 20,
        "KillWait": 2,
        "SlurmdTimeout": 20,
    },
    "slurm_mariadb_settings": {"innodb_buffer_pool_size": "64M", "innodb_log_file_size": "16M"},
}
KEY = {"munge": "/etc/munge/munge.key", "slurm": "/etc/slurm/slurm.key"}
CHANNELS = "/dev/nvidia-caps-imex-channels"
day_two = pytest.mark.parametrize("site", ["empty.yml"], indirect=True)


class Site:
    """One lab of empty hosts with its fabric file; every method is what an operator would type."""

    def __init__(self, racks: RunningLab, directory: Path, auth: str) -> None:
        self.racks = racks
        self.fabric_file = directory / "fabric.json"
        self.inventory = directory / "cluster.nvlink.yml"
        self.inventory.write_text(
            json.dumps({"plugin": "rackscale.nvlink.fabric", "sources": ["fabric_file"], "fabric_file": "fabric.json"})
        )
        self.vars = directory / "vars.json"
        self.auth = auth
        self.vars.write_text(json.dumps({**LAB, "fabric_file": str(self.fabric_file), "slurm_auth": auth}))
        self.told = ""

    def playbook(self, name: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        inventories = ["-i", str(self.racks.inventory)]
        if self.fabric_file.exists():
            inventories += ["-i", str(self.inventory)]
        command = ["ansible-playbook", *inventories, f"rackscale.nvlink.{name}", "-e", f"@{self.vars}", *arguments]
        done = ansible(*command, check=check, timeout=400)
        self.told += done.stdout + done.stderr
        return done

    def discover(self, hosts: str) -> None:
        self.playbook("discover", "-e", "accept=gates", "-e", f"fabric_hosts={hosts}")

    def bring_up(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.playbook("slurm_bringup", *arguments, check=check)

    def ctl(self, script: str, check: bool = True) -> str:
        return self.racks.exec("ctl", "sh", "-c", script, check=check).stdout

    def nodes(self) -> dict[str, str]:
        return dict(line.split() for line in self.ctl("sinfo -hN -o '%N %t'").splitlines())

    def wait_for(self, states: dict[str, str], seconds: float = 30.0) -> None:
        deadline = time.monotonic() + seconds
        while states.items() - self.nodes().items():
            assert time.monotonic() < deadline, (self.nodes(), self.ctl("sinfo -R"))
            time.sleep(0.5)

    def submit(self, *arguments: str) -> str:
        """The id of a job that runs by now and sleeps."""
        done = self.racks.exec("ctl", "sbatch", "--parsable", "--output=/dev/null", *arguments, "--wrap=sleep 600")
        job = done.stdout.strip()
        deadline = time.monotonic() + 30
        while self.job(job)["JobState"] != "RUNNING":
            assert time.monotonic() < deadline, self.ctl(f"scontrol show job {job}")
            time.sleep(0.3)
        return job

    def job(self, job: str) -> dict[str, str]:
        return dict(word.partition("=")[::2] for word in self.ctl(f"scontrol -o show job {job}").split())

    def key(self, host: str) -> bytes:
        return base64.b64decode(self.racks.exec(host, "base64", "-w0", KEY[self.auth]).stdout)


def unchanged(done: subprocess.CompletedProcess[str]) -> bool:
    recap = done.stdout.partition("PLAY RECAP")[2]
    return 0 < recap.count("changed=") == recap.count("changed=0 ")


@pytest.fixture(scope="module", params=["empty.yml", "empty-forky.yml"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The tests of this module are the steps of one story."""
    directory = tmp_path_factory.mktemp("site")
    with running_lab(directory, request.param) as racks:
        yield Site(racks, directory, "slurm" if "forky" in request.param else "munge")


def test_a_check_of_empty_hosts_passes_and_installs_nothing(site: Site) -> None:
    site.discover("trays:!r01t04")
    done = site.bring_up("--check", "--diff", "-v")
    assert "packages installed: munge, slurmctld" in done.stdout
    assert "packages installed: munge, slurmd" in done.stdout
    for host in ("ctl", "r01t01"):
        assert "slurm" not in site.racks.exec(host, "sh", "-c", "dpkg-query -W; ls /etc").stdout


def test_one_run_leads_from_empty_hosts_to_a_running_job(site: Site) -> None:
    # On the second version in batches, as on a large site: what later trays have is assumed first, and seen then.
    batches = ("-e", "slurm_serial=2") if site.auth == "slurm" else ()
    site.bring_up("--diff", "-vvv", *batches)
    site.wait_for({"r01t01": "idle", "r01t02": "idle", "r01t03": "idle"})
    done = site.ctl(f"timeout 60 srun --nodes=2 --gres=gpu:2 --time=1 sh -c 'hostname; ls {CHANNELS}'")
    assert sorted(done.split()) == ["channel1", "channel1", "r01t01", "r01t02"]


def test_slurmctld_runs_what_the_fabric_file_and_the_trays_say(site: Site) -> None:
    lines = site.ctl("cat /etc/slurm/nvlink_nodes.conf").splitlines()[1:]
    assert len(lines) == 1, "trays of one kind are one line"
    assert re.match(r"NodeName=r01t\[01-03\] CPUs=\d+ .*RealMemory=\d+ Gres=gpu:4$", lines[0])
    config = site.ctl("scontrol show config")
    for setting in ("SlurmUser .*= slurm", "SwitchType .*= switch/nvidia_imex", f"AuthType .*= auth/{site.auth}"):
        assert re.search(setting, config), setting
    assert "BlockName=r01a" in site.ctl("scontrol show topology")
    assert site.racks.exec("r01t01", "ls", "/etc/slurm").stdout.count(".conf\n") <= 1, "trays are configless"
    assert site.ctl("sacctmgr -nP list cluster format=cluster").split() == ["nvlink"]


def test_a_second_run_and_a_check_change_nothing(site: Site) -> None:
    assert unchanged(site.bring_up())
    assert unchanged(site.bring_up("--check", "--diff"))


def test_secrets_are_their_owners_alone_and_stand_in_no_output(site: Site) -> None:
    key = site.key("ctl")
    assert len(key) == 128
    for host in ("r01t01", "r01t03"):
        assert site.key(host) == key
        owner = {"munge": "munge:munge 400", "slurm": "slurm:slurm 600"}[site.auth]
        assert site.racks.exec(host, "stat", "--format=%U:%G %a", KEY[site.auth]).stdout.strip() == owner
    assert site.ctl("stat --format='%U:%G %a' /etc/slurm/slurmdbd.conf /var/lib/slurm/slurmctld").split("\n")[:2] == [
        "slurm:slurm 600",
        "slurm:slurm 700",
    ]
    password = site.ctl("sed -n s/^StoragePass=//p /etc/slurm/slurmdbd.conf").strip()
    assert len(password) >= 40
    assert "TASK [rackscale.nvlink.slurm : Install slurmd" in site.told
    for secret in (password, base64.b64encode(key).decode(), key.hex(), repr(key)[2:40]):
        assert secret not in site.told
    journals = site.ctl("cat /var/log/slurm/*.log; journalctl --no-pager")
    assert password not in journals
    assert base64.b64encode(key).decode() not in journals


def test_two_jobs_at_once_have_different_channels(site: Site) -> None:
    jobs = [site.submit("--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=1", "--time=5") for _job in range(2)]
    seen = [set(site.ctl(f"srun --overlap --jobid={job} ls {CHANNELS}").split()) for job in jobs]
    assert all(len(channels) == 1 for channels in seen), "a job has one channel on all its trays"
    assert seen[0] != seen[1]
    site.ctl(f"scancel {' '.join(jobs)}")


@pytest.fixture(scope="module")
def job(site: Site) -> dict[str, Any]:
    """A job on the trays of the first clique that the rest of the story must not disturb."""
    number = site.submit("--nodes=2", "--nodelist=r01t01,r01t02", "--time=60")
    return {"id": number, "before": site.job(number)}


def undisturbed(site: Site, job: dict[str, Any]) -> bool:
    now = site.job(job["id"])
    return all(now[key] == job["before"][key] for key in ("JobState", "StartTime", "Restarts", "NodeList"))


@day_two
def test_a_tray_is_added_by_a_run_of_that_tray_alone(site: Site, job: dict[str, Any]) -> None:
    site.discover("r01t04")
    site.bring_up("--limit", "r01t04")
    site.wait_for({"r01t04": "idle", "r01t03": "idle"})
    assert "NodeName=r01t[01-04] " in site.ctl("cat /etc/slurm/nvlink_nodes.conf")
    assert re.search(r"BlockName=r01b .*Nodes=r01t\[03-04\]", site.ctl("scontrol show topology"))
    assert undisturbed(site, job)
    assert unchanged(site.bring_up())


@day_two
def test_a_tray_that_is_down_keeps_its_line_and_comes_back_empty(site: Site, job: dict[str, Any]) -> None:
    before, key = site.ctl("cat /etc/slurm/*.conf"), site.key("ctl")
    site.racks.stop("r01t03")
    done = site.bring_up(check=False)
    assert re.search(r"r01t03 .*unreachable=1", done.stdout)
    assert done.stdout.count("unreachable=0    failed=0") == 4
    assert site.ctl("cat /etc/slurm/*.conf") == before
    site.racks.start("r01t03")
    site.bring_up("--limit", "r01t03")
    site.wait_for({"r01t03": "idle"}, 60)
    assert site.ctl("timeout 30 srun --nodelist=r01t03 hostname") == "r01t03\n"
    assert site.key("ctl") == key == site.key("r01t03"), "a key is made once"
    assert undisturbed(site, job)


@day_two
def test_what_slurmctld_refuses_is_told_and_taken_back(site: Site, job: dict[str, Any]) -> None:
    before = site.ctl("cat /etc/slurm/slurm.conf")
    settings = {**LAB["slurm_settings"], "SelectType": "select/nonsense"}  # type: ignore[dict-item]
    done = site.bring_up("-e", json.dumps({"slurm_settings": settings}), check=False)
    assert done.returncode != 0
    assert re.search(
        r"slurmctld refused the new configuration \(.*select.*\); the files of before are back\.", done.stdout
    )
    assert site.ctl("cat /etc/slurm/slurm.conf") == before
    assert undisturbed(site, job)
    assert unchanged(site.bring_up())


@day_two
def test_a_tray_with_a_job_does_not_leave_by_accident(site: Site, job: dict[str, Any]) -> None:
    document = json.loads(site.fabric_file.read_text())
    del document["trays"]["r01t02"]
    other = site.fabric_file.with_name("other.json")
    other.write_text(json.dumps(document, sort_keys=True, indent=1) + "\n")
    done = site.bring_up("-e", f"slurm_fabric_file={other}", "--limit", "ctl", check=False)
    assert f"r01t02 left the fabric file and still runs job {job['id']}" in done.stdout
    assert "NodeName=r01t[01-04] " in site.ctl("cat /etc/slurm/nvlink_nodes.conf")
    assert undisturbed(site, job)


@day_two
@pytest.mark.parametrize(
    ("settings", "unit", "why"),
    [
        ({"slurm_mariadb_settings": {"innodb_page_size": "nonsense"}}, "mariadb", "InnoDB"),
        ({"slurm_dbd_settings": {"StorageType": "accounting_storage/nonsense"}}, "slurmdbd", "accounting_storage"),
    ],
    ids=["mariadb", "slurmdbd"],
)
def test_accounting_that_does_not_start_is_one_sentence(
    site: Site, job: dict[str, Any], settings: dict[str, Any], unit: str, why: str
) -> None:
    files = "cat /etc/mysql/mariadb.conf.d/60-slurm.cnf /etc/slurm/slurmdbd.conf"
    before = site.ctl(files)
    done = site.bring_up("-e", json.dumps(settings), check=False)
    told = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("[ERROR]")]
    assert len(told) == 1, done.stdout
    assert re.search(rf"{unit}.service does not start \(.*({why}).*\): .*; the .* of before is back\.", told[0])
    assert site.ctl(files) == before
    assert site.ctl("systemctl is-active mariadb slurmdbd").split() == ["active", "active"]
    assert undisturbed(site, job)


@day_two
def test_accounting_that_was_stopped_is_started_again(site: Site, job: dict[str, Any]) -> None:
    site.ctl("systemctl stop slurmdbd mariadb")
    assert "slurmdbd.service started" in site.bring_up("-v").stdout
    assert unchanged(site.bring_up())
    assert undisturbed(site, job)


@day_two
def test_the_health_check_drains_a_tray_and_resumes_what_it_drained(site: Site) -> None:
    program = "/usr/local/sbin/nvlink-slurm-health"
    site.racks.exec("r01t03", program)
    assert site.nodes()["r01t03"] == "idle"
    site.racks.set("r01t03", "gpu1.state=in_progress")
    site.racks.exec("r01t03", program)
    assert site.nodes()["r01t03"].startswith("drain")
    assert "nvlink: 3 of 4 GPUs are in their NVLink fabric" in site.ctl("sinfo -hR -o '%E %N'")
    site.racks.set("r01t03", "gpu1.state=completed")
    site.racks.exec("r01t03", program)
    site.wait_for({"r01t03": "idle"})
    site.ctl("scontrol update nodename=r01t03 state=drain reason=mine")
    site.racks.exec("r01t03", program)
    assert site.nodes()["r01t03"].startswith("drain"), "what a person drained stays drained"
    site.ctl("scontrol update nodename=r01t03 state=resume")


@day_two
def test_the_job_has_seen_all_this_and_still_runs(site: Site, job: dict[str, Any]) -> None:
    assert undisturbed(site, job)
    site.ctl(f"scancel {job['id']}")
