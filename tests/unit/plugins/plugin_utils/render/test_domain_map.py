# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.differences import structure_diff
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import view
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.domain_map import change_map, domain_map
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import node_states
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

NAMES = re.compile(r"r\d\dt\d\d")


def _finding(code: str, severity: str, **more: object) -> dict[str, object]:
    return {"code": code, "severity": severity, "message": f"What {code} means: fix it.", **more}


def _line(lines: list[str], word: str) -> str:
    (line,) = [line for line in lines if word in line]
    return line


@pytest.mark.parametrize("width", [120, 60, 24])
def test_domains_share_lines_where_the_width_allows(width: int) -> None:
    fabric = fabrics.fabric()
    lines = domain_map(fabric, fabrics.state(fabric), dict.fromkeys(fabric.trays, ("1234567",)), width=width)
    rows = [line for line in lines if NAMES.search(line)]
    assert len(rows) == (18 if width == 120 else 36)
    assert sorted(NAMES.findall("".join(rows))) == sorted(fabric.trays)
    assert max(map(len, rows)) <= max(width, 45)
    assert sum(line.count("1234567") for line in rows) == 36


def test_a_row_has_clique_health_state_and_slurm_block() -> None:
    fabric = fabrics.fabric()
    sick = {"r02t12": {"health": "unhealthy"}, "r02t13": {"health": "degraded"}}
    state = fabrics.state(fabric, r01t07={"state": "stale"}, **sick)
    lines = domain_map(fabric, state, width=60)
    assert _line(lines, "r01t07").split() == ["r01t07", "r01", "●", "healthy", "stale", "r01", "@0", "6"]
    assert _line(lines, "r02t12").split() == ["r02t12", "r02b", "✗", "unhealthy", "present", "r02b", "@2", "11"]
    assert "▲ degraded" in _line(lines, "r02t13")
    assert "34 healthy, 1 degraded, 1 unhealthy; 35 present, 1 stale" in lines[-1]


def test_switch_trays_and_empty_slots_are_drawn() -> None:
    fabric = fabrics.fabric(racks=1)
    del fabric.trays["r01t03"]
    lines = domain_map(fabric, State())
    assert "9 switch trays" in lines[lines.index(_line(lines, "r01t09")) + 1]
    assert lines[lines.index(_line(lines, "r01t04")) + 1].split() == ["empty"]
    assert lines[0].rstrip() == "r01  17 of 18 trays, 17 unknown  00000001"
    stale = fabrics.state(fabric, r01t01={"state": "stale"})
    assert view.figure(fabric, stale).domains[0].sums == "17 of 18 trays, 1 stale"
    fabric.domains["r01"]["chassis_serials"] = ["1", "2"]
    assert "switch trays" not in "".join(domain_map(fabric, State())), "they are in several racks"


def test_findings_are_sorted_worst_first_limited_and_without_control_characters() -> None:
    fabric = fabrics.fabric()
    messages = [f"a\033[2Jb\nc {tray}" for tray in range(1, 19)]
    warnings = {
        f"r01t{n + 1:02d}": {"findings": [{**_finding("odd", "warning"), "message": messages[n]}]} for n in range(18)
    }
    state = fabrics.state(fabric, **warnings, r02t12={"findings": [_finding("gpu_lost", "error", gpu=2)]})
    lines = domain_map(fabric, state)
    assert lines[-13] == "error    r02t12 GPU 2: What gpu_lost means: fix it."
    assert lines[-2].endswith(": a [2Jb c 11")
    assert lines[-1] == "and 7 more findings, all of them in the report"
    # Equal ones of several trays are one.
    equal = {name: {"findings": [{**_finding("odd", "warning"), "message": "Off."}]} for name in warnings}
    assert domain_map(fabric, fabrics.state(fabric, **equal))[-1] == "warning  r01t[01-18]: Off."


def test_of_many_domains_only_those_with_trouble_are_drawn() -> None:
    fabric = fabrics.fabric(racks=60, trays=2, split=())
    sick = {f"r{rack}t01": {"state": "stale"} for rack in range(20, 50)} | {"r59t02": {"health": "unhealthy"}}
    lines = domain_map(fabric, fabrics.state(fabric, **sick), width=60)
    drawn = [line.split()[0] for line in lines if " trays" in line and not line.startswith(" ")]
    assert drawn[:2] == ["r59", "r20"]
    assert len(drawn) == 24 + 1, "and the line of the sums"
    assert "29 NVLink domains (r[01-19,50-58,60]): healthy" in lines
    assert "7 NVLink domains (r[43-49]): stale" in lines


def test_trays_without_their_own_slot_are_drawn() -> None:
    fabric = fabrics.fabric(racks=1)
    fabric.trays["r01t04"]["tray_index"] = None
    fabric.trays["r01t05"]["tray_index"] = 5
    fabric.trays["r01t06"]["tray_index"] = 60_000
    (domain,) = view.figure(fabric, State()).domains
    assert sorted(tray.name for tray in domain.trays) == sorted(fabric.trays)
    assert len(domain.slots) == 18, "no index of a tray makes thousands of slots"


def test_a_rack_without_its_first_tray_is_not_drawn_one_slot_lower() -> None:
    fabric = fabrics.fabric(split=(), first_index=1)
    del fabric.trays["r01t01"]
    assert [domain.slots[0] is None for domain in view.figure(fabric, State()).domains] == [True, False]


def test_a_finding_names_its_subject() -> None:
    fabric = fabrics.fabric(racks=1)
    about = [{"block": "r01"}, {"domain": "r01"}, {"clique": "r01"}, {}]
    findings = [_finding(f"code{number}", "info", **subject) for number, subject in enumerate(about)]
    # Two sources report the same.
    state = State(fabrics.state(fabric).trays, [*findings, *findings])
    subjects = [line.split("What")[0].split() for line in domain_map(fabric, state)[-4:]]
    assert subjects == [["info", "block", "r01:"], ["info", "domain", "r01:"], ["info"], ["info", "clique", "r01:"]]


def test_jobs_have_a_column_where_slurm_was_queried() -> None:
    fabric = fabrics.fabric(racks=1)
    state = fabrics.state(fabric)
    assert "jobs" not in domain_map(fabric, state)[1]
    lines = domain_map(fabric, state, {"r01t01": ("4711",), "r01t02": tuple(str(4000 + n) for n in range(9))})
    assert lines[1].split()[-1] == "jobs"
    assert _line(lines, "r01t01").split()[-1] == "4711"
    assert _line(lines, "r01t02").endswith("  4000 4001 4002 …")
    assert _line(lines, "r01t03").endswith("@0      2")
    assert domain_map(fabric, state, {})[1].split()[-1] == "jobs"


def test_trays_without_new_jobs_have_their_state_and_reason() -> None:
    fabric = fabrics.fabric(racks=1)
    out = {"r01t01": "DRAIN+IDLE: RMA \x1b4711", "r01t02": f"DOWN: {'x' * 99}", "r01t03": "IDLE: back"}
    lines = domain_map(fabric, node_states.applied(fabrics.state(fabric, r01t04={"state": "stale"}), fabric, out), {})
    assert _line(lines, "r01t01").split()[4:8] == ["drained:", "RMA", "4711", "r01"]
    assert f"  down: {'x' * 17}…  r01" in _line(lines, "r01t02")
    assert lines[-1].endswith("; 15 present, 1 down, 1 drained, 1 stale")


def test_the_map_of_a_proposal_that_changes_no_tray_has_its_other_changes() -> None:
    before, after = fabrics.fabric(racks=20, split=()), fabrics.fabric(racks=20, split=())
    after.domains["r02"]["chassis_serials"] = ["new"]
    lines = change_map(before, after, State())
    assert lines == [lines[0], "", "The proposal changes 0 of 360 trays, in 0 NVLink domains."]
    assert lines[0].startswith("domain r02: chassis_serials ")
    for domain in after.domains.values():
        domain["chassis_serials"] = ["new"]
    assert change_map(before, after, State())[11:14] == [
        *structure_diff(before, after)[11:12],
        "and 8 more changes",
        "",
    ]


@pytest.mark.parametrize("first", [0, 1, 9])
def test_two_domains_of_one_rack_are_drawn_each_with_its_own_slots(first: int) -> None:
    fabric = fabrics.fabric(racks=2, trays=9, split=())
    for name in fabric.members["r02"]:
        # The builder gives every tray an index.
        fabric.trays[name]["tray_index"] += first  # type: ignore[index]
    for domain in view.figure(fabric, State()).domains:
        assert (len(domain.slots), len(domain.trays), domain.switches) == (9, 9, 0)
    assert [tray.tray_index for tray in domain.trays] == list(range(first, first + 9))


def test_the_map_of_a_proposal_shows_the_changed_domains_with_from_and_to() -> None:
    before, after = fabrics.fabric(racks=3, split=()), fabrics.fabric(racks=3, split=())
    del before.trays["r02t05"]
    after.trays["r02t07"]["clique"] = "r03"
    after.trays["r02t09"]["imex_address"] = "10.99.0.1"
    del after.trays["r01t18"]
    lines = change_map(before, after, State(), width=60)
    assert _line(lines, "r02t05").split()[:4] == ["r02t05", "none", "->", "r02"]
    assert _line(lines, "r02t07").split()[:4] == ["r02t07", "r02", "->", "r03"]
    assert _line(lines, "r02t09").split()[:3] == ["r02t09", "r02", "(changed)"]
    assert _line(lines, "r02t10").split()[:2] == ["r02t10", "r02"]
    assert "Removed: r01t18 (from r01)" in lines
    assert lines[-1] == "The proposal changes 4 of 54 trays, in 2 NVLink domains."
    assert not [line for line in lines if "r01t01" in line]
    assert max(map(len, lines)) <= 60
