# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sick systems of public reports: each is one line of verify, with the severity, sentence and next step of its row."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import sick_hardware
from .sick_system import Situation, System

SITUATIONS = [*sick_hardware.SITUATIONS]


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in SITUATIONS])
def test_a_sick_system_is_one_line_with_its_next_step(
    row: Situation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = System(tmp_path, monkeypatch)
    row.sicken(system)
    verdict, lines = system.run()
    assert [line.split(" ", 3)[:3:2] for line in lines[::2]] == [[row.severity, f"{row.code}:"]], lines
    assert lines[0].split(": ", 1)[1].startswith(row.sentence), lines
    assert row.step in lines[1].partition("next step: ")[2], lines
    assert verdict["ok"] is (row.severity != "error")


def test_racks_that_are_read_and_not_sick_have_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = System(tmp_path, monkeypatch)
    for tray in system.world.trays:
        system.read(tray)
    verdict, lines = system.run()
    assert (verdict["ok"], lines) == (True, [])
