# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs an action plugin as a task would, without a playbook around it; and what a host of slurmctld answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.block import Block
from ansible.playbook.play import Play
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.plugins.action import ActionBase
from ansible.plugins.connection.local import Connection
from ansible.plugins.shell.sh import ShellModule
from ansible.template import Templar
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

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
        play = Play.load({"hosts": "all", "gather_facts": False})
        task = Task.load({"action": "rackscale.nvlink.x", "check_mode": check, "diff": diff}, block=Block(play=play))
        task.args = options
        connection = Connection(PlayContext(), shell=ShellModule())
        action = plugin(task, connection, PlayContext(), loader, Templar(loader), None)
        return action.run(task_vars=task_vars or {})

    return run


def clustered(tmp_path: Path, *names: str) -> str:
    """A fabric file of one clique whose trays are in these Slurm clusters, one in each."""
    made = fabrics.fabric(racks=1, trays=2, split=()).as_dict()
    for name, tray in zip(names, made["trays"].values(), strict=False):
        tray["slurm_cluster"] = name
    block = made["cliques"]["r01"]["block"]
    made["clusters"] = {"slurm": {name: {"blocks": {"r01": block}} for name in names}}
    (tmp_path / "fabric.json").write_text(json.dumps(made if names else {**made, "clusters": {}}))
    return str(tmp_path / "fabric.json")


SURVEY = {
    "conf_dir": "/etc/slurm",
    "version": "26.05.5",
    "style": "yaml",
    "acting": "",
    "config": {"clustername": "beta", "selecttype": "select/cons_tres", "prologflags": "Alloc"},
    "settings": {},
    "node_topologies": {},
    "includes_ours": False,
    "includes_tiers": False,
    "site_partitions": {},
    "records": {},
    "unanswered": "",
    "limits": [],
    "texts": {},
    "checksums": {"topology.yaml": ""},
    "running": [],
    "shown": [],
    "nodes": [
        {"NodeName": f"r01t0{n}", "NodeHostName": "", "NodeAddr": "", "State": "IDLE", "Reason": ""} for n in (1, 2)
    ],
    "partitions": [{"PartitionName": "all", "Nodes": "r01t[01-02]", "Topology": "(null)"}],
    "jobs": [],
}

# A rehearsal that has found nothing.
REHEARSED = {"undone": "", "busy": "", "findings": [], "written": [], "rehearsal": {"ran": True}}


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[dict[str, Any]]]:
    """answer(STEP=RESULT, ...) -> the arguments of the steps that are asked; a step may have several results.

    A rehearsal finds nothing; none: the answer of a module without steps.
    """

    def answers(**results: Any) -> list[dict[str, Any]]:
        asked: list[dict[str, Any]] = []

        def execute(_self: Any, **options: Any) -> Any:
            arguments = options["module_args"]
            asked.append(arguments)
            found = {"rehearse": {}, **results}[arguments.get("step", "none")]
            found = found.pop(0) if isinstance(found, list) else found
            return {**(REHEARSED if arguments.get("step") == "rehearse" else {}), **found}

        monkeypatch.setattr(GuardedAction, "_execute_module", execute)
        return asked

    return answers
