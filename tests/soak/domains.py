# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The expected state of IMEX on racks that run, and the check that the trays have it.

The expectation is computed from the model and the lab's addresses alone, without the fabric file or the code under
test: a clique is the trays that reported it last, its list their addresses in the order of their names.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ansible_collections.rackscale.nvlink.tests.soak.racks import NVML_FAULTS, Event, Place, RackModel, Tray

NO_DRIVER, OTHER_DRIVER = "no driver loaded", "another driver"
# With these faults the driver's version is unknown, since the lab has no kernel driver, and IMEX is left as it is.
VERSION_UNKNOWN = (NO_DRIVER, *NVML_FAULTS)
BY_HAND = {
    "IMEX killed": "pkill -KILL -x nvidia-imex || true",
    "IMEX stopped by hand": "systemctl stop nvidia-imex || true",
    "IMEX list edited by hand": "mkdir -p /etc/nvidia-imex; echo 198.51.100.250 >> /etc/nvidia-imex/nodes_config.cfg",
}
# A daemon reconnects to a lost peer at least every 8 seconds.
SECONDS = 20.0
# The states of a clique in the progress file.
WAITING, FAILED, ABSENT = "pending", "failed", "skipped"


@dataclass
class Member:
    """IMEX of one tray: the trays of the list on its disk, its driver, and whether its daemon runs.

    outdated: the tray's clique has another list by now. runs: None after a boot, where its peers decide.
    """

    trays: tuple[str, ...] = ()
    driver: str = ""
    edited: bool = False
    outdated: bool = False
    runs: bool | None = False


class Domains:
    """The expected state of all trays. run: the output of a script on a tray."""

    RUNS = True
    QUERY = "systemctl is-active nvidia-imex; cat /etc/nvidia-imex/nodes_config.cfg 2>/dev/null || true"

    def __init__(self, model: RackModel, addresses: Mapping[str, str], run: Callable[[str, str], str]) -> None:
        self.model, self.addresses, self.run = model, addresses, run
        self.members = {name: Member() for name in model.trays}
        # Since the last check.
        self.booted: set[str] = set()
        self.killed: set[str] = set()

    def happened(self, event: Event) -> None:
        for name in event.off:
            self._ended(name)
        for name in event.on:
            member = self.members[name]
            member.runs = None if self._may_start(name) and not member.outdated else False
            self.booted.add(name)
        if event.operator == "IMEX killed":
            self.killed.add(event.tray)
        elif event.operator == "IMEX stopped by hand":
            self._ended(event.tray)
        elif event.operator == "IMEX list edited by hand":
            self.members[event.tray].edited = True

    def _ended(self, name: str) -> None:
        self.members[name].runs = False
        self.booted.discard(name)
        self.killed.discard(name)

    def _may_start(self, name: str) -> bool:
        """Whether the daemon would start with what is on the tray's disk and with its driver."""
        member, tray = self.members[name], self.model.trays[name]
        return not member.edited and tray.fault != NO_DRIVER and member.driver == _driver(tray)

    def waited(self) -> None:
        """Some seconds passed: killed daemons have restarted, and booted ones have started where their peers agree."""
        for name in self.killed:
            self.members[name].runs = self.members[name].runs and self._may_start(name)
        for name in self.booted:
            member = self.members[name]
            agree = [peer for peer in member.trays if self.model.trays[peer].on and self._same(name, peer)]
            if member.runs is None and self._may_start(name) and len(agree) * 2 > len(member.trays):
                member.runs = True
        self.booted.clear()
        self.killed.clear()

    def _same(self, name: str, peer: str) -> bool:
        return self.members[peer].trays == self.members[name].trays

    def configured(self, waiting: Iterable[Place]) -> dict[Place, str]:
        """The cliques that a run with IMEX leaves, with their state. waiting: those that it did not reach."""
        left = dict.fromkeys(waiting, WAITING)
        for place, trays in self._cliques().items():
            if place not in left and (why := self._expected_left(trays)):
                left[place] = why
        return left

    def _expected_left(self, trays: list[Tray]) -> str:
        """The state in which the run leaves one clique; empty where all of its trays could get their list."""
        names = tuple(tray.name for tray in trays)
        sound = [tray for tray in trays if tray.on and tray.fault not in VERSION_UNKNOWN]
        unknown = [tray for tray in trays if tray.on and tray.fault in VERSION_UNKNOWN]
        if any(self._changes(tray, names) for tray in sound) and any(self._runs(tray) for tray in unknown):
            return FAILED  # Blocked: a daemon that cannot be stopped would be disconnected from all the others.
        for tray in trays:
            member = self.members[tray.name]
            if tray in sound:
                self.members[tray.name] = Member(names, _driver(tray), runs=self.RUNS)
            else:
                member.outdated = member.trays != names
        drivers = {member.driver for tray in trays if (member := self.members[tray.name]).runs}
        return FAILED if unknown or len(drivers) > 1 else ABSENT if len(sound) < len(trays) else ""

    def _changes(self, tray: Tray, names: tuple[str, ...]) -> bool:
        """Whether a running daemon must restart together with the rest of its clique."""
        member = self.members[tray.name]
        other = member.edited or (member.trays, member.driver) != (names, _driver(tray))
        return member.runs is not False and other

    def _runs(self, tray: Tray) -> bool:
        runs = self.members[tray.name].runs
        return self._daemon_and_list(tray.name)[0] if runs is None else runs

    def _cliques(self) -> dict[Place, list[Tray]]:
        """Clique -> the trays that reported it last, in the order of their names."""
        found: dict[Place, list[Tray]] = {}
        for _name, tray in sorted(self.model.trays.items()):
            if tray.shown:
                found.setdefault(tray.shown, []).append(tray)
        return found

    def check(self) -> None:
        """Check the list and the daemon of every tray."""
        for name, tray in self.model.trays.items():
            if tray.on:
                member, (runs, lines) = self.members[name], self._daemon_and_list(name)
                assert member.edited or lines == [self.addresses[peer] for peer in member.trays], (name, member, lines)
                assert member.runs in (None, runs), f"{name}: {member}, and its daemon {'runs' if runs else 'is off'}"

    def _daemon_and_list(self, name: str) -> tuple[bool, list[str]]:
        """Whether the tray's daemon runs, and the lines of its list."""
        active, *lines = self.run(name, self.QUERY).split("\n")
        return active == "active", [line for line in lines if line]

    def check_peers(self, left: Mapping[Place, str]) -> None:
        """Check that daemons with the same list are ready and connected to each other."""
        for place, trays in self._cliques().items():
            names = tuple(tray.name for tray in trays)
            members = {name: self.members[name] for name in names}
            up = {name: one for name, one in members.items() if one.runs and one.trays == names and not one.edited}
            if up and left.get(place) != WAITING:
                deadline = time.monotonic() + SECONDS
                while disconnected := self._disconnected(names, up):
                    assert time.monotonic() < deadline, f"IMEX of {place}: {'; '.join(disconnected)}"
                    time.sleep(1)

    def _disconnected(self, names: tuple[str, ...], up: Mapping[str, Member]) -> list[str]:
        """Daemons that are not ready and pairs of one driver that are not connected, by the table of one of them."""
        nodes: dict[str, Any] = json.loads(self.run(next(iter(up)), "nvidia-imex-ctl -N -j"))["nodes"]
        rows = {name: nodes[str(number)] for number, name in enumerate(names)}
        disconnected = [f"{name} is {rows[name]['status']}" for name in up if rows[name]["status"] != "READY"]
        for name in up:
            for number, peer in enumerate(names):
                connection = rows[name]["connections"][str(number)]["status"]
                if peer in up and up[peer].driver == up[name].driver and connection != "CONNECTED":
                    disconnected.append(f"{name} to {peer} {connection}")
        return disconnected


class JobDomains(Domains):
    """The same with IMEX per job: no daemon runs, and the list of a tray is that of its clique's members."""

    RUNS = False
    QUERY = (
        "systemctl is-active nvidia-imex; grep -o '\"[0-9.]*\\.[0-9]*\"$' /etc/nvidia-imex/nvlink-job.json 2>/dev/null"
        " | tr -d '\"'"
    )

    def happened(self, event: Event) -> None:
        """No event of a tray changes its members."""

    def check_peers(self, left: Mapping[Place, str]) -> None:
        """Check that a job over the trays of a clique that have its list and one driver gets a domain."""
        for place, trays in self._cliques().items():
            names = tuple(tray.name for tray in trays)
            sound = [tray for tray in trays if tray.on and tray.fault not in VERSION_UNKNOWN]
            up = [tray.name for tray in sound if self.members[tray.name] == Member(names, _driver(sound[0]))]
            if len(up) > 1 and left.get(place) != WAITING:
                with ThreadPoolExecutor(len(up)) as pool:
                    for entry in ("prolog", "epilog"):
                        states = list(pool.map(self.run, up, [_job_script(name, up, entry) for name in up]))
                        assert states == ["READY\n" if entry == "prolog" else ""] * len(up), (place, up, entry, states)


def _job_script(name: str, trays: list[str], entry: str) -> str:
    """What slurmd runs on a tray for a job that has these trays alone, and the state of the daemon after its prolog."""
    job = f"SLURM_JOB_ID=7 SLURM_JOB_NODELIST={','.join(trays)} SLURM_JOB_NUM_NODES={len(trays)}"
    called = f"env {job} SLURM_JOB_OVERSUBSCRIBE=NO SLURMD_NODENAME={name} /usr/local/libexec/nvlink-imex-job {entry}"
    return f"{called} && nvidia-imex-ctl -q" if entry == "prolog" else called


def _driver(tray: Tray) -> str:
    return OTHER_DRIVER if tray.fault == OTHER_DRIVER else tray.driver
