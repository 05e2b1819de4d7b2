# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The blocks and hostlists that slurm_tiers reads from the fabric file."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import tiers

CLIQUES = {"c1": ("r01", 2), "c2": ("r02", 3)}


@pytest.fixture
def fabric() -> Fabric:
    trays = {
        f"{block}t{number:02d}": {"clique": clique, "tray_index": number, "slurm_node": f"{block}n{number:02d}"}
        for clique, (block, count) in CLIQUES.items()
        for number in range(1, count + 1)
    }
    cliques = {
        clique: {"domain": "d", "clique_id": position, "block": {"name": block, "position": position}}
        for position, (clique, (block, _count)) in enumerate(CLIQUES.items())
    }
    document: dict[str, Any] = {"domains": {}, "cliques": cliques, "trays": trays, "overrides": []}
    return Fabric.from_dict(document)


@pytest.mark.parametrize(
    ("tier", "count"),
    [
        ({"all": True}, 5),
        ({"blocks": ["r02"]}, 3),
        ({"cliques": ["c1"]}, 2),
        ({"cliques": ["c1"], "blocks": ["r02"]}, 5),
        ({"blocks": ["nosuch"]}, 0),
    ],
)
def test_each_tier_gets_its_nodes_in_one_hostlist(fabric: Fabric, tier: dict[str, Any], count: int) -> None:
    given = tiers.for_cluster(fabric, None, [{"name": "gold", **tier}])
    hostlist = given["hostlists"]["gold"]
    assert len(expand(hostlist)) == count
    assert hostlist.count(",") <= 1
    assert [(block["name"], block["clique"], len(block["nodes"])) for block in given["blocks"]] == [
        ("r01", "c1", 2),
        ("r02", "c2", 3),
    ]


@pytest.mark.parametrize("wrong", [None, "gold", {"name": "gold"}, ["gold"], [{"name": 7}], [{"blocks": "r01"}]])
def test_an_invalid_tier_gets_no_hostlist(fabric: Fabric, wrong: Any) -> None:
    assert tiers.for_cluster(fabric, None, wrong)["hostlists"] == {}


def test_a_tier_with_per_block_gets_no_hostlist(fabric: Fabric) -> None:
    assert tiers.for_cluster(fabric, None, [{"name": "a", "all": True, "per_block": True}])["hostlists"] == {}
