# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shared by the tests of block topology: a sandbox with two racks, and the playbook slurm against it."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import conf_folder, programs
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import Block, Topology
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.topology import surveying, transact
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import plan_gates, planning, topology_files
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.observed import Observed
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import probe
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.slurm import slurm_corpus
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.slurm.slurm_corpus import Case
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

from .commands import ansible
from .slurmctld import Slurmctld

RACKS = tuple(slurm_corpus.block(name, hostlist) for name, hostlist in slurm_corpus.RACKS)
# The second rack after its NVLink partition was cut in two, and one tray of the first moved to it.
SPLIT = (RACKS[0], slurm_corpus.block("r02a", "r02t[01-09]"), slurm_corpus.block("r02b", "r02t[10-18]"))
FILE = {"trixie": "topology.conf", "forky": "topology.yaml"}


def configure(slurmctld: Slurmctld, case: Case | None = None, **settings: str) -> None:
    """Write slurm.conf of the corpus's cluster, with the settings of a case."""
    case = case or Case("")
    placed = case.node_topologies
    settings.setdefault("plugin", "topology/block" if slurmctld.suite == "trixie" else "")
    names = expand(f"{slurm_corpus.GPU_NODES},{slurm_corpus.CPU_NODES}")
    # A job keeps its CLOUD nodes while they start up: longer than any test.
    lines = ["ResumeTimeout=3600"]
    for number, name in enumerate(names):
        more = [f"Port={20000 + number}"] + ([f"Topology={placed[name]}"] if name in placed else [])
        lines.append(slurmctld.nodes(name, *more))
    topology = f" Topology={case.partition_topology}" if case.partition_topology else ""
    lines.append(f"PartitionName=gpu Nodes={case.partition_nodes} Default=YES{topology}")
    slurmctld.configure(*lines, **settings)


def write(slurmctld: Slurmctld) -> None:
    """Write slurm.conf and the two whole racks as slurm_topology would configure them."""
    configure(slurmctld)
    style = FILE[slurmctld.suite].partition(".")[2]
    topology = Case("").candidate((*slurmctld.version, 5)).topology
    (slurmctld.conf_dir / FILE[slurmctld.suite]).write_text(topology_files.render([topology], style))


def start(slurmctld: Slurmctld) -> None:
    write(slurmctld)
    slurmctld.start()


def slurm_of(slurmctld: Slurmctld, timeout: float = 60) -> programs.Slurm:
    return programs.Slurm(str(slurmctld.bin_dir), timeout, str(slurmctld.conf_dir))


def survey(slurmctld: Slurmctld) -> Observed:
    asked = {"files": planning.FILES, "jobs": True, "columns": ""}
    return Observed.of(json.loads(json.dumps(surveying.rows(slurm_of(slurmctld), str(slurmctld.conf_dir), asked))))


def plan(slurmctld: Slurmctld, blocks: tuple[Block, ...], **desired: Any) -> planning.Plan:
    """A plan with all gates overridden, since most tests are about what follows them."""
    desired.setdefault("override", tuple(plan_gates.GATES))
    return planning.plan(survey(slurmctld), planning.DesiredState(blocks=blocks, **desired))


def apply(made: planning.Plan, timeout: float = 60) -> None:
    """Have the host apply a plan, as the action does."""
    folder = Path(made.observed.conf_dir)
    slurm = programs.Slurm(str(folder.with_name("bin")), timeout, str(folder))
    if made.changed:
        change, known = json.loads(json.dumps(made.change())), conf_folder.checksums(str(folder))
        transact.require_unchanged(str(folder), change["checksums"], known)
        transact.apply(slurm, str(folder), change, transact.writes(str(folder), change), known)


def differs(slurmctld: Slurmctld, topology: Topology) -> str:
    """How the running topology differs, in a clause; empty where it does not."""
    observed = survey(slurmctld)
    return planning.expected(observed, topology).differs(observed.runs)


def contents(slurmctld: Slurmctld) -> dict[str, bytes]:
    """The configuration folder, byte by byte."""
    return {path.name: path.read_bytes() for path in slurmctld.conf_dir.iterdir()}


def state(slurmctld: Slurmctld) -> tuple[dict[str, bytes], str]:
    """The configuration folder and the running topology."""
    return contents(slurmctld), slurmctld.run("scontrol", "show", "topology").stdout


def fabric(blocks: dict[str, str]) -> dict[str, Any]:
    """A fabric file with those cliques (name -> trays), numbered by their order."""
    whole = fabrics.fabric(split=())
    cliques = {
        name: {"domain": name[:3], "clique_id": position + 1, "block": {"name": name, "position": position}}
        for position, name in enumerate(blocks)
    }
    trays = {
        tray: {**whole.trays[tray], "clique": name} for name, hostlist in blocks.items() for tray in expand(hostlist)
    }
    return {**whole.as_dict(), "cliques": cliques, "trays": trays}


class Site:
    """The playbook slurm against a sandbox, whose programs cannot run in a second one."""

    def __init__(self, slurmctld: Slurmctld, directory: Path) -> None:
        self.slurmctld = slurmctld
        self.directory = directory
        self.fabric = directory / "fabric.json"

    def write(self, blocks: dict[str, str]) -> None:
        self.fabric.write_text(json.dumps(fabric(blocks), sort_keys=True, indent=1) + "\n")

    def play(self, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
        variables = {
            "fabric_file": str(self.fabric),
            "slurm_conf_dir": str(self.slurmctld.conf_dir),
            "slurm_topology_bin_dir": str(self.slurmctld.bin_dir),
            "slurm_topology_timeout": 60,
            "slurm_topology_override": "live_changes_lost",
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "slurm_controller_hosts": "ctl",
            **more,
        }
        extra = ("-e", json.dumps(variables))
        return ansible("ansible-playbook", "-i", "ctl,", "rackscale.nvlink.slurm", *extra, *arguments, check=False)


def task(name: str, slurmctld: Slurmctld, *arguments: str, **options: Any) -> dict[str, Any]:
    """The result of one of our modules as a task, also of a failed one; arguments: those of ansible."""
    given = {"conf_dir": str(slurmctld.conf_dir), "bin_dir": str(slurmctld.bin_dir), **options}
    command = ("localhost", "-m", f"rackscale.nvlink.{name}", "-a", json.dumps(given), *arguments)
    done = ansible("ansible", *command, check=False, ANSIBLE_CALLBACK_RESULT_FORMAT="json")
    found = re.search(r"^localhost \| [A-Z!]+ => (\{.*)", done.stdout, re.DOTALL | re.MULTILINE)
    assert found, done.stdout + done.stderr
    result: dict[str, Any] = json.JSONDecoder().raw_decode(found[1])[0]
    return {"failed": done.returncode != 0, **result}


def module(slurmctld: Slurmctld, blocks: tuple[Block, ...], *arguments: str, **options: Any) -> dict[str, Any]:
    """slurm_topology with these blocks and all gates overridden."""
    given = [{"name": block.name, "nodes": list(block.nodes)} for block in blocks]
    return task("slurm_topology", slurmctld, *arguments, blocks=given, override=list(plan_gates.GATES), **options)


def wait_for(happens: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not happens():
        if time.monotonic() > deadline:
            raise AssertionError(f"not so within {seconds} s: {inspect.getsource(happens)}")
        time.sleep(0.2)


def submit(slurmctld: Slurmctld, *nodes: str) -> str:
    """A job on these CLOUD nodes, allocated while they start up."""
    done = slurmctld.run("sh", "-c", f"cd / && sbatch --parsable --exclusive -w {','.join(nodes)} --wrap true")
    job = done.stdout.strip()
    assert job, done.stderr
    wait_for(lambda: slurmctld.run("squeue", "-h", "-j", job, "-o", "%t").stdout.strip() in ("CF", "R"))
    return job


def install_explain(inventory: Path, folder: Path) -> None:
    """Put nvlink-explain on the lab's controller, as the role slurm_topology does."""
    (folder / "nvlink-explain").write_bytes(probe.program("/usr/bin/python3", "explain/program"))
    copy = ("-m", "copy", "-a", f"src={folder / 'nvlink-explain'} dest=/usr/local/bin/ mode=0755")
    ansible("ansible", "slurm_controller", "-i", inventory, *copy)
