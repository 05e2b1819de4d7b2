# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The effect of one tray with false facts on the fabric file, and the gate that stops it, as in docs/security.md.

Two racks of 18 trays. The hostile tray is r02t01, whose root can set any fact.
"""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import Policy
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.fabric.test_placement import (
    Site,
    codes,
    kinds,
)
from hypothesis import given
from hypothesis import strategies as st

LIAR, VICTIM = "r02t01", "r01t01"
NEW_UUID = "12345678-1234-4234-8234-123456789abc"
DECLARED = {rack: tuple(f"{rack}t{tray:02d}" for tray in range(1, 19)) for rack in ("r01", "r02")}


def site(**policy: Any) -> Site:
    planned = Site(racks=2, trays_per_rack=18)
    planned.discover()
    planned.policy = Policy(**policy)
    return planned


def objections(planned: Site) -> list[str]:
    return [row["code"] for row in planned.discover().objections]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [({}, []), ({"moved_percent": 0}, ["moved_percent"]), ({"expected": DECLARED}, ["clique_shrank"])],
)
def test_it_may_move_itself_to_a_known_clique_unless_trays_are_declared(policy: Any, expected: list[str]) -> None:
    planned = site(**policy)
    planned.attach(LIAR, planned.uuid_of(VICTIM))
    assert objections(planned) == expected


@pytest.mark.parametrize(("slot", "gate"), [(0, "rotation_in_progress"), (9, "domain_split")])
def test_a_domain_of_its_own_is_stopped(slot: int, gate: str) -> None:
    planned = site()
    planned.attach(LIAR, NEW_UUID)
    planned.facts[LIAR]["tray_index"] = slot
    assert objections(planned) == [gate]


def test_it_moves_no_other_tray() -> None:
    planned = site()
    before = dict(planned.fabric.trays)
    planned.attach(LIAR, planned.uuid_of(VICTIM))
    planned.facts[LIAR]["hostname"] = VICTIM
    assert kinds(planned.discover()) == {LIAR: "moved"}
    assert {name: row for name, row in planned.fabric.trays.items() if name != LIAR} == {
        name: row for name, row in before.items() if name != LIAR
    }


@pytest.mark.parametrize("victim_is_down", [False, True])
def test_it_gets_no_gpu_of_another_tray_in_the_fabric_file(victim_is_down: bool) -> None:
    planned = site()
    before = planned.fabric
    if victim_is_down:
        planned.down.add(VICTIM)
    planned.facts[LIAR]["gpus"] = [dict(gpu) for gpu in planned.facts[VICTIM]["gpus"]]
    done = planned.discover()
    assert (done.fabric.trays, done.changes) == (before.trays, [])
    assert "illegal_tray_name" in codes(done, LIAR)


@pytest.mark.parametrize("victim_is_down", [False, True])
def test_it_gets_no_imex_address_of_a_member_of_its_clique(victim_is_down: bool) -> None:
    planned = site()
    member = "r02t02"
    if victim_is_down:
        planned.down.add(member)
    address = planned.fabric.trays[member]["imex_address"]
    planned.facts[LIAR]["addresses"] = [{"interface": "eth0", "address": address, "prefix": 24}]
    planned.discover()
    assert planned.fabric.trays[member]["imex_address"] == address
    assert planned.fabric.trays[LIAR]["imex_address"] != address


def test_an_address_outside_the_networks_of_imex_is_not_taken() -> None:
    planned = site(imex_networks=("10.0.0.0/8",))
    before = planned.fabric.trays[LIAR]["imex_address"]
    planned.facts[LIAR]["addresses"] = [{"interface": "eth0", "address": "203.0.113.66", "prefix": 24}]
    planned.discover()
    assert planned.fabric.trays[LIAR]["imex_address"] == before


def test_no_gate_objects_to_another_address_of_its_own() -> None:
    planned = site(imex_networks=("10.0.0.0/8",))
    planned.facts[LIAR]["addresses"] = [{"interface": "eth0", "address": "10.9.9.9", "prefix": 24}]
    done = planned.discover()
    assert (kinds(done), done.objections) == ({LIAR: "address"}, [])


@given(st.lists(st.from_regex(r"[0-9]{13}", fullmatch=True), min_size=1, max_size=5))
def test_it_adds_no_chassis_to_its_domain_in_any_number_of_runs(serials: list[str]) -> None:
    planned = site()
    before = planned.fabric
    for serial in serials:
        planned.facts[LIAR]["chassis_serial"] = serial
        done = planned.discover()
        assert (done.fabric, done.changes) == (before, [])
        assert ("tray_misplaced" in codes(done, LIAR)) == (serial not in before.domains["r02"]["chassis_serials"])


def test_it_does_not_name_its_domain_after_another_chassis() -> None:
    planned = Site(racks=2, trays_per_rack=18)
    planned.policy = Policy(domain_names={"666": "hall_a"})
    planned.facts[LIAR]["chassis_serial"] = "666"
    planned.discover()
    assert sorted(planned.fabric.domains) == ["r01", "r02"]


def test_a_text_that_is_no_unicode_is_unknown() -> None:
    planned = site()
    before = planned.fabric
    planned.facts[LIAR]["chassis_serial"] = "\ud800"
    planned.facts[LIAR]["findings"] = [{"code": "gpu_lost", "severity": "error", "message": "a \ud800 b", "gpu": None}]
    done = planned.discover()
    assert (done.fabric, done.changes) == (before, [])
    assert {"unusable_value", "gpu_lost"} <= set(codes(done, LIAR))
    assert fabric_file.serialise(done.state)


def test_missing_and_invalid_answers_change_nothing() -> None:
    planned = site()
    before = planned.fabric
    planned.facts[LIAR]["gpus"] = [{"uuid": "{{ lookup('pipe', 'id') }}", "fabric": "\x1b[31m"}, None, "x" * 10000]
    done = planned.discover()
    assert (done.fabric, done.changes) == (before, [])
    assert planned.state_of(LIAR) != "present"
