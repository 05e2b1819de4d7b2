# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a reconfigure would undo: records of scontrol against lines of slurm.conf."""

from __future__ import annotations

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import live

LINES = (
    "DebugFlags=Backfill",
    "PartitionName=DEFAULT MaxTime=60",
    "NodeName=n[1-3] Weight=5 Feature=a,b Gres=gpu:4",
    "PartitionName=gpu Nodes=n[1-3] AllowAccounts=x,y",
)
PARTITION = {
    "PartitionName": "gpu",
    "State": "UP",
    "MaxTime": "01:00:00",
    "DefaultTime": "NONE",
    "MaxNodes": "UNLIMITED",
    "AllowAccounts": "y,x",
    "Nodes": "n[1-3]",
    "PriorityTier": "1",
    "OverSubscribe": "NO",
    "JobDefaults": "(null)",
}
NODE = {"NodeName": "n1", "Weight": "5", "AvailableFeatures": "b,a", "Gres": "gpu:gb200:4(S:0-1)"}


def found(
    partition: dict[str, str] | None = None,
    node: dict[str, str] | None = None,
    settings: dict[str, str] | None = None,
    more: tuple[str, ...] = (),
    planned: tuple[str, ...] | None = None,
) -> list[str]:
    partitions = [{**PARTITION, **(partition or {})}]
    after = None if planned is None else live.configured(planned)
    shown = {"debugflags": "Backfill", "slurmctlddebug": "info", **(settings or {})}
    return live.describe(
        live.lost(partitions, [{**NODE, **(node or {})}], shown, live.configured((*LINES, *more)), after)
    )


def test_a_slurmctld_that_runs_its_file_loses_nothing() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("partition", "clause"),
    [
        ({"State": "DRAIN"}, "State of partition gpu is DRAIN, configured UP"),
        ({"AllowAccounts": "x"}, "AllowAccounts of partition gpu is x, configured x,y"),
        ({"OverSubscribe": "FORCE:2"}, "OverSubscribe of partition gpu is FORCE:2, configured NO"),
        ({"PartitionName": "new"}, "partition new is not in slurm.conf"),
    ],
)
def test_a_live_setting_of_a_partition_is_lost(partition: dict[str, str], clause: str) -> None:
    assert found(partition) == [clause]


@pytest.mark.parametrize(
    ("node", "clause"),
    [
        ({"Weight": "9"}, "Weight of node n1 is 9, configured 5"),
        ({"AvailableFeatures": "(null)"}, "AvailableFeatures of node n1 is unset, configured a,b"),
        ({"Gres": "gpu:2"}, "Gres of node n1 is gpu:2, configured gpu:4"),
    ],
)
def test_a_live_setting_of_a_node_is_lost(node: dict[str, str], clause: str) -> None:
    assert found(node=node) == [clause]


def test_a_live_debug_flag_is_lost() -> None:
    assert found(settings={"debugflags": "Backfill,Gres"}) == ["DebugFlags is Backfill,Gres, configured Backfill"]
    assert found(settings={"slurmctlddebug": "debug2"}) == ["SlurmctldDebug is debug2, configured info"]
    assert found(settings={"slurmctlddebug": "debug"}, more=("SlurmctldDebug=5",)) == []


def test_reconfigflags_keep_what_they_name() -> None:
    drained = {"State": "DRAIN", "MaxTime": "02:00:00"}
    assert len(found(drained)) == 2
    assert len(found(drained, more=("ReconfigFlags=KeepPartState",))) == 1
    assert found(drained, more=("ReconfigFlags=KeepPartInfo",)) == []
    assert found({"JobDefaults": "DefCpuPerGPU=2"}, more=("ReconfigFlags=KeepPartInfo",)) != []
    excluded = {"suspendexcnodes": "n1"}
    assert len(found(settings=excluded)) == 1
    assert found(settings=excluded, more=("ReconfigFlags=KeepPowerSaveSettings",)) == []


def test_what_the_plan_sets_or_changes_is_no_loss() -> None:
    longer = tuple(line.replace("MaxTime=60", "MaxTime=120") for line in LINES)
    assert found({"MaxTime": "02:00:00"}, planned=longer) == []
    assert found({"MaxTime": "01:00:00"}, planned=longer) == []
    assert found({"MaxTime": "03:00:00"}, planned=longer) == ["MaxTime of partition gpu is 03:00:00, configured 120"]


def test_node_sets_and_dynamic_nodes_are_not_compared() -> None:
    lines = ("NodeSet=ns Feature=a", LINES[2], "PartitionName=gpu Nodes=ns MaxTime=60 AllowAccounts=x,y", LINES[0])
    partition = {**PARTITION, "Nodes": "n[1-3]"}
    known = live.configured(lines)
    records = [{**NODE, "NodeName": "dyn1", "Weight": "7"}]
    assert live.lost([partition], records, {"debugflags": "backfill"}, known) == []


def test_a_hostlist_is_compared_by_its_hosts() -> None:
    line = "PartitionName=gpu Nodes=n[1-3] AllowAccounts=x,y AllocNodes=n1,n2"
    assert found({"AllocNodes": "n[1-2]"}, more=(line,)) == []
    assert found({"AllocNodes": "n1"}) == ["AllocNodes of partition gpu is n1, configured unset"]


def test_exclusive_of_26_05_is_compared_with_the_older_keys() -> None:
    for keys, live_value in (
        ("OverSubscribe=EXCLUSIVE", "NODE"),
        ("ExclusiveTopo=YES", "TOPO"),
        ("Exclusive=no", "NO"),
    ):
        line = f"PartitionName=gpu Nodes=n[1-3] AllowAccounts=x,y {keys}"
        assert found({"Exclusive": live_value}, more=(line,)) == []
    assert found({"Exclusive": "USER"}) == ["Exclusive of partition gpu is USER, configured unset"]


def test_no_flag_keeps_the_state_where_26_05_cannot_read_its_own() -> None:
    flags = ("ReconfigFlags=KeepPartState",)
    assert found({"State": "DRAIN", "Exclusive": "NO"}, more=flags) == []
    assert len(found({"State": "DRAIN", "Exclusive": "TOPO"}, more=flags)) == 2
