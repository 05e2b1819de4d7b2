# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules that users see: few, each name with one meaning, every result of one shape."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.rackscale.nvlink.tests.tools import reference

COLLECTION = Path(__file__).resolve().parents[2]
GROUPS = yaml.load((COLLECTION / "meta" / "runtime.yml").read_text(), Loader=yaml.CSafeLoader)["action_groups"]
NOTE = re.compile(r"Used by the [a-z ]+ of this collection alone; its (options|result) may change in any release\.")
MODULES = dict(reference.plugins("modules"))
PUBLIC = [name for name in MODULES if name not in reference.internal_modules()]


def test_every_internal_module_has_the_note() -> None:
    notes = {name: MODULES[name].get("notes") or [] for name in MODULES.keys() - PUBLIC}
    assert [name for name, texts in notes.items() if not any(map(NOTE.match, texts))] == []


@pytest.mark.parametrize("name", PUBLIC)
def test_every_result_documents_changes_and_findings(name: str) -> None:
    module = importlib.import_module(f"ansible_collections.rackscale.nvlink.plugins.modules.{name}")
    assert {"changes", "findings"} <= yaml.safe_load(module.RETURN).keys()


@pytest.mark.parametrize("name", MODULES)
def test_the_modules_that_change_something_return_their_actions_alike(name: str) -> None:
    """All but those that only read and report, by their attributes and by their action plugins."""
    module = importlib.import_module(f"ansible_collections.rackscale.nvlink.plugins.modules.{name}")
    documented = yaml.safe_load(module.DOCUMENTATION)
    reads = {f"rackscale.nvlink.attributes.{kind}_module" for kind in ("info", "facts")}
    fragments = documented.get("extends_documentation_fragment", ())
    diff = documented.get("attributes", {}).get("diff_mode", {}).get("support")
    reports = not reads.isdisjoint(fragments) or name in ("doctor", "run_check")
    assert not (reports and diff in ("full", "partial"))
    returned = yaml.safe_load(module.RETURN).get("extends_documentation_fragment")
    assert returned == (None if reports else "rackscale.nvlink.return_values")
    if name != "slurm_host":  # the actions of others ask it
        action = importlib.import_module(f"ansible_collections.rackscale.nvlink.plugins.action.{name}")
        assert action.ActionModule.CHANGES is not reports


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_lists_public_modules_sorted_and_once(group: str) -> None:
    """Internal modules are in no group: their roles and action plugins set all of their options."""
    assert sorted(set(GROUPS[group])) == GROUPS[group]
    assert set(GROUPS[group]) <= set(PUBLIC)


def test_module_defaults_of_a_group_apply_to_every_public_module_of_its_place() -> None:
    assert set(GROUPS["fabric"]) == {name for name in PUBLIC if "fabric_file" in (MODULES[name].get("options") or ())}
    assert set(GROUPS["slurm"]) == {name for name in PUBLIC if name.startswith("slurm_") or name == "explain"}
