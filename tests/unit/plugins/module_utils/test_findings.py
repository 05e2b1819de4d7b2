# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import CATALOGUE, finding
from ansible_collections.rackscale.nvlink.tests.tools import findings_table


@pytest.mark.parametrize("code", sorted(CATALOGUE))
def test_every_row_is_complete(code: str) -> None:
    entry = CATALOGUE[code]
    assert re.fullmatch(r"[a-z][a-z0-9_]*", code)
    assert entry.severity in ("error", "warning", "info")
    assert entry.meaning
    assert entry.remedy


def test_a_finding_has_its_severity_from_the_catalogue_and_its_subjects() -> None:
    assert finding("gpu_lost", "GPU 2 is lost; reboot.", gpu=2, tray="r01t01") == {
        "code": "gpu_lost",
        "severity": "error",
        "message": "GPU 2 is lost; reboot.",
        "gpu": 2,
        "tray": "r01t01",
    }


def test_a_code_without_a_row_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        finding("no_such_code", "x")


def test_the_table_in_the_docs_is_the_catalogue() -> None:
    assert findings_table.TABLE.read_text(encoding="utf-8") == findings_table.text(), (
        "run .venv/bin/python tests/tools/findings_table.py"
    )
