# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which trays of a wave the action rollout selects and passes; test_rollout.py of the integration has whole runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.action.rollout import ActionModule
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import storage
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.journal import Line, append
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

TRAYS = ["r01t01", "r01t02", "r02t01", "r02t02"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_action: Any) -> Any:
    """run(tray, state=..., ...) as a task of one wave with all trays."""
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path))
    path = tmp_path / "fabric.json"
    path.write_text(json.dumps(fabrics.fabric(racks=2, trays=2, split=()).as_dict()))
    hostvars: dict[str, Any] = {"localhost": {}}
    groups: dict[str, Any] = {"groups": {"all": TRAYS}, "ansible_play_hosts_all": TRAYS}

    def start(tray: str, **options: Any) -> dict[str, Any]:
        variables = {"inventory_hostname": tray, "hostvars": hostvars, **groups}
        return run_action(ActionModule, task_vars=variables, **options)

    settings = {"steps": ["drain", "imex"], "slurm_controller": "ctl", "any_reason": True}
    plan = {"rollout": "imex", "fabric_file": str(path), "progress_file": str(tmp_path / "left.json")}

    def planned(**options: Any) -> None:
        given = {"settings": dict(settings), **plan, **options}
        hostvars["localhost"]["rollout_plan"] = start("localhost", state="planned", **given)

    planned()
    start.planned, start.play = planned, groups
    return start


def test_no_wave_changes_trays_whose_partitions_are_being_changed(run: Any, tmp_path: Path) -> None:
    options = {"state": "planned", "fabric_file": str(tmp_path / "fabric.json"), "settings": {"steps": ["imex"]}}
    row = {"incident": "0" * 12, "at": "2026-11-29T19:15:00Z", "subject": "r01", "code": "", "detail": "{}"}
    append(str(tmp_path / "fabric.partition-r01.jsonl"), [Line(step="plan", state="done", **row)])
    with pytest.raises(
        AnsibleActionFail, match=r"^rollout imex: the partitions of NVLink domain r01 are being changed"
    ):
        run("localhost", rollout="imex", **options)
    # Those of another domain, and as a step of that change.
    assert run("localhost", rollout="imex", trays="r02", **options)["trays"] == TRAYS[2:]
    assert run("localhost", rollout="partition", trays="r01", **options)["trays"] == TRAYS[:2]
    # None of its trays answers.
    with pytest.raises(AnsibleActionFail, match=r"^rollout partition: it has no trays"):
        run("localhost", rollout="partition", **options)


def test_a_clique_whose_change_would_be_refused_is_not_drained(run: Any) -> None:
    run(TRAYS[0], state="started")
    run("r01t01", state="observed", due=True, refused="Owner none ends the IMEX domain\n of clique r01.")
    for tray in TRAYS[1:]:
        run(tray, state="observed", due=True)
    assert run(TRAYS[0], state="selected")["trays"] == ["r02t01", "r02t02"]
    # The report says it once, without a failure of a task on each tray.
    assert [run(tray, state="passed")["passed"] for tray in TRAYS] == [False, True, True, True]
    result = run(TRAYS[1], state="finished")
    assert "1 clique unfinished: r01 (failed: r01t01, Owner none ends the IMEX domain of clique r01)" in result["msg"]


def test_a_clique_with_unchanged_trays_alone_is_finished_before_the_first_wave(run: Any, tmp_path: Path) -> None:
    some = run(TRAYS[0], state="inspected", unchanged=["r01t01", "r01t02", "r02t01"])
    assert (some["due"], some["waves"]) == (["r02t01", "r02t02"], ["r02"])
    assert list(json.loads((tmp_path / "left.json").read_text())["cliques"]) == ["r02"]
    # An earlier run had started it and was killed, so it may look unchanged.
    run(TRAYS[0], state="started")
    run.planned()
    run.planned()
    again = run(TRAYS[0], state="inspected", unchanged=TRAYS)
    assert (again["due"], again["waves"]) == (TRAYS, ["r01", "r02"])
    run(TRAYS[0], state="started")
    for tray in TRAYS:
        run(tray, state="observed", due=False)
    assert run(TRAYS[0], state="selected")["trays"] == TRAYS


def test_a_tray_in_repair_fails_no_run_and_is_no_more_in_repair_when_it_is_resumed(run: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "fabric.json")
    repair = {"state": "acknowledged", "fabric_file": path, "reason": "RMA 4711", "until_date": "2999-12-24"}
    said = [run("localhost", trays="r01t[01-02],r02t01", **repair) for _again in (1, 2)]
    assert said[0]["text"][0] == "r01t01: acknowledged until 2999-12-24T00:00:00Z"
    assert [row["changed"] for row in said] == [True, False]
    run.planned()
    for dead, failed in (("r01t01", False), ("r02t02", True)):
        run(TRAYS[0], state="started")
        for tray in TRAYS:
            run(tray, state="observed", unreachable=tray == dead)
        run(TRAYS[0], state="selected")
        for tray in TRAYS:
            assert tray == dead or run(tray, state="passed")["passed"]
        run(TRAYS[0], state="finished")
        reported = run("localhost", state="reported")
        assert (reported["failed"], reported["trays"]) == (failed, [dead] if failed else [])
        left = json.loads((tmp_path / "fabric.state.json").read_text()).get("acknowledged", {})
        assert list(left) == ([] if failed else ["r01t01"])


def test_only_the_named_trays_are_resumed_for_any_reason(run: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "fabric.json")
    run("localhost", state="acknowledged", fabric_file=path, reason="RMA", until_date="2999-12-24", trays="r01")
    run.planned(trays="r01t02")
    run(TRAYS[0], state="started")
    for tray in TRAYS[:2]:
        run(tray, state="observed", due=True)
    run(TRAYS[0], state="selected")
    for tray in TRAYS[:2]:
        run(tray, state="passed")
    evaluated = run(TRAYS[0], state="evaluated")
    assert (evaluated["nodes"], evaluated["any_reason"]) == (["r01t01", "r01t02"], ["r01t02"])
    run(TRAYS[0], state="finished")
    assert list(json.loads((tmp_path / "fabric.state.json").read_text())["acknowledged"]) == ["r01t01"]


@pytest.mark.parametrize(
    ("named", "limit", "continues", "is_failed"),
    [
        ({"trays": "r02"}, None, False, False),
        ({}, "r02t01,r02t02", False, False),
        ({}, None, False, True),
        ({}, "all", False, True),
        # It has to finish what it continues.
        ({"trays": "r02"}, None, True, True),
    ],
)
def test_a_run_that_names_trays_does_not_fail_for_what_an_earlier_one_left(
    run: Any, tmp_path: Path, named: dict[str, str], limit: str | None, continues: bool, is_failed: bool
) -> None:
    # Killed in the wave of both cliques.
    run(TRAYS[0], state="started")
    path = f"{tmp_path}/left.json"
    run.play["ansible_limit"] = limit
    run.planned(**named, **({"resume": path} if continues else {}))
    wave = TRAYS[2:] if named or limit == "r02t01,r02t02" else TRAYS
    run.play["ansible_play_hosts_all"] = wave
    run(wave[0], state="started")
    for tray in TRAYS[2:]:
        run(tray, state="observed", due=True)
    run(wave[0], state="selected")
    for tray in TRAYS[2:]:
        run(tray, state="passed")
    run(wave[0], state="finished")
    reported = run("localhost", state="reported")
    assert (reported["failed"], reported["unfinished"]) == (is_failed, ["r01"] if is_failed else [])
    said = (
        "Rollout imex: unfinished since an earlier run: r01 (started); run it for this clique too with"
        f" -e rollout_resume={path}."
    )
    assert reported["text"][1:] == ["r02: 2 trays: r02t[01-02]", *([] if is_failed else [said])]
    # For the run that continues it.
    assert list(json.loads((tmp_path / "left.json").read_text())["cliques"]) == ["r01"]


def test_no_tray_of_a_clique_that_did_not_start_has_passed(run: Any) -> None:
    run(TRAYS[0], state="inspected", unchanged=TRAYS[:2])
    reported = run("localhost", state="reported", fail=False)
    assert (reported["unfinished"], reported["trays"]) == (["r02"], TRAYS[2:])


def test_a_rollout_marks_its_run_until_it_is_reported(run: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "fabric.rollout")
    assert storage.held(path).startswith(f"pid {os.getppid()} on ")
    reported = run("localhost", state="reported", fail=False)
    assert storage.held(path) == ""
    assert [row.partition(" (")[0] for row in reported["actions"]] == [f"write {tmp_path}/left.json"]
