# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The source ssh and verify's reading by ssh against clush and Ansible, on trays of the lab (root): hosts per second.

Many names share a tray, and all trays share this machine's CPUs with the controller. So the time is that of all their
work together; the last columns are the CPU time of each side. On real racks the trays' part is spent on the trays.

The ssh of all commands is the one of the trays' own release, out of the lab's base tree: what an older machine spends
on one connection may be three times of everything else, and then that is all that would be measured.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from ansible_collections.rackscale.nvlink.tests.integration.conftest import LAB, running_lab
from measure import Cost, environment, once

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
from nvlab import image

NAME = "live"
FANOUT = 64
FORKS = 50
SMI, FLOOR, OURS, ANSIBLE = "clush nvidia-smi -q -x", "clush python3 -c pass", "source ssh", "ansible fabric_facts"
READING = "verify, tray_reading ssh"
ASK = """
import sys
from ansible.utils.display import Display
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import ssh
options = {"hosts": sys.argv[1], "ssh_options": ["-F", sys.argv[2]], "fanout": int(sys.argv[3])}
observations = ssh.discover(options, "2026-11-21T05:00:00Z", {}, Display()).observations
sys.exit(not all(row.identity for row in observations))
"""
READ = """
import sys
from ansible.utils.display import Display
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import connections, hosts
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics
from ClusterShell.NodeSet import NodeSet
own = {"ansible_ssh_common_args": f"-F {sys.argv[2]}", "ansible_connection": "ssh"}
known = hosts.Hosts(fabrics.HostVars({str(name): own for name in NodeSet(sys.argv[1])}), None)
question = connections.of_facts({"gather_subset": ["all", "!serials"]})
results = connections.read(map(str, NodeSet(sys.argv[1])), question, known, False, Display())
sys.exit(not all(row["ansible_facts"]["nvlink_fabric"]["attached"] for row in results.values()))
"""


def table(targets: int, rounds: int, scratch: Path) -> str:
    """The whole comparison as a Markdown table; the slow Ansible runs in the first round only."""
    scratch.mkdir(parents=True, exist_ok=True)
    _ssh_of_trays(scratch / "bin")
    settings = environment(
        scratch,
        PATH=f"{scratch / 'bin'}{os.pathsep}{os.environ['PATH']}",
        ANSIBLE_PYTHON_INTERPRETER="/usr/bin/python3",
        ANSIBLE_SSH_COMMON_ARGS=f"-F {scratch / 'ssh_config'}",
    )
    lines = [
        f"| {targets} ssh targets | wall s | hosts/s | against {SMI} | the same, of CPU | aim | against Ansible "
        "| the same, of CPU | aim | controller CPU ms/host | against clush | aim | trays' |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    with running_lab(scratch, "four.yml", f"bench-{os.getpid()}") as racks:
        name = racks.name
        commands = _commands(name, targets, scratch)
        measured: dict[str, list[tuple[Cost, float]]] = {command: [] for command in commands}
        for number in range(max(rounds, 1)):
            for command, argv in commands.items():
                if not number or command != ANSIBLE:
                    before = _seconds_of_trays(name)
                    cost = once(argv, settings, scratch / "output")
                    measured[command].append((cost, _seconds_of_trays(name) - before))
    # The best run of each: whatever else the machine did can only have made it slower.
    best = {command: min(runs, key=lambda run: run[0].wall) for command, runs in measured.items()}
    for command, (cost, trays) in best.items():
        columns = [f"`{command}`", f"{cost.wall:.1f}", f"{targets / cost.wall:.1f}"]
        for other, aim in ((SMI, ">= 0.5"), (ANSIBLE, ">= 5")):
            floor, floor_trays = best[other]
            columns += [f"{floor.wall / cost.wall:.2f}", f"{(floor.cpu + floor_trays) / (cost.cpu + trays):.2f}"]
            columns.append(aim if command == OURS else ">= 0.4" if (command, other) == (READING, SMI) else "")
        columns += [f"{cost.cpu / targets * 1e3:.0f}", f"{cost.cpu / best[SMI][0].cpu:.2f}"]
        columns += ["<= 1" if command == OURS else "", f"{trays / targets * 1e3:.0f}"]
        lines.append(f"| {' | '.join(columns)} |")
    version = subprocess.run(["ssh", "-V"], env=settings, check=True, capture_output=True, text=True).stderr
    return "\n".join([*lines, "", f"The ssh of all of them: {version.split(',')[0].strip()}."])


def _ssh_of_trays(folder: Path) -> None:
    """Make a program `ssh` there that runs the base tree's, with the tree's own libraries."""
    tree = image.ensure_base("trixie")
    loader = next((tree / "usr" / "lib").glob("*/ld-linux-*.so.*"))
    command = [str(loader), "--library-path", str(loader.parent), str(tree / "usr" / "bin" / "ssh")]
    folder.mkdir(exist_ok=True)
    program = folder / "ssh"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    program.chmod(0o755)


def _commands(name: str, targets: int, scratch: Path) -> dict[str, list[str]]:
    """Command -> what runs it in the lab's network, the same ssh for all of them."""
    names = [f"n{number:04}" for number in range(targets)]
    folded = f"n[{names[0][1:]}-{names[-1][1:]}]"
    config, inventory = scratch / "ssh_config", scratch / "hosts.ini"
    own = (Path("/run/nvlink-lab") / name / "ssh_config").read_text()
    shared = [f"Host {target}\n  HostName 198.51.100.{11 + number % 4}\n" for number, target in enumerate(names)]
    # In the lab's network, so without the lab's proxy.
    config.write_text("".join(shared) + "".join(line for line in own.splitlines(True) if "Proxy" not in line))
    inventory.write_text("\n".join(names) + "\n")
    tools = Path(sys.executable).parent
    clush = [str(tools / "clush"), "-w", folded, "-f", str(FANOUT), "-o", f"-F {config}"]
    ansible = [str(tools / "ansible"), "-i", str(inventory), "all", "-f", str(FORKS), "-m"]
    inside = [sys.executable, str(LAB), "net", "--name", name, "--"]
    return {
        SMI: [*inside, *clush, "nvidia-smi -q -x"],
        FLOOR: [*inside, *clush, "python3 -c pass"],
        OURS: [*inside, sys.executable, "-c", ASK, folded, str(config), str(FANOUT)],
        READING: [*inside, sys.executable, "-c", READ, folded, str(config)],
        ANSIBLE: [*inside, *ansible, "rackscale.nvlink.fabric_facts"],
    }


def _seconds_of_trays(name: str) -> float:
    """CPU seconds that the lab's hosts have used so far."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    root = next(fields[1] for fields in mounts if fields[2] == "cgroup2")
    found = (Path(root) / f"nvlab-{name}" / "cpu.stat").read_text().split()
    return int(found[found.index("usage_usec") + 1]) / 1e6
