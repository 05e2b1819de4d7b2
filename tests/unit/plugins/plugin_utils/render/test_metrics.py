# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric, State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import metrics
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import RenderContext
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.verdict import verdict
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import node_states
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

SAMPLES = """\
nvlink_fabric_info{sha256="072880d052d0492f20db8ec2f4e0320f0b0a556df9e6b0624b01e195884af6e6"} 1
nvlink_state_written_timestamp_seconds 1795233600
nvlink_domain_expected_trays{domain="r01"} 2
nvlink_domain_trays{domain="r01"} 2
nvlink_unplaced_trays 1
nvlink_clique_info{clique="r02",domain="r02",block="r02",label="00000002-1111-4222-8333-444444444444.32766"} 1
nvlink_clique_gpus{clique="r01",domain="r01"} 8
nvlink_clique_trays_by_health{clique="r02",domain="r02",health="healthy"} 1
nvlink_clique_trays_by_health{clique="r02",domain="r02",health="degraded"} 0
nvlink_clique_trays_by_health{clique="r02",domain="r02",health="unhealthy"} 1
nvlink_clique_trays_by_state{clique="r01",domain="r01",state="stale"} 1
nvlink_clique_trays_by_state{clique="r01",domain="r01",state="unknown"} 0
nvlink_clique_working_trays{clique="r01",domain="r01"} 1
nvlink_clique_oldest_observation_timestamp_seconds{clique="r01",domain="r01"} 1795147200
nvlink_clique_trays_by_state{clique="r02",domain="r02",state="down"} 1
nvlink_slurm_states_timestamp_seconds 1795237200
nvlink_block_idle_trays{block="r01",clique="r01",domain="r01"} 1
nvlink_block_idle_trays{block="r02",clique="r02",domain="r02"} 0
nvlink_segment_idle_segments{segment="1"} 1
nvlink_segment_idle_segments{segment="2"} 0
nvlink_segment_reach_trays{segment="1"} 2
nvlink_segment_blocks{segment="1"} 2
nvlink_job_blocks_allowed{job_trays="2"} 1
nvlink_job_blocks_needed{job_trays="2"} 2
nvlink_job_starts{job_trays="2"} 0
nvlink_findings{code="fabric_unhealthy",severity="error"} 1
nvlink_verify_ok 0
nvlink_verify_timestamp_seconds 1795237200
nvlink_layer_checked{layer="kubernetes"} 0
nvlink_layer_ok{layer="hardware"} 1
nvlink_layer_ok{layer="slurm"} 0
nvlink_layer_failures{layer="slurm",severity="error"} 1
nvlink_layer_failures{layer="slurm",severity="warning"} 0
nvlink_clique_free_nodes{clique="r02"} 1
nvlink_clique_stranded_gpus{clique="r01"} 3
nvlink_clique_blocked_nodes{clique="r01",compute_domain="jobs/infer"} 1
nvlink_block_spare_trays{block="r01",clique="r01",domain="r01",state="reserved"} 0
nvlink_block_spare_trays{block="r01",clique="r01",domain="r01",state="free"} 0
nvlink_block_spare_trays{block="r02",clique="r02",domain="r02",state="promoted"} 1
nvlink_block_spare_trays{block="r02",clique="r02",domain="r02",state="missing"} 0
nvlink_repair_incidents{state="open"} 1
nvlink_repair_incidents{state="closed"} 0
nvlink_repair_oldest_incident_timestamp_seconds 1795233600
nvlink_repair_repeat_offenders{kind="switch_port"} 0
nvlink_repair_lost_seconds{domain="r02"} 3600
nvlink_repair_stopped 0
"""
USED = {
    "r01": {
        "nodes": 2,
        "free_nodes": 0,
        "stranded_gpus": 3,
        "blocked_by": {"jobs/infer": ["r01t02"], "jobs/train": ["r01t01"]},
    },
    "r02": {"nodes": 2, "free_nodes": 1, "stranded_gpus": None, "blocked_by": {"jobs/x": ["r02t02"]}},
}
NODES = {"r01t01": "IDLE", "r01t02": "IDLE", "r02t01": "MIXED", "r02t02": "DOWN"}
VERDICT = fabrics.verdict(fabrics.FAILURE, compute_domains={"unknown": [], "cliques": USED}, slurm_nodes=NODES)


def _two_racks() -> tuple[Fabric, State]:
    fabric = fabrics.fabric(racks=2, trays=2, split=())
    finding = {"code": "fabric_unhealthy", "severity": "error", "message": "Drain it.", "gpu": 2}
    sick = {"health": "unhealthy", "findings": [finding]}
    old = {"state": "stale", "observed_at": "2026-11-20T04:00:00Z"}
    return fabric, fabrics.state(fabric, r02t02=sick, r01t01=old, spare={"state": "unplaced"})


def _prom(fabric: Fabric, state: State, context: RenderContext | None = None) -> str:
    return metrics.render(fabric, state, context or RenderContext())["metrics/nvlink_fabric.prom"]


def test_every_metric_has_its_help_its_type_and_its_samples() -> None:
    seen = verdict(VERDICT, "verdict.json")
    fabric, state = _two_racks()
    context = RenderContext(
        verdict=seen,
        nodes=seen["slurm_nodes"],
        nodes_at=seen["checked_at"],
        repairs=fabrics.REPAIRS,
        spares_active=1,
    )
    lines = _prom(fabric, node_states.applied(state, fabric, seen["slurm_nodes"] or {}), context).splitlines()
    names = [re.split("[ {]", line)[0] for line in lines if line[0] != "#"]
    # test_split.py has a clique that is split.
    helps = {name: text for name, text in metrics.HELP.items() if name != "nvlink_block_trays"}
    assert list(dict.fromkeys(names)) == list(helps)
    for name, text in helps.items():
        at = lines.index(f"# HELP {name} {text}")
        assert lines[at + 1] == f"# TYPE {name} gauge"
        assert re.split("[ {]", lines[at + 2])[0] == name
    assert set(SAMPLES.splitlines()) <= set(lines)
    # What is unknown, and layers that were not checked, have no sample.
    assert len(names) == 91


def test_no_series_is_per_tray() -> None:
    fabric = fabrics.fabric(racks=576, split=())
    context = RenderContext(nodes=dict.fromkeys(fabric.trays, "IDLE"), spares_active=16)
    assert len(_prom(fabric, fabrics.state(fabric), context).splitlines()) < 576 * 23


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
