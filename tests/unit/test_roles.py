# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a role's argument specification, its defaults and its README say of its variables is the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROLES = sorted(path.parents[1] for path in Path(__file__).resolve().parents[2].glob("roles/*/meta/argument_specs.yml"))


def options(role: Path) -> dict[str, dict[str, Any]]:
    entries = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]
    return {name: option for entry in entries.values() for name, option in entry["options"].items()}


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_variable_has_its_row(role: Path) -> None:
    rows = re.findall(r"^\| `(\w+)` \|", (role / "README.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(options(role))


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_defaults_are_those_of_the_specification(role: Path) -> None:
    known = options(role)
    defaults = yaml.safe_load((role / "defaults/main.yml").read_text())
    assert set(defaults) <= set(known)
    for name, value in defaults.items():
        assert known[name].get("default", value) == value, name
    assert {name for name, option in known.items() if "default" in option} <= set(defaults)
