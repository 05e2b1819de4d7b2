# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sick systems of public reports: each is one line of verify, with the severity, sentence and next step of its row."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils import trays

from . import sick_hardware, sick_imex, sick_xids
from .sick_system import A, Situation, System

SITUATIONS = [*sick_hardware.SITUATIONS, *sick_imex.SITUATIONS, *sick_xids.SITUATIONS]


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


def test_each_severity_of_the_documented_table_is_that_of_a_sick_system() -> None:
    """A row of docs/verify.md is proved by a situation of that code and severity, and a situation has a row."""
    page = (trays.TESTS.parent / "docs" / "verify.md").read_text(encoding="utf-8")
    table = page.partition("\n## Severity of GPUs")[2].partition("\n## ")[0]
    cells = [line.split("|")[2:4] for line in table.splitlines() if line.startswith("|")]
    documented = {(code, severity.strip()) for codes, severity in cells for code in re.findall("`(\\w+)`", codes)}
    assert documented == {(row.code, row.severity) for row in sick_hardware.SITUATIONS}


@pytest.mark.parametrize(
    "read",
    [
        {},
        # NVIDIA/nccl, issue 2186: "4 of 8 paths down" is the mask of a healthy GPU.
        {"change": sick_hardware.gpus(sick_hardware.ALL, incorrect_configuration=None, partition_assigned=None)},
        # leptonai/gpud, pull request 1106: a driver that reports no health.
        {"fault": "only_v2"},
        {"slots": 36},
        {"smi": True},
    ],
    ids=["plain", "mask_0xaa", "without_health", "36_slots", "nvidia_smi"],
)
def test_a_healthy_tray_has_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: dict[str, Any]) -> None:
    system = System(tmp_path, monkeypatch)
    system.read(A[0], **read)
    verdict, lines = system.run()
    assert (verdict["ok"], lines) == (True, [])
