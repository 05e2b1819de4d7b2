# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare what a job may span, and the chosen base size, with real slurmctlds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import conf, files
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import Block, Topology
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import editing
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import blocks as slurm_blocks
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import segments, topology_files
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.tiers import Segment
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.fabrics import fabric

from .slurm_site import FILE, plan
from .slurmctld import EACH_SUITE, Slurmctld, sandbox

pytestmark = pytest.mark.lab

MOST = 6


@pytest.fixture(params=EACH_SUITE, scope="module")
def racks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurmctld]:
    """Six racks of 18; each test configures its topology."""
    with sandbox(request.param, tmp_path_factory.mktemp("spans") / "slurm") as made:
        nodes = [made.nodes(f"r0{rack}t[01-18]", f"Port=[2{rack}001-2{rack}018]") for rack in range(1, MOST + 1)]
        plugin = "topology/block" if made.suite == "trixie" else ""
        made.configure(*nodes, "PartitionName=gpu Nodes=ALL Default=YES", plugin=plugin, select="select/cons_tres")
        load(made, [18] * MOST, [18], running=False)
        made.start()
        yield made


def load(slurmctld: Slurmctld, counts: list[int], sizes: list[int], running: bool = True) -> None:
    """Blocks of so many trays."""
    blocks = tuple(
        Block(f"r{number:02d}", tuple(expand(f"r{number:02d}t[01-{count:02d}]")))
        for number, count in enumerate(counts, 1)
    )
    style = FILE[slurmctld.suite].partition(".")[2]
    name = "default" if style == "conf" else "nvlink"
    made = Topology(name, blocks=blocks, block_sizes=tuple(sizes))
    (slurmctld.conf_dir / FILE[slurmctld.suite]).write_text(topology_files.render([made], style))
    if running:
        assert slurmctld.reconfigure()


def blocks_of(slurmctld: Slurmctld, nodes: int, away: str = "", *options: str) -> list[int] | None:
    """How many nodes of each block a job gets on the idle cluster, the most first; None where it stays pending."""
    leave = ("-x", away) if away else ()
    command = ("sbatch", "--test-only", "--exclusive", f"-N{nodes}", *leave, *options, "--wrap", "true")
    output = slurmctld.run(*command).stderr
    if " to start at " not in output:
        # The second is sbatch's own answer, from 26.05.
        assert "Requested node configuration is not available" in output or "does not fit the job size" in output, (
            output
        )
        return None
    names = expand(output.partition(" on nodes ")[2].split(" ")[0])
    assert len(names) == nodes
    return sorted((sum(name.startswith(rack) for name in names) for rack in {name[:3] for name in names}), reverse=True)


def away(counts: list[int], up: list[int]) -> str:
    """The trays that do not work; a job that must not have them is placed as if they were down."""
    return ",".join(
        f"r{number:02d}t[{working + 1:02d}-{count:02d}]"
        for number, (count, working) in enumerate(zip(counts, up, strict=True), 1)
        if working < count
    )


# A rack of 18 and one that its NVLink partitions cut in two halves of 9.
HALVES = [18, 9, 9]


def test_the_chosen_base_size_keeps_a_clique_together(racks: Slurmctld) -> None:
    blocks = tuple(
        Block(f"r{number:02d}", tuple(expand(f"r{number:02d}t[01-{count:02d}]")))
        for number, count in enumerate(HALVES, 1)
    )
    load(racks, [18] * MOST, [18])
    chosen = plan(racks, blocks)
    load(racks, HALVES, list(chosen.topology.block_sizes))
    # Nine trays of the whole rack are taken, so that it has no room for 18.
    taken = "r01t[01-09]"
    codes = [found["code"] for found in chosen.findings]
    if racks.suite == "trixie":
        # The smallest block; a job of the larger clique may then be spread, which the finding reports.
        assert chosen.topology.block_sizes == (9,)
        assert "slurm_clique_above_base" in codes
        assert blocks_of(racks, 18, taken) == [9, 9]
        # What helps there: a partition, here a constraint, to the clique's own trays.
        assert blocks_of(racks, 18, "", "-w", "r01t[01-18]") == [18]
    else:
        # The largest: the job waits until its clique is free rather than be spread.
        assert chosen.topology.block_sizes == (18,)
        assert "slurm_clique_above_base" not in codes
        assert blocks_of(racks, 18, taken) is None
    assert blocks_of(racks, 18) == [18]


@pytest.mark.long
def test_the_cliques_of_a_group_are_one_aggregated_block(racks: Slurmctld) -> None:
    """Groups of two that are not next to each other: a job of 36 trays gets the racks of one group, or waits."""
    load(racks, [18] * MOST, [18])
    grouped, _lines = editing.group(
        fabric(racks=MOST, split=()), {"pod_a": ["r01", "r04"], "pod_b": ["r02", "r05"], "pod_c": ["r03", "r06"]}
    )
    made = plan(racks, slurm_blocks.blocks(grouped))
    assert made.stopped_by() == []
    assert made.topology.block_sizes == (18, 36)
    style = FILE[racks.suite].partition(".")[2]
    (racks.conf_dir / FILE[racks.suite]).write_text(topology_files.render([made.topology], style))
    assert racks.reconfigure()
    shown = files.parse_show_topology(racks.run("scontrol", "show", "topology").stdout)
    assert [{name[:3] for name in line.nodes} for line in shown if line.aggregated] == [
        {"r01", "r04"},
        {"r02", "r05"},
        {"r03", "r06"},
    ]
    assert racks_of(racks, 36, "-x", "r01t01,r02t01")[0] == {"r03", "r06"}
    assert racks_of(racks, 36, "-x", "r01t01,r02t01,r03t01")[0] == set()
    assert len(racks_of(racks, 18 * MOST)[0]) == MOST
    uneven, _lines = editing.group(grouped, {"pod_c": ["r02"]})
    assert [row["code"] for row in plan(racks, slurm_blocks.blocks(uneven)).stopped_by()] == ["slurm_block_size"]


def racks_of(slurmctld: Slurmctld, nodes: int, *options: str) -> tuple[set[str], str]:
    """The racks of a job on the idle cluster, and all that sbatch prints."""
    printed = slurmctld.run("sbatch", "--test-only", "--exclusive", f"-N{nodes}", *options, "--wrap", "true").stderr
    chosen = printed.partition(" on nodes ")[2].split(" ")[0]
    return {name[:3] for name in expand(chosen)}, printed


@pytest.mark.long
def test_the_script_sets_the_segment_of_a_job_that_has_none(tmp_path: Path) -> None:
    with sandbox("forky", tmp_path / "slurm") as slurmctld:
        nodes = [slurmctld.nodes(f"r0{rack}t[01-18]", f"Port=[2{rack}001-2{rack}018]") for rack in range(1, MOST + 1)]
        partitions = ("PartitionName=apart Nodes=ALL Default=YES", "PartitionName=wide Nodes=ALL")
        slurmctld.configure("JobSubmitPlugins=lua", *nodes, *partitions, select="select/cons_tres")
        path = slurmctld.conf_dir / conf.POLICY_NAME
        path.write_text(segments.policy_text({"apart": Segment(9, 18), "wide": Segment(0, 9)}, str(path)))
        (slurmctld.conf_dir / conf.SCRIPT_NAME).write_text(segments.script_text(str(path)))
        load(slurmctld, [18] * MOST, [18, 36], running=False)
        slurmctld.start()

        # Of 27 trays three segments of 9 fit where one rack is busy and each of the others has 9 left; without
        # segments the base size keeps them in two racks.
        halves = "r01t[01-18],r02t[01-09],r03t[01-09],r04t[01-09],r05t[01-09],r06t[01-09]"
        got, printed = racks_of(slurmctld, 27, "-x", halves)
        assert len(got) == 3, printed
        assert "partition apart: --segment=9 is set for this job" in printed
        # A chosen segment, a range, and a job that the default does not divide stay as they are.
        assert "is set for" not in racks_of(slurmctld, 36, "--segment=18")[1]
        assert "is set for" not in racks_of(slurmctld, 35)[1]
        assert "is set for" not in racks_of(slurmctld, 9)[1]
        printed = racks_of(slurmctld, 36, "-p", "wide", "--segment=18")[1]
        assert "partition wide takes --segment up to 9" in printed
        assert " to start at " not in printed
