# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of slurm_topology_info; the rest is in tests/integration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.action.slurm_topology_info import ActionModule, job_spans
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import Block, Topology, documents
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import State
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

from .conftest import SURVEY

RUNNING: dict[str, Any] = {
    "name": "nvlink",
    "block_sizes": [2],
    "blocks": [{"name": "r01", "nodes": ["r01t01", "r01t02"]}, {"name": "r02", "nodes": ["r02t01", "r02t02"]}],
}
BLOCKS = {"topology": "nvlink", "block": {"blocks": [{"block": "r01", "nodes": "r01t[01-02]"}]}}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"job_sizes": [0]}, "option job_sizes: is not a list of numbers of nodes"),
        ({"fabric_file": "/nowhere/fabric.json"}, "/nowhere/fabric.json: cannot be read"),
    ],
)
def test_a_bad_option_is_one_sentence(run_action: Any, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AnsibleActionFail, match=sentence):
        run_action(ActionModule, **options)


def test_spans_use_the_running_topology_and_the_trays_health(run_action: Any, tmp_path: Path, answer: Any) -> None:
    fabric = fabrics.fabric(racks=2, trays=2, split=())
    file = tmp_path / "fabric.json"
    file.write_text(json.dumps(fabric.as_dict()))
    state = fabrics.state(fabric, r01t01={"state": "stale"})
    (tmp_path / "fabric.state.json").write_text(json.dumps(state.as_dict()))
    topology = Topology(
        "nvlink",
        blocks=tuple(Block(row["name"], tuple(row["nodes"])) for row in RUNNING["blocks"]),
        block_sizes=tuple(RUNNING["block_sizes"]),
    )
    asked = answer(survey={"survey": {**SURVEY, "running": documents([topology])}})
    result = run_action(ActionModule, fabric_file=str(file), job_sizes=[4], timeout=5)
    # No script, no file of tiers and no job, which not every user may read.
    change = {"files": ("topology.yaml", "topology.conf"), "jobs": False, "columns": ""}
    assert asked == [{"conf_dir": "/etc/slurm", "bin_dir": None, "timeout": 5, "step": "survey", "change": change}]
    spans = {row["nodes"]: (row["needed"], row["starts"]) for row in result["job_spans"]}
    assert spans == {1: (1, True), 2: (1, True), 3: (2, True), 4: (None, False)}
    # Without a fabric file there is nothing to add.
    assert "job_spans" not in run_action(ActionModule)


def test_a_node_name_is_mapped_to_its_tray() -> None:
    fabric = fabrics.fabric(racks=1, trays=2, split=())
    fabric.trays["r01t02"]["slurm_node"] = "gpu2"
    running = {"block_sizes": [], "blocks": [{"name": "r01", "nodes": ["r01t01", "gpu2", "unknown"]}]}
    state = fabrics.state(fabric, r01t02={"health": "unhealthy"})
    assert max(row["nodes"] for row in job_spans(running, fabric, state, [])) == 2
    assert [row["starts"] for row in job_spans(running, fabric, state, [3]) if row["nodes"] == 3] == [False]
    assert job_spans({"block_sizes": [], "blocks": []}, fabric, State(), []) == []
    assert job_spans({**running, "block_sizes": [0, -2]}, fabric, State(), []) == job_spans(
        running, fabric, State(), []
    )


def test_what_the_host_warns_of_is_in_the_result(run_action: Any, answer: Any) -> None:
    found = {"code": "gpu_missing", "message": "x"}
    tests = {"test_jobs": None, "warnings": ["late"], "findings": [found]}
    answer(survey={"survey": SURVEY, "warnings": ["slow"], "findings": [found]}, ask=tests)
    result = run_action(ActionModule, test_seconds=30)
    assert (result["warnings"], [row["message"] for row in result["findings"]].count("x")) == (["slow", "late"], 2)
    assert not result.get("failed")


@pytest.mark.parametrize(
    ("answers", "sentence"),
    [
        ({"survey": {"survey": {**SURVEY, "acting": 5}}}, "ctl returned more or other than "),
        ({"survey": {"survey": {**SURVEY, "style": "\x1b"}}}, "The host returned no complete survey"),
        ({"survey": {"failed": True, "msg": "no \x1b", "findings": []}}, "no  "),
        ({"survey": {"survey": SURVEY}, "ask": {"test_jobs": {"rows": [{"kind": 5}]}}}, "ctl returned more or other "),
        (
            {"survey": {"survey": {**SURVEY, "running": [BLOCKS]}}, "ask": {"test_jobs": {"rows": [{}], "why": None}}},
            "The host returned no complete survey",
        ),
    ],
)
def test_a_failure_is_one_sentence_with_findings(
    run_action: Any, answer: Any, answers: dict[str, Any], sentence: str
) -> None:
    answer(**answers)
    result = run_action(ActionModule, test_seconds=30, task_vars={"inventory_hostname": "ctl"})
    assert (result["failed"], result["changed"], type(result["findings"])) == (True, False, list)
    assert result["msg"].startswith(sentence)


@pytest.mark.parametrize(("counts", "predicted"), [([2, 2], True), ([2, 1, 1], False), ([], True)])
def test_a_refused_job_of_all_trays_is_predicted(
    run_action: Any, answer: Any, counts: list[int], predicted: bool
) -> None:
    rows = [{"kind": "all", "nodes": 4, "outcome": "refused"}, {"kind": "block", "nodes": 2, "outcome": "refused"}]
    shown = [{"name": row["name"], "nodes": ",".join(row["nodes"]), "size": 2} for row in RUNNING["blocks"]]
    shown = [{**row, "aggregated": False} for row in shown]
    survey = {**SURVEY, "version": "24.11.5", "style": "conf", "shown": shown}
    answer(survey={"survey": survey}, ask={"test_jobs": {"counts": counts, "rows": rows}})
    found = run_action(ActionModule, test_seconds=30)["test_jobs"]["rows"]
    assert [row["predicted"] for row in found] == [predicted, True]
