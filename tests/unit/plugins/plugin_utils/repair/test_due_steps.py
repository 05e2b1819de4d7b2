# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""For which incidents a step is due, and what became of its tasks."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair import due_steps
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair.ledger import STEPS, Incident
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics
from hypothesis import given
from hypothesis import strategies as st

ID = "r01t01-20261129T191500Z"
MINE = f"DRAIN+IDLE: nvlink: repair {ID}"
ALL = [step for step in STEPS if step != "open"]


def incident(steps: dict[str, str], **more: Any) -> Incident:
    given = {"id": ID, "subject": "r01t01", "code": "recovery_action", "action": "reset_gpu", **more}
    return Incident(opened_at="2026-11-29T19:15:00Z", closed_at=None, steps=steps, **given)


def row(steps: list[str], **more: Any) -> Any:
    return {"incident": ID, "tray": "r01t01", "steps": steps, "allowed": True, "brake": "", **more}


def due(step: str, steps: dict[str, str], state: str = MINE, busy: tuple[str, ...] = (), **more: Any) -> list[str]:
    found = due_steps.due(step, [row(ALL, **more)], {ID: incident(steps)}, {"r01t01": state}, busy)
    return [one.id for one in found]


def test_an_action_waits_for_drain_evidence_and_jobs_and_for_a_drain_of_its_own() -> None:
    before = {"drain": "done", "evidence": "done"}
    assert due("action", before) == [ID]
    # soperator replaced trays on which jobs still ran.
    assert due("action", before, busy=("r01t01",)) == []
    for state in ("IDLE", "", "DRAIN+IDLE: broken fan", "DRAIN+IDLE: nvlink: repair r01t01-20261129T191501Z"):
        assert due("action", before, state) == [], state
    assert due("action", before, f"{MINE} : Not responding") == [ID]
    for steps in ({"drain": "done"}, {"drain": "done", "evidence": "failed"}, {"drain": "begin", "evidence": "done"}):
        assert due("action", steps) == []


def test_without_slurm_a_person_drains_and_repairs() -> None:
    for ticket, found in (
        ("begin", ["evidence", "ticket"]),
        ("failed", ["evidence", "ticket"]),
        ("done", ["evidence", "close"]),
    ):
        one = {ID: incident({"ticket": ticket})}
        assert [step for step in ALL if list(due_steps.due(step, [row(ALL)], one, None))] == found


def test_without_slurm_the_drain_cordons_the_node_where_there_is_kubernetes() -> None:
    one = {ID: incident({})}
    found = [step for step in ALL if list(due_steps.due(step, [row(ALL)], one, None, cordons=True))]
    assert found == ["drain", "evidence", "ticket"]


def test_an_action_waits_for_pods_and_where_they_are_not_known() -> None:
    def of(tray: str, *owners: str, phase: str = "Running", **more: Any) -> dict[str, Any]:
        metadata = {"ownerReferences": [{"kind": owner} for owner in owners]}
        return {"item": {"tray": tray}, "resources": [{"metadata": metadata, "status": {"phase": phase}}], **more}

    rows = [
        of("r01t01", "ReplicaSet"),
        of("r01t02", "DaemonSet"),
        of("r01t03", "Node"),
        of("r01t04"),
        of("r01t05", "Job", phase="Succeeded"),
        of("r01t06", "Job", phase="Pending"),
        {"item": {"tray": "r01t07"}, "failed": True, "msg": "no answer"},
        {"item": {"tray": "r01t08"}, "resources": []},
    ]
    assert list(due_steps.with_pods(rows)) == ["r01t01", "r01t04", "r01t06", "r01t07"]


def test_a_step_that_was_killed_is_done_again_and_one_that_is_done_is_not() -> None:
    assert due("drain", {"drain": "begin"}) == due("drain", {"drain": "failed"}) == [ID]
    assert due("drain", {"drain": "done"}) == []
    assert due("drain", {}, allowed=False) == due("drain", {}, incident="") == []


@given(st.dictionaries(st.sampled_from(ALL), st.sampled_from(["begin", "done", "failed"])))
def test_nothing_returns_that_was_not_repaired_and_nothing_closes_that_did_not_return(steps: dict[str, str]) -> None:
    if due("return", steps):
        assert steps.get("action") == steps.get("drain") == "done"
    if due("close", steps):
        assert steps.get("resume") == steps.get("ticket") == "done"


def test_why_tasks_failed_is_one_sentence_without_control_characters() -> None:
    loop = [
        {"item": {"tray": "r01t01"}, "failed": True, "msg": "no\x1b[2J route."},
        {"item": {"tray": "r01t02"}, "unreachable": True},
        {"item": {"tray": "r01t03"}, "unknown_nodes": ["r01t03"]},
        {"item": {"tray": "r01t04"}, "skipped": True},
        {"item": "x"},
    ]
    found = due_steps.problems(loop, ["r01t01", "r01t04", "r01t05"])
    assert "\x1b" not in found["r01t01"]
    assert found["r01t01"].endswith("route")
    assert found["r01t02"] == "it is unreachable"
    assert found["r01t03"] == "slurmctld does not have the node r01t03"
    assert (found["r01t04"], found["r01t05"]) == ("", "")
    assert due_steps.problems({"failed": True}, ["a", "b"]) == dict.fromkeys(["a", "b"], "its task failed")
    assert due_steps.problems({}, ["a"]) == {"a": ""}


def test_a_tray_whose_tasks_did_not_run_has_failed() -> None:
    assert due_steps.of_host([{}, {"skipped": True}]) == "its tasks did not run"
    assert due_steps.of_host([{"skipped": True}, {"rc": 0}]) == ""
    assert due_steps.of_host([{"rc": 0}, {"failed": True, "stderr": "GPU is in use"}]) == "GPU is in use"


@pytest.mark.parametrize(
    ("nodes", "detail", "why"),
    [
        ({"r01t01": "IDLE"}, "r01 (failed: ...)", ""),
        ({"r01t01": MINE}, "", "Slurm still has it drained"),
        ({"r01t01": "DOWN"}, "the test failed.", "the test failed"),
        ({}, "", "Slurm still has it drained"),
        (None, "", ""),
        (None, "the test failed", "the test failed"),
    ],
)
def test_a_tray_is_back_where_slurm_has_it(nodes: Any, detail: str, why: str) -> None:
    assert due_steps.still_out(nodes, "r01t01", detail) == why


def test_the_spares_that_came_into_service_are_asked_for_imex() -> None:
    fabric = fabrics.fabric(racks=1, trays=4, split=())
    changes = ["nvlink_spare_r01: r01t[01,03] become active", "nvlink_spare_r02: r02t01 becomes a spare"]
    assert due_steps.freed({"changes": changes}, fabric) == ["r01t01", "r01t03"]
    assert due_steps.freed({"skipped": True}, fabric) == []
    assert due_steps.of_spare("r01t03", {"ansible_facts": {"nvlink_imex": {"ready": True}}})[0]
    is_ready, line = due_steps.of_spare("r01t03", {"unreachable": True})
    assert not is_ready
    assert (
        line == "r01t03 is in service in place of a broken tray, but IMEX is not ready (it is unreachable): run imex."
    )


@pytest.mark.parametrize(
    ("steps", "more", "part"),
    [
        ({"drain": "failed"}, {}, "drain failed: why."),
        ({"drain": "done", "evidence": "done"}, {"steps": ["action"]}, "reset_gpu waits for the jobs on it"),
        ({"drain": "done", "action": "done"}, {}, "stays open until repair reads the next verdict of verify"),
        ({"drain": "done"}, {"brake": "a job still runs"}, "nothing is done: a job still runs."),
        ({"drain": "done"}, {}, f"evidence is in /repairs/{ID}"),
    ],
)
def test_a_run_says_of_each_incident_what_is_next(steps: dict[str, str], more: dict[str, Any], part: str) -> None:
    lines: list[Any] = [{"incident": ID, "step": "drain", "detail": "why"}]
    rows = [{**row([]), **more}, row([], incident="")]
    (line,) = due_steps.report(rows, {ID: incident(steps)}, lines, "/repairs/")
    assert part in line
