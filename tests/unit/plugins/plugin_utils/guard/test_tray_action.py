# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.plugins.connection.local import Connection
from ansible.plugins.shell.sh import ShellModule
from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import UNCHANGED, GuardedAction


class Ask(GuardedAction):
    def act(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        return self._low_level_execute_command(r"printf '{}\033[2J\r\n'; printf 'x\033[2J' >&2")


def test_what_a_host_prints_around_its_answer_has_no_control_characters() -> None:
    connection = Connection(PlayContext(), shell=ShellModule())
    printed = Ask(Task(), connection, PlayContext(), DataLoader(), None, None).run()
    assert (printed["stdout"], printed["stderr"]) == ("{} [2J \n", "x [2J")


class Change(GuardedAction):
    """Writes a file here, asks a host, and fails."""

    def act(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        atomic.write(self._task.args["path"], b"text", 0o600)
        self.answer = self.run_module("x", {}, task_vars, {}, 60)
        raise NvlinkError("it failed")


class Read(Change):
    CHANGES = False


def _done(
    action: type[Change], monkeypatch: pytest.MonkeyPatch, path: Path, listed: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the failed result; what was accepted of the host's answer) for a host that lists these actions."""
    monkeypatch.setattr(GuardedAction, "_execute_module", lambda _self, **_options: {"actions": listed})
    task = Task()
    task.args = {"path": str(path)}
    connection = Connection(PlayContext(), shell=ShellModule())
    changing = action(task, connection, PlayContext(), DataLoader(), None, None)
    with pytest.raises(AnsibleActionFail) as caught:
        changing.run(task_vars={"inventory_hostname": "r01t01"})
    return caught.value.result, changing.answer


def test_a_failure_lists_what_was_done_here_and_on_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    for _run in range(2):
        result, answer = _done(Change, monkeypatch, path, ["run scontrol reconfigure"])
        assert result == {"actions": [f"write {path} (mode 0600)", "run scontrol reconfigure"]}
        assert answer == {}
    assert _done(Read, monkeypatch, path, ["run scontrol reconfigure"]) == ({}, {})


@pytest.mark.parametrize(
    ("listed", "kept"),
    [
        (["run \x1b[2J x", "\u202e{{ 1 }}\n"], ["run  [2J x", " {{ 1 }} "]),
        (["x" * 10**6], []),
        (["x"] * 10**5, []),
        ([{"a": 1}], []),
        ("x", []),
        (None, []),
    ],
)
def test_a_hostile_host_lists_nothing_long_and_no_control_character(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: Any, kept: list[str]
) -> None:
    result, answer = _done(Change, monkeypatch, tmp_path / "a", listed)
    assert result["actions"][1:] == kept
    assert [row["code"] for row in answer.get("findings", [])] == ([] if kept else ["tray_answer_invalid"])


class Options(GuardedAction):
    CHANGES = False

    def act(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        return dict(self._task.args)


def test_files_are_relative_to_the_working_folder_not_to_the_playbook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    task, loader = Task(), DataLoader()
    loader.set_basedir("/usr/share/collection/playbooks")
    task.args = {"fabric_file": "site/fabric.json", "verdict_file": "", "junit_file": "~/x", "path": "x"}
    connection = Connection(PlayContext(), shell=ShellModule())
    assert Options(task, connection, PlayContext(), loader, None, None).run() == {
        **UNCHANGED,
        "fabric_file": f"{tmp_path}/site/fabric.json",
        "verdict_file": "",
        "junit_file": os.path.expanduser("~/x"),
        "path": "x",
    }
