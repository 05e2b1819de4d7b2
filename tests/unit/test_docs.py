# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The README is short, and what the pages on architecture and security name exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
README = CHECKOUT / "README.md"
_STEP = re.compile(r"`((?:plugins|roles|playbooks)/[\w/.]+)`(?:, `(\w[\w.]*)\(\)`)?")


def definitions(path: Path) -> set[str]:
    """The functions of a Python file, methods as Class.method."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return names


def test_the_architecture_names_files_and_functions_that_exist() -> None:
    steps = _STEP.findall((CHECKOUT / "docs" / "architecture.md").read_text(encoding="utf-8"))
    assert len([function for _path, function in steps if function]) >= 15
    missing = [path for path, _function in steps if not (CHECKOUT / path).exists()]
    missing += [
        f"{path}: {function}"
        for path, function in steps
        if function and (CHECKOUT / path).exists() and function not in definitions(CHECKOUT / path)
    ]
    assert missing == []


def test_every_test_that_a_page_names_exists() -> None:
    """A page names a test by the end of its path, as in `imex/test_boot.py::test_x`."""
    files = {f"/{path.relative_to(CHECKOUT)}": definitions(path) for path in CHECKOUT.glob("tests/**/test_*.py")}
    named = [
        (path, test)
        for page in ("security.md", "faults.md")
        for path, test in re.findall(r"`((?:\w+/)*test_\w+\.py)::(\w+)`", (CHECKOUT / "docs" / page).read_text("utf-8"))
    ]
    assert len(named) > 50
    found = {(path, test): [f for f in files if f.endswith(f"/{path}") and test in files[f]] for path, test in named}
    assert [f"{path}::{test}" for (path, test), places in found.items() if not places] == []
