# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of repair: what continues, what is never done twice, and what stops it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import journal
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.journal import Line
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair import RepairError, ledger, plan, policy

from ..fabrics import fabric
from .world import TWO, acts_on, at, done, failed, idle, make, open_ids, settings, shown, step, verdict

FIRST = ["drain", "evidence", "spare", "ticket"]
LAST = ["return", "resume", "close"]
SICK = [failed("gpu_lost", "r01t04", gpu=2)]
OURS = {"r01t04": "DRAIN+IDLE: nvlink: repair r01t04-20261129T190000Z"}


def opened(minutes: float = 0, **more: Any) -> tuple[Any, list[Line]]:
    """The row and the lines of a new incident of r01t04."""
    made = make(SICK, minutes, **more)
    return made.rows[0], made.lines


def test_a_new_fault_opens_an_incident_with_all_its_steps() -> None:
    made = make(SICK, nodes=idle())
    assert made.rows == [
        {
            "tray": "r01t04",
            "action": "reboot",
            "finding": "gpu_lost",
            "reason": "the action of gpu_lost",
            "allowed": True,
            "brake": "",
            "incident": "r01t04-20261129T190000Z",
            "evidence": "r01t04: gpu_lost was found",
            "event": False,
            "steps": [*FIRST, "action", *LAST],
        }
    ]
    assert [(line["incident"], line["step"], line["state"]) for line in made.lines] == [
        ("r01t04-20261129T190000Z", "open", "done")
    ]
    assert plan.text(made) == [
        "1 tray to repair: 1 allowed, 0 refused; 0 rack events.",
        "1 tray (r01t04): reboot for gpu_lost (the action of gpu_lost); r01t04: gpu_lost was found.",
        "    steps: drain, evidence, spare, ticket, action, return, resume, close.",
    ]


def test_an_action_that_the_site_does_not_allow_ends_with_the_ticket_until_a_newer_verdict_is_clean() -> None:
    row, lines = opened(actions=[])
    assert row["steps"] == FIRST
    lines += done(row, FIRST, 1)
    assert make(SICK, 5, lines, idle(**OURS), actions=[]).rows[0]["reason"] == "verify still reports an error of it"
    same = make([], 0, lines, idle(**OURS), now=5, actions=[])
    assert same.rows[0]["steps"] == []
    assert make([], 5, lines, idle(**OURS), actions=[]).rows[0]["steps"] == LAST


def test_without_slurm_the_actions_are_a_persons_and_nothing_is_closed_before_a_newer_verdict_is_clean() -> None:
    made = plan.make(verdict(SICK, 0), TWO, None, [], settings(), [], at(0))
    assert made.rows[0]["steps"] == FIRST
    lines = made.lines + done(made.rows[0], FIRST, 1)
    clean = plan.make(verdict([], 5), TWO, None, lines, settings(), [], at(5))
    assert clean.rows[0]["steps"] == LAST


def test_a_reset_waits_until_the_tray_is_fully_drained() -> None:
    """A tray was replaced while its jobs ran (soperator 72d11bb3)."""
    row, lines = opened()
    lines += done(row, FIRST, 1)
    for state in ("DRAIN+MIXED", "ALLOCATED+DRAIN", "COMPLETING+DRAIN"):
        made = make(SICK, 5, lines, idle(r01t04=f"{state}: nvlink: repair {row['incident']}"))
        assert made.rows[0]["brake"].startswith(f"a job still runs on it ({state})")
        assert not made.rows[0]["steps"]
        assert not policy.is_drained(state)
    assert make(SICK, 5, lines, idle(**OURS)).rows[0]["steps"] == ["action", *LAST]
    assert policy.is_drained(OURS["r01t04"])
    assert policy.is_drained("DOWN")
    assert not policy.is_drained("IDLE")


def test_a_closed_incident_is_not_opened_again_by_the_same_verdict() -> None:
    """A restart replayed closed sessions (NVSentinel 1347), and an event was handled after release (1415)."""
    row, lines = opened()
    lines += done(row, [*FIRST, "action", *LAST], 10)
    for now in (10, 30):
        assert make(SICK, 0, lines, idle(), now=now).rows == []
        assert make(SICK, 10, lines, idle(), now=now).rows == [], "a verdict of the second of the close"
    again = make(SICK, 11, lines, idle())
    assert again.rows[0]["incident"] == "r01t04-20261129T191100Z"


def test_an_older_recovery_does_not_close_a_newer_fault() -> None:
    """A new fault was cancelled by an older recovery (NVSentinel 1451)."""
    row, lines = opened(minutes=20)
    lines += done(row, FIRST, 21)
    made = make([], 15, lines, idle(**OURS), now=25)
    assert made.rows[0]["steps"] == ["action", *LAST], "clean, and of before the fault"
    lines += done(row, ["action"], 26)
    for minutes in (24, 26):
        made = make([], minutes, lines, idle(**OURS), now=30)
        assert made.rows[0]["steps"] == []
        assert made.rows[0]["reason"] == "the verdict is older than the last step on it; run verify again"
    made = make([failed("driver_missing", "r01t04")], 27, lines, idle(**OURS))
    assert made.rows[0]["steps"] == []
    assert made.rows[0]["reason"] == "verify still reports an error of it"
    assert make([], 27, lines, idle(**OURS)).rows[0]["steps"] == LAST


def test_an_open_incident_takes_the_stronger_action_and_gives_none_back() -> None:
    row = make([failed("nvlink_links_down", "r01t04")]).rows[0]
    lines = make([failed("nvlink_links_down", "r01t04")]).lines + done(row, [*FIRST, "action"], 1)
    made = make(SICK, 5, lines, idle(**OURS))
    assert (made.rows[0]["action"], made.rows[0]["incident"]) == ("reboot", row["incident"])
    assert made.rows[0]["steps"] == ["ticket", "action", *LAST], "another action than the one that is done"
    lines += made.lines
    assert ledger.incidents(lines)[row["incident"]].action == "reboot"
    weaker = make([failed("nvlink_links_down", "r01t04")], 6, lines, idle(**OURS))
    assert weaker.rows[0]["action"] == "reboot"
    assert weaker.lines == []


def test_an_action_that_did_not_help_is_followed_by_the_next_one() -> None:
    down = [failed("nvlink_links_down", "r01t04")]
    made = make(down)
    row, lines = made.rows[0], made.lines
    lines += done(row, [*FIRST, "action"], 1)
    assert make(down, 0, lines, idle(**OURS), now=2).rows[0]["steps"] == [], "a verdict of before the action"
    # The ticket, too, has the action that is a person's now.
    for minutes, action, steps in ((3, "reboot", ["ticket", "action", *LAST]), (6, "replace", ["ticket"])):
        made = make(down, minutes, lines, idle(**OURS))
        assert (made.rows[0]["action"], made.rows[0]["steps"]) == (action, steps)
        lines += made.lines + done(row, [step for step in steps if step not in LAST], minutes + 1)
    assert made.rows[0]["incident"] == row["incident"]


def test_a_tray_that_a_person_has_acknowledged_is_not_returned_to_service() -> None:
    row, lines = opened()
    lines += done(row, FIRST, 1)
    known = [failed("gpu_lost", "r01t04", severity="info")]
    assert make(known, 5).rows == []
    made = make(known, 5, lines, idle(**OURS), actions=[])
    assert made.rows[0]["reason"] == "verify still reports an error of it"
    assert made.rows[0]["steps"] == []


def test_what_recovers_before_it_is_drained_is_closed_and_not_drained() -> None:
    row, lines = opened()
    killed = [*lines, step(row, "drain", "begin", 1)]
    for known in (lines, killed):
        made = make([], 5, known, idle())
        assert (made.rows[0]["steps"], made.lines) == (["close"], [])
        assert open_ids(known + done(row, ["close"], 5)) == []
    drained = make([], 5, killed, idle(**OURS))
    assert drained.rows[0]["steps"][0] == "drain", "it was killed after the drain"


def test_a_tray_that_a_person_returns_is_closed_and_left_in_service() -> None:
    row, lines = opened()
    lines += done(row, FIRST, 1)
    # The first close failed, or was killed before its ticket was sent.
    for _run in range(4):
        made = make(SICK, 0, lines, idle(), now=9)
        assert (made.rows[0]["steps"], made.lines) == (["close"], [])
        assert made.rows[0]["reason"] == "somebody else has returned the tray to service"
        lines += [step(row, "close", state, 9) for state in ("begin", "failed")]
    lines += done(row, ["close"], 9)
    assert make(SICK, 0, lines, idle(), now=10).rows == []
    assert make(SICK, 11, lines, idle()).rows[0]["incident"] != row["incident"]


def test_the_incident_of_a_tray_that_left_the_fabric_file_is_closed() -> None:
    row, lines = opened()
    lines += done(row, FIRST, 1)
    smaller = fabric(racks=2, trays=3, split=())
    made = make([], 5, lines, idle(smaller), of=smaller)
    assert [(row["tray"], row["steps"]) for row in made.rows] == [("r01t04", ["close"])]
    assert make([], 5, lines, idle(smaller), ["stopped"], of=smaller).rows[0]["steps"] == []


def test_a_return_that_was_killed_after_slurm_resumed_goes_on() -> None:
    row, lines = opened()
    lines += [*done(row, [*FIRST, "action", "return"], 1), step(row, "resume", "begin", 10)]
    made = make([], 11, lines, idle())
    assert made.rows[0]["steps"] == ["resume", "close"]


def test_a_tray_that_somebody_else_drains_meanwhile_is_left_to_them() -> None:
    row, lines = opened()
    lines += done(row, FIRST, 1)
    made = make(SICK, 5, lines, idle(r01t04="DRAIN+IDLE: RMA 4711"))
    assert not made.rows[0]["allowed"]
    assert "somebody else" in made.rows[0]["brake"]
    assert made.rows[0]["incident"] == row["incident"]


def test_the_third_failure_of_a_step_ends_all_action_until_a_person_resets_the_tray() -> None:
    row, lines = opened()
    lines += done(row, FIRST, 1)
    for minutes in (2, 3, 4):
        assert make(SICK, minutes, lines, idle(**OURS)).rows[0]["steps"][0] == "action"
        lines += [step(row, "action", "begin", minutes)]
        lines += [step(row, "action", "failed", minutes)] if minutes == 3 else []  # the others were killed
    made = make(SICK, 5, lines, idle(**OURS))
    assert (made.rows[0]["action"], made.rows[0]["allowed"]) == ("contact_support", False)
    assert (
        made.rows[0]["brake"] == "step action failed 3 times; find the cause, then run this with -e repair_reset=r01t04"
    )
    lines += made.lines
    assert ledger.incidents(lines)[row["incident"]].action == "contact_support"
    clean = make([], 6, lines, idle(**OURS))
    assert not clean.rows[0]["allowed"]
    reset = make([], 7, lines, idle(**OURS), reset=["r01t04"])
    assert reset.rows[0]["steps"] == ["ticket", *LAST], "a person has repaired it"
    again = make(SICK, 7, lines, idle(**OURS), reset=["r01t04"])
    assert (again.rows[0]["action"], again.rows[0]["steps"][:2]) == ("reboot", ["ticket", "action"])


def test_the_third_incident_of_a_tray_in_thirty_days_is_a_replacement() -> None:
    lines: list[Line] = []
    for day in range(2):
        row, new = opened(day * 1440, known=lines)
        assert row["action"] == "reboot"
        lines += new + done(row, [*FIRST, "action", *LAST], day * 1440 + 10)
    third = make(SICK, 2 * 1440, lines)
    assert (third.rows[0]["action"], third.rows[0]["steps"]) == ("replace", FIRST)
    assert third.rows[0]["reason"] == "incident 3 of this tray in 30 days"
    assert make(SICK, 40 * 1440, ledger.rotated(lines, at(40 * 1440))).rows[0]["action"] == "reboot"
    lines += third.lines + done(third.rows[0], FIRST, 2 * 1440 + 1)
    wait = make([], 2 * 1440 + 9, lines, idle(r01t04=f"DRAIN+IDLE: {policy.own_reason(third.rows[0]['incident'])}"))
    assert wait.rows[0]["steps"] == []
    assert wait.rows[0]["reason"].endswith("then run this with -e repair_reset=r01t04")
    came = make([], 2 * 1440 + 10, lines, idle(r01t04="DRAIN+IDLE: nvlink: repair x"), reset=["r01t04"])
    assert came.rows[0]["steps"] == LAST


def test_a_link_that_recovered_is_not_cured_by_a_run_without_news() -> None:
    row = make([failed("nvlink_link_recovering", "r01t04", gpu=0, link=3)], actions=[]).rows[0]
    lines = make([failed("nvlink_link_recovering", "r01t04", gpu=0, link=3)], actions=[]).lines + done(row, FIRST, 1)
    made = make([], 5, lines, idle(**OURS), actions=[])
    assert made.rows[0]["steps"] == []
    assert "repair the tray by hand, then run this with -e repair_reset=r01t04" in made.rows[0]["reason"]
    assert make([], 5, lines, idle(**OURS)).rows[0]["steps"] == ["action", *LAST]


def test_a_rack_event_has_one_ticket_and_is_closed_when_it_is_over() -> None:
    """40 failures of one rack are one incident."""
    rows = [failed(code, tray) for tray in TWO.members["r01"] for code in ("gpu_lost", "nvlink_links_down")]
    made = make([*rows, *SICK, *SICK, *SICK, *SICK])
    assert len(rows) + 4 == 40
    assert len(open_ids(made.lines)) == 1
    assert acts_on(made) == []
    event = next(row for row in made.rows if row["event"])
    assert (event["tray"], event["steps"]) == ("r01", ["ticket"])
    lines = made.lines + done(event, ["ticket"], 1)
    again = make(rows, 5, lines)
    assert [row["steps"] for row in again.rows if row["event"]] == [[]]
    assert again.lines == []
    over = make([], 6, lines)
    assert [(row["tray"], row["steps"], row["incident"]) for row in over.rows] == [
        ("r01", ["close"], event["incident"])
    ]
    lines += done(event, ["close"], 7)
    assert make(rows, 5, lines, now=8).rows == [row for row in make(rows, 5, lines, now=8).rows if not row["event"]]
    assert open_ids(lines) == []


def test_what_forbids_a_run_stops_new_and_open_incidents_and_is_said_once() -> None:
    row, lines = opened()
    lines += done(row, FIRST, 1)
    made = make([*SICK, failed("gpu_lost", "r02t01")], 5, lines, idle(**OURS), blockers=["A rollout runs (pid 7)"])
    assert [(one["tray"], one["allowed"], one["brake"], one["steps"]) for one in made.rows] == [
        ("r01t04", False, "A rollout runs (pid 7)", []),
        ("r02t01", False, "A rollout runs (pid 7)", []),
    ]
    assert [(line["subject"], line["state"]) for line in made.lines] == [("r01t04", "refused"), ("r02t01", "refused")]
    again = make(
        [*SICK, failed("gpu_lost", "r02t01")], 6, lines + made.lines, idle(**OURS), blockers=["A rollout runs (pid 7)"]
    )
    assert again.lines == []
    assert open_ids(lines + made.lines) == [row["incident"]]


@pytest.mark.parametrize(
    ("change", "now", "message"),
    [
        ({}, 61, r"is of 2026-11-29T19:00:00Z, and repair_max_age is 3600 s; run the playbook verify"),
        ({}, -6, "which is in the future; correct the clock"),
        ({"layers": {"hardware": "skipped: --tags quick queries no tray"}}, 0, r"no layer hardware \(skipped: --tags"),
        ({"layers": None}, 0, r"no layer hardware \(missing\)"),
        ({"queried": 18}, 0, "is of 18 of 36 trays"),
        ({"queried": None}, 0, "is of 0 of 36 trays"),
        ({"failures": None}, 0, "has no list of failures; run the playbook verify"),
        ({"checked_at": None}, 0, "'None' is not of RFC 3339"),
    ],
)
def test_a_verdict_that_says_too_little_is_refused_with_a_sentence(change: Any, now: int, message: str) -> None:
    with pytest.raises(RepairError, match=message):
        plan.make({**verdict(SICK, 0), **change}, TWO, None, [], settings(), [], at(now))


def test_a_dry_run_and_a_run_have_one_plan_and_nothing_is_changed() -> None:
    lines = opened()[1]
    before = [{**line} for line in lines]
    assert make(SICK, 5, lines, idle()) == make(SICK, 5, lines, idle())
    assert lines == before


def run_once(path: Path, minutes: float, failures: Any, nodes: dict[str, str], kill_after: int) -> list[str]:
    """Do what a plan has, as the playbook does; killed after so many lines. The steps that it began."""
    begun: list[str] = []
    written = 0

    def write(line: Line) -> bool:
        nonlocal written
        if written == kill_after:
            with path.open("ab") as file:
                file.write(journal.encode([line])[:25])
            return False
        written += 1
        journal.append(str(path), [line])
        return True

    made = make(failures, minutes, journal.read(str(path)), nodes)
    for line in made.lines:
        if not write(line):
            return begun
    for row in made.rows:
        for name in row["steps"]:
            if name == "return" and failures:
                return begun  # the next verify has not run
            if not write(step(row, name, "begin", minutes)):
                return begun
            begun.append(name)
            if name == "drain":
                nodes["r01t04"] = f"DRAIN+IDLE: {policy.own_reason(row['incident'])}"
            if name == "resume":
                nodes["r01t04"] = "IDLE"
            if not write(step(row, name, "done", minutes)):
                return begun
    return begun


@pytest.mark.parametrize("kill_after", range(18))
def test_a_run_that_is_killed_at_any_line_is_continued_and_repeats_no_step_that_is_done(
    tmp_path: Path, kill_after: int
) -> None:
    path, nodes = tmp_path / "fabric.repairs.jsonl", idle()
    begun: list[str] = []
    finished: list[str] = []
    for number, minutes in enumerate((0.0, 1.0, 2.0, 3.0, 4.0)):
        # The tray is sick until its action is done.
        lines = journal.read(str(path))
        finished = [line["step"] for line in lines if line["state"] == "done"]
        failures = [] if "action" in finished else SICK
        kill = kill_after if number == 0 else kill_after - 13 if number == 1 and kill_after >= 13 else 99
        new = run_once(path, minutes, failures, nodes, kill)
        assert not set(new).intersection(finished), "no step that is done is repeated"
        begun += new
    steps = [line["step"] for line in journal.read(str(path)) if line["state"] == "done"]
    assert steps == ["open", *FIRST, "action", *LAST]
    assert nodes["r01t04"] == "IDLE"
    assert open_ids(journal.read(str(path))) == []
    assert len(begun) <= len(steps), "only the step that was killed began twice"
    assert shown(make([], 5, journal.read(str(path)), nodes)) == {}
