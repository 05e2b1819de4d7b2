# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Survey, apply and remove topology and tiers, and restore all on failure; tests/integration has real daemons."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import (
    conf,
    conf_folder,
    live,
    programs,
    scontrol,
    transaction,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf import (
    SCRIPT_HEADER,
    SCRIPTS,
    TIERS_HEADER,
    TIERS_NAME,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import (
    HEADER,
    Block,
    SlurmError,
    Topology,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.tiers import sacctmgr, tier_apply
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.tiers.tier_apply import Step
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.topology import comparing, surveying, transact
from ansible_collections.rackscale.nvlink.plugins.modules import slurm_host
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import changes, planning, topology_files
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.moves import describe
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.observed import Observed
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.slurm import slurm_fake
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.trays import script

ASKED = {"files": planning.FILES, "jobs": True, "columns": ""}


def topology(sizes: tuple[int, ...] = (2,), **blocks: str) -> Topology:
    made = tuple(Block(name, tuple(nodes.split())) for name, nodes in blocks.items())
    return Topology(name="nvlink", blocks=made, block_sizes=sizes)


NEW_A = ["block a: new at position 0, 2 trays: n1,n2"]


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
        # Nodes with the same move share a line.
        (
            topology(a="n1 n2 n3 n4", b="n5"),
            topology(a="n1", b="n5 n6", c="n2 n3 n4"),
            ["n6:None>b", "n2:a>c", "n3:a>c", "n4:a>c"],
            ["block c: new at position 2, 3 trays: n2,n3,n4", "n6: (no block) -> b", "n[2-4]: a -> c"],
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
    assert read["settings"] == {
        "selecttype": "select/cons_tres",
        "prologflags": "Alloc,Contain",
        "topologyplugin": "topology/block",
        # As in Slurm, the last line wins, and an included file stands where its Include is.
        "topologyparam": "SwitchAsNodeRank",
    }
    assert read["node_topologies"] == {"n1": "nvlink:a,leaf:s0", "n2": "nvlink:a,leaf:s0"}
    assert read["includes_ours"]


def test_a_default_line_gives_the_topology_of_the_lines_that_follow(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text(
        "NodeName=n0\nnodename=default topology=nvlink:a\nNodeName=DEFAULT CPUs=4\nInclude nodes.conf\n"
        "NodeName=n2 Topology=nvlink:b\nNodeName=n3 Topology=\n"
    )
    (tmp_path / "nodes.conf").write_text("NodeName=n1\n")
    read = conf.read_slurm_conf(str(tmp_path))
    assert read["node_topologies"] == {"n1": "nvlink:a", "n2": "nvlink:b"}


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
        (
            {"scontrol": "echo 'SLURM_CONF = /opt/site/slurm.conf'"},
            "set slurm_conf_dir to /opt/site",
        ),
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
    with pytest.raises(conf_folder.Outdated, match="Another run has changed slurmctld"):
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
    options = {"conf_dir": str(tmp_path), "bin_dir": "", "timeout": 2.0, "step": "read"}
    params = {**options, "change": {"files": planning.FILES}}
    with pytest.raises(
        SlurmError, match=r"slurm\.conf cannot be read: correct the group slurm_controller, set slurm_conf_dir"
    ):
        slurm_host.run(params)
    (tmp_path / "topology.yaml").unlink(missing_ok=True)
    (tmp_path / "slurm.conf").write_text("ClusterName=x\n")
    surveyed = slurm_host.run(params)["survey"]["checksums"]
    with pytest.raises(conf_folder.Outdated):
        transact.require_unchanged(str(tmp_path), surveyed, conf_folder.checksums(str(tmp_path)))


def test_a_comment_that_is_not_in_utf_8_stays_and_stops_a_removal(tmp_path: Path) -> None:
    (tmp_path / "topology.yaml").write_bytes(f"{HEADER}\n- topology: site # Caf\xe9\n  flat: true\n".encode("latin-1"))
    read = {"texts": surveying.texts(str(tmp_path), planning.FILES), "checksums": {}}
    with pytest.raises(SlurmError, match=r"^/x: Line 2 is not in UTF-8: save the file in UTF-8.$"):
        planning.plan_removal(read, "/x", "nvlink")


# -------------------------------------------------------------------------------------------------------------- removal

TOPOLOGY, TIERS = "topology", "tiers"
SITE = "ClusterName=lab\nNodeName=r01t[01-02]\n"
BLOCKS = Topology("nvlink", blocks=(Block("r01", ("r01t01", "r01t02")),), block_sizes=(2,))
OF_TIERS = {"nvlink_partitions.conf", "job_submit.lua", "nvlink_segments.lua", "nvlink_partitions.conf.previous"}


def slurmctld(shows: str = "", refuses: int = 0, partitions: str = "") -> Any:
    """A stand-in that runs this topology whatever its files are, and refuses so many times to load them."""
    refused = [child.Result(1, "", "fatal: no topology")] * refuses
    return SimpleNamespace(
        timeout=1.0,
        version=lambda: (26, 5, 5),
        topologies=lambda _version: [Topology(shows)] if shows else [],
        shown=list,
        config=dict,
        records=lambda _what: scontrol.parse_records(partitions),
        answers=lambda: True,
        reconfigure=lambda: refused.pop() if refused else child.Result(0, "", ""),
    )


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "CALM", 0.01)
    monkeypatch.setattr(transaction, "RUNNING_SECONDS", 0.1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of slurm.conf with everything that slurm_topology and slurm_tiers write."""
    texts = {
        "slurm.conf": f"{SITE}Include nvlink_topology.conf\nInclude nvlink_partitions.conf\n",
        "slurm.conf.previous": SITE,
        "topology.yaml": topology_files.render([BLOCKS], scontrol.YAML),
        "topology.yaml.previous": "older\n",
        "nvlink_topology.conf": f"{scontrol.HEADER}\nTopologyPlugin=topology/block\n",
        "nvlink_partitions.conf": f"{TIERS_HEADER}\n",
        "nvlink_partitions.conf.previous": "older\n",
        "job_submit.lua": f"{SCRIPT_HEADER}\n",
        "nvlink_segments.lua": f"{SCRIPT_HEADER}\n",
        "gres.conf": "site\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "job_submit.lua").chmod(0o640)
    return tmp_path


def contents(folder: Path) -> dict[str, tuple[str, int]]:
    return {path.name: (path.read_text(), path.stat().st_mode) for path in folder.iterdir()}


def change(folder: Path, part: str) -> dict[str, Any]:
    survey = {"texts": surveying.texts(str(folder), (*planning.FILES, TIERS_NAME, *SCRIPTS)), "checksums": {}}
    made = planning.plan_removal(survey, "topology.yaml", "nvlink")
    if part == TIERS:
        made.update(changes.removed_files(survey["texts"], (TIERS_NAME, *SCRIPTS)))
    return {**made, "override": ""}


def remove(folder: Path, part: str, slurm: Any = None) -> None:
    made = change(folder, part)
    files = transact.writes(str(folder), made)
    transact.apply(slurm or slurmctld(), str(folder), made, files, conf_folder.checksums(str(folder)))


def left(folder: Path, part: str) -> list[str]:
    return list(transact.writes(str(folder), change(folder, part)))


def test_each_part_is_removed_alone_and_only_once(folder: Path) -> None:
    everything = set(os.listdir(folder))
    remove(folder, TIERS)
    assert set(os.listdir(folder)) == everything - OF_TIERS - {"slurm.conf.previous"}
    assert (folder / "slurm.conf").read_text() == f"{SITE}Include nvlink_topology.conf\n"
    assert left(folder, TIERS) == []
    remove(folder, TOPOLOGY)
    assert set(os.listdir(folder)) == {"slurm.conf", "gres.conf"}
    assert (folder / "slurm.conf").read_text() == SITE
    for part in (TOPOLOGY, TIERS):
        assert left(folder, part) == []


def test_all_files_are_restored_where_the_topology_still_runs(folder: Path) -> None:
    before = contents(folder)
    with pytest.raises(
        SlurmError, match="still runs the removed topology; the old files were restored, and slurmctld r"
    ):
        remove(folder, TOPOLOGY, slurmctld("nvlink"))
    assert contents(folder) == before
    remove(folder, TOPOLOGY, slurmctld("site"))
    assert not (folder / "topology.yaml").exists()


def test_a_topology_that_a_partition_names_is_not_removed(folder: Path) -> None:
    before, named = contents(folder), "PartitionName=gold Topology=nvlink\nPartitionName=cpu Topology=flat\n"
    with pytest.raises(
        SlurmError, match="The topology nvlink stays while Topology= of gold names it: remove that from"
    ):
        remove(folder, TOPOLOGY, slurmctld(partitions=named))
    assert contents(folder) == before
    remove(folder, TOPOLOGY, slurmctld(partitions="PartitionName=cpu Topology=flat\n"))
    assert not (folder / "topology.yaml").exists()


def test_files_of_the_site_are_never_removed(folder: Path) -> None:
    (folder / "topology.yaml").write_text("- topology: nvlink\n  flat: true\n")
    (folder / "job_submit.lua").write_text('dofile("/etc/slurm/nvlink_segments.lua").submit(job_desc, part_list)\n')
    for part in (TOPOLOGY, TIERS):
        remove(folder, part, slurmctld("nvlink"))
    left = {"slurm.conf", "gres.conf", "topology.yaml", "job_submit.lua", "nvlink_segments.lua"}
    assert set(os.listdir(folder)) == left, "the site's script still calls the policy"


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("  TopologyPlugin = topology/tree # fat tree", "#  TopologyPlugin = topology/tree # fat tree"),
        ("topologyplugin=topology/tree\nSelectType=x", "#topologyplugin=topology/tree\nSelectType=x"),
        # The value that is included last applies.
        ("SelectType=x TopologyPlugin=topology/tree", "SelectType=x TopologyPlugin=topology/tree"),
        ("TopologyPlugin=topology/tree SelectType=x", "TopologyPlugin=topology/tree SelectType=x"),
        ("#TopologyPlugin=topology/tree", "#TopologyPlugin=topology/tree"),
    ],
)
def test_a_setting_of_a_line_of_its_own_becomes_a_comment(line: str, after: str, tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text(f"{SITE}{line}\n")
    made = {"files": [], "includes": "nvlink_topology.conf", "unset": "TopologyPlugin", "excludes": []}
    text = f"{SITE}{after}\nInclude nvlink_topology.conf\n"
    assert transact.writes(str(tmp_path), made) == {str(tmp_path / "slurm.conf"): text.encode()}


def test_a_link_to_slurm_conf_stays_a_link(folder: Path) -> None:
    real = folder / "shared"
    real.mkdir()
    (folder / "slurm.conf").rename(real / "slurm.conf")
    (folder / "slurm.conf").symlink_to("shared/slurm.conf")
    text = (real / "slurm.conf").read_text()
    with pytest.raises(SlurmError):
        remove(folder, TIERS, slurmctld(refuses=1))
    assert (real / "slurm.conf").read_text() == text
    remove(folder, TIERS)
    assert ((folder / "slurm.conf").is_symlink(), os.listdir(real)) == (True, ["slurm.conf"])
    assert (real / "slurm.conf").read_text() == f"{SITE}Include nvlink_topology.conf\n"


# ---------------------------------------------------------------------------------------------------------------- tiers

STEPS = [
    {"description": f"qos {name}: new", "do": ["add", "qos", name], "undo": ["delete", "qos", name]}
    for name in ("one", "two", "three")
]


UP = 'echo "Slurmctld(primary) at ctl is UP"'


def programs_that(tmp_path: Path, scontrol: str = UP, sacctmgr: str = "") -> Path:
    """Slurm's programs as scripts that log their arguments; returns the log."""
    log = tmp_path / "calls"
    (tmp_path / "bin").mkdir()
    jobs = f"if [ -e {tmp_path}/jobs ]; then cat {tmp_path}/jobs; fi"
    for name, body in (("scontrol", scontrol), ("sacctmgr", sacctmgr), ("systemctl", "exit 1"), ("squeue", jobs)):
        script(tmp_path / "bin" / name, f'echo "{name} $*" >> {log}\n{body}')
    return log


def changed(**values: Any) -> dict[str, Any]:
    """The option change that has slurmctld run the partition gold."""
    return {
        "columns": "Name",
        "before": [],
        "after": [],
        "partitions": [["gold", [["Nodes", "a1"], ["State", "UP"]]]],
        "removed": [],
        "leaving": [],
        "excludes": [],
        "load": True,
        "override": "",
        **values,
    }


def apply(tmp_path: Path, *steps: Step, file: str | None = "old\n", after: Sequence[Step] = ()) -> None:
    """Replace the file of partitions and have slurmctld run the partition gold."""
    (tmp_path / "slurm.conf").write_text("ClusterName=lab\nInclude nvlink_partitions.conf\n")
    include = tmp_path / TIERS_NAME
    if file is not None:
        include.write_text(file)
    change = changed(before=steps, after=after)
    slurm, stamps = programs.Slurm(str(tmp_path / "bin"), 2.0, str(tmp_path)), conf_folder.checksums(str(tmp_path))
    tier_apply.apply(slurm, str(tmp_path), change, {str(include): b"new\n"}, stamps)


def calls(log: Path, program: str) -> list[str]:
    lines = log.read_text().splitlines() if log.exists() else []
    found = [line.partition(" ")[2].replace("-i -Q ", "") for line in lines if line.startswith(program)]
    return [line for line in found if not line.startswith(("-nP show", "-a -o show", "show config"))]


def test_a_failed_step_undoes_the_earlier_ones_in_reverse_order(tmp_path: Path) -> None:
    log = programs_that(tmp_path, sacctmgr='case "$*" in *"add qos three"*) echo no room >&2; exit 1;; esac')
    with pytest.raises(SlurmError) as caught:
        apply(tmp_path, *STEPS)
    assert str(caught.value) == (
        "sacctmgr add qos three failed (no room); no file was changed, and the records in slurmdbd were restored."
    )
    assert calls(log, "sacctmgr") == ["add qos one", "add qos two", "add qos three", "delete qos two", "delete qos one"]
    assert calls(log, "scontrol") == []
    assert (tmp_path / TIERS_NAME).read_text() == "old\n"


def test_an_interrupted_run_undoes_all_started_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = programs_that(tmp_path)
    real = sacctmgr.Sacctmgr.run

    def run(self: sacctmgr.Sacctmgr, arguments: Sequence[str]) -> str:
        error = real(self, arguments)
        if arguments == STEPS[1]["do"]:
            raise SystemExit("ended by signal 15")
        return error

    monkeypatch.setattr(sacctmgr.Sacctmgr, "run", run)
    with pytest.raises(SystemExit):
        apply(tmp_path, *STEPS)
    assert calls(log, "sacctmgr") == ["add qos one", "add qos two", "delete qos two", "delete qos one"]
    assert (tmp_path / TIERS_NAME).read_text() == "old\n"


def test_a_file_that_cannot_be_written_undoes_the_records(tmp_path: Path) -> None:
    log = programs_that(tmp_path)
    (tmp_path / TIERS_NAME).mkdir()
    with pytest.raises(
        SlurmError, match=r"could not be written \(.*; nothing was changed, and the records in slurmdbd were restored"
    ):
        apply(tmp_path, STEPS[0], file=None)
    assert calls(log, "sacctmgr") == ["add qos one", "delete qos one"]
    assert calls(log, "scontrol") == []


def test_a_slurmctld_that_does_not_run_the_new_partitions_gets_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "RUNNING_SECONDS", 0.1)
    monkeypatch.setattr(transaction, "CALM", 0.1)
    monkeypatch.setenv("PATH", str(tmp_path / "bin") + ":/usr/bin:/bin")
    log = programs_that(tmp_path)
    with pytest.raises(
        SlurmError,
        match=r"gold is missing.*the old files were restored, and slurmctld runs as before, and the records",
    ):
        apply(tmp_path, STEPS[0])
    assert (tmp_path / TIERS_NAME).read_text() == "old\n"
    assert calls(log, "scontrol").count("reconfigure") == 2
    assert calls(log, "sacctmgr") == ["add qos one", "delete qos one"]


def test_removals_come_last_and_their_failure_keeps_the_applied_partitions(tmp_path: Path) -> None:
    shown = "PartitionName=gold Nodes=a1 State=UP"
    log = programs_that(tmp_path, scontrol=f"echo '{shown}'", sacctmgr='case "$*" in *delete*) exit 1;; esac')
    after = [{"description": "qos old: removed", "do": ["delete", "qos", "old"], "undo": []}]
    with pytest.raises(SlurmError, match="The partitions are applied, but sacctmgr delete qos old failed"):
        apply(tmp_path, after=after)
    assert (tmp_path / TIERS_NAME).read_text() == "new\n"
    assert [line.split()[0] for line in log.read_text().splitlines()][-1] == "sacctmgr"


def step(tmp_path: Path, name: str, **values: Any) -> dict[str, Any]:
    """A step of the module that is to remove the partition old."""
    (tmp_path / "slurm.conf").write_text("ClusterName=lab\nInclude nvlink_partitions.conf\n")
    include = tmp_path / TIERS_NAME
    include.write_text("old\n")
    change = changed(
        files=[[str(include), "new\n"]], includes="", checksums={}, leaving=["old"], removed=["old"], own=[], **values
    )
    options = {"conf_dir": str(tmp_path), "bin_dir": str(tmp_path / "bin"), "timeout": 2.0}
    return slurm_host.run({**options, "step": name, "change": change})


@pytest.mark.parametrize("jobs", ["", "17|alice|old\n"])
def test_jobs_in_partitions_that_go_are_named(tmp_path: Path, jobs: str) -> None:
    log = programs_that(tmp_path)
    (tmp_path / "jobs").write_text(jobs)
    answer = step(tmp_path, "rehearse", reloads=False, rehearsal=None)
    assert answer["busy"] == ("job 17 of alice in old" if jobs else "")
    assert calls(log, "squeue") == ["-a -h -p old -o %A|%u|%P"]


def test_jobs_are_asked_last_before_a_file_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = programs_that(tmp_path)

    def started(*_arguments: object) -> None:
        (tmp_path / "jobs").write_text("17|alice|old\n")

    # It may take minutes.
    monkeypatch.setattr(live, "require_none", started)
    sentence = (
        r"Jobs have started in partitions that go \(job 17 of alice in old\): run again; nothing was changed, and"
    )
    with pytest.raises(SlurmError, match=sentence):
        step(tmp_path, "tiers", override="override", before=STEPS[:1])
    assert (tmp_path / TIERS_NAME).read_text() == "old\n"
    assert (calls(log, "scontrol"), calls(log, "sacctmgr")) == ([], ["add qos one", "delete qos one"])
