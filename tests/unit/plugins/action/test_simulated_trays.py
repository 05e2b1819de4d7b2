# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleError
from ansible_collections.rackscale.nvlink.plugins.action.simulated_trays import ActionModule

Write = Callable[..., dict[str, Any]]


@pytest.fixture
def write(tmp_path: Path, run_action: Callable[..., dict[str, Any]]) -> Write:
    def run(racks: int = 1, **more: Any) -> dict[str, Any]:
        simulation = {"racks": racks, "trays_per_rack": 2}
        return run_action(ActionModule, **{"dest": str(tmp_path / "trays"), "simulation": simulation, **more})

    return run


def test_a_second_run_changes_nothing_and_a_smaller_one_cleans_up(write: Write, tmp_path: Path) -> None:
    assert write(racks=2)["changed"]
    assert not write(racks=2)["changed"]
    assert write(racks=1)["changed"]
    assert sorted(path.name for path in (tmp_path / "trays").iterdir()) == [
        ".simulated_trays.json",
        "r01t01",
        "r01t02",
        "ssh-to-nowhere",
    ]


def test_an_unhealthy_gpu_changes_one_tray(write: Write, tmp_path: Path) -> None:
    write()
    before = {path: path.read_text() for path in (tmp_path / "trays").glob("*/nvidia-smi.xml")}
    assert write(unhealthy_gpus={"r01t02": [2]})["changed"]
    changed = {path.parent.name: path.read_text() for path in before if path.read_text() != before[path]}
    assert list(changed) == ["r01t02"]
    assert changed["r01t02"].count("Unhealthy") == 1
    assert write()["changed"]
    assert {path: path.read_text() for path in before} == before


def test_check_mode_writes_nothing(write: Write, tmp_path: Path) -> None:
    assert write(check=True)["changed"]
    assert not (tmp_path / "trays").exists()


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"simulation": {"racks": 0}}, "racks"),
        ({"simulation": {"rakcs": 1}}, "rakcs"),
        ({"dest": None}, "dest"),
    ],
)
def test_wrong_options_name_the_option(write: Write, tmp_path: Path, options: dict[str, Any], word: str) -> None:
    with pytest.raises(AnsibleError, match=word):
        write(**options)
    assert not (tmp_path / "trays").exists()
