# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a reconfigure would undo: records of the running slurmctld against those of one with the files."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import live
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.sandbox import SandboxUnavailable
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.slurm.slurm_fake import FakeSlurm

PARTITION = {
    "PartitionName": "gpu",
    "State": "UP",
    "MaxTime": "01:00:00",
    "AllowAccounts": "x,y",
    "Nodes": "n[1-3]",
    "TotalNodes": "3",
    "Exclusive": "NO",
    "JobDefaults": "(null)",
}
NODE = {"Weight": "5", "AvailableFeatures": "a,b", "Gres": "gpu:4", "CpuBind": "", "State": "IDLE"}


def shown(partition: dict[str, str], node: dict[str, str]) -> live.Shown:
    record = {**PARTITION, **partition}
    return live.Shown({record["PartitionName"]: record}, {f"n{number}": {**NODE, **node} for number in (1, 2, 3)})


def found(
    partition: dict[str, str] | None = None,
    node: dict[str, str] | None = None,
    flags: str = "",
    planned: dict[str, str] | None = None,
    config: dict[str, str] | None = None,
) -> list[str]:
    """The clauses where slurm.conf has PARTITION and NODE, slurmctld shows these, and the plan changes that."""
    before, after = shown({}, {}), shown(planned or {}, {})
    running = shown(partition or {}, node or {})
    return live.describe(live.lost(running, before, after, config or {}, {"reconfigflags": flags}))


def test_a_slurmctld_that_runs_its_file_loses_nothing() -> None:
    assert found() == []
    # slurmd adds types and sockets; other nodes join a partition of all nodes by themselves.
    for gres in ("gpu:gb200:4(S:0-1)", "gpu:a100:4(S:1,3,5,7)", "gpu:a:1,gpu:b:3"):
        assert found(node={"Gres": gres}) == [], gres
    assert found({"Nodes": "n[1-3],dyn1", "TotalNodes": "4"}) == []
    # The saved count stays where slurm.conf has fewer now.
    assert [found(node={"Gres": gres}) for gres in ("gpu:8", "gpu:4,nic:1", "gpu:a100:1k")] == [[], [], []]


def test_a_deleted_partition_comes_back() -> None:
    running, files = shown({"PartitionName": "x"}, {}), shown({}, {})
    clauses = live.describe(live.lost(running, files, files, {}, {"reconfigflags": "KeepPartInfo"}))
    assert clauses == ["partition gpu of slurm.conf was deleted, or never loaded"]


@pytest.mark.parametrize(
    ("partition", "node", "clause"),
    [
        ({"State": "DRAIN"}, {}, "State of partition gpu is DRAIN, configured UP"),
        ({"AllowAccounts": "x"}, {}, "AllowAccounts of partition gpu is x, configured x,y"),
        ({"Nodes": "n[1-2]"}, {}, "Nodes of partition gpu is n[1-2], configured n[1-3]"),
        ({"Topology": "flat"}, {}, "Topology of partition gpu is flat, configured unset"),
        ({}, {"Weight": "9"}, "Weight of node n[1-3] is 9, configured 5"),
        ({}, {"AvailableFeatures": "(null)"}, "AvailableFeatures of node n[1-3] is unset, configured a,b"),
        ({}, {"Gres": "gpu:2"}, "Gres of node n[1-3] is gpu:2, configured gpu:4"),
        ({}, {"Gres": "nic:4"}, "Gres of node n[1-3] is nic:4, configured gpu:4"),
        # CLOUD nodes lose their saved count, too.
        ({}, {"Gres": "gpu:8", "State": "IDLE+CLOUD"}, "Gres of node n[1-3] is gpu:8, configured gpu:4"),
    ],
)
def test_a_live_setting_is_lost(partition: dict[str, str], node: dict[str, str], clause: str) -> None:
    assert found(partition, node) == [clause]


def test_a_partition_of_scontrol_create_vanishes() -> None:
    running = live.Shown({"gpu": PARTITION, "new": PARTITION}, {})
    assert live.describe(live.lost(running, shown({}, {}), shown({}, {}), {}, {})) == [
        "partition new is not in slurm.conf"
    ]


def test_features_that_a_plugin_changes_are_not_compared() -> None:
    assert found(node={"AvailableFeatures": "a"}, config={"nodefeaturesplugins": "node_features/helpers"}) == []


def settings(live_values: dict[str, str], **configured: str) -> list[str]:
    return live.describe(live.lost_settings({"debugflags": "Backfill", **live_values}, configured, configured))


def test_the_sentence_is_short_however_many_nodes_a_partition_has() -> None:
    nodes = ",".join(f"rack-{rack}-tray-[01-18]" for rack in range(1000))
    clauses = found({"Nodes": nodes, "State": "DRAIN"})
    assert len(max(clauses, key=len)) > 16 * 1024
    sentence = live.sentence(clauses)
    assert len(sentence) < 1000
    assert sentence.endswith("State of partition gpu is DRAIN, configured UP)")


def test_a_live_debug_flag_is_lost() -> None:
    assert settings({}, debugflags="backfill") == []
    flags = settings({"debugflags": "Backfill,Gres"}, debugflags="Backfill")
    assert flags == ["DebugFlags is Backfill,Gres, configured Backfill"]
    level = settings({"slurmctlddebug": "debug2"}, debugflags="Backfill")
    assert level == ["SlurmctldDebug is debug2, configured unset"]
    assert settings({"slurmctlddebug": "debug"}, debugflags="Backfill", slurmctlddebug="5") == []


def test_reconfigflags_keep_what_they_name() -> None:
    drained = {"State": "DRAIN", "MaxTime": "02:00:00"}
    assert len(found(drained)) == 2
    assert len(found(drained, flags="KeepPartState")) == 1
    assert found(drained, flags="KeepPartInfo") == []
    assert found({"JobDefaults": "DefCpuPerGPU=2"}, flags="KeepPartInfo") != []
    excluded = {"suspendexcnodes": "n1"}
    assert len(settings(excluded, debugflags="Backfill")) == 1
    assert settings(excluded, debugflags="Backfill", reconfigflags="KeepPowerSaveSettings") == []


def test_no_flag_keeps_the_state_where_26_05_cannot_read_its_own() -> None:
    assert found({"State": "DRAIN"}, flags="KeepPartState") == []
    assert len(found({"State": "DRAIN", "Exclusive": "TOPO"}, flags="KeepPartState")) == 2


def test_what_the_plan_sets_or_changes_is_no_loss() -> None:
    longer = {"MaxTime": "02:00:00"}
    assert found({"MaxTime": "02:00:00"}, planned=longer) == []
    assert found({"MaxTime": "01:00:00"}, planned=longer) == []
    lost = ["MaxTime of partition gpu is 03:00:00, configured 02:00:00"]
    assert found({"MaxTime": "03:00:00"}, planned=longer) == lost


@pytest.fixture
def running(tmp_path: Path) -> FakeSlurm:
    """A slurmctld with a drained partition and a live debug flag."""
    fake = FakeSlurm(tmp_path)
    (fake.conf_dir / "slurm.conf").write_text("DebugFlags=Backfill\nPartitionName=gpu\n")
    fake.shown.write_text("PartitionName=gpu State=DRAIN\nDebugFlags = Gres\n")
    return fake


def survey(fake: FakeSlurm, writes: dict[str, bytes] | None = None, own: Collection[str] = ()) -> list[str]:
    return live.survey(Slurm(str(fake.bin_dir)), str(fake.conf_dir), writes or {}, own)


def test_any_change_may_be_lost_where_no_sandbox_can_run(running: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(*_arguments: object) -> live.Shown:
        raise SandboxUnavailable("it needs root")

    monkeypatch.setattr(live, "loaded", unavailable)
    assert survey(running, own={"gpu"}) == [
        "any of partitions and nodes, since no sandbox can compare them: it needs root",
        "DebugFlags is Gres, configured Backfill",
    ]


@pytest.mark.parametrize(
    ("state", "writes", "sandboxes", "clauses"),
    [
        ("DRAIN", b"PartitionName=gpu State=DRAIN\n", 1, 1),
        ("UP", b"PartitionName=gpu\n", 1, 2),
        ("UP", b"PartitionName=gpu State=DRAIN\n", 2, 2),
    ],
    ids=["as its file", "the same partitions", "other partitions"],
)
def test_the_planned_files_are_loaded_only_where_something_was_changed(
    running: FakeSlurm, monkeypatch: pytest.MonkeyPatch, state: str, writes: bytes, sandboxes: int, clauses: int
) -> None:
    texts = []

    def loaded(_slurm: Slurm, text: str, *_more: object) -> live.Shown:
        texts.append(text)
        return live.Shown({"gpu": {"PartitionName": "gpu", "State": state}}, {})

    monkeypatch.setattr(live, "loaded", loaded)
    found = survey(running, {str(running.conf_dir / "slurm.conf"): writes})
    assert (len(texts), len(found)) == (sandboxes, clauses)
