# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Render Slurm's topology files from the fabric file alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import Topology
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import editing
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric, State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import slurm_files
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import blocks as slurm_blocks
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import linter
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics
from hypothesis import given
from hypothesis import strategies as st

YAML_FILE, CONF_FILE = "slurm/topology.yaml", "slurm/topology.conf"


def render(fabric: Fabric, **changes: dict[str, Any]) -> dict[str, str]:
    return slurm_files.render(fabric, fabrics.state(fabric, **changes))


def test_a_split_rack_is_two_blocks_in_the_order_of_their_positions() -> None:
    texts = render(fabrics.fabric())
    (topology,) = yaml.safe_load(texts[YAML_FILE])
    assert topology == {
        "topology": "nvlink",
        "cluster_default": True,
        "block": {
            "block_sizes": [18],
            "blocks": [
                {"block": "r01", "nodes": "r01t[01-18]"},
                {"block": "r02a", "nodes": "r02t[01-09]"},
                {"block": "r02b", "nodes": "r02t[10-18]"},
            ],
        },
    }
    lines = texts[CONF_FILE].splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        "BlockName=r01 Nodes=r01t[01-18]",
        "BlockName=r02a Nodes=r02t[01-09]",
        "BlockName=r02b Nodes=r02t[10-18]",
        "BlockSizes=9",
    ]


def grouped(fabric: Fabric, **groups: str) -> Fabric:
    return editing.group(fabric, {name: expand(cliques) for name, cliques in groups.items()})


def test_groups_that_slurm_cannot_aggregate_are_not_rendered() -> None:
    fabric = fabrics.fabric(racks=4, split=())
    for groups in ({"east": "r[01-02]"}, {"east": "r[01-04]"}):
        assert render(grouped(fabric, **groups))
    wrong = grouped(fabric, east="r[01-03]", west="r04")
    assert render(wrong) == {}
    (found,) = [row for row in slurm_files.findings(wrong, State()) if row["code"] == "slurm_block_size"]
    assert found["message"] == (
        "Slurm cannot aggregate the groups of cliques, since group east has 3 blocks and west 1: give all groups the"
        " same number of blocks, 1, 2, 4, 8 and so on, in the fabric file (playbook accept, variable edit_groups), or"
        " set block_sizes (variable slurm_topology_block_sizes) to 18 alone."
    )


@given(data=st.data(), groups=st.integers(1, 6), level=st.integers(0, 3), retired=st.integers(0, 3))
def test_aggregated_blocks_are_the_groups(data: st.DataObject, groups: int, level: int, retired: int) -> None:
    """In whatever order the cliques were discovered; cliques without trays and group take the end."""
    number = 1 << level
    of = fabrics.fabric(racks=groups * number + retired, trays=1, split=())
    order = data.draw(st.permutations(sorted(of.cliques)))
    members = {f"g{group}": order[group * number :][:number] for group in range(groups)}
    away = set(order[groups * number :])
    of = dataclasses.replace(of, trays={name: row for name, row in of.trays.items() if row["clique"] not in away})
    of = editing.group(of, members)
    blocks = slurm_blocks.blocks(of)
    sizes, found = linter.choose_sizes(blocks, (26, 5, 5))
    assert not found
    assert sizes == ((1,) if number == 1 else (1, number))
    aggregates = [
        set(names) - away
        for size, names in linter.aggregates(Topology(blocks=blocks, block_sizes=sizes), 1)
        if size > 1
    ]
    assert sorted(map(sorted, filter(None, aggregates))) == (
        [] if number == 1 else sorted(sorted(cliques) for cliques in members.values())
    )


def test_blocks_do_not_depend_on_which_trays_are_up() -> None:
    fabric = fabrics.fabric()
    down = {f"r01t{tray:02d}": {"state": "stale", "health": "unknown"} for tray in range(1, 19)}
    assert render(fabric, **down) == render(fabric)
    assert slurm_files.render(fabric, State()) == render(fabric)


def test_a_retired_clique_keeps_its_position_from_25_05() -> None:
    whole = fabrics.fabric()
    fabric = dataclasses.replace(
        whole, trays={name: tray for name, tray in whole.trays.items() if tray["clique"] != "r02a"}
    )
    texts = render(fabric)
    (topology,) = yaml.safe_load(texts[YAML_FILE])
    assert topology["block"]["blocks"][1] == {"block": "r02a"}
    assert "r02a" not in texts[CONF_FILE]
    codes = {finding["code"] for finding in slurm_files.findings(fabric, fabrics.state(fabric))}
    assert codes == {"release_old", "slurm_clique_above_base"}


def test_blocks_have_node_names_and_not_inventory_names() -> None:
    fabric = fabrics.fabric(racks=1, trays=2, split=())
    for name, tray in fabric.trays.items():
        tray["slurm_node"] = f"gpu-{name}"
    assert "nodes: gpu-r01t[01-02]" in render(fabric)[YAML_FILE]


@pytest.mark.parametrize(
    ("name", "code"),
    [("r01t02", "slurm_block_overlap"), ("r01 t01", "slurm_block_invalid"), ("r01t[01-02]", "slurm_block_invalid")],
)
def test_an_invalid_topology_is_not_rendered(name: str, code: str) -> None:
    fabric = fabrics.fabric(racks=1, trays=2, split=())
    fabric.trays["r01t01"]["slurm_node"] = name
    assert render(fabric) == {}
    assert code in {finding["code"] for finding in slurm_files.findings(fabric, fabrics.state(fabric))}
