# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from collections import Counter
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.inventory_vars import UNPLACED_GROUP, Plan, plan
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric, State
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics
from hypothesis import given
from hypothesis import strategies as st

HOST_VARS = {
    "nvlink_tray_index",
    "nvlink_gpu_count",
    "nvlink_health",
    "nvlink_state",
    "nvlink_imex_address",
    "nvlink_slurm_node",
    "nvlink_kubernetes_node",
}


@st.composite
def sites(draw: st.DrawFn) -> tuple[Fabric, State | None]:
    """A fabric and what its state may say: anything, or nothing, of its trays and of others."""
    racks = draw(st.integers(0, 3))
    fabric = fabrics.fabric(racks=racks, trays=draw(st.sampled_from([2, 4])), split=draw(st.sampled_from([(), (2,)])))
    rows: dict[str, Any] = {}
    for name in draw(st.lists(st.sampled_from([*fabric.trays, "spare1", "spare2", "gone"]), unique=True)):
        rows[name] = {
            "state": draw(st.sampled_from(["present", "stale", "conflict", "unplaced"])),
            "health": draw(st.sampled_from(["healthy", "degraded", "unhealthy", "unknown"])),
            "tray_index": draw(st.none() | st.integers(0, 17)),
            "gpu_count": draw(st.integers(0, 4)),
            "findings": [],
        }
    return fabric, draw(st.sampled_from([None, State(rows, [])]))


def places(planned: Plan) -> Counter[str]:
    return Counter(
        host
        for name, group in planned.groups.items()
        if name.startswith("nvlink_clique_") or name == UNPLACED_GROUP
        for host in group.hosts
    )


@given(sites())
def test_trays_and_groups_have_one_place_and_every_variable(site: tuple[Fabric, State | None]) -> None:
    fabric, state = site
    planned = plan(fabric, state)
    assert places(planned) == dict.fromkeys(planned.hosts, 1)
    states = {name: row["state"] for name, row in state.trays.items()} if state else {}
    # A tray that was removed from the fabric file is gone.
    assert planned.hosts.keys() == {*fabric.trays, *(name for name, word in states.items() if word == "unplaced")}
    for name in fabric.trays:
        # One that a person has placed is not observed there yet.
        reported = states.get(name, "present").replace("unplaced", "stale")
        assert planned.hosts[name]["nvlink_state"] == reported
    assert all(own.keys() == HOST_VARS for own in planned.hosts.values())
    # The groups of health and state match the variables.
    for key, words in (("nvlink_health", ["unhealthy", "degraded"]), ("nvlink_state", ["stale", "unplaced"])):
        for word in words:
            members = [name for name, own in planned.hosts.items() if own[key] == word]
            # A tray that nobody has reviewed is where no play goes.
            of_group = [name for name in members if word == "unplaced" or name in fabric.trays]
            assert planned.groups[f"nvlink_{word}"].hosts == of_group
    assert planned.unreviewed == planned.hosts.keys() - fabric.trays.keys()
    assert plan(fabric, state, is_reviewed=False).unreviewed == set()
    # A parent is named before its children.
    observed = {"all", "nvlink"}
    for name, group in planned.groups.items():
        assert group.parent in observed
        observed.add(name)
    shared = planned.groups[UNPLACED_GROUP].vars
    cliques = [group for name, group in planned.groups.items() if name.startswith("nvlink_clique_")]
    assert all(group.vars.keys() == shared.keys() for group in cliques)


def test_retired_cliques_keep_their_groups() -> None:
    fabric = fabrics.fabric(racks=1, trays=2, split=())
    planned = plan(Fabric(fabric.domains, fabric.cliques, {}, []), None)
    assert planned.groups["nvlink_clique_r01"].hosts == []


def test_natural_order_within_blocks_in_the_order_of_blocks() -> None:
    fabric = fabrics.fabric(racks=2, trays=2, split=())
    cliques: Any = {
        name: {**clique, "block": {**clique["block"], "position": 1 - clique["block"]["position"]}}
        for name, clique in fabric.cliques.items()
    }
    renamed: Any = {name.replace("t01", "t10"): tray for name, tray in fabric.trays.items()}
    planned = plan(Fabric(fabric.domains, cliques, renamed, []), None)
    assert list(planned.hosts) == ["r02t02", "r02t10", "r01t02", "r01t10"]
