# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook discover with live sources instead of, and next to, facts through Ansible."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .commands import ansible

DOWN = {"rest": {"url": "http://127.0.0.1:9/", "trays": "@", "fields": {"name": "name"}, "timeout": 1, "deadline": 2}}
pytestmark = pytest.mark.long


def test_a_site_without_an_inventory_is_discovered_and_survives_an_outage(tmp_path: Path) -> None:
    path = tmp_path / "fabric.json"
    options: dict[str, Any] = {
        "fabric_file": str(path),
        "fabric_accept": "gates",
        "fabric_sources": [{"simulation": {"racks": 2, "trays_per_rack": 3}}],
        "fabric_expected": {"hall_a": "r01t[01-03]", "hall_b": "r02t[01-03]"},
        "fabric_max_age": 600,
    }

    def discover(check: bool = True, **more: object) -> str:
        reported = ("-e", json.dumps({**options, **more}))
        done = ansible("ansible-playbook", "rackscale.nvlink.discover", *reported, check=check)
        return " ".join((done.stdout + done.stderr).split())

    assert "restore it, or add fabric_file to sources" in discover(check=False, fabric_sources=[DOWN])
    assert not path.exists()
    assert "6 placed" in discover()
    before = path.read_bytes()
    assert sorted(json.loads(before)["domains"]) == ["hall_a", "hall_b"]
    assert "no tray answered: " in discover(check=False, fabric_sources=[DOWN])
    assert "no tray changes its place" in discover(fabric_sources=[DOWN, *options["fabric_sources"]])
    assert path.read_bytes() == before
    state = json.loads((tmp_path / "fabric.state.json").read_text())
    assert "source_failed" in {row["code"] for row in state["findings"]}

    # The switches split the rack: gates refuse the change until they are overridden by name.
    split = [{"simulation": {"racks": 2, "trays_per_rack": 3, "split": {"2": 3}}}]
    refused = "not accepted: gates clique_shrank, moved_percent, tray_partitions ("
    assert refused in discover(check=False, fabric_sources=split)
    assert path.read_bytes() == before
    discover(fabric_sources=split, fabric_override="clique_shrank,moved_percent,tray_partitions")
    overridden = {row["gate"] for row in json.loads(path.read_text())["overrides"]}
    assert overridden == {"clique_shrank", "moved_percent", "tray_partitions"}
