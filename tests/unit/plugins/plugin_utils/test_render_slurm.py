# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Render Slurm's topology files from the fabric file alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric, State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import slurm
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

YAML_FILE, CONF_FILE = "slurm/topology.yaml", "slurm/topology.conf"


def render(fabric: Fabric, **changes: dict[str, Any]) -> dict[str, str]:
    return slurm.render(fabric, fabrics.state(fabric, **changes))


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


def test_blocks_do_not_depend_on_which_trays_are_up() -> None:
    fabric = fabrics.fabric()
    down = {f"r01t{tray:02d}": {"state": "stale", "health": "unknown"} for tray in range(1, 19)}
    assert render(fabric, **down) == render(fabric)
    assert slurm.render(fabric, State()) == render(fabric)


def test_a_retired_clique_keeps_its_position_from_25_05() -> None:
    whole = fabrics.fabric()
    fabric = dataclasses.replace(
        whole, trays={name: tray for name, tray in whole.trays.items() if tray["clique"] != "r02a"}
    )
    texts = render(fabric)
    (topology,) = yaml.safe_load(texts[YAML_FILE])
    assert topology["block"]["blocks"][1] == {"block": "r02a"}
    assert "r02a" not in texts[CONF_FILE]
    codes = {finding["code"] for finding in slurm.findings(fabric, fabrics.state(fabric))}
    assert codes == {"slurm_placeholder_left_out", "slurm_clique_above_base"}


def test_blocks_have_node_names_and_not_inventory_names() -> None:
    fabric = fabrics.fabric(racks=1, trays=2, split=())
    for name, tray in fabric.trays.items():
        tray["slurm_node"] = f"gpu-{name}"
    assert "nodes: gpu-r01t[01-02]" in render(fabric)[YAML_FILE]


@pytest.mark.parametrize(
    ("name", "code"),
    [("r01t02", "slurm_block_overlap"), ("r01 t01", "slurm_node_name"), ("r01t[01-02]", "slurm_node_name")],
)
def test_an_invalid_topology_is_not_rendered(name: str, code: str) -> None:
    fabric = fabrics.fabric(racks=1, trays=2, split=())
    fabric.trays["r01t01"]["slurm_node"] = name
    assert render(fabric) == {}
    assert code in {finding["code"] for finding in slurm.findings(fabric, fabrics.state(fabric))}


def test_an_empty_fabric_renders_no_file() -> None:
    assert render(Fabric()) == {}


def test_576_racks_have_one_line_for_each_block() -> None:
    fabric = fabrics.fabric(racks=576, split=())
    lines = render(fabric)[CONF_FILE].splitlines()
    assert lines[1] == "BlockName=r01 Nodes=r01t[01-18]"
    assert lines[-1] == "BlockSizes=18"
    assert len(lines) == 578
