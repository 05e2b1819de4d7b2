# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The virtual racks: up, settings, power, down, and nothing left behind, also after a crash."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .conftest import LAB, SCENARIOS, LabFactory, lab_command

sys.path.insert(0, str(LAB.parent))
from nvlab import image, scenario

pytestmark = pytest.mark.lab

STATE = Path("/run/nvlink-lab")
FOUR = SCENARIOS / "four.yml"
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


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.05)


@contextlib.contextmanager
def starting(name: str, hosts: int) -> Iterator[subprocess.Popen[bytes]]:
    """`lab up` in the middle, with so many hosts started; the lab goes down at the end."""
    # On a new machine, minutes of `up` before its first host.
    image.ensure_base(scenario.load(FOUR).suite)

    def started() -> bool:
        with contextlib.suppress(OSError, ValueError):
            return len(json.loads((STATE / name / "state.json").read_text())["hosts"]) >= hosts
        return False

    arguments = [sys.executable, str(LAB), "up", "--name", name, "--scenario", str(FOUR)]
    try:
        with subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as up:
            try:
                wait_until(started, f"the start of {hosts} hosts")
                yield up
            finally:
                up.kill()
    finally:
        lab_command("down", "--name", name)


def test_a_lab_works_and_leaves_nothing_behind(lab: LabFactory) -> None:
    with lab() as racks:
        status = racks.status()
        assert status["phase"] == "up"
        assert list(status["hosts"]) == ["ctl", *TRAYS]
        assert all(host["running"] and host["ssh"] for host in status["hosts"].values())
        assert {status["hosts"][tray]["slurm"] for tray in TRAYS} == {"idle"}
        assert sorted(racks.exec("ctl", "srun", "--nodes=4", "hostname").stdout.split()) == TRAYS
        done = racks.exec("r01t03", "sh", "-c", "hostname; exit 7", check=False)
        assert (done.stdout, done.returncode) == ("r01t03\n", 7)
        assert "198.51.100.1/24" in racks.net("ip", "-brief", "address").stdout
        racks.exec("ctl", "scontrol", "update", "nodename=r01t04", "state=drain", "reason=broken")
        racks.stop("r01t04")
        racks.start("r01t04")
        assert racks.status()["hosts"]["r01t04"]["slurm"] == "drain"
        outside = subprocess.run(["ip", "-brief", "address"], capture_output=True, text=True, check=True).stdout
        assert "198.51.100." not in outside
        for arguments, sentence in (
            (["set", "r01t09", "health=unhealthy"], "lab: there is no tray 'r01t09' in this lab: it has r01t01 to "),
            (["exec", "r01t09", "--", "true"], "lab: there is no host 'r01t09' in lab "),
        ):
            done = lab_command(arguments[0], "--name", racks.name, *arguments[1:], check=False)
            assert done.returncode == 1
            assert done.stderr.startswith(sentence)
            assert done.stderr.count("\n") == 1
        assert processes_of(racks.name)
        assert mounts_of(racks.name)
    assert left_behind(racks.name) == []
    lab_command("down", "--name", racks.name)  # nothing is left to do


def test_down_removes_a_lab_whose_nspawn_and_state_file_are_gone(lab: LabFactory) -> None:
    with lab() as racks:
        file = STATE / racks.name / "state.json"
        for host in json.loads(file.read_text())["hosts"].values():
            os.kill(host["pid"], signal.SIGKILL)
        assert processes_of(racks.name), "the hosts outlive their nspawn, which is what makes this worth a test"
        file.unlink()
        done = lab_command("status", "--name", racks.name, check=False)
        assert "was left by a crash: take it down" in done.stderr
        lab_command("down", "--name", racks.name)
        assert left_behind(racks.name) == []


def test_down_removes_what_a_killed_up_left() -> None:
    name = f"crash-{os.getpid()}"
    with starting(name, hosts=3) as up:
        up.kill()
        up.wait()
        again = lab_command("up", "--name", name, check=False)
        assert again.returncode == 1
        assert "is there already, running or left by a crash" in again.stderr
    assert left_behind(name) == []


def test_down_leaves_a_reused_pid_alone() -> None:
    name = f"reused-{os.getpid()}"
    with subprocess.Popen(["sleep", "600"]) as unrelated:
        try:
            entry = {"pid": unrelated.pid, "started": 1}
            (STATE / name).mkdir(parents=True)
            state = {"up": entry, "phase": "starting", "hosts": {"r01t01": entry}}
            (STATE / name / "state.json").write_text(json.dumps(state))
            lab_command("down", "--name", name)
            assert unrelated.poll() is None
            assert left_behind(name) == []
        finally:
            unrelated.kill()
