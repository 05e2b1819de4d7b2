# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring up a controller, its backup and a tray: slurm.conf, files of a backup, keys, log rotation, a foreign slurmd."""

from __future__ import annotations

import base64
import contextlib
import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import (
    cluster,
    conf_folder,
    keys,
    slurmd_host,
    standby,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import SlurmError
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.slurm.slurm_fake import FakeSlurm, programs

OURS = "ClusterName=x\nInclude nvlink_nodes.conf\nPartitionName=all Nodes=ALL\n"
BEFORE = {cluster.CONF: OURS, cluster.NODES: "NodeName=a,b,c CPUs=1 RealMemory=1\n"}
AFTER = {cluster.CONF: OURS, cluster.NODES: "NodeName=a CPUs=1 RealMemory=1\n"}


def options(folder: Path, texts: dict[str, str], **more: Any) -> dict[str, Any]:
    """Those of slurm_step, for texts that were rendered from the present node lines."""
    made_from = cluster.digest(cluster.present(str(folder)).get(cluster.NODES))
    usual = {"cluster_name": "x", "accounting": False, "log": "", "allow_removal": False, "override": []}
    return {"texts": texts, "made_from": made_from, "conf_dir": str(folder), **usual, **more}


def write(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).write_text(text)


def test_includes_of_the_topology_the_tiers_and_the_site_are_kept_in_order() -> None:
    theirs = "Include nvlink_topology.conf\n# Include gone.conf\ninclude site.conf  # theirs\n"
    old = f"{OURS}{theirs}Include nvlink_topology.conf\n"
    kept = cluster.keep_includes(OURS, old)
    assert kept == OURS + "Include nvlink_topology.conf\nInclude site.conf\n"
    assert cluster.keep_includes(OURS, kept) == kept


def test_settings_and_partitions_are_read_apart() -> None:
    text = "AuthType=auth/munge # x\nNodeName=a CPUs=1\npartitionname=b AuthType=no\n# PartitionName=c\nInclude d\n"
    assert cluster.settings(text) == {"authtype": "auth/munge"}
    assert cluster.partitions(text) == {"b"}


def test_node_lines_of_a_concurrent_run_are_not_lost(tmp_path: Path) -> None:
    """Two runs configure a rack each: the later one must render again from what the first one wrote."""
    write(tmp_path, {cluster.NODES: AFTER[cluster.NODES]})
    late = options(tmp_path, AFTER)
    write(tmp_path, {cluster.NODES: BEFORE[cluster.NODES]})
    with pytest.raises(conf_folder.Outdated, match="was changed by another run meanwhile"):
        cluster.apply(Host(check=False), late)
    assert cluster.present(str(tmp_path)) == {cluster.NODES: BEFORE[cluster.NODES]}


def test_a_change_of_state_dir_without_its_state_is_refused(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
    (old / "job_state").write_text("")
    write(tmp_path, {cluster.CONF: f"ClusterName=x\nStateSaveLocation={old}\n"})
    texts = {**AFTER, cluster.CONF: f"ClusterName=x\nStateSaveLocation={new}\n"}
    with pytest.raises(SlurmError, match=f"StateSaveLocation would become {new}, which has no state"):
        cluster.apply(Host(check=False), options(tmp_path, texts))
    assert (tmp_path / cluster.CONF).read_text().endswith(f"{old}\n")


OF_B = 'case "$*" in *N*) echo "7|alice|all|b";; *) echo "8|bob|all";; esac'
UNREADABLE = 'case "$*" in *N*) echo "7|alice|all|b[1-";; *) echo "8|domain|user|all";; esac'
REFUSED = "echo Unable to contact slurm controller >&2; exit 1"
OTHER_PARTITION = {**BEFORE, cluster.CONF: OURS.replace("PartitionName=all", "PartitionName=gold")}


@pytest.mark.parametrize(
    ("squeue", "after", "refused"),
    [
        (OF_B, AFTER, r"^b, c is no longer in the fabric file and still runs job 7: drain it"),
        (OF_B, OTHER_PARTITION, r"^Partition all is no longer in slurm.conf .* and still has job 8 of bob in all: let"),
        (UNREADABLE, AFTER, r"^b, c would be removed .* \(squeue named the nodes of job 7 .* not understood"),
        (UNREADABLE, OTHER_PARTITION, r"^all would be removed .* \(squeue printed a row that is not understood"),
        (REFUSED, AFTER, r"^b, c would be removed from slurm.conf, and .* \(.*Unable to contact .*run ag"),
        (REFUSED, OTHER_PARTITION, r"^all would be removed from slurm.conf, and .* \(.*Unable to contact .*run ag"),
    ],
)
def test_no_tray_or_partition_is_removed_with_its_jobs_or_while_they_are_not_listed(
    tmp_path: Path, squeue: str, after: dict[str, str], refused: str
) -> None:
    slurm = programs(tmp_path, squeue=squeue)
    with pytest.raises(SlurmError, match=refused):
        cluster._check_jobs(slurm, BEFORE, after)
    cluster._check_jobs(slurm, BEFORE, BEFORE)


def test_jobs_of_a_slurmctld_that_is_down_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = f"{OURS}StateSaveLocation={tmp_path}\n"
    write(tmp_path, {**BEFORE, cluster.CONF: conf, "job_state": ""})
    programs(tmp_path, scontrol="exit 1", squeue="exit 1", systemctl="exit 3")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    given = options(tmp_path, {**AFTER, cluster.CONF: conf}, override=cluster.GATES)
    with pytest.raises(SlurmError, match=r"^b, c would be removed from slurm.conf"):
        cluster.apply(Host(check=False), given)
    assert (tmp_path / cluster.NODES).read_text() == BEFORE[cluster.NODES]


def test_several_nodes_are_removed_only_by_name(tmp_path: Path) -> None:
    host = Host(check=True)
    given = options(tmp_path, AFTER)
    refused = (
        r"^2 of 3 nodes would be removed from nvlink_nodes.conf \(b, c\): .*\(variable slurm_override\) to nodes_re"
    )
    with pytest.raises(SlurmError, match=refused):
        cluster._plan(host, given, BEFORE)
    assert host.changes == []
    assert cluster._plan(host, options(tmp_path, AFTER, override=cluster.GATES), BEFORE)[1]
    for before in ({}, {**BEFORE, cluster.NODES: BEFORE[cluster.NODES].replace(",b,c", ",b")}):
        assert cluster._plan(host, given, before)[1]


def test_a_slurmdbd_that_refuses_for_a_moment_is_queried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = f"echo >> {tmp_path}/queries; [ $(wc -l < {tmp_path}/queries) -gt 2 ] && echo nvlink || exit 1"
    cluster._register(Host(check=False), programs(tmp_path, sacctmgr=count), "nvlink")
    monkeypatch.setattr(cluster, "DATABASE_SECONDS", 1.0)
    slurm = programs(tmp_path, sacctmgr="echo Connection refused >&2; exit 1")
    with pytest.raises(SlurmError, match=r"slurmdbd does not answer \(Connection refused\): start it"):
        cluster._register(Host(check=False), slurm, "nvlink")


@pytest.mark.parametrize("check", [True, False])
def test_a_bring_up_undoes_no_live_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: bool) -> None:
    fake = FakeSlurm(tmp_path)
    monkeypatch.setenv("PATH", f"{fake.bin_dir}:/usr/bin:/bin")
    write(fake.conf_dir, {cluster.CONF: OURS, cluster.NODES: ""})
    record = {"PartitionName": "all", "State": "UP"}
    monkeypatch.setattr(cluster.live, "loaded", lambda *_arguments: cluster.live.Shown({"all": record}, {}))
    fake.shown.write_text("PartitionName=all State=DRAIN\n")
    texts = {cluster.CONF: f"{OURS}MaxJobCount=9\n", cluster.NODES: ""}
    lost = r"State of partition all is DRAIN.*override \(variable slurm_override\) to live_changes_lost"
    with pytest.raises(SlurmError, match=lost):
        cluster.apply(Host(check), options(fake.conf_dir, texts, log=str(fake.log)))
    assert (fake.conf_dir / cluster.CONF).read_text() == OURS
    kept = {**texts, cluster.CONF: f"ReconfigFlags=KeepPartState\n{texts[cluster.CONF]}"}
    for allowed in (options(fake.conf_dir, kept), options(fake.conf_dir, texts, override=[cluster.live.GATE])):
        assert cluster.CONF in cluster.apply(Host(check), {**allowed, "log": str(fake.log)})


# -------------------------------------------------------------------------------------------------- a backup controller


def started(host: Host, folder: Path, **files: str) -> dict[str, Any]:
    given = {name.replace("_conf", ".conf"): base64.b64encode(text.encode()).decode() for name, text in files.items()}
    return standby.start_backup(host, {"files": given, "conf_dir": str(folder), "log": str(folder / "log")})


def test_it_gets_the_files_that_slurmctld_reads_and_no_secret(tmp_path: Path) -> None:
    texts = {
        "slurm.conf": "Include nvlink_nodes.conf\ninclude site.conf\nInclude /opt/far.conf\nInclude gone.conf\n",
        "site.conf": "Include deeper.conf\nInclude slurm.conf\n",
        "deeper.conf": "A=b\n",
        "nvlink_nodes.conf": "NodeName=a\n",
        "topology.yaml": "[]\n",
        "job_submit.lua": "\xe9\n",
        "slurmdbd.conf": "StoragePass=secret\n",
        "slurm.key": "secret",
        "slurm.conf.previous": "old\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text.encode("latin-1"))
    found = standby.gather(str(tmp_path))
    assert set(found) == set(texts) - {"slurmdbd.conf", "slurm.key", "slurm.conf.previous"}
    assert found["job_submit.lua"] == b"\xe9\n", "byte by byte"


def test_nothing_is_started_where_the_first_controller_has_no_slurm(tmp_path: Path) -> None:
    assert standby.gather(str(tmp_path)) == {}
    with pytest.raises(SlurmError, match=r"The first controller has no slurm\.conf yet: bring it up first\."):
        started(Host(check=False), tmp_path)


@pytest.mark.parametrize("name", ["../escaped", "/escaped", "deeper/escaped", "..", ".", "", "a\0b"])
def test_a_file_of_another_folder_is_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "slurm"
    folder.mkdir()
    with pytest.raises(SlurmError, match=r"^The first controller returned .*, which is no file name: .*written\.$"):
        started(Host(check=False), folder, slurm_conf="ClusterName=x\n", **{name: "x\n"})
    assert [path.name for path in tmp_path.rglob("*")] == ["slurm"]


OLD = {"slurm.conf": "ClusterName=x\n", "topology.conf": "BlockName=a Nodes=a\n", "plugstack.conf": "same\n"}


@pytest.mark.parametrize("check", [True, False])
def test_files_stay_in_check_mode_and_where_its_slurmctld_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: bool
) -> None:
    for name, text in OLD.items():
        (tmp_path / name).write_text(text)
    host = Host(check)

    def refuse(*_arguments: object, **_options: object) -> bool:
        raise SlurmError("slurmctld.service does not start (x): correct that first.")

    # systemd is not under test here, the files are.
    monkeypatch.setattr(host, "run", (lambda _unit: False) if check else refuse)
    given = {"slurm_conf": "ClusterName=y\n", "mpi_conf": "new\n", "plugstack_conf": "same\n"}
    if check:
        shown = started(host, tmp_path, **given)["diff"]
        assert [(row["after_header"], row["after"]) for row in shown] == [
            ("mpi.conf", "new\n"),
            ("topology.conf", ""),
            ("slurm.conf", "ClusterName=y\n"),
        ]
    else:
        with pytest.raises(SlurmError, match=r"does not start .* the old files were restored"):
            started(host, tmp_path, **given)
    assert host.changes == ["write mpi.conf", "remove topology.conf", "change slurm.conf"]
    assert {
        name: (tmp_path / name).read_text() for name in os.listdir(tmp_path) if not name.endswith(".previous")
    } == OLD


# --------------------------------------------------------------------------------------------------------------- a tray


@pytest.mark.parametrize("length", [0, 31, 1025])
def test_a_key_of_another_length_is_refused_and_not_shown(length: int) -> None:
    with pytest.raises(SlurmError, match=f"has {length} bytes, not 32 to 1024: check /etc/munge/munge.key"):
        keys.install(Host(check=True), "munge", b"k" * length)


def test_a_log_gets_one_rule_for_its_rotation(tmp_path: Path) -> None:
    """logrotate fails on two rules for one log."""
    host = Host(check=False)
    log = "/var/log/slurm/slurmd.log"
    slurmd_host.rotate(host, log, "rule", str(tmp_path / "missing"))
    (tmp_path / "slurmd").write_text(f"{log} {{\n}}\n")
    slurmd_host.rotate(host, log, "rule", str(tmp_path))
    assert host.changes == []
    (tmp_path / "slurmd").write_text("/var/log/other.log {\n}\n")
    slurmd_host.rotate(host, log, "rule", str(tmp_path))
    slurmd_host.rotate(host, log, "rule", str(tmp_path))
    assert host.changes == [f"write {tmp_path}/slurm-nvlink"]
    assert (tmp_path / "slurm-nvlink").read_text() == "rule"


CONF, OPTIONS = "ClusterName=other\n", f"{slurmd_host.MARK}: slurmd fetches its configuration\n"
# The package slurm of EPEL has an example.
DIFFERS = (1, "echo 'S.5....T.  c /etc/slurm/cgroup.conf'")


@pytest.mark.parametrize(
    ("conf", "options", "rpm", "refused"),
    [
        (None, None, None, False),
        (CONF, None, None, True),
        (CONF, OPTIONS, None, False),
        (f"{slurmd_host.MARK} from the fabric file\n", None, None, False),
        (CONF, None, DIFFERS, False),
        (CONF, None, (1, 'echo "S.5....T.  c $4"'), True),
        (CONF, None, (1, "echo 'error: cannot open Packages database' >&2"), True),
    ],
)
def test_a_slurmd_of_another_slurm_is_left_as_it_is(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    conf: str | None,
    options: str | None,
    rpm: tuple[int, str] | None,
    refused: bool,
) -> None:
    paths = [tmp_path / "slurm.conf", tmp_path / "slurmd"]
    for path, text in zip(paths, (conf, options), strict=True):
        if text is not None:
            path.write_text(text)
    if rpm is not None:
        programs(tmp_path, rpm=f"{rpm[1]}\nexit {rpm[0]}")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    message = f"^{paths[0]} of this tray is of a Slurm that slurm_bringup has not "
    with pytest.raises(SlurmError, match=message) if refused else contextlib.nullcontext():
        slurmd_host.check_owner(str(paths[1]), str(paths[0]))
