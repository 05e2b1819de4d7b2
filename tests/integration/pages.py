# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the documentation as an operator does: which commands a page tells to type, which files it tells to write."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAMS = "ansible(?:-[a-z]+)?|make|scontrol|sacctmgr|sbatch|srun|kubectl|helm|systemctl|journalctl|git|tests/lab/lab"
_COMMAND = re.compile(rf"^(?: *)((?:{PROGRAMS}) .*?)(?: {{2,}}#.*)?$")
_FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:^(?: {4,}.*)?\n)+", re.MULTILINE)
_FILE_NAME = re.compile(r"# ([\w./-]+\.(?:ya?ml|json|conf|cfg|sh))\n")


@dataclass(frozen=True)
class Command:
    """One line that a page tells to type."""

    page: str
    text: str


def pages() -> list[str]:
    """Every page that a user reads, relative to the checkout."""
    found = [CHECKOUT / "README.md", *CHECKOUT.glob("docs/**/*.md"), *CHECKOUT.glob("roles/*/README.md")]
    return sorted(str(path.relative_to(CHECKOUT)) for path in found)


def _blocks(page: str) -> list[str]:
    """The code blocks of a page in their order, fenced or indented, without their indentation."""
    text = (CHECKOUT / page).read_text()
    fenced = [(found.start(), textwrap.dedent(found[3])) for found in _FENCED.finditer(text)]
    # What is fenced may be indented too, as in a list.
    bare = _FENCED.sub(lambda found: "x" * len(found[0]), text)
    indented = [(found.start(), textwrap.dedent(found[0])) for found in _INDENTED.finditer(bare)]
    return [block.strip("\n") + "\n" for _start, block in sorted(fenced + indented) if block.strip()]


def commands(page: str) -> list[Command]:
    """What a page tells to type, in its order; a line that ends with a backslash goes on in the next."""
    lines = [line for block in _blocks(page) for line in block.replace("\\\n", " ").splitlines()]
    return [Command(page, found[1].strip()) for line in lines if (found := _COMMAND.match(line))]


def files(page: str) -> dict[str, str]:
    """The files that a page tells to write: blocks whose first line is a comment with the file's name."""
    return {found[1]: block for block in _blocks(page) if (found := _FILE_NAME.match(block))}
