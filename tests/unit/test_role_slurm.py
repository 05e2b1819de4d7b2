# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Expressions of the role slurm: why a unit does not start, and what it finds of a Slurm of somebody else."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROLE = Path(__file__).resolve().parents[2] / "roles/slurm"
ADVICE = "[2026-11-23T05:00:00] error: Database settings not recommended values: innodb_lock_wait_timeout"
SILENT = "it does not listen on port 6819 after 120 s"


def trusted(value: Any) -> Any:
    """Text of the role's files is a template."""
    if isinstance(value, dict):
        return {key: trusted(row) for key, row in value.items()}
    if isinstance(value, list):
        return [trusted(row) for row in value]
    return trust_as_template(value) if isinstance(value, str) else value


def template(value: Any, variables: dict[str, Any]) -> Any:
    loader = DataLoader()
    role = loader.load_from_file(str(ROLE / "vars/main.yml"))
    return Templar(loader, variables={**trusted(role), **variables}).template(trusted(value))


def why(lines: list[str], **results: Any) -> str:
    tasks = DataLoader().load_from_file(str(ROLE / "tasks/unit.yml"))
    block = next(task["block"] for task in tasks if "block" in task)
    fail = next(task for task in block if "ansible.builtin.fail" in task)
    given = {
        "_slurm_unit": "slurmdbd.service",
        "_slurm_unit_port": 6819,
        "_slurm_unit_file": {},
        "_slurm_started": {},
        "slurm_timeout": 120,
        "_slurm_logged": {"stdout_lines": lines},
        **trusted(fail["vars"]),
        **results,
    }
    return str(template(fail["ansible.builtin.fail"]["msg"], given))


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        ([ADVICE], SILENT),
        (["error: mysql_real_connect failed: 2003 no host", ADVICE], "mysql_real_connect failed: 2003 no host"),
        (["fatal: bad plugin", ADVICE, "error: later"], "bad plugin"),
        ([], SILENT),
    ],
)
def test_advice_is_no_cause(lines: list[str], cause: str) -> None:
    assert why(lines) == f"slurmdbd.service does not start ({cause}): correct that first."
    started = why(lines, _slurm_started={"msg": "its job failed"})
    assert (
        started == f"slurmdbd.service does not start ({cause.replace(SILENT, 'its job failed')}): correct that first."
    )


def test_no_output_shows_the_password_of_the_database() -> None:
    tasks = DataLoader().load_from_file(str(ROLE / "tasks/database.yml"))
    writes = next(task for task in tasks if task.get("ansible.builtin.template", {}).get("src") == "slurmdbd.conf.j2")
    assert writes["diff"] is False
    knowing = [task for task in tasks if {"ansible.builtin.slurp", "ansible.builtin.set_fact"} & task.keys()]
    assert [task.get("no_log") for task in knowing] == [True, True]


@pytest.mark.parametrize(
    ("files", "state", "database", "found"),
    [
        ([], ["nvlink_state_id", "job_state"], True, ""),
        (["/etc/slurm/slurm.conf", "/etc/slurm/slurmdbd.conf"], [], True, "/etc/slurm/slurm.conf was not written by"),
        ([], ["clustername", "job_state"], True, "/state has the state of a slurmctld that slurm_bringup has not conf"),
        (["/etc/slurm/slurmdbd.conf"], [], True, "/etc/slurm/slurmdbd.conf was not written by slurm_bringup, which"),
        # Another host's slurmdbd is used, and this file stays.
        (["/etc/slurm/slurmdbd.conf"], [], False, ""),
    ],
)
def test_a_slurm_of_somebody_else_is_found(files: list[str], state: list[str], database: bool, found: str) -> None:
    given = {
        "slurm_conf_dir": "/etc/slurm",
        "slurm_state_dir": "/state",
        "slurm_accounting": database,
        "slurm_controllers": ["ctl"],
        "inventory_hostname": "ctl",
        "_slurm_unmarked": {"stdout_lines": files},
        "_slurm_verified": {"skipped": True},
        "_slurm_state_names": {"stdout_lines": state},
    }
    rows = template("{{ _slurm_foreign }}", given)
    assert [row[: len(found)] for row in rows[:1]] == ([found] if found else [])


@pytest.mark.parametrize(
    ("rc", "stdout", "stderr", "foreign"),
    [
        # Another file of the package differs.
        (1, "S.5....T.  c /etc/slurm/cgroup.conf", "", []),
        (1, "S.5....T.  c /etc/slurm/slurm.conf", "", ["/etc/slurm/slurm.conf"]),
        (1, "", "error: cannot open Packages database", ["/etc/slurm/slurm.conf"]),
        (2, "", "", ["/etc/slurm/slurm.conf"]),
    ],
)
def test_the_example_of_a_package_is_nobodys_slurm(rc: int, stdout: str, stderr: str, foreign: list[str]) -> None:
    given = {
        "_slurm_unmarked": {"stdout_lines": ["/etc/slurm/slurm.conf"]},
        "_slurm_verified": {"rc": rc, "stdout": stdout, "stderr": stderr},
    }
    assert template("{{ _slurm_unmarked_files }}", given) == foreign


def test_hidden_names_are_no_state_of_a_slurmctld(tmp_path: Path) -> None:
    tasks = DataLoader().load_from_file(str(ROLE / "tasks/foreign.yml"))
    task = next(task for task in tasks if task.get("register") == "_slurm_state_names")
    argv = template(task["ansible.builtin.command"]["argv"], {"slurm_state_dir": str(tmp_path)})
    for name in (".snapshot", "lost+found"):
        (tmp_path / name).mkdir()
    assert subprocess.check_output(argv, text=True) == ""
    (tmp_path / "job_state").touch()
    assert subprocess.check_output(argv, text=True) == "job_state\n"
