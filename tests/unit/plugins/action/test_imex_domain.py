# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the controller's half of imex_domain refuses and decides before it goes to any host; the rest is in the lab."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.block import Block
from ansible.playbook.play import Play
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.plugins.connection.local import Connection
from ansible.plugins.shell.sh import ShellModule
from ansible.template import Templar
from ansible_collections.rackscale.nvlink.plugins.action.imex_domain import ActionModule
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import files
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
    """run(tray, phase=..., ...) as a task of one play; the module itself would need a tray."""
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
        ({"phase": "begin"}, "option phase: 'begin' is none of look, stop_and_write"),
        ({"phase": "look", "owner": "me"}, "option owner: 'me' is none of domain, job"),
        ({"phase": "look", "strategy": "free"}, "the play's strategy is free, under which trays do not wait"),
        ({"phase": "look", "fabric_file": None}, "needs fabric_file"),
        ({"phase": "look", "fabric_file": "/nowhere/fabric.json"}, "/nowhere/fabric.json: cannot be read"),
        ({"phase": "look", "tray": "r77t01"}, "has no place for tray"),
        ({"phase": "look", "tls_files": {"key": "/nowhere"}}, "imex_tls, key: /nowhere cannot be read"),
    ],
)
def test_what_a_person_wrote_wrong_is_one_sentence(run: Any, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AnsibleActionFail, match=sentence):
        run("r01t01", **options)


def test_a_check_before_anything_was_accepted_only_says_so(run: Any) -> None:
    said = run("r01t01", phase="look", fabric_file="/nowhere/fabric.json", check=True)
    assert said["changed"] is False
    assert "is not there yet" in said["warnings"][0]


def look(run: Any, tray: str, **more: Any) -> None:
    row = {"failed": False, "running": True, "restart_clique": ["the list"], "record": None, "peers": {}, **more}
    imex_run_store.put(str(constants.DEFAULT_LOCAL_TMP), run.play, "look", tray, row)


def test_a_clique_that_is_held_is_told_once_and_left_alone(run: Any) -> None:
    look(run, "r01t01")
    look(run, "r01t02", failed=True, msg="two owners")
    said = run("r01t01", phase="stop_and_write")
    assert (said["failed"], said["held"], said["changed"]) == (True, True, False)
    assert [note["code"] for note in said["findings"]] == ["imex_change_blocked"]
    assert "two owners" in said["msg"]
    # Whoever comes to the next phase all the same does nothing.
    assert run("r01t01", phase="start")["held"] is True


def test_a_tray_that_is_as_it_should_be_is_not_visited_again(run: Any, fabric: str) -> None:
    clique = imex_run_store.clique_of(str(constants.DEFAULT_LOCAL_TMP), fabric, "r01t01")
    assert clique is not None
    sha256 = files.digest(files.render_nodes(clique.entries))
    record = {"clique": clique.name, "generation": 3, "sha256": sha256, "outdated": []}
    for tray in TRAYS:
        look(run, tray, restart_clique=[], record=record, pending=[], sha256=sha256, approved=True)
    for tray in TRAYS:
        assert run(tray, phase="stop_and_write") == {"changed": False, "actions": [], "findings": []}
    for tray in TRAYS:
        assert run(tray, phase="start") == {"changed": False, "actions": [], "findings": []}


def test_a_tray_that_dies_after_its_answer_owes(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it said when it was asked is not taken for its part in the change."""
    given: list[dict[str, Any]] = []
    row = {"running": True, "restart_clique": ["the list"], "record": None, "pending": [], "peers": {}}

    def execute(_self: Any, module_args: dict[str, Any], **_more: Any) -> dict[str, Any]:
        given.append(module_args)
        return {"changed": False, "row": dict(row), "findings": []}

    monkeypatch.setattr(ActionModule, "_execute_module", execute)
    for tray in TRAYS:
        assert run(tray, phase="ask") == {"changed": False, "actions": [], "findings": []}
    assert {(entry["phase"], entry["allow_jobs"]) for entry in given} == {("look", True)}
    said = run("r01t01", phase="due")
    assert (said["changed"], said["due"], said["why"]) == (False, True, ["the list", "generation 1 of the list"])
    run("r01t01", phase="look")
    run("r01t01", phase="stop_and_write")
    assert given[-1]["outdated"] == ["r01t02"]


def test_what_else_there_is_to_do_makes_it_due(run: Any) -> None:
    folder = str(constants.DEFAULT_LOCAL_TMP)
    imex_run_store.put(folder, run.play, "ask", "r01t01", {"failed": False, "pending": []})
    assert run("r01t01", phase="due", owner="none")["due"] is False
    said = run("r01t01", phase="due", owner="none", besides=["remove a prolog"])
    assert (said["due"], said["why"]) == (True, ["remove a prolog"])


@pytest.mark.parametrize("phase", ["ask", "due"])
def test_what_is_wrong_is_due_and_left_to_the_change_to_tell(run: Any, phase: str) -> None:
    said = run("r01t01", phase=phase, tls_files={"key": "/nowhere"})
    assert (said["due"], said.get("failed")) == (True, None)
    assert "imex_tls, key: /nowhere cannot be read" in said["why"][0]


def test_a_list_that_reads_back_as_another_does_not_start(run: Any) -> None:
    folder = str(constants.DEFAULT_LOCAL_TMP)
    for tray in TRAYS:
        look(run, tray)
        imex_run_store.put(
            folder, run.play, "stop_and_write", tray, {"failed": False, "sha256": "another", "generation": 1}
        )
    said = run("r01t01", phase="start")
    assert said["failed"] is True
    assert said["msg"].startswith("r01t01 read back another list")


def like(clique: Any, seen: dict[str, Any], number: int) -> dict[str, Any]:
    """Facts with the addresses of the fabric file."""
    seen["nodes"]["entries"] = list(clique.entries)
    seen["peers"] = [{"id": 1 - number, "host": clique.entries[1 - number], "connection": "connected"}]
    return seen


def test_the_verdict_fails_who_is_at_fault(run: Any, fabric: str) -> None:
    folder = str(constants.DEFAULT_LOCAL_TMP)
    clique = imex_run_store.clique_of(folder, fabric, "r01t01")
    for number, tray in enumerate(TRAYS):
        seen = like(clique, facts(number, 2), number)
        if number == 1:
            seen.update(ready=False, state="init_gpu", findings=[])
        imex_run_store.put(folder, run.play, "start", tray, {"failed": False})
        imex_run_store.put(
            folder, run.play, "wait", tray, {"failed": False, "facts": seen, "running": True, "ports": {}}
        )
    said = [run(tray, phase="verdict") for tray in TRAYS]
    assert [bool(result.get("failed")) for result in said] == [False, True]
    assert "init_gpu" in said[1]["msg"]


def test_a_closed_port_is_told_of_the_tray_that_closes_it(run: Any, fabric: str) -> None:
    folder = str(constants.DEFAULT_LOCAL_TMP)
    clique = imex_run_store.clique_of(folder, fabric, "r01t01")
    assert clique is not None
    for number, tray in enumerate(TRAYS):
        ports = {clique.entries[1]: [50005]} if number == 0 else {}
        imex_run_store.put(folder, run.play, "start", tray, {"failed": False})
        row = {"failed": False, "facts": like(clique, facts(number, 2), number), "running": True, "ports": ports}
        imex_run_store.put(folder, run.play, "wait", tray, row)
    said = run("r01t02", phase="verdict")
    assert "Port 50005 of r01t02 takes no connection from r01t01" in said["msg"]
