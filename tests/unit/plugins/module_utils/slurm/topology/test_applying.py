# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare, read and write files without a slurmctld; tests/integration has the tests with one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import conf
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import (
    HEADER,
    Block,
    ShownBlock,
    SlurmError,
    Topology,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.topology import comparing, surveying, transact
from ansible_collections.rackscale.nvlink.plugins.modules import slurm_topology
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import planning
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.moves import describe
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.observed import Observed
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.slurm import slurm_fake

ASKED = {"files": planning.FILES, "jobs": True, "columns": ""}


def topology(sizes: tuple[int, ...] = (2,), **blocks: str) -> Topology:
    made = tuple(Block(name, tuple(nodes.split())) for name, nodes in blocks.items())
    return Topology(name="nvlink", blocks=made, block_sizes=sizes)


NEW_A = ["block a: new at position 0, 2 trays: n1,n2", "n1: (no block) -> a", "n2: (no block) -> a"]


@pytest.mark.parametrize(
    ("before", "after", "moves", "lines"),
    [
        (topology(a="n1 n2"), topology(a="n2 n1"), [], []),
        (None, topology(a="n1 n2"), ["n1:None>a", "n2:None>a"], NEW_A),
        (
            topology(a="n1 n2", b="n3"),
            topology(a="n1", b="n2 n3"),
            ["n2:a>b"],
            ["n2: a -> b"],
        ),
        (topology(a="n1 n2"), topology(a="n1"), ["n2:a>None"], ["n2: a -> (no block)"]),
        (
            topology(a="n1", b="n2"),
            topology(a="n1", b=""),
            ["n2:b>None"],
            ["n2: b -> (no block)", "block b: retired, its position is kept"],
        ),
        (topology(a="n1", b=""), topology(a="n1"), [], ["block b: removed"]),
        (topology((2,), a="n1"), topology((4,), a="n1"), [], ["block sizes: 2 -> 4"]),
        # A size without effect is no difference: topology.conf does not show it.
        (topology((2,), a="n1"), topology((2, 4, 8), a="n1"), [], []),
    ],
)
def test_the_diff_of_two_topologies_lists_moves_and_lines(
    before: Topology | None, after: Topology, moves: list[str], lines: list[str]
) -> None:
    changed, shown = describe(before, after)
    assert [f"{move['node']}:{move['from']}>{move['to']}" for move in changed] == moves
    assert shown == lines


def test_show_topology_output_becomes_a_topology() -> None:
    shown = [
        ShownBlock("a", ("n1", "n2"), 2, False),
        ShownBlock("b", ("n3",), 2, False),
        ShownBlock("a,b", ("n1", "n2", "n3"), 4, True),
    ]
    assert comparing.from_shown(shown) == Topology(
        blocks=(Block("a", ("n1", "n2")), Block("b", ("n3",))), block_sizes=(2, 4)
    )
    assert comparing.from_shown([]) is None


def test_slurm_conf_is_read_with_its_includes(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text(
        "ClusterName=Gold # ours\n"
        "selecttype=select/cons_tres PROLOGFLAGS=Alloc,\\\nContain\n"
        "include %c.conf\n"
        "Include missing.conf\n"
        "#TopologyPlugin=topology/tree\n"
        "TopologyParam=SwitchAsNodeRank\n"
        "NodeName=n[1-2] CPUs=4 Topology=nvlink:a,leaf:s0\n"
        "include nvlink_topology.conf\n"
    )
    (tmp_path / "gold.conf").write_text('TopologyPlugin="topology/block"\nTopologyParam=RouteTree\nInclude gold.conf\n')
    (tmp_path / "nvlink_topology.conf").write_text("SelectType=select/linear\n")
    read = conf.read_slurm_conf(str(tmp_path))
    assert read.settings == {
        "selecttype": "select/cons_tres",
        "prologflags": "Alloc,Contain",
        "topologyplugin": "topology/block",
        # As in Slurm, the last line wins, and an included file stands where its Include is.
        "topologyparam": "SwitchAsNodeRank",
    }
    assert read.node_topologies == {"n1": "nvlink:a,leaf:s0", "n2": "nvlink:a,leaf:s0"}
    assert read.includes_ours


def test_a_default_line_gives_the_topology_of_the_lines_that_follow(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text(
        "NodeName=n0\nnodename=default topology=nvlink:a\nNodeName=DEFAULT CPUs=4\nInclude nodes.conf\n"
        "NodeName=n2 Topology=nvlink:b\nNodeName=n3 Topology=\n"
    )
    (tmp_path / "nodes.conf").write_text("NodeName=n1\n")
    read = conf.read_slurm_conf(str(tmp_path))
    assert read.node_topologies == {"n1": "nvlink:a", "n2": "nvlink:b"}


def survey(folder: Path, asked: dict[str, Any] = ASKED, **scripts: str) -> dict[str, Any]:
    """The survey of a Slurm 26.05 with these programs."""
    (folder / "slurm.conf").write_text("ClusterName=x\n")
    usual = {"slurmctld": "echo slurm 26.05.5", "scontrol": "true"}
    return surveying.rows(slurm_fake.programs(folder, **{**usual, **scripts}), str(folder), asked)


@pytest.mark.parametrize(
    ("scripts", "sentence"),
    [
        ({"slurmctld": "exit 1", "scontrol": "exit 1"}, "Neither slurmctld -V nor scontrol --version"),
        ({"slurmctld": "echo slurm 23.11.10", "scontrol": "touch ${0%/*}/called"}, r"23\.11\.10 is too old"),
        ({"scontrol": "echo 'SLURM_VERSION = 25.11.4'"}, "restart slurmctld first"),
        ({"scontrol": "echo 'SLURM_CONF = /opt/site/slurm.conf'"}, "set conf_dir to /opt/site"),
    ],
)
def test_another_slurm_is_refused(tmp_path: Path, scripts: dict[str, str], sentence: str) -> None:
    with pytest.raises(SlurmError, match=sentence):
        survey(tmp_path, **scripts)
    assert not (tmp_path / "called").exists(), "an old one is refused before scontrol is called"


def test_no_answer_of_slurmctld_is_an_error_and_not_an_empty_topology(tmp_path: Path) -> None:
    # As scontrol of both releases does, which ends with 0.
    refused = slurm_fake.programs(tmp_path, scontrol="echo 'slurm_load_topo error: Unable to contact it' >&2")
    with pytest.raises(SlurmError, match=r"scontrol show topology failed \(.*Unable to contact it\)"):
        refused.shown()
    assert slurm_fake.programs(tmp_path, scontrol="true").shown() == []
    with pytest.raises(SlurmError, match=r"scontrol show config failed .no answer in time"):
        slurm_fake.programs(tmp_path, 0.3, scontrol="sleep 60").config()


def test_what_another_run_has_loaded_since_the_survey_is_not_loaded_again(tmp_path: Path) -> None:
    runs = topology(a="n1 n2")
    slurm: Any = SimpleNamespace(
        version=lambda: (26, 5, 0), topologies=lambda _version: [runs], shown=lambda: [], config=dict
    )
    change = {
        "expected": comparing.Expected("yaml", runs).document(),
        "before": comparing.Expected("yaml", topology(b="n1")).document(),
        "moving": [],
        "load": True,
        "cut_off": [str(tmp_path / "topology.yaml")],
        "excludes": [],
        "override": "",
    }
    with pytest.raises(transact.Outdated, match="Another run has had slurmctld load"):
        transact.apply(slurm, str(tmp_path), change, {}, {})


def test_only_what_is_asked_for_is_read(tmp_path: Path) -> None:
    (tmp_path / "topology.yaml").write_text("new")
    # As files that the user may not read; there is no squeue.
    for name in ("topology.yaml.previous", "job_submit.lua", "nvlink_partitions.conf"):
        (tmp_path / name).mkdir()
    found = survey(tmp_path, {**ASKED, "jobs": False})
    assert (found["texts"], found["jobs"]) == ({"topology.yaml": "new"}, [])
    assert set(found["checksums"]) == {*planning.FILES, "slurm.conf"}
    with pytest.raises(NvlinkError, match=r"job_submit\.lua cannot be read"):
        survey(tmp_path, {**ASKED, "files": ["job_submit.lua"]})


def test_a_slurm_without_nodes_and_a_block_without_a_size_are_surveyed(tmp_path: Path) -> None:
    scontrol = """case "$*" in
        *"show nodes") echo "No nodes in the system" ;;
        *"show topology") echo "BlockName=r01 BlockIndex=0 Nodes=n1" ;;
        esac"""
    observed = Observed.of(survey(tmp_path, scontrol=scontrol, squeue="true"))
    assert (observed.nodes, observed.base, observed.shown[0].name) == ((), 0, "r01")


def test_a_file_that_changes_while_it_is_surveyed_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = surveying.texts

    def changing(conf_dir: str, names: Any) -> dict[str, str]:
        found = texts(conf_dir, names)
        (tmp_path / "topology.yaml").write_text("- topology: site\n  flat: true\n")
        return found

    monkeypatch.setattr(surveying, "texts", changing)
    options = {"conf_dir": str(tmp_path), "bin_dir": "", "timeout": 2.0, "step": "survey", "state": "absent"}
    module: Any = SimpleNamespace(params={**options, "change": {"files": planning.FILES}})
    with pytest.raises(SlurmError, match=r"slurm\.conf cannot be read: set conf_dir"):
        slurm_topology.run(module)
    (tmp_path / "topology.yaml").unlink(missing_ok=True)
    (tmp_path / "slurm.conf").write_text("ClusterName=x\n")
    known = slurm_topology.run(module)["survey"]["checksums"]
    with pytest.raises(transact.Outdated):
        transact.require_unchanged(str(tmp_path), known)


def test_a_comment_that_is_not_in_utf_8_stays_and_stops_a_removal(tmp_path: Path) -> None:
    (tmp_path / "topology.yaml").write_bytes(f"{HEADER}\n- topology: site # Caf\xe9\n  flat: true\n".encode("latin-1"))
    read = {"texts": surveying.texts(str(tmp_path), planning.FILES), "checksums": {}}
    with pytest.raises(SlurmError, match=r"^/x: Line 2 is not in UTF-8: save the file in UTF-8.$"):
        planning.plan_removal(read, "/x", "nvlink")
