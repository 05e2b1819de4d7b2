# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks slurm and slurm_bringup: fabric files, node names, and a Slurm of somebody else.

The controller is this machine, with stand-ins for slurmctld, scontrol and squeue that print what a slurmctld would.
Their folder is in the copy of the site, so a row that changed anything would be seen.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import scontrol
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import topology_files
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.slurm.slurm_fake import programs

from . import Mistake

SLURM, BRINGUP, DRAIN = (f"rackscale.nvlink.{name}" for name in ("slurm", "slurm_bringup", "drain"))
# Without the inventory that reads the fabric file.
HOSTS = ("hosts.yml",)
RACKS = {"r01": "r01t[01-02]", "r02": "r02t[01-02]"}
SHORT = '"{{ inventory_hostname_short }}"'

Step = Callable[[Path], object]


def running(
    blocks: Mapping[str, str] | None = None,
    nodes: Sequence[str] | None = None,
    answers: bool = True,
    **variables: Any,
) -> Step:
    """A slurmctld that runs these blocks."""

    def write(site: Path) -> None:
        given = {name: expand(text) for name, text in (RACKS if blocks is None else blocks).items()}
        known = [node for names in given.values() for node in names] if nodes is None else nodes
        made = tuple(scontrol.Block(name, tuple(names)) for name, names in given.items())
        topologies = [scontrol.Topology("nvlink", blocks=made, block_sizes=(2,))]
        (site / "etc").mkdir()
        partition = f"PartitionName=all Nodes={','.join(known)}"
        settings = "ClusterName=nvl\nSelectType=select/cons_tres\nPrologFlags=Alloc\n"
        (site / "etc" / "slurm.conf").write_text(f"{settings}{partition}\n")
        (site / "etc" / "topology.yaml").write_text(topology_files.render(topologies, "yaml"))
        config = {
            "SLURM_VERSION": "26.05.5",
            "SLURM_CONF": f"{site}/etc/slurm.conf",
            "ClusterName": "nvl",
            "SelectType": "select/cons_tres",
            "PrologFlags": "Alloc",
        }
        outputs = {
            "show config": "".join(f"{key} = {value}\n" for key, value in config.items()),
            # As libyaml prints what slurmctld has loaded: none of the file's comments.
            "show topoconf": yaml.dump(scontrol.documents(topologies), explicit_start=True, sort_keys=False),
            "show nodes": "".join(f"NodeName={node} NodeHostName={node} State=IDLE\n" for node in known),
            "show partitions": f"{partition} State=UP\n",
            "ping": "Slurmctld(primary) at ctl is UP\n",
        }
        (site / "bin").mkdir()
        for name, output in outputs.items():
            (site / "bin" / name).write_text(output)
        refusal = 'echo "Unable to contact slurm controller (connect failure)" >&2; exit 1'
        script = f"""case "$*" in
            *--version) echo slurm 26.05.5 ;;
            *"show config" | *"show topoconf" | *"show nodes" | *"show partitions" | ping)
                {f'cat "{site}/bin/${{*#-a -o }}"' if answers else refusal} ;;
            *"show topology" | *"show reservation") ;;
            *) echo "not expected: $*" >&2; exit 1 ;;
        esac"""
        programs(site / "bin", scontrol=script, slurmctld="echo slurm 26.05.5", squeue="exit 0")
        local(**variables)(site)

    return write


def local(**variables: Any) -> Step:
    """The controller is this machine, and its Slurm the one below the site's folder."""

    def write(site: Path) -> None:
        given = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "slurm_topology_bin_dir": f"{site}/bin",
            "slurm_conf_dir": f"{site}/etc",
            "slurm_topology_rehearse": "never",
            "slurm_topology_timeout": 10,
            "slurm_state_dir": f"{site}/state",
            # A row that is not stopped ends here.
            "slurm_controller_packages": ["no-such-package"],
        }
        (site / "group_vars" / "slurm_controller.json").write_text(json.dumps({**given, **variables}))

    return write


def others(site: Path) -> None:
    """A controller with a slurm.conf that this collection has not written; test_role_slurm.py has other files."""
    local()(site)
    (site / "etc").mkdir()
    (site / "etc" / "slurm.conf").write_text("ClusterName=theirs\n")


def file(text: str) -> Step:
    return lambda site: [local()(site), (site / "fabric.json").write_text(text)]


def own_file(site: Path) -> None:
    """The group of the controllers has a file of its own."""
    local(slurm_fabric_file=f"{site}/own.json")(site)
    (site / "own.json").write_text("{")


def domain(then: Step) -> Step:
    """The fabric file has node names with a domain."""

    def write(site: Path) -> None:
        path = site / "fabric.json"
        fabric = json.loads(path.read_text())
        for tray, row in fabric["trays"].items():
            row["slurm_node"] = f"{tray}.example.com"
        path.write_text(json.dumps(fabric, sort_keys=True, indent=1) + "\n")
        then(site)

    return write


def unset(site: Path) -> None:
    path = site / "group_vars" / "all.json"
    given = json.loads(path.read_text())
    del given["fabric_file"]
    path.write_text(json.dumps(given))
    local()(site)


MISTAKES = [
    # Names that Slurm does not have.
    Mistake(
        SLURM,
        f"slurmctld calls r01t01.example.com r01t01 (and 3 more alike): set fabric_slurm_node: {SHORT} for the group"
        " nvlink, then discover and accept again.",
        prepare=domain(running()),
    ),
    Mistake(
        SLURM,
        "Slurm has none of the 2 nodes of block r01 (r01t01, r01t02): set fabric_slurm_node to their NodeName",
        prepare=running({"a": "a[1-4]"}),
        long=True,
    ),
    Mistake(
        f"{DRAIN} -e drain_trays=r01t01 -e rollout_slurm_bin_dir={{site}}/bin -e slurm_conf_dir={{site}}/etc",
        f"slurmctld calls r01t01.example.com r01t01: set fabric_slurm_node: {SHORT} for the group nvlink, then",
        prepare=domain(running()),
        long=True,
    ),
    Mistake(
        "rackscale.nvlink.drain --tags spares -e spares_active=1 -e spares_promote=r01t01"
        " -e rollout_slurm_bin_dir={site}/bin -e slurm_conf_dir={site}/etc",
        "slurmctld does not know r01t01. Name nodes as scontrol show nodes does, or correct slurm_node in the fabric"
        " file.",
        prepare=running(nodes=["r01t02", "r02t01", "r02t02"]),
    ),
    Mistake(SLURM, "/fabric.json: is not JSON", prepare=file("{"), inventory=HOSTS),
    Mistake(f"{BRINGUP} --check", "/own.json: is not JSON", prepare=own_file, inventory=HOSTS, long=True),
    Mistake(
        SLURM,
        "No fabric file is set: add -e fabric_file=PATH, the file that the playbook discover writes.",
        prepare=unset,
        # Next to the only source, fabric.json would be found.
        inventory=HOSTS * 2,
    ),
    # The Slurm that it is to configure.
    Mistake(
        SLURM,
        "scontrol show config failed (Unable to contact slurm controller (connect failure)): check that slurmctld runs",
        prepare=running(answers=False),
    ),
    Mistake(
        f"{BRINGUP} --limit r01t01,localhost",
        "--limit r01t01,localhost: leaves no host of slurm_controller; add one: --limit r01t01,localhost,ctl.",
        long=True,
    ),
    # A Slurm of somebody else.
    Mistake(
        f"{BRINGUP} --check --diff",
        "/etc/slurm.conf was not written by slurm_bringup, which would replace it: run the playbook slurm for a"
        " Slurm that exists, or move the file away for a new cluster; nothing was changed.",
        prepare=others,
    ),
]
