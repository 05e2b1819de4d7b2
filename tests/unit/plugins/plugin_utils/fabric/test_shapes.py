# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The systems that exist or are announced, each as the groups and blocks that it must become."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.inventory_vars import plan
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.fabric.test_placement import ZERO, Site


def one_domain(site: Site) -> None:
    """Two racks, each with a chassis serial of its own, that are one NVLink domain."""
    for name in site.facts:
        site.attach(name, site.uuid_of("r01t01"))


def mini_racks(site: Site) -> None:
    """Several domains in one rack: their trays report the same chassis serial and the same tray indices."""
    for facts in site.facts.values():
        facts["chassis_serial"] = site.facts["r01t01"]["chassis_serial"]


def node_local(site: Site) -> None:
    """Joined to a fabric that ends at the host: a zero cluster UUID is how these always read."""
    for name in site.facts:
        site.attach(name, ZERO, 0)


def no_fabric(site: Site) -> None:
    """GPUs without an NVLink fabric: PCIe cards, or a GH200 that stands alone."""
    for facts in site.facts.values():
        facts.update(attached=False, cluster_uuid=None, clique_id=None, clique=None, chassis_serial=None)
        for gpu in facts["gpus"]:
            gpu["fabric"].update(state="not_supported", status=None, cluster_uuid=None, clique_id=None)


def as_it_is(site: Site) -> None:
    pass


@pytest.mark.parametrize(
    ("simulation", "shape", "domains", "blocks", "gpus"),
    [
        pytest.param((2, 18, 4, 1), as_it_is, {"r01": 18, "r02": 18}, {"r01": 18, "r02": 18}, 4, id="NVL72 1x18"),
        pytest.param((1, 18, 4, 3), as_it_is, {"r01": 18}, {"r01a": 6, "r01b": 6, "r01c": 6}, 4, id="NVL72 3x6"),
        pytest.param((2, 9, 4, 1), one_domain, {"r01": 18}, {"r01": 18}, 4, id="NVL36x2"),
        pytest.param((1, 16, 2, 1), as_it_is, {"r01": 16}, {"r01": 16}, 2, id="GH200 NVL32"),
        pytest.param((2, 9, 4, 1), mini_racks, {"r01": 9, "r02": 9}, {"r01": 9, "r02": 9}, 4, id="VR mini-racks"),
        pytest.param((1, 4, 8, 1), node_local, {}, {}, 8, id="HGX"),
        pytest.param((1, 3, 1, 1), no_fabric, {}, {}, 1, id="L40S or GH200 alone"),
        pytest.param((1, 72, 8, 2), as_it_is, {"r01": 72}, {"r01a": 36, "r01b": 36}, 8, id="576 GPUs in two cliques"),
    ],
)
def test_each_shape_gives_its_groups_and_blocks(
    simulation: tuple[int, int, int, int],
    shape: Callable[[Site], None],
    domains: dict[str, int],
    blocks: dict[str, int],
    gpus: int,
) -> None:
    options: dict[str, Any] = dict(
        zip(("racks", "trays_per_rack", "gpus_per_tray", "cliques_per_rack"), simulation, strict=True)
    )
    site = Site(**options)
    shape(site)
    fabric = site.discover().fabric
    assert {block.name: len(block.trays) for block in fabric.blocks()} == blocks
    assert [block.position for block in fabric.blocks()] == list(range(len(blocks)))
    assert {name: domain["expected_trays"] for name, domain in fabric.domains.items()} == domains

    planned = plan(fabric, site.state)
    cliques = {name: len(group.hosts) for name, group in planned.groups.items() if name.startswith("nvlink_clique_")}
    assert cliques == {f"nvlink_clique_{name}": trays for name, trays in blocks.items()}
    assert {name for name in planned.groups if name.startswith("nvlink_domain_")} == {
        f"nvlink_domain_{n}" for n in domains
    }
    # Every tray is in the inventory, in one clique or, where its NVLink ends within it, in none.
    assert sorted(planned.hosts) == sorted(site.facts)
    assert {host["nvlink_gpu_count"] for host in planned.hosts.values()} == {gpus}
    assert {host["nvlink_health"] for host in planned.hosts.values()} == {"healthy"}
    assert len(planned.groups["nvlink_unplaced"].hosts) == len(site.facts) - sum(blocks.values())
    assert planned.groups["nvlink_stale"].hosts == []
    # Beside "no action needed" no remedy of ours.
    assert {row["code"] for tray in site.state.trays.values() for row in tray["findings"]} <= {"acceptance_pending"}


def test_a_tray_of_a_rack_whose_driver_reports_no_fabric_is_not_attached() -> None:
    site = Site(racks=1, trays_per_rack=1)
    serial = site.facts["r01t01"]["chassis_serial"]
    no_fabric(site)
    site.facts["r01t01"]["chassis_serial"] = serial
    site.discover()
    assert [row["code"] for row in site.state.trays["r01t01"]["findings"]] == ["tray_not_attached"]
