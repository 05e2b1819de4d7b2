# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The demo, as a newcomer runs it: the real playbooks and the real inventory plugin on simulated trays."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

from .commands import ansible

CHECKOUT = Path(__file__).resolve().parents[2]
INVENTORY = CHECKOUT / "playbooks" / "files" / "demo.nvlink.yml"
DOWN, SICK = "r01t07", "r02t12"
RACK_1 = [f"r01t{tray:02d}" for tray in range(1, 19)]
RACK_2 = [f"r02t{tray:02d}" for tray in range(1, 19)]


@dataclass
class Demo:
    """A demo that has run: its directory and what it printed."""

    directory: Path
    output: str

    def json(self, name: str) -> Any:
        return json.loads((self.directory / name).read_text())

    def text(self, name: str) -> str:
        return (self.directory / name).read_text()


def playbook(*arguments: str, check: bool = True, **more: str) -> str:
    """What a run of ansible-playbook printed."""
    done = ansible("ansible-playbook", *arguments, check=check, **{"COLUMNS": "120"} | more)
    return done.stdout + done.stderr


def run_demo(directory: Path) -> Demo:
    """As `make demo` does."""
    given = ("-i", str(INVENTORY), "rackscale.nvlink.demo", "-e", f"demo_dir={directory}")
    callback = {"ANSIBLE_STDOUT_CALLBACK": "rackscale.nvlink.progress", "NVLINK_PROGRESS_INTERVAL": "0"}
    return Demo(directory, playbook(*given, **callback, COLUMNS="80"))


def leave_earlier_demo(directory: Path) -> None:
    """What a demo of other racks left, and a file that is not of a demo."""
    (directory / ".demo").touch()
    fabric = fabric_file.serialise(fabrics.fabric(racks=3, trays=1, split=()))
    for name in ("fabric.json", "fabric.json.previous"):
        (directory / name).write_bytes(fabric)
    (directory / "mine.txt").write_text("mine")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """Over an earlier demo, of which nothing may remain; tests/tools/artifact.py runs one in an empty directory."""
    directory = tmp_path_factory.mktemp("demo") / "out"
    directory.mkdir()
    leave_earlier_demo(directory)
    return run_demo(directory)


def test_the_unreachable_tray_is_stale_in_its_old_place_and_the_unhealthy_one_in_the_report(demo: Demo) -> None:
    fabric, state = demo.json("fabric.json"), demo.json("fabric.state.json")
    assert sorted(fabric["trays"]) == RACK_1 + RACK_2
    before = fabric["trays"]["r01t06"]
    assert fabric["trays"][DOWN]["clique"] == before["clique"]
    assert fabric["trays"][DOWN]["tray_index"] == 6
    assert state["trays"][DOWN]["state"] == "stale"
    assert {name for name, tray in state["trays"].items() if tray["state"] != "present"} == {DOWN}
    assert {name for name, tray in state["trays"].items() if tray["health"] == "unhealthy"} == {SICK}
    page = demo.text("report/index.html")
    assert "32 of 36 trays are usable by jobs of 8 trays; " in page
    assert "simulated" in page


@pytest.mark.core
def test_it_prints_less_than_45_lines_and_the_result_last(demo: Demo) -> None:
    lines = demo.output.splitlines()
    assert not [line for line in lines if "[WARNING]" in line or "DEPRECATION" in line]
    assert lines[0].startswith("  Two simulated NVL72 racks")
    sums = [
        re.fullmatch(r"  slurm/topology\.\w+  sha256 (\w{16}) before, (\w{16}) after the faults", line)
        for line in lines
    ]
    assert [found[1] == found[2] for found in sums if found] == [True, True]
    assert re.fullmatch(r"  Report: .*/report/index\.html", lines[-2])
    assert re.fullmatch(r"CHANGED in [0-9.]+ s: localhost", lines[-1])
    # `make demo` adds the last one.
    assert len(lines) < 45
    # A line with its remedy for each fault.
    found = [line.split()[:2] for line in demo.output.splitlines() if line.startswith(("  error ", "  warning "))]
    assert found == [["error", SICK], ["warning", f"{DOWN}:"]]
    assert "could not be sent" not in demo.output


def test_a_demo_over_an_earlier_one_keeps_what_is_not_its_own(demo: Demo) -> None:
    # A write keeps the file before it as .previous; the first write had none before it, the second changed nothing.
    assert not (demo.directory / "fabric.json.previous").exists()
    assert demo.text("mine.txt") == "mine"
    assert set(demo.json("fabric.json")["domains"]) == {"r01", "r02"}


@pytest.mark.long
def test_another_fabric_file_is_not_overwritten_and_a_relative_directory_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "fabric.json").write_text("precious")
    for directory, words in (
        (tmp_path, "has a fabric.json that is not from the demo"),
        ("relative", "Set the directory"),
    ):
        output = playbook("-i", str(INVENTORY), "rackscale.nvlink.demo", "-e", f"demo_dir={directory}", check=False)
        assert words in output
    assert (tmp_path / "fabric.json").read_text() == "precious"
