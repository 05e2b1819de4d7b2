# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writing slurm.conf: kept Include lines, StateSaveLocation, jobs of removed nodes and partitions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import cluster
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.slurm.slurm_fake import FakeSlurm

OURS = "ClusterName=x\nInclude nvlink_nodes.conf\nPartitionName=all Nodes=ALL\n"


def test_includes_of_the_topology_the_tiers_and_the_site_are_kept_in_order() -> None:
    theirs = "Include nvlink_topology.conf\n# Include gone.conf\ninclude site.conf  # theirs\n"
    old = f"{OURS}{theirs}Include nvlink_topology.conf\n"
    kept = cluster.keep_includes(OURS, old)
    assert kept == OURS + "Include nvlink_topology.conf\nInclude site.conf\n"
    assert cluster.keep_includes(OURS, kept) == kept


def test_settings_leave_out_nodes_and_partitions() -> None:
    text = "AuthType=auth/munge # x\nNodeName=a CPUs=1\nPartitionName=b AuthType=no\nSlurmctldParameters=a,\\\n  b\n"
    assert cluster.settings(text)["authtype"] == "auth/munge"
    assert "cpus" not in cluster.settings(text)


def test_node_lines_of_a_concurrent_run_are_not_lost(tmp_path: Path) -> None:
    """Two runs configure a rack each: the later one must render again from what the first one wrote."""
    nodes = tmp_path / cluster.NODES
    nodes.write_text("NodeName=a CPUs=1 RealMemory=1\n")
    made_from = cluster.digest(nodes.read_text())
    nodes.write_text("NodeName=a,b CPUs=1 RealMemory=1\n")
    texts = {cluster.CONF: OURS, cluster.NODES: "NodeName=a,c CPUs=1 RealMemory=1\n"}
    desired = cluster.DesiredState(texts, made_from, str(tmp_path), "x", accounting=False, log=str(tmp_path / "log"))
    with pytest.raises(cluster.Outdated, match="was changed by another run meanwhile"):
        cluster.apply(Host(check=False), desired)
    assert nodes.read_text().startswith("NodeName=a,b ")
    assert not (tmp_path / cluster.CONF).exists()


def test_a_change_of_state_dir_without_its_state_is_refused(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
    (old / "job_state").write_text("")
    conf = tmp_path / cluster.CONF
    conf.write_text(f"ClusterName=x\nStateSaveLocation={old}\n")
    texts = {cluster.CONF: f"ClusterName=x\nStateSaveLocation={new}\n", cluster.NODES: "NodeName=a CPUs=1\n"}
    desired = cluster.DesiredState(texts, "", str(tmp_path), "x", accounting=False, log=str(tmp_path / "log"))
    with pytest.raises(SlurmError, match=f"StateSaveLocation would become {new}, which has no state"):
        cluster.apply(Host(check=False), desired)
    assert conf.read_text().endswith(f"{old}\n")


def programs(directory: Path, **scripts: str) -> Slurm:
    """Slurm's programs, each as a shell script."""
    for name, script in scripts.items():
        program = directory / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    return Slurm(str(directory), 10)


BEFORE = {cluster.CONF: OURS, cluster.NODES: "NodeName=a,b,c CPUs=1 RealMemory=1\n"}
AFTER = {cluster.CONF: OURS, cluster.NODES: "NodeName=a CPUs=1 RealMemory=1\n"}
KNOWN = "echo NodeName=a; echo NodeName=b"
# As squeue does: with one name that slurmctld does not have it lists no job at all.
SQUEUE = 'case "$*" in *,c*) echo "squeue: error: Invalid node name c" >&2; exit 1;; *nodelist=b) echo 7;; esac'


def test_a_tray_that_slurmctld_does_not_have_does_not_hide_the_job_of_another(tmp_path: Path) -> None:
    slurm = programs(tmp_path, scontrol=KNOWN, squeue=SQUEUE)
    with pytest.raises(SlurmError, match=r"^b is no longer in the fabric file and still runs job 7: drain it"):
        cluster._check_jobs(slurm, BEFORE, AFTER)


def test_a_partition_with_a_job_is_not_removed(tmp_path: Path) -> None:
    slurm = programs(tmp_path, squeue='case "$*" in *partition=all) echo 7;; esac')
    after = {**BEFORE, cluster.CONF: OURS.replace("PartitionName=all", "PartitionName=gold")}
    with pytest.raises(SlurmError, match=r"^Partition all is no longer in slurm.conf .* and still has job 7: let its"):
        cluster._check_jobs(slurm, BEFORE, after)


def test_no_tray_is_removed_while_its_jobs_are_not_listed(tmp_path: Path) -> None:
    refused = "echo Unable to contact slurm controller >&2; exit 1"
    for scontrol, names in ((KNOWN, "b"), (refused, "b, c")):
        slurm = programs(tmp_path, scontrol=scontrol, squeue=refused)
        with pytest.raises(
            SlurmError, match=rf"^{names} would be removed from slurm.conf, and .* \(.*Unable to contact .*run ag"
        ):
            cluster._check_jobs(slurm, BEFORE, AFTER)
        cluster._check_jobs(slurm, BEFORE, BEFORE)


def test_jobs_of_a_slurmctld_that_is_down_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = f"{OURS}StateSaveLocation={tmp_path}\n"
    for name, text in {**BEFORE, cluster.CONF: conf}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "job_state").write_text("")
    programs(tmp_path, scontrol="exit 1", squeue="exit 1", systemctl="exit 3")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    made_from = cluster.digest(BEFORE[cluster.NODES])
    desired = cluster.DesiredState(
        {**AFTER, cluster.CONF: conf}, made_from, str(tmp_path), "x", accounting=False, log="", override=cluster.GATES
    )
    with pytest.raises(SlurmError, match=r"^b, c would be removed from slurm.conf"):
        cluster.apply(Host(check=False), desired)
    assert (tmp_path / cluster.NODES).read_text() == BEFORE[cluster.NODES]


def test_several_nodes_are_removed_only_by_name(tmp_path: Path) -> None:
    host, texts = Host(check=True), {**AFTER, cluster.CONF: OURS}
    desired = cluster.DesiredState(texts, "", str(tmp_path), "x", accounting=False, log="")
    with pytest.raises(
        SlurmError,
        match=(
            r"^2 of 3 nodes would be removed from nvlink_nodes.conf \(b, c\): .*"
            r"set override \(variable slurm_override\) to nodes_removed"
        ),
    ):
        cluster._plan(host, desired, BEFORE)
    assert host.changes == []
    assert cluster._plan(host, replace(desired, override=cluster.GATES), BEFORE)[1]
    for before in ({}, {**BEFORE, cluster.NODES: BEFORE[cluster.NODES].replace(",b,c", ",b")}):
        assert cluster._plan(host, desired, before)[1]


def test_a_slurmdbd_that_refuses_for_a_moment_is_queried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = f"echo >> {tmp_path}/queries; [ $(wc -l < {tmp_path}/queries) -gt 2 ] && echo nvlink || exit 1"
    cluster._register(Host(check=False), programs(tmp_path, sacctmgr=count), "nvlink")
    monkeypatch.setattr(cluster, "DATABASE_SECONDS", 1.0)
    slurm = programs(tmp_path, sacctmgr="echo Connection refused >&2; exit 1")
    with pytest.raises(SlurmError, match=r"slurmdbd does not answer \(Connection refused\): start it"):
        cluster._register(Host(check=False), slurm, "nvlink")


def test_partitions_leave_out_included_files() -> None:
    text = "PartitionName=a Nodes=ALL\n# PartitionName=b\npartitionname=c Nodes=x\nNodeName=d\nInclude e.conf\n"
    assert cluster.partitions(text) == {"a", "c"}


@pytest.mark.parametrize("check", [True, False])
def test_a_bring_up_undoes_no_live_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: bool) -> None:
    fake = FakeSlurm(tmp_path)
    monkeypatch.setenv("PATH", f"{fake.bin_dir}:/usr/bin:/bin")
    conf = fake.conf_dir / cluster.CONF
    conf.write_text(OURS)
    (fake.conf_dir / cluster.NODES).write_text("")
    record = {"PartitionName": "all", "State": "UP"}
    monkeypatch.setattr(cluster.live, "loaded", lambda *_arguments: cluster.live.Shown({"all": record}, {}))
    fake.shown.write_text("PartitionName=all State=DRAIN\n")
    texts = {cluster.CONF: f"{OURS}MaxJobCount=9\n", cluster.NODES: ""}
    made_from = cluster.digest("")
    desired = cluster.DesiredState(texts, made_from, str(fake.conf_dir), "x", accounting=False, log=str(fake.log))
    lost = r"State of partition all is DRAIN.*override \(variable slurm_override\) to live_changes_lost"
    with pytest.raises(SlurmError, match=lost):
        cluster.apply(Host(check), desired)
    assert conf.read_text() == OURS
    kept = replace(desired, texts={**texts, cluster.CONF: f"ReconfigFlags=KeepPartState\n{texts[cluster.CONF]}"})
    for allowed in (kept, replace(desired, override=(cluster.live.GATE,))):
        assert cluster.CONF in cluster.apply(Host(check), allowed)
