# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The source slurm with a stand-in for scontrol, and how placement uses its blocks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import differences, fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.merging import Answer, merge
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric, Observation
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.placement import Placement, Running, place
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import Policy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import OutageError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import slurm
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.fabric.test_placement import NOW, Site
from hypothesis import given
from hypothesis import strategies as st

# As 26.05 prints it, less the empty maps of the other kinds.
TOPOCONF = """%YAML 1.1
---
- topology: gpus
  cluster_default: true
  block:
    block_sizes:
      - 4
    blocks:
      - block: hall-b
        nodes: r02t[01-04]
      - block: spare
      - block: hall-a
        nodes: r01t[01-04]
- topology: flat
  cluster_default: false
  flat: true
...
"""
LINES = """BlockName=hall-b BlockIndex=0 Nodes=r02t[01-04] BlockSize=4
BlockName=hall-a BlockIndex=1 Nodes=r01t[01-04] BlockSize=4
AggregatedBlock=hall-b,hall-a BlockIndex=2 Nodes=r0[1-2]t[01-04] BlockSize=8
"""


def scontrol(folder: Path, topoconf: str | None, topology: str = "", nodes: str | None = "") -> dict[str, Any]:
    """Options that run a stand-in for scontrol; no topoconf: as before 25.05; nodes None: its node query fails."""
    (folder / "nodes").write_text(nodes or "")
    (folder / "topoconf").write_text(topoconf or "")
    (folder / "topology").write_text(topology)
    first = f'cat "{folder}/topoconf"; exit' if topoconf is not None else "echo invalid entity >&2; exit 1"
    program = folder / "scontrol"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in\n*topoconf) {first};;\n'
        f'*nodes) cat "{folder}/nodes"; {"exit 0" if nodes is not None else "echo no access >&2; exit 1"};;\n'
        f'*) cat "{folder}/topology";;\nesac\n'
    )
    program.chmod(0o755)
    return {"command": [str(program)]}


def blocks(observations: list[Observation]) -> dict[str, tuple[str, int] | None]:
    return {row.tray: row.block for row in observations}


def test_the_default_topology_is_read_with_its_placeholders(tmp_path: Path) -> None:
    found = slurm.discover(scontrol(tmp_path, TOPOCONF), NOW).observations
    assert blocks(found) == {
        **{f"r02t0{n}": ("hall-b", 0) for n in range(1, 5)},
        **{f"r01t0{n}": ("hall-a", 2) for n in range(1, 5)},
    }
    assert not any(row.reachable or row.identity for row in found)


def test_the_option_slurm_cluster_names_the_cluster(tmp_path: Path) -> None:
    result = slurm.discover({**scontrol(tmp_path, TOPOCONF), "slurm_cluster": "alpha"}, NOW)
    assert {row.slurm_cluster for row in result.observations} == {"alpha"}
    site = Site()
    placement = adopted(site, result.observations)
    assert [(row.name, row.position) for row in placement.fabric.blocks("alpha")] == [("hall-b", 0), ("hall-a", 2)]


def test_show_topology_is_read_before_25_05(tmp_path: Path) -> None:
    found = slurm.discover(scontrol(tmp_path, None, LINES), NOW).observations
    assert set(blocks(found).values()) == {("hall-b", 0), ("hall-a", 1)}
    # topology.conf has one topology, which from 25.05 on show topoconf does not print.
    for topoconf in (None, ""):
        options = scontrol(tmp_path, topoconf, LINES)
        assert slurm.discover({**options, "topology": "default"}, NOW).observations == found
        with pytest.raises(NvlinkError, match="topology finds no topology of blocks 'nvlink'"):
            slurm.discover({**options, "topology": "nvlink"}, NOW)


def test_the_option_topology_selects_the_topology(tmp_path: Path) -> None:
    lab = (
        TOPOCONF.partition("- topology: flat")[0]
        .replace("gpus", "lab")
        .replace("hall-b", "bench")
        .replace("true", "false")
    )
    options = {**scontrol(tmp_path, TOPOCONF.replace("---\n", lab)), "topology": "lab"}
    assert ("bench", 0) in blocks(slurm.discover(options, NOW).observations).values()


NODES = """\
NodeName=r02t01 Arch=x86_64 NodeAddr=10.0.0.1 NodeHostName=gpu-host-1 Version=26.05 Comment=NodeHostName=x
NodeName=r02t02 NodeAddr=r02t02 NodeHostName=r02t02
NodeName=r02t03 NodeHostName=shared
NodeName=r02t04 NodeHostName=shared
NodeName=r01t01 NodeHostName={{ 7 * 7 }}
"""


def test_a_tray_is_matched_by_its_node_host_name(tmp_path: Path) -> None:
    result = slurm.discover(scontrol(tmp_path, TOPOCONF, nodes=NODES), NOW)
    assert [row.tray for row in result.observations if row.tray != row.slurm_node] == ["gpu-host-1"]
    observation = Observation("gpu-host-1", "ssh", identity=("9f3c1234-1111-4222-8333-444444444444", 1))
    answers = [Answer("ssh", [observation]), Answer("slurm", result.observations, hints=True)]
    assert merge(answers, 0, fabric_file=False).observations == [
        replace(observation, block=("hall-b", 0), slurm_node="r02t01")
    ]
    # What the site, or the fabric file, calls it is not Slurm's to change.
    named = replace(observation, slurm_node="r01t01")
    answers[0] = Answer("ssh", [named])
    assert merge(answers, 0, fabric_file=False).observations == [replace(named, block=("hall-a", 2))]
    answers[0] = Answer("ssh", [observation])
    merged = merge(answers, 0, fabric_file=True, nodes={"gpu-host-1": "r01t02"})
    assert merged.observations == [replace(observation, block=("hall-a", 2))]


def test_a_failed_node_query_is_a_finding_and_no_outage(tmp_path: Path) -> None:
    result = slurm.discover(scontrol(tmp_path, TOPOCONF, nodes=None), NOW)
    assert [row.tray for row in result.observations] == [row.slurm_node for row in result.observations]
    assert [(row["code"], row["severity"]) for row in result.findings] == [("source_failed", "warning")]
    assert result.findings[0]["message"].endswith(" fails (no access); each NodeName counts as the name of its host.")


def test_a_node_in_two_blocks_and_an_invalid_name_are_findings(tmp_path: Path) -> None:
    lines = "BlockName=a BlockIndex=0 Nodes=t[1-2]\nBlockName=b BlockIndex=1 Nodes=t2,_x\n"
    result = slurm.discover(scontrol(tmp_path, None, lines), NOW)
    assert blocks(result.observations) == {"t1": ("a", 0), "t2": ("a", 0)}
    assert [row["message"] for row in result.findings] == [
        "Slurm has node t2 in the blocks a and b; remove it from one (the first is used).",
        "Slurm's blocks have the node '_x', which is no valid tray name; correct the block.",
    ]


def test_a_block_of_unknown_trays_is_a_finding(tmp_path: Path) -> None:
    site = Site(racks=1)
    result = slurm.discover(scontrol(tmp_path, TOPOCONF), NOW)
    answers = [
        Answer("ansible_facts", site.observations()),
        Answer("slurm", result.observations, hints=True, blocks=result.blocks),
    ]
    found = merge(answers, 100, fabric_file=True, blocks=())
    # hall-a has the attached trays of the site; nobody has those of hall-b, and spare has none to lose.
    assert [(row["code"], row["block"]) for row in found.findings] == [("tray_unplaced", "hall-b")]
    assert found.unclaimed == (("hall-b", 0), ("spare", 1))
    # Trays that a run does not query come from the fabric file, as do the blocks of its cliques.
    merged = merge(answers, 100, fabric_file=True, blocks={"spare"}, nodes={"t1": "r02t01"})
    assert (merged.findings, merged.unclaimed) == ([], ())
    assert merge(answers, 100, fabric_file=True).findings == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"command": ["/nowhere/scontrol"]}, r"^slurm: '/nowhere/scontrol show topoconf' cannot be started \("),
        ({"command": "sleep 30;", "timeout": 0.2}, r"^slurm: .* (did not answer in 0\.2 seconds|fails \()"),
        ({"command": ["sh", "-c", "sleep 30"], "timeout": 0.2}, r"^slurm: .* did not answer in 0\.2 seconds; "),
        ({"command": "false"}, r"^slurm: 'false show topology' fails \(exit status 1\); run it by hand$"),
        ({"command": "false", "topology": "nvlink"}, r"^slurm: 'false show topology' fails"),
        ({"command": "true"}, r"^slurm: scontrol shows no block; "),
        ({"command": ["sh", "-c", "echo '- {'"]}, r"^slurm: "),
        ({"command": ["sh", "-c", "yes - | head -c 20000000"]}, r"^slurm: .* has more than 8388608 values; run it by "),
    ],
)
def test_an_outage_is_reported_within_the_timeout(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OutageError, match=message):
        slurm.discover(options, NOW)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"command": "'"}, r"^slurm: command is .*, which cannot be split \("),
        ({"command": []}, r"^slurm: command is empty, write a command such as "),
        ({"command": False}, r"^slurm: command is False, write words, "),
        ({"comand": "x"}, r"^slurm: 'comand' is not a known option; did you mean command\?"),
        *(
            ({"topology": name}, rf"^slurm: topology finds no topology of blocks '{name}'; ")
            for name in ("other", "flat")
        ),
    ],
)
def test_a_wrong_option_is_one_sentence(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(NvlinkError, match=message) as caught:
        slurm.discover({**scontrol(tmp_path, TOPOCONF), **options}, NOW)
    assert not isinstance(caught.value, OutageError)


# --- adoption ---


def adopted(
    site: Site,
    hints: list[Observation],
    nodes: dict[str, str] | None = None,
    running: tuple[Running, ...] = (),
) -> Placement:
    """running: all blocks of that Slurm, where it was queried."""
    answers = [
        Answer("ansible_facts", site.observations()),
        Answer("slurm", hints, hints=True, blocks=running),
    ]
    own = {block.name for block in site.fabric.blocks()} if site.fabric else set()
    found = merge(answers, 100, fabric_file=False, nodes=nodes, blocks=own)
    rows, policy = found.observations, Policy(moved_percent=100)
    placement = place(site.fabric, site.state, rows, NOW, policy, replace(found, findings=[]))
    site.fabric, site.state = placement.fabric, placement.state
    return placement


def written(fabric: Fabric) -> list[tuple[str, int, str]]:
    """The blocks of the fabric file after it is read again."""
    again = fabric_file.parse(fabric_file.serialise(fabric), "fabric.json")
    return [(row.name, row.position, row.clique) for row in again.slurm_blocks()]


def come(site: Site, rack: int) -> None:
    site.facts.update(
        {name: facts for name, facts in Site(racks=rack).facts.items() if name.startswith(f"r{rack:02d}")}
    )


def test_an_unclaimed_block_keeps_its_name_and_position() -> None:
    site = Site(racks=1)
    hints = [Observation(name, "slurm", reachable=False, block=("hall-a", 2)) for name in site.facts]
    running = (("hall-b", 0), ("spare", 1), ("hall-a", 2), ("last", 3))
    placement = adopted(site, hints, running=running)
    kept = [("hall-b", 0, ""), ("spare", 1, ""), ("hall-a", 2, "r01"), ("last", 3, "")]
    assert written(placement.fabric) == kept
    assert "reserved block spare: new, position 1" in differences.diff_text(Fabric(), placement.fabric)
    # Later runs do not query Slurm: new cliques get new blocks.
    come(site, 2)
    assert written(adopted(site, []).fabric) == [*kept, ("r02", 4, "r02")]
    # Until Slurm reports the trays of hall-b.
    come(site, 3)
    hints = [Observation(name, "slurm", reachable=False, block=("hall-b", 0)) for name in site.facts if "r03" in name]
    assert written(adopted(site, hints, running=running).fabric) == [("hall-b", 0, "r03"), *kept[1:], ("r02", 4, "r02")]


RUNNING = st.lists(st.sampled_from(["r01", "r02", "r03", "r02a", "spare", "x-1"]), unique=True, max_size=5)


@given(st.lists(st.tuples(RUNNING, st.booleans(), st.sampled_from([None, "alpha"])), min_size=1, max_size=5))
def test_no_clique_gets_a_reserved_block(runs: list[tuple[list[str], bool, str | None]]) -> None:
    """Racks come one by one, while a Slurm whose blocks people change is queried in some runs and not in others."""
    site, cluster = Site(racks=1), runs[0][2]
    for name in site.facts:
        site.site[name] = {"slurm_cluster": cluster} if cluster else {}
    for number, (names, queried, _cluster) in enumerate(runs, 2):
        running = tuple((name, position) for position, name in enumerate(names)) if queried else ()
        hints = [Observation(name, "slurm", reachable=False, block=running[-1]) for name in site.facts if running]
        before = dict(site.fabric.reserved(cluster)) if site.fabric else {}
        fabric = adopted(site, hints, running=running).fabric
        blocks = fabric.slurm_blocks(cluster)
        assert len({row.name for row in blocks}) == len({row.position for row in blocks}) == len(blocks)
        fabric_file.parse(fabric_file.serialise(fabric), "fabric.json")
        for name, position in before.items():
            # It stays, or the clique that Slurm has in that block has it now.
            (block,) = (row for row in blocks if row.name == name)
            assert (block.position == position) or (name, block.position) in running
            assert not block.clique or name in [row[0] for row in running]
        come(site, number)
        for name in site.facts:
            site.site[name] = {"slurm_cluster": cluster} if cluster else {}


def test_the_block_of_most_trays_is_taken_and_other_trays_are_findings(tmp_path: Path) -> None:
    site = Site()
    hints = slurm.discover(scontrol(tmp_path, TOPOCONF), NOW).observations
    hints = [replace(row, block=("hall-a", 2)) if row.tray == "r02t01" else row for row in hints]
    placement = adopted(site, hints)
    assert {row.clique: row.name for row in placement.fabric.blocks()} == {"r01": "hall-a", "r02": "hall-b"}
    assert [row["message"] for row in placement.findings] == [
        "Tray r02t01 is in block hall-a of Slurm, but its clique r02 has block hall-b; apply the topology, "
        "or correct the "
        "block's name."
    ]


def test_one_block_over_two_cliques_becomes_two_blocks() -> None:
    site = Site()
    hints = [Observation(name, "slurm", reachable=False, block=("r02", 0)) for name in site.facts]
    placement = adopted(site, hints)
    assert [(row.name, row.position, row.clique) for row in placement.fabric.blocks()] == [
        ("r02", 0, "r01"),
        ("r02_2", 1, "r02"),
    ]
    assert [row["tray"] for row in placement.findings] == ["r02t01", "r02t02", "r02t03", "r02t04"]


def test_slurm_alone_places_no_tray(tmp_path: Path) -> None:
    hints = slurm.discover(scontrol(tmp_path, TOPOCONF), NOW).observations
    alone = merge([Answer("slurm", hints, hints=True)], 50, fabric_file=False)
    assert (alone.observations, alone.findings) == (hints, [])
    # On top of a fabric file it must not make trays stale.
    assert merge([Answer("slurm", hints, hints=True)], 50, fabric_file=True).observations == []
