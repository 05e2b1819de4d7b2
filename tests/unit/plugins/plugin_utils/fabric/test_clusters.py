# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several Slurm and Kubernetes clusters in one fabric: from the settings of the site to blocks and groups."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import differences, fabric_file, overlay
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.inventory_vars import plan
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric, State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.pending import merge_pending
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import Policy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import domain_map, render
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import slurm_files as slurm_renderer
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.fabric.test_placement import (
    LATER,
    NOW,
    Site,
    codes,
    kinds,
)

R01, R02 = (tuple(f"r0{rack}t0{tray}" for tray in range(1, 5)) for rack in (1, 2))


def set_site(site: Site, names: tuple[str, ...], **reported: Any) -> None:
    for name in names:
        site.site[name] = {**site.site.get(name, {}), **reported}


def shared() -> Site:
    """Rack 1 and half of rack 2 are alpha's, the other half beta's; rack 2 is in the Kubernetes cluster k1 too."""
    site = Site(policy=Policy(moved_percent=100))
    set_site(site, (*R01, *R02[:2]), slurm_cluster="alpha")
    set_site(site, R02[2:], slurm_cluster="beta")
    set_site(site, R02, kubernetes_cluster="k1")
    site.discover()
    return site


def blocks(site: Site, cluster: str) -> list[tuple[str, int, tuple[str, ...]]]:
    return [(block.name, block.position, block.trays) for block in site.fabric.blocks(cluster)]


# --- placement ---


def test_names_and_positions_are_per_slurm_cluster_and_a_split_clique_is_a_block_in_each() -> None:
    site = shared()
    assert blocks(site, "alpha") == [("r01", 0, R01), ("r02", 1, R02[:2])]
    assert blocks(site, "beta") == [("r02", 0, R02[2:])]
    assert site.fabric.slurm_clusters == ["alpha", "beta"]
    assert {tray.get("kubernetes_cluster") for name, tray in site.fabric.trays.items() if name in R02} == {"k1"}
    assert not any("kubernetes_cluster" in site.fabric.trays[name] for name in R01)


def test_the_site_moves_an_unreachable_tray_to_another_cluster_with_a_reason() -> None:
    site = shared()
    site.down.add("r02t02")
    set_site(site, ("r02t02",), slurm_cluster="beta", kubernetes_cluster="")
    placement = site.discover(now=LATER)
    assert placement.changes == [
        {
            "tray": "r02t02",
            "from": "r02",
            "to": "r02",
            "kind": "cluster",
            "why": "slurm_cluster alpha -> beta; kubernetes_cluster k1 -> none",
        }
    ]
    assert blocks(site, "beta") == [("r02", 0, R02[1:])]
    assert "kubernetes_cluster" not in site.fabric.trays["r02t02"]


def test_a_tray_that_moves_to_another_clique_gets_a_block_in_its_cluster() -> None:
    site = shared()
    site.attach("r02t03", clique_id=9)
    assert kinds(site.discover()) == {"r02t03": "moved"}
    assert [row[:2] for row in blocks(site, "beta")] == [("r02", 0), ("r02a", 1)]


def test_the_first_cluster_of_a_file_takes_over_all_its_blocks() -> None:
    site = Site(policy=Policy(moved_percent=100))
    site.discover()
    for number, name in enumerate(R01):
        site.attach(name, clique_id=3 + number // 2)
    site.discover()
    running = [(block.name, block.position, block.trays) for block in site.fabric.blocks()]
    set_site(site, R01[:1], slurm_cluster="new")
    set_site(site, (*R01[1:], *R02), slurm_cluster="old")
    site.discover()
    assert [row[:2] for row in blocks(site, "old")] == [row[:2] for row in running]
    assert [row[:2] for row in blocks(site, "new")] == [("r01a", 0)]


def test_a_clique_takes_the_block_that_runs_in_its_own_slurm() -> None:
    site = Site()
    set_site(site, R01, slurm_cluster="alpha", block=("old1", 4))
    set_site(site, R02, slurm_cluster="beta", block=("old1", 4))
    placement = site.discover()
    assert blocks(site, "alpha") == [("old1", 4, R01)]
    assert blocks(site, "beta") == [("old1", 4, R02)]
    assert "slurm_topology_differs" not in codes(placement)
    set_site(site, R01[:2], block=("other", 5))
    assert [row["tray"] for row in site.discover().findings if row["code"] == "slurm_topology_differs"] == list(R01[:2])


def test_two_clusters_may_each_have_a_node_of_one_name() -> None:
    site = shared()
    set_site(site, (R01[0], R02[2]), slurm_node="node001")
    site.discover()
    set_site(site, (R01[1],), slurm_node="node001")
    with pytest.raises(
        NvlinkError, match=r"^fabric_slurm_node: trays r01t01 and r01t02 of cluster alpha would both be n"
    ):
        site.discover()


def test_trays_in_no_cluster_are_found_where_there_are_any() -> None:
    site = shared()
    set_site(site, R01[:2], slurm_cluster="")
    messages = [row["message"] for row in site.discover().findings if row["code"] == "tray_in_no_cluster"]
    assert messages == [
        "Trays in no Slurm or Kubernetes cluster: r01t01, r01t02; set fabric_slurm_cluster on these hosts."
    ]
    set_site(site, R01[:2], kubernetes_cluster="k2")
    assert "tray_in_no_cluster" not in codes(site.discover())


@pytest.mark.parametrize("cluster", ["beta", ""])
def test_trays_that_leave_their_cluster_count_as_moved(cluster: str) -> None:
    site = shared()
    site.policy = Policy()
    set_site(site, R01, slurm_cluster=cluster)
    assert [row["code"] for row in site.discover().objections] == ["moved_percent"]


def test_no_gate_objects_to_trays_that_enter_their_first_cluster() -> None:
    site = Site()
    site.discover()
    set_site(site, (*R01, *R02), slurm_cluster="alpha")
    assert site.discover().objections == []


def test_a_proposal_of_another_slice_keeps_its_clusters() -> None:
    site = Site()
    site.discover()
    accepted, state = site.fabric, site.state
    set_site(site, R01, slurm_cluster="alpha", kubernetes_cluster="k1")
    pending = site.discover(R01).fabric
    carried = merge_pending(accepted, pending, R02)
    assert carried.as_dict() == pending.as_dict()
    site.fabric, site.state = carried, state
    set_site(site, R02, slurm_cluster="alpha")
    site.discover(R02)
    assert blocks(site, "alpha") == [("r01", 0, R01), ("r02", 1, R02)]
    # A change that the other slice withdraws is removed.
    assert merge_pending(accepted, pending, R01).as_dict() == accepted.as_dict()


# --- the proposal ---


def test_the_diff_shows_the_blocks_of_each_cluster() -> None:
    site = shared()
    before = site.fabric
    set_site(site, R01[:1], slurm_cluster="beta")
    placement = site.discover()
    assert differences.diff_text(before, placement.fabric) == [
        "r01t01: r01 (slurm_cluster alpha -> beta)",
        "Slurm cluster beta, block of r01: new, name r01, position 1",
    ]
    assert "Slurm cluster alpha, block of r02: new, name r02, position 1" in differences.diff_text(Fabric(), before)


# --- inventory ---


def test_the_inventory_has_groups_and_names_of_each_cluster_and_blocks_of_the_tray() -> None:
    site = shared()
    set_site(site, ("r01t01",), slurm_cluster="")
    site.discover()
    planned = plan(site.fabric, None)
    assert planned.vars == {"nvlink_slurm_cluster": None, "nvlink_kubernetes_cluster": None}
    groups = {name: (group.vars, tuple(group.hosts)) for name, group in planned.groups.items() if group.hosts}
    assert groups["nvlink_slurm_alpha"] == ({"nvlink_slurm_cluster": "alpha"}, (*R01[1:], *R02[:2]))
    assert groups["nvlink_slurm_beta"] == ({"nvlink_slurm_cluster": "beta"}, R02[2:])
    assert groups["nvlink_kubernetes_k1"] == ({"nvlink_kubernetes_cluster": "k1"}, R02)
    # Rack 2's block has one name in both, rack 1 has a tray in none.
    assert groups["nvlink_clique_r02"][0]["nvlink_block"] == "r02"
    assert "nvlink_block" not in groups["nvlink_clique_r01"][0]
    assert [planned.hosts[name]["nvlink_block"] for name in R01] == [None, "r01", "r01", "r01"]


def test_a_name_that_no_group_can_have_is_written_with_underscores() -> None:
    site = Site()
    set_site(site, R01, slurm_cluster="gb200-a.prod")
    site.discover()
    assert plan(site.fabric, None).groups["nvlink_slurm_gb200_a_prod"].hosts == list(R01)


def test_a_live_source_alone_shows_clusters_under_provisional_names() -> None:
    site = shared()
    fabric, _state = overlay.provisional(site.observations(), NOW)
    fabric_file.check(fabric.as_dict(), "live")
    assert {len(block.trays) for block in fabric.blocks("beta")} == {2}
    assert all(block.name.startswith("new_") for block in fabric.blocks("alpha"))


# --- files and pictures ---


def test_each_cluster_with_trays_has_its_own_files_and_the_findings_name_their_cluster() -> None:
    site = shared()
    files = slurm_renderer.render(site.fabric, State())
    assert sorted(files) == [f"slurm/{name}/topology.{kind}" for name in ("alpha", "beta") for kind in ("conf", "yaml")]
    assert "r02t[01-02]" in files["slurm/alpha/topology.yaml"]
    assert "r02t[03-04]" in files["slurm/beta/topology.yaml"]
    assert "r01" not in files["slurm/beta/topology.yaml"]
    set_site(site, R02[2:], slurm_cluster="alpha")
    site.discover()
    assert not [path for path in slurm_renderer.render(site.fabric, State()) if "beta" in path]
    set_site(site, R02[:2], slurm_cluster="beta")
    site.discover()
    found = slurm_renderer.findings(site.fabric, State())
    assert found
    assert all(row["message"].startswith(("Slurm cluster alpha: ", "Slurm cluster beta: ")) for row in found)


def test_one_cluster_renders_the_same_text_as_none() -> None:
    site = Site()
    site.discover()
    before = slurm_renderer.render(site.fabric, State())
    set_site(site, (*R01, *R02), slurm_cluster="alpha")
    site.discover()
    after = slurm_renderer.render(site.fabric, State())
    assert {path.replace("slurm/alpha/", "slurm/"): text for path, text in after.items()} == before


def test_domain_map_and_report_show_a_trays_own_block() -> None:
    site = shared()
    set_site(site, ("r01t01",), slurm_cluster="")
    site.discover()
    lines = "\n".join(domain_map.domain_map(site.fabric, site.state, width=200))
    assert "beta r02 @0" in lines
    assert "alpha r02 @1" in lines
    page = render(site.fabric, site.state, ["report"]).files["report"]["report/index.html"]
    assert "<dt>Slurm</dt><dd>cluster beta, block r02 at position 0, node r02t03" in page
    assert "alpha r02 @1, beta r02 @0" in page
