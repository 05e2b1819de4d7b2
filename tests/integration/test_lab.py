# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The virtual racks: up, settings, power, down, and nothing left behind, also after a crash."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

from .conftest import LAB, SCENARIOS, LabFactory, RunningLab, lab_command

pytestmark = pytest.mark.lab

STATE = Path("/run/nvlink-lab")
TRAYS = ["r01t01", "r01t02", "r01t03", "r01t04"]


def processes_of(name: str) -> list[str]:
    """Every live process in the cgroup of a lab; a zombie counts as dead."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and f"/nvlab-{name}/" in (entry / "cgroup").read_text():
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                found += [] if state in "ZX" else [f"{entry.name} {(entry / 'comm').read_text().strip()}"]
    return found


def mounts_of(name: str) -> list[str]:
    """Mounts of a lab in whatever mount namespace there is."""
    lines: set[str] = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal():
                lines.update((entry / "mounts").read_text().splitlines())
    return [line for line in lines if f"/nvlink-lab/{name}/" in line or f"/netns/nvlab-{name} " in line]


def left_behind(name: str) -> list[str]:
    """All that there still is of a lab."""
    files = [STATE / name, Path("/run/netns") / f"nvlab-{name}", *Path("/sys/fs/cgroup").glob(f"**/nvlab-{name}")]
    return processes_of(name) + mounts_of(name) + [str(file) for file in files if file.exists()]


def wait_until(condition: object, what: str, seconds: float = 30.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.05)


def test_every_host_answers_and_every_node_is_idle(four_trays: RunningLab) -> None:
    status = four_trays.status()
    assert status["phase"] == "up"
    assert list(status["hosts"]) == ["ctl", *TRAYS]
    assert all(host["running"] and host["ssh"] for host in status["hosts"].values())
    assert {status["hosts"][tray]["slurm"] for tray in TRAYS} == {"idle"}


def test_a_job_runs_on_every_tray(four_trays: RunningLab) -> None:
    done = four_trays.exec("ctl", "srun", "--nodes=4", "hostname")
    assert sorted(done.stdout.split()) == TRAYS


def test_exec_gives_output_and_exit_status(four_trays: RunningLab) -> None:
    done = four_trays.exec("r01t03", "sh", "-c", "hostname; exit 7", check=False)
    assert (done.stdout, done.returncode) == ("r01t03\n", 7)


def test_ansible_reaches_every_host_from_the_ordinary_network(four_trays: RunningLab) -> None:
    ansible = Path(sys.executable).with_name("ansible")
    done = subprocess.run(
        [str(ansible), "-i", str(four_trays.inventory), "all", "-m", "ansible.builtin.ping"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("SUCCESS") == 5
    groups = yaml.safe_load(four_trays.inventory.read_text())["all"]["children"]
    assert list(groups["trays"]["hosts"]) == TRAYS
    assert list(groups["slurm_controller"]["hosts"]) == ["ctl"]


def test_the_network_is_the_lab_s_own(four_trays: RunningLab) -> None:
    inside = four_trays.net("ip", "-brief", "address").stdout
    assert "198.51.100.1/24" in inside
    outside = subprocess.run(["ip", "-brief", "address"], capture_output=True, text=True, check=True).stdout
    assert "198.51.100." not in outside


def test_set_changes_the_reported_facts_of_a_running_tray(four_trays: RunningLab) -> None:
    def fabric() -> list[tuple[str | None, str | None]]:
        root = ET.fromstring(four_trays.exec("r01t01", "nvidia-smi", "-q", "-x").stdout)
        return [(gpu.findtext("fabric/state"), gpu.findtext("fabric/cliqueId")) for gpu in root.iter("gpu")]

    assert fabric() == [("Completed", "1")] * 4
    four_trays.set("r01t01", "gpu2.state=in_progress", "clique=9")
    after = fabric()
    assert [state for state, _clique in after] == ["Completed", "Completed", "In Progress", "Completed"]
    assert after[0] == ("Completed", "9")
    four_trays.set("r01t01", "state=completed", "clique=1")
    assert fabric() == [("Completed", "1")] * 4


@pytest.mark.parametrize(
    ("fault", "code", "text"),
    [
        ("no_driver", 9, "couldn't communicate with the NVIDIA driver"),
        ("version_mismatch", 18, "Driver/library version mismatch"),
        ("no_gpu", 6, "No devices were found"),
        ("garbage", 0, "Unable to determine the device handle"),
        ("truncated", 0, "<nvidia_smi_log>"),
        ("missing", 127, ""),
        ("hang", 124, ""),
    ],
)
def test_faults_of_nvidia_smi(four_trays: RunningLab, fault: str, code: int, text: str) -> None:
    four_trays.set("r01t02", f"smi={fault}")
    done = four_trays.exec("r01t02", "timeout", "0.5", "nvidia-smi", "-q", "-x", check=False)
    four_trays.set("r01t02", "smi=ok")
    assert done.returncode == code
    assert text in done.stdout
    assert "</nvidia_smi_log>" not in done.stdout


def test_a_missing_library_cannot_be_loaded(four_trays: RunningLab) -> None:
    load = ("python3", "-c", "import ctypes; ctypes.CDLL('libnvidia-ml.so.1').nvmlInitWithFlags")
    four_trays.exec("r01t02", *load)
    four_trays.set("r01t02", "nvml=no_library")
    done = four_trays.exec("r01t02", *load, check=False)
    four_trays.set("r01t02", "nvml=ok")
    assert "cannot open shared object file" in done.stderr
    four_trays.exec("r01t02", *load)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["set", "r01t09", "health=unhealthy"], "lab: there is no tray 'r01t09' in this lab: it has r01t01 to r01t04."),
        (["set", "r01t01", "clique"], "lab: clique: write a setting as KEY=VALUE."),
        (["set", "r01t01", "clique=1", "state=x"], "lab: state=x: use one of not_supported, not_started, "),
        (["exec", "r01t09", "--", "true"], "lab: there is no host 'r01t09' in lab "),
        (["exec", "r01t01", "--"], "lab: give a command after --."),
    ],
)
def test_a_wrong_argument_is_one_sentence(four_trays: RunningLab, arguments: list[str], sentence: str) -> None:
    done = lab_command(arguments[0], "--name", four_trays.name, *arguments[1:], check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(sentence)
    assert done.stderr.count("\n") == 1


def test_a_restarted_tray_keeps_its_settings(own_four_trays: RunningLab) -> None:
    own_four_trays.set("r01t04", "clique=5")
    own_four_trays.stop("r01t04")
    assert own_four_trays.status()["hosts"]["r01t04"]["ssh"] is False
    assert own_four_trays.exec("r01t04", "true", check=False).stderr.endswith("is not running.\n")
    own_four_trays.start("r01t04")
    assert "<cliqueId>5</cliqueId>" in own_four_trays.exec("r01t04", "nvidia-smi", "-q", "-x").stdout
    assert own_four_trays.exec("ctl", "srun", "--nodelist=r01t04", "hostname").stdout == "r01t04\n"
    own_four_trays.set("r01t04", "clique=2")


def test_a_kept_disk_is_back_after_a_restart(own_four_trays: RunningLab) -> None:
    """New, changed and removed files and a replaced folder; a restart without --keep-disk starts from the image."""
    change = "echo new > /etc/new; echo kept >> /etc/hostname; rm /etc/issue; rm -r /etc/apt; mkdir /etc/apt"
    show = "cat /etc/new /etc/hostname; ls /etc/issue; ls /etc/apt"
    own_four_trays.exec("r01t04", "sh", "-c", change)
    own_four_trays.stop("r01t04", "--keep-disk")
    own_four_trays.start("r01t04")
    assert own_four_trays.exec("r01t04", "sh", "-c", show).stdout == "new\nr01t04\nkept\n"
    own_four_trays.stop("r01t04")
    own_four_trays.start("r01t04")
    assert own_four_trays.exec("r01t04", "cat", "/etc/hostname").stdout == "r01t04\n"
    assert own_four_trays.exec("r01t04", "ls", "/etc/issue", "/etc/new", check=False).stdout == "/etc/issue\n"


def test_up_rejects_a_name_in_use(four_trays: RunningLab) -> None:
    done = lab_command("up", "--name", four_trays.name, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"lab: lab '{four_trays.name}' is there already")
    assert four_trays.status()["hosts"]["r01t01"]["ssh"] is True


def test_concurrent_labs_leave_nothing_behind(lab: LabFactory) -> None:
    mounts = Path("/proc/self/mounts").read_text()
    with lab() as one, lab("four-forky.yml") as two:
        assert one.exec("ctl", "scontrol", "--version").stdout.startswith("slurm-wlm 24.11")
        assert two.exec("ctl", "scontrol", "--version").stdout.startswith("slurm-wlm 26.05")
        assert processes_of(one.name)
        assert mounts_of(two.name)
        names = [one.name, two.name]
    assert [left_behind(name) for name in names] == [[], []]
    for name in (*names, "never-was"):
        lab_command("down", "--name", name)  # nothing is left to do
    if not STATE.exists():
        assert Path("/proc/self/mounts").read_text() == mounts


def test_down_removes_hosts_whose_nspawn_was_killed(lab: LabFactory) -> None:
    with lab() as racks:
        state = json.loads((STATE / racks.name / "state.json").read_text())
        for host in state["hosts"].values():
            os.kill(host["pid"], signal.SIGKILL)
        assert processes_of(racks.name), "the hosts outlive their nspawn, which is what makes this worth a test"
        lab_command("down", "--name", racks.name)
        assert left_behind(racks.name) == []


@pytest.mark.parametrize("hosts_started", [0, 3])
def test_down_removes_what_a_killed_up_left(hosts_started: int) -> None:
    name = f"crash-{os.getpid()}-{hosts_started}"
    arguments = [sys.executable, str(LAB), "up", "--name", name, "--scenario", str(SCENARIOS / "four.yml")]

    def started() -> bool:
        with contextlib.suppress(OSError, ValueError):
            return len(json.loads((STATE / name / "state.json").read_text())["hosts"]) >= hosts_started
        return False

    try:
        with subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as up:
            wait_until(started, "the start")
            up.kill()
        again = lab_command("up", "--name", name, check=False)
        assert again.returncode == 1
        assert "is there already, running or left by a crash" in again.stderr
    finally:
        lab_command("down", "--name", name)
    assert left_behind(name) == []


def test_a_slurmctld_that_refuses_its_configuration_ends_the_lab(tmp_path: Path) -> None:
    name, file = f"fatal-{os.getpid()}", tmp_path / "fatal.yml"
    file.write_text("slurm: {select_type: select/none}\nracks: [{trays: 1}]\n")
    done = lab_command("up", "--name", name, "--scenario", str(file), check=False)
    assert done.returncode == 1
    assert re.fullmatch(r"lab: slurmctld does not start: .*fatal: .*\n", done.stderr)
    assert left_behind(name) == []


def test_a_cluster_that_has_a_topology_already(lab: LabFactory, tmp_path: Path) -> None:
    topology = "BlockName=old Nodes=r01t[01-02]\nBlockSizes=2\n"
    slurm = {"topology_plugin": "topology/block", "prolog_flags": "Alloc", "files": {"topology.conf": topology}}
    file = tmp_path / "old.yml"
    file.write_text(yaml.safe_dump({"slurm": slurm}))
    with lab(file) as racks:
        assert "BlockName=old" in racks.exec("ctl", "scontrol", "show", "topology").stdout


def test_down_ends_a_running_up() -> None:
    name = f"busy-{os.getpid()}"
    arguments = [sys.executable, str(LAB), "up", "--name", name, "--scenario", str(SCENARIOS / "four.yml")]
    with subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as up:
        wait_until((STATE / name / "state.json").exists, "the start")
        lab_command("down", "--name", name)
        assert up.wait(timeout=30) != 0
    assert left_behind(name) == []


def test_down_removes_a_lab_without_a_state_file(lab: LabFactory) -> None:
    with lab() as racks:
        (STATE / racks.name / "state.json").unlink()
        done = lab_command("status", "--name", racks.name, check=False)
        assert "was left by a crash: take it down" in done.stderr
        lab_command("down", "--name", racks.name)
        assert left_behind(racks.name) == []


def test_down_leaves_a_reused_pid_alone(lab: LabFactory) -> None:
    with subprocess.Popen(["sleep", "600"]) as unrelated:
        try:
            with lab() as racks:
                file = STATE / racks.name / "state.json"
                state = json.loads(file.read_text())
                state["hosts"]["r01t01"]["pid"] = unrelated.pid
                file.write_text(json.dumps(state))
            assert unrelated.poll() is None
            assert left_behind(racks.name) == []
        finally:
            unrelated.kill()


@pytest.mark.two_racks
def test_two_full_racks_come_up(lab: LabFactory) -> None:
    with lab("two-racks.yml") as racks:
        assert sum(host["ssh"] for host in racks.status()["hosts"].values()) == 37
        done = racks.exec("ctl", "srun", "--nodes=36", "hostname")
        assert len(set(done.stdout.split())) == 36
