# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.plugins.connection.local import Connection
from ansible.plugins.shell.sh import ShellModule
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction


class Ask(GuardedAction):
    def act(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        return self._low_level_execute_command(r"printf '{}\033[2J\r\n'; printf 'x\033[2J' >&2")


def test_what_a_host_prints_around_its_answer_has_no_control_characters() -> None:
    connection = Connection(PlayContext(), shell=ShellModule())
    printed = Ask(Task(), connection, PlayContext(), DataLoader(), None, None).run()
    assert (printed["stdout"], printed["stderr"]) == ("{} [2J \n", "x [2J")


class Options(GuardedAction):
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
        "fabric_file": f"{tmp_path}/site/fabric.json",
        "verdict_file": "",
        "junit_file": os.path.expanduser("~/x"),
        "path": "x",
    }
