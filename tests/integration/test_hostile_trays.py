# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Trays of the lab that never answer, or without end, over real ssh and with Ansible's defaults: they fail alone."""

from __future__ import annotations

import json
import resource
import subprocess
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from . import hostile
from .commands import ansible
from .conftest import RunningLab

pytestmark = pytest.mark.lab


@pytest.fixture
def racks(own_four_trays: RunningLab) -> Iterator[RunningLab]:
    yield own_four_trays
    for tray in ("r01t02", "r01t03"):
        hostile.lift(own_four_trays, tray)


def run_and_measure(arguments: tuple[str | Path, ...]) -> tuple[subprocess.CompletedProcess[str], int]:
    """Run a playbook; also the memory in kB of the largest process below this one."""
    done = ansible("ansible-playbook", *arguments, check=False)
    return done, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss


def ssh_clients(tray: str) -> list[str]:
    """The command lines of ssh clients that run a command on a tray; a kept connection (ControlPersist) runs none."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if words[0].endswith("ssh") and tray in words and "python" in " ".join(words[words.index(tray) :]):
            found.append(" ".join(words))
    return found


def test_discover_ends_for_a_tray_that_never_answers_and_one_that_never_stops(
    racks: RunningLab, tmp_path: Path
) -> None:
    hostile.plant(racks, "r01t02", hostile.hang_text(real=hostile.KEPT))
    hostile.plant(racks, "r01t03", hostile.flood_text(200, real=hostile.KEPT))
    fabric = tmp_path / "fabric.json"
    # On a busy machine it takes minutes until so much has come by ssh.
    ends = {"r01t02": {"fabric_facts_timeout": 5}, "r01t03": {"fabric_facts_timeout": 100}}
    more = tmp_path / "ends.yml"
    more.write_text(json.dumps({"trays": {"hosts": ends}}))
    arguments = ("-i", racks.inventory, "-i", more, "rackscale.nvlink.discover", "-e", f"fabric_file={fabric}")
    arguments += ("-e", "fabric_accept=gates")
    # In a process of its own, whose children are those of this run alone.
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        done, memory = pool.submit(run_and_measure, arguments).result()
    assert "r01t02 did not answer within 70 seconds" in done.stdout
    assert "r01t03 printed more than any answer has" in done.stdout
    state = json.loads((tmp_path / "fabric.state.json").read_text())["trays"]
    assert {name: row["state"] for name, row in state.items() if row["state"] != "unplaced"} == {
        "r01t01": "present",
        "r01t04": "present",
    }
    assert ssh_clients("r01t02") == []
    # In kB; without a limit the worker of r01t03 takes more than 1 GB.
    assert memory < 600_000
