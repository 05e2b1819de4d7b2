# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that can be found by their names, and action plugins that stay glue."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

PLUGINS = Path(__file__).parents[2] / "plugins"
MAX_EQUAL_NAMES, MAX_LINES = 12, 100


def code_lines(text: str) -> int:
    """The lines that are neither blank nor a comment, an import or a docstring."""
    free: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text or isinstance(node, (ast.Import, ast.ImportFrom)):
            free.update(range(node.lineno, (node.end_lineno or 0) + 1))
    lines = enumerate(map(str.strip, text.splitlines()), 1)
    return sum(1 for number, line in lines if line and not line.startswith("#") and number not in free)


def test_few_files_have_the_name_of_another() -> None:
    """A module and its action have one name."""
    paths = [path for path in PLUGINS.rglob("*.py") if path.parent.name not in ("action", "modules")]
    counts = Counter(path.name for path in paths if path.name != "__init__.py")
    equal = sorted(name for name, number in counts.items() if number > 1)
    assert sum(counts[name] - 1 for name in equal) <= MAX_EQUAL_NAMES, f"rename some of {', '.join(equal)}"


def test_action_plugins_are_glue() -> None:
    counts = {path.name: code_lines(path.read_text()) for path in (PLUGINS / "action").glob("*.py")}
    long = [f"{name}: {number} lines of code, move some to plugin_utils" for name, number in counts.items()]
    assert [row for row, number in zip(long, counts.values(), strict=True) if number > MAX_LINES] == []
