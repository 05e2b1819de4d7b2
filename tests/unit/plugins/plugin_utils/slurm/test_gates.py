# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gates of an apply: which changes of running blocks stop it, and how a site overrides them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import worded
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.node_names import NodeNames
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import files
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import Block, Topology
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Job
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import gates, linter, planning, topology_files
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.observed import Observed

RACKS = {"r01": "r01t[01-18]", "r02": "r02t[01-18]"}
NODES = expand("r[01-04]t[01-20]")


def topology(**blocks: str) -> Topology:
    made = tuple(Block(name, tuple(expand(nodes)), nodes) for name, nodes in blocks.items())
    return Topology(name="nvlink", blocks=made, block_sizes=(18,))


def objections(planned: dict[str, str], *override: str, live: dict[str, str] | None = None) -> dict[str, str]:
    found = gates.check(topology(**(RACKS if live is None else live)), topology(**planned), NODES, override)
    return {row["code"]: worded(row)["message"] for row in found}


SHRINKS, VANISHES = ["block_shrinks"], ["block_vanishes"]


@pytest.mark.parametrize(
    ("planned", "codes", "lost"),
    [
        pytest.param(RACKS, [], "", id="the same"),
        pytest.param({"r01": "r01t[02-18]", "r02": "r02t[01-18],r01t01"}, [], "", id="one node that moves"),
        pytest.param({"r01": "r01t[02-18],r02t01", "r02": "r02t[02-18],r01t01"}, [], "", id="two nodes that swap"),
        pytest.param({**RACKS, "r01": "r01t[01-04]"}, SHRINKS, "r01t[05-18]", id="4 of 18 nodes"),
        pytest.param({"r01": "r01t[01-16]", "r02": "r02t[01-18],r01t[17-18]"}, SHRINKS, "", id="two nodes that move"),
        pytest.param({"r01": "r01t[01-18]"}, VANISHES, "r02t[01-18]", id="a block that vanishes"),
        pytest.param({"r01": "r01t[01-18]", "r02": "", "r02a": "r02t[01-18]"}, [], "", id="its name as a placeholder"),
        pytest.param({"r01": "r01t[01-18]", "r2a": "r02t[01-09]", "r2b": "r02t[10-18]"}, VANISHES, "", id="split"),
        pytest.param({"r01": "r01t[01-18]", "rack2": "r02t[01-17]"}, VANISHES, "r02t18", id="renamed, a node less"),
        pytest.param({"r01": "r01t[01-04]"}, [*VANISHES, *SHRINKS], "-18]", id="the file of another site"),
    ],
)
def test_nodes_that_leave_running_blocks_stop_the_apply(planned: dict[str, str], codes: list[str], lost: str) -> None:
    found = objections(planned)
    assert list(found) == codes
    for message in found.values():
        assert (f"{lost} would be in no block: " in message) is bool(lost)
        # One option overrides all gates that object.
        assert f" or set override (variable slurm_topology_override) to {','.join(sorted(codes))} " in message


def test_a_gate_is_overridden_by_its_name_alone() -> None:
    planned = {"r01": "r01t[01-04]"}
    found = objections(planned, "block_shrinks")
    assert list(found) == ["block_vanishes", "slurm_gate_overridden"]
    assert "slurm_topology_override) to block_shrinks,block_vanishes " in found["block_vanishes"]
    assert found["slurm_gate_overridden"].startswith(
        "The gate block_shrinks is overridden: Block r01 would shrink from"
    )
    assert list(objections(planned, *gates.GATES)) == ["slurm_gate_overridden"]
    assert objections({**RACKS, "r01": "r01t[01-04]"})["block_shrinks"] == (
        "Block r01 would shrink from 18 to 4 nodes, and r01t[05-18] would be in no block: check the fabric file, or set"
        " override (variable slurm_topology_override) to block_shrinks if this is intended."
    )


def test_a_first_configuration_and_nodes_that_slurm_no_longer_has_pass() -> None:
    assert gates.check(None, topology(r01="r01t01"), NODES, ()) == []
    assert objections({"r01": "r01t01"}, live={}) == {}
    kept = expand("r01t[01-17],r02t[01-18]")
    planned = topology(**{**RACKS, "r01": "r01t[01-17]"})
    assert gates.check(topology(**RACKS), planned, kept, ()) == []


def observed(loaded: bool = True, **more: Any) -> Observed:
    written = topology(**RACKS)
    return Observed(
        conf_dir="/etc/slurm",
        version=(24, 11, 5),
        style=files.CONF,
        config={"topologyplugin": "topology/block" if loaded else "topology/flat"},
        running=[],
        shown=[files.ShownBlock(block.name, block.nodes, 18, False) for block in written.blocks] if loaded else [],
        texts={"topology.conf": topology_files.render([written], files.CONF)},
        nodes=tuple(map(NodeNames, NODES)),
        **more,
    )


@pytest.mark.parametrize("loaded", [True, False])
def test_a_file_that_slurmctld_has_not_loaded_stops_nothing(loaded: bool) -> None:
    blocks = topology(r01="r01t[01-18]").blocks
    plan = planning.plan(observed(loaded), planning.DesiredState(blocks))
    assert ("block_vanishes" in {row["code"] for row in plan.findings}, plan.reconfigure) == (loaded, loaded)


@pytest.mark.parametrize("line", ["SwitchName=s0 Nodes=r01t[01-18]", "Include more.conf"])
def test_lines_that_would_be_lost_are_an_error(line: str) -> None:
    found = planning.plan(replace(observed(), texts={"topology.conf": f"{line}\n"}), planning.DesiredState(()))
    assert "slurm_topology_foreign" in [row["code"] for row in found.stopped_by()]


def test_a_removal_gives_the_site_its_default_topology_back() -> None:
    site = [Topology(name, "flat", name == "site", body="true") for name in ("other", "site")]
    text = "".join(
        f"- topology: {known.name}\n  cluster_default: {known.cluster_default}\n  flat: true\n" for known in site
    )
    desired = planning.DesiredState(topology(**RACKS).blocks)
    new = {"version": (26, 5, 5), "style": files.YAML, "running": site, "shown": []}
    for _run in range(2):  # a second apply keeps it
        plan = planning.plan(replace(observed(), texts={"topology.yaml": text}, **new), desired)
        assert [known.name for known in plan.topologies if known.cluster_default] == ["nvlink"]
        text = plan.writes.get("/etc/slurm/topology.yaml", text)
    kept = planning.kept_yaml(text, "nvlink")
    assert kept is not None
    assert [known.fingerprint() for known in topology_files.parse_yaml(kept)] == [known.fingerprint() for known in site]


JOBS = (
    Job("8", "ann", "batch", ("r01t01", "r01t02")),
    Job("9", "bob", "batch", ("r01t03",)),
    # Their trays are in one block afterwards, too.
    Job("10", "bob", "batch", ("r01t01",)),
    Job("11", "bob", "batch", ("r01t01", "r02t02")),
)


@pytest.mark.parametrize(
    ("allowed", "acting", "code"),
    [(False, "", "jobs_running"), (True, "", "slurm_gate_overridden"), (False, "other", "")],
)
def test_jobs_on_trays_that_change_their_block_stop_the_apply(allowed: bool, acting: str, code: str) -> None:
    blocks = topology(r01="r01t[02-18],r02t01", r02="r02t[02-18],r01t01").blocks
    plan = planning.plan(observed(acting=acting, jobs=JOBS), planning.DesiredState(blocks, allow_moving_jobs=allowed))
    assert [job["job"] for job in plan.jobs] == (["8"] if code else [])
    found = {row["code"] for row in plan.findings} & {"jobs_running", "slurm_gate_overridden"}
    assert found == ({code} if code else set())


def test_a_base_that_is_chosen_here_must_not_shrink() -> None:
    live = replace(topology(r01="a[01-18]", r02="b[01-18]"), block_sizes=(18,))
    planned = replace(topology(r01="a[01-18]", r02="b[01-18]", r03="c01"), block_sizes=(1,))
    known = expand("a[01-18],b[01-18],c01")
    (found,) = map(worded, gates.check(live, planned, known, (), base=True))
    assert (found["code"], found["severity"]) == ("base_shrinks", "error")
    assert found["message"].startswith(
        "The base block size would shrink from 18 to 1, since block r03 has fewer nodes: a job of 2 to 18 nodes"
    )
    assert found["message"].endswith("(variable slurm_topology_override) to base_shrinks if this is intended.")
    # The site's own size passes, and so does the override.
    assert gates.check(live, planned, known, ()) == []
    (warned,) = gates.check(live, planned, known, ("base_shrinks",), base=True)
    assert warned["code"] == "slurm_gate_overridden"
    assert gates.check(planned, live, known, (), base=True)[0]["code"] != "base_shrinks"


def test_small_cliques_are_left_out_before_25_05_alone() -> None:
    blocks = topology(r01="a[01-18]", r02="b[01-17]", r03="c01").blocks
    kept, left_out = linter.leave_out(blocks, 16, (24, 11, 5))
    assert ([block.name for block in kept], [block.name for block in left_out]) == (["r01", "r02"], ["r03"])
    assert linter.auto_block_sizes(kept, (24, 11, 5)) == (17,)
    assert linter.leave_out(blocks, 16, (25, 5, 0)) == (blocks, ())
    assert linter.leave_out(blocks, 0, (24, 11, 5)) == (blocks, ())
    present = observed()
    plan = planning.plan(present, planning.DesiredState(blocks, (17,), min_block_size=16))
    text = plan.writes["/etc/slurm/topology.conf"]
    assert topology_files.left_out(text) == ["r03"]
    again = planning.plan(replace(present, texts={"topology.conf": text}), plan.desired)
    assert list(again.writes) == []


@pytest.mark.parametrize(
    ("default", "override", "codes"),
    [
        (("leaves", "nvlink"), (), ["cluster_default_changes"]),
        (("leaves", "nvlink"), ("cluster_default_changes",), ["slurm_gate_overridden"]),
        (("leaves", "leaves"), (), []),
        (("", "nvlink"), (), []),
    ],
)
def test_the_default_topology_never_changes_silently(
    default: tuple[str, str], override: tuple[str, ...], codes: list[str]
) -> None:
    found = gates.check(None, topology(r01="r01t01"), NODES, override, default=default)
    assert [one["code"] for one in found] == codes
    if not override and codes:
        assert worded(found[0])["message"] == (
            "Partitions without Topology= would use nvlink instead of leaves: set cluster_default (variable"
            " slurm_topology_cluster_default) to leaves to keep it, or set override (variable slurm_topology_override)"
            " to cluster_default_changes if this is intended."
        )
