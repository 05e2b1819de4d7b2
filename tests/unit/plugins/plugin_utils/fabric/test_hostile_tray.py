# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The effect of one tray with false facts on the fabric file, and the gate that stops it, as in docs/security.md.

Two racks of 18 trays. The hostile tray is r02t01, whose root can set any fact.
"""

from __future__ import annotations

from collections.abc import Callable
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

LIAR, MEMBER, VICTIM = "r02t01", "r02t02", "r01t01"
NEW_UUID = "12345678-1234-4234-8234-123456789abc"
DECLARED = {rack: tuple(f"{rack}t{tray:02d}" for tray in range(1, 19)) for rack in ("r01", "r02")}


def site(**policy: Any) -> Site:
    planned = Site(racks=2, trays_per_rack=18)
    planned.discover()
    planned.policy = Policy(**policy)
    return planned


Lie = Callable[[Site], object]


def attach(uuid: str = "") -> Lie:
    return lambda planned: planned.attach(LIAR, uuid or planned.uuid_of(VICTIM))


def facts(**values: Any) -> Lie:
    return lambda planned: planned.facts[LIAR].update(values)


def address(text: str) -> Lie:
    return facts(addresses=[{"interface": "eth0", "address": text, "prefix": 24}])


def steal_gpus(planned: Site) -> None:
    planned.facts[LIAR]["gpus"] = [dict(gpu) for gpu in planned.facts[VICTIM]["gpus"]]


IMEX = {"imex_networks": ("10.0.0.0/8",)}
NO_UNICODE = {"code": "gpu_lost", "severity": "error", "message": "a \ud800 b", "gpu": None}
INVALID = [{"uuid": "{{ lookup('pipe', 'id') }}", "fabric": "\x1b[31m"}, None, "x" * 10000]


@pytest.mark.parametrize("down", [(), (VICTIM, MEMBER)], ids=["the others are up", "the others are down"])
@pytest.mark.parametrize(
    ("lie", "policy", "gates", "changes", "found"),
    [
        # It may move itself to a known clique, unless trays are declared.
        pytest.param(attach(), {}, [], {LIAR: "moved"}, set(), id="joins another domain"),
        pytest.param(attach(), {"expected": DECLARED}, ["clique_shrank"], {LIAR: "moved"}, set(), id="declared"),
        pytest.param(attach(NEW_UUID), {}, ["rotation_in_progress"], {}, set(), id="a new domain"),
        pytest.param(steal_gpus, {}, [], {}, {"illegal_tray_name"}, id="another tray's GPUs"),
        pytest.param(address("10.0.2.2"), {}, [], {}, set(), id="the IMEX address of a member of its clique"),
        pytest.param(address("203.0.113.66"), IMEX, [], {}, set(), id="an address outside the networks of IMEX"),
        pytest.param(address("10.9.9.9"), IMEX, [], {LIAR: "address"}, set(), id="another address of its own"),
        pytest.param(
            facts(chassis_serial="666"), {"domain_names": {"666": "hall_a"}}, [], {}, {"tray_misplaced"}, id="a chassis"
        ),
        pytest.param(
            facts(chassis_serial="\ud800", findings=[NO_UNICODE]),
            {},
            [],
            {},
            {"unusable_value", "gpu_lost"},
            id="no Unicode",
        ),
        pytest.param(facts(gpus=INVALID), {}, [], {}, {"tray_not_attached"}, id="invalid GPUs"),
    ],
)
def test_only_its_own_place_changes(
    lie: Lie, policy: dict[str, Any], gates: list[str], changes: dict[str, str], found: set[str], down: tuple[str, ...]
) -> None:
    planned = site(**policy)
    before = planned.fabric
    assert before
    planned.down.update(down)
    lie(planned)
    done = planned.discover()
    assert ([row["code"] for row in done.objections], kinds(done)) == (gates, changes)
    assert found <= codes(done, LIAR)
    assert {**done.fabric.trays, LIAR: {}} == {**before.trays, LIAR: {}}
    assert changes or done.fabric == before
    assert fabric_file.serialise(done.state)


@given(st.lists(st.from_regex(r"[0-9]{13}", fullmatch=True), min_size=1, max_size=5))
def test_it_adds_no_chassis_to_its_domain_in_any_number_of_runs(serials: list[str]) -> None:
    planned = site()
    before = planned.fabric
    for serial in serials:
        planned.facts[LIAR]["chassis_serial"] = serial
        done = planned.discover()
        assert (done.fabric, done.changes) == (before, [])
        assert ("tray_misplaced" in codes(done, LIAR)) == (serial not in before.domains["r02"]["chassis_serials"])


def test_it_does_not_name_a_new_domain_after_another_chassis() -> None:
    planned = Site(Policy(domain_names={"666": "hall_a"}), racks=2, trays_per_rack=18)
    planned.facts[LIAR]["chassis_serial"] = "666"
    planned.discover()
    assert sorted(planned.fabric.domains) == ["r01", "r02"]
