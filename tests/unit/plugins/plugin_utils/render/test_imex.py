# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import imex
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics


def test_the_order_is_the_natural_order_of_names() -> None:
    fabric = fabrics.fabric(racks=1, trays=12)
    renamed = {name.replace("t0", "t"): tray for name, tray in reversed(fabric.trays.items())}
    shuffled = type(fabric)(fabric.domains, fabric.cliques, renamed, [])
    assert imex.render(shuffled, State()) == imex.render(fabric, State())


def test_a_retired_clique_gets_no_list() -> None:
    fabric = fabrics.fabric(racks=1)
    cliques = {**fabric.cliques, "gone": {"domain": "r01", "clique_id": 7, "block": {"name": "gone", "position": 1}}}
    files = imex.render(type(fabric)(fabric.domains, cliques, fabric.trays, []), State())
    assert list(files) == ["imex/r01/nodes_config.cfg"]


def test_a_list_without_an_address_of_a_tray_is_a_finding_and_not_written() -> None:
    fabric = fabrics.fabric()
    fabric.trays["r02t05"]["imex_address"] = None
    assert sorted(imex.render(fabric, State())) == [f"imex/{clique}/nodes_config.cfg" for clique in ("r01", "r02b")]
    (finding,) = imex.findings(fabric, State())
    assert {key: finding[key] for key in ("code", "severity", "tray", "clique")} == {
        "code": "imex_address_invalid",
        "severity": "error",
        "tray": "r02t05",
        "clique": "r02a",
    }
    assert "r02t05" in finding["message"]
