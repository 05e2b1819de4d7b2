# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric, State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import metrics
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import RenderContext
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.verdict import verdict
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

GOLDEN = Path(__file__).parents[3] / "fixtures" / "metrics" / "nvlink_fabric.prom"
USED = {
    "r01": {
        "nodes": 2,
        "free_nodes": 0,
        "stranded_gpus": 3,
        "blocked_by": {"jobs/infer": ["r01t02"], "jobs/train": ["r01t01"]},
    },
    "r02": {"nodes": 2, "free_nodes": 1, "stranded_gpus": None, "blocked_by": {"jobs/x": ["r02t02"]}},
}
VERDICT = fabrics.verdict(fabrics.FAILURE, compute_domains={"unknown": [], "cliques": USED})


def _two_racks() -> tuple[Fabric, State]:
    fabric = fabrics.fabric(racks=2, trays=2, split=())
    finding = {"code": "fabric_unhealthy", "severity": "error", "message": "Drain it.", "gpu": 2}
    sick = {"health": "unhealthy", "findings": [finding]}
    old = {"state": "stale", "observed_at": "2026-11-20T04:00:00Z"}
    return fabric, fabrics.state(fabric, r02t02=sick, r01t01=old, spare={"state": "unplaced"})


def _prom(fabric: Fabric, state: State, context: RenderContext | None = None) -> str:
    return metrics.render(fabric, state, context or RenderContext())["metrics/nvlink_fabric.prom"]


def test_the_file_has_the_expected_bytes() -> None:
    assert _prom(*_two_racks(), RenderContext(verdict=verdict(VERDICT, "verdict.json"))) == GOLDEN.read_text()


def test_no_series_is_per_tray() -> None:
    fabric = fabrics.fabric(racks=576, split=())
    assert len(_prom(fabric, fabrics.state(fabric)).splitlines()) < 576 * 15


def test_hostile_names_are_escaped_in_label_values() -> None:
    fabric = fabrics.fabric(racks=1)
    fabric.cliques["r01"]["block"]["name"] = 'a"} 1\nnvlink_evil 1\\'
    text = _prom(fabric, State())
    assert 'block="a\\"} 1\\nnvlink_evil 1\\\\"' in text
    assert not re.search(r"(?m)^nvlink_evil", text)


@pytest.mark.parametrize(
    "time", [None, "", "yesterday", "2026-13-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "2026-11-21"]
)
def test_an_invalid_time_is_left_out(time: str | None) -> None:
    fabric = fabrics.fabric(racks=1)
    state = fabrics.state(fabric, **{name: {"observed_at": time} for name in fabric.trays})
    text = _prom(fabric, State(state.trays, [], time))
    assert "timestamp" not in text
    assert "nvlink_clique_working_trays" in text


def test_times_with_zones_and_fractions_are_converted_to_utc() -> None:
    fabric = fabrics.fabric(racks=1)
    values = set()
    for text in ("2026-11-21T05:00:00Z", "2026-11-21T06:00:00.5+01:00", "2026-11-21t05:00:00z"):
        values |= set(re.findall(r"written_timestamp_seconds (\d+)", _prom(fabric, State({}, [], text))))
    assert values == {"1795237200"}
