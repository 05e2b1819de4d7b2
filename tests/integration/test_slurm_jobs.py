# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs on 36 hosts are placed by the fabric file: a whole rack, and one that is split into two cliques of nine."""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import spans

from .commands import ansible
from .conftest import SCENARIOS, RunningLab, running_lab
from .slurm_site import wait_for

pytestmark = [pytest.mark.lab, pytest.mark.long]

# The cliques in block order, as trays of each.
COUNTS = [18, 9, 9]
# That of the largest clique.
BASE = 18


class Site:
    """The lab after the playbooks discover and slurm, with their fabric file."""

    def __init__(self, lab: RunningLab, directory: Path) -> None:
        self.lab = lab
        self.file = directory / "fabric.json"
        self.play("discover", fabric_hosts="trays", fabric_accept="gates")
        self.play("slurm", slurm_topology_manage_conf=True)
        fabric: dict[str, Any] = json.loads(self.file.read_text())
        self.clique_of = {tray["slurm_node"]: tray["clique"] for tray in fabric["trays"].values()}
        wait_for(lambda: len(expand(self.ctl("sinfo", "-h", "-t", "idle", "-o", "%N"))) == 36, 60)

    def play(self, name: str, **variables: Any) -> None:
        options = json.dumps({"fabric_file": str(self.file), **variables})
        ansible("ansible-playbook", "-i", self.lab.inventory, "--forks=20", f"rackscale.nvlink.{name}", "-e", options)

    def ctl(self, *command: str, check: bool = True) -> str:
        done = self.lab.exec("ctl", *command, check=check)
        return (done.stdout if check else done.stdout + done.stderr).strip()

    def ran_on(self, *options: str) -> Counter[str]:
        """How many of a job's tasks ran in each clique: each task prints its host name."""
        names = self.ctl("srun", *options, "hostname").split()
        assert len(names) == len(set(names)), names
        return Counter(self.clique_of[name] for name in names)

    def waits_for_ever(self, *options: str) -> bool:
        output = self.ctl("sbatch", "--test-only", *options, "--wrap", "true", check=False)
        return " to start at " not in output

    @contextlib.contextmanager
    def busy(self, nodes: str) -> Iterator[None]:
        """A job of another user on these trays."""
        job = self.ctl("sbatch", "--parsable", "--exclusive", "-w", nodes, "-o", "/dev/null", "--wrap", "sleep 300")
        try:
            wait_for(lambda: self.ctl("squeue", "-h", "-j", job, "-o", "%t") == "R")
            yield
        finally:
            self.ctl("scancel", job)
            wait_for(
                lambda: (
                    self.ctl("squeue", "-h", "-j", job, "-o", "%t", check=False)
                    in ("", "slurm_load_jobs error: Invalid job id specified")
                )
            )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("jobs")
    scenario = directory / "racks.yml"
    text = (SCENARIOS / "two-racks.yml").read_text()
    scenario.write_text(re.sub(r"(?m)^suite: .*$", "suite: forky", text))
    with running_lab(directory, scenario) as lab:
        yield Site(lab, directory)


def test_the_blocks_are_the_cliques(site: Site) -> None:
    shown = site.ctl("scontrol", "show", "topology")
    blocks = re.findall(r"^BlockName=(\S+) BlockIndex=\d+ Nodes=(\S+) BlockSize=(\d+)", shown, re.M)
    assert [len(expand(nodes)) for _name, nodes, _size in blocks] == COUNTS
    assert {int(size) for _name, _nodes, size in blocks} == {BASE}
    assert all(len({site.clique_of[node] for node in expand(nodes)}) == 1 for _name, nodes, _size in blocks)


@pytest.mark.parametrize("nodes", [9, 20])
def test_a_job_spans_no_more_than_computed(site: Site, nodes: int) -> None:
    [span] = spans.spans(COUNTS, [BASE], [nodes])
    used = site.ran_on(f"-N{nodes}")
    assert used.total() == nodes
    assert span.needed is not None
    assert span.needed <= len(used) <= span.allowed


def test_a_job_that_needs_more_blocks_than_allowed_waits_for_ever(site: Site) -> None:
    """36 trays need three blocks, of which a base of 18 allows two."""
    [span] = spans.spans(COUNTS, [BASE], [36])
    assert not span.starts
    assert site.waits_for_ever("-N36")
    assert site.waits_for_ever("-N36", "--segment=12")


def test_every_segment_stays_in_one_clique(site: Site) -> None:
    used = site.ran_on("-N36", "--segment=9")
    assert used.total() == 36
    assert all(count % 9 == 0 for count in used.values())


def test_a_job_of_a_whole_clique_waits_where_that_clique_is_not_free(site: Site) -> None:
    """Ten trays of the whole rack are allocated, so the base size decides."""
    with site.busy("r01t[01-10]"):
        # Nine fit a half of the second rack, and go there as one.
        assert site.ran_on("-N9") in (Counter({site.clique_of["r02t01"]: 9}), Counter({site.clique_of["r02t10"]: 9}))
        output = site.ctl("sbatch", "--test-only", "-N18", "--wrap", "true", check=False)
        assert set(expand(output.partition(" on nodes ")[2].split(" ")[0])) == set(expand("r01t[01-18]"))
        refused = site.ctl("srun", "--immediate=3", "-N18", "hostname", check=False)
        assert "Unable to allocate resources" in refused
