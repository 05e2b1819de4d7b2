# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole verify on 36 trays of the lab against Ansible's own ping of the same hosts (root), run in turns; and the
verdict alone on simulated evidence of 10,368 trays.

All trays share this machine's CPUs with the controller, so a tray's own work is measured 36 times on a few cores; on
real racks each tray has its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.verify.verify_world import World
from measure import Cost, once

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
from nvlab import imex, lab, packages, paths

NAME = "verify"
LAB = Path(__file__).resolve().parents[1] / "lab" / "lab"
DEVICES = "/root/devices"
PING, WHOLE, QUICK = "ansible -m ping", "verify", "verify --tags quick"
TRAYS_PER_RACK = 18


def table(racks: int, rounds: int, scratch: Path) -> str:
    """Both comparisons as Markdown tables; racks are those of the simulated evidence."""
    scratch.mkdir(parents=True, exist_ok=True)
    with _lab(f"bench-{os.getpid()}") as name:
        site = _Site(name, scratch)
        site.prepare()
        commands = site.commands()
        measured: dict[str, list[Cost]] = {command: [] for command in commands}
        for number in range(rounds + 1):
            for command, argv in commands.items():
                cost = once(argv, site.environment(), scratch / "output")
                if number:  # the first makes the connections that later ones keep
                    measured[command].append(cost)
        verdict = json.loads((scratch / "verdict.json").read_text())
        if not verdict["ok"] or verdict["trays"] != 36:
            raise SystemExit(f"the lab's trays do not agree, so nothing was compared: {verdict['failures']}")
    # The fastest run of each: other load can only add time.
    best = {command: min(runs, key=lambda run: run.wall) for command, runs in measured.items()}
    lines = ["| 36 trays | wall s | ratio | aim | CPU of the controller s |", "|---|--:|--:|--:|--:|"]
    for command, cost in best.items():
        aim = "<= 3" if command == WHOLE else ""
        lines.append(f"| `{command}` | {cost.wall:.1f} | {cost.wall / best[PING].wall:.2f} | {aim} | {cost.cpu:.1f} |")
    return "\n".join([*lines, "", *_verdict(racks)])


def _verdict(racks: int) -> list[str]:
    """The verdict of racks in which everything agrees, GPUs, IMEX, Slurm and Kubernetes included."""
    world = World(racks, TRAYS_PER_RACK)
    wall, cpu = time.perf_counter(), time.process_time()
    verdict = world.verdict()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    if verdict["failures"]:
        raise SystemExit(f"simulated racks do not agree: {verdict['failures'][:3]}")
    return [
        f"| the verdict on evidence of {verdict['trays']:,} trays | wall s | CPU s |",
        "|---|--:|--:|",
        f"| all layers | {wall:.1f} | {cpu:.1f} |",
    ]


class _Site:
    """A lab as the playbooks leave it: discovered, with blocks in Slurm, and IMEX of three cliques."""

    def __init__(self, name: str, scratch: Path) -> None:
        self.name, self.scratch = name, scratch
        self.fabric = scratch / "fabric.json"
        for left in scratch.glob("fabric*"):
            left.unlink()  # of an earlier lab with other UUIDs
        self.inventory = scratch / "lab.yml"
        with self.inventory.open("w") as file:
            subprocess.run([sys.executable, LAB, "inventory", "--name", name], check=True, stdout=file)
        self.tools = Path(sys.executable).parent

    def prepare(self) -> None:
        packages.add(paths.state_of(self.name), imex.packages())
        trays = [f"r{rack:02d}t{tray:02d}" for rack in (1, 2) for tray in range(1, TRAYS_PER_RACK + 1)]
        for tray in trays:
            script = f"printf '  4 nvidia-caps-imex-channels\\n' > {DEVICES}"
            subprocess.run(lab.enter(self.name, tray, ["sh", "-c", script]), check=True)
        for playbook in ("discover", "slurm", "imex"):
            subprocess.run(self._play(playbook), check=True, stdout=2, env=dict(self.environment()))

    def _play(self, playbook: str, *arguments: str) -> list[str]:
        variables = {
            "fabric_file": str(self.fabric),
            "fabric_accept": "gates",
            "slurm_topology_manage_conf": True,
            "slurm_topology_rehearse": "never",
            "imex_hosts": "trays",
            "imex_boot_wait": 3,
            "imex_channels": [0],
            "imex_proc_devices": DEVICES,
            "verify_hosts": "trays",
            "verdict_file": str(self.scratch / "verdict.json"),
            "verify_proc_devices": DEVICES,
        }
        command = [str(self.tools / "ansible-playbook"), "-i", str(self.inventory), "-f", "36"]
        return [*command, f"rackscale.nvlink.{playbook}", "-e", json.dumps(variables), *arguments]

    def commands(self) -> dict[str, list[str]]:
        ping = [str(self.tools / "ansible"), "-i", str(self.inventory), "-f", "36", "trays", "-m", "ping"]
        return {
            PING: ping,
            WHOLE: self._play("verify"),
            QUICK: self._play("verify", "--tags", "quick", "-e", f"verdict_file={self.scratch / 'quick.json'}"),
        }

    def environment(self) -> Mapping[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
        empty = self.scratch / "ansible.cfg"
        empty.touch()
        return {
            **kept,
            "ANSIBLE_CONFIG": str(empty),
            "ANSIBLE_COLLECTIONS_PATH": str(next((Path(sys.prefix) / "lib").glob("python3*")) / "site-packages"),
            "ANSIBLE_HOME": str(self.scratch / "home"),
            "ANSIBLE_NOCOLOR": "true",
            "ANSIBLE_PIPELINING": "true",
        }


@contextmanager
def _lab(name: str) -> Iterator[str]:
    scenario = LAB.parent / "scenarios" / "two-racks.yml"
    try:
        subprocess.run([sys.executable, LAB, "up", "--name", name, "--scenario", scenario], check=True, stdout=2)
        yield name
    finally:
        subprocess.run([sys.executable, LAB, "down", "--name", name], check=True)
