# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Query, drain and test the nodes of a large site, with stand-ins for Slurm's programs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import nodes
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Job, Slurm

WHY = "nvlink: resume"
NAMES = [f"r01t{number:02d}" for number in range(1, 19)]


class Programs:
    """scontrol, srun and squeue of one rack whose trays are all drained until they are tested."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.called = folder / "called"
        self.nodes("")
        self.program("squeue", "exit 0")

    def nodes(self, more: str) -> None:
        lines = [f"NodeName={name} State=IDLE+DRAIN Reason={WHY} [root@2026-11-21T15:10:00] {more}" for name in NAMES]
        (self.folder / "nodes").write_text("".join(f"{line}\n" for line in lines))
        self.program("scontrol", f'echo "$*" >> {self.called}\ncase "$*" in *show*) cat {self.folder}/nodes;; esac')

    def program(self, name: str, script: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def slurm(self) -> Slurm:
        return Slurm(str(self.folder), 10)

    @property
    def updates(self) -> list[str]:
        return [line for line in self.called.read_text().splitlines() if not line.startswith("-a")]


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path)


def test_the_output_of_a_large_site_is_read_completely(programs: Programs) -> None:
    """With features, TRES and a system's name a node of GPUs takes over a kilobyte, and there are ten thousand."""
    programs.nodes("OS=" + "x" * 1024 * 1024)
    assert (programs.folder / "nodes").stat().st_size > 18 * 1024 * 1024
    assert nodes.survey(programs.slurm()).keys() == set(NAMES)


def test_trays_are_tested_concurrently_and_only_failed_ones_stay_drained(programs: Programs) -> None:
    running, counts = programs.folder / "running", programs.folder / "counts"
    running.mkdir()
    fails = 'case "$*" in *r01t03*) echo "no GPU" >&2; exit 9;; esac'
    programs.program(
        "srun", f"touch {running}/$$; sleep 0.5; ls {running} | wc -l >> {counts}; rm {running}/$$; {fails}"
    )
    outcome = nodes.resume(programs.slurm(), NAMES, WHY, nodes.Test(("nvidia-smi", "-q"), timeout=60), check=False)
    assert outcome.failed_tests == {"r01t03": "its test nvidia-smi failed (no GPU)"}
    assert outcome.changes == [f"{name}: resumed" for name in NAMES if name not in outcome.failed_tests]
    assert max(map(int, counts.read_text().split())) > 1
    reserved, undrained, drained, gone = programs.updates
    assert "Nodes=r01t[01-18] " in reserved
    assert undrained == "update nodename=r01t[01-18] state=undrain"
    assert drained == f"update nodename=r01t03 state=drain reason={nodes.UNPROVEN}"
    assert gone.startswith("delete ReservationName=nvlink_test_")


def test_a_tray_whose_test_hangs_stays_drained(programs: Programs) -> None:
    programs.program("srun", "exec sleep 60")
    outcome = nodes.resume(programs.slurm(), NAMES[:2], WHY, nodes.Test(("true",), timeout=1), check=False)
    assert outcome.failed_tests == dict.fromkeys(NAMES[:2], "its test true failed (no answer in time)")
    assert outcome.changes == []


def test_a_long_wait_for_jobs_polls_soon_at_first_and_then_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each poll makes slurmctld list all jobs of the site, and a drain may wait for hours."""
    now, polled = 100.0, list[float]()

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    class Busy(Slurm):
        def scontrol(self, *_arguments: str) -> str:
            return "NodeName=r01t04 State=MIXED+DRAIN\n"

        def jobs(self) -> list[Job]:
            polled.append(now - 100)
            return [Job("17", "op", "all", ("r01t04",))]

    monkeypatch.setattr(nodes.time, "monotonic", lambda: now)
    monkeypatch.setattr(nodes.time, "sleep", sleep)
    assert nodes.drain(Busy(), ["r01t04"], WHY, 3600, check=False).running_jobs == {"r01t04": ["17"]}
    assert sum(at <= 2 for at in polled) >= 4
    assert len(polled) < 800
    assert polled[-1] == pytest.approx(3600)
    pauses = [after - before for before, after in zip(polled, polled[1:])]
    assert max(pauses) <= 5.001, "what waits for it loses little time"


def test_a_drain_without_running_jobs_does_not_wait(programs: Programs) -> None:
    began = time.monotonic()
    assert nodes.drain(programs.slurm(), NAMES, WHY, 3600, check=False).running_jobs == {}
    assert time.monotonic() - began < 60
