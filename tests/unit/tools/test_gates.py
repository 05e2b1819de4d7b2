# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runner of the gates: which failed tests get a second try, and what it reports."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import pytest

GATES = Path(__file__).resolve().parents[2] / "tools" / "gates.py"
# pytest's settings of this run must not reach the runs inside the tests.
ENVIRONMENT = {"PATH": os.environ["PATH"]}
# Steps on the state of one fixture; the second step of "there" passes once its first try is over.
STORY = """
from pathlib import Path

import pytest

pytestmark = pytest.mark.story("place")
LOG = Path(__file__).with_name("log")


@pytest.fixture(scope="module", params=["here", "there"])
def place(request):
    return {"name": request.param, "steps": 0}


def test_first(place):
    place["steps"] += 1
    with LOG.open("a") as log:
        print(place["name"], "first", file=log)


def test_second(place):
    before = LOG.read_text().count("second")
    with LOG.open("a") as log:
        print(place["name"], "second", file=log)
    assert place["steps"] == 1
    assert (place["name"], before) != ("there", 1), "\\nPLAY [all]\\n[ERROR]: missed its deadline"


def test_third(place):
    assert not LOG.with_name("broken").exists()
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
    (tmp_path / "test_it.py").write_text(STORY)
    return module


def gate(gates: Any, on_lab: bool = True) -> Any:
    command = [sys.executable, "-m", "pytest", "-q", "-W", "ignore", "test_it.py"]
    return gates.Gate("it", "test", command, is_pytest=True, on_lab=on_lab)


def test_a_flaky_lab_test_is_repeated_after_its_earlier_steps_and_printed(gates: Any, tmp_path: Path) -> None:
    first = gates.run(gate(gates), ENVIRONMENT)
    assert (first.passed, first.failed) == (5, 1)
    (tmp_path / "log").unlink()
    (second,), flaky = gates.second_tries([first], ENVIRONMENT)
    assert (second.passed, second.failed) == (6, 0)
    assert flaky == ["flaky, it: test_it.test_second[there]: [ERROR]: missed its deadline"]
    assert (tmp_path / "log").read_text().splitlines() == ["there first", "there second"]


def test_a_test_that_fails_twice_stays_failed(gates: Any, tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    first = gates.run(gate(gates), ENVIRONMENT)
    assert (first.passed, first.failed) == (3, 3)
    (second,), flaky = gates.second_tries([first], ENVIRONMENT)
    assert (second.passed, second.failed, len(flaky)) == (4, 2, 1)


def test_neither_many_failures_nor_those_outside_the_lab_get_a_second_try(
    gates: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = gates.run(gate(gates, on_lab=False), ENVIRONMENT)
    assert gates.second_tries([outside], ENVIRONMENT) == ([outside], [])
    on_lab = gates.run(gate(gates), ENVIRONMENT)
    monkeypatch.setattr(gates, "MAX_SECOND_TRIES", on_lab.failed - 1)
    assert gates.second_tries([on_lab], ENVIRONMENT) == ([on_lab], [])


def test_a_failed_gate_prints_names_and_errors_of_ansible_first(gates: Any, capsys: pytest.CaptureFixture[str]) -> None:
    fatal = 'fatal: [ctl]: FAILED! => {"msg": "slurmctld does not answer."}'
    log = f"E       {fatal}\nFAILED test_it.py::test_never - assert False\n" + "noise\n" * 200
    gates.show(gates.run(gates.Gate("it", "test", [sys.executable, "-c", f"print({log!r}); exit(1)"]), ENVIRONMENT))
    first = ["FAILED test_it.py::test_never - assert False", f"E       {fatal}"]
    assert capsys.readouterr().out.splitlines()[1:3] == [f"    | {line}" for line in first]


def test_the_last_lines_name_what_failed_in_each_gate(gates: Any) -> None:
    many = "".join(f"FAILED test_it.py::test_{number}\n" for number in range(12))
    command = [sys.executable, "-c", f"print({many!r} + 'the end'); exit(1)"]
    named = gates.names(gates.run(gates.Gate("many", "test", command), ENVIRONMENT))
    assert named[0] == "many: FAILED test_it.py::test_0"
    assert named[10:] == ["many: and 2 more"]
    alone = gates.Gate("alone", "test", [sys.executable, "-c", "print('it ends'); exit(1)"])
    assert gates.names(gates.run(alone, ENVIRONMENT)) == ["alone: it ends"]
    well = gates.Gate("well", "test", [sys.executable, "-c", "print('it ends')"])
    assert gates.names(gates.run(well, ENVIRONMENT)) == []
