# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cliques that are split into several blocks of Slurm's topology (slurm_topology_split)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.action import slurm_tiers
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import SlurmError, Topology
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import differences, editing, fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.inventory_vars import plan
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric, State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import PlacementError, Policy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.split import applied
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import metrics, report
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import DEFAULT
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import blocks as slurm_blocks
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import capacity, linter, plan_gates, tiers
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.fabric.test_placement import Site, kinds
from hypothesis import assume, given
from hypothesis import strategies as st

R01 = [f"r01t{tray:02d}" for tray in range(1, 19)]
R02 = [f"r02t{tray:02d}" for tray in range(1, 19)]
BY_NAME = {"r01": {"r01a": "r01t[01-14]", "r01b": ["r01t[15-16]", "r01t[17-18]"]}}


def whole() -> Fabric:
    site = Site(racks=2, trays_per_rack=18)
    return site.discover().fabric


WHOLE = whole()


def in_blocks(fabric: Fabric, cluster: str | None = None) -> dict[str, tuple[int, int]]:
    """Block -> its position and the number of its trays."""
    return {view.name: (view.position, len(view.trays)) for view in fabric.slurm_blocks(cluster)}


def written(fabric: Fabric) -> Fabric:
    """The fabric as its file is read again."""
    document = json.loads(fabric_file.serialise(fabric))
    fabric_file.check(document, "fabric.json")
    return Fabric.from_dict(document)


def test_sizes_take_the_trays_in_the_order_of_their_names() -> None:
    made = written(applied(WHOLE, {"r01": [14, 4]}))
    assert in_blocks(made) == {"r01": (0, 14), "r02": (1, 18), "r01-2": (2, 4)}
    assert [name for name, row in made.trays.items() if "block" in row] == R01[14:]
    assert made.block_of.get("r01t14") == {"name": "r01", "position": 0}
    assert made.block_of.get("r01t15") == {"name": "r01-2", "position": 2}
    # The clique stays: its trays, its identity and with these IMEX and the label.
    assert made.members == WHOLE.members
    assert made.clique_text("r01") == WHOLE.clique_text("r01")
    assert [view.trays for view in made.blocks()] == [view.trays for view in WHOLE.blocks()]


def test_blocks_by_name_leave_the_own_block_as_a_placeholder() -> None:
    made = written(applied(WHOLE, BY_NAME))
    assert in_blocks(made) == {"r01": (0, 0), "r02": (1, 18), "r01a": (2, 14), "r01b": (3, 4)}
    own = written(applied(WHOLE, {"r01": {"small": "r01t[15-18]", "r01": "r01t[01-14]"}}))
    assert in_blocks(own) == {"r01": (0, 14), "r02": (1, 18), "small": (2, 4)}


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (
            {"r01": [14, 3]},
            "the sizes [14, 3] of r01 are 17 trays in all, and the fabric file has 18 there; correct",
        ),
        ({"r01": [14, 4, 1]}, "the sizes [14, 4, 1] of r01 are 19 trays in all"),
        ({"r01": [18, 0]}, "r01 is [18, 0]; write the sizes of its blocks, as in [14, 4], or their names"),
        ({"r01": []}, "r01 is []; write"),
        ({"r01": [True] * 18}, "r01 is [True"),
        ({"r01": "14,4"}, "r01 is '14,4'; write"),
        ({"r01": None}, "r01 is None; write"),
        ({"r1": [14, 4]}, "'r1' is no clique of the fabric file; did you mean r01?"),
        ({7: [14, 4]}, "7 is no clique of the fabric file"),
        ({"r01": {"a": "r01t[01-14]", "b": "r01t[14-18]"}}, "r01 has trays in two blocks, r01t14; list each"),
        ({"r01": {"a": "r01t[01-14]"}}, "r01 has trays in no block, r01t15, r01t16, r01t17, r01t18; list each"),
        ({"r01": {"a": "r01t[01-18],r02t01"}}, "r01 has trays that are not in the clique, r02t01; list each"),
        ({"r01": {"a": "r01t[01-", "b": ""}}, "a is not a hostlist"),
        ({"r01": {"a": {"trays": "r01t[01-18]"}}}, "a is not a hostlist (it is a mapping); write it as r01t[01-14]"),
        ({"r01": {"a": "r01t[01-18]", "b": []}}, "'b' of r01 has no tray; list its trays, or leave it out"),
        ({"r01": {"r02": "r01t[01-18]"}}, "r02 is another block's name; choose another one for r01"),
        ({"r01": {"a b": "r01t[01-18]"}}, "'a b' is no block name; use letters, digits, . _ and -"),
        ({"r01": {"a": "r01t[01-18]"}, "r02": {"a": "r02t[01-18]"}}, "a is another block's name"),
    ],
)
def test_a_split_that_does_not_fit_is_refused_in_one_sentence(wanted: Mapping[Any, Any], message: str) -> None:
    with pytest.raises(PlacementError, match=f"^slurm_topology_split: {re.escape(message)}") as refused:
        applied(WHOLE, wanted)
    assert "\n" not in str(refused.value)


SIZES = st.lists(st.integers(1, 18), min_size=1, max_size=18).map(
    lambda sizes: [size for at, size in enumerate(sizes) if sum(sizes[: at + 1]) <= 18]
)
_NAMES = ("r01", "r01a", "r01-2", "small", "r02x", "r02")


def named(blocks: list[int], clique: str, trays: list[str]) -> dict[str, dict[str, list[str]]]:
    parts: dict[str, list[str]] = {}
    for number, tray in zip(blocks, trays, strict=True):
        parts.setdefault(_NAMES[number], []).append(tray)
    return {clique: parts}


SPLITS = st.one_of(
    st.none(),
    st.just({}),
    SIZES.map(lambda sizes: {"r01": [*sizes, *([18 - sum(sizes)] if sum(sizes) < 18 else [])]}),
    SIZES.map(lambda sizes: {"r02": [*sizes, *([18 - sum(sizes)] if sum(sizes) < 18 else [])], "r01": [9, 9]}),
    st.lists(st.integers(0, 5), min_size=18, max_size=18).map(lambda row: named(row, "r01", R01)),
    st.lists(st.integers(0, 5), min_size=18, max_size=18).map(lambda row: named(row, "r02", R02)),
)


@given(st.lists(SPLITS, min_size=1, max_size=6))
def test_each_tray_is_in_one_block_and_names_are_given_once(history: list[Any]) -> None:
    fabric, given_once = WHOLE, dict[str, tuple[int, str]]()
    for wanted in history:
        try:
            made = written(applied(fabric, wanted))
        except PlacementError:
            # Another clique has the name.
            taken = {view.name for view in fabric.slurm_blocks() if view.clique not in (wanted or {})}
            assert taken.intersection(*map(dict.keys, (wanted or {}).values()))
            continue
        views = made.slurm_blocks()
        of_trays = [tray for view in views for tray in view.trays]
        assert sorted(of_trays) == sorted(made.trays), "a tray is in no block, or in two"
        for view in views:
            assert {made.trays[tray]["clique"] for tray in view.trays} <= {view.clique}, "a block of two cliques"
            given_to = view.position, view.clique
            assert given_once.setdefault(view.name, given_to) == given_to, "a name or position was given again"
            for tray in view.trays:
                assert made.block_of.get(tray) == {"name": view.name, "position": view.position}
        assert given_once.keys() == {view.name for view in views}, "a block was dropped"
        positions = [view.position for view in views]
        assert positions == sorted(set(positions))
        if wanted is None:
            assert made == fabric
        for clique, split in (wanted or {}).items():
            numbers = [len(view.trays) for view in views if view.clique == clique and view.trays]
            sizes = split if isinstance(split, list) else [len(trays) for trays in split.values()]
            assert sorted(numbers) == sorted(sizes)
        # The same wish again changes nothing, and neither does the order in which it is written.
        assert applied(made, wanted) == made
        assert applied(made, wanted and dict(reversed(wanted.items()))) == made
        assert made.members == WHOLE.members
        fabric = made


@given(SIZES, SIZES)
def test_a_split_that_is_taken_back_gets_its_names_again(first: list[int], second: list[int]) -> None:
    assume(sum(first) == sum(second) == 18)
    once = applied(WHOLE, {"r01": first})
    between = applied(applied(once, {"r01": second}), {})
    assert not between.is_split
    again = applied(between, {"r01": first})
    assert {name: at for name, at in in_blocks(again).items() if at[1]} == in_blocks(once)


def test_a_file_without_a_split_does_not_change_by_a_byte() -> None:
    for wanted in (None, {}, {"r01": [18]}, {"r02": {"r02": "r02t[01-18]"}}):
        assert fabric_file.serialise(applied(WHOLE, wanted)) == fabric_file.serialise(WHOLE)


# ------------------------------------------------------------------------------------------------------ discoveries


def split_site() -> Site:
    site = Site(racks=2, trays_per_rack=18)
    site.discover()
    site.policy = Policy(slurm_topology_split={"r01": [14, 4]})
    return site


def test_a_discovery_proposes_the_split_and_keeps_it_without_the_variable() -> None:
    site = split_site()
    proposed = site.discover()
    assert kinds(proposed) == dict.fromkeys(R01[14:], "block")
    assert not proposed.objections
    assert differences.diff_text(WHOLE, proposed.fabric) == [
        *(f"{name}: r01 (block none -> r01-2)" for name in R01[14:]),
        "clique r01: split_blocks none -> r01-2 2",
    ]
    site.policy = Policy()
    site.down = {"r01t15"}
    assert site.discover().fabric == proposed.fabric
    site.policy = Policy(slurm_topology_split={})
    assert in_blocks(site.discover().fabric) == {"r01": (0, 18), "r02": (1, 18), "r01-2": (2, 0)}


def test_a_tray_that_changes_its_clique_leaves_its_block() -> None:
    site = split_site()
    site.discover()
    site.policy = Policy(moved_percent=100)
    site.attach("r01t18", uuid=site.uuid_of("r02t01"))
    moved = site.discover().fabric
    assert "block" not in moved.trays["r01t18"]
    assert in_blocks(moved) == {"r01": (0, 14), "r02": (1, 19), "r01-2": (2, 3)}


def test_a_new_clique_gets_no_name_or_position_of_a_split_block() -> None:
    site = split_site()
    site.policy = replace(site.policy, slurm_topology_split={"r01": {"r03": "r01t[01-18]"}})
    site.discover()
    site.policy = Policy(domain_names={"12345678-1234-4234-8234-123456789abc": "r03"}, moved_percent=100)
    for name in R02[:9]:
        site.attach(name, uuid="12345678-1234-4234-8234-123456789abc")
    fabric = site.discover().fabric
    assert in_blocks(fabric) == {"r01": (0, 0), "r02": (1, 9), "r03": (2, 18), "r03_2": (3, 9)}


def test_a_tray_that_is_removed_leaves_the_sizes_to_be_corrected() -> None:
    site = split_site()
    site.discover()
    site.fabric = editing.remove(site.fabric, ["r01t18"])
    del site.facts["r01t18"]
    with pytest.raises(PlacementError, match="are 18 trays in all, and the fabric file has 17 there"):
        site.discover()
    renamed, _changes = editing.rename(site.fabric, {"r01t17": "r01t99"}, "2026-11-21")
    assert renamed.trays["r01t99"]["block"] == "r01-2"


def test_several_slurm_clusters_share_a_clique_that_is_split() -> None:
    site = Site(racks=2, trays_per_rack=4)
    site.site = {name: {"slurm_cluster": "alpha" if name <= "r01t03" else "beta"} for name in site.facts}
    site.policy = Policy(slurm_topology_split={"r01": [2, 2]}, moved_percent=100)
    fabric = written(site.discover().fabric)
    assert in_blocks(fabric, "alpha") == {"r01": (0, 2), "r01-2": (2, 1)}
    assert {name: trays for name, (_at, trays) in in_blocks(fabric, "beta").items()} == {"r01": 0, "r02": 4, "r01-2": 1}
    hosts = plan(fabric, None).hosts
    assert [hosts[f"r01t0{tray}"]["nvlink_block"] for tray in (1, 2, 3, 4)] == ["r01", "r01", "r01-2", "r01-2"]
    site.site["r01t04"] = {"slurm_cluster": ""}
    assert site.discover().fabric.block_of.get("r01t04") is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"trays": {"r01t15": "r02"}},
            "trays.r01t15.block is r02, which its clique's split_blocks lack; correct it",
        ),
        ({"trays": {"r02t01": "r01-2"}}, "trays.r02t01.block is r01-2, which its clique's split_blocks lack"),
        ({"split": {"r01-2": 1}}, "cliques.r01.split_blocks.r01-2.position is 1, the same as cliques.r02.block.pos"),
        ({"split": {"r01-2": 2, "r02": 3}}, "cliques.r01.split_blocks.r02.name is r02, the same as cliques.r02.block"),
        ({"split": {"r01-2": 2, "a b": 3}}, "cliques.r01.split_blocks has the name 'a b'"),
    ],
)
def test_a_file_that_was_edited_wrongly_is_refused(change: dict[str, Any], message: str) -> None:
    document = json.loads(fabric_file.serialise(applied(WHOLE, {"r01": [14, 4]})))
    document["cliques"]["r01"]["split_blocks"] = change.get("split", {"r01-2": 2})
    for tray, block in change.get("trays", {}).items():
        document["trays"][tray]["block"] = block
    with pytest.raises(fabric_file.FabricFileError, match=re.escape(message)):
        fabric_file.check(document, "fabric.json")


# ---------------------------------------------------------------------------------------------------- who reads it


def test_the_inventory_has_the_block_on_the_hosts_of_a_split_clique_alone() -> None:
    made = plan(applied(WHOLE, {"r01": [14, 4]}), None)
    assert "nvlink_block" not in made.groups["nvlink_clique_r01"].vars
    assert [made.hosts[name]["nvlink_block"] for name in R01] == ["r01"] * 14 + ["r01-2"] * 4
    assert made.groups["nvlink_clique_r02"].vars["nvlink_block"] == "r02"
    assert all("nvlink_block" not in made.hosts[name] for name in R02)
    # A split that was taken back.
    back = plan(applied(applied(WHOLE, {"r01": [14, 4]}), {}), None)
    assert back.groups == plan(WHOLE, None).groups
    assert back.hosts == plan(WHOLE, None).hosts


@pytest.mark.parametrize(
    ("wanted", "newer", "older"),
    [
        ({}, 18, 18),
        ({"r01": [14, 4]}, 18, 4),
        ({"r01": [14, 4], "r02": [9, 9]}, 14, 4),
    ],
)
def test_a_lower_base_block_size_is_reported(wanted: dict[str, Any], newer: int, older: int) -> None:
    made = slurm_blocks.blocks(applied(WHOLE, wanted))
    for base, version in ((newer, (26, 5, 5)), (older, (24, 11, 5))):
        sizes, found = linter.choose_sizes(made, version)
        assert sizes == (base,)
        lowered = [row["values"] for row in found if row["case"] == "split"]
        assert [(row["base"], row["whole"]) for row in lowered] == ([(base, 18)] if base < 18 else [])
        assert linter.choose_sizes(made, version, (base,))[1] == []


def gates_of(before: Fabric, after: Fabric) -> list[str]:
    """The gates that object to the change of the running blocks."""
    live, planned = (Topology(blocks=slurm_blocks.blocks(fabric)) for fabric in (before, after))
    return [row["code"] for row in plan_gates.check(live, planned, [*WHOLE.trays], ())]


def test_the_gates_of_the_topology_let_a_split_pass_inside_its_clique() -> None:
    for wanted in ({"r01": [14, 4]}, BY_NAME, {"r01": [6, 6, 6], "r02": [1, 17]}):
        made = applied(WHOLE, wanted)
        assert gates_of(WHOLE, made) == gates_of(made, applied(made, {})) == []
        assert gates_of(made, applied(made, {"r01": [9, 9]})) == []
    # Trays that leave the clique are another matter.
    made = applied(WHOLE, {"r01": [14, 4]})
    assert gates_of(made, editing.remove(made, R01[12:14])) == ["block_shrinks"]
    assert gates_of(made, editing.remove(made, R01[14:])) == ["block_vanishes"]
    assert gates_of(made, WHOLE) == ["block_vanishes"]


def test_tiers_take_the_blocks_of_a_split_clique() -> None:
    made, cliques = slurm_tiers._blocks(applied(WHOLE, {"r01": [14, 4], "r02": {"half": "r02t[01-18]"}}), None)
    given = [{"name": "small", "blocks": ["r01-2"]}, {"name": "rack", "cliques": ["r01", "r02"]}]
    small, rack = tiers.build(given, made, cliques, (26, 5, 5)).partitions
    assert (small.blocks, list(small.nodes)) == (("r01-2",), R01[14:])
    assert sorted(rack.nodes) == [*R01, *R02]
    per_block = tiers.build([{"name": "rack", "cliques": ["r01"], "per_block": True}], made, cliques, (26, 5, 5))
    assert [row.name for row in per_block.partitions] == ["rack_r01", "rack_r01-2"]
    back = slurm_tiers._blocks(applied(applied(WHOLE, {"r01": [14, 4]}), {}), None)
    with pytest.raises(SlurmError, match="the block r01-2 has no tray, leave it out"):
        tiers.build(given[:1], *back, (26, 5, 5))


def test_report_and_metrics_name_the_blocks_of_a_split_clique() -> None:
    fabric = applied(WHOLE, {"r01": [14, 4]})
    page = report.render(fabric, State(), DEFAULT)[report.PAGE]
    assert "r01 at position 0, 14 trays" in page
    assert "r01-2 at position 2, 4 trays" in page
    assert "The largest job inside one block has 18 trays." in page
    assert capacity.base_size(fabric, "").startswith("Base block size: 18, the size of the largest block (Slurm 25.05")
    text = metrics.render(fabric, State(), DEFAULT)["metrics/nvlink_fabric.prom"]
    assert 'nvlink_block_trays{clique="r01",domain="r01",block="r01-2"} 4' in text
    assert 'nvlink_block_trays{clique="r01",domain="r01",block="r01"} 14' in text
    for of in (WHOLE, applied(WHOLE, {})):
        assert "nvlink_block_trays" not in metrics.render(of, State(), DEFAULT)["metrics/nvlink_fabric.prom"]
        assert "The largest job inside one clique has 18 trays." in report.render(of, State(), DEFAULT)[report.PAGE]
