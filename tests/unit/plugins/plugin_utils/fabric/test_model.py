# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import gpu_health, worst_health
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import natural_sorted
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

CLEAR = {"degraded_bandwidth": False, "route_unhealthy": False}
NOTHING = dict.fromkeys([*CLEAR, "summary"])


def test_names_are_sorted_in_natural_order() -> None:
    names = ["r10t1", "r2t10", "r2t9", "r02t9", "gpu", "R1", "r2"]
    assert natural_sorted(names) == ["R1", "gpu", "r2", "r02t9", "r2t9", "r2t10", "r10t1"]


@pytest.mark.parametrize(
    ("rows", "health"),
    [
        ({"summary": "healthy", **CLEAR}, "healthy"),
        ({"summary": "unhealthy", **CLEAR}, "unhealthy"),
        ({"summary": "healthy", **CLEAR, "route_unhealthy": True}, "unhealthy"),
        ({"summary": "limited_capacity", **CLEAR}, "degraded"),
        ({"summary": "healthy", **CLEAR, "degraded_bandwidth": True}, "degraded"),
        ({"summary": "healthy", **CLEAR, "fabric_manager_connected": True}, "healthy"),
        ({"summary": "healthy", **CLEAR, "fabric_manager_connected": False}, "degraded"),
        ({"summary": "unhealthy", **CLEAR, "fabric_manager_connected": False}, "unhealthy"),
        # A driver that fills the mask but has no summary yet.
        ({"summary": None, **CLEAR}, "healthy"),
        ({"summary": None, **CLEAR, "route_unhealthy": True}, "unhealthy"),
        # A driver that reports no health values.
        (NOTHING, "unknown"),
        ({}, "unknown"),
    ],
)
def test_health_rows_give_the_health_of_a_gpu(rows: dict[str, object], health: str) -> None:
    assert gpu_health(rows) == health


@pytest.mark.parametrize(
    ("gpus", "tray"),
    [
        (["healthy", "healthy"], "healthy"),
        (["healthy", "degraded"], "degraded"),
        (["degraded", "unhealthy", "unknown"], "unhealthy"),
        (["healthy", "unknown"], "unknown"),
        ([], "unknown"),
    ],
)
def test_the_worst_gpu_decides(gpus: list[str], tray: str) -> None:
    assert worst_health(gpus) == tray


def test_the_fingerprint_ignores_the_message_of_an_unreachable_tray() -> None:
    """ssh to a tray without power ends in "Broken pipe" now and "did not pass back a connection" the next time."""

    def away(code: str, words: str) -> object:
        row = {"code": code, "severity": "warning", "tray": "r01t01", "message": f"Tray r01t01: {words}."}
        return fabrics.state(fabrics.fabric(racks=1), r01t01={"findings": [row]}).fingerprint()

    assert away("tray_unreachable", "Broken pipe") == away("tray_unreachable", "no connection")
    assert away("tray_unreachable", "Broken pipe") != away("tray_not_attached", "Broken pipe")
    assert away("tray_not_attached", "one GPU") != away("tray_not_attached", "two GPUs")
