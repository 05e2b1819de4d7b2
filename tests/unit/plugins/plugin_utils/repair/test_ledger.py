# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Incidents from the lines of the ledger, its rotation, offenders and tickets."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair import RepairError, ledger, offenders, tickets
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair.offenders import Offender

from .world import at, done, failed, make, open_ids

DAY = 24 * 60


def test_the_ledger_is_beside_the_state_file(tmp_path: Path) -> None:
    assert ledger.path(str(tmp_path / "fabric.json"), None) == str(tmp_path / "fabric.repairs.jsonl")
    (tmp_path / "state").mkdir()
    assert ledger.path("/x/fabric.json", str(tmp_path / "state")) == str(tmp_path / "state" / "fabric.repairs.jsonl")


def test_an_incident_has_an_id_of_its_own_also_in_the_same_second() -> None:
    first = ledger.new_id("r01t04", at(15), ())
    assert first == "r01t04-20261129T191500Z"
    assert ledger.new_id("r01t04", at(15), {first}) == f"{first}-2"
    assert ledger.new_id("r01t04", at(15), {first, f"{first}-2"}) == f"{first}-3"
    with pytest.raises(RepairError, match="'yesterday' is not of RFC 3339"):
        ledger.new_id("r01t04", "yesterday", ())


def test_an_incident_keeps_what_it_is_about_and_its_steps() -> None:
    made = make([failed("nvlink_link_recovering", "r01t04", gpu=2, link=14)])
    row = made.rows[0]
    lines = [*made.lines, *done(row, ["drain", "evidence"], 1), *done(row, ["action"], 5)[:1]]
    one = ledger.incidents(lines)[row["incident"]]
    assert (one.subject, one.code, one.action, one.gpu, one.link) == (
        "r01t04",
        "nvlink_link_recovering",
        "reset_gpu",
        2,
        14,
    )
    assert one.steps == {"open": "done", "drain": "done", "evidence": "done", "action": "begin"}
    assert (one.opened_at, one.closed_at, one.failed) == (at(0), None, {"action": 1})


def test_rotation_keeps_thirty_days_open_incidents_and_what_nobody_has_reset() -> None:
    old = make([failed("gpu_lost", "r01t04"), failed("gpu_lost", "r01t05")])
    closed, still = old.rows
    lines = [*old.lines, *done(closed, ["drain", "resume", "close"], 10), *done(still, ["drain"], 10)]
    storm = make([failed("gpu_lost", "r02t01")], known=lines, limits={"domain": 0}, minutes=11)
    lines += storm.lines
    kept = ledger.rotated(lines, at(40 * DAY))
    assert {line["incident"] for line in kept} == {still["incident"], ""}
    assert [line["subject"] for line in kept if line["step"] == "brake"] == ["domain r02"]
    assert ledger.rotated(lines, at(29 * DAY)) == lines
    reset = make(known=lines, reset=["r02"], minutes=12).lines
    assert [line for line in ledger.rotated([*lines, *reset], at(40 * DAY)) if line["step"] == "brake"] == []


def test_offenders_are_counted_by_part_and_hours_by_tray() -> None:
    lines = []
    for day in range(2):
        rows = [failed("nvlink_link_recovering", "r01t04", gpu=2, link=14), failed("gpu_lost", "r01t05", gpu=0)]
        made = make(rows, minutes=day * DAY, known=lines)
        lines += made.lines
        for row in made.rows:
            lines += done(row, ["drain"], day * DAY + 30) + done(row, ["resume", "close"], day * DAY + 120)
    assert offenders.offenders(lines, at(3 * DAY)) == [
        Offender("gpu", "r01t04 GPU 2", 2, 3.0),
        Offender("gpu", "r01t05 GPU 0", 2, 3.0),
        Offender("link", "r01t04 GPU 2 link 14", 2, 3.0),
        Offender("tray", "r01t04", 2, 3.0),
        Offender("tray", "r01t05", 2, 3.0),
    ]
    assert offenders.offenders([], at(0)) == []


def test_hours_of_an_open_incident_run_until_now_and_none_before_its_drain() -> None:
    made = make([failed("gpu_lost", "r01t04")])
    assert offenders.offenders(made.lines, at(90)) == [Offender("tray", "r01t04", 1, 0.0)]
    lines = [*made.lines, *done(made.rows[0], ["drain"], 30)]
    assert offenders.offenders(lines, at(90)) == [Offender("tray", "r01t04", 1, 1.0)]


def test_a_switch_port_is_an_offender_of_its_own() -> None:
    row = failed("fabric_degraded", "r01t04")
    row["port"] = "sw1p12"
    lines = make([row]).lines
    assert offenders.offenders(lines, at(0)) == [Offender("switch_port", "sw1p12", 1, 0.0)]


def test_a_ticket_has_the_fields_of_a_breakfix_event_and_one_id_in_all_states() -> None:
    made = make([failed("gpu_lost", "r01t04", gpu=2)])
    row = made.rows[0]
    one = ledger.incidents(made.lines)[row["incident"]]
    opened = tickets.document(one, row, "open", at(1))
    assert opened == {
        "ticket_id": "r01t04-20261129T190000Z",
        "state": "open",
        "opened_at": at(0),
        "updated_at": at(1),
        "closed_at": None,
        "hardware_id": "r01t04",
        "hardware_category": "gpu",
        "description": "A GPU has fallen off the bus, needs a reset or cannot be read",
        "action": "reboot",
        "provider_account_id": None,
        "node_handover_date": None,
        "code": "gpu_lost",
        "gpu": 2,
        "link": None,
        "switch_port": None,
        "evidence": "r01t04: gpu_lost was found",
        "reason": "the action of gpu_lost",
        "steps": {"open": "done"},
    }
    closed = tickets.document(one, None, "close", at(9))
    assert (closed["ticket_id"], closed["closed_at"]) == (opened["ticket_id"], at(9))


def test_the_category_of_a_ticket_is_what_is_to_be_repaired() -> None:
    rows = [failed("nvlink_link_recovering", "r01t01", gpu=1, link=2), failed("tray_unreachable", "r01t02")]
    rows += [failed("nvlink_links_down", tray) for tray in ("r02t01", "r02t02", "r02t03")]
    found = ledger.incidents(make(rows).lines).values()
    assert {one.subject: tickets.document(one, None, "open", at(1))["hardware_category"] for one in found} == {
        "r02": "rack",
        "r01t01": "interconnect",
        "r01t02": "node",
    }


def test_open_ids_of_an_edited_open_line_are_read() -> None:
    """A person may have edited the file: what is missing is unknown."""
    lines = make([failed("gpu_lost", "r01t04")]).lines
    for detail in ("", "[]", '{"action": 5, "gpu": "x"}'):
        edited = [{**line, "detail": detail} for line in lines]
        assert open_ids(edited) == open_ids(lines)  # type: ignore[arg-type]
