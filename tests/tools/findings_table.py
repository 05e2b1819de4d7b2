# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write docs/findings.md, all findings by symptom, from the table in plugin_utils/findings/table.py."""

from __future__ import annotations

from itertools import groupby, starmap
from pathlib import Path

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import CATALOGUE, Row, general

TABLE = Path(__file__).resolve().parents[2] / "docs" / "findings.md"

_HEAD = """\
<!-- Written by make reference from plugins/plugin_utils/findings/table.py; change it there. -->

# Findings: symptoms, codes and remedies

Whatever hardware or a tool reports wrongly becomes a finding: a code, a severity, a subject (tray, GPU, clique, NVLink
domain or block) and a sentence with the remedy. The severity is that of the subject. Error: it cannot serve multi-node
NVLink jobs, or what is to be written is wrong. Warning: it can, and somebody should check it. Info: no action needed.

A finding whose meaning starts with *gate* stops `discover -e fabric_accept=gates`. To accept it all the same, name its
code in `fabric_override`; the fabric file then records the date and what the gate would have reported.

Search this page for the code or for words of a message, or start at the symptom. Each code is an anchor:
`findings.md#gpu_lost`. Words in angle brackets are values. A command is what `verify` prints as remediation, with the
names filled in; without one it prints the remedy. Repair is the action of the playbook `repair`, where it has one. The
lines below it are the messages of a code in further cases.
[Upgrade](upgrading.md#codes-of-findings) lists the codes of earlier versions.
"""
_SEVERITIES = {"error": "Error", "warning": "Warning", "info": "Info"}


def text() -> str:
    """The whole page: a heading for each symptom, below it a heading for each code."""
    sections = groupby(CATALOGUE.items(), key=lambda item: item[1].symptom.title)
    return _HEAD + "".join(f"\n## {title}\n{''.join(starmap(_entry, rows))}" for title, rows in sections)


def _entry(code: str, row: Row) -> str:
    lines = [f"{_SEVERITIES[row.severity]}: {_words(row.sentence)}.", "", f"- Remedy: {_words(row.remedy)}"]
    lines += [f"- Likely cause: {_words(row.cause)}"] if row.cause else []
    lines += [f"- Command: `{row.command}`"] if row.command else []
    lines += [f"- Repair: `{row.action}`"] if row.action != "none" else []
    lines += [f"- {_words(general(text))}" for case, text in row.messages.items() if case]
    return f'\n<a id="{code}"></a>\n### `{code}`\n\n' + "\n".join(lines) + "\n"


def _words(words: str) -> str:
    return words.replace("*", "\\*").replace("_", "\\_").replace("<", "&lt;")


if __name__ == "__main__":
    TABLE.write_text(text(), encoding="utf-8")
