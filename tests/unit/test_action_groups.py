# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`module_defaults` of an action group apply to every module of its place, internal ones of the roles included."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
GROUPS = yaml.safe_load((CHECKOUT / "meta" / "runtime.yml").read_text())["action_groups"]
MODULES = {path.stem: path for path in (CHECKOUT / "plugins" / "modules").glob("*.py")}
# The only module of Slurm that runs on trays.
ON_TRAYS = {"slurm_tray"}
# An action plugin runs it with the options of the public module.
RUN_BY_ACTIONS = {"slurm_tiers_apply"}


def options(module: str) -> dict[str, Any]:
    """The options in a module's own documentation, without those of fragments."""
    tree = ast.parse(MODULES[module].read_text())
    documentation = next(
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "DOCUMENTATION"
    )
    assert isinstance(documentation, ast.Constant)
    found: dict[str, Any] = yaml.safe_load(str(documentation.value)).get("options", {})
    return found


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_lists_existing_modules_sorted_and_once(group: str) -> None:
    assert sorted(set(GROUPS[group])) == GROUPS[group]
    assert set(GROUPS[group]) <= set(MODULES)


def test_modules_with_a_fabric_file_are_in_the_group_fabric() -> None:
    assert set(GROUPS["fabric"]) == {module for module in MODULES if "fabric_file" in options(module)}


def test_modules_of_the_slurm_controller_are_in_the_group_slurm() -> None:
    assert (
        set(GROUPS["slurm"])
        == {module for module in MODULES if module.startswith("slurm_")} - ON_TRAYS - RUN_BY_ACTIONS
    )
