# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules that users see: few, each name with one meaning, every result of one shape."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

COLLECTION = Path(__file__).resolve().parents[2]
NAMES = sorted(path.stem for path in (COLLECTION / "plugins" / "modules").glob("[!_]*.py"))
INTERNAL = "[INTERNAL] "
GROUPS = yaml.load((COLLECTION / "meta" / "runtime.yml").read_text(), Loader=yaml.CSafeLoader)["action_groups"]
NOTE = re.compile(r"Used by the (roles|playbooks) of this collection alone; its options may change in any release\.")


def _document(name: str, attribute: str) -> dict[str, Any]:
    module = importlib.import_module(f"ansible_collections.rackscale.nvlink.plugins.modules.{name}")
    document: dict[str, Any] = yaml.load(getattr(module, attribute), Loader=yaml.CSafeLoader)
    return document


def _options(name: str) -> dict[str, dict[str, Any]]:
    """The documented options of a module with those of its documentation fragments."""
    document = _document(name, "DOCUMENTATION")
    found = dict(document.get("options") or {})
    for fragment in document.get("extends_documentation_fragment") or []:
        *_collection, stem, variant = [*fragment.split("."), "DOCUMENTATION"][: 4 if fragment.count(".") > 2 else 5][
            -2:
        ]
        module = importlib.import_module(f"ansible_collections.rackscale.nvlink.plugins.doc_fragments.{stem}")
        found.update(
            yaml.load(getattr(module.ModuleDocFragment, variant.upper()), Loader=yaml.CSafeLoader).get("options") or {}
        )
    return found


def _is_internal(name: str) -> bool:
    return bool(_document(name, "DOCUMENTATION")["short_description"].startswith(INTERNAL))


PUBLIC = [name for name in NAMES if not _is_internal(name)]


def test_every_internal_module_has_the_note() -> None:
    notes = {name: _document(name, "DOCUMENTATION").get("notes") or [] for name in NAMES if _is_internal(name)}
    assert [name for name, texts in notes.items() if not any(map(NOTE.match, texts))] == []


@pytest.mark.parametrize("name", PUBLIC)
def test_every_result_documents_changes_and_findings(name: str) -> None:
    assert {"changes", "findings"} <= _document(name, "RETURN").keys()


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_lists_public_modules_sorted_and_once(group: str) -> None:
    """Internal modules are in no group: their roles and action plugins set all of their options."""
    assert sorted(set(GROUPS[group])) == GROUPS[group]
    assert set(GROUPS[group]) <= set(PUBLIC)


def test_module_defaults_of_a_group_apply_to_every_public_module_of_its_place() -> None:
    assert set(GROUPS["fabric"]) == {name for name in PUBLIC if "fabric_file" in _options(name)}
    assert set(GROUPS["slurm"]) == {name for name in PUBLIC if name.startswith("slurm_")}
