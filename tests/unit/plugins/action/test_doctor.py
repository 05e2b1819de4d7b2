# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How often the playbook doctor reads the variables of a host: reading all of 10,368 trays takes seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.action import doctor
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

FABRIC = fabrics.fabric(racks=2, split=())
TRAYS = [*FABRIC.trays]


class HostVars(dict[str, Any]):
    """As Ansible's own, with the number of times that each host was read."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.read: Counter[str] = Counter()

    def __getitem__(self, name: str) -> Any:
        self.read[name] += 1
        return super().__getitem__(name)

    raw_get = __getitem__


@pytest.fixture
def hostvars() -> HostVars:
    slurm = {"times": {"started": 1.0, "ended": 1.0}, "slurm": {"version": "26.05.5"}}
    trays = {name: {"ansible_host": f"10.0.0.{number}", "doctor_tray": {}} for number, name in enumerate(TRAYS)}
    ctl = {"ansible_host": "10.0.1.1", "doctor_slurm": slurm}
    return HostVars({**trays, "ctl": ctl, "localhost": {"verify_kubeconfig": "/nowhere"}})


def test_a_site_without_a_fabric_file_sets_it_next(
    hostvars: HostVars, monkeypatch: pytest.MonkeyPatch, run_action: Callable[..., dict[str, Any]]
) -> None:
    monkeypatch.setattr(
        doctor.doctor, "evaluate", lambda *_given: ([], SimpleNamespace(trays={name: {} for name in TRAYS}))
    )
    options = {"task_vars": {"hostvars": hostvars, "groups": {}}, "step": "evaluate", "trays": TRAYS}
    assert "Next: set fabric_file" in run_action(doctor.ActionModule, **options)["text"][-1]
    text = run_action(doctor.ActionModule, **options, fabric_file="/fabric.json")["text"]
    assert "Next: ansible-playbook rackscale.nvlink.site." in text[-1]


@pytest.mark.parametrize("placed", [True, False])
def test_the_evaluation_reads_a_tray_for_its_address_and_its_report(
    placed: bool, tmp_path: Path, hostvars: HostVars, run_action: Callable[..., dict[str, Any]]
) -> None:
    path = tmp_path / "fabric.json"
    if placed:
        path.write_bytes(fabric_file.serialise(FABRIC))
    task_vars = {"hostvars": hostvars, "groups": {}}
    options = {"step": "evaluate", "fabric_file": str(path), "trays": TRAYS, "controllers": ["ctl"], "fail": False}
    found = run_action(doctor.ActionModule, task_vars=task_vars, **options)
    assert {"versions", "kubernetes"} <= {row["name"] for row in found["verdict"]["checks"]}
    assert {hostvars.read[name] for name in TRAYS} == {2}


@pytest.mark.parametrize(("racks", "given", "warned"), [(51, {}, 1), (51, {"rollout_domains": [1]}, 0), (50, {}, 0)])
def test_a_wave_for_each_of_many_domains_is_a_warning(
    racks: int, given: dict[str, Any], warned: int, tmp_path: Path, run_action: Callable[..., dict[str, Any]]
) -> None:
    path = tmp_path / "fabric.json"
    path.write_bytes(fabric_file.serialise(fabrics.fabric(racks=racks, trays=1, split=())))
    task_vars = {"hostvars": HostVars({"localhost": given}), "groups": {}}
    found = run_action(
        doctor.ActionModule, task_vars=task_vars, step="evaluate", fabric_file=str(path), trays=[], fail=False
    )
    rows = [(row["status"], row["message"]) for row in found["verdict"]["checks"] if "waves" in row["message"]]
    text = "a rollout takes 51 waves in a row; set rollout_domains: [1, 4, 16]."
    assert rows == [("warning", text)] * warned
