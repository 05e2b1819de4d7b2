# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import ast
import re
import string
from pathlib import Path

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import CATALOGUE, SHARED
from ansible_collections.rackscale.nvlink.tests.tools import findings_table

FUNCTIONS = ("host_finding", "gpu_finding")
ROOT = Path(__file__).resolve().parents[5]


def test_every_row_is_complete() -> None:
    incomplete = [
        code
        for code, entry in CATALOGUE.items()
        if not re.fullmatch(r"[a-z][a-z0-9_]*", code)
        or entry.severity not in ("error", "warning", "info")
        or not (entry.sentence and entry.remedy)
        or not all(text.endswith(".") for text in entry.messages.values())
    ]
    assert incomplete == []


def test_placeholders_of_a_message_are_plain_names() -> None:
    """No attribute, index, conversion or format of a value."""
    texts = [text for entry in CATALOGUE.values() for text in entry.messages.values()] + [*SHARED.values()]
    fields = [field for text in texts for field in string.Formatter().parse(text) if field[1] is not None]
    assert [field for field in fields if not field[1].isidentifier() or field[2] or field[3]] == []


def test_a_host_states_cases_that_exist_with_the_values_of_their_messages() -> None:
    wrong, stated = [], 0
    planned = [path for path in ROOT.glob("plugins/plugin_utils/slurm/*.py") if path.name != "info.py"]
    for path in [*ROOT.glob("plugins/module_utils/**/*.py"), *planned]:
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call) or getattr(call.func, "id", "") not in FUNCTIONS:
                continue
            first = [argument.value if isinstance(argument, ast.Constant) else None for argument in call.args[:2]]
            code, case = first if len(first) == 2 else (*first, "")
            given = {keyword.arg for keyword in call.keywords} | {"gpu"}
            if code is None or case is None or None in given:
                continue  # from a variable
            stated += 1
            if code not in CATALOGUE:
                wrong.append(f"{path.name}:{call.lineno}: write an entry {code} into TABLE")
                continue
            text = CATALOGUE[code].messages.get(case) or SHARED.get(case, "")
            needed = {name for _text, name, _form, _conversion in string.Formatter().parse(text) if name}
            if (case and not text) or not needed <= given:
                wrong.append(f"{path.name}:{call.lineno}: {code} {case} lacks a sentence, or one of {sorted(needed)}")
    assert wrong == []
    assert stated > 50


def test_the_table_in_the_docs_is_the_catalogue() -> None:
    assert findings_table.TABLE.read_text(encoding="utf-8") == findings_table.text(), (
        "run .venv/bin/python tests/tools/findings_table.py"
    )
