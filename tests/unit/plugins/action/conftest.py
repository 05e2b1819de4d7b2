# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs an action plugin as a task would, without a playbook around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.plugins.action import ActionBase
from ansible.plugins.connection.local import Connection
from ansible.plugins.shell.sh import ShellModule
from ansible.template import Templar

RunAction = Callable[..., dict[str, Any]]


@pytest.fixture
def run_action() -> RunAction:
    """run_action(ActionModule, check=False, diff=False, task_vars={}, **options) -> the task's result."""

    def run(
        plugin: type[ActionBase],
        *,
        check: bool = False,
        diff: bool = False,
        task_vars: dict[str, Any] | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        loader = DataLoader()
        task = Task.load({"action": "rackscale.nvlink.x", "check_mode": check, "diff": diff})
        task.args = options
        connection = Connection(PlayContext(), shell=ShellModule())
        action = plugin(task, connection, PlayContext(), loader, Templar(loader), None)
        return action.run(task_vars=task_vars or {})

    return run
