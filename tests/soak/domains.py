# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""IMEX of racks that run: what their trays must have and do after whatever happened, and whether they do.

The account is the soak's own. It knows the world and the addresses of the lab, neither the fabric file nor the code
under test: a clique is the trays that have last shown it, its list their addresses in the order of their names.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.rackscale.nvlink.tests.soak.world import BY_OTHER_MEANS, Event, Place, Tray, World

NO_DRIVER, OTHER_DRIVER = "no driver loaded", "another driver"
# With these nothing says the driver's version, for the lab has no kernel that would: IMEX of the tray is left alone.
BLIND = (NO_DRIVER, *BY_OTHER_MEANS)
BY_HAND = {
    "IMEX killed": "pkill -KILL -x nvidia-imex || true",
    "IMEX stopped by hand": "systemctl stop nvidia-imex || true",
    "IMEX list edited by hand": "mkdir -p /etc/nvidia-imex; echo 198.51.100.250 >> /etc/nvidia-imex/nodes_config.cfg",
}
SAID = "systemctl is-active nvidia-imex; cat /etc/nvidia-imex/nodes_config.cfg 2>/dev/null || true"
# A daemon calls a peer that it has lost every 8 seconds at least.
SECONDS = 20.0
# How a clique is left by a run, in the words of the file that keeps it.
WAITING, FAILED, ABSENT = "waiting", "failed", "absent"


@dataclass
class Member:
    """IMEX of one tray: the trays of the list on its disk, its driver, and whether its daemon runs.

    owes: the tray's clique has another list by now. runs: None where the tray has booted and its peers decide.
    """

    trays: tuple[str, ...] = ()
    driver: str = ""
    edited: bool = False
    owes: bool = False
    runs: bool | None = False


class Domains:
    """The account. ask: what a script prints on a tray."""

    def __init__(self, world: World, addresses: Mapping[str, str], ask: Callable[[str, str], str]) -> None:
        self.world, self.addresses, self.ask = world, addresses, ask
        self.members = {name: Member() for name in world.trays}
        # Since the last look.
        self.booted: set[str] = set()
        self.killed: set[str] = set()

    def happened(self, event: Event) -> None:
        for name in event.off:
            self._ended(name)
        for name in event.on:
            member = self.members[name]
            member.runs = None if self._may_start(name) and not member.owes else False
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
        member, tray = self.members[name], self.world.trays[name]
        return not member.edited and tray.trouble != NO_DRIVER and member.driver == _driver(tray)

    def rested(self) -> None:
        """Some seconds went by: what was killed has been started anew, and what has booted where its peers agree."""
        for name in self.killed:
            self.members[name].runs = self.members[name].runs and self._may_start(name)
        for name in self.booted:
            member = self.members[name]
            agree = [peer for peer in member.trays if self.world.trays[peer].on and self._same(name, peer)]
            if member.runs is None and self._may_start(name) and len(agree) * 2 > len(member.trays):
                member.runs = True
        self.booted.clear()
        self.killed.clear()

    def _same(self, name: str, peer: str) -> bool:
        return self.members[peer].trays == self.members[name].trays

    def given(self, waiting: Iterable[Place]) -> dict[Place, str]:
        """IMEX was given to its owner, but in the cliques that wait: those that are left, and why."""
        left = dict.fromkeys(waiting, WAITING)
        for place, trays in self._cliques().items():
            if place not in left and (why := self._given(trays)):
                left[place] = why
        return left

    def _given(self, trays: list[Tray]) -> str:
        """One clique: whether all of its trays could be given their one list, else how it is left."""
        names = tuple(tray.name for tray in trays)
        sound = [tray for tray in trays if tray.on and tray.trouble not in BLIND]
        blind = [tray for tray in trays if tray.on and tray.trouble in BLIND]
        if any(self._changes(tray, names) for tray in sound) and any(self._runs(tray) for tray in blind):
            return FAILED  # Held: what cannot be stopped would part from all the others.
        for tray in trays:
            member = self.members[tray.name]
            if tray in sound:
                self.members[tray.name] = Member(names, _driver(tray), runs=True)
            else:
                member.owes = member.trays != names
        drivers = {member.driver for tray in trays if (member := self.members[tray.name]).runs}
        return FAILED if blind or len(drivers) > 1 else ABSENT if len(sound) < len(trays) else ""

    def _changes(self, tray: Tray, names: tuple[str, ...]) -> bool:
        """Whether a daemon that runs must restart together with the rest of its clique."""
        member = self.members[tray.name]
        other = member.edited or (member.trays, member.driver) != (names, _driver(tray))
        return member.runs is not False and other

    def _runs(self, tray: Tray) -> bool:
        runs = self.members[tray.name].runs
        return self._said(tray.name)[0] if runs is None else runs

    def _cliques(self) -> dict[Place, list[Tray]]:
        """A clique is the trays that have last shown it, in the order of their names."""
        found: dict[Place, list[Tray]] = {}
        for _name, tray in sorted(self.world.trays.items()):
            if tray.shown:
                found.setdefault(tray.shown, []).append(tray)
        return found

    def check(self) -> None:
        """Every tray has the list that it was given, and runs with it or not."""
        for name, tray in self.world.trays.items():
            if tray.on:
                member, (runs, lines) = self.members[name], self._said(name)
                assert member.edited or lines == [self.addresses[peer] for peer in member.trays], (name, member, lines)
                assert member.runs in (None, runs), f"{name}: {member}, and its daemon {'runs' if runs else 'is off'}"

    def _said(self, name: str) -> tuple[bool, list[str]]:
        """Whether the tray's daemon runs, and the lines of its list."""
        active, *lines = self.ask(name, SAID).split("\n")
        return active == "active", [line for line in lines if line]

    def check_peers(self, left: Mapping[Place, str]) -> None:
        """Where a list was given, all that run with it are ready and see each other."""
        for place, trays in self._cliques().items():
            names = tuple(tray.name for tray in trays)
            members = {name: self.members[name] for name in names}
            up = {name: one for name, one in members.items() if one.runs and one.trays == names and not one.edited}
            if up and left.get(place) != WAITING:
                deadline = time.monotonic() + SECONDS
                while parted := self._parted(names, up):
                    assert time.monotonic() < deadline, f"IMEX of {place}: {'; '.join(parted)}"
                    time.sleep(1)

    def _parted(self, names: tuple[str, ...], up: Mapping[str, Member]) -> list[str]:
        """Who is not ready, and who of one driver does not see whom, each by its own words to one of them."""
        nodes: dict[str, Any] = json.loads(self.ask(next(iter(up)), "nvidia-imex-ctl -N -j"))["nodes"]
        rows = {name: nodes[str(number)] for number, name in enumerate(names)}
        parted = [f"{name} is {rows[name]['status']}" for name in up if rows[name]["status"] != "READY"]
        for name in up:
            for number, peer in enumerate(names):
                seen = rows[name]["connections"][str(number)]["status"]
                if peer in up and up[peer].driver == up[name].driver and seen != "CONNECTED":
                    parted.append(f"{name} to {peer} {seen}")
        return parted


def _driver(tray: Tray) -> str:
    return OTHER_DRIVER if tray.trouble == OTHER_DRIVER else tray.driver
