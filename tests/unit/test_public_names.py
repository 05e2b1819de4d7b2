# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection uses public names only: of the standard library, of Ansible and of other libraries."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PLUGINS = sorted((CHECKOUT / "plugins").rglob("*.py"))
OWN = "ansible_collections.rackscale.nvlink"

# With a leading underscore, but documented: by Python's library reference, or by Ansible's developer guide.
DOCUMENTED = {
    *("_asdict", "_fields", "_replace"),  # named tuples
    *("_exit", "_fields_", "_type_"),  # os._exit, structures of ctypes
    *("_task", "_connection", "_loader", "_templar", "_execute_module"),  # action and lookup plugins
    *("_read_config_data", "_cache", "_set_composite_vars"),  # inventory plugins
    *("_add_host_to_composed_groups", "_add_host_to_keyed_groups"),
    *("_display", "_handle_warnings", "_get_diff"),  # callback plugins
    "_diff",  # AnsibleModule
}
# What nothing published gives: file -> names.
EXCEPTIONS = {
    # Whether a failed task stands in a block with a rescue.
    "plugins/callback/progress.py": {"_parent", "_uuid"},
    # The play that a run store belongs to, equal in all forks of Ansible.
    "plugins/plugin_utils/imex/run_store.py": {"_uuid"},
}
# Documented modules that programs are not to import, or not to touch.
INTERNAL = {"gc", "posix"}
IMPORT = re.compile(r"^\s*(?:from|import)\s+([\w.]+(?:\s*,\s*[\w.]+)*)", re.MULTILINE)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _private_modules(names: str) -> list[str]:
    modules = [name.strip() for name in names.split(",")]
    return [name for name in modules if name in INTERNAL or any(map(_is_private, name.split(".")))]


def private_names(source: str) -> Iterator[tuple[int, str]]:
    """(line, name) of each private name of others that a source uses."""
    # In the text, so also in the programs that a source holds as texts.
    for found in IMPORT.finditer(source):
        for name in _private_modules(found[1]):
            yield source.count("\n", 0, found.start(1)) + 1, name
    tree = ast.parse(source)
    own, own_modules = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            own.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            own.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(OWN):
            own_modules.update(alias.asname or alias.name for alias in node.names)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            name = node.attr if ast.unparse(node.value) not in own_modules else ""
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr", "hasattr"):
            name = next((str(of.value) for of in node.args[1:2] if isinstance(of, ast.Constant)), "")
        elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith(OWN):
            name = next((alias.name for alias in node.names if _is_private(alias.name)), "")
        else:
            continue
        if _is_private(name) and name not in own | DOCUMENTED:
            yield node.lineno, name


@pytest.mark.parametrize("path", PLUGINS, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_only_public_names_of_others_are_used(path: Path) -> None:
    file = str(path.relative_to(CHECKOUT))
    found = {name: line for line, name in private_names(path.read_text())}
    assert [f"{file}:{line}: {name}" for name, line in found.items() if name not in EXCEPTIONS.get(file, ())] == []
    assert EXCEPTIONS.get(file, set()) <= found.keys()
