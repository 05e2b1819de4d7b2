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

SICK = {"health": "unhealthy", "findings": [{"code": "x", "severity": "error", "message": "m", "gpu": 2}]}


def _report(fabric: Fabric, state: State, earlier: Any = None) -> tuple[str, dict[str, Any]]:
    files = report.render(fabric, state, RenderContext(earlier=earlier))
    return files[report.PAGE], json.loads(files[changes.PATH])


def test_a_first_report_has_nothing_to_compare_with() -> None:
    fabric = fabrics.fabric()
    page, kept = _report(fabric, fabrics.state(fabric))
    assert kept["changes"] is None
    assert "Changed since" not in page
    assert changes.is_report(kept)


def test_what_changed_is_said_tray_by_tray_and_in_sums() -> None:
    fabric = fabrics.fabric()
    _page, first = _report(fabric, fabrics.state(fabric))
    page, kept = _report(fabric, fabrics.state(fabric, r02t12=SICK, r01t07={"state": "stale"}), first)
    assert kept["changes"]["since"] == "2026-11-21T04:00:00Z"
    assert kept["changes"]["rows"] == [
        ["r01t07, state", "present", "stale"],
        ["r02t12, health", "healthy", "unhealthy"],
        ["x of r02t12 GPU 2", "-", "error"],
    ]
    assert kept["changes"]["sums"] == [
        ["healthy trays", 36, 35],
        ["unhealthy trays", 0, 1],
        ["stale trays", 0, 1],
        ["trays that work", 36, 34],
        ["largest job inside one clique", 18, 17],
        ["errors", 0, 1],
    ]
    assert "<b>36 → 34</b> trays that work" in page


def test_the_same_report_again_is_the_same_by_the_byte_and_keeps_its_changes() -> None:
    fabric = fabrics.fabric()
    _page, first = _report(fabric, fabrics.state(fabric))
    hurt = fabrics.state(fabric, r02t12=SICK)
    second = report.render(fabric, hurt, RenderContext(earlier=first))
    later = State(hurt.trays, hurt.findings, "2027-01-01T00:00:00Z")
    assert report.render(fabric, later, RenderContext(earlier=json.loads(second[changes.PATH]))) == second


def test_mended_gone_and_new_trays_are_said_too() -> None:
    fabric = fabrics.fabric(racks=1)
    _page, first = _report(fabric, fabrics.state(fabric, r01t02=SICK))
    gone = Fabric(fabric.domains, fabric.cliques, {n: row for n, row in fabric.trays.items() if n != "r01t01"}, [])
    _page, second = _report(gone, fabrics.state(gone, new={"state": "unplaced"}), first)
    assert second["changes"]["rows"] == [
        ["new", "-", "-, healthy, unplaced"],
        ["r01t01", "r01, healthy, present", "-"],
        ["r01t02, health", "unhealthy", "healthy"],
        ["x of r01t02 GPU 2", "error", "-"],
    ]


def test_a_change_of_everything_is_cut() -> None:
    fabric = fabrics.fabric(racks=20)
    _page, first = _report(fabric, State())
    page, second = _report(fabric, fabrics.state(fabric), first)
    assert len(second["changes"]["rows"]) == changes.MAX_ROWS
    assert f"And {second['changes']['more']} more changes." in page
    # Of a fabric without a state file, which the first report was of.
    assert "a fabric without a state file" in page


@pytest.mark.parametrize("place", [(), ("numbers",), ("numbers", "sums"), ("numbers", "trays"), ("changes",)])
@pytest.mark.parametrize("value", [None, 1, "x", [], {"x": None}, {"x": ["a"]}, {"sums": 1, "rows": [[1]]}])
def test_what_no_report_left_is_not_compared_with(place: tuple[str, ...], value: Any) -> None:
    fabric = fabrics.fabric(racks=1)
    _page, first = _report(fabric, fabrics.state(fabric))
    bent: Any = {"it": first}
    inner = bent
    for key in ("it", *place)[:-1]:
        inner = inner[key]
    inner[("it", *place)[-1]] = value
    if place == ("changes",) and value is None:
        return
    assert not changes.is_report(bent["it"])
    _page, second = _report(fabric, fabrics.state(fabric, r01t01=SICK), bent["it"])
    assert second["changes"] is None
