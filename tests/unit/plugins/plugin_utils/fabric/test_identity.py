# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Domains and cliques that the fabric manager gave another cluster UUID or other clique IDs."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.placement import (
    Placement,
    mark_accepted,
    mark_pending,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import Policy
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.fabric.test_placement import Site, kinds

NEW_UUID = "12345678-1234-4234-8234-123456789abc"
R01, R02 = ([f"r0{rack}t0{tray}" for tray in range(1, 5)] for rack in (1, 2))


def placed(**simulation: Any) -> Site:
    site = Site(policy=Policy(moved_percent=100), **simulation)
    site.discover()
    return site


def objections(placement: Placement) -> list[str]:
    return [row["code"] for row in placement.objections]


def names(site: Site) -> tuple[dict[str, str], list[tuple[str, int, tuple[str, ...]]]]:
    """The clique of every tray, and all blocks."""
    assert site.fabric
    cliques = {name: tray["clique"] for name, tray in site.fabric.trays.items()}
    return cliques, [(block.name, block.position, block.trays) for block in site.fabric.blocks()]


def replace_gpus(site: Site, *trays: str, start: int = 0) -> None:
    for number, gpu in enumerate(site.gpus(*trays), start):
        gpu["uuid"] = f"GPU-ffffffff-0000-4000-8000-{number:012d}"


@pytest.mark.parametrize(("racks", "rack"), [(2, "r02"), (12, "r01")])
def test_a_rack_with_a_new_uuid_keeps_name_block_and_position(racks: int, rack: str) -> None:
    site = placed(racks=racks)
    before, old = names(site), site.uuid_of(f"{rack}t01")
    for name in [name for name in site.facts if name.startswith(rack)]:
        site.attach(name, NEW_UUID)
    placement = site.discover()
    assert (names(site), placement.changes) == (before, [])
    assert [row["message"] for row in placement.objections] == [
        f"NVLink domain {rack} has the cluster UUID {NEW_UUID} instead of {old}, with the same GPUs, as after its "
        "fabric was built again; accept the proposal to keep its names and blocks if that is the cause."
    ]
    assert objections(placement) == ["domain_uuid_changed"]
    assert placement.fabric.domains[rack]["cluster_uuid"] == NEW_UUID
    again = site.discover()
    assert (again.changes, again.objections, again.fabric) == ([], [], placement.fabric)


def test_a_rack_split_into_cliques_keeps_them_all() -> None:
    site = placed(cliques_per_rack=2)
    before = names(site)
    for name in R01:
        site.attach(name, NEW_UUID)
    assert objections(site.discover()) == ["domain_uuid_changed"]
    assert names(site) == before


def test_the_finding_is_in_the_state_until_it_is_accepted() -> None:
    site = placed()
    accepted = site.fabric
    for name in R01:
        site.attach(name, NEW_UUID)
    placement = site.discover()
    pending = mark_pending(placement.state, placement.fabric, placement.changes, accepted)
    assert [(row["code"], row["domain"]) for row in pending.findings] == [("domain_uuid_changed", "r01")]
    assert mark_accepted(pending, placement.fabric).findings == []


# --- some trays only ---


def test_while_some_trays_report_the_old_uuid_the_domain_is_split() -> None:
    site = placed()
    before = names(site)
    for name in R01[:3]:
        site.attach(name, NEW_UUID)
    accepted, state = site.fabric, site.state
    placement = site.discover()
    assert objections(placement) == ["domain_split"]
    assert {row["code"] for row in placement.findings if row["severity"] != "info"} == {"domain_incomplete"}
    # The proposal was not accepted, and the last tray follows.
    site.fabric, site.state = accepted, state
    site.attach(R01[3], NEW_UUID)
    assert objections(site.discover()) == ["domain_uuid_changed"]
    assert names(site) == before


@pytest.mark.parametrize(("down", "gate"), [(1, "domain_uuid_changed"), (2, "domain_split"), (3, "domain_split")])
def test_more_than_half_of_the_gpus_must_report_the_new_uuid(down: int, gate: str) -> None:
    site = placed()
    before = names(site)
    for name in R01:
        site.attach(name, NEW_UUID)
    site.down.update(R01[:down])
    assert objections(site.discover()) == [gate]
    assert (names(site) == before) == (gate == "domain_uuid_changed")


def test_a_tray_that_returns_with_the_new_uuid_is_at_its_place_and_one_with_the_old_has_left() -> None:
    site = placed()
    before, old = names(site), site.uuid_of("r01t01")
    for name in R01:
        site.attach(name, NEW_UUID)
    site.down.add("r01t04")
    site.discover()
    site.down.clear()
    assert (site.discover().changes, names(site)) == ([], before)
    site.attach("r01t04", old)
    placement = site.discover()
    assert (kinds(placement), objections(placement)) == ({"r01t04": "moved"}, ["domain_split"])


def test_a_replaced_tray_that_reports_the_old_uuid_keeps_the_domain() -> None:
    site = placed()
    for name in R01[1:]:
        site.attach(name, NEW_UUID)
    replace_gpus(site, "r01t01")
    assert objections(site.discover()) == ["domain_split"]


# --- what is not the same domain ---


def test_domains_that_exchange_their_uuids_are_one_objection() -> None:
    """Of many racks these are few trays, and the names of two of them would change without a person."""
    site = placed(racks=12)
    uuids = [site.uuid_of("r01t01"), site.uuid_of("r02t01")]
    for name in (*R01, *R02):
        site.attach(name, uuids[name in R01])
    placement = site.discover()
    assert objections(placement) == ["domain_uuid_changed"]
    assert "All trays of r01, r02 report" in placement.objections[0]["message"]


def test_all_trays_of_two_racks_swapped_move() -> None:
    site = placed()
    one, other = site.uuid_of("r01t01"), site.uuid_of("r02t01")
    for name in R01:
        site.attach(name, other)
    for name in R02:
        site.attach(name, one)
    assert set(kinds(site.discover()).values()) == {"moved"}
    assert {name: row["cluster_uuid"] for name, row in site.fabric.domains.items()} == {"r01": one, "r02": other}


def test_gpus_replaced_tray_by_tray_do_not_rename_and_the_last_ones_are_known() -> None:
    site = placed()
    before = names(site)
    for number, name in enumerate(R01):
        replace_gpus(site, name, start=10 * number)
        assert site.discover().objections == []
    for name in R01:
        site.attach(name, NEW_UUID)
    assert objections(site.discover()) == ["domain_uuid_changed"]
    assert names(site) == before


def test_domains_that_share_a_chassis_stay_distinct() -> None:
    site = Site(policy=Policy(moved_percent=100))
    for facts in site.facts.values():
        facts["chassis_serial"] = "1820000000001"
    site.discover()
    before, one = names(site), site.uuid_of("r01t01")
    for name in R02:
        site.attach(name, NEW_UUID)
    assert objections(site.discover()) == ["domain_uuid_changed"]
    assert names(site) == before
    assert site.fabric.domains["r01"]["cluster_uuid"] == one


def test_a_domain_with_a_new_uuid_and_new_gpus_is_a_new_one_that_a_gate_stops() -> None:
    site = placed()
    for name in R01:
        site.attach(name, NEW_UUID)
    replace_gpus(site, *R01)
    placement = site.discover()
    assert [row["message"] for row in placement.objections] == [
        f"All trays of NVLink domain r01 join r03 with the cluster UUID {NEW_UUID}, and too few of their GPUs are "
        "known to keep the name; check which trays these are before you accept it."
    ]


def test_two_domains_that_join_in_a_new_one_merge() -> None:
    site = placed()
    for name in (*R01, *R02):
        site.attach(name, NEW_UUID)
    assert objections(site.discover()) == ["domain_merged"]
    assert {site.clique_of(name) for name in site.facts} == {"r03"}


def test_a_recognised_domain_with_another_chassis_is_an_objection_too() -> None:
    site = placed()
    for name in R01:
        site.attach(name, NEW_UUID)
        site.facts[name]["chassis_serial"] = "1899999999999"
    assert sorted(objections(site.discover())) == ["chassis_added", "domain_uuid_changed"]


def test_a_source_without_gpus_is_recognised_by_the_known_ones() -> None:
    site = placed()
    before = names(site)
    for name in R01:
        site.attach(name, NEW_UUID)
        site.site[name] = {"gpu_uuids": ()}
    assert objections(site.discover()) == ["domain_uuid_changed"]
    assert names(site) == before


# --- clique IDs ---


def split(site: Site, **ids: int) -> None:
    for name, clique_id in ids.items():
        site.attach(name, clique_id=clique_id)


@pytest.mark.parametrize("ids", [(3, 4), (2, 1), (0, 2)])
def test_cliques_with_other_ids_keep_names_and_blocks(ids: tuple[int, int]) -> None:
    site = placed(racks=1, cliques_per_rack=2)
    before = names(site)
    split(site, r01t01=ids[0], r01t02=ids[0], r01t03=ids[1], r01t04=ids[1])
    placement = site.discover()
    assert (names(site), placement.changes, objections(placement)) == (before, [], ["clique_id_changed"])
    text = ", ".join(
        f"{name} {old} -> {new}" for name, old, new in zip(("r01a", "r01b"), (1, 2), ids, strict=True) if old != new
    )
    assert placement.objections[0]["message"] == (
        f"NVLink domain r01 has other clique IDs ({text}) with the same GPUs, as after its partitions were created "
        "again; accept the proposal to keep their names and blocks if that is the cause."
    )
    assert site.discover().objections == []


def test_a_new_uuid_with_other_clique_ids_is_one_objection() -> None:
    site = placed(racks=1, cliques_per_rack=2)
    before = names(site)
    for name in R01:
        site.attach(name, NEW_UUID)
    split(site, r01t01=5, r01t02=5, r01t03=6, r01t04=6)
    placement = site.discover()
    assert (names(site), placement.changes, objections(placement)) == (before, [], ["domain_uuid_changed"])
    assert ", and other clique IDs (r01a 1 -> 5, r01b 2 -> 6), with the same GPUs" in placement.objections[0]["message"]


def test_a_clique_of_which_a_part_leaves_keeps_its_id() -> None:
    site = placed(racks=1)
    split(site, r01t01=5, r01t02=5, r01t03=5)
    placement = site.discover()
    assert (kinds(placement), placement.objections) == (dict.fromkeys(R01[:3], "moved"), [])
    assert site.fabric.cliques["r01"]["clique_id"] == 32766


def test_the_larger_part_of_a_clique_that_divides_keeps_its_name() -> None:
    site = placed(racks=1)
    split(site, r01t01=5, r01t02=5, r01t03=5, r01t04=6)
    placement = site.discover()
    assert (kinds(placement), objections(placement)) == ({"r01t04": "moved"}, ["clique_id_changed"])
    assert {name: row["clique_id"] for name, row in site.fabric.cliques.items()} == {"r01": 5, "r01a": 6}


def test_a_clique_of_one_tray_is_another_one_under_another_id() -> None:
    site = placed(racks=1, cliques_per_rack=4)
    split(site, r01t01=50)
    assert kinds(site.discover()) == {"r01t01": "moved"}


def test_a_clique_whose_trays_join_another_domain_moves_there() -> None:
    site = placed(cliques_per_rack=2)
    for name in R02[:2]:
        site.attach(name, site.uuid_of("r01t01"), clique_id=9)
    before = site.fabric.cliques
    placement = site.discover()
    assert kinds(placement) == dict.fromkeys(R02[:2], "moved")
    assert before.items() <= placement.fabric.cliques.items()


def test_gpus_in_different_cliques_do_not_renumber_the_clique_of_their_tray() -> None:
    site = placed(racks=1, trays_per_rack=1)
    for gpu in site.gpus("r01t01")[1:]:
        gpu["fabric"]["clique_id"] = 7
    site.policy = Policy(moved_percent=100, conflict_policy="majority", override=["mixed_cliques"])
    placement = site.discover()
    assert (kinds(placement), objections(placement)) == ({"r01t01": "moved"}, [])
    assert [row["gate"] for row in placement.fabric.overrides] == ["mixed_cliques"]


@pytest.mark.parametrize("down", [(), ("r01t01",)])
def test_no_clique_is_recognised_where_two_join_under_a_new_id(down: tuple[str, ...]) -> None:
    site = placed(cliques_per_rack=2)
    before = names(site)[0]
    for name in R01:
        site.attach(name, clique_id=9)
    site.down = set(down)
    site.discover()
    assert {name for name in R01 if names(site)[0][name] == before[name]} == set(down)
