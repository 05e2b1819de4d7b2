# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Trays of a fabric file under other names, and without some of them."""

from __future__ import annotations

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import editing, fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.fabric_file import FabricFileError

from ..fabrics import fabric

TWO = fabric(racks=1, trays=3, split=())
TODAY = "2026-11-21"


def test_a_renamed_tray_keeps_its_place_and_its_names_elsewhere() -> None:
    after, changes = editing.rename(TWO, {"r01t02": "left"}, TODAY)
    assert {**after.trays["left"], "why": ""} == {**TWO.trays["r01t02"], "why": ""}
    assert sorted(after.trays) == ["left", "r01t01", "r01t03"]
    assert [(row["tray"], row["kind"], row["why"]) for row in changes] == [
        ("left", "name", "renamed 2026-11-21 from r01t02")
    ]
    assert editing.rename(after, {"r01t02": "left"}, TODAY) == (after, []), "a second time changes nothing"
    fabric_file.check(after.as_dict(), "fabric.json")


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ({"r01t2": "left"}, "rename: 'r01t2' is not a tray of the fabric file; did you mean r01t02"),
        ({"r01t02": "r01t03"}, "rename: 'r01t03' is already a tray of the fabric file"),
        ({"r01t02": "a b"}, "rename: 'a b' is not valid in a Slurm hostlist"),
    ],
)
def test_an_invalid_name_is_rejected(names: dict[str, str], problem: str) -> None:
    with pytest.raises(FabricFileError) as failure:
        editing.rename(TWO, names, TODAY)
    assert str(failure.value).startswith(problem)


def test_a_removed_tray_keeps_its_clique_and_block() -> None:
    after, changes = editing.remove(TWO, list(TWO.trays), TODAY)
    assert (after.trays, after.cliques, [row["tray"] for row in changes]) == ({}, TWO.cliques, list(TWO.trays))
    assert editing.remove(after, list(TWO.trays), TODAY) == (after, [])
    fabric_file.check(after.as_dict(), "fabric.json")


SPLIT = fabric(racks=3, trays=2, split=(2,))


def test_both_cliques_of_a_rack_get_a_group_that_is_named_like_a_domain() -> None:
    after, lines = editing.group(SPLIT, {"pod1": ["r01", "r02"]})
    assert {name: row.get("group") for name, row in after.cliques.items()} == {
        **dict.fromkeys(("r01", "r02a", "r02b"), "pod1"),
        "r03": None,
    }
    assert len(lines) == 3
    after, _lines = editing.group(SPLIT, {"pod 1": ["r01"]})
    with pytest.raises(FabricFileError, match=r"cliques\.r01\.group must be the name of a level above the clique"):
        fabric_file.check(after.as_dict(), "fabric.json")


@pytest.mark.parametrize(
    ("groups", "problem"),
    [
        ({"pod1": ["r1"]}, "groups: 'r1' is no clique of the fabric file; did you mean r01"),
        ({"pod1": ["r02"], "pod2": ["r02a"]}, "groups: r02a is in pod1 and pod2; list it once"),
    ],
)
def test_invalid_groups_are_rejected(groups: dict[str, list[str]], problem: str) -> None:
    with pytest.raises(FabricFileError) as failure:
        editing.group(SPLIT, groups)
    assert str(failure.value).startswith(problem)
