# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The limits of repair hold, stay closed until a person resets them, and are said."""

from __future__ import annotations

import random
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.journal import Line
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair import RepairError, ledger, plan, policy
from hypothesis import given
from hypothesis import settings as of_hypothesis
from hypothesis import strategies as st

from ..fabrics import fabric
from .world import acts_on, at, done, failed, idle, make, open_ids

FOUR = fabric(racks=4, trays=18, split=())


def sick(*trays: str) -> list[Any]:
    return [failed("gpu_lost", tray) for tray in trays]


def test_more_trays_in_an_hour_than_the_limit_close_it_until_a_person_resets_it() -> None:
    trays = [f"r{rack:02d}t{tray:02d}" for rack in (1, 2, 3) for tray in (1, 2)]
    made = make(sick(*trays), of=FOUR)
    assert acts_on(made) == trays[:4]
    why = "4 trays in an hour, and repair_limits.hour is 4; find the cause, then run this with -e repair_reset=hour"
    assert [row["brake"] for row in made.rows if not row["allowed"]] == [why, why]
    assert [line["subject"] for line in made.lines if line["step"] == "brake"] == ["hour"]
    assert f"    refused: {why}." in plan.text(made)
    lines = made.lines
    for row in made.rows[:4]:
        lines += done(row, ["drain", "resume", "close"], 5)
    later = make(sick(*trays[4:]), 300, lines, of=FOUR)
    assert acts_on(later) == [], "hours later, too"
    assert later.lines == [], "said once"
    reset = make(sick(*trays[4:]), 300, lines, of=FOUR, reset=["all"])
    assert acts_on(reset) == trays[4:]
    assert acts_on(make(sick(*trays[4:]), 300, lines, of=FOUR, reset=["hour"])) == trays[4:]


@pytest.mark.parametrize(("limits", "name"), [({}, "clique r01"), ({"clique": 9, "domain": 2}, "domain r01")])
def test_trays_that_are_out_count_by_clique_and_domain_whoever_took_them_out(limits: Any, name: str) -> None:
    nodes = idle(FOUR, r01t01="DRAIN+IDLE: RMA 4711", r01t02="DOWN+NOT_RESPONDING: Not responding")
    made = make(sick("r01t05", "r02t05"), of=FOUR, nodes=nodes, limits=limits)
    assert acts_on(made) == ["r02t05"]
    brake = next(row["brake"] for row in made.rows if row["tray"] == "r01t05")
    assert brake.startswith("2 trays of ")
    assert name.split()[0] in brake
    assert brake.endswith("-e repair_reset=r01")
    assert [line["subject"] for line in made.lines if line["step"] == "brake"] == [name]
    back = make(sick("r01t05", "r02t05"), 1, made.lines, idle(FOUR), of=FOUR, limits=limits)
    assert "r01t05" not in acts_on(back), "closed until a person resets it"
    assert "r01t05" in acts_on(make(sick("r01t05"), 1, made.lines, idle(FOUR), of=FOUR, limits=limits, reset=["r01"]))


def test_a_tray_that_is_down_already_counts_as_out_once() -> None:
    nodes = idle(r01t01="DOWN+NOT_RESPONDING: Not responding", r01t02="DRAIN+IDLE: RMA 4711")
    off = [failed("tray_unreachable", "r01t01")]
    assert acts_on(make(off, nodes=nodes)) == ["r01t01"]


def test_open_incidents_go_on_behind_a_closed_limit() -> None:
    made = make(sick("r01t01"))
    stopped = make(sick("r01t01", "r02t01"), 1, made.lines, limits={"hour": 1})
    assert acts_on(stopped) == ["r01t01"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"limits": {"rack": 3}}, "repair_limits: rack is no limit; use one of hour, clique, domain"),
        ({"limits": {"hour": -1}}, "repair_limits.hour: -1 is not a number of trays; set 0 or more"),
        ({"limits": {"hour": "4"}}, "repair_limits.hour: 4 is not a number"),
        ({"reset": ["r01t99"]}, "repair_reset: r01t99 is not in the fabric file; did you mean"),
        ({"reset": ["x\n{{ y }}"]}, "is not in the fabric file; name a tray, a clique, a domain, hour or all"),
    ],
)
def test_a_limit_or_a_reset_that_names_nothing_is_refused_with_a_sentence(changes: Any, message: str) -> None:
    with pytest.raises(RepairError) as error:
        make(sick("r01t04"), **changes)
    assert message in str(error.value)


@of_hypothesis(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**16), share=st.floats(0.0, 1.0), hour=st.integers(0, 8), clique=st.integers(0, 3))
def test_whatever_fails_and_whenever_no_limit_is_exceeded(seed: int, share: float, hour: int, clique: int) -> None:
    chance = random.Random(seed)
    lines: list[Line] = []
    opened: list[tuple[float, str]] = []
    for minutes in range(0, 240, 20):
        bad = [tray for tray in FOUR.trays if chance.random() < share]
        rows = [failed(chance.choice(("gpu_lost", "tray_unreachable", "nvlink_links_down")), tray) for tray in bad]
        made = make(rows, minutes, lines, of=FOUR, limits={"hour": hour, "clique": clique})
        lines += made.lines
        for row in made.rows:
            if row["allowed"] and "drain" in row["steps"]:
                opened.append((minutes, row["tray"]))
                lines += done(row, ["drain", "evidence", "spare", "ticket"], minutes)
        assert all(sum(1 for other, _tray in opened if then - 60 < other <= then) <= hour for then, _tray in opened)
        still = [one.subject for one in ledger.incidents(lines).values() if one.closed_at is None and not one.event]
        for members in FOUR.members.values():
            assert len(set(members).intersection(still)) <= clique


def test_a_storm_on_576_racks_takes_out_four_trays_and_is_said_once() -> None:
    """Half of all trays fail at once, then all, then the rest recovers: four trays are out, and no line is repeated."""
    storm = fabric(racks=576, trays=18, split=())
    chance = random.Random(1)
    first = [failed("gpu_lost", tray) for tray in storm.trays if chance.random() < 0.3]
    made = make(first, of=storm)
    lines = made.lines
    assert len(acts_on(made)) == 4
    assert len(plan.text(made)) <= 2 * plan.SHOWN + 2
    again = make(first, 5, lines, of=storm)
    assert acts_on(again) == acts_on(made)
    assert again.lines == []
    everything = make([failed("tray_unreachable", tray) for tray in storm.trays], 10, lines, of=storm)
    assert acts_on(everything) == []
    assert sum(row["event"] for row in everything.rows) == 576
    assert len(open_ids(lines + everything.lines)) == 4 + 576


HOURS = 24


def test_24_hours_of_faults_take_out_no_healthy_tray_and_each_sick_one_in_time() -> None:
    """Verify and repair run every 10 minutes on 36 racks; faults come, and a third of them goes by itself."""
    site = fabric(racks=36, trays=18, split=())
    chance = random.Random(24)
    lines: list[Line] = []
    nodes = idle(site)
    ill: dict[str, tuple[str, float]] = {}
    repaired: list[float] = []
    resets = 0
    for minutes in range(0, HOURS * 60, 10):
        if chance.random() < 0.2:
            code = chance.choice(("gpu_lost", "nvlink_links_down", "version_mismatch", "driver_timeout"))
            ill.setdefault(chance.choice(sorted(site.trays)), (code, minutes))
        for tray in [tray for tray, (_code, since) in ill.items() if minutes - since > 60 and chance.random() < 0.1]:
            del ill[tray]  # a person was there, or it went by itself
        noise = [failed("nvlink_links_degraded", tray) for tray in chance.sample(sorted(site.trays), 5)]
        rows = [*(failed(code, tray) for tray, (code, _since) in ill.items()), *noise]
        is_closed = bool(ledger.tripped(lines))
        resets += is_closed
        made = make(rows, minutes, lines, nodes, of=site, now=minutes + 1, reset=["all"] if is_closed else [])
        lines += made.lines
        for row in made.rows:
            tray, steps = row["tray"], row["steps"]
            if row["event"]:
                lines += done(row, steps, minutes + 2)
                continue
            if "drain" in steps:
                assert tray in ill, f"{tray} is healthy"
                assert minutes - ill[tray][1] <= 20, "out within two runs, or one more after a reset"
                nodes[tray] = f"DRAIN+IDLE: {policy.own_reason(row['incident'])}"
                lines += done(row, ["drain", "evidence", "spare", "ticket"], minutes + 2)
            if "action" in steps:
                if chance.random() < 0.9:
                    repaired.append(minutes - ill.pop(tray, ("", minutes))[1])
                lines += done(row, ["action"], minutes + 3)
            elif "return" in steps:
                assert tray not in ill
                nodes[tray] = "IDLE"
                lines += done(row, ["return", "resume", "close"], minutes + 4)
        out = {tray for tray, state in nodes.items() if policy.is_out(state)}
        known = ledger.incidents(lines).values()
        of_incidents = {one.subject for one in known if one.closed_at is None and not one.event}
        assert out == of_incidents, "nothing is out without an incident, and nothing is forgotten"
        lines = ledger.rotated(lines, at(minutes + 5))
    assert len(repaired) > 15
    assert max(repaired) <= 20
    assert resets <= 3


@pytest.mark.parametrize("share", [0, -1, 50])
def test_a_share_of_more_than_a_whole_rack_is_refused(share: float) -> None:
    """A percentage would mean that no number of bad trays is an event of their rack."""
    with pytest.raises(RepairError, match=r"repair_rack_share: .* is not a share; set a number from 0\.1 to 1"):
        make(rack_share=share)
