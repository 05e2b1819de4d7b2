# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVLink domains that are split per tray; test_identity.py has the scenarios of each policy."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.inventory_vars import plan
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.placement import Placement
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import Policy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import blocks as slurm_blocks
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.fabric.test_placement import Site
from hypothesis import given
from hypothesis import strategies as st

R01 = [f"r01t{tray:02d}" for tray in range(1, 19)]
SPLIT, WHOLE = R01[6:], R01[:6]


def placed(policy: str = "ask", **simulation: Any) -> Site:
    site = Site(**{"racks": 2, "trays_per_rack": 18, **simulation})
    site.discover()
    site.policy = Policy(moved_percent=100, tray_partitions=policy)
    return site


def split(site: Site, trays: list[str]) -> None:
    """Put each of these trays into a partition of its own."""
    for clique_id, name in enumerate(trays, 100):
        site.attach(name, clique_id=clique_id)


def in_blocks(site: Site) -> dict[str, list[str]]:
    """The blocks with nodes in Slurm's topology."""
    assert site.fabric
    return {block.name: list(block.nodes) for block in slurm_blocks.blocks(site.fabric) if block.nodes}


def codes(placement: Placement) -> list[str]:
    return [row["code"] for row in placement.objections]


@given(
    ids=st.lists(st.lists(st.sampled_from([1, 2, 9, 32766]), min_size=5, max_size=5), min_size=1, max_size=4),
    silent=st.sets(st.sampled_from(R01[:5])),
)
def test_partitions_that_are_changed_on_purpose_keep_their_names(ids: list[list[int]], silent: set[str]) -> None:
    """However trays move, and whichever of them answer, no clique of the fabric file gets another ID."""
    site = placed(racks=1, trays_per_rack=5)
    assert site.fabric
    fabric = site.fabric
    for step in ids:
        moves = dict(zip(R01[:5], step, strict=True))
        for name, clique_id in moves.items():
            site.attach(name, clique_id=clique_id)
        site.down, site.policy = silent, Policy(moved_percent=100, tray_partitions="own_block", moves=moves)
        before, fabric = fabric, site.discover().fabric
        assert {name: row["clique_id"] for name, row in fabric.cliques.items()}.items() >= {
            name: row["clique_id"] for name, row in before.cliques.items()
        }.items()
        there = {name: fabric.cliques[tray["clique"]]["clique_id"] for name, tray in fabric.trays.items()}
        was = {name: before.cliques[tray["clique"]]["clique_id"] for name, tray in before.trays.items()}
        assert there == {**moves, **{name: was[name] for name in silent}}


@pytest.mark.parametrize(
    ("trays", "alone", "objects"), [(18, 8, False), (18, 9, True), (4, 1, False), (3, 2, True), (2, 1, False)]
)
def test_at_least_half_of_the_trays_are_alone(trays: int, alone: int, objects: bool) -> None:
    site = placed(trays_per_rack=trays)
    split(site, R01[:alone])
    assert codes(site.discover()) == ["tray_partitions"] * objects


@pytest.mark.parametrize(("down", "objects"), [(R01[2:4], False), (R01[3:4], True), (R01[:0], True)])
def test_trays_that_gave_no_answer_yet_may_share_the_cliques(down: list[str], objects: bool) -> None:
    site = Site(racks=1, trays_per_rack=4)
    split(site, R01[:3])
    site.down = set(down)
    assert codes(site.discover()) == ["tray_partitions"] * objects
    # A tray that has its place is where the fabric file has it, also while it is down.
    site.down = set(R01[3:4])
    assert site.discover().objections == []


def test_leave_out_leaves_them_out_of_the_blocks_until_they_join_again() -> None:
    site = placed("leave_out")
    before = in_blocks(site)
    split(site, SPLIT)
    placement = site.discover()
    assert placement.objections == []
    assert in_blocks(site) == {**before, "r01": WHOLE}
    assert [placement.fabric.block_of.get(name) for name in SPLIT] == [None] * len(SPLIT)
    hosts = plan(placement.fabric, placement.state)
    assert len(hosts.hosts) == 36
    assert hosts.groups[f"nvlink_clique_{site.clique_of(SPLIT[0])}"].vars["nvlink_block"] is None
    assert hosts.groups["nvlink_clique_r01"].vars["nvlink_block"] == "r01"
    written = fabric_file.serialise(placement.fabric)
    assert fabric_file.parse(written, "fabric.json") == placement.fabric
    for name in SPLIT:
        site.attach(name, clique_id=32766)
    site.discover()
    assert in_blocks(site) == before


def test_a_partition_of_two_trays_has_a_block() -> None:
    site = placed("leave_out")
    split(site, SPLIT)
    site.attach(SPLIT[1], clique_id=100)
    site.discover()
    assert list(in_blocks(site).values()) == [WHOLE, [f"r02t{tray:02d}" for tray in range(1, 19)], SPLIT[:2]]
