# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from pathlib import Path

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.explain import health
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import failure
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

THEN, NOW = "2026-11-20T05:00:00Z", "2026-11-21T05:00:00Z"
LOST = failure("gpu_lost", "hardware", "GPU 2 of board 1820925000123 at 198.51.100.11 is lost", "r01t01")


def test_a_tray_has_its_worst_failure_and_the_time_since_when() -> None:
    rows = [failure("imex_list_outdated", "imex", "", trays=["r01t01", "r01t02"], severity="info"), LOST]
    found = health.of_failures([*rows, failure("fabric_degraded", "hardware", "", "r01t01")], NOW, {})
    assert list(found) == ["r01t01"]
    assert [found["r01t01"][key] for key in ("state", "since", "code")] == ["unhealthy", NOW, "gpu_lost"]
    assert found["r01t01"]["remedy"].startswith("drain the tray and reboot it")
    before = {"r01t01": {**found["r01t01"], "since": THEN}}
    assert health.of_failures([LOST], NOW, before)["r01t01"]["since"] == THEN
    assert health.of_failures([LOST], NOW, {"r01t01": {"code": "other", "since": THEN}})["r01t01"]["since"] == NOW


def test_no_address_or_serial_can_be_in_it() -> None:
    text = json.dumps(health.of_failures([LOST], NOW, {}))
    assert "198.51" not in text
    assert "1820925" not in text


def test_the_last_verdict_wins_over_the_state_file(tmp_path: Path) -> None:
    fabric, path = fabrics.fabric(racks=1, trays=2, split=(), first_index=1), str(tmp_path / "fabric.json")
    assert health.known(fabric, path, None, None) == {}
    row = {"state": "unhealthy", "health": "unhealthy", "observed_at": THEN, "source": "x", "driver_version": None}
    row["findings"] = [{"code": "gpu_lost", "severity": "error", "message": "x"}]
    row["state"] = "present"
    state = {"schema_version": 1, "written_at": THEN, "findings": [], "trays": {"r01t02": row}}
    (tmp_path / "fabric.state.json").write_text(json.dumps(state))
    found = health.known(fabric, path, None, None)
    node = fabric.trays["r01t02"]["slurm_node"]
    assert (list(found), found[node]["since"], found[node]["code"]) == ([node], THEN, "gpu_lost")
    (tmp_path / "verdict.json").write_text(json.dumps({"health": health.of_failures([LOST], NOW, {})}))
    found = health.known(fabric, path, None, str(tmp_path / "verdict.json"))
    assert list(found) == [fabric.trays["r01t01"]["slurm_node"]]
    found = health.known(fabric, path, None, str(tmp_path / "verdict.json"), "kubernetes_node")
    assert list(found) == [fabric.trays["r01t01"]["kubernetes_node"]]
