# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adopt a Slurm with an existing topology: its names and positions are kept, and an apply changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import slurm

from .commands import ansible, unchanged
from .slurm_site import contents, task
from .slurmctld import EACH_SUITE, Slurmctld, sandbox

pytestmark = pytest.mark.lab

NOW = "2026-11-21T05:00:00Z"
RACKS = ("r01t[01-04]", "r02t[01-04]", "r03t[01-04]")
# The nodes in the order of slurm.conf; those of the third rack are called otherwise than their hosts.
NODES = {
    **{name: name for rack in RACKS[:2] for name in expand(rack)},
    **{f"gpu-{n}": f"r03t0{n}" for n in range(1, 5)},
}
CPU = "cpu[1-2]"
# Slurm has these nodes, and no block has.
LATER = "r04t[01-04]"

# Made by hand: neither the names nor the order are those that a discovery would choose.
CONF = """\
BlockName=west Nodes=r02t[01-04]
BlockName=attic Nodes=gpu-[1-4]
BlockName=east Nodes=r01t[01-04]
BlockSizes=4
"""
YAML = """\
---
- topology: campus
  cluster_default: false
  tree:
    switches:
      - switch: core
        nodes: cpu[1-2]
- topology: racks
  cluster_default: true
  block:
    block_sizes: [4]
    blocks:
      - block: west
        nodes: r02t[01-04]
      - block: attic
        nodes: gpu-[1-4]
      - block: east
        nodes: r01t[01-04]
- topology: lab
  cluster_default: false
  block:
    block_sizes: [2]
    blocks:
      - block: bench
        nodes: cpu[1-2]
"""
FILES = {"trixie": ("topology.conf", CONF), "forky": ("topology.yaml", YAML)}


def configure(slurmctld: Slurmctld) -> None:
    lines = [
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.{2 + number} Port={20000 + number} CPUs=4"
        for number, (node, host) in enumerate(NODES.items())
    ]
    lines += [slurmctld.nodes(f"{CPU},{LATER}"), f"PartitionName=all Nodes={','.join(NODES)},{CPU} Default=YES"]
    slurmctld.configure(*lines, plugin="topology/block" if slurmctld.suite == "trixie" else "")


def load(slurmctld: Slurmctld, text: str) -> None:
    (slurmctld.conf_dir / FILES[slurmctld.suite][0]).write_text(text)
    assert slurmctld.reconfigure()


@pytest.fixture(params=EACH_SUITE, scope="module")
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurmctld]:
    """One slurmctld a version with the topology that was made by hand."""
    with sandbox(request.param, tmp_path_factory.mktemp("slurm") / "slurm") as made:
        configure(made)
        name, text = FILES[made.suite]
        (made.conf_dir / name).write_text(text)
        made.start()
        yield made


@pytest.fixture
def slurmctld(running: Slurmctld) -> Iterator[Slurmctld]:
    """The same, as it was, also after a test that has changed its topology."""
    yield running
    name, text = FILES[running.suite]
    if (running.conf_dir / name).read_text() != text:
        load(running, text)


def options(slurmctld: Slurmctld, **more: Any) -> dict[str, Any]:
    environment = ["env", f"SLURM_CONF={slurmctld.conf_dir}/slurm.conf"]
    return {"command": [*environment, str(slurmctld.bin_dir / "scontrol")], "timeout": 60, **more}


# --- from discover to apply ---


def discover(slurmctld: Slurmctld, fabric: Path, racks: int, **more: Any) -> dict[str, Any]:
    """What the playbook discover leaves: the state file."""
    fleet = {"simulation": {"racks": racks, "trays_per_rack": 4}}
    variables = {
        "fabric_file": str(fabric),
        "fabric_accept": "gates",
        "fabric_sources": [fleet, {"slurm": options(slurmctld)}],
    }
    done = ansible("ansible-playbook", "rackscale.nvlink.discover", "-e", json.dumps({**variables, **more}))
    state: dict[str, Any] = json.loads(fabric.with_name("fabric.state.json").read_text())
    return {**state, "output": " ".join((done.stdout + done.stderr).split())}


def apply(slurmctld: Slurmctld, fabric: Path) -> dict[str, Any]:
    """The result of slurm_topology with this fabric file."""
    # These programs enter a sandbox, and none of their own can run in it.
    given = {"topology_name": "racks", "override": ["live_changes_lost"]}
    return task("slurm_topology", slurmctld, "--diff", fabric_file=str(fabric), **given)


def gets_a_header(slurmctld: Slurmctld, fabric: Path) -> None:
    """Apply a fabric file that agrees with the site's topology: the header alone, which shows another writer."""
    result = apply(slurmctld, fabric)
    [change] = result["changes"]
    assert (change.partition(":")[2], result["moves"]) == (" rewritten", [])
    assert contents(slurmctld)[change.partition(":")[0]].startswith(b"# Written by rackscale.nvlink")


def without_comments(slurmctld: Slurmctld, files: dict[str, bytes] | None = None) -> dict[str, list[bytes]]:
    """The lines of the files that slurmctld reads, without comments."""
    return {
        name: [line for line in data.splitlines() if not line.startswith(b"#")]
        for name, data in (files or contents(slurmctld)).items()
        if not name.endswith(".previous")
    }


def test_an_adopted_cluster_gets_a_header_and_no_other_change(slurmctld: Slurmctld, tmp_path: Path) -> None:
    fabric = tmp_path / "fabric.json"
    found = discover(slurmctld, fabric, racks=3)
    document = json.loads(fabric.read_text())
    assert {name: (row["block"]["name"], row["block"]["position"]) for name, row in document["cliques"].items()} == {
        "r01": ("east", 2),
        "r02": ("west", 0),
        "r03": ("attic", 1),
    }
    assert {row["slurm_node"]: name for name, row in document["trays"].items()} == NODES
    assert (found["findings"], [row for tray in found["trays"].values() for row in tray["findings"]]) == ([], [])
    before = contents(slurmctld)
    gets_a_header(slurmctld, fabric)
    assert without_comments(slurmctld) == without_comments(slurmctld, before)
    result = apply(slurmctld, fabric)
    assert (result["changed"], result["changes"], result["moves"]) == (False, [], [])
    # A second discovery changes nothing either.
    assert unchanged(discover(slurmctld, fabric, racks=3)["output"])


# Before 25.05 slurmctld loads no block without nodes.
@pytest.mark.long
@pytest.mark.parametrize("running", ["forky"], indirect=True)
def test_blocks_without_nodes_outlive_every_apply(slurmctld: Slurmctld, tmp_path: Path) -> None:
    """A reserve between others and one at the end: nothing moves up, and what comes later comes behind them."""
    text = FILES["forky"][1].replace("      - block: attic\n", "      - block: spare\n      - block: attic\n", 1)
    text = text.replace("nodes: r01t[01-04]\n", "nodes: r01t[01-04]\n      - block: last\n", 1)
    load(slurmctld, text)
    fabric = tmp_path / "fabric.json"
    found = discover(slurmctld, fabric, racks=2)
    assert [row["block"] for row in found["findings"] if row["code"] == "tray_unplaced"] == ["attic"]
    assert json.loads(fabric.read_text())["reserved_blocks"] == {"spare": 1, "attic": 2, "last": 4}
    # The third rack comes, and its block is its own again; then Slurm has nothing to change.
    discover(slurmctld, fabric, racks=3, fabric_expected_trays=4)
    assert json.loads(fabric.read_text())["reserved_blocks"] == {"spare": 1, "last": 4}
    before = contents(slurmctld)
    gets_a_header(slurmctld, fabric)
    assert without_comments(slurmctld) == without_comments(slurmctld, before)
    # Another discovery without the source slurm.
    fleet = {"simulation": {"racks": 4, "trays_per_rack": 4}}
    variables = {"fabric_file": str(fabric), "fabric_accept": "gates", "fabric_sources": [fleet]}
    ansible("ansible-playbook", "rackscale.nvlink.discover", "-e", json.dumps(variables))
    grown = json.loads(fabric.read_text())
    assert grown["cliques"]["r04"]["block"] == {"name": "r04", "position": 5}
    result = apply(slurmctld, fabric)
    assert {(row["from"], row["to"]) for row in result["moves"]} == {(None, "r04")}
    result = slurm.discover(options(slurmctld), NOW)
    assert result.blocks == tuple((name, n) for n, name in enumerate(["west", "spare", "attic", "east", "last", "r04"]))
