# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The runner of the gates: what a level holds, what it counts, and how far it says the tests are."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
import gates  # noqa: E402  (found through the path above)

TESTS = "import pytest\n@pytest.mark.parametrize('n', range(4))\ndef test_it(n):\n    assert n != 2\n"


def test_test_and_test_all_share_no_gate_and_hold_all() -> None:
    """But ansible-lint of the checkout, since artifact-hub lints what is shipped."""
    of = {level: {gate.name for gate in gates.select([level])} for level in gates.LEVELS}
    assert of["unit"] < of["check"]
    assert of["check"] - of["test"] == {"ansible-lint"}
    assert not of["test"] & of["all"]
    assert of["test"] | of["check"] | of["all"] == {gate.name for gate in gates.GATES}


def test_a_failed_test_is_counted_while_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "test_x.py").write_text(TESTS)
    monkeypatch.setattr(gates, "LOGS", tmp_path)
    gate = replace(gates.GATES[0], name="it", line=f"python -m pytest -n2 --rootdir={tmp_path} {tmp_path}")
    outcome = gates.run(gate, dict(os.environ))
    assert (outcome.passed, outcome.failed, outcome.skipped) == (3, 1, [])
    assert gates.progress("it") == "100%"
    [named] = gates.names(outcome)
    assert named.startswith("it: FAILED ")
    assert "test_x.py::test_it[2]" in named


def test_a_gate_without_a_test_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "LOGS", tmp_path)
    gate = replace(gates.GATES[0], name="it", line=f"python -m pytest --rootdir={tmp_path} {tmp_path}")
    assert gates.run(gate, dict(os.environ)).failed == 1
