# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cliques that are smaller for some kinds of operation, in discover and in verify."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.fabric.test_placement import Site, codes
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.verify.verify_world import World

CODE = "fabric_cliques_smaller"


def report(facts: dict[str, Any], **ids: list[int]) -> None:
    """From now on the GPUs of this tray report these cliques beside the one of the facts."""
    for gpu in facts["gpus"]:
        own = gpu["fabric"]["clique_id"]
        gpu["fabric"]["cliques"] = {
            "unicast_pointer": [own],
            "multicast_pointer": [],
            "unicast_logical_endpoint": [],
            "multicast_logical_endpoint": [],
            **ids,
        }


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        pytest.param([{"multicast_pointer": [1]}] * 4, "", id="one clique"),
        pytest.param([{"multicast_pointer": [1, 2]}, *[{"multicast_pointer": [2]}] * 3], "", id="one in common"),
        pytest.param([{}] * 4, "", id="no multicast anywhere"),
        pytest.param([{"multicast_pointer": [1]}, None, None, None], "", id="drivers that do not report it"),
        pytest.param(
            [{"multicast_pointer": [n], "unicast_logical_endpoint": [5, 6]} for n in (1, 1, 1, 2)],
            "for multicast pointer operations (3 trays in 1; 1 tray in 2); check",
            id="split",
        ),
        pytest.param(
            [{}, *[{"multicast_logical_endpoint": [3]}] * 3],
            "for multicast logical endpoint operations (1 tray in none; 3 trays in 3)",
            id="one tray without it",
        ),
    ],
)
def test_trays_without_a_clique_in_common_are_one_finding(
    rows: list[dict[str, list[int]] | None], sentence: str
) -> None:
    site = Site(racks=1)
    for facts, row in zip(site.facts.values(), rows, strict=True):
        if row is not None:
            report(facts, **row)
    found = [row for row in site.discover().findings if row["code"] == CODE]
    assert [(row["clique"], row["severity"]) for row in found] == [("r01", "warning")] * bool(sentence)
    assert all(sentence in row["message"] for row in found)


def test_a_tray_whose_own_gpus_differ_is_left_to_its_own_finding() -> None:
    site = Site(racks=1)
    for facts in site.facts.values():
        report(facts, multicast_pointer=[1])
    site.facts["r01t03"]["gpus"][0]["fabric"]["cliques"]["multicast_pointer"] = [2]
    assert CODE not in codes(site.discover())


@pytest.mark.parametrize("value", ["x", {"multicast_pointer": [None, "1", -1, {}]}])
def test_cliques_of_a_wrong_type_are_none(value: Any) -> None:
    site = Site(racks=1)
    for facts in site.facts.values():
        for gpu in facts["gpus"]:
            gpu["fabric"]["cliques"] = value
    assert CODE not in codes(site.discover())


def test_verify_reports_the_clique_with_its_trays() -> None:
    world = World(racks=1)
    assert CODE not in {row["code"] for row in world.verdict()["failures"]}
    for tray, parts in world.trays.items():
        report(parts["gpu"], multicast_pointer=[1 if tray < "r01t03" else 2])
    found = [row for row in world.verdict()["failures"] if row["code"] == CODE]
    assert [(row["layer"], row["clique"], row["trays"]) for row in found] == [("hardware", "r01", list(world.trays))]
