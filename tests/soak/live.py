# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rounds of random faults and repairs on racks of the lab that run; `make soak` makes 200 of them on 36 trays.

In each round things happen to the racks, then `site` runs until nothing changes any more: once to follow, once to show
that it is done. After each round the fabric file is valid, has every tray in the clique that the tray has last shown,
and slurmctld runs those blocks.

Trays are asked by the source ssh, in every so many rounds by Ansible itself, which costs ten times as much where all
trays share a few CPUs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import GATES
from ansible_collections.rackscale.nvlink.tests.integration.commands import ansible, environment
from ansible_collections.rackscale.nvlink.tests.integration.conftest import RunningLab, running_lab
from ansible_collections.rackscale.nvlink.tests.soak.world import Event, Tray, World

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
from nvlab import gpus, lab, paths

# A tray without power costs no more than this; nothing of the lab is far away.
CONNECT = 4
# Connections stay for the whole soak, as with any Ansible that runs often. They end with the hosts of the lab.
KEPT = ("-oControlMaster=auto", "-oControlPersist=3600")
SETTINGS = {"ANSIBLE_TIMEOUT": str(CONNECT), "ANSIBLE_FORKS": "20", "ANSIBLE_SSH_ARGS": " ".join(KEPT)}
# What happens on the controller of Slurm, by the words of the event.
_BY_HAND = r"sed -i '0,/BlockName=[^ ]*/s//&byhand/' /etc/slurm/topology.conf"
ON_CONTROLLER = {
    "slurmctld killed": "systemctl kill --signal=KILL slurmctld; systemctl restart slurmctld",
    "topology edited by hand": _BY_HAND,
    "topology edited by hand and loaded": f"{_BY_HAND} && scontrol reconfigure",
}
_BLOCK = re.compile(r"BlockName=(\S+) .*?Nodes=(\S*)")


@dataclass(frozen=True)
class Round:
    """What happened in one round, how long it took until nothing changed, and how many tasks had changed something."""

    happened: tuple[str, ...]
    seconds: float
    changed: int
    source: str


class Soak:
    """One lab, its world and its fabric file.

    every: in each so many rounds Ansible asks the trays, in all others the source ssh.
    """

    def __init__(self, racks: RunningLab, folder: Path, seed: int, phases: tuple[str, ...], every: int) -> None:
        self.racks, self.folder = racks, folder
        self.every, self.number = every, 0
        self.fabric_file = folder / "fabric.json"
        self.variables = {
            "fabric_file": str(self.fabric_file),
            "site_tray_hosts": "trays",
            "site_phases": list(phases),
            "fabric_override": list(GATES),
            "fabric_facts_timeout": 4,
            "slurm_topology_manage_conf": True,
        }
        hosts = sorted((paths.state_of(racks.name) / "hosts").glob("r*t*"))
        trays = (_tray(json.loads((host / "hardware.json").read_text()), host.name) for host in hosts)
        self.world = World(trays, seed, real=True)
        # A tray without power is given up after three of these, and there is one in nearly every round.
        racks.net("sh", "-c", "for file in /proc/sys/net/ipv4/neigh/*/retrans_time_ms; do echo 250 > $file; done")

    @property
    def source(self) -> str:
        return "ssh" if self.number % self.every else "ansible"

    def _site(self) -> list[str | Path]:
        variables = self.variables | ({"fabric_sources": [self._ssh()]} if self.source == "ssh" else {})
        return ["-i", self.racks.inventory, "rackscale.nvlink.site", "-e", json.dumps(variables)]

    def _ssh(self) -> dict[str, Any]:
        state = paths.state_of(self.racks.name)
        options = ["-F", str(state / "ssh_config"), *KEPT, f"-oControlPath={state}/ssh-%h"]
        return {"ssh": {"ssh_options": options, "connect_timeout": CONNECT, "timeout": 4, "command_timeout": 30}}

    def site(self) -> list[str]:
        """Run the playbook site; the tasks that changed something."""
        done = ansible("ansible-playbook", *self._site(), **SETTINGS)
        tasks = done.stdout.partition("PLAY RECAP")[0].split("\nTASK [")[1:]
        return [task.partition("\nPLAY [")[0] for task in tasks if "\nchanged: " in task]

    def site_killed(self, after: float) -> None:
        """Begin to run the playbook site; so many seconds later its process is gone, and nobody has cleaned up."""
        command = [sys.executable, "-m", "ansible", "playbook", *map(str, self._site())]
        nothing = subprocess.DEVNULL
        with subprocess.Popen(
            command, env=environment(**SETTINGS), stdin=nothing, stdout=nothing, stderr=nothing
        ) as running:
            time.sleep(after)
            running.kill()

    def settle(self) -> int:
        """Follow what happened, then show that nothing is left to do."""
        changed = self.site()
        self.world.asked()
        left = self.site()
        assert not left, f"something changed though nothing had happened: {left}"
        self.check()
        return len(changed)

    def round(self) -> Round:
        self.number += 1
        return self._follow([self.world.happen() for _again in range(self.world.random.randint(1, 3))])

    def heal(self) -> Round:
        self.number = 0
        return self._follow(self.world.heal())

    def _follow(self, events: list[Event]) -> Round:
        happened = tuple(event.what for event in events)
        start = time.monotonic()
        try:
            for event in events:
                self._do(event)
            changed = self.settle()
            operated = [event.operator for event in events if event.operator]
            if operated and all(operator.startswith("topology edited") for operator in operated):
                assert changed, "what was edited by hand was not seen"
        except (AssertionError, subprocess.TimeoutExpired) as error:
            raise AssertionError(f"asked by {self.source}, after {'; '.join(happened)}: {error}") from error
        return Round(happened, time.monotonic() - start, changed, self.source)

    def _do(self, event: Event) -> None:
        for name in event.off:
            self.racks.stop(name)
        for name, settings in event.settings.items():
            changes = [(key, value) for key, _equals, value in (setting.partition("=") for setting in settings)]
            gpus.change(paths.state_of(self.racks.name) / "hosts" / name, changes)
        for name in event.on:
            self.racks.start(name)
        if event.operator in ON_CONTROLLER:
            self._on_controller("sh", "-c", ON_CONTROLLER[event.operator])
        elif event.operator == "state file lost":
            Path(fabric_file.state_path(str(self.fabric_file))).unlink()
        elif event.operator:
            self.site_killed(self.world.random.uniform(1, 6))

    def _on_controller(self, *command: str) -> str:
        done = subprocess.run(
            lab.enter(self.racks.name, "ctl", list(command)), capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{command} ended with {done.returncode}: {done.stderr}"
        return done.stdout

    def check(self) -> None:
        """The fabric file is valid and nobody is lost in it, and Slurm runs what it says."""
        fabric = fabric_file.load(str(self.fabric_file))
        shown = {name: tray.shown for name, tray in self.world.trays.items() if tray.shown}
        cliques = {name: tray["clique"] for name, tray in fabric.trays.items()}
        assert {
            name: (fabric.cluster_uuid(clique), fabric.cliques[clique]["clique_id"]) for name, clique in cliques.items()
        } == shown
        said = self._on_controller("scontrol", "show", "topology")
        running = {node: name for name, nodes in _BLOCK.findall(said) for node in expand(nodes)}
        assert running == {name: fabric.cliques[clique]["block"]["name"] for name, clique in cliques.items()}


def _tray(hardware: dict[str, object], name: str) -> Tray:
    facts = hardware["facts"]
    assert isinstance(facts, dict)
    gpus = tuple(gpu["uuid"] for gpu in facts["gpus"])
    return Tray(name, name[:3], facts["cluster_uuid"], facts["clique_id"], gpus, facts["driver_version"])


def scenario(folder: Path, racks: int, trays: int, suite: str = "trixie") -> Path:
    """A lab of so many whole racks with a Slurm that runs."""
    file = folder / "soak.yml"
    rows = [{"name": f"r{number:02d}", "trays": trays, "gpus": 4} for number in range(1, racks + 1)]
    file.write_text(json.dumps({"suite": suite, "controller": True, "slurm": True, "racks": rows}))
    return file


def figures(rounds: Sequence[Round], options: argparse.Namespace) -> str:
    """What the rounds that came to their end have shown."""
    if not rounds:
        return "No round came to its end."
    times = [one.seconds for one in rounds]
    events = sum(len(one.happened) for one in rounds)
    by_ansible = sum(one.source == "ansible" for one in rounds)
    return "\n".join(
        [
            f"{len(rounds)} rounds, seed {options.seed}, {options.racks * options.trays} trays, {events} events, "
            f"{sum(one.changed for one in rounds)} tasks that changed something; "
            f"in {by_ansible} rounds Ansible asked the trays, in {len(rounds) - by_ansible} the source ssh.",
            "After each round the fabric file was valid, no tray was lost, and site came back to changed=0.",
            f"A round took {statistics.median(times):.1f} s (median), {max(times):.1f} s at most, two runs of site.",
        ]
    )


def _interrupted(_signal: int, _frame: Any) -> None:
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--racks", type=int, default=2)
    parser.add_argument("--trays", type=int, default=18, help="trays in a rack")
    parser.add_argument("--seed", type=int, default=20261121)
    parser.add_argument("--phases", default="discover,slurm", help="of the playbook site")
    parser.add_argument("--ansible-every", type=int, default=8, help="in each so many rounds Ansible asks the trays")
    options = parser.parse_args()
    # In the background SIGINT is ignored unless somebody wants it; the lab goes down whichever of them comes.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupted)
    rounds: list[Round] = []
    try:
        _soak(options, rounds)
    except KeyboardInterrupt:
        print(f"Interrupted in round {len(rounds) + 1} of {options.rounds}.")
        return 130
    except AssertionError as error:
        number = min(len(rounds) + 1, options.rounds)
        print(f"Round {number} of seed {options.seed} failed, {error}")
        print(f"The same again: {' '.join([*sys.argv, '--seed', str(options.seed), '--rounds', str(number)])}")
        return 1
    finally:
        print(figures(rounds, options), flush=True)
    return 0


def _soak(options: argparse.Namespace, rounds: list[Round]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        file = scenario(folder, options.racks, options.trays)
        with running_lab(folder, file, f"soak-{os.getpid()}") as racks:
            soak = Soak(racks, folder, options.seed, tuple(options.phases.split(",")), options.ansible_every)
            soak.settle()
            for number in range(1, options.rounds + 1):
                one = soak.round()
                rounds.append(one)
                told = f"{one.seconds:6.1f} s  {one.source:7}  {one.changed} changed  {'; '.join(one.happened)}"
                print(f"{number:4} {told}", flush=True)
            soak.heal()


if __name__ == "__main__":
    sys.exit(main())
