# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Slurm installed on bare hosts, then operated: trays added, replaced and down, backup controllers, and failures.

On Slurm 24.11 with munge a controller is extended and meets failures; on 26.05 with auth/slurm there are tiers and two
controllers from the first run on. So both releases and both kinds of authentication are installed once.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .commands import ansible
from .conftest import CHECKOUT, RunningLab, running_lab
from .slurm_site import wait_for

sys.path.insert(0, str(CHECKOUT / "tests" / "lab"))
from nvlab.host import SHARED_PLACE

pytestmark = [pytest.mark.lab, pytest.mark.long]

# Limits of the lab: no driver with a device number, little memory for MariaDB, little time.
LAB: dict[str, Any] = {
    "slurm_imex_channel_count": 64,
    "slurm_imex_dev_major": 4,
    "slurm_state_dir": f"{SHARED_PLACE}/slurmctld",
    "slurm_settings": {"MessageTimeout": 20, "KillWait": 2, "SlurmdTimeout": 20, "SlurmctldTimeout": 10},
    "slurm_mariadb_settings": {"innodb_buffer_pool_size": "64M", "innodb_log_file_size": "16M"},
}
# Slurm's cgroup/v2 refuses a machine that has cgroups of both versions, and a lab's host has no controllers where it
# has v2 alone. On the former Slurm's cgroup/v1 constrains jobs, with the role's own settings; on the latter nothing.
CONSTRAINED = {"slurm_cgroup_settings": {"CgroupPlugin": "cgroup/v1", "CgroupMountpoint": "/run/cgroup-v1"}}
UNCONSTRAINED = {
    "slurm_cgroup_settings": {
        "CgroupPlugin": "disabled",
        "ConstrainCores": None,
        "ConstrainRAMSpace": None,
        "ConstrainDevices": None,
    },
    "slurm_settings": {
        **LAB["slurm_settings"],
        "ProctrackType": "proctrack/pgid",
        "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "PrologFlags": "Alloc",
    },
}
CONTROLLERS_V1 = ("cpuset", "cpuacct", "memory", "devices", "freezer")
# In a folder of this lab alone; and each GPU needs its own device, or a job would be denied its own GPUs too.
PREPARE = """
for c in {controllers}; do
    mkdir -p /run/cgroup-all/$c /run/cgroup-v1/$c
    mount -t cgroup -o $c cgroup /run/cgroup-all/$c
    mkdir -p /run/cgroup-all/$c/{lab}
    [ $c != cpuset ] || for f in cpuset.mems cpuset.cpus; do
        cat /run/cgroup-all/$c/$f > /run/cgroup-all/$c/{lab}/$f
    done
    mount --bind /run/cgroup-all/$c/{lab} /run/cgroup-v1/$c
done
for n in 0 1 2 3; do umount /dev/nvidia$n; rm /dev/nvidia$n; mknod -m 666 /dev/nvidia$n c 195 $n; done
"""
KEY = {"munge": "/etc/munge/munge.key", "slurm": "/etc/slurm/slurm.key"}
CHANNELS = "/dev/nvidia-caps-imex-channels"
TIERS = [
    {"name": "all", "all": True, "default": True},
    {
        "name": "gold",
        "blocks": ["r01a"],
        "qos": {"priority": 1000, "max_tres_per_user": {"node": 1}, "preempt": ["bronze"]},
        "accounts": ["research"],
        "users": [{"name": "alice", "account": "research"}],
    },
    {"name": "bronze", "blocks": ["r01b"], "qos": {"priority": 1}, "users": [{"name": "bob", "account": "students"}]},
]
BOTH = ["ctl", "ctl2"]
day_two = pytest.mark.parametrize("site", ["empty.yml munge"], indirect=True)
newer = pytest.mark.parametrize("site", ["empty-forky.yml slurm"], indirect=True)


class Site:
    """A lab of bare hosts with its fabric file; the methods are the commands of an operator."""

    def __init__(self, racks: RunningLab, directory: Path, suite: str, auth: str) -> None:
        self.racks = racks
        self.directory = directory
        self.suite = suite
        self.fabric_file = directory / "fabric.json"
        self.inventory = directory / "cluster.nvlink.yml"
        self.inventory.write_text(
            json.dumps({"plugin": "rackscale.nvlink.fabric", "sources": ["fabric_file"], "fabric_file": "fabric.json"})
        )
        self.vars = directory / "vars.json"
        self.auth = auth
        self.constrained = set(CONTROLLERS_V1) <= set(_hierarchies())
        self.set(
            **LAB,
            fabric_file=str(self.fabric_file),
            slurm_auth=auth,
            slurm_controllers=["ctl"],
            slurm_controller_hosts="ctl",
        )
        self.set(**(CONSTRAINED if self.constrained else UNCONSTRAINED))
        self.output = ""

    def set(self, **variables: Any) -> None:
        """The site's variables from now on."""
        before = json.loads(self.vars.read_text()) if self.vars.exists() else {}
        self.vars.write_text(json.dumps({**before, **variables}))

    def prepare(self, *trays: str) -> None:
        """Mount the cgroup hierarchies and create the GPU devices that a lab's tray lacks."""
        if self.constrained:
            script = PREPARE.format(controllers=" ".join(CONTROLLERS_V1), lab=self.racks.name)
            for tray in trays:
                self.racks.exec(tray, "sh", "-ec", script)

    def playbook(
        self, name: str, *arguments: str, check: bool = True, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        inventories = ["-i", str(self.racks.inventory)]
        if self.fabric_file.exists():
            inventories += ["-i", str(self.inventory)]
        command = ["ansible-playbook", *inventories, f"rackscale.nvlink.{name}", "-e", f"@{self.vars}", *arguments]
        done = ansible(*command, check=check, timeout=400, **environment)
        if check:
            assert "returned more or other than what was asked" not in done.stderr, "modules document what they return"
        self.output += done.stdout + done.stderr
        return done

    def discover(self, hosts: str) -> None:
        self.playbook("discover", "-e", "fabric_accept=gates", "-e", f"fabric_hosts={hosts}")

    def bring_up(self, *arguments: str, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.playbook("slurm_bringup", *arguments, check=check, **environment)

    def ctl(self, script: str, check: bool = True) -> str:
        return self.racks.exec("ctl", "sh", "-c", script, check=check).stdout

    def on(self, host: str, script: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.racks.exec(host, "sh", "-c", script, check=check)

    def nodes(self) -> dict[str, str]:
        return dict(line.split() for line in self.ctl("sinfo -hN -o '%N %t'").splitlines())

    def wait_for(self, states: dict[str, str], seconds: float = 60.0) -> None:
        wait_for(lambda: states.items() <= self.nodes().items(), seconds)

    def submit(self, *arguments: str) -> str:
        """Submit a job that sleeps, and wait until it runs; its ID."""
        done = self.racks.exec("ctl", "sbatch", "--parsable", "--output=/dev/null", *arguments, "--wrap=sleep 1800")
        job = done.stdout.strip()
        wait_for(lambda: self.job(job)["JobState"] == "RUNNING")
        return job

    def job(self, job: str) -> dict[str, str]:
        return dict(field.partition("=")[::2] for field in self.ctl(f"scontrol -o show job {job}").split())

    def key(self, host: str) -> bytes:
        return base64.b64decode(self.racks.exec(host, "base64", "-w0", KEY[self.auth]).stdout)


def _hierarchies() -> dict[str, str]:
    """Controllers that the machine has in cgroups of the first version -> this process's group there."""
    rows = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    return {controller: path for _number, names, path in rows for controller in names.split(",")}


def _remove_cgroups(lab: str) -> None:
    """Cgroups of version 1 do not end with the processes of a lab."""
    for controller in CONTROLLERS_V1:
        root = Path(f"/sys/fs/cgroup/{controller}{_hierarchies().get(controller, '')}") / lab
        for folder in sorted([root, *root.rglob("*")] if root.is_dir() else [], reverse=True):
            if folder.is_dir():
                folder.rmdir()


@pytest.fixture(scope="module", params=["empty.yml munge", "empty-forky.yml slurm"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One lab for all tests of this module, which run in their order."""
    directory = tmp_path_factory.mktemp("site")
    scenario, auth = request.param.split()
    with running_lab(directory, scenario) as racks:
        name = racks.name
        site = Site(racks, directory, "forky" if "forky" in scenario else "trixie", auth)
        if site.suite == "forky":
            # Debian's logrotate rules cover the usual folder only.
            site.set(slurm_controllers=BOTH, slurm_controller_hosts="slurm_controller", slurm_tiers=TIERS)
            site.set(slurm_log_dir="/var/log/site")
            # The users exist before Slurm starts, which else reads their UIDs an hour later.
            for host in (*BOTH, "r01t01", "r01t02", "r01t03"):
                site.on(host, "useradd --uid 2001 alice; useradd --uid 2002 bob")
        site.prepare("r01t01", "r01t02", "r01t03", "r01t04")
        site.discover("trays:!r01t04")
        yield site
    _remove_cgroups(name)


@newer
def test_check_mode_on_bare_hosts_passes_and_installs_nothing(site: Site) -> None:
    done = site.bring_up("--check", "--diff", "-v")
    installs = "TASK [rackscale.nvlink.slurm : Install the packages]"
    first, second = done.stdout.split(installs)[1:]
    assert "changed: [ctl]" in first.partition("TASK")[0]
    assert "changed: [r01t01]" in second.partition("TASK")[0]
    for host in (*BOTH, "r01t01"):
        assert "slurm" not in site.racks.exec(host, "sh", "-c", "dpkg-query -W; ls /etc").stdout


def test_one_run_leads_from_bare_hosts_to_a_running_job(site: Site) -> None:
    # On the second version in batches, as on a large site.
    batches = ("-e", "slurm_serial=3") if site.suite == "forky" else ()
    kept = site.vars.parent / "kept"
    cache = {"ANSIBLE_CACHE_PLUGIN": "jsonfile", "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(kept / "facts")}
    kept.mkdir()
    site.bring_up("--diff", "-vvvv", *batches, **cache, ANSIBLE_LOG_PATH=str(kept / "ansible.log"))
    site.wait_for({"r01t01": "idle", "r01t02": "idle", "r01t03": "idle"})
    done = site.ctl(f"timeout 60 srun --nodes=2 --gres=gpu:2 --time=1 sh -c 'hostname; ls {CHANNELS}'")
    assert sorted(done.split()) == ["channel1", "channel1", "r01t01", "r01t02"]


def test_slurmctld_runs_the_nodes_of_the_fabric_file_with_measured_hardware(site: Site) -> None:
    lines = site.ctl("cat /etc/slurm/nvlink_nodes.conf").splitlines()[1:]
    found = [re.match(r"NodeName=(\S+) CPUs=\d+ .*RealMemory=\d+ Gres=gpu:4$", line) for line in lines]
    assert [match and match[1] for match in found] == ["r01t[01-02]", "r01t03"], "one line a clique"
    config = site.ctl("scontrol show config")
    for setting in ("SlurmUser .*= slurm", "SwitchType .*= switch/nvidia_imex", f"AuthType .*= auth/{site.auth}"):
        assert re.search(setting, config), setting
    assert "BlockName=r01a" in site.ctl("scontrol show topology")
    assert site.racks.exec("r01t01", "ls", "/etc/slurm").stdout.count(".conf\n") <= 1, "trays are configless"
    assert site.ctl("sacctmgr -nP list cluster format=cluster").split() == ["nvlink"]


def test_secrets_are_readable_by_their_owner_alone_and_in_no_output(site: Site) -> None:
    key = site.key("ctl")
    assert len(key) == 128
    for host in ("r01t01", "r01t03"):
        assert site.key(host) == key
        owner = {"munge": "munge:munge 400", "slurm": "slurm:slurm 400"}[site.auth]
        assert site.racks.exec(host, "stat", "--format=%U:%G %a", KEY[site.auth]).stdout.strip() == owner
    assert site.ctl(f"stat --format='%U:%G %a' {LAB['slurm_state_dir']}") == "slurm:slurm 700\n"
    password = site.ctl("sed -n s/^StoragePass=//p /etc/slurm/slurmdbd.conf").strip()
    assert len(password) >= 40
    assert "TASK [rackscale.nvlink.slurm : Configure slurmd" in site.output
    for secret in (password, base64.b64encode(key).decode(), key.hex(), repr(key)[2:40]):
        assert secret not in site.output
        # The log and the fact cache of the run that made them, the fabric file and its state.
        files = [path for path in site.vars.parent.rglob("*") if path.is_file()]
        assert any(path.name == "ansible.log" for path in files)
        assert [path.name for path in files if secret in path.read_text(errors="replace")] == []
    journals = site.ctl("cat /var/log/s*/slurm*.log; journalctl --no-pager")
    assert password not in journals
    assert base64.b64encode(key).decode() not in journals


def test_a_job_is_limited_to_its_cores_its_memory_and_its_gpus(site: Site) -> None:
    if not site.constrained:
        pytest.skip("the machine has cgroups of version 2 alone, which in a host of the lab have no controllers")
    threads = re.search(r"ThreadsPerCore=(\d+)", site.ctl("scontrol show node r01t01"))
    assert threads
    probe = "nproc; for n in 0 1 2 3; do (: < /dev/nvidia$n) || :; done"
    shown = site.on(
        "ctl", f"srun --quiet --nodelist=r01t01 --cpus-per-task=1 --mem=64 --gres=gpu:1 sh -c '{probe}' 2>&1"
    ).stdout
    assert re.findall(r"^\d+$", shown, re.MULTILINE) == [threads.group(1)]
    assert shown.count("Operation not permitted") == 3, "it may open its own GPU alone"
    allocate = "head -c 300m /dev/zero | tail > /dev/null"
    killed = site.on("ctl", f"srun --nodelist=r01t01 --cpus-per-task=1 --mem=64 sh -c '{allocate}' 2>&1", check=False)
    assert "Out Of Memory" in killed.stdout
    site.on("ctl", f"srun --nodelist=r01t01 --cpus-per-task=1 --mem=400 sh -c '{allocate}'")


ROTATE = """
rule=$(grep -l {log} /etc/logrotate.d/*)
main() {{ systemctl show --value --property=MainPID {daemon}; }}
before=$(main)
echo >> {log}
logrotate --force $rule
for _ in $(seq 200); do
    ls -l /proc/$before/fd | grep -q '{log}.1$' || break
    sleep 0.3
done
ls -l /proc/$before/fd | sed -n 's/.*-> //p'
echo rules $rule
[ $(main) = $before ]
"""


def test_logs_are_rotated_while_the_daemons_run(site: Site) -> None:
    folder = json.loads(site.vars.read_text()).get("slurm_log_dir", "/var/log/slurm")
    for host, daemon in (("ctl", "slurmctld"), ("ctl", "slurmdbd"), ("r01t01", "slurmd")):
        log = f"{folder}/{daemon}.log"
        shown = site.on(host, f"set -e; {ROTATE.format(log=log, daemon=daemon)}").stdout.splitlines()
        assert len(shown.pop().split()) == 2, "two rules for one log would stop logrotate"
        assert log in shown, f"{daemon} writes to the new file"
        assert f"{log}.1" not in shown, f"{daemon} has closed the old file"
    assert site.ctl("timeout 60 srun --nodelist=r01t01 --cpus-per-task=1 hostname") == "r01t01\n"


def test_file_modes_are_those_of_slurms_documentation(site: Site) -> None:
    """slurm.conf(5), FILE AND DIRECTORY PERMISSIONS, and slurmdbd.conf(5)."""
    modes = "stat --format='%n %U %a'"
    spool = site.on("r01t01", f"{modes} /var/lib/slurm/slurmd /etc/slurm/prolog.d /etc/slurm/prolog.d/*").stdout
    assert spool.splitlines() == [
        "/var/lib/slurm/slurmd slurm 755",
        "/etc/slurm/prolog.d root 755",
        "/etc/slurm/prolog.d/00-nvlink root 755",
    ]
    for host in json.loads(site.vars.read_text())["slurm_controllers"]:
        shown = site.on(host, f"{modes} /etc/slurm /etc/slurm/*.conf").stdout.splitlines()
        files = {name: rest for name, _space, rest in (line.partition(" ") for line in shown)}
        assert files.pop("/etc/slurm") == "root 755"
        assert (files.pop("/etc/slurm/slurmdbd.conf", None) == "slurm 600") is (host == "ctl")
        assert set(files.values()) == {"root 644"}


@newer
def test_the_first_run_has_configured_the_tiers(site: Site) -> None:
    shown = site.ctl("scontrol show partition gold; sacctmgr -nP list assoc format=account,user,qos")
    assert re.search(r"AllowQos=gold.* Nodes=r01t\[01-02\] ", shown.replace("\n", " "))
    assert "research|alice|gold" in shown
    assert "students|bob|bronze" in shown
    options = "--partition=gold --qos=gold"
    second = site.ctl(f"cd /tmp; runuser -u alice -- sbatch --parsable -o /dev/null -N2 {options} --wrap true").strip()
    wait_for(lambda: site.ctl(f"squeue -h -j {second} -o %r").strip() == "QOSMaxNodePerUserLimit")
    site.ctl(f"scancel {second}")
    for user, answer in (("alice", r"^r01t0[12]$"), ("bob", "Invalid qos specification")):
        job = f"cd /tmp; runuser -u {user} -- timeout 60 srun --nodes=1 {options} hostname 2>&1"
        output = site.on("ctl", job, check=False).stdout
        assert re.search(answer, output, re.MULTILINE), output


@newer
def test_a_new_tray_is_drained_before_its_slurmd_starts(site: Site) -> None:
    site.set(site_slurm="managed", imex_owner="none")
    output = site.playbook("resume", "-e", "resume_trays=r01t04", "--diff").stdout
    drained, started = (output.index(text) for text in ("r01t04: drained (nvlink: resume)", "Start slurmd]"))
    assert drained < started < output.index("r01t04: resumed")
    site.wait_for({"r01t04": "idle"})


@day_two
def test_a_backup_controller_joins_while_jobs_run(site: Site, job: dict[str, Any]) -> None:
    joined = {"slurm_controllers": BOTH, "slurm_controller_hosts": "slurm_controller"}
    elsewhere = json.dumps({**joined, "slurm_state_dir": "/var/lib/slurm/elsewhere"})
    done = site.bring_up("-e", elsewhere, "--limit", "slurm_controller", check=False)
    assert "/var/lib/slurm/elsewhere is not the same folder as on the first controller" in done.stdout
    site.set(**joined)
    site.bring_up()
    assert undisturbed(site, job)


@pytest.fixture
def both(site: Site) -> Site:
    """Slurm answers from its first controller, and the backup waits."""
    _wait_for_controllers(site, "ctl", {"ctl": "UP", "ctl2": "UP"})
    return site


def _wait_for_controllers(site: Site, host: str, states: dict[str, str]) -> None:
    ping = "scontrol ping"
    wait_for(lambda: dict(re.findall(r" at (\S+) is (\w+)", site.on(host, ping, check=False).stdout)) == states)


@day_two
def test_the_backup_takes_over_with_all_jobs_and_returns_control(both: Site) -> None:
    number = both.submit("--nodes=1", "--nodelist=r01t03", "--cpus-per-task=1", "--time=5")
    before, channel = both.job(number), both.ctl(f"srun --overlap --jobid={number} ls {CHANNELS}")
    files = "cd /etc/slurm && sha256sum $(ls | grep -v -e '^slurmdbd' -e previous -e '[.]d$' -e key)"
    assert both.on("ctl2", files).stdout == both.ctl(files)
    both.on("ctl", "systemctl stop slurmctld")
    _wait_for_controllers(both, "ctl2", {"ctl": "DOWN", "ctl2": "UP"})
    shown = ("ctl2", f"squeue -h -j {number} -o '%T %S'")
    wait_for(lambda: both.on(*shown, check=False).stdout != "")
    assert both.on(*shown).stdout.split() == ["RUNNING", before["StartTime"]]
    # The running job keeps its channel: a job that starts now gets another one.
    other = "srun --immediate=30 --nodelist=r01t03 --cpus-per-task=1 --mem=100 --time=1"
    assert both.on("ctl2", f"cd /tmp; timeout 60 {other} ls {CHANNELS}").stdout != channel
    assert re.search(r"BlockName=r01a .*Nodes=r01t\[01-02\]", both.on("ctl2", "scontrol show topology").stdout)
    assert "start slurmctld.service" in both.bring_up("-v").stdout
    _wait_for_controllers(both, "ctl", {"ctl": "UP", "ctl2": "UP"})
    assert both.job(number)["StartTime"] == before["StartTime"]
    assert both.job(number)["JobState"] == "RUNNING"
    both.ctl(f"scancel {number}")


@newer
def test_a_backup_that_is_down_stops_no_run(both: Site) -> None:
    both.racks.stop("ctl2")
    done = both.bring_up("--limit", "slurm_controller,r01t01")
    assert re.search(r"ctl2.*UNREACHABLE", done.stdout), "it is reported"
    both.wait_for({"r01t01": "idle"})


@pytest.fixture(scope="module")
def job(site: Site) -> dict[str, Any]:
    """A job on the trays of the first clique that the following tests must not affect."""
    number = site.submit("--nodes=2", "--nodelist=r01t01,r01t02", "--time=60")
    return {"id": number, "before": site.job(number)}


def undisturbed(site: Site, job: dict[str, Any]) -> bool:
    now = site.job(job["id"])
    return all(now[key] == job["before"][key] for key in ("JobState", "StartTime", "Restarts", "NodeList"))


@day_two
def test_a_tray_is_added_while_another_is_down_which_a_run_of_it_alone_reinstalls(
    site: Site, job: dict[str, Any]
) -> None:
    key, settings = site.key("ctl"), site.ctl("cat /etc/slurm/slurm.conf")
    site.discover("r01t04")
    site.racks.stop("r01t03")
    done = site.bring_up(check=False)
    recap = dict(re.findall(r"(?m)^(\S+) +: .*(unreachable=\d+ +failed=\d+)", done.stdout))
    assert {host for host, counts in recap.items() if counts.split() != ["unreachable=0", "failed=0"]} == {"r01t03"}
    assert recap["r01t03"].startswith("unreachable=1")
    site.wait_for({"r01t04": "idle"})
    assert "NodeName=r01t[03-04] " in site.ctl("cat /etc/slurm/nvlink_nodes.conf"), "it keeps its node line"
    assert re.search(r"BlockName=r01b .*Nodes=r01t\[03-04\]", site.ctl("scontrol show topology"))
    assert site.ctl("cat /etc/slurm/slurm.conf") == settings
    site.racks.start("r01t03")
    site.prepare("r01t03")
    site.bring_up("--limit", "r01t03,slurm_controller")
    site.wait_for({"r01t03": "idle"})
    assert site.ctl("timeout 60 srun --nodelist=r01t03 hostname") == "r01t03\n"
    assert site.key("ctl") == key == site.key("r01t03"), "a key is created once"
    assert undisturbed(site, job)


@day_two
def test_a_refused_configuration_is_reported_and_rolled_back(site: Site, job: dict[str, Any]) -> None:
    before = site.ctl("cat /etc/slurm/slurm.conf")
    settings = {**LAB["slurm_settings"], "SelectType": "select/nonsense"}  # type: ignore[dict-item]
    done = site.bring_up("-e", json.dumps({"slurm_settings": settings}), "--limit", "slurm_controller", check=False)
    assert done.returncode != 0
    assert re.search(
        r"slurmctld refused the new configuration \(.*select.*\); the old files were restored, and slurmctld",
        done.stdout,
    )
    assert site.ctl("cat /etc/slurm/slurm.conf") == before
    assert undisturbed(site, job)


@day_two
def test_a_failing_start_of_accounting_is_reported_in_one_sentence(site: Site, job: dict[str, Any]) -> None:
    settings = {"slurm_dbd_settings": {"StorageType": "accounting_storage/nonsense"}}
    files = "cat /etc/mysql/mariadb.conf.d/60-slurm.cnf /etc/slurm/slurmdbd.conf"
    before = site.ctl(files)
    done = site.bring_up("-e", json.dumps(settings), "--limit", "slurm_controller", check=False)
    errors = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("[ERROR]")]
    assert len(errors) == 1, done.stdout
    sentence = r"slurmdbd.service does not start \(.*accounting_storage.*\): .*; the old .* was restored\."
    assert re.search(sentence, errors[0])
    assert site.ctl(files) == before
    assert site.ctl("systemctl is-active mariadb slurmdbd").split() == ["active", "active"]
    assert undisturbed(site, job)


@day_two
def test_the_health_check_drains_a_tray_and_resumes_what_it_drained(site: Site) -> None:
    program = "/usr/local/sbin/nvlink-slurm-health"
    site.racks.exec("r01t03", program)
    site.wait_for({"r01t03": "idle"})
    site.racks.set("r01t03", "gpu1.state=in_progress")
    site.racks.exec("r01t03", program)
    assert site.nodes()["r01t03"].startswith("drain")
    assert "nvlink: 3 of 4 GPUs are in their NVLink fabric" in site.ctl("sinfo -hR -o '%E %N'")
    site.racks.set("r01t03", "gpu1.state=completed")
    site.racks.exec("r01t03", program)
    site.wait_for({"r01t03": "idle"})
    site.ctl("scontrol update nodename=r01t03 state=drain reason=mine")
    site.racks.exec("r01t03", program)
    assert site.nodes()["r01t03"].startswith("drain"), "a manual drain stays"
    site.ctl("scontrol update nodename=r01t03 state=resume")
