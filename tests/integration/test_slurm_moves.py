# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Apply topologies to real slurmctlds: running jobs, several topologies, two controllers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import worded
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import files
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError, Topology
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.topology import transact
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import gates, topology_files
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.slurm import slurm_corpus
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.slurm.slurm_corpus import Case

from .commands import ansible
from .slurm_site import (
    FILE,
    RACKS,
    SPLIT,
    apply,
    configure,
    fabric,
    module,
    plan,
    slurm_of,
    start,
    state,
    submit,
    wait_for,
    write,
)
from .slurmctld import EACH_SUITE, SUITES, Slurmctld, sandbox

pytestmark = pytest.mark.lab

# One tray of the first rack stands in the second.
MOVED = (slurm_corpus.block("r01", "r01t[01-17]"), slurm_corpus.block("r02", "r01t18,r02t[01-18]"))
TREE = slurm_corpus.tree("top l[1-2]", *slurm_corpus.LEAVES)[0]
FLAT = slurm_corpus.flat()


newer = pytest.mark.parametrize("slurmctld", ["forky"], indirect=True)


@pytest.fixture(params=EACH_SUITE)
def slurmctld(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Slurmctld]:
    with sandbox(request.param, tmp_path / "slurm") as made:
        start(made)
        yield made


@pytest.fixture
def forky(tmp_path: Path) -> Iterator[Slurmctld]:
    with sandbox("forky", tmp_path / "slurm") as made:
        yield made


def topology(slurmctld: Slurmctld) -> str:
    return slurmctld.run("scontrol", "show", "topology").stdout


def start_with(slurmctld: Slurmctld, *topologies: Topology) -> None:
    """A slurmctld whose topology.yaml has further topologies."""
    configure(slurmctld)
    mine = Case("").candidate((26, 5, 5)).topology
    (slurmctld.conf_dir / "topology.yaml").write_text(topology_files.render([mine, *topologies], "yaml"))
    slurmctld.start()


# ------------------------------------------------------------------------------------------------------ running jobs


def test_jobs_on_moving_trays_are_an_error_unless_allowed(slurmctld: Slurmctld) -> None:
    elsewhere = submit(slurmctld, "r01t01")
    sizes = {"block_sizes": (9,)}
    early = plan(slurmctld, SPLIT, **sizes)
    inside, across = submit(slurmctld, "r02t01", "r02t02"), submit(slurmctld, "r02t09", "r02t10")
    before = state(slurmctld)
    # They have started since the plan, as during a rehearsal of minutes; one stays in one block.
    with pytest.raises(SlurmError, match=f"^1 job has started on trays that change .*{across}.*nothing was changed"):
        apply(early)
    early.observed.checksums = {**early.observed.checksums, FILE[slurmctld.suite]: "0"}
    with pytest.raises(transact.Outdated, match=r"Another program has changed .*topology.*: run again"):
        apply(early)
    assert state(slurmctld) == before
    stopped = plan(slurmctld, SPLIT, **sizes)
    # r02 becomes r02a and r02b.
    assert [(row["job"], row["nodes"]) for row in stopped.jobs] == [(across, ["r02t09", "r02t10"])]
    assert [found["code"] for found in stopped.stopped_by()] == ["jobs_running"]
    assert f"job {across} of root on r02t09, r02t10" in worded(stopped.stopped_by()[0])["message"]
    assert state(slurmctld) == before
    # The module in check mode lists them and names the way on.
    shown = module(slurmctld, SPLIT, "--check", block_sizes=[9], rehearse="never")
    assert (shown["failed"], shown["changed"], shown["jobs"]) == (True, False, stopped.jobs)
    assert "allow_moving_jobs" in shown["msg"]
    assert state(slurmctld) == before
    allowed = plan(slurmctld, SPLIT, allow_moving_jobs=True, **sizes)
    assert not allowed.stopped_by()
    apply(allowed)
    assert slurmctld.run("squeue", "-h", "-o", "%A").stdout.split() == [across, inside, elsewhere]
    # Nothing moves any more, so nothing stands in the way.
    assert plan(slurmctld, SPLIT, **sizes).jobs == []


# --------------------------------------------------------------------------------------------------- a shrinking base


# ------------------------------------------------------------------------------------------------ several topologies


def test_an_unlisted_own_topology_is_removed_and_no_other(forky: Slurmctld) -> None:
    """Only what an earlier run has written, by the header of the file, and never while a partition uses it."""
    mine = slurm_corpus.flat("mine")
    start_with(forky, TREE, FLAT)
    apply(plan(forky, RACKS, block_sizes=(18,), others=(FLAT, mine)))
    assert [known.name for known in running_topologies(forky)] == ["nvlink", TREE.name, "flat", "mine"]
    conf = forky.conf_dir / "slurm.conf"
    before = conf.read_text()
    conf.write_text(f"{before}PartitionName=login Nodes=r02t01 Topology=mine\n")
    assert forky.reconfigure()
    desired: dict[str, Any] = {"block_sizes": (18,), "others": ()}
    assert [row["code"] for row in plan(forky, RACKS, **desired).stopped_by()] == ["slurm_conf_inconsistent"]
    conf.write_text(before)
    assert forky.reconfigure()
    removal = plan(forky, RACKS, **desired)
    assert removal.difference == [
        f"topology {name}: removed, since it is no longer listed" for name in ("flat", "mine")
    ]
    apply(removal)
    assert [known.name for known in running_topologies(forky)] == ["nvlink", TREE.name]
    assert not plan(forky, RACKS, **desired).changed
    # A file without that header, as a person writes it, keeps all.
    (forky.conf_dir / "topology.yaml").write_text(topology_files.render([*removal.topologies, FLAT], "yaml"))
    assert plan(forky, RACKS, **desired).difference == []


def running_topologies(slurmctld: Slurmctld) -> list[Topology]:
    return slurm_of(slurmctld).topologies((26, 5, 5))


@pytest.mark.long
def test_ranks_follow_the_blocks_with_manage_conf(slurmctld: Slurmctld) -> None:
    mixed = (
        slurm_corpus.block("odd", "r01t[01-09],r02t[01-09]"),
        slurm_corpus.block("even", "r01t[10-18],r02t[10-18]"),
    )
    by_name = expand("r01t[01-18],r02t[01-18]")
    by_block = [node for block in mixed for node in block.nodes]
    apply(plan(slurmctld, mixed))
    codes = [found["code"] for found in plan(slurmctld, mixed).findings]
    assert codes == ([] if slurmctld.suite == "trixie" else ["slurm_conf_advice"])
    assert gpu_nodes(slurmctld) == by_name
    managed = plan(slurmctld, mixed, manage_conf=True)
    apply(managed)
    after = plan(slurmctld, mixed, manage_conf=True)
    assert (after.changed, after.findings) == (False, [])
    # 24.11 has no such parameter.
    assert gpu_nodes(slurmctld) == (by_name if slurmctld.suite == "trixie" else by_block)


def gpu_nodes(slurmctld: Slurmctld) -> list[str]:
    """The nodes in slurmctld's own order."""
    shown = files.parse_records(slurmctld.run("scontrol", "-o", "show", "nodes").stdout)
    return [record["NodeName"] for record in shown if record["NodeName"].startswith("r")]


# ------------------------------------------------------------------------------------------ two runs, two controllers


@newer
def test_two_applies_at_once_both_succeed_one_after_the_other(slurmctld: Slurmctld) -> None:
    with ThreadPoolExecutor() as pool:
        results = list(pool.map(lambda blocks: module(slurmctld, blocks, block_sizes=[9]), (SPLIT, MOVED)))
    assert [result.get("failed", False) for result in results] == [False, False], results
    # The later one's topology is what stands in the file and runs; nothing of the other is left.
    left = [plan(slurmctld, blocks, block_sizes=(9,)).changed for blocks in (SPLIT, MOVED)]
    assert sorted(left) == [False, True]
    assert sorted(path.name for path in slurmctld.conf_dir.iterdir()) == sorted(
        ["slurm.conf", FILE[slurmctld.suite], f"{FILE[slurmctld.suite]}.previous"]
    )


@pytest.fixture(params=sorted(SUITES))
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Slurmctld, Slurmctld]]:
    """Two controllers of one cluster with a shared state folder and a configuration folder each."""
    shared = tmp_path / "state"
    shared.mkdir()
    hosts = {f"ctl{number}": f"127.0.0.{number}" for number in (1, 2)}
    with sandbox(request.param, tmp_path / "1", "ctl1") as first, sandbox(request.param, tmp_path / "2", "ctl2") as two:
        write(first)
        lines = (first.conf_dir / "slurm.conf").read_text().splitlines()
        kept = [line for line in lines if not line.startswith(("SlurmctldHost", "StateSave"))]
        kept += [f"SlurmctldHost={name}({address})" for name, address in hosts.items()]
        kept += [f"StateSaveLocation={shared}", "SlurmctldTimeout=5", "CommunicationParameters=NoCtldInAddrAny", ""]
        for one in (first, two):
            write(one)
            (one.conf_dir / "slurm.conf").write_text("\n".join(kept).replace(str(first.log), str(one.log)))
            one.share(shared)
            one.hosts = hosts
            one.start()
        wait_for(lambda: first.run("scontrol", "ping").stdout.count(" is UP") == 2)
        yield first, two


@pytest.mark.long
def test_a_standby_gets_the_files_after_the_active_controller(
    pair: tuple[Slurmctld, Slurmctld], tmp_path: Path
) -> None:
    first, second = pair
    hosts: dict[str, Any] = {}
    # The standby stands first in the play.
    for one in (second, first):
        python = one.directory / "python"
        python.write_text(f'#!/bin/sh\nexec nsenter -t {one.pid} -u {sys.executable} "$@"\n')
        python.chmod(0o755)
        hosts[one.host] = {
            "ansible_python_interpreter": str(python),
            "slurm_conf_dir": str(one.conf_dir),
            "slurm_topology_bin_dir": str(one.bin_dir),
        }
    inventory = tmp_path / "hosts.json"
    inventory.write_text(json.dumps({"slurm_controller": {"hosts": hosts, "vars": {"ansible_connection": "local"}}}))
    file = tmp_path / "fabric.json"

    def play(blocks: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
        file.write_text(json.dumps(fabric(blocks)))
        variables = {
            "fabric_file": str(file),
            "slurm_topology_block_sizes": [9],
            "slurm_topology_override": list(gates.GATES),
            "slurm_topology_rehearse": "never",
        }
        options = ("-i", str(inventory), "rackscale.nvlink.slurm", "-e", json.dumps(variables), *arguments)
        return ansible("ansible-playbook", *options, check=False)

    def changed(done: subprocess.CompletedProcess[str]) -> list[int]:
        assert done.returncode == 0, done.stdout + done.stderr
        return [int(number) for number in re.findall(r"ctl\d .* changed=(\d)", done.stdout)]

    split = {"r01": "r01t[01-18]", "r02": "r02t[01-09]", "r02b": "r02t[10-18]"}
    before = [state(one) for one in pair]
    assert changed(play(split, "--check", "--diff")) == [1, 1]
    assert [state(one) for one in pair] == before
    # The standby alone is refused.
    alone = " ".join(play(split, "--limit", "ctl2").stdout.split())
    assert "active controller ctl1 runs another topology" in alone
    assert [state(one) for one in pair] == before
    assert changed(play(split)) == [1, 1]
    assert changed(play(split)) == [0, 0]
    name = FILE[first.suite]
    assert (first.conf_dir / name).read_bytes() == (second.conf_dir / name).read_bytes()
    # The standby takes over with the new topology, and is the active controller for the next change.
    running = topology(first)
    first.kill_slurmctld()
    wait_for(lambda: "ctl2 is UP" in second.run("scontrol", "ping").stdout and topology(second) == running)
    assert changed(play({"r01": "r01t[01-18]", "r02": "r02t[01-18]"}, "--limit", "ctl2")) == [1]
    assert "Nodes=r02t[01-18] " in topology(second)
