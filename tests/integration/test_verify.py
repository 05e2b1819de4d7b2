# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verify on the lab: no failure where all layers agree, planted faults are as many failures, its timer and benchmark.

Real slurmctld, slurmdbd and slurmd, the IMEX stand-in's real processes and files, GPUs by `lab set`. Each test repairs
what it broke.
"""

from __future__ import annotations

import json
import re
import sys
import sysconfig
import tarfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from ansible.utils.display import Display
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import formats
from ansible_collections.rackscale.nvlink.plugins.module_utils.subsets import FACTS
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import connections, hosts
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.verify.test_benchmarks import (
    DCGM_4,
    NVBANDWIDTH,
)

from . import pages
from .commands import ansible
from .conftest import CHECKOUT, RunningLab, lab_command, running_lab
from .test_lab import wait_until

sys.path.insert(0, str(CHECKOUT / "tests" / "lab"))
from nvlab import imex, paths

pytestmark = pytest.mark.lab

RACK = {"name": "r01", "trays": 6, "cliques": [{"id": 1, "trays": [1, 2, 3]}, {"id": 2, "trays": [4, 5, 6]}]}
SCENARIO = {"suite": "trixie", "slurm": {"accounting": True}, "racks": [RACK]}
TRAYS = [f"r01t{number:02d}" for number in range(1, 7)]
TIERS = [
    {"name": "gold", "cliques": ["r01a"], "max_time": "1-00:00:00", "qos": {"priority": 1000, "grp_tres": {"node": 3}}},
    {"name": "bronze", "cliques": ["r01b"], "qos": {"priority": 10}},
]
# The lab's kernel has no IMEX channels; the trays use the terminals' major number, which containers may create.
DEVICES = "/root/devices"
CHANNEL = "/dev/nvidia-caps-imex-channels/channel0"
LIST = formats.NODES_FILE
TOPOLOGY = "/etc/slurm/topology.conf"
RELOAD = "scontrol reconfigure && timeout 60 sh -c 'until scontrol ping | grep -q UP; do sleep 0.2; done'"


BREAK = {
    # A second owner of IMEX, too, in the folder that slurm.conf names.
    "r01t02": f"rm {CHANNEL}; mkdir -p /sched/prolog.d && echo 'systemctl start nvidia-imex' > /sched/prolog.d/site.sh",
    "r01t03": "kill -STOP $(systemctl show -P MainPID nvidia-imex)",
    "r01t04": f"cp {LIST} /root/list; printf '198.51.100.14\\n198.51.100.99\\n' > {LIST};"
    " systemctl restart nvidia-imex",
    "r01t05": "systemctl stop nvidia-imex",
    "ctl": "echo 'Prolog=/sched/prolog.d/*' >> /etc/slurm/slurm.conf"
    f" && sed -i 's/r01t.01-03./r01t[01-02,06]/; s/r01t.04-06./r01t[03-06]/' {TOPOLOGY} && {RELOAD}"
    " && sacctmgr -i modify qos gold set Priority=5 && scontrol update PartitionName=gold MaxTime=5",
}
REPAIR = {
    "r01t02": f"mknod {CHANNEL} c 4 0; rm /sched/prolog.d/site.sh",
    "r01t03": "kill -CONT $(systemctl show -P MainPID nvidia-imex)",
    "r01t04": f"cat /root/list > {LIST}; touch -d @1000000000 {LIST}",
    "ctl": f"cp /root/good/* /etc/slurm/ && {RELOAD} && sacctmgr -i modify qos gold set Priority=1000",
}
SETTINGS = {
    "r01t01": (["gpu1.lost=true"], ["gpu1.lost=false"]),
    "r01t02": (["clique=2"], ["clique=1"]),
    "r01t06": (["nvml=no_driver", "smi=no_driver"], ["nvml=ok", "smi=ok"]),
}
"""Tray -> settings of its GPUs by `lab set`: broken and healthy."""
MORE = {
    "r01t01": (
        "gpu0.degraded_bandwidth=true/false",
        "gpu2.recovery_action=gpu_reset/none",
        "gpu3.mig_enabled=true/false",
    ),
    "r01t03": ("gpu0.health=unhealthy/healthy", "gpu1.route_recovery=true/false", "gpu2.status=unknown_error/success"),
    "r01t04": ("gpu0.state=in_progress/completed", "gpu1.access_timeout_recovery=true/false", "gpu2.lost=true/false"),
    "r01t05": ("gpu0.link14.recoveries=7/0", "gpu1.link3.state=inactive/active", "gpu2.route_unhealthy=true/false"),
}
"""Tray -> further faults of GPUs and links, each SETTING=BROKEN/HEALTHY."""
FAILURES = [
    ("channels", "imex_channel_missing", ("r01t02",)),
    ("driver", "driver_missing", ("r01t06",)),
    ("fabric_file", "tray_moved", ("r01t02",)),
    ("hardware", "gpu_lost", ("r01t01",)),
    ("imex", "imex_list_differs", ("r01t04",)),
    ("imex", "imex_timeout", ("r01t03",)),
    ("imex", "imex_two_owners", ("r01t02",)),
    ("imex", "imex_unit_down", ("r01t05",)),
    ("slurm", "slurm_block_overlap", ("r01t06",)),
    ("slurm", "slurm_blocks_differ", ("r01t03",)),
    ("tiers", "slurm_tier_differs", ()),
]


class Site:
    """A lab that the playbooks of the collection have configured."""

    def __init__(self, running: RunningLab, folder: Path) -> None:
        self.lab, self.folder = running, folder
        self.verdict_file, self.junit_file = folder / "verdict.json", folder / "verdict.xml"
        self.output = ""

    def prepare(self) -> None:
        lab_command("packages", "--name", self.lab.name, str(imex.packages()))
        devices = "printf 'Character devices:\\n  4 nvidia-caps-imex-channels\\n'"
        self.on(dict.fromkeys(TRAYS, f"{devices} > {DEVICES}"))
        self.play("discover", "-e", "fabric_accept=gates")
        self.play("slurm")
        self.play("imex", imex_boot_wait=3)
        self.lab.exec(
            "ctl", "sh", "-ec", "mkdir /root/good; find /etc/slurm -maxdepth 1 -type f -exec cp -a {} /root/good/ ';'"
        )

    def play(self, name: str, *arguments: str, check: bool = True, **variables: Any) -> Any:
        given = {
            "fabric_file": str(self.folder / "fabric.json"),
            "imex_hosts": "trays",
            "imex_channels": [0],
            "imex_proc_devices": DEVICES,
            "slurm_topology_manage_conf": True,
            "slurm_tiers_manage_conf": True,
            "slurm_topology_rehearse": "never",
            "slurm_tiers_rehearse": "never",
            "verify_hosts": "trays",
            "verdict_file": str(self.verdict_file),
            "junit_file": str(self.junit_file),
            "verify_proc_devices": DEVICES,
            "verify_imex_timeout": 5,
            **variables,
        }
        # Tiers are variables of the controllers, as in group_vars.
        of_slurm = self.folder / "slurm.yml"
        of_slurm.write_text(json.dumps({"slurm_controller": {"vars": {"slurm_tiers": TIERS}}}))
        where = ("-i", self.lab.inventory, "-i", of_slurm, "--forks=12")
        command = (*where, f"rackscale.nvlink.{name}", "-e", json.dumps(given), *arguments)
        return ansible("ansible-playbook", *command, check=check, ANSIBLE_TIMEOUT="20")

    def verify(self, *arguments: str, first: bool = True, **variables: Any) -> dict[str, Any]:
        """The verdict; `first`: of a run that knows nothing of an earlier one."""
        if first:
            self.verdict_file.unlink(missing_ok=True)
        done = self.play("verify", *arguments, check=False, **variables)
        self.output = done.stdout
        assert self.verdict_file.exists(), done.stdout + done.stderr
        verdict: dict[str, Any] = json.loads(self.verdict_file.read_text())
        assert (done.returncode == 0) is verdict["ok"], done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr
        return verdict

    def on(self, scripts: Mapping[str, str]) -> None:
        """Run scripts on several hosts concurrently."""

        def run(host: str) -> None:
            self.lab.exec(host, "sh", "-ec", scripts[host])

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(run, scripts))

    def repair(self) -> None:
        self.on(REPAIR)
        for tray, (_broken, healthy) in SETTINGS.items():
            self.lab.set(tray, *healthy)
        self.on(dict.fromkeys(TRAYS, "systemctl reset-failed nvidia-imex; systemctl restart nvidia-imex"))
        wait_until(self.imex_is_up, "all IMEX domains are UP", 120)

    def imex_is_up(self) -> bool:
        def status(tray: str) -> bool:
            return '"status": "UP"}' in self.lab.exec(tray, "nvidia-imex-ctl", "-N", "-j", check=False).stdout

        with ThreadPoolExecutor(6) as pool:
            return all(pool.map(status, TRAYS))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Six trays in two cliques, with Slurm and its accounting."""
    folder = tmp_path_factory.mktemp("verify")
    (folder / "six.yml").write_text(yaml.safe_dump(SCENARIO))
    with running_lab(folder, folder / "six.yml") as running:
        made = Site(running, folder)
        made.prepare()
        yield made


def _of_any_time(verdict: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in verdict.items() if key not in ("checked_at", "links")}


def test_no_failure_when_all_layers_agree(site: Site) -> None:
    verdict = site.verify()
    assert (verdict["ok"], verdict["failures"]) == (True, [])
    assert (verdict["trays"], verdict["queried"], verdict["cliques"]) == (6, 6, 2)
    skipped = {layer for layer, state in verdict["layers"].items() if state != "checked"}
    assert skipped == {"kubernetes", "switch"}
    suites = ElementTree.parse(site.junit_file).getroot()
    assert (suites.get("failures"), suites.get("skipped")) == ("0", "2")
    assert sorted(suite.get("name", "") for suite in suites) == sorted(verdict["layers"])
    # One task on a tray for all layers. On the controller: the names of the run, validation of the arguments, check of
    # the fabric file, Slurm's blocks, its tiers, the verdict, its text; the tasks for who waits and fail are skipped.
    tasks = re.findall(r"(?m)^(\S+) +: ok=(\d+) .* skipped=(\d+)", site.output)
    assert tasks == [("localhost", "7", "2"), *((tray, "1", "0") for tray in TRAYS)]
    # By ssh no tray has a task, and the verdict is the same.
    by_ssh = site.verify(tray_reading="ssh")
    assert _of_any_time(by_ssh) == _of_any_time(verdict)
    assert [host for host, _ok, _skipped in re.findall(r"(?m)^(\S+) +: ok=(\d+) .* skipped=(\d+)", site.output)] == [
        "localhost",
        TRAYS[0],
    ], site.output


def test_faults_at_once_are_as_many_failures(site: Site) -> None:
    site.on(BREAK)
    for tray, (broken, _healthy) in SETTINGS.items():
        site.lab.set(tray, *broken)
    try:
        verdict = site.verify()
        rows = sorted((row["layer"], row["code"], tuple(row["trays"])) for row in verdict["failures"])
        assert rows == FAILURES, verdict["failures"]
        assert site.verify(tray_reading="ssh")["failures"] == verdict["failures"]
        assert all(row[key] for row in verdict["failures"] for key in ("message", "remediation"))
        cases = {(row["layer"], row["clique"]) for row in verdict["failures"]}
        assert ElementTree.parse(site.junit_file).getroot().get("failures") == str(len(cases))
        site.lab.exec("ctl", "systemctl", "stop", "slurmctld")
        (row,) = site.verify("--tags", "quick")["failures"]
        assert row["code"] == "slurm_unreachable"
    finally:
        site.lab.exec("ctl", "systemctl", "start", "slurmctld")
        site.repair()


def _answers(site: Site, subset: str, by_ssh: bool) -> dict[str, Any]:
    """Tray -> the result of fabric_facts."""
    asked = {"gather_subset": [subset], "proc_devices": DEVICES, "timeout": 5, "imex_timeout": 5}
    if by_ssh:
        inventory = yaml.safe_load(site.lab.inventory.read_text())["all"]
        trays = inventory["children"]["trays"]["hosts"]
        own = {tray: {**inventory["vars"], **row} for tray, row in trays.items()}
        known = hosts.Hosts(fabrics.HostVars(own), lambda template, _variables: template)
        found = connections.read(TRAYS, connections.of_facts(asked), known, False, Display())
    else:
        folder = site.folder / "answers"
        where = ("-i", site.lab.inventory, "--tree", folder, "--forks=12", "trays")
        ansible("ansible", *where, "-m", "rackscale.nvlink.fabric_facts", "-a", json.dumps(asked), check=False)
        found = {tray: json.loads((folder / tray).read_text()) for tray in TRAYS}
    return {tray: {key: result[key] for key in ("ansible_facts", "findings")} for tray, result in found.items()}


def _differences(left: Any, right: Any, where: str = "") -> Iterator[str]:
    """Where two documents differ besides their time."""
    if isinstance(left, dict) and isinstance(right, dict) and left.keys() == right.keys():
        for key in left.keys() - {"observed_at"}:
            yield from _differences(left[key], right[key], f"{where} {key}")
    elif left != right:
        yield f"{where}: {left!r} or {right!r}"


@pytest.mark.long
def test_both_ways_of_reading_give_equal_answers(site: Site) -> None:
    """Of healthy trays, then each subset with twenty faults at once, and the verdict and the doctor's checks."""
    found = _differences(_answers(site, "all", by_ssh=False), _answers(site, "all", by_ssh=True))
    assert "\n".join(found) == ""
    site.on({tray: script for tray, script in BREAK.items() if tray != "ctl"})
    try:
        for tray, (broken, _healthy) in SETTINGS.items():
            site.lab.set(tray, *broken)
        for tray, rows in MORE.items():
            site.lab.set(tray, *(row.partition("/")[0] for row in rows))
        for subset in ("all", *FACTS):
            answers = _answers(site, subset, by_ssh=True)
            assert "\n".join(_differences(_answers(site, subset, by_ssh=False), answers)) == ""
            found = {
                (tray, row["code"], row.get("gpu")) for tray, result in answers.items() for row in result["findings"]
            }
            assert len(found) >= 12 or subset != "all", found
        failures = site.verify()["failures"]
        assert len(failures) >= 15, failures
        assert site.verify(tray_reading="ssh")["failures"] == failures
        files = [site.folder / f"{way}.json" for way in ("ansible", "ssh")]
        for file in files:
            more = {"doctor_file": str(file), "site_tray_hosts": "trays", "tray_reading": file.stem}
            site.play("doctor", check=False, **more)
        by_ansible, by_ssh = (json.loads(file.read_text()) for file in files)
        assert by_ansible == by_ssh
        assert "6 of 6 trays answered" in by_ssh["summary"]
    finally:
        for tray, rows in MORE.items():
            site.lab.set(tray, *(re.sub("=.*/", "=", row) for row in rows))
        site.repair()


@pytest.mark.long
def test_a_link_whose_counter_grows_is_named_by_the_next_run(site: Site) -> None:
    """The counters of a run are in its verdict file."""
    days = [("505", []), ("508", ["nvlink_link_recovering"])]
    try:
        for day, (number, expected) in enumerate(days):
            site.lab.set("r01t02", f"gpu0.link14.recoveries={number}")
            verdict = site.verify("--limit", "r01t02,localhost", first=day == 0)
            assert [row["code"] for row in verdict["failures"]] == expected, verdict["failures"]
            assert verdict["ok"]
    finally:
        site.lab.set("r01t02", "gpu0.link14.recoveries=0")


@pytest.mark.long
def test_the_commands_of_the_page(site: Site) -> None:
    folder = site.folder
    (folder / "hosts.yml").write_text(site.lab.inventory.read_text())
    fabric = {"plugin": "rackscale.nvlink.fabric", "sources": ["fabric_file"], "fabric_file": "fabric.json"}
    (folder / "cluster.nvlink.yml").write_text(json.dumps(fabric))
    shell = pages.Shell(folder)
    for command in pages.commands("docs/verify.md"):
        shell.type(command)
    assert json.loads((folder / "verdict.json").read_text())["queried"] == 6


LIBRARIES = """ansible *.dist-info jinja2 yaml _yaml markupsafe cryptography cffi packaging resolvelib fastjsonschema
ClusterShell _cffi_backend*.so"""
WATCH = """\
- hosts: "{{ controller }}"
  gather_facts: false
  tasks:
    - ansible.builtin.import_role:
        name: rackscale.nvlink.verify
        tasks_from: watch
"""
CONTROLLER = """\
- hosts: "{{ controller }}"
  gather_facts: false
  tasks:
    - ansible.builtin.file: {path: /opt/site, state: directory, mode: "0755"}
    - ansible.builtin.unarchive: {src: "{{ packed }}", dest: /opt/site}
    - ansible.builtin.copy: {dest: /opt/site/ho sts.yml, content: "{{ inventory }}", mode: "0644"}
    - ansible.builtin.copy:
        dest: /opt/site/ansible-playbook
        content: "#!/bin/sh\\nexec python3 -m ansible playbook \\"$@\\"\\n"
        mode: "0755"
    - ansible.builtin.file: {path: /var/lib/nvlink-verify/.ssh, state: directory, owner: nvlink-verify, mode: "0700"}
    - ansible.builtin.copy:
        src: "{{ lab_key }}"
        dest: /var/lib/nvlink-verify/.ssh/id_ed25519
        owner: nvlink-verify
        mode: "0600"
"""


@pytest.mark.long
def test_the_timer_verifies_as_a_user_of_its_own_without_privileges(site: Site) -> None:
    """A tray of the lab is the Ansible controller here: real ansible-playbook, real ssh to slurmctld's host."""
    controller, home = "r01t06", "/var/lib/nvlink-verify"
    packed = site.folder / "controller.tar"
    libraries = Path(sysconfig.get_path("purelib"))
    with tarfile.open(packed, "w") as tar:
        for path in [path for name in LIBRARIES.split() for path in libraries.glob(name)]:
            tar.add(path, path.name)
        for name in ("galaxy.yml", "meta", "playbooks", "plugins", "roles"):
            tar.add(CHECKOUT / name, f"ansible_collections/rackscale/nvlink/{name}")
        for file, name in (("fabric.json", "it's 100%/$fabric.json"), ("slurm.yml", "slurm.yml")):
            tar.add(site.folder / file, name)
    groups = yaml.safe_load(site.lab.inventory.read_text())["all"]["children"]
    controllers = {"hosts": groups["slurm_controller"]["hosts"], "vars": {"ansible_user": "root"}}
    (site.folder / "watch.yml").write_text(WATCH)
    (site.folder / "controller.yml").write_text(CONTROLLER)
    given = {
        "controller": controller,
        "packed": str(packed),
        "inventory": json.dumps({"slurm_controller": controllers}),
        "lab_key": str(paths.state_of(site.lab.name) / "key"),
        "verify_fabric_file": "/opt/site/it's 100%/$fabric.json",
        "verify_watch_inventory": ["/opt/site/ho sts.yml", "/opt/site/slurm.yml"],
        "verify_watch_ansible_playbook": "/opt/site/ansible-playbook",
        "verify_watch_environment": {
            "PYTHONPATH": "/opt/site",
            "ANSIBLE_COLLECTIONS_PATH": "/opt/site",
            "ANSIBLE_HOST_KEY_CHECKING": "false",
        },
    }

    def run(play: str, *arguments: str, **more: Any) -> int:
        command = ("-i", site.lab.inventory, site.folder / f"{play}.yml", "-e", json.dumps({**given, **more}))
        done = ansible("ansible-playbook", *command, *arguments)
        return int(done.stdout.rpartition("changed=")[2].split()[0])

    def on(*command: str, check: bool = True) -> Any:
        return site.lab.exec(controller, *command, check=check)

    assert run("watch", "--check", "--diff") > 0
    assert on("ls", "/etc/systemd/system/nvlink-verify.timer", check=False).returncode != 0
    assert run("watch") > 0
    assert run("watch") == 0
    run("controller")
    assert on("systemctl", "is-active", "nvlink-verify.timer").stdout.strip() == "active"
    on("systemd-analyze", "verify", "/etc/systemd/system/nvlink-verify.timer")
    started = on("systemctl", "start", "nvlink-verify.service", check=False)
    journal = on("journalctl", "--no-pager", "-o", "cat", "-u", "nvlink-verify").stdout
    assert started.returncode == 0, journal
    verdict = json.loads(on("cat", f"{home}/verdict.json").stdout)
    assert (verdict["ok"], verdict["layers"]["slurm"], verdict["layers"]["tiers"]) == (True, "checked", "checked")
    written = (f"{home}/verdict.json", f"{home}/metrics/nvlink_fabric.prom")
    assert on("stat", "-c", "%U %a", *written).stdout == "nvlink-verify 644\n" * 2
    # docs/security.md has the figure.
    on("systemd-analyze", "security", "--no-pager", "nvlink-verify.service", "--threshold=18")
    # The verdict is not ok, and the metrics are written all the same.
    site.on({"ctl": "sacctmgr -i modify qos gold set Priority=5"})
    assert on("systemctl", "start", "nvlink-verify.service", check=False).returncode != 0
    site.on({"ctl": "sacctmgr -i modify qos gold set Priority=1000"})
    assert "nvlink_verify_ok 0" in on("cat", f"{home}/metrics/nvlink_fabric.prom").stdout
    assert run("watch", verify_watch_state="absent") > 0
    assert run("watch", verify_watch_state="absent") == 0
    assert on("systemctl", "cat", "nvlink-verify.service", check=False).returncode != 0


@pytest.mark.long
def test_a_block_is_reserved_benchmarked_and_released(site: Site) -> None:
    for name, text in (("nvbandwidth", NVBANDWIDTH), ("dcgmi", DCGM_4)):
        path = f"/usr/local/bin/{name}"
        write = f"cat > {path} <<'WRITTEN'\n#!/bin/sh\ncat <<'OUTPUT'\n{text}OUTPUT\nWRITTEN\nchmod +x {path}"
        site.on(dict.fromkeys(TRAYS[:3], write))
    healthy = "sed -i 's/Fail/Pass/g' /usr/local/bin/dcgmi"
    site.on({"r01t01": healthy, "r01t03": healthy})
    programs = [
        {"name": "nvbandwidth", "kind": "nvbandwidth", "command": "nvbandwidth", "seconds": 60, "min_bandwidth": 700},
        {"name": "dcgmi", "kind": "dcgmi_diag", "command": "dcgmi diag -r 2 -j", "seconds": 60},
    ]
    benchmark = ("verify", "--tags", "benchmark")
    done = site.play(*benchmark, check=False, benchmark_programs=programs, benchmark_cliques=["r01a"])
    assert done.returncode != 0
    output = " ".join(done.stdout.split())
    assert "benchmark_failed: nvbandwidth on clique r01a reached 612.1 GB/s; min_bandwidth is 700 GB/s." in output
    assert "benchmark_failed: dcgmi on r01t02 of clique r01a: memory (row remap)." in output
    assert output.count("next step") == 2, output
    assert site.lab.exec("ctl", "scontrol", "-o", "show", "reservation").stdout.startswith("No reservations")

    whole = site.play(*benchmark, benchmark_cliques=["r01b"])
    assert "1 block was benchmarked: r01b." in whole.stdout

    running = "timeout 60 sh -c 'until squeue -h -t R | grep -q .; do sleep 0.2; done'"
    site.lab.exec("ctl", "sh", "-ec", f"sbatch -w r01t05 --wrap 'sleep 600'; {running}")
    refused = site.play(*benchmark, benchmark_cliques=["r01b"])
    assert "slurm_jobs_unanswered" in refused.stdout
    site.lab.exec("ctl", "scancel", "-u", "root")
