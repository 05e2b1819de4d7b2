# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""No option that a tray's facts can set decides what runs on the controller or on another host.

Facts rank above role defaults and inventory variables, and below play vars, role vars, block and task vars, registered
variables and set_fact. So a task that runs once or is delegated in a play over trays uses the latter alone, and none of
them is made from an option.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction
from jinja2 import meta

CHECKOUT = Path(__file__).resolve().parents[2]
# Every file of tasks that a play over trays runs. The others run on localhost or on the Slurm controllers.
ON_TRAYS = [
    *(CHECKOUT / "roles/imex/tasks").glob("*.yml"),
    *(path for path in (CHECKOUT / "roles/rollout/tasks").glob("*.yml") if path.stem != "plan"),
    *(CHECKOUT / "roles/slurm/tasks" / name for name in ("tray.yml", "packages.yml", "start.yml")),
    CHECKOUT / "roles/verify/tasks/tray.yml",
    CHECKOUT / "roles/dra_driver/tasks/tray.yml",
    CHECKOUT / "roles/fabric/tasks/main.yml",
]
# Included by a wave for all its trays at once.
ONCE = [CHECKOUT / "roles/verify/tasks/compare.yml"]
# Keywords of a task that are no arguments of it.
_PLAIN = {"name", "register", "tags", "vars", "module_defaults", "block", "rescue", "always", "loop_control"}
# Modules that ask no host.
_LOCAL = {"assert", "debug", "fail", "import_role", "import_tasks", "include_role", "include_tasks", "meta", "set_fact"}
_CONDITIONS = ("when", "failed_when", "changed_when", "until", "that")


class _Any(dict[str, Any]):
    """Each filter and test, since names of variables alone are of interest."""

    def get(self, key: str, default: Any = None) -> Any:
        return lambda *_: ""


ENVIRONMENT = jinja2.Environment()
ENVIRONMENT.filters = _Any()
ENVIRONMENT.tests = _Any()


def options() -> set[str]:
    """Every option and default of a role, and every documented variable of a playbook."""
    names = {"fabric_file", "nvlink_fabric_file", "nvlink_imex_address", "nvlink_slurm_node"}
    for path in CHECKOUT.glob("roles/*/meta/argument_specs.yml"):
        names.update(name for spec in read(path)["argument_specs"].values() for name in spec["options"])
    for path in CHECKOUT.glob("roles/*/defaults/main.yml"):
        names.update(read(path))
    return names


def read(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)


def names_in(value: Any, key: str = "") -> set[str]:
    """The variables that a value of YAML reads."""
    if isinstance(value, dict):
        return {name for inner, entry in value.items() for name in names_in(entry, inner)}
    if isinstance(value, list):
        return {name for entry in value for name in names_in(entry, key)}
    if not isinstance(value, str) or (key not in _CONDITIONS and "{{" not in value):
        return set()
    template = value if "{{" in value else f"{{{{ {value} }}}}"
    return meta.find_undeclared_variables(ENVIRONMENT.parse(template))


def expanded(names: set[str], variables: Mapping[str, Any]) -> set[str]:
    """The names, with each role, block or task variable replaced by the names that it is made from."""
    found: set[str] = set()
    waiting = set(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            if name in variables:
                waiting |= names_in(variables[name])
    return found - set(variables)


def decisions(tasks: list[dict[str, Any]], above: dict[str, Any], shared: bool) -> Iterator[tuple[str, set[str]]]:
    """(name, variables read) of each task that runs once or is delegated."""
    for task in tasks:
        variables = {**above, **task.get("vars", {})}
        is_shared = shared or bool(task.get("run_once")) or "delegate_to" in task
        for word in ("block", "rescue", "always"):
            yield from decisions(task.get(word, []), variables, is_shared)
        if is_shared and "block" not in task:
            arguments = {key: value for key, value in task.items() if key not in _PLAIN}
            yield task.get("name", "?"), expanded(names_in(arguments), variables)


@pytest.mark.parametrize("path", [*ON_TRAYS, *ONCE], ids=lambda path: f"{path.parents[1].name}/{path.stem}")
def test_no_option_decides_for_another_host(path: Path) -> None:
    of_role = path.parents[1] / "vars/main.yml"
    variables = read(of_role) if of_role.exists() else {}
    wrong = {
        name: used for name, names in decisions(read(path), variables, path in ONCE) if (used := names & options())
    }
    assert wrong == {}


def test_the_check_finds_an_option_behind_a_variable() -> None:
    tasks = [
        {
            "vars": {"between": "{{ of_role }}"},
            "block": [{"name": "Test", "command": "{{ between }}", "run_once": True, "when": "imex_owner == 'job'"}],
        }
    ]
    found = dict(decisions(tasks, {"of_role": "{{ rollout_test | first }} {{ hostvars['localhost'].x }}"}, False))
    assert found["Test"] & options() == {"rollout_test", "imex_owner"}


@pytest.mark.parametrize("path", sorted((CHECKOUT / "plugins/action").glob("[a-z]*.py")), ids=lambda path: path.stem)
def test_every_action_is_guarded(path: Path) -> None:
    action = importlib.import_module(f"ansible_collections.rackscale.nvlink.plugins.action.{path.stem}").ActionModule
    assert issubclass(action, GuardedAction)
    assert action.run is GuardedAction.run


def modules(tasks: list[dict[str, Any]]) -> Iterator[str]:
    """The modules that tasks run on their hosts; those that are delegated have no answer of a tray."""
    for task in tasks:
        if "delegate_to" not in task:
            yield from (key for key in task if key.count(".") == 2)
            for word in ("block", "rescue", "always"):
                yield from modules(task.get(word, []))


def test_modules_without_a_schema_run_on_trays_only_where_the_page_on_security_says_so() -> None:
    """Their results may set statistics, which AWX hands on as variables."""
    tasks = {str(path.relative_to(CHECKOUT / "roles")): read(path) for path in ON_TRAYS}
    for name in ("discover", "verify"):
        plays = read(CHECKOUT / f"playbooks/phases/{name}.yml")
        tasks[name] = [task for play in plays if play["hosts"] != "localhost" for task in play["tasks"]]
    foreign = {
        name
        for name, rows in tasks.items()
        for module in modules(rows)
        if not module.startswith("rackscale.nvlink.") and module.rpartition(".")[2] not in _LOCAL
    }
    assert foreign == {
        "dra_driver/tasks/tray.yml",
        "fabric/tasks/main.yml",
        "rollout/tasks/imex_stop.yml",
        "slurm/tasks/packages.yml",
        "slurm/tasks/tray.yml",
    }
