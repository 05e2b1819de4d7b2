# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write docs/findings.md, the table of all findings, from the catalogue in module_utils/findings.py."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import CATALOGUE, ERROR, INFO, WARNING

TABLE = Path(__file__).resolve().parents[2] / "docs" / "findings.md"

_HEAD = """\
<!-- Written by make reference from plugins/module_utils/findings.py; change it there. -->

# Findings: codes, meanings and remedies

Whatever hardware or a tool reports wrongly becomes a finding: a code, a severity, a subject (tray, GPU, clique, NVLink
domain or block) and a sentence with the remedy. The severity is that of the subject. Error: it cannot serve multi-node
NVLink jobs, or what is to be written is wrong. Warning: it can, and somebody should check it. Info: no action needed.

A finding whose meaning starts with *gate* stops `discover -e fabric_accept=gates`. To accept it all the same, name its
code in `fabric_override`; the fabric file then records the date and what the gate would have reported.
"""
_HEADINGS = {ERROR: "Errors", WARNING: "Warnings", INFO: "Information"}


def text() -> str:
    """The whole page, a table for each severity, the rows by their codes."""
    return _HEAD + "".join(_section(severity, heading) for severity, heading in _HEADINGS.items())


def _section(severity: str, heading: str) -> str:
    rows = sorted((code, entry) for code, entry in CATALOGUE.items() if entry.severity == severity)
    lines = (f"| `{code}` | {_cell(entry.meaning)} | {_cell(entry.remedy)} |\n" for code, entry in rows)
    return f"\n## {heading}\n\n| code | meaning | remedy |\n|---|---|---|\n{''.join(lines)}"


def _cell(words: str) -> str:
    return words.rstrip(".").replace("|", "\\|").replace("*", "\\*").replace("_", "\\_").replace("<", "&lt;")


if __name__ == "__main__":
    TABLE.write_text(text(), encoding="utf-8")
