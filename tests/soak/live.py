# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rounds of random faults and repairs on racks of the lab that run; `make soak` makes 200 of them on 36 trays.

In each round things happen to the racks, then `site` runs until nothing changes any more: once to follow, once to show
that it is done. After each round the fabric file is valid, has every tray in the clique that the tray has last shown,
and slurmctld runs those blocks.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import GATES
from ansible_collections.rackscale.nvlink.tests.integration.commands import ansible
from ansible_collections.rackscale.nvlink.tests.integration.conftest import RunningLab, running_lab
from ansible_collections.rackscale.nvlink.tests.soak.world import Event, Tray, World

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
from nvlab import paths

# A tray without power costs no more than this; nothing of the lab is far away.
CONNECT = {"ANSIBLE_TIMEOUT": "4", "ANSIBLE_FORKS": "20"}
_BLOCK = re.compile(r"BlockName=(\S+) .*?Nodes=(\S*)")


@dataclass(frozen=True)
class Round:
    """What happened in one round, how long it took until nothing changed, and how many tasks had changed something."""

    happened: tuple[str, ...]
    seconds: float
    changed: int


class Soak:
    """One lab, its world and its fabric file."""

    def __init__(self, racks: RunningLab, folder: Path, seed: int, phases: tuple[str, ...]) -> None:
        self.racks, self.folder = racks, folder
        self.fabric_file = folder / "fabric.json"
        self.variables = {
            "fabric_file": str(self.fabric_file),
            "site_tray_hosts": "trays",
            "site_phases": list(phases),
            "fabric_override": list(GATES),
            "slurm_topology_manage_conf": True,
        }
        hosts = sorted((paths.state_of(racks.name) / "hosts").glob("r*t*"))
        self.world = World((_tray(json.loads((host / "hardware.json").read_text()), host.name) for host in hosts), seed)

    def site(self) -> list[str]:
        """Run the playbook site; the tasks that changed something."""
        done = ansible(
            "ansible-playbook",
            *("-i", self.racks.inventory, "rackscale.nvlink.site", "-e", json.dumps(self.variables)),
            **CONNECT,
        )
        tasks = done.stdout.partition("PLAY RECAP")[0].split("\nTASK [")[1:]
        return [task.partition("\nPLAY [")[0] for task in tasks if "\nchanged: " in task]

    def settle(self) -> int:
        """Follow what happened, then show that nothing is left to do."""
        changed = self.site()
        self.world.asked()
        left = self.site()
        assert not left, f"something changed though nothing had happened: {left}"
        self.check()
        return len(changed)

    def round(self) -> Round:
        events = [self.world.happen() for _again in range(self.world.random.randint(1, 3))]
        return self._follow(events)

    def heal(self) -> Round:
        return self._follow(self.world.heal())

    def _follow(self, events: list[Event]) -> Round:
        happened = tuple(event.what for event in events)
        for event in events:
            self._do(event)
        start = time.monotonic()
        try:
            changed = self.settle()
        except AssertionError as error:
            raise AssertionError(f"after {'; '.join(happened)}: {error}") from error
        return Round(happened, time.monotonic() - start, changed)

    def _do(self, event: Event) -> None:
        for name in event.off:
            self.racks.stop(name)
        for name, settings in event.settings.items():
            self.racks.set(name, *settings)
        for name in event.on:
            self.racks.start(name)

    def check(self) -> None:
        """The fabric file is valid and nobody is lost in it, and Slurm runs what it says."""
        fabric = fabric_file.load(str(self.fabric_file))
        shown = {name: tray.shown for name, tray in self.world.trays.items() if tray.shown}
        cliques = {name: tray["clique"] for name, tray in fabric.trays.items()}
        assert {
            name: (fabric.cluster_uuid(clique), fabric.cliques[clique]["clique_id"]) for name, clique in cliques.items()
        } == shown
        said = self.racks.exec("ctl", "scontrol", "show", "topology").stdout
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--racks", type=int, default=2)
    parser.add_argument("--trays", type=int, default=18, help="trays in a rack")
    parser.add_argument("--seed", type=int, default=20261121)
    parser.add_argument("--phases", default="discover,slurm", help="of the playbook site")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        file = scenario(folder, options.racks, options.trays)
        with running_lab(folder, file, f"soak-{options.seed}") as racks:
            soak = Soak(racks, folder, options.seed, tuple(options.phases.split(",")))
            soak.settle()
            rounds = []
            for number in range(1, options.rounds + 1):
                rounds.append(soak.round())
                print(f"{number:4} {rounds[-1].seconds:6.1f} s  {'; '.join(rounds[-1].happened)}", flush=True)
            soak.heal()
    times = [one.seconds for one in rounds]
    events = sum(len(one.happened) for one in rounds)
    print(f"{len(rounds)} rounds, seed {options.seed}, {options.racks * options.trays} trays, {events} events.")
    print("After each round the fabric file was valid, no tray was lost, and site came back to changed=0.")
    print(f"A round took {statistics.median(times):.1f} s (median), {max(times):.1f} s at most, for two runs of site.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
