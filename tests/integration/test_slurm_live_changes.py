# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Live changes of operators in real slurmctlds: none is found where nothing was changed, and each one is found.

SEED=3 FILES=500 reads 500 other random files of each release.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from .slurm_site import wait_for
from .slurmctld import EACH_SUITE, SUITES, free_port, sandbox
from .stage import Stage

pytestmark = pytest.mark.lab

# Values that slurmctld accepts, by key.
PARTITION = """
State=UP|DOWN|DRAIN|INACTIVE MaxTime=UNLIMITED|30|1:30:0|2-0|INFINITE DefaultTime=NONE|10|90:30|3-0:0:0
MaxNodes=UNLIMITED|INFINITE|3 MinNodes=0|2 AllowAccounts=ALL|b,A|x DenyAccounts=y|y,z AllowQos=ALL
AllowGroups=ALL|root,daemon|nosuchgroup AllocNodes=ALL|r01t01|r01t02,r01t01 Hidden=YES|NO RootOnly=YES|NO
ReqResv=YES|TRUE LLN=YES|NO DisableRootJobs=YES|NO ExclusiveUser=YES|NO ExclusiveTopo=YES|NO
OverSubscribe=NO|EXCLUSIVE|YES:1|YES|FORCE|FORCE:2 OverTimeLimit=5|UNLIMITED PreemptMode=OFF|REQUEUE PriorityTier=7|0
PriorityJobFactor=3 GraceTime=0|30 MaxCPUsPerNode=2|UNLIMITED MaxCPUsPerSocket=2 DefMemPerNode=100|0 DefMemPerCPU=50
MaxMemPerNode=200 DefMemPerGPU=64 DefCpuPerGPU=2 JobDefaults=DefCpuPerGPU=3,DefMemPerGPU=9 CpuBind=core|none
TRESBillingWeights=CPU=1.0,Mem=0.25G SuspendTime=INFINITE|90 ResumeTimeout=70 PowerDownOnIdle=YES|NO
SelectTypeParameters=CR_Core|CR_Core_Memory Alternate=gpu
"""
SETTINGS = """
DefMemPerNode=100 MaxMemPerNode=300 DefCpuPerGPU=2 JobDefaults=DefCpuPerGPU=4 OverTimeLimit=3 DisableRootJobs=YES
PreemptType=preempt/partition_prio PreemptMode=REQUEUE|CANCEL SuspendTimeout=40 ResumeTimeout=80
SlurmctldDebug=debug|5|info DebugFlags=Backfill|gres,backfill SuspendExcNodes=r01t01 SuspendExcParts=gpu
"""
NODE = (
    "Weight=1|9 Feature=a|b,a Gres=gpu:4|gpu:a100:2,gpu:h100:2|gpu:a100:4|gpu:2|gpu:a100:1 CpuBind=core RealMemory=1000"
)
# What an operator gives to scontrol update: each key that it takes without a slurmdbd, the last one since 25.05.
UPDATES = """
State=DRAIN MaxTime=77 DefaultTime=7 MaxNodes=2 MinNodes=2 AllowAccounts=q DenyAccounts=q AllowGroups=root
AllocNodes=r01t03 Hidden=yes RootOnly=yes ReqResv=yes LLN=yes DisableRootJobs=yes OverSubscribe=force:3
OverTimeLimit=9 PriorityTier=5 PriorityJobFactor=5 Priority=9 GraceTime=5 MaxCPUsPerNode=3 MaxCPUsPerSocket=3
DefMemPerNode=11 DefMemPerCPU=11 MaxMemPerNode=12 MaxMemPerCPU=12 JobDefaults=DefCpuPerGPU=5 CpuBind=core
TRESBillingWeights=CPU=2.0 Nodes=r01t01 Alternate=gpu Default=yes ExclusiveUser=yes ExclusiveTopo=yes PreemptMode=cancel
PowerDownOnIdle=yes Topology=flat
"""
SEED, FILES = int(os.environ.get("SEED", "2")), int(os.environ.get("FILES", "35"))
TOPOLOGIES = "- topology: nvlink\n  cluster_default: true\n  flat: true\n- topology: flat\n  flat: true\n"


@pytest.fixture(params=EACH_SUITE, scope="module")
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with sandbox(request.param, tmp_path_factory.mktemp("stage") / "slurm") as made:
        made.configure(*lines(made.nodes("r01t[01-04]"), made.nodes("r02t[01-04]")))
        made.start()
        yield Stage(made)


def lines(*more: str) -> list[str]:
    return ["SelectType=select/cons_tres", "GresTypes=gpu", *more, "PartitionName=gpu Nodes=r01t[01-04] Default=YES"]


def chosen(values: str, number: int, rng: random.Random) -> list[str]:
    """That many of the keys, each with one of its values."""
    pairs = [pair.partition("=") for pair in rng.sample(values.split(), number)]
    return [f"{key}={rng.choice(given.split('|'))}" for key, _equals, given in pairs]


def load(stage: Stage, text: list[str], restart: bool = False) -> bool:
    """Have slurmctld load a slurm.conf of these lines, with all that it has saved; whether it accepts it."""
    stage.slurmctld.configure(*text)
    if "fatal: " in stage.slurmctld.run("scontrol", "ping").stderr:
        return False  # not even a client reads it
    if restart and stage.slurmctld.answers(0):
        stage.slurmctld.run("scontrol", "shutdown")
        wait_for(lambda: not stage.slurmctld.run("pgrep", "-r", "R,S,D", "^slurmctld").stdout)
    # One that hung and was ended may have refused the last file.
    return stage.slurmctld.reconfigure() if stage.slurmctld.answers(0) else stage.slurmctld.launch(check=False)


def legal(stage: Stage, rng: random.Random) -> list[str]:
    """A random slurm.conf that slurmctld runs; it refuses many, such as those with unknown keys of another release."""
    while True:
        nodes = [stage.slurmctld.nodes(f"r0{rack}t[01-04]", *chosen(NODE, rng.randrange(5), rng)) for rack in (1, 2)]
        # Of such nodes slurmctld keeps more, as long as no slurmd reports.
        nodes = [line.replace("CLOUD", rng.choice(("CLOUD", "UNKNOWN", "DOWN"))) for line in nodes]
        parts = [
            " ".join([f"PartitionName=p{number} Nodes={rng.choice(('ALL', 'r01t[01-04]', 'r02t01,r01t02'))}", *keys])
            for number in range(4)
            for keys in [chosen(PARTITION, rng.randrange(1, 6), rng)]
        ]
        text = lines(*chosen(SETTINGS, rng.randrange(4), rng), *nodes, *parts)
        if load(stage, text, restart=rng.random() < 0.5):
            return text


@pytest.mark.parametrize(("seed", "files"), [(1, 5), pytest.param(SEED, FILES, marks=pytest.mark.long)])
def test_no_live_change_is_found_where_there_is_none(stage: Stage, seed: int, files: int) -> None:
    rng = random.Random(seed)
    for _number in range(files):
        text = legal(stage, rng)
        assert stage.changes() == [], "\n".join(text)


def test_every_key_that_scontrol_changes_is_found(stage: Stage) -> None:
    changes = UPDATES.split()
    if stage.slurmctld.version >= (25, 5):
        (stage.slurmctld.conf_dir / "topology.yaml").write_text(TOPOLOGIES)
    else:
        del changes[-1]
    parts = [f"PartitionName=p{number} Nodes=r01t[01-04]" for number in range(len(changes) + 1)]
    assert load(stage, lines(stage.slurmctld.nodes("r01t[01-04]"), stage.slurmctld.nodes("r02t[01-04]"), *parts))
    for number, change in enumerate(changes):
        done = stage.slurmctld.run("scontrol", "update", f"partition=p{number}", change)
        assert done.returncode == 0, (change, done.stderr)
    assert stage.slurmctld.run("scontrol", "delete", f"partitionname=p{len(changes)}").returncode == 0
    found = " ".join(stage.changes())
    assert f"partition p{len(changes)} of slurm.conf was deleted" in found
    assert [change for number, change in enumerate(changes) if f" of partition p{number} is " not in found] == []


@pytest.mark.long
@pytest.mark.parametrize("stage", ["trixie"], indirect=True)
@pytest.mark.parametrize(("plugin", "text"), [("block", ""), ("tree", ""), ("block", "SwitchName=top Nodes=r01t01\n")])
def test_none_is_found_where_the_plugin_does_not_fit_topology_conf(stage: Stage, plugin: str, text: str) -> None:
    """As between the steps from a tree to blocks, where slurmctld itself would wait for the file, then end."""
    usual = lines(stage.slurmctld.nodes("r01t[01-04]"), stage.slurmctld.nodes("r02t[01-04]"))
    path, conf = stage.slurmctld.conf_dir / "topology.conf", stage.slurmctld.conf_dir / "slurm.conf"
    assert load(stage, usual)
    path.write_text(text)
    conf.write_text(conf.read_text() + f"TopologyPlugin=topology/{plugin}\n")
    if not text:
        path.unlink()
    try:
        assert stage.changes() == []
    finally:
        path.unlink(missing_ok=True)


DATABASE = """
set -e
mkdir -p /run/mysqld; rm -rf /var/lib/mysql; install -d -o mysql /var/lib/mysql; chown mysql /run/mysqld
mariadb-install-db --user=mysql >/dev/null
setsid mariadbd --user=mysql --skip-networking --socket=/run/mysqld/mysqld.sock >/dev/null 2>&1 &
until mariadb -e "create database slurm_acct_db; grant all on *.* to slurm@localhost identified by 'x'"
do sleep 0.2; done
setsid slurmdbd -D >/dev/null 2>&1 &
until sacctmgr -i add cluster sandbox; do sleep 0.2; done
sacctmgr -i add qos gold
"""


@pytest.mark.long
@pytest.mark.parametrize("suite", SUITES)
def test_new_tres_are_no_live_change(suite: str, tmp_path: Path) -> None:
    """slurmctld saves the records of slurmdbd every five minutes, and those of a new TRES after its first start."""
    with sandbox(suite, tmp_path / "slurm") as made:
        port = free_port()
        accounting = ["AccountingStorageType=accounting_storage/slurmdbd", "AccountingStorageHost=127.0.0.1"]
        usual = lines(made.nodes("r01t[01-04]"), "PartitionName=gold Nodes=ALL AllowQos=gold")
        made.configure(*lines(made.nodes("r01t[01-04]")))
        made.start()
        made.kill_slurmctld()
        made.configure(*accounting, f"AccountingStoragePort={port}", *usual)
        conf = made.conf_dir / "slurmdbd.conf"
        conf.write_text(
            f"AuthType=auth/none\nDbdHost={made.host}\nDbdAddr=127.0.0.1\nDbdPort={port}\nSlurmUser=root\n"
            "PidFile=/run/slurmdbd.pid\nStorageType=accounting_storage/mysql\nStorageUser=slurm\nStoragePass=x\n"
        )
        conf.chmod(0o600)
        made.run("rm", "/var/spool/slurmctld/clustername")
        done = made.run("sh", "-c", DATABASE, timeout=120)
        assert done.returncode == 0, done.stderr
        made.launch()
        stage = Stage(made)
        assert load(stage, [*accounting, f"AccountingStoragePort={port}", *usual], restart=True)
        assert stage.changes() == []
        tres = [*accounting, f"AccountingStoragePort={port}", "AccountingStorageTRES=gres/gpu", *usual]
        assert load(stage, tres, restart=True)
        assert stage.changes() == []
        weighted = [line.replace("AllowQos", "TRESBillingWeights=GRES/gpu:h100=2 AllowQos") for line in tres]
        assert load(stage, [line.replace("TRES=gres/gpu", "TRES=gres/gpu:h100") for line in weighted], restart=True)
        (found,) = stage.changes()
        assert "slurmctld saves new TRES within 5 minutes" in found
