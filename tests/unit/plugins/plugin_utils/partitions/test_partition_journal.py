# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal of partition changes: what is open, due and begun after each prefix of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions import PartitionError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions import partition_journal as journals
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_journal import (
    STEPS,
    Journal,
)
from hypothesis import given
from hypothesis import strategies as st

from .memory_switch import DEFAULT, NOW, SHA, TRAYS, plan_of

PLAN = plan_of(dict.fromkeys(TRAYS, DEFAULT), {**dict.fromkeys(TRAYS[:2], 1), **dict.fromkeys(TRAYS[2:], 5)})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fabric.partition-r01.jsonl"


def journal_of(path: Path) -> Journal:
    return Journal(str(path), "r01", lambda: NOW)


def due(path: Path) -> list[str]:
    journal = journal_of(path)
    return [step for step in STEPS if journal.due(step)]


def test_without_a_change_nothing_is_due(path: Path) -> None:
    journal = journal_of(path)
    assert (journal.plan, journal.change, journal.begun(), journal.used, journal.made) == (None, [], None, set(), set())
    assert due(path) == []


def test_the_journal_is_beside_the_state_file(tmp_path: Path) -> None:
    given = tmp_path / "fabric.json"
    assert journals.journals(str(given), ["r01"], None, str)["r01"].path == str(tmp_path / "fabric.partition-r01.jsonl")


def test_the_plan_is_in_the_journal_alone(path: Path) -> None:
    journal_of(path).open(SHA, {**PLAN, "gates": ["max_moved"]})
    journal = journal_of(path)
    assert journal.plan == {**PLAN, "gates": ["max_moved"]}
    assert (journal.is_back, journal.used) == (False, {1, 5, DEFAULT})
    assert journal.change[0]["incident"] == SHA[:12]
    journal.write("end", "failed")
    assert journal_of(path).plan is not None
    journal.write("end", "done")
    journal = journal_of(path)
    assert (journal.plan, journal.used) == (None, {1, 5, DEFAULT})


@pytest.mark.parametrize("is_back", [False, True])
def test_where_the_last_change_has_left_each_tray(path: Path, is_back: bool) -> None:
    journal = journal_of(path)
    journal.open(SHA, PLAN)
    if is_back:
        journal.turn_back()
    assert journal.put == {}
    journal.write("end", "done")
    assert journal_of(path).put == {
        tray: row["id"] for row in PLAN["before" if is_back else "after"] for tray in row["trays"]
    }


def test_each_step_is_due_until_it_is_done_and_again_after_a_rollback(path: Path) -> None:
    journal = journal_of(path)
    journal.open(SHA, PLAN)
    assert due(path) == [*STEPS]
    switch, gpus = STEPS.index("switch"), STEPS.index("gpus")

    def left(done: int) -> list[str]:
        # Somebody may resume a tray until its GPUs have moved.
        first = 0 if done > gpus else switch
        return [*STEPS[:first], *STEPS[max(first, done) :]]

    for number, step in enumerate(STEPS[:5]):
        journal.write(step, "begin")
        assert due(path) == left(number)
        journal.write(step, "failed", detail="r01t01: it is unreachable")
        assert due(path) == left(number)
        journal.write(step, "done")
        assert due(path) == left(number + 1)
    journal.turn_back()
    assert due(path) == [*STEPS]
    assert journal_of(path).is_back
    back = {"before": PLAN["after"], "after": PLAN["before"], "clique_ids": dict.fromkeys(TRAYS, DEFAULT)}
    assert journal_of(path).plan == {**PLAN, **back}
    journal.turn_back()
    assert len(journal_of(path).lines) == len(journal.lines)


def test_a_change_that_is_put_back_is_drained_until_its_gpus_are_back(path: Path) -> None:
    journal = journal_of(path)
    journal.open(SHA, PLAN)
    for step in ("drain", "imex"):
        journal.write(step, "done")
    journal.turn_back("The switch refuses it")
    # Of a run that is killed there.
    assert due(path) == [*STEPS]
    journal.write("switch", "done")
    assert due(path) == [step for step in STEPS if step != "switch"]
    journal.write("gpus", "done")
    assert due(path) == [*STEPS[4:]]


def test_operations_are_no_ends_of_their_step(path: Path) -> None:
    journal = journal_of(path)
    journal.open(SHA, PLAN)
    journal.write("switch", "done", "1.1.1.1", "update 1")
    assert "switch" in due(path)


@pytest.mark.parametrize(
    ("state", "is_begun"), [("begin", True), ("done", False), ("failed", True), ("refused", False)]
)
def test_an_operation_is_begun_until_it_is_known_whether_it_is_done(path: Path, state: str, is_begun: bool) -> None:
    journal = journal_of(path)
    journal.open(SHA, PLAN)
    journal.write("switch", "begin", "1.1.1.1", "create 1", "r01t01")
    journal.write("switch", state, "1.1.1.1", "create 1")
    journal.write("switch", "failed", detail="unknown")
    begun = journal_of(path).begun()
    assert (begun is not None) is is_begun
    assert journal_of(path).made == ({1} if state != "refused" else set())


def test_partitions_that_are_deleted_are_no_longer_ours_and_their_ids_stay_used(path: Path) -> None:
    journal = journal_of(path)
    journal.open(SHA, PLAN)
    for code in ("create 1", "create 5", "delete 1"):
        journal.write("switch", "begin", "1.1.1.1", code)
        journal.write("switch", "done", "1.1.1.1", code)
    journal.write("end", "done")
    assert (journal_of(path).made, journal_of(path).used) == ({5}, {1, 5, DEFAULT})


@pytest.mark.parametrize("text", ["", "[]", '{"domain": "r01"}', "{" * 9])
def test_a_plan_that_was_edited_is_one_sentence(path: Path, text: str) -> None:
    journal = journal_of(path)
    journal.open(SHA, PLAN)
    path.write_text(path.read_text().replace(journal.lines[0]["detail"].replace('"', '\\"'), text.replace('"', '\\"')))
    with pytest.raises(PartitionError) as error:
        _plan = journal_of(path).plan
    assert str(error.value) == (
        f"{path}: the plan 'abababababab' is incomplete; restore the line, or move the file away, and run discover"
    )


LINES = st.lists(
    st.tuples(st.sampled_from([*STEPS, "end", "rollback"]), st.sampled_from(["begin", "done"])), max_size=9
)


@given(rows=LINES)
def test_a_change_is_open_until_its_end(rows: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("journal") / "j.jsonl"
    journal = journal_of(path)
    journal.open(SHA, PLAN)
    for step, state in rows:
        if not journal.change:
            break
        journal.write(step, state)
    again = journal_of(path)
    assert bool(again.change) is (("end", "done") not in rows)
    assert again.is_back is any(line["step"] == "rollback" for line in again.lines)
