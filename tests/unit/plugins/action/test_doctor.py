# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the playbook doctor prints next, and its warning of many waves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.action import doctor
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor import host_checks
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

TRAYS = ["r01t01", "r01t02"]


def test_a_site_without_a_fabric_file_sets_it_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_action: Callable[..., dict[str, Any]]
) -> None:
    site = SimpleNamespace(trays={name: host_checks.Report() for name in TRAYS})
    monkeypatch.setattr(doctor.doctor, "evaluate", lambda *_given: ([], site))
    hostvars = fabrics.HostVars(localhost={}, r01t01={}, r01t02={})
    options = {"task_vars": {"hostvars": hostvars, "groups": {}}, "step": "evaluate", "trays": TRAYS}
    path, discover = tmp_path / "fabric.json", "Next: ansible-playbook rackscale.nvlink.discover."
    last = run_action(doctor.ActionModule, **options)["text"][-1]
    assert last.endswith(f" Set fabric_file: fabric.json for the group all. {discover}")
    # Before the first discovery there is nothing that site could configure, and nobody has reviewed a proposal.
    assert run_action(doctor.ActionModule, **options, fabric_file=str(path))["text"][-1].endswith(
        f"warnings. {discover}"
    )
    path.touch()
    text = run_action(doctor.ActionModule, **options, fabric_file=str(path))["text"]
    assert "Next: ansible-playbook rackscale.nvlink.site." in text[-1]


def test_trays_whose_interpreter_each_play_warns_of_are_named(run_action: Callable[..., dict[str, Any]]) -> None:
    hostvars = fabrics.HostVars(localhost={}, r01t01={}, r01t02={"ansible_python_interpreter": "/usr/bin/python3"})
    task_vars = {"hostvars": hostvars, "groups": {}}
    found = run_action(doctor.ActionModule, task_vars=task_vars, step="evaluate", trays=TRAYS, fail=False)
    (row,) = [row for row in found["verdict"]["checks"] if "interpreter_python = auto_silent" in row["message"]]
    assert (row["status"], row["name"], "1 tray (r01t01): " in row["message"]) == ("info", "ansible_cfg", True)


def test_doctor_file_replaces_nothing_but_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_action: Callable[..., dict[str, Any]]
) -> None:
    site = SimpleNamespace(trays={name: host_checks.Report() for name in TRAYS})
    monkeypatch.setattr(doctor.doctor, "evaluate", lambda *_given: ([], site))
    task_vars = {"hostvars": fabrics.HostVars(localhost={}, r01t01={}, r01t02={}), "groups": {}}
    fabric, mine, own = (tmp_path / name for name in ("fabric.json", "hosts.yml", "doctor.json"))
    mine.write_text("trays: {}")
    for file, sentence in ((fabric, "belongs to fabric_file"), (mine, "no earlier run has written it")):
        given = {"step": "evaluate", "trays": TRAYS, "path": str(file), "fabric_file": str(fabric)}
        with pytest.raises(AnsibleActionFail, match=rf"^doctor_file: {file} .*{sentence}"):
            run_action(doctor.ActionModule, task_vars=task_vars, **given)
    for _run in range(2):
        run_action(doctor.ActionModule, task_vars=task_vars, **{**given, "path": str(own)})
    assert (fabric.exists(), mine.read_text(), own.exists()) == (False, "trays: {}", True)


@pytest.mark.parametrize(("racks", "given", "warned"), [(51, {}, 1), (51, {"rollout_domains": [1]}, 0), (50, {}, 0)])
def test_a_wave_for_each_of_many_domains_is_a_warning(
    racks: int, given: dict[str, Any], warned: int, tmp_path: Path, run_action: Callable[..., dict[str, Any]]
) -> None:
    path = tmp_path / "fabric.json"
    path.write_bytes(fabric_file.serialise(fabrics.fabric(racks=racks, trays=1, split=())))
    task_vars = {"hostvars": fabrics.HostVars(localhost=given), "groups": {}}
    found = run_action(
        doctor.ActionModule, task_vars=task_vars, step="evaluate", fabric_file=str(path), trays=[], fail=False
    )
    rows = [(row["status"], row["message"]) for row in found["verdict"]["checks"] if "waves" in row["message"]]
    text = "a rollout takes 51 waves in a row; set rollout_domains: [1, 4, 16]."
    assert rows == [("warning", text)] * warned
