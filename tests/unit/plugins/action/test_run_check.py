# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that do not exist; plugin_utils/run tests the other checks."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible import context
from ansible.errors import AnsibleActionFail
from ansible.playbook.task import Task
from ansible.utils.context_objects import CLIArgs
from ansible_collections.rackscale.nvlink.plugins.action import run_check
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.fabrics import HostVars


@pytest.mark.parametrize("by", ["-e", "group_vars"])
def test_a_file_that_does_not_exist_is_an_error_of_the_command_line_and_a_warning_else(
    run_action: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    path = tmp_path / "site:verdict.json"
    monkeypatch.setattr(context, "CLIARGS", CLIArgs({"extra_vars": (), "inventory": (), "args": ("render.yml",)}))
    monkeypatch.setattr(run_check, "load_extra_vars", lambda _loader: {"verdict_file": path} if by == "-e" else {})
    monkeypatch.setattr(Task, "play", SimpleNamespace(vars={"run_playbook": "render"}))
    variables = {
        "hostvars": HostVars(localhost={"verdict_file": str(path), "fabric_file": "x", "render_dir": "x"}),
        "groups": {},
    }

    def run() -> dict[str, Any]:
        return run_action(run_check.ActionModule, task_vars=variables)

    sentence = f"verdict_file: {path} is not a file; correct the path, or run the playbook that writes it first."
    if by == "-e":
        with pytest.raises(AnsibleActionFail) as error:
            run()
        assert str(error.value) == sentence
    else:
        assert run()["warnings"] == [sentence]
    path.touch()
    assert run()["warnings"] == []
    other = tmp_path / "other.json"
    other.touch()
    variables["hostvars"]["localhost"]["verdict_file"] = f"{tmp_path / 'none'}:{other}"
    assert run()["warnings"] == []
