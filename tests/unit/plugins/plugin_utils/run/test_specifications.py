# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who reads which variable, and that the lists of playbooks agree with playbooks, roles and modules."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run import specifications
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run.specifications import VARIABLES
from ansible_collections.rackscale.nvlink.tests.tools import reference

CHECKOUT = Path(__file__).resolve().parents[5]
PLAYBOOKS = sorted(CHECKOUT.glob("playbooks/*.yml"))
CHECK = CHECKOUT / "playbooks/phases/check.yml"
PARTS = [
    *PLAYBOOKS,
    *sorted({*CHECKOUT.glob("playbooks/phases/*.yml")} - {CHECK}),
    CHECKOUT / "playbooks/tasks/render.yml",
]
SPECS = yaml.safe_load((CHECKOUT / "playbooks/files/argument_specs.yml").read_text())["argument_specs"]
KEYS = ("type", "elements", "choices", "options", "no_log")
ONE_VARIABLE = re.compile(r"\{\{ *(\w+)(?: *\| *default\([^{}]*?\))* *\}\}")


def test_a_playbook_reads_the_variables_of_its_roles_and_of_what_it_imports() -> None:
    site, discover = map(specifications.read_by, ("site", "discover"))
    assert site["imex_list_port"]["type"] == "int"
    assert site["fabric_moved_percent"]["type"] == "float"
    assert site["render_dir"]["type"] == "path"
    assert "imex_list_port" not in discover
    assert specifications.read_by("of_a_site") == {}
    assert {"roles/rollout", "roles/imex", "roles/verify"} < set(specifications.runs("rollout"))
    assert specifications.runs("demo") == ["playbooks/demo", "playbooks/discover", "playbooks/render"]


def test_every_import_and_every_role_of_a_playbook_is_found() -> None:
    pattern = r"(?:import_playbook|_role:\n *name): *(?:rackscale\.nvlink\.|phases/)?(\w+)"
    for path in PARTS:
        named = {*re.findall(pattern, path.read_text())} - {CHECK.stem}
        assert named <= {Path(owner).name for owner in specifications.runs(path.stem)}, path


def test_each_playbook_has_an_entry_whose_check_names_its_variables() -> None:
    assert list(SPECS) == [path.stem for path in PLAYBOOKS]
    for name, check in specifications.CHECKS.items():
        known = {"ansible_run_tags", *specifications.read_by(name)}
        cases = [{key: row for key, row in case.items() if key != "when"} for case in check.cases]
        assert {variable for case in check.cases for variable in case["when"]} <= known
        for one in (check, *(dataclasses.replace(check, **case) for case in cases)):
            named = {*one.required, *one.files, *one.trays, *one.placed, *one.renames, one.fabric_variable}
            assert named - {""} <= known
            assert {*one.patterns, *one.inventory_patterns, *one.optional_patterns} <= specifications.PATTERNS.keys()
            assert all("example" in VARIABLES[variable] for variable in one.required)


@pytest.mark.parametrize(
    ("playbook", "values", "expected"),
    [
        ("discover", {}, {"patterns": ["fabric_hosts"]}),
        ("discover", {"fabric_sources": ["kubernetes", {"ssh": {}}]}, {"patterns": ()}),
        ("verify", {"ansible_run_tags": ("all",)}, {"inventory_patterns": ["verify_hosts"]}),
        ("verify", {"ansible_run_tags": ["quick"]}, {"inventory_patterns": []}),
        ("render", {"report_jobs": "yes"}, {"inventory_patterns": ["slurm_controller_hosts"]}),
        ("render", {"report_jobs": False}, {"inventory_patterns": (), "required": ["fabric_file", "render_dir"]}),
        ("imex", {"imex_owner": "none"}, {"fabric_variable": ""}),
        ("rollout", {}, {"required": ["rollout_name"]}),
    ],
)
def test_what_a_playbook_checks_in_a_run(playbook: str, values: dict[str, Any], expected: dict[str, Any]) -> None:
    check = specifications.CHECKS[playbook].of_run(values.get)
    assert {name: getattr(check, name) for name in expected} == expected


def test_a_variable_has_one_type_wherever_it_stands() -> None:
    for playbook, entry in SPECS.items():
        for name, spec in entry["options"].items():
            assert _kept(spec) == _kept(VARIABLES[name]), f"{name} of {playbook}"


@pytest.mark.parametrize("path", PARTS, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_a_variable_has_the_type_of_the_option_that_it_sets(path: Path) -> None:
    for name, option in _options_of_modules(yaml.safe_load(path.read_text())):
        if name in SPECS[path.stem]["options"]:
            known = _kept(VARIABLES[name])
            assert {**known, **_kept(option)} == known, name


def _kept(spec: Any) -> dict[str, Any]:
    kept = {key: spec[key] for key in KEYS if spec.get(key)}
    if kept.get("type") == "str":
        del kept["type"]
    if inner := spec.get("options") or spec.get("suboptions"):
        kept["options"] = {name: _kept(option) for name, option in inner.items()}
    return kept


def _options_of_modules(data: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """(variable, specification) where an option of a module of this collection is that variable alone."""
    if isinstance(data, list):
        for entry in data:
            yield from _options_of_modules(entry)
    elif isinstance(data, dict):
        for key, value in data.items():
            if str(key).startswith("rackscale.nvlink.") and isinstance(value, dict):
                path = CHECKOUT / "plugins" / "modules" / f"{key.rpartition('.')[2]}.py"
                options = reference.documentation(path).get("options") or {}
                for option, given in value.items():
                    match = ONE_VARIABLE.fullmatch(given) if isinstance(given, str) else None
                    if match and option in options:
                        yield match[1], options[option]
            yield from _options_of_modules(value)
