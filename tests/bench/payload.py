# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a module carries to a host: the files of this collection that it imports, their lines, and their bytes zipped.

Ansible's own files, about 100 KB zipped in every call, are not counted.
"""

from __future__ import annotations

import ast
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

NAME = "payload"
CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGE = "ansible_collections.rackscale.nvlink."


def table() -> str:
    """The modules that run on a host, the largest payload first; the others are documentation alone."""
    modules = sorted((CHECKOUT / "plugins" / "modules").glob("*.py"))
    rows = sorted((row for row in map(_row, modules) if row[1] > 1), key=lambda row: -row[3])
    lines = ["| module | files | lines | zipped KB |", "|---|--:|--:|--:|"]
    lines += [f"| `{name}` | {files} | {count:,} | {size / 1000:.1f} |" for name, files, count, size in rows]
    return "\n".join(lines)


def _row(module: Path) -> tuple[str, int, int, int]:
    files: dict[Path, bytes] = {}
    waiting = [module]
    while waiting:
        path = waiting.pop()
        if path not in files:
            files[path] = path.read_bytes()
            waiting += _imported(ast.parse(files[path]))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            archive.writestr(str(path.relative_to(CHECKOUT)), data)
    return module.stem, len(files), sum(data.count(b"\n") for data in files.values()), len(packed.getvalue())


def _imported(tree: ast.Module) -> Iterator[Path]:
    """The files of this collection that one of its files imports, with the packages above them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            where = CHECKOUT.joinpath(*str(node.module).removeprefix(PACKAGE).split("."))
            for base in (where, *(where / alias.name for alias in node.names)):
                for path in (base.with_suffix(".py"), base / "__init__.py"):
                    if path.is_file():
                        yield path
