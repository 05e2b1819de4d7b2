# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Partition changes on a switch: kills, rollbacks, lost answers, and somebody else's changes. The clock is not real."""

from __future__ import annotations

import itertools
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import http, nvue
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions import switching
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_journal import (
    Journal,
)
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics
from hypothesis import given, settings
from hypothesis import strategies as st

from . import partition_world
from .memory_switch import (
    DEFAULT,
    NOW,
    SHA,
    TRAYS,
    Answer,
    Clock,
    Killed,
    MemorySwitch,
    Rack,
    gpu_at,
    gpus_of,
    plan_of,
    state_of,
)

ALL = dict.fromkeys(TRAYS, DEFAULT)
HALVES = {**dict.fromkeys(TRAYS[:2], 1), **dict.fromkeys(TRAYS[2:], 2)}
TO_HALVES = plan_of(ALL, HALVES)
"""Its operations: 8 removals, 2 creations and 6 additions."""
BACK = plan_of(HALVES, ALL, made=(1, 2))
THREE = {**ALL, **dict(zip(TRAYS, (1, 1, 2), strict=False))}
ONE_GPU = {"shape": plan_of(ALL, THREE, gpus=1), "default": plan_of(THREE, ALL, made=(1, 2), gpus=1)}


@pytest.fixture
def rack(tmp_path: Path) -> Rack:
    return Rack(tmp_path, TO_HALVES)


def end_of(rack: Rack, runs: int = 3) -> nvue.Outcome:
    """The end of the last of several runs of the same command, which ends at the first that is not unknown."""
    end = rack.run()
    for _again in range(runs - 1):
        if end.state != nvue.UNKNOWN:
            break
        end = rack.run()
    return end


def test_a_shape_is_made_gpu_by_gpu_and_the_default_partition_stays(rack: Rack) -> None:
    assert rack.run() == (nvue.DONE, "")
    assert rack.switch.state == state_of(TO_HALVES["after"])
    assert rack.switch.state[DEFAULT] == set()
    verbs = [verb for verb, _count in itertools.groupby(call[0] for call in rack.switch.calls)]
    assert verbs == [nvue.RESTORE, nvue.CREATE, nvue.UPDATE, nvue.CREATE, nvue.UPDATE]
    assert len(rack.switch.calls) == 16
    assert [line["state"] for line in rack.lines[1:]] == ["begin", "done"] * 16
    assert rack.said[0] == "1 of 16: the removal of the GPU 1.10.1.1 of r01t01 from NVLink partition 32766"


def test_a_second_run_sends_nothing(rack: Rack) -> None:
    rack.run()
    sent = len(rack.switch.calls)
    assert rack.run().state == nvue.DONE
    assert len(rack.switch.calls) == sent


def test_emptied_partitions_of_ours_are_deleted_and_those_of_others_stay(tmp_path: Path) -> None:
    rack = Rack(tmp_path, BACK, made=(1, 2))
    assert rack.run().state == nvue.DONE
    assert rack.switch.state == {DEFAULT: {gpu for tray in TRAYS for gpu in gpus_of(tray)}}
    folder = tmp_path / "other"
    folder.mkdir()
    # The journal does not have it, whatever the plan says.
    other = Rack(folder, BACK, made=(1,))
    assert other.run().state == nvue.DONE
    assert other.switch.rows[2] == []


@pytest.mark.parametrize("target", ["after", "before"])
@pytest.mark.parametrize("kind", ["shape", "default"])
def test_a_run_that_is_killed_at_any_line_is_continued_or_turned_back(
    kind: str, target: Literal["after", "before"]
) -> None:
    """Before a line: what it is about may have happened. After one: it has not, if the line begins it."""
    plan, made = ONE_GPU[kind], (1, 2) if kind == "default" else ()
    for stops, is_written in ((number // 2, number % 2 == 1) for number in itertools.count()):
        with TemporaryDirectory() as folder:
            rack = Rack(Path(folder), plan, made, gpus=1)
            try:
                rack.run(stops, is_written)
            except Killed:
                pass
            else:
                # Two lines for each operation.
                assert stops == 2 * len(rack.switch.calls)
                return
            if target == "before":
                rack.turn_back()
            end = end_of(rack)
            assert (end.state, rack.switch.state) == (nvue.DONE, state_of(plan[target], 1)), (stops, end)


def test_a_creation_that_may_be_under_way_is_sent_again_only_in_the_second_run_after_it(rack: Rack) -> None:
    with pytest.raises(Killed):
        # After the lines of eight removals.
        rack.run(16, is_written=True)
    sent = len(rack.switch.calls)
    end = rack.run(wait=600)
    assert end.state == nvue.UNKNOWN
    assert (
        "may or may not have done the creation of NVLink partition 1 with the GPU 1.10.1.1 of r01t01 (its" in end.reason
    )
    assert "run partition again to go on, or with -e partition_rollback=true" in end.reason
    assert end.reason.endswith(". In no NVLink partition: 8 GPUs of 4 trays (r01t[01-04]), which must stay drained")
    assert (len(rack.switch.calls), rack.clock.now >= 600) == (sent, True)
    assert rack.run().state == nvue.DONE
    assert rack.calls(nvue.CREATE) == 2


@pytest.mark.parametrize("answer", ["lost", "dropped"])
@pytest.mark.parametrize("number", range(16))
def test_an_operation_without_an_answer_is_read_back_and_never_sent_twice_in_a_run(
    tmp_path: Path, number: int, answer: Answer
) -> None:
    rack = Rack(tmp_path, TO_HALVES)
    rack.switch.answers = [None] * number + [answer]
    end = rack.run(wait=600)
    assert len(set(rack.switch.calls)) == len(rack.switch.calls)
    if answer == "lost":
        assert (end.state, len(rack.switch.calls)) == (nvue.DONE, 16)
        return
    assert (end.state, len(rack.switch.calls)) == (nvue.UNKNOWN, number + 1)
    assert rack.lines[-1]["state"] == "failed"
    assert sum("waits since" in line for line in rack.said) in range(15, 21)
    assert rack.run().state == nvue.DONE
    assert rack.switch.state == state_of(TO_HALVES["after"])


def test_an_operation_that_is_listed_later_is_waited_for(rack: Rack) -> None:
    rack.switch.lag = 25
    assert rack.run(wait=60).state == nvue.DONE
    assert rack.clock.now >= 16 * 25
    assert rack.switch.state == state_of(TO_HALVES["after"])


def test_a_list_that_lags_longer_than_the_wait_is_unknown_and_is_continued(rack: Rack) -> None:
    rack.switch.lag = 700
    assert rack.run(wait=600).state == nvue.UNKNOWN
    assert len(rack.switch.calls) == 1
    rack.switch.lag = 0
    assert rack.run(wait=600).state == nvue.DONE
    assert len(rack.switch.calls) == 16


@pytest.mark.parametrize("number", range(16))
def test_what_the_switch_refuses_is_put_back_in_the_same_run(tmp_path: Path, number: int) -> None:
    rack = Rack(tmp_path, TO_HALVES)
    rack.switch.answers = [None] * number + ["refused"]
    end = rack.run()
    assert end.state == nvue.DONE
    assert end.reason.startswith("Switch r01sw1 of NVLink domain r01 refuses the ")
    assert end.reason.endswith(
        " (no resources); remove the cause, then run partition again. All GPUs are in the partitions of before"
    )
    assert rack.switch.state == state_of(TO_HALVES["before"])
    [refusal] = [line["detail"] for line in rack.lines if line["step"] == "rollback"]
    assert end.reason.startswith(refusal)


def test_what_is_refused_when_it_is_sent_again_is_put_back(rack: Rack) -> None:
    rack.switch.answers = ["dropped", "refused"]
    assert rack.run().state == nvue.UNKNOWN
    end = rack.run(wait=600)
    assert (end.state, rack.clock.now >= 600) == (nvue.DONE, True)
    assert end.reason.endswith("All GPUs are in the partitions of before")
    assert "refuses the removal of the GPU 1.10.1.1 of r01t01 from NVLink partition 32766 (no resources)" in end.reason
    assert rack.switch.state == state_of(TO_HALVES["before"])
    assert rack.run().state == nvue.DONE


def test_a_switch_that_refuses_to_put_back_ends_with_the_gpus_in_no_partition(rack: Rack) -> None:
    rack.switch.answers = [None] * 3 + ["refused"] * 9
    end = rack.run()
    assert end.state == nvue.REFUSED
    assert (
        "refuses the removal of the GPU 1.11.1.2 of r01t02 from NVLink partition 32766 (no resources); " in end.reason
    )
    assert (
        "It cannot be put back: Switch r01sw1 of NVLink domain r01 refuses the addition of the GPU 1.10.1.1 of r01t01"
        in end.reason
    )
    assert end.reason.endswith(". In no NVLink partition: 3 GPUs of 2 trays (r01t[01-02]), which must stay drained")
    rack.switch.answers = []
    # The same command goes on with putting back.
    assert rack.run().state == nvue.DONE
    assert rack.switch.state == state_of(TO_HALVES["before"])


def test_a_gpu_in_a_third_partition_stops_the_change(rack: Rack) -> None:
    gpu = gpus_of("r01t03")[0]
    rack.switch.rows[DEFAULT].remove(gpu)
    rack.switch.rows[9] = [gpu]
    end = rack.run()
    assert end == (
        switching.FOREIGN,
        "Switch r01sw1 of NVLink domain r01 lists GPUs of r01t03 in NVLink partition 9, and the plan has 2 and 32766;"
        " somebody else has changed it: undo that on the switch, then run partition again",
    )
    assert rack.switch.calls == []


def test_a_gpu_with_another_uuid_at_its_location_stops_the_change(rack: Rack) -> None:
    row = rack.switch.rows[DEFAULT]
    row[0] = (row[0][0], "0x00000000000000ff")
    end = rack.run()
    assert end.state == switching.FOREIGN
    words = "r01t01: 0x00000000000000ff at 1.10.1.1, its driver has 0x0000000000002b03 at 10.1.1"
    assert f"lists GPUs otherwise than the plan: {words}" in end.reason
    assert rack.switch.calls == []


def test_a_partition_of_somebody_else_with_a_new_id_stops_the_change_and_its_rollback_leaves_it(rack: Rack) -> None:
    rack.switch.rows[1] = []
    end = rack.run()
    assert end.state == switching.FOREIGN
    assert "lists NVLink partition 1, which the plan has not made" in end.reason
    rack.turn_back()
    assert rack.run().state == nvue.DONE
    assert 1 in rack.switch.rows


def test_a_default_partition_with_another_id_stops_the_change(rack: Rack) -> None:
    rack.switch.rows[7] = rack.switch.rows.pop(DEFAULT)
    assert "does not list NVLink partition 32766, which the plan keeps" in rack.run().reason
    assert rack.switch.calls == []


def test_the_empty_list_of_a_controller_that_starts_is_waited_for(rack: Rack) -> None:
    rack.switch.later = [(30.0, {})]
    assert rack.run(wait=20).reason == (
        "r01sw1: does not list NVLink partition 32766, which the plan keeps; check its controller with nv show sdn"
        " partition. Nothing was sent"
    )
    assert rack.switch.calls == []
    assert rack.run(wait=20).state == nvue.DONE
    assert rack.switch.state == state_of(TO_HALVES["after"])


def test_an_empty_list_is_no_removal(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    def act_and_start(*_given: object) -> nvue.Outcome:
        rack.switch.later = [(rack.clock.now + 600, {})]
        return nvue.Outcome(nvue.UNKNOWN, "gave no answer")

    monkeypatch.setattr(rack.switch, "act", act_and_start)
    assert rack.run(wait=20).state == nvue.UNKNOWN
    assert [line["state"] for line in rack.lines[1:]] == ["begin", "failed"]


def test_a_partition_that_is_not_empty_is_not_deleted(tmp_path: Path) -> None:
    rack = Rack(tmp_path, BACK, made=(1, 2))
    rack.switch.rows[2].append(gpu_at("1.99.1.1"))
    end = rack.run()
    assert end.state == switching.FOREIGN
    assert "lists GPUs in NVLink partition 2, which the plan empties" in end.reason
    assert rack.switch.rows[2] == [gpu_at("1.99.1.1")]


def test_a_switch_that_no_longer_runs_the_controller_is_no_switch_without_partitions(rack: Rack) -> None:
    rack.switch.is_primary = False
    end = rack.run(wait=600)
    assert end.state == nvue.UNKNOWN
    assert end.reason == (
        "r01sw1: its controller is not ok (STANDBY, status ok); check where it runs. Nothing was sent"
    )
    assert rack.switch.calls == []


def test_a_login_that_is_refused_is_asked_once(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse() -> None:
        asked.append(1)
        raise http.HttpError("r01sw1: https://r01sw1 rejects the credentials (HTTP 401); set nvue_password", 401)

    monkeypatch.setattr(rack.switch, "controller", refuse)
    end = rack.run(wait=600)
    assert (end.state, len(asked)) == (nvue.UNKNOWN, 1)
    assert "rejects the credentials" in end.reason


def test_planned_shapes_follow_each_other_on_a_switch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the journal alone as memory; each is reached, and a second run of it moves nothing."""
    site, clock, path = partition_world.Rack(fabrics.fabric(1, 6)), Clock(), str(tmp_path / "journal.jsonl")
    switch = MemorySwitch(clock, {DEFAULT: [(gpu.location, gpu.uid) for tray in site.trays for gpu in site.gpus(tray)]})
    monkeypatch.setattr(switching, "time", clock)
    for wish in ("2x3", [2, 4], "default", "1x6", "3x2", "2x3"):
        journal = Journal(path, "r01", lambda: NOW)
        site.used, site.made = journal.used, journal.made
        plan, objections = site.plan(wish)
        assert (objections, plan["moved"] != []) == ([], True)
        planned = site.planned(plan)
        journal.open(SHA, plan)
        assert switching.converge(switch, plan, journal, 60, lambda _text: None).state == nvue.DONE
        journal.write("end", "done")
        site.fabric = planned
        site.partitions = {
            row.id: {"name": row.name, "mode": row.mode, "limit": row.multicast_limit, "gpus": [*row.gpus]}
            for row in switch.partitions()
        }
        assert {row["id"]: row["trays"] for row in plan["after"]} == {
            number: [tray for tray in site.trays if site.partition_of(tray) == number] for number in site.partitions
        }
        assert site.plan(wish)[0]["moved"] == []


PARTITIONS = st.sampled_from([DEFAULT, 1, 2, 3])
WHERE = st.fixed_dictionaries(dict.fromkeys(TRAYS, PARTITIONS))
ANSWERS = st.lists(st.sampled_from([None, None, None, "lost", "dropped", "refused"]), max_size=30)
RUNS = st.lists(st.tuples(st.none() | st.integers(0, 20), st.booleans(), st.booleans()), max_size=4)


@settings(max_examples=60, deadline=None)
@given(before=WHERE, after=WHERE, answers=ANSWERS, runs=RUNS)
def test_whatever_happens_the_last_run_reaches_what_was_before_or_after(
    before: dict[str, int], after: dict[str, int], answers: list[Answer], runs: list[tuple[int | None, bool, bool]]
) -> None:
    made = sorted({*before.values()} - {DEFAULT})
    plan = plan_of(before, after, made)
    with TemporaryDirectory() as folder:
        rack = Rack(Path(folder), plan, made)
        rack.switch.answers = [*answers]
        for stops, is_written, turns_back in runs:
            if turns_back:
                rack.turn_back()
            try:
                end = rack.run(stops, is_written)
            except Killed:
                continue
            if end.state == nvue.DONE:
                ends = [plan["before"]] if end.reason else [plan["before"], plan["after"]]
                assert rack.switch.state in [state_of(rows) for rows in ends]
            else:
                assert end.state in (nvue.UNKNOWN, nvue.REFUSED)
        rack.switch.answers = []
        assert end_of(rack).state == nvue.DONE
        is_back = any(line["step"] == "rollback" for line in rack.lines)
        assert rack.switch.state == state_of(plan["before" if is_back else "after"])
