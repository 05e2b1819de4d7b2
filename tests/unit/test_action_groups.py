# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`module_defaults` of a group reach every module that they are meant for."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
GROUPS = yaml.safe_load((CHECKOUT / "meta" / "runtime.yml").read_text())["action_groups"]
MODULES = {path.stem: path for path in (CHECKOUT / "plugins" / "modules").glob("*.py")}
# It makes a tray a node of Slurm, and runs there.
ON_TRAYS = {"slurm_tray"}


def options(module: str) -> dict[str, Any]:
    """The options that a module documents itself."""
    tree = ast.parse(MODULES[module].read_text())
    told = next(
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "DOCUMENTATION"
    )
    assert isinstance(told, ast.Constant)
    found: dict[str, Any] = yaml.safe_load(str(told.value)).get("options", {})
    return found


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_names_modules_that_exist_in_order_and_once(group: str) -> None:
    assert sorted(set(GROUPS[group])) == GROUPS[group]
    assert set(GROUPS[group]) <= set(MODULES)


def test_whatever_takes_the_fabric_file_is_in_its_group() -> None:
    assert set(GROUPS["fabric"]) == {module for module in MODULES if "fabric_file" in options(module)}


def test_whatever_runs_on_the_slurm_controller_is_in_its_group() -> None:
    assert set(GROUPS["slurm"]) == {module for module in MODULES if module.startswith("slurm_")} - ON_TRAYS
