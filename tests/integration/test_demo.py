# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The demo, as a newcomer runs it: the real playbooks and the real inventory plugin on simulated trays."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

from .commands import ansible

CHECKOUT = Path(__file__).resolve().parents[2]
INVENTORY = CHECKOUT / "playbooks" / "files" / "demo.nvlink.yml"
DOWN, SICK = "r01t07", "r02t12"


def playbook(*arguments: str, check: bool = True, **more: str) -> str:
    """What a run of ansible-playbook printed."""
    done = ansible("ansible-playbook", *arguments, check=check, **{"COLUMNS": "120"} | more)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder and the printed lines of what `make demo` runs, over an earlier demo of other racks.

    tests/tools/artifact.py runs one in an empty folder.
    """
    folder = tmp_path_factory.mktemp("demo")
    (folder / ".demo").touch()
    for name in ("fabric.json", "fabric.json.previous"):
        (folder / name).write_bytes(fabric_file.serialise(fabrics.fabric(racks=3, trays=1, split=())))
    (folder / "mine.txt").write_text("mine")
    given = ("-i", str(INVENTORY), "rackscale.nvlink.demo", "-e", f"demo_dir={folder}")
    callback = {"ANSIBLE_STDOUT_CALLBACK": "rackscale.nvlink.progress", "NVLINK_PROGRESS_INTERVAL": "0"}
    return folder, playbook(*given, **callback, COLUMNS="80").splitlines()


def test_the_unreachable_tray_is_stale_in_its_old_place_and_the_unhealthy_one_in_the_report(
    demo: tuple[Path, list[str]],
) -> None:
    folder, _lines = demo
    fabric, state = (json.loads((folder / name).read_text()) for name in ("fabric.json", "fabric.state.json"))
    assert sorted(fabric["trays"]) == [f"r0{rack}t{tray:02d}" for rack in (1, 2) for tray in range(1, 19)]
    assert (fabric["trays"][DOWN]["clique"], fabric["trays"][DOWN]["tray_index"]) == ("r01", 6)
    assert {name: tray["state"] for name, tray in state["trays"].items() if tray["state"] != "present"} == {
        DOWN: "stale"
    }
    assert {name for name, tray in state["trays"].items() if tray["health"] == "unhealthy"} == {SICK}
    page = (folder / "report/index.html").read_text()
    assert "r02t12, r01t07 need attention. Jobs of 8 trays can use 32 of 36 trays." in page
    assert "simulated" in page
    # Of the earlier one remains what is not its own.
    assert set(fabric["domains"]) == {"r01", "r02"}
    assert not (folder / "fabric.json.previous").exists()
    assert (folder / "mine.txt").read_text() == "mine"


@pytest.mark.core
def test_it_prints_less_than_45_lines_and_the_result_last(demo: tuple[Path, list[str]]) -> None:
    folder, lines = demo
    assert not [line for line in lines if re.search(r"\[WARNING\]|DEPRECATION|could not be sent", line)]
    assert lines[0].startswith("  Two simulated NVL72 racks")
    # Printed only where the checksums are the same.
    assert lines[-3] == "  slurm/topology.yaml and topology.conf are the same bytes before and after the faults."
    assert all((folder / "slurm" / name).stat().st_size for name in ("topology.yaml", "topology.conf"))
    assert re.fullmatch(r"  Report: .*/report/index\.html", lines[-2])
    assert re.fullmatch(r"CHANGED in [0-9.]+ s: localhost", lines[-1])
    # The plan of a split, of which nothing is in the fabric file.
    assert "  A split of r01 would move 18 trays (playbook partition)." in lines
    assert set(json.loads((folder / "fabric.json").read_text())["cliques"]) == {"r01", "r02a", "r02b"}
    # `make demo` adds the last one.
    assert len(lines) < 45
    # A line with its remedy for each fault.
    found = [line.split()[:2] for line in lines if line.startswith(("  error ", "  warning "))]
    assert found == [["error", SICK], ["warning", f"{DOWN}:"]]


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
