# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import collections

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import simulation
from ansible_collections.rackscale.nvlink.tests.lab.nvml import fleets


def test_a_rack_has_one_domain_and_the_default_partition() -> None:
    fleet = fleets.fleet(racks=2)
    assert list(fleet)[:2] == ["r01t01", "r01t02"]
    assert len(fleet) == 36
    first = [facts for name, facts in fleet.items() if name.startswith("r01")]
    assert {facts["clique_id"] for facts in fleet.values()} == {32766}
    assert len({facts["cluster_uuid"] for facts in first}) == 1
    assert len({facts["cluster_uuid"] for facts in fleet.values()}) == 2
    assert len({facts["chassis_serial"] for facts in fleet.values()}) == 2
    assert [facts["tray_index"] for facts in first] == list(range(18))
    assert [facts["slot_number"] for facts in first] == list(range(10, 28))
    assert [gpu["module_id"] for gpu in first[0]["gpus"]] == [2, 1, 4, 3]


def test_the_fleet_depends_on_the_seed_alone() -> None:
    assert fleets.fleet(seed=7) == fleets.fleet(seed=7)
    uuids = [{gpu["uuid"] for facts in fleets.fleet(seed=seed).values() for gpu in facts["gpus"]} for seed in (7, 8)]
    assert not uuids[0] & uuids[1]


def test_a_rack_is_split_into_equal_cliques() -> None:
    fleet = fleets.fleet(racks=2, split={2: 2})
    assert {facts["clique_id"] for name, facts in fleet.items() if name.startswith("r01")} == {32766}
    assert [facts["clique_id"] for name, facts in fleet.items() if name.startswith("r02")] == [1] * 9 + [2] * 9
    uneven = collections.Counter(place.clique_id for place in simulation.places(split={1: 4}))
    assert sorted(uneven.values()) == [4, 4, 5, 5]


@pytest.mark.parametrize(
    ("racks", "trays_per_rack", "last"), [(1, 1, "r01t01"), (576, 18, "r576t18"), (2, 120, "r02t120")]
)
def test_numbers_in_names_are_padded_to_the_largest(racks: int, trays_per_rack: int, last: str) -> None:
    *_others, place = simulation.places(racks, trays_per_rack)
    assert place.name == last
    assert len({place.name for place in simulation.places(racks, trays_per_rack)}) == racks * trays_per_rack
