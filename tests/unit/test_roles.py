# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each variable is read, a role's defaults match its specification, and the example play of its README runs alone."""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run.specifications import CHECKS, OF_OWNER

CHECKOUT = Path(__file__).resolve().parents[2]
ROLES = sorted(path.parents[1] for path in CHECKOUT.glob("roles/*/meta/argument_specs.yml"))
_FENCED = re.compile(r"^```ya?ml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:^(?: {4}.*)?\n)+", re.MULTILINE)


def options(role: Path) -> dict[str, dict[str, Any]]:
    """The variables of all entry points of a role."""
    entries = yaml.load((role / "meta/argument_specs.yml").read_text(), Loader=yaml.CSafeLoader)["argument_specs"]
    return {name: option for entry in entries.values() for name, option in entry["options"].items()}


def examples(role: Path) -> list[str]:
    """The plays of a role's README, each as text."""
    readme = (role / "README.md").read_text()
    blocks = [*_FENCED.findall(readme), *map(textwrap.dedent, _INDENTED.findall(readme))]
    return [block for block in blocks if re.search(r"^ *-? ?hosts:", block, re.MULTILINE)]


@functools.cache
def read() -> set[str]:
    """All words of tasks, templates and plays, and of the templates in defaults; in plugins, all names in texts.

    A name in a comment, a documentation or a message reads nothing.
    """
    paths = [path for folder in ("roles/*/[!m]*", "playbooks") for path in CHECKOUT.glob(f"{folder}/**/*.*")]
    files = [path.read_text("utf-8") for path in paths if path.suffix in (".yml", ".j2") and path.parent.name != "meta"]
    texts = [re.sub(r"(?m)^([ -]*\w+:|\s*#.*)", "", text) for text in files]
    for path in CHECKOUT.glob("plugins/**/*.py"):
        nodes = ast.walk(ast.parse(path.read_text("utf-8")))
        constants = {str(node.value) for node in nodes if isinstance(node, ast.Constant)}
        texts += [text for text in constants if re.fullmatch(r"\w+", text) or text.startswith("{{")]
    return {word for text in texts for word in re.findall(r"\w+", text)}


@pytest.mark.parametrize("owner", OF_OWNER)
def test_an_option_is_read_under_its_own_name(owner: str) -> None:
    left = OF_OWNER[owner].keys() - read()
    assert [f"{name}: read it in a task, template or plugin, which nothing does" for name in left] == []


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_an_option_of_a_role_is_complete(role: Path) -> None:
    known = options(role)
    defaults = yaml.load((role / "defaults/main.yml").read_text(), Loader=yaml.CSafeLoader)
    missing = [f"{name}: describe it in meta/argument_specs.yml" for name in defaults if name not in known]
    for name, option in known.items():
        if "default" in option and name not in defaults:
            missing.append(f"{name}: write its default into defaults/main.yml")
        elif defaults.get(name) != option.get("default", defaults.get(name)):
            missing.append(f"{name}: write the same default into defaults/main.yml and meta/argument_specs.yml")
    assert missing == []


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_a_condition_converts_a_boolean_which_is_a_text_by_e(role: Path) -> None:
    names = "|".join(name for name, option in options(role).items() if option.get("type") == "bool") or "none"
    read = rf"(?m)(?:when:|^ +-|if|and|or|not) ({names})\b(?!( \| default\([^)]*\))? \| bool|:)"
    assert [found[0] for path in role.glob("tasks/*.yml") for found in re.findall(read, path.read_text())] == []


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_the_readme_has_an_example_play_of_the_role_by_its_full_name(role: Path) -> None:
    plays = [play for block in examples(role) for play in yaml.load(block, Loader=yaml.CSafeLoader)]
    assert any(re.search(rf"rackscale\.nvlink\.{role.name}\b", yaml.safe_dump(play)) for play in plays)


def test_ansible_accepts_the_example_plays(tmp_path: Path) -> None:
    files = []
    for role in ROLES:
        for number, block in enumerate(examples(role)):
            files.append(tmp_path / f"{role.name}-{number}.yml")
            files[-1].write_text(block)
    fabric_file = tmp_path / "fabric.json"
    fabric_file.write_text('{"schema_version": 1, "domains": {}, "cliques": {}, "trays": {}, "overrides": []}')
    done = subprocess.run(
        [
            *(str(Path(sys.executable).parent / "ansible-playbook"), "--syntax-check", "-i", "localhost,"),
            *("-e", f"fabric_file={fabric_file}"),
            *map(str, files),
        ],
        # ansible-test makes it an error that the examples' groups are not in this inventory; Ansible's default warns.
        env={
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": sysconfig.get_path("purelib"),
            "ANSIBLE_HOST_PATTERN_MISMATCH": "warning",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def tasks(data: Any, once: bool = False) -> Iterator[tuple[dict[str, Any], bool]]:
    """Each task of a file of tasks or plays, and whether it runs once."""
    for entry in data or []:
        runs_once = once or bool(entry.get("run_once"))
        yield entry, runs_once
        for part in ("tasks", "block", "rescue", "always"):
            yield from tasks(entry.get(part), runs_once)


def files_with_tasks() -> Iterator[tuple[Path, list[Any]]]:
    """The collection's files of tasks and playbooks."""
    for path in [path for folder in ("roles/*/tasks", "playbooks") for path in CHECKOUT.glob(f"{folder}/**/*.yml")]:
        data = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
        if isinstance(data, list):
            yield path, data


def test_no_task_that_runs_once_makes_the_hosts_of_its_play_share_their_facts() -> None:
    """ansible-core 2.21 stores the facts of such a task, none included, for all hosts as one dictionary.

    Where a host has no facts yet, later facts of any of them are then facts of all, so that one tray's are everyone's.
    """
    storing = {f"ansible.builtin.{name}" for name in ("debug", "set_fact", "include_vars")}
    found = [
        f"{path.name}: {task['name']}"
        for path, data in files_with_tasks()
        for task, runs_once in tasks(data)
        # A delegated fact is stored for its host alone.
        if runs_once and storing & task.keys() and not task.get("delegate_facts")
    ]
    assert found == []


def test_each_playbook_with_a_play_on_localhost_requires_it() -> None:
    """Ansible drops the plays of hosts that --limit leaves out."""
    for path in CHECKOUT.glob("playbooks/*.yml"):
        text = "".join(file.read_text() for file in (path, path.parent / "phases" / path.name) if file.exists())
        # Not a variable that localhost has.
        on_localhost = re.search(r"^  hosts:.*(?<!\[')localhost", text, re.MULTILINE)
        assert bool(on_localhost) == CHECKS[path.stem].localhost, path


def test_every_task_names_its_arguments() -> None:
    """Ansible warns about a template for all of them, at every run of the task."""
    found = [
        f"{path.name}: {task['name']}"
        for path, data in files_with_tasks()
        for task, _once in tasks(data)
        for key, value in task.items()
        if "." in key and "_tasks" not in key and str(value).startswith("{{")
    ]
    assert found == []
