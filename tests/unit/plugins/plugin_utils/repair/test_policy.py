# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which action a verdict asks for: of a tray by its own answer alone, of a domain what its trays share."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import failure
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import CATALOGUE, REPAIR, REPAIRS
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair import policy
from hypothesis import given
from hypothesis import strategies as st

from ..fabrics import fabric
from .world import TWO, acts_on, failed, idle, make, shown

RACK = TWO.members["r01"]


def xid(tray: str, **more: Any) -> Any:
    """A fatal NVLink Xid of GPU 0."""
    return failed("nvlink_xid", tray, severity="error", action="reset_gpu", gpu=0, link=14, **more)


def test_each_code_has_one_of_the_actions_of_repair() -> None:
    assert {row.action for row in CATALOGUE.values()} <= set(REPAIRS)
    assert REPAIR.keys() <= CATALOGUE.keys()
    assert all(row.action == "none" for row in CATALOGUE.values() if row.severity == "info")
    assert all(row.action == "none" for row in CATALOGUE.values() if row.sentence.startswith("gate: "))


@pytest.mark.parametrize(
    ("rows", "action"),
    [
        ([failed("gpu_lost", "r01t04")], "reboot"),
        ([failed("recovery_action", "r01t04", action="reset_gpu"), failed("gpu_missing", "r01t04")], "reset_gpu"),
        ([failed("recovery_action", "r01t04", action="drain")], "reset_gpu"),
        ([failed("recovery_action", "r01t04", action="restart_imex")], "watch"),
        ([failed("recovery_action", "r01t04", action="restart_imex"), failed("gpu_lost", "r01t04")], "reboot"),
        ([failed("nvlink_xid", "r01t04", action="reboot")], "reboot"),
        ([failed("nvlink_links_degraded", "r01t04")], "watch"),
        ([failed("nvlink_links_down", "r01t04"), failed("gpu_lost", "r01t04")], "reboot"),
        ([failed("nvlink_link_recovering", "r01t04", gpu=0, link=14)], "reset_gpu"),
        ([failed("imex_not_ready", "r01t04")], "watch"),
    ],
)
def test_the_driver_decides_else_the_strongest_action_and_watch_where_none_is_sure(rows: Any, action: str) -> None:
    made = make(rows)
    assert [(row["tray"], row["action"]) for row in made.rows] == [("r01t04", action)]
    assert made.rows[0]["allowed"] == (action in policy.ON_TRAY)


@pytest.mark.parametrize(
    "rows", [[failed("slurm_blocks_differ", "r01t04")], [failed("gpu_lost", "r01t04", severity="info")]]
)
def test_what_needs_no_repair_or_is_acknowledged_is_no_row(rows: Any) -> None:
    assert make(rows).rows == []


def test_a_tray_without_power_is_power_cycled_and_one_that_answers_slurmctld_is_watched() -> None:
    off = [failed("tray_unreachable", "r01t04")]
    assert shown(make(off))["r01t04"][0] == "power_cycle"
    assert shown(make(off, nodes=idle(r01t04="DOWN+NOT_RESPONDING: Not responding")))["r01t04"][:2] == (
        "power_cycle",
        True,
    )
    made = make(off, nodes=idle())
    assert shown(made) == {"r01t04": ("watch", False, "tray_unreachable")}
    assert made.rows[0]["reason"] == "its slurmd answers slurmctld, so it has power"


def test_xid_149_on_one_tray_and_145_on_its_63_peers_is_that_tray() -> None:
    """A GPU whose link fails is an error on each of its peers (marin 9086)."""
    one = fabric(racks=1, trays=64, split=())
    peers = [tray for tray in one.trays if tray != "r01t07"]
    others = [failed("nvlink_xid", tray, action="switch_side", gpu=1, link=3) for tray in peers]
    made = make([xid("r01t07"), *others], of=one)
    assert acts_on(made) == ["r01t07"]
    assert not any(row["event"] for row in made.rows)
    assert {row["reason"] for row in made.rows if row["tray"] != "r01t07"} == {"r01t07 has a fault of its own"}


@pytest.mark.parametrize("code", ["nvlink_links_down", "fabric_unhealthy", "nvlink_xid", "nvlink_links_degraded"])
def test_eight_trays_whose_links_fail_at_once_are_the_switch(code: str) -> None:
    """With counters unmoved, nothing on the trays has failed (marin 8934)."""
    rows = [xid(tray) if code == "nvlink_xid" else failed(code, tray) for tray in RACK[:8]]
    made = make(rows)
    assert acts_on(made) == []
    assert [(row["tray"], row["action"], row["event"]) for row in made.rows if row["action"] != "watch"] == [
        ("r01", "switch_side", True)
    ]
    assert made.rows[0]["reason"] == "the links of 8 of its trays fail together"


def test_the_tray_whose_counters_moved_is_not_counted_to_the_switch() -> None:
    rows = [failed("nvlink_links_down", tray) for tray in RACK[:8]]
    made = make([*rows, failed("nvlink_link_recovering", RACK[3], gpu=2, link=9)])
    assert acts_on(made) == [RACK[3]]
    assert shown(made)["r01"][0] == "switch_side"


def test_two_trays_with_failed_links_are_two_trays() -> None:
    assert acts_on(make([failed("nvlink_links_down", tray) for tray in RACK[:2]])) == RACK[:2]


def test_memory_errors_of_many_trays_are_not_the_switch() -> None:
    rows = [failed("nvlink_xid", tray, severity="error", action="reset_gpu", gpu=0) for tray in RACK[:3]]
    assert {row["action"] for row in make(rows).rows} == {"reset_gpu"}


def test_half_a_rack_is_one_event_and_a_finding_of_the_whole_domain_too() -> None:
    made = make([failed("gpu_lost", tray) for tray in RACK[:9]])
    assert acts_on(made) == []
    assert [(row["tray"], row["action"], row["allowed"]) for row in made.rows if row["event"]] == [
        ("r01", "contact_support", True)
    ]
    brake = "no tray is repaired alone: 9 of its 18 trays fail, at least repair_rack_share (0.5)"
    assert {row["brake"] for row in made.rows if not row["event"]} == {brake}
    common = failure("gpu_lost", "hardware", "All report this.", None, "r01", trays=RACK)
    assert shown(make([common])) == {"r01": ("contact_support", True, "gpu_lost")}
    switches = failure(
        "nvlink_links_down", "hardware", "All report this.", None, "r01", trays=RACK, action="switch_side"
    )
    assert shown(make([switches])) == {"r01": ("switch_side", True, "nvlink_links_down")}


def test_a_tray_that_its_prolog_drained_is_repaired_and_one_of_a_person_is_left_alone() -> None:
    made = make(nodes=idle(r01t04="DRAIN+IDLE: nvlink: IMEX: nvidia-imex.service did not start"))
    assert shown(made) == {"r01t04": ("reboot", True, "imex_unit_down")}
    sick = [failed("gpu_lost", "r01t04")]
    for reason in ("RMA 4711", "nvlink: drain", "NHC: check_hw", ""):
        made = make(sick, nodes=idle(r01t04=f"DRAIN+IDLE: {reason}"))
        assert acts_on(made) == []
        assert "somebody else has taken it out of service" in made.rows[0]["brake"]
    for state in ("DOWN: RMA 4711", "DOWN+DRAIN: RMA 4711 : Not responding"):
        assert acts_on(make(sick, nodes=idle(r01t04=state))) == []
    for state in ("DOWN+NOT_RESPONDING: Not responding", "DRAIN+IDLE: nvlink: test failed", "DOWN"):
        assert acts_on(make(sick, nodes=idle(r01t04=state))) == ["r01t04"]


HOSTILE = st.one_of(
    st.sampled_from(["r01t04", "r01t05", "r02t01", "r01", "all", "", "r01t05;reboot", "{{ x }}", "\x1b[2J", "../x"]),
    st.text(max_size=8),
    st.none(),
    st.integers(),
    st.booleans(),
    st.lists(st.text(max_size=3), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=1),
)


@given(data=st.data())
def test_no_content_of_a_failure_adds_a_tray_or_a_command(data: st.DataObject) -> None:
    """Whatever the failure of one tray has in its other keys, at most this tray and its domain are in the plan."""
    row: dict[str, Any] = {
        **data.draw(st.sampled_from([failed(code, "r01t04") for code in ("gpu_lost", "nvlink_xid")]))
    }
    for key in data.draw(st.sets(st.sampled_from(sorted({*row, "gpu", "link", "port"} - {"tray", "trays"})))):
        row[key] = data.draw(HOSTILE)
    made = make([row])  # type: ignore[list-item]
    assert {shown_row["tray"] for shown_row in made.rows} <= {"r01t04", "r01"}
    assert acts_on(made) in ([], ["r01t04"])
    for shown_row in made.rows:
        assert shown_row["action"] in REPAIRS
        assert shown_row["finding"] in CATALOGUE
        assert shown_row["evidence"].isprintable()
        assert "{{" not in shown_row["evidence"]
    for line in made.lines:
        assert all(text.isprintable() for text in line.values())


@given(rows=st.lists(st.fixed_dictionaries(dict.fromkeys(failed("gpu_lost", "r01t04"), HOSTILE)), max_size=6))
def test_a_failure_of_nonsense_asks_for_nothing_outside_the_fabric(rows: list[dict[str, Any]]) -> None:
    made = make(rows)  # type: ignore[arg-type]
    assert {row["tray"] for row in made.rows} <= {*TWO.trays, *TWO.domains}


@pytest.mark.parametrize("code", sorted(CATALOGUE))
def test_a_failure_that_names_other_trays_acts_on_none(code: str) -> None:
    """A failure of two trays may be the lie of one of them."""
    pair = failure(code, "hardware", "Two trays.", None, "r01", trays=["r01t04", "r01t05"], severity="error")
    assert acts_on(make([pair])) == []
    assert acts_on(make([{**pair, "tray": "r01t05"}])) == []
