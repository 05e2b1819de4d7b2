# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runner of the gates: what counts as passed, and what a second try may and may not mend."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import pytest

GATES = Path(__file__).resolve().parents[2] / "tools" / "gates.py"
# Of this run's own settings of pytest nothing must reach the tests of the tests.
ENVIRONMENT = {"PATH": os.environ["PATH"]}
TESTS = """
from pathlib import Path

def test_fine():
    pass

def test_at_its_second_try_only():
    seen = Path(__file__).with_name("seen")
    before = seen.exists()
    seen.touch()
    assert before

def test_never():
    assert not Path(__file__).with_name("broken").exists()
"""


@pytest.fixture
def gates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec = importlib.util.spec_from_file_location("gates", GATES)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "gates", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "LOGS", tmp_path)
    monkeypatch.setattr(module, "CHECKOUT", tmp_path)
    return module


def gate(gates: Any, directory: Path, on_lab: bool) -> Any:
    (directory / "test_it.py").write_text(TESTS)
    return gates.Gate("it", "test", [sys.executable, "-m", "pytest", "-q", "test_it.py"], is_pytest=True, on_lab=on_lab)


def test_a_labs_test_that_passes_at_its_second_try_is_counted_and_named(gates: Any, tmp_path: Path) -> None:
    first = gates.run(gate(gates, tmp_path, on_lab=True), ENVIRONMENT)
    assert (first.passed, first.failed) == (2, 1)
    outcome, mended = gates.try_again(first, ENVIRONMENT)
    assert (outcome.passed, outcome.failed) == (3, 0)
    assert [name.rpartition(".")[2] for name in mended] == ["test_at_its_second_try_only"]


STORY = """
from pathlib import Path

import pytest

pytestmark = pytest.mark.story("place")
TOLD = Path(__file__).with_name("told")


def tell(place, step):
    with TOLD.open("a") as told:
        print(place, step, file=told)


@pytest.fixture(scope="module", params=["here", "there"])
def place(request):
    return {"name": request.param, "steps": 0}


def test_first(place):
    place["steps"] += 1
    tell(place["name"], "first")


def test_second(place):
    before = TOLD.read_text().count("second")
    tell(place["name"], "second")
    assert place["steps"] == 1
    assert (place["name"], before) != ("there", 1)


def test_third(place):
    tell(place["name"], "third")
"""


def test_a_step_of_a_story_is_tried_again_after_the_steps_before_it(gates: Any, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(STORY)
    command = [sys.executable, "-m", "pytest", "-q", "-W", "ignore", "test_it.py"]
    first = gates.run(gates.Gate("it", "test", command, is_pytest=True, on_lab=True), ENVIRONMENT)
    assert (first.passed, first.failed) == (5, 1)
    (tmp_path / "told").unlink()
    outcome, mended = gates.try_again(first, ENVIRONMENT)
    assert (outcome.passed, outcome.failed, len(mended)) == (6, 0, 1)
    assert (tmp_path / "told").read_text().splitlines() == ["there first", "there second"]


def test_what_fails_twice_stays_failed(gates: Any, tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    first = gates.run(gate(gates, tmp_path, on_lab=True), ENVIRONMENT)
    assert (first.passed, first.failed) == (1, 2)
    outcome, mended = gates.try_again(first, ENVIRONMENT)
    assert (outcome.passed, outcome.failed, len(mended)) == (2, 1, 1)


def test_only_a_lab_gets_a_second_try(gates: Any, tmp_path: Path) -> None:
    first = gates.run(gate(gates, tmp_path, on_lab=False), ENVIRONMENT)
    assert gates.try_again(first, ENVIRONMENT) == (first, [])


def test_many_failures_are_no_accident(gates: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "SECOND_TRIES", 0)
    first = gates.run(gate(gates, tmp_path, on_lab=True), ENVIRONMENT)
    assert gates.try_again(first, ENVIRONMENT) == (first, [])


def test_a_gate_that_tries_again_by_itself_names_what_it_mended(gates: Any, tmp_path: Path) -> None:
    log = "FAILED test_it.py::test_at_its_second_try_only - assert False\n== once more, what failed:\n1 passed\n"
    command = [sys.executable, "-c", f"print({log!r})"]
    outcome = gates.run(gates.Gate("it", "test", command), ENVIRONMENT)
    assert gates._mended_inside(outcome) == ["test_it.py::test_at_its_second_try_only"]


def test_a_failed_gate_shows_the_names_before_anything_else(
    gates: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fatal = 'fatal: [ctl]: FAILED! => {"msg": "slurmctld does not answer."}'
    log = f"E       {fatal}\nFAILED test_it.py::test_never - assert False\n" + "noise\n" * 200
    outcome = gates.run(gates.Gate("it", "test", [sys.executable, "-c", f"print({log!r}); exit(1)"]), ENVIRONMENT)
    gates.show(outcome)
    first = ["FAILED test_it.py::test_never - assert False", f"E       {fatal}"]
    assert capsys.readouterr().out.splitlines()[1:3] == [f"    | {line}" for line in first]


def test_what_only_computes_has_a_lane_beside_the_lab_and_all_gates_run_once(gates: Any, tmp_path: Path) -> None:
    # The first two would wait for ever if what they wait for had no lane of its own.
    wait = "until [ -e {0} ]; do sleep 0.05; done; touch {1}; echo x >> ran"
    made = [
        gates.Gate(name, "test", ["timeout", "20", "sh", "-c", wait.format(awaited, name)], on_lab=on_lab)
        for name, awaited, on_lab in (
            ("one", "beside", True),
            ("two", "beside", True),
            ("three", "one", True),
            ("beside", "test_it.py", False),
            ("last", "three", False),
        )
    ]
    (tmp_path / "test_it.py").touch()
    outcomes = gates.run_all(made, ENVIRONMENT)
    assert {outcome.gate.name: outcome.failed for outcome in outcomes} == dict.fromkeys(
        ("one", "two", "three", "beside", "last"), 0
    )
    assert len((tmp_path / "ran").read_text().split()) == 5
