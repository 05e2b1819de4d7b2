# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One fabric file, several Slurm clusters: each slurmctld gets its own blocks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand

from .commands import unchanged
from .slurmctld import sandbox
from .test_slurm_topology import Site, fabric, start, survey

pytestmark = [pytest.mark.lab, pytest.mark.long]


def write(site: Site, first: str, second: str) -> None:
    """Rack 1 and half of rack 2 are the first cluster's, the other half the second's, under a position of its own."""
    made: dict[str, Any] = fabric({"r01": "r01t[01-18]", "r02": "r02t[01-18]"})
    for name, tray in made["trays"].items():
        tray["slurm_cluster"] = second if name in expand("r02t[10-18]") else first
    blocks = {name: clique["block"] for name, clique in made["cliques"].items()}
    made["clusters"] = {
        "slurm": {first: {"blocks": blocks}, second: {"blocks": {"r02": {"name": "half", "position": 0}}}}
    }
    site.fabric.write_text(json.dumps(made))


def running(site: Site) -> list[tuple[str, tuple[str, ...]]]:
    topology = survey(site.slurmctld).runs.blocks("nvlink")
    assert topology
    return [(block.name, tuple(block.nodes)) for block in topology.blocks]


def test_a_slurmctld_gets_the_blocks_of_its_own_cluster(tmp_path: Path) -> None:
    with sandbox("forky", tmp_path / "slurm") as slurmctld:
        start(slurmctld)
        site = Site(slurmctld, tmp_path)
        other = {"slurm_topology_override": "block_vanishes,nodes_lose_block,live_changes_lost"}

        # The sandbox's ClusterName is sandbox; Slurm has no case there.
        write(site, "other", "Sandbox")
        done = site.play(**other)
        assert done.returncode == 0, done.stdout + done.stderr
        assert running(site) == [("half", tuple(expand("r02t[10-18]")))]

        write(site, "alpha", "beta")
        failed = site.play()
        assert failed.returncode != 0
        assert (
            "slurmctld's ClusterName is sandbox, and the fabric file's Slurm clusters are alpha, beta: "
            "set the option cluster to the one that runs here." in failed.stdout
        )
        assert running(site) == [("half", tuple(expand("r02t[10-18]")))]

        assert site.play("-e", "slurm_topology_cluster=alpha", **other).returncode == 0
        assert running(site) == [("r01", tuple(expand("r01t[01-18]"))), ("r02", tuple(expand("r02t[01-09]")))]
        assert unchanged(site.play("-e", "slurm_topology_cluster=alpha").stdout)
