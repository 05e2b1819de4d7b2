# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two users in two tiers on 36 trays: neither reaches a tray of the other, with one or several blocks a rack."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.topology import gates

from .commands import ansible
from .conftest import running_lab
from .slurm_site import fabric
from .slurmctld import SUITES
from .test_slurm_tiers import Cluster

pytestmark = [pytest.mark.lab, pytest.mark.two_racks]

WHOLE = {"r01": "r01t[01-18]", "r02": "r02t[01-18]"}
SPLIT = {"r01": "r01t[01-18]", "r02a": "r02t[01-09]", "r02b": "r02t[10-18]"}
TRAYS = expand(",".join(WHOLE.values()))
USERS = {"alice": 2001, "bob": 2002}
CONF = ["PreemptType=preempt/qos", "PreemptMode=REQUEUE", "PriorityWeightQOS=1000", "EnforcePartLimits=ALL"]


@pytest.fixture(scope="module", params=sorted(SUITES))
def racks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One lab a version; each test configures its own blocks."""
    directory = tmp_path_factory.mktemp(f"racks-{request.param}")
    scenario = {
        "suite": request.param,
        "slurm": {"accounting": True, "prolog_flags": "Alloc", "conf": CONF},
        "racks": [{"name": name, "trays": 18} for name in WHOLE],
    }
    path = directory / "scenario.yml"
    path.write_text(yaml.safe_dump(scenario))
    with running_lab(directory, path) as lab:
        users = "; ".join(f"useradd -M -u {uid} {name}" for name, uid in USERS.items())
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda host: lab.exec(host, "bash", "-c", users), ("ctl", *TRAYS)))
        made = Cluster(lab, request.param, directory / "fabric.json")
        # The lab's own partition over all trays is root's alone, as on a site with tiers.
        made.shell("sed -i 's/^PartitionName=all .*/& AllowGroups=root/' /etc/slurm/slurm.conf; scontrol reconfigure")
        for user in USERS:
            made.shell(f"sacctmgr -i -Q add account {user}s; sacctmgr -i -Q add user {user} account={user}s")
        yield made


def configure(racks: Cluster, blocks: dict[str, str], tiers: list[dict[str, Any]]) -> None:
    """The fabric file, the topology and the tiers of a site, in the order in which the playbook slurm applies them."""
    racks.fabric.write_text(json.dumps(fabric(blocks)))
    options = json.dumps({"fabric_file": str(racks.fabric), "manage_conf": True, "override": list(gates.GATES)})
    module = ("-m", "rackscale.nvlink.slurm_topology", "-a", options)
    ansible("ansible", "slurm_controller", "-i", racks.racks.inventory, *module)
    racks.apply(tiers)
    assert not racks.apply(tiers)["changed"]


def runs_on(racks: Cluster, user: str, *arguments: str) -> set[str]:
    """The trays of a job, which keeps running."""
    number = racks.submit(user, *arguments, "--exclusive", "--wrap", "sleep 300")
    assert re.fullmatch(r"\d+", number), number
    return set(expand(racks.until(number, "RUNNING")[1]))


def never_run(racks: Cluster, user: str, *jobs: tuple[str, ...]) -> None:
    """Each job is refused at submission, so none stays pending either."""
    answers = {job: racks.submit(user, *job, "--wrap", "true", check=False) for job in jobs}
    assert {job: answer for job, answer in answers.items() if not answer.startswith("refused: ")} == {}


def test_one_block_a_rack_with_a_qos_for_each_user(racks: Cluster) -> None:
    tiers = [
        {
            "name": name,
            "blocks": [block],
            "qos": {"priority": priority},
            "users": [{"name": user, "account": f"{user}s"}],
        }
        for name, block, priority, user in (("gold", "r01", 1000, "alice"), ("silver", "r02", 10, "bob"))
    ]
    configure(racks, WHOLE, tiers)
    for user, own, other, rack in (("alice", "gold", "silver", "r02"), ("bob", "silver", "gold", "r01")):
        never_run(
            racks,
            user,
            ("-p", other),
            ("-p", other, f"--qos={other}"),
            ("-p", other, f"--qos={own}"),
            ("-p", own, f"--qos={other}"),
            ("-p", own, f"--qos={own}", "-w", f"{rack}t07"),
            ("-p", own, f"--qos={own}", "-N19"),
            ("-p", "all", "-w", f"{rack}t07"),
        )
    assert runs_on(racks, "alice", "-p", "gold", "--qos=gold", "-N18") == set(expand(WHOLE["r01"]))
    assert runs_on(racks, "bob", "-p", "silver", "--qos=silver", "-N18") == set(expand(WHOLE["r02"]))
    racks.end_jobs()


def test_several_blocks_a_rack_with_a_partition_each(racks: Cluster) -> None:
    """No --segment and no --qos: the partition alone puts a user into the right clique of the split rack."""
    tiers = [
        {"name": name, "cliques": [clique], "per_block": True, "allow_groups": [user]}
        for name, clique, user in (("one", "r02a", "alice"), ("two", "r02b", "bob"))
    ]
    configure(racks, SPLIT, tiers)
    for user, own, other, tray in (
        ("alice", "one_r02a", "two_r02b", "r02t18"),
        ("bob", "two_r02b", "one_r02a", "r02t09"),
    ):
        never_run(racks, user, ("-p", other), ("-p", own, "-w", tray), ("-p", own, "-N10"), ("-p", "all", "-w", tray))
    assert runs_on(racks, "alice", "-p", "one_r02a", "-N9") == set(expand(SPLIT["r02a"]))
    assert runs_on(racks, "bob", "-p", "two_r02b", "-N4") < set(expand(SPLIT["r02b"]))
    assert runs_on(racks, "bob", "-p", "two_r02b", "-N5") < set(expand(SPLIT["r02b"]))
    racks.end_jobs()
