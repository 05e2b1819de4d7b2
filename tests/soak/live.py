# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rounds of random faults and repairs on running racks of the lab.

Each round injects events and runs `site` twice: once to follow them, once to show that nothing is left to change. After
each round the fabric file is valid and has every tray in the clique that it reports, a tray that reports none in the
clique of before, and slurmctld runs these blocks. Cliques whose IDs changed keep their names.

The source ssh queries the trays; in every Nth round Ansible does, which costs ten times as much where all trays share a
few CPUs.
"""

from __future__ import annotations

import difflib
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import GATES
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import gates
from ansible_collections.rackscale.nvlink.tests.integration.commands import ansible, environment
from ansible_collections.rackscale.nvlink.tests.integration.conftest import RunningLab
from ansible_collections.rackscale.nvlink.tests.soak.racks import Event, RackModel, Tray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
from nvlab import gpus, lab, paths

# Seconds that a tray without power costs; every host of the lab is near.
CONNECT = 4
# Connections persist for the whole soak, as for an Ansible that runs often. They end with the hosts of the lab.
KEPT = ("-oControlMaster=auto", "-oControlPersist=3600")
SETTINGS = {"ANSIBLE_TIMEOUT": str(CONNECT), "ANSIBLE_FORKS": "20", "ANSIBLE_SSH_ARGS": " ".join(KEPT)}
# Event -> the command on the Slurm controller.
_BY_HAND = r"sed -i '0,/BlockName=[^ ]*/s//&byhand/' /etc/slurm/topology.conf"
ON_CONTROLLER = {
    "slurmctld killed": "systemctl kill --signal=KILL slurmctld; systemctl restart slurmctld",
    "topology edited by hand": _BY_HAND,
    "topology edited by hand and loaded": f"{_BY_HAND} && scontrol reconfigure || systemctl restart slurmctld",
}
_BLOCK = re.compile(r"BlockName=(\S+) .*?Nodes=(\S*)")


class Soak:
    """One lab, its model and its fabric file; every Nth round Ansible queries the trays, in others the source ssh."""

    def __init__(self, racks: RunningLab, folder: Path, seed: int, every: int) -> None:
        self.racks, self.every, self.number = racks, every, 0
        # Tasks that changed something since the first run.
        self.changed = 0
        # Tray -> its clique after the last round.
        self._before: dict[str, str] = {}
        self.fabric_file = folder / "fabric.json"
        self.variables = {
            "fabric_file": str(self.fabric_file),
            "site_tray_hosts": "trays",
            "fabric_override": list(GATES),
            "fabric_facts_timeout": 4,
            "slurm_topology_manage_conf": True,
            "slurm_topology_override": list(gates.GATES),
        }
        hosts = sorted((paths.state_of(racks.name) / "hosts").glob("r*t*"))
        trays = (_tray(json.loads((host / "hardware.json").read_text()), host.name) for host in hosts)
        self.model = RackModel(trays, seed)
        # A connection to a tray without power is given up after three of these, and nearly every round has one.
        racks.net("sh", "-c", "for file in /proc/sys/net/ipv4/neigh/*/retrans_time_ms; do echo 250 > $file; done")

    @property
    def source(self) -> str:
        return "ssh" if self.number % self.every else "ansible"

    def _site(self) -> list[str | Path]:
        variables = self.variables | ({"fabric_sources": [self._ssh()]} if self.source == "ssh" else {})
        extra = ["-e", json.dumps(variables), "--tags", "discover,slurm"]
        return ["-i", self.racks.inventory, "rackscale.nvlink.site", *extra]

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
        """Start the playbook site and kill its process after some seconds."""
        command = [sys.executable, "-m", "ansible", "playbook", *map(str, self._site())]
        nothing = subprocess.DEVNULL
        with subprocess.Popen(
            command, env=environment(**SETTINGS), stdin=nothing, stdout=nothing, stderr=nothing
        ) as running:
            time.sleep(after)
            running.kill()

    def wait_until_running(self) -> int:
        """Follow the events, then show that nothing is left to change."""
        changed = self.site()
        self.model.observed()
        before = self._files()
        again = self.site()
        assert not again, f"something changed without an event: {again}\n{_difference(before, self._files())}"
        self.check()
        return len(changed)

    def _files(self) -> list[str]:
        """The lines of the fabric file and of its state."""
        paths = (self.fabric_file, Path(fabric_file.state_path(str(self.fabric_file))))
        return [line for path in paths for line in path.read_text().splitlines()]

    def round(self) -> tuple[str, ...]:
        """Inject one to three events and follow them; what happened."""
        self.number += 1
        return self._follow([self.model.inject() for _again in range(self.model.random.randint(1, 3))])

    def repair_all(self) -> None:
        self.number = 0
        self._follow(self.model.repair_all())

    def _follow(self, events: list[Event]) -> tuple[str, ...]:
        happened = tuple(event.what for event in events)
        cliques = self._cliques(name for event in events for name in event.keeps)
        try:
            for event in events:
                self._do(event)
            changed = self.wait_until_running()
            self.changed += changed
            assert self._cliques(cliques) == cliques, "cliques with other IDs keep their names"
            operated = [event.operator for event in events if event.operator]
            if operated and all(operator.startswith("topology edited") for operator in operated):
                assert changed, "an edit by hand was not detected"
        except (AssertionError, subprocess.TimeoutExpired) as error:
            where = f"round {self.number}, queried by {self.source}, after {'; '.join(happened)}"
            raise AssertionError(f"{where}: {error}") from error
        return happened

    def _cliques(self, trays: Iterable[str]) -> dict[str, str]:
        """The cliques of these trays in the fabric file."""
        fabric = fabric_file.load(str(self.fabric_file))
        return {name: fabric.trays[name]["clique"] for name in trays}

    def _do(self, event: Event) -> None:
        for name in event.off:
            self.racks.stop(name, "--keep-disk")
        for name, settings in event.settings.items():
            changes = [(key, value) for key, _equals, value in (setting.partition("=") for setting in settings)]
            gpus.change(paths.state_of(self.racks.name) / "hosts" / name, changes)
        for name in event.on:
            self.racks.start(name)
        if event.operator in ON_CONTROLLER:
            self._on("ctl", "sh", "-c", ON_CONTROLLER[event.operator])
        elif event.operator == "state file lost":
            Path(fabric_file.state_path(str(self.fabric_file))).unlink()
        elif event.operator:
            self.site_killed(self.model.random.uniform(1, 6))

    def _on(self, host: str, *command: str) -> str:
        done = subprocess.run(
            lab.enter(self.racks.name, host, list(command)), capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{host}: {command} ended with {done.returncode}: {done.stderr}"
        return done.stdout

    def check(self) -> None:
        """Check that the fabric file is valid and complete and that Slurm runs its blocks."""
        fabric = fabric_file.load(str(self.fabric_file))
        shown = {name: tray.shown for name, tray in self.model.trays.items() if tray.shown}
        cliques = {name: tray["clique"] for name, tray in fabric.trays.items()}
        assert cliques.keys() == shown.keys()
        for name, clique in cliques.items():
            # The IDs of the clique of a tray that reports none may change without it.
            keeps = not self.model.trays[name].attached and clique == self._before.get(name)
            assert keeps or fabric.identity(clique) == shown[name], f"{name} is in {clique}, and reported {shown[name]}"
        self._before = cliques
        shown_topology = self._on("ctl", "scontrol", "show", "topology")
        running = {node: name for name, nodes in _BLOCK.findall(shown_topology) for node in expand(nodes)}
        assert running == {name: fabric.cliques[clique]["block"]["name"] for name, clique in cliques.items()}


def _difference(before: Sequence[str], after: Sequence[str]) -> str:
    return "\n".join(difflib.unified_diff(before, after, "before", "after", lineterm="", n=6))


def _tray(hardware: dict[str, object], name: str) -> Tray:
    facts = hardware["facts"]
    assert isinstance(facts, dict)
    gpus = tuple(gpu["uuid"] for gpu in facts["gpus"])
    return Tray(name, name[:3], facts["cluster_uuid"], facts["clique_id"], gpus, facts["driver_version"])
