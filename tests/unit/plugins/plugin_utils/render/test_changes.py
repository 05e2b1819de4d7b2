# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric, State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import changes, report
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import RenderContext
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

UNHEALTHY = {"health": "unhealthy", "findings": [{"code": "x", "severity": "error", "message": "m", "gpu": 2}]}


def _report(fabric: Fabric, state: State, earlier: Any = None) -> tuple[str, dict[str, Any]]:
    files = report.render(fabric, state, RenderContext(earlier=earlier))
    return files[report.PAGE], json.loads(files[changes.PATH])


def test_changes_are_listed_by_tray_and_in_sums() -> None:
    fabric = fabrics.fabric()
    _page, first = _report(fabric, fabrics.state(fabric))
    page, stored = _report(fabric, fabrics.state(fabric, r02t12=UNHEALTHY, r01t07={"state": "stale"}), first)
    assert stored["changes"]["since"] == "2026-11-21T04:00:00Z"
    assert stored["changes"]["rows"] == [
        ["r01t07, state", "present", "stale"],
        ["r02t12, health", "healthy", "unhealthy"],
        ["x of r02t12 GPU 2", "-", "error"],
    ]
    assert stored["changes"]["sums"] == [
        ["healthy trays", 36, 35],
        ["unhealthy trays", 0, 1],
        ["stale trays", 0, 1],
        ["working trays", 36, 34],
        ["largest job inside one clique", 18, 17],
        ["errors", 0, 1],
    ]
    assert "<b>36 → 34</b> working trays" in page


def test_rendering_again_gives_the_same_bytes_and_keeps_the_changes() -> None:
    fabric = fabrics.fabric()
    _page, first = _report(fabric, fabrics.state(fabric))
    degraded = fabrics.state(fabric, r02t12=UNHEALTHY)
    second = report.render(fabric, degraded, RenderContext(earlier=first))
    later = State(degraded.trays, degraded.findings, "2027-01-01T00:00:00Z")
    third = report.render(fabric, later, RenderContext(earlier=json.loads(second[changes.PATH])))
    # The page has the time of its data, and no other.
    now = {path: text.replace("2027-01-01T00:00:00Z", str(degraded.written_at)) for path, text in third.items()}
    assert now == second
    assert third[changes.PATH] == second[changes.PATH]


def test_recovered_removed_and_new_trays_are_listed() -> None:
    fabric = fabrics.fabric(racks=1)
    _page, first = _report(fabric, fabrics.state(fabric, r01t02=UNHEALTHY))
    removed = Fabric(fabric.domains, fabric.cliques, {n: row for n, row in fabric.trays.items() if n != "r01t01"}, [])
    _page, second = _report(removed, fabrics.state(removed, new={"state": "unplaced"}), first)
    assert second["changes"]["rows"] == [
        ["new", "-", "-, healthy, unplaced"],
        ["r01t01", "r01, healthy, present", "-"],
        ["r01t02, health", "unhealthy", "healthy"],
        ["x of r01t02 GPU 2", "error", "-"],
    ]


def test_the_list_of_changes_is_limited() -> None:
    fabric = fabrics.fabric(racks=20)
    _page, first = _report(fabric, State())
    page, second = _report(fabric, fabrics.state(fabric), first)
    assert len(second["changes"]["rows"]) == changes.MAX_ROWS
    assert f"And {second['changes']['more']} more changes." in page
    # The first report had no state file.
    assert "a fabric without a state file" in page


@pytest.mark.parametrize("keys", [(), ("numbers",), ("numbers", "sums"), ("numbers", "trays"), ("changes",)])
@pytest.mark.parametrize("value", [None, 1, "x", [], {"x": None}, {"x": ["a"]}, {"sums": 1, "rows": [[1]]}])
def test_an_invalid_report_json_is_not_compared(keys: tuple[str, ...], value: Any) -> None:
    fabric = fabrics.fabric(racks=1)
    _page, first = _report(fabric, fabrics.state(fabric))
    invalid: Any = {"it": first}
    inner = invalid
    for key in ("it", *keys)[:-1]:
        inner = inner[key]
    inner[("it", *keys)[-1]] = value
    if keys == ("changes",) and value is None:
        return
    assert not changes.is_report(invalid["it"])
    _page, second = _report(fabric, fabrics.state(fabric, r01t01=UNHEALTHY), invalid["it"])
    assert second["changes"] is None
