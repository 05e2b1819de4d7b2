# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What imex_domain rejects and decides on the controller; test_imex_role.py has the phases on trays of the lab."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.block import Block
from ansible.playbook.play import Play
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.plugins.connection.local import Connection
from ansible.plugins.shell.sh import ShellModule
from ansible.template import Templar
from ansible_collections.rackscale.nvlink.plugins.action.imex_domain import ActionModule
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import domain, files
from ansible_collections.rackscale.nvlink.plugins.modules import imex_domain_phase
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import run_store as imex_run_store
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.imex_fleet import tray as facts
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

TRAYS = ["r01t01", "r01t02"]


@pytest.fixture
def fabric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path / "run"))
    made = fabrics.fabric(racks=1, trays=2, split=()).as_dict()
    (tmp_path / "fabric.json").write_text(json.dumps(made))
    return str(tmp_path / "fabric.json")


@pytest.fixture
def run(fabric: str) -> Any:
    """run(tray, phase=..., ...) as a task of one play; what runs on a tray is tested in the lab."""
    loader = DataLoader()
    play = Play.load({"hosts": "all", "gather_facts": False})

    def start(host: str, *, check: bool = False, strategy: str = "linear", **options: Any) -> dict[str, Any]:
        play.strategy = strategy
        task = Task.load({"action": "rackscale.nvlink.x", "check_mode": check}, block=Block(play=play))
        task.args = {"owner": "domain", "fabric_file": fabric, **options}
        connection = Connection(PlayContext(), shell=ShellModule())
        action = ActionModule(task, connection, PlayContext(), loader, Templar(loader), None)
        return action.run(task_vars={"inventory_hostname": host, "ansible_play_hosts_all": TRAYS})

    start.play = play._uuid  # type: ignore[attr-defined]
    return start


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"phase": "begin"}, "value of phase must be one of: inspect, stop_and_write.*got: begin"),
        ({"phase": "inspect", "owner": "me"}, "value of owner must be one of: domain, job.*got: me"),
        ({"phase": "inspect", "channels": ["one"]}, "channels"),
        ({"phase": "inspect", "nodes": ["198.51.100.1"]}, "Unsupported parameters.*nodes"),
        ({"phase": "inspect", "strategy": "free"}, "the play's strategy is free, under which trays do not wait"),
        ({"phase": "inspect", "fabric_file": None}, "needs fabric_file"),
        ({"phase": "inspect", "fabric_file": "/nowhere/fabric.json"}, "/nowhere/fabric.json: cannot be read"),
        ({"phase": "inspect", "tray": "r77t01"}, "does not place tray"),
        ({"phase": "inspect", "tls_files": {"key": "/nowhere"}}, "tls_files, key: /nowhere cannot be read"),
    ],
)
def test_a_wrong_option_fails_with_one_sentence(run: Any, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AnsibleActionFail, match=sentence):
        run("r01t01", **options)


def test_check_mode_before_anything_was_accepted_warns(run: Any) -> None:
    result = run("r01t01", phase="inspect", fabric_file="/nowhere/fabric.json", check=True)
    assert result["changed"] is False
    assert "does not exist yet" in result["warnings"][0]


UNCHANGED: dict[str, Any] = {"changed": False, "changes": [], "findings": []}


def inspected(run: Any, tray: str, **more: Any) -> None:
    row = {"failed": False, "running": True, "restart_clique": ["the list"], "record": None, "peers": {}, **more}
    imex_run_store.write_row(str(constants.DEFAULT_LOCAL_TMP), run.play, "inspect", tray, row)


def test_a_blocked_clique_is_reported_once_and_left_unchanged(run: Any) -> None:
    inspected(run, "r01t01")
    inspected(run, "r01t02", failed=True, msg="two owners")
    result = run("r01t01", phase="stop_and_write")
    assert (result["failed"], result["blocked"], result["changed"]) == (True, True, False)
    assert [entry["code"] for entry in result["findings"]] == ["imex_change_blocked"]
    assert "two owners" in result["msg"]
    assert run("r01t02", phase="stop_and_write")["failed"] is False
    # A tray that reaches the next phase is left unchanged too.
    assert run("r01t01", phase="start")["blocked"] is True


def test_a_tray_without_a_difference_is_visited_once(run: Any, fabric: str) -> None:
    clique = imex_run_store.clique_of(str(constants.DEFAULT_LOCAL_TMP), fabric, "r01t01")
    assert clique is not None
    sha256 = files.digest(files.render_nodes(clique.entries))
    record = {"clique": clique.name, "generation": 3, "sha256": sha256, "outdated": []}
    for tray in TRAYS:
        inspected(run, tray, restart_clique=[], record=record, pending=[], sha256=sha256, approved=True)
    for phase in ("stop_and_write", "start"):
        assert [run(tray, phase=phase) for tray in TRAYS] == [UNCHANGED, UNCHANGED]


@pytest.fixture
def on_trays(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments of each run of the internal module, which returns a tray whose list must change."""
    given: list[dict[str, Any]] = []
    row = {"running": True, "restart_clique": ["the list"], "record": None, "pending": [], "peers": {}}

    def execute(_self: Any, module_name: str, module_args: dict[str, Any], **_more: Any) -> dict[str, Any]:
        assert module_name == "rackscale.nvlink.imex_domain_phase"
        checked = ArgumentSpecValidator(imex_domain_phase.ARGUMENT_SPEC).validate(module_args)
        assert not checked.error_messages
        given.append(checked.validated_parameters)
        return {"changed": False, "row": dict(row), "findings": []}

    monkeypatch.setattr(ActionModule, "_execute_module", execute)
    return given


def test_a_tray_that_dies_after_its_preview_is_outdated(run: Any, on_trays: list[dict[str, Any]]) -> None:
    """Its preview does not count as its part in the change."""
    for tray in TRAYS:
        assert run(tray, phase="preview") == UNCHANGED
    assert {(entry["phase"], entry["options"]["allow_jobs"]) for entry in on_trays} == {("inspect", True)}
    result = run("r01t01", phase="evaluate")
    reasons = ["the list", "generation 1 of the list"]
    assert result == {**UNCHANGED, "pending": True, "reasons": reasons}
    run("r01t01", phase="inspect")
    run("r01t01", phase="stop_and_write")
    assert on_trays[-1]["plan"]["outdated"] == ["r01t02"]
    assert on_trays[-1]["plan"]["restart_clique"] is True


def test_a_tray_gets_checked_options_and_the_plan_of_its_clique(
    run: Any, on_trays: list[dict[str, Any]], fabric: str, tmp_path: Path
) -> None:
    paths = {name: str(tmp_path / name) for name in ("key", "certificate", "authority")}
    for name, path in paths.items():
        Path(path).write_text(f"text of {name}\n")
    run("r01t01", phase="inspect", timeout="2", tls_files=paths, settings={"LOG_LEVEL": 3})
    options, plan = on_trays[0]["options"], on_trays[0]["plan"]
    assert (options["timeout"], options["list_port"], options["settings"]) == (2.0, 50006, {"LOG_LEVEL": 3})
    assert not {"fabric_file", "tls_files", "tray", "phase", "allow_outdated"} & set(options)
    clique = imex_run_store.clique_of(str(constants.DEFAULT_LOCAL_TMP), fabric, "r01t01")
    assert clique is not None
    assert (plan["clique"], plan["nodes"], plan["slurm_nodes"]) == ("r01", list(clique.entries), TRAYS)
    assert plan["tls"] == {name: f"text of {name}\n" for name in paths}
    assert domain.desired_state(options, plan).tls == plan["tls"]


def test_extra_changes_make_a_change_pending(run: Any) -> None:
    folder = str(constants.DEFAULT_LOCAL_TMP)
    imex_run_store.write_row(folder, run.play, "preview", "r01t01", {"failed": False, "pending": []})
    assert run("r01t01", phase="evaluate", owner="none")["pending"] is False
    result = run("r01t01", phase="evaluate", owner="none", extra_changes=["remove a prolog"])
    assert (result["pending"], result["reasons"]) == (True, ["remove a prolog"])


@pytest.mark.parametrize("phase", ["preview", "evaluate"])
def test_an_error_makes_a_change_pending_which_then_reports_it(run: Any, phase: str) -> None:
    result = run("r01t01", phase=phase, tls_files={"key": "/nowhere"})
    assert (result["pending"], result.get("failed")) == (True, None)
    assert "tls_files, key: /nowhere cannot be read" in result["reasons"][0]


def test_a_tray_with_another_list_does_not_start(run: Any) -> None:
    folder = str(constants.DEFAULT_LOCAL_TMP)
    for tray in TRAYS:
        inspected(run, tray)
        imex_run_store.write_row(
            folder, run.play, "stop_and_write", tray, {"failed": False, "sha256": "another", "generation": 1}
        )
    result = run("r01t01", phase="start")
    assert result["failed"] is True
    assert result["msg"].startswith("r01t01 has another node list than that of clique r01")


def member(clique: Any, observed: dict[str, Any], number: int) -> dict[str, Any]:
    """Facts with the addresses of the fabric file."""
    observed["nodes"]["entries"] = list(clique.entries)
    observed["peers"] = [{"id": 1 - number, "host": clique.entries[1 - number], "connection": "connected"}]
    return observed


def test_the_verdict_fails_the_tray_at_fault(run: Any, fabric: str) -> None:
    folder = str(constants.DEFAULT_LOCAL_TMP)
    clique = imex_run_store.clique_of(folder, fabric, "r01t01")
    for number, tray in enumerate(TRAYS):
        observed = member(clique, facts(number, 2), number)
        if number == 1:
            observed.update(ready=False, state="init_gpu", findings=[])
        imex_run_store.write_row(folder, run.play, "start", tray, {"failed": False})
        imex_run_store.write_row(
            folder, run.play, "wait", tray, {"failed": False, "facts": observed, "running": True, "ports": {}}
        )
    results = [run(tray, phase="verdict") for tray in TRAYS]
    assert [bool(result.get("failed")) for result in results] == [False, True]
    assert "init_gpu" in results[1]["msg"]


def test_a_closed_port_is_reported_for_the_tray_that_closes_it(run: Any, fabric: str) -> None:
    folder = str(constants.DEFAULT_LOCAL_TMP)
    clique = imex_run_store.clique_of(folder, fabric, "r01t01")
    assert clique is not None
    for number, tray in enumerate(TRAYS):
        ports = {clique.entries[1]: [50005]} if number == 0 else {}
        imex_run_store.write_row(folder, run.play, "start", tray, {"failed": False})
        row = {"failed": False, "facts": member(clique, facts(number, 2), number), "running": True, "ports": ports}
        imex_run_store.write_row(folder, run.play, "wait", tray, row)
    result = run("r01t02", phase="verdict")
    assert "Port 50005 of r01t02 accepts no connection from r01t01" in result["msg"]
