# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rounds of random faults and repairs on running racks of the lab; `make soak` runs 200 rounds on 36 trays.

Each round injects events and runs `site` twice: once to follow them, once to show that nothing is left to change. After
each round the fabric file is valid and has every tray in the clique that it reports, a tray that reports none in the
clique of before, and slurmctld runs these blocks. Cliques whose IDs changed keep their names.

The source ssh queries the trays; in every Nth round Ansible does, which costs ten times as much where all trays share a
few CPUs.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import GATES
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import plan_gates
from ansible_collections.rackscale.nvlink.tests.integration.commands import ansible, environment
from ansible_collections.rackscale.nvlink.tests.integration.conftest import (
    SCENARIOS,
    RunningLab,
    lab_command,
    running_lab,
)
from ansible_collections.rackscale.nvlink.tests.soak.domains import BY_HAND, FAILED, WAITING, Domains, JobDomains
from ansible_collections.rackscale.nvlink.tests.soak.racks import Event, Place, RackModel, Tray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
from nvlab import gpus, imex, lab, paths

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
# Seconds of a run that configures IMEX on 36 trays that share two CPUs.
LONGEST = 1200.0
LAST_TASK = "Fail if a phase failed]"
_FAILED = re.compile(r"(?m)^(\S+) +: .*failed=[1-9]")
_BLOCK = re.compile(r"BlockName=(\S+) .*?Nodes=(\S*)")


@dataclass(frozen=True)
class Round:
    """The events of one round, the seconds until nothing changed, and the number of tasks that changed something."""

    happened: tuple[str, ...]
    seconds: float
    changed: int
    source: str
    imex: bool


class Soak:
    """One lab, its model and its fabric file.

    every: in every Nth round Ansible queries the trays, in all others the source ssh. imex_every: in every Nth round,
    and after the last one, IMEX is configured too; 0 for never.
    """

    def __init__(
        self,
        racks: RunningLab,
        folder: Path,
        seed: int,
        phases: tuple[str, ...],
        every: int,
        imex_every: int = 0,
        new_ids: bool = False,
        imex_owner: str = "domain",
    ) -> None:
        self.racks, self.folder = racks, folder
        self.every, self.imex_every, self.number = every, imex_every, 0
        # Tray -> its clique after the last round.
        self._before: dict[str, str] = {}
        self.phases = list(phases)
        self.fabric_file = folder / "fabric.json"
        self.variables = {
            "fabric_file": str(self.fabric_file),
            "site_tray_hosts": "trays",
            "fabric_override": list(GATES),
            "fabric_facts_timeout": 4,
            "slurm_topology_manage_conf": True,
            "slurm_topology_override": list(plan_gates.GATES),
            # One tray without its driver must not end the run for all the others.
            "rollout_stop_after": 100,
            "imex_boot_wait": 3,
            "imex_owner": imex_owner,
        }
        hosts = sorted((paths.state_of(racks.name) / "hosts").glob("r*t*"))
        trays = (_tray(json.loads((host / "hardware.json").read_text()), host.name) for host in hosts)
        self.model = RackModel(trays, seed, imex=imex_every > 0, new_ids=new_ids)
        self.domains: Domains | None = None
        if imex_every:
            lab_command("packages", "--name", racks.name, str(imex.packages()))
            addresses = {tray.name: tray.address for tray in lab.scenario_of(racks.name).trays}
            expected = JobDomains if imex_owner == "job" else Domains
            self.domains = expected(self.model, addresses, lambda tray, script: self._on(tray, "sh", "-c", script))
        # A connection to a tray without power is given up after three of these, and nearly every round has one.
        racks.net("sh", "-c", "for file in /proc/sys/net/ipv4/neigh/*/retrans_time_ms; do echo 250 > $file; done")

    @property
    def source(self) -> str:
        return "ssh" if self.number % self.every else "ansible"

    @property
    def gives_imex(self) -> bool:
        return self.imex_every > 0 < self.number and self.number % self.imex_every == 0

    def _site(self) -> list[str | Path]:
        variables = self.variables | ({"fabric_sources": [self._ssh()]} if self.source == "ssh" else {})
        tags = ",".join([*self.phases, *(["imex"] if self.gives_imex else [])])
        return ["-i", self.racks.inventory, "rackscale.nvlink.site", "-e", json.dumps(variables), "--tags", tags]

    def _ssh(self) -> dict[str, Any]:
        state = paths.state_of(self.racks.name)
        options = ["-F", str(state / "ssh_config"), *KEPT, f"-oControlPath={state}/ssh-%h"]
        return {"ssh": {"ssh_options": options, "connect_timeout": CONNECT, "timeout": 4, "command_timeout": 30}}

    def site(self) -> list[str]:
        """Run the playbook site; the tasks that changed something."""
        done = ansible("ansible-playbook", *self._site(), check=not self.gives_imex, timeout=LONGEST, **SETTINGS)
        if self.gives_imex:
            # The cliques that are left are printed by the last task, the only one that may fail.
            output = done.stdout.rpartition("\nTASK [")[2] + done.stderr
            assert (done.returncode != 0) == bool(self._left()), output
            assert output.startswith(LAST_TASK), output
            assert len(_FAILED.findall(output)) == bool(self._left()), output
            assert "[DEPRECATION WARNING]" not in output, output
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
        if self.domains:
            self.domains.waited()
        left, before = self._expected_left(), self._files()
        again = self.site()
        assert not again, f"something changed without an event: {again}\n{_difference(before, self._files())}"
        assert self._expected_left() == left, "the second run left other cliques"
        self.check()
        if self.domains:
            self.domains.check()
            if self.gives_imex:
                self.domains.check_peers(left)
        return len(changed)

    def _files(self) -> list[str]:
        """The lines of the fabric file and of its state."""
        paths = (self.fabric_file, Path(fabric_file.state_path(str(self.fabric_file))))
        return [line for path in paths for line in path.read_text().splitlines()]

    def _expected_left(self) -> dict[Place, str]:
        """The cliques that the run left, with their state: the same in its progress file and in the expectation."""
        if not self.domains or not self.gives_imex:
            return {}
        found = self._left()
        left = self.domains.configured(place for place, why in found.items() if why == WAITING)
        assert left == found, f"IMEX of these cliques should be left: {left}; the run left {found}"
        assert WAITING not in left.values() or FAILED in left.values(), "they wait for a canary that did not fail"
        return left

    def _left(self) -> dict[Place, str]:
        """What the run has left of IMEX: clique and its state."""
        path = self.folder / "fabric.rollout-imex.json"
        if not path.exists():
            return {}
        fabric = fabric_file.load(str(self.fabric_file))
        rows = json.loads(path.read_text())["cliques"]
        return {
            (fabric.cluster_uuid(name), fabric.cliques[name]["clique_id"]): row["state"] for name, row in rows.items()
        }

    def round(self) -> Round:
        self.number += 1
        return self._follow([self.model.inject() for _again in range(self.model.random.randint(1, 3))])

    def repair_all(self, imex: bool = True) -> Round:
        self.number = self.every * self.imex_every * imex
        return self._follow(self.model.repair_all())

    def _follow(self, events: list[Event]) -> Round:
        happened = tuple(event.what for event in events)
        cliques = self._cliques(name for event in events for name in event.keeps)
        start = time.monotonic()
        try:
            for event in events:
                self._do(event)
            changed = self.wait_until_running()
            assert self._cliques(cliques) == cliques, "cliques with other IDs keep their names"
            operated = [event.operator for event in events if event.operator]
            if operated and all(operator.startswith("topology edited") for operator in operated):
                assert changed, "an edit by hand was not detected"
        except (AssertionError, subprocess.TimeoutExpired) as error:
            raise AssertionError(f"queried by {self.source}, after {'; '.join(happened)}: {error}") from error
        return Round(happened, time.monotonic() - start, changed, self.source, self.gives_imex)

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
        elif event.operator in BY_HAND:
            self._on(event.tray, "sh", "-c", BY_HAND[event.operator])
        elif event.operator == "state file lost":
            Path(fabric_file.state_path(str(self.fabric_file))).unlink()
        elif event.operator:
            # A run with IMEX takes much longer.
            self.site_killed(self.model.random.uniform(1, 6) * (10 if self.gives_imex else 1))
        if self.domains:
            self.domains.happened(event)

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


def scenario(folder: Path, racks: int, trays: int, suite: str = "trixie", prologs: bool = False) -> Path:
    """A lab of whole racks with a running Slurm, with ``prologs`` of IMEX per job."""
    file = folder / "soak.yml"
    rows = [{"name": f"r{number:02d}", "trays": trays, "gpus": 4} for number in range(1, racks + 1)]
    slurm = not prologs or yaml.safe_load((SCENARIOS / "jobs.yml").read_text())["slurm"]
    file.write_text(json.dumps({"suite": suite, "controller": True, "slurm": slurm, "racks": rows}))
    return file


def figures(rounds: Sequence[Round], options: argparse.Namespace) -> str:
    """The summary of the finished rounds."""
    if not rounds:
        return "No round was finished."
    times = [one.seconds for one in rounds]
    events = sum(len(one.happened) for one in rounds)
    by_ansible = sum(one.source == "ansible" for one in rounds)
    with_imex = [one.seconds for one in rounds if one.imex]
    lines = [
        f"{len(rounds)} rounds, seed {options.seed}, {options.racks * options.trays} trays, {events} events, "
        f"{sum(one.changed for one in rounds)} tasks that changed something; "
        f"Ansible queried the trays in {by_ansible} rounds, the source ssh in {len(rounds) - by_ansible}.",
        "After each round the fabric file was valid, no tray was lost, and a second run of site changed nothing.",
        f"A round took {statistics.median(times):.1f} s (median), {max(times):.1f} s at most, two runs of site.",
    ]
    if with_imex:
        lines += [
            f"In {len(with_imex)} of them IMEX was configured too ({statistics.median(with_imex):.1f} s median): "
            "each tray that could had its clique's list and was connected to its peers, none ran with an old list."
        ]
    return "\n".join(lines)


def _interrupted(_signal: int, _frame: Any) -> None:
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--racks", type=int, default=2)
    parser.add_argument("--trays", type=int, default=18, help="trays in a rack")
    parser.add_argument("--seed", type=int, default=20261121)
    parser.add_argument("--phases", default="discover,slurm", help="of the playbook site")
    parser.add_argument("--ansible-every", type=int, default=8, help="in every Nth round Ansible queries the trays")
    parser.add_argument("--imex-every", type=int, default=0, help="in every Nth round IMEX is configured")
    parser.add_argument("--imex-owner", choices=["domain", "job"], default="domain")
    parser.add_argument(
        "--new-ids", action="store_true", help="racks get new cluster UUIDs and clique IDs; without IMEX"
    )
    options = parser.parse_args()
    if options.new_ids and options.imex_every:
        parser.error("--new-ids: the record of IMEX is by these IDs; leave out --imex-every")
    # A background process ignores SIGINT by default; the lab must go down on either signal.
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
        print(f"To repeat it: {' '.join([*sys.argv, '--seed', str(options.seed), '--rounds', str(number)])}")
        return 1
    finally:
        print(figures(rounds, options), flush=True)
    return 0


def _soak(options: argparse.Namespace, rounds: list[Round]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        file = scenario(folder, options.racks, options.trays, prologs=options.imex_owner == "job")
        with running_lab(folder, file, f"soak-{os.getpid()}") as racks:
            phases = tuple(options.phases.split(","))
            every, imex_every = options.ansible_every, options.imex_every
            soak = Soak(racks, folder, options.seed, phases, every, imex_every, options.new_ids, options.imex_owner)
            soak.wait_until_running()
            for number in range(1, options.rounds + 1):
                one = soak.round()
                rounds.append(one)
                source = f"{one.source}{' imex' if one.imex else ''}"
                output = f"{one.seconds:6.1f} s  {source:12}  {one.changed} changed  {'; '.join(one.happened)}"
                print(f"{number:4} {output}", flush=True)
            soak.repair_all()


if __name__ == "__main__":
    sys.exit(main())
