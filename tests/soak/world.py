# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A site to which things happen, from a seed: outages, faults of GPUs, new trays, NVLink partitions cut and joined.

What happens is told in the settings of the lab (`lab set TRAY KEY=VALUE`), so that one history serves the model, where
the settings are applied to simulated facts, and racks that run. Those have more that can break: drivers and their
tools, slurmctld, files, and a run itself. What must be true afterwards is kept here, without the code under test: which
clique every tray has last shown.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

# Cluster UUID and clique ID.
Place = tuple[str, int]
WHOLE = 32766
ZERO = "00000000-0000-0000-0000-000000000000"
# What a tray in trouble shows, and how it is put right; those that detach leave the tray's place unknown.
DETACHING: dict[str, tuple[str, ...]] = {
    "not joined yet": ("gpu0.state=in_progress",),
    "no domain": (f"uuid={ZERO}",),
    "failed to join": ("status=insufficient_resources",),
}
HARMLESS: dict[str, tuple[str, ...]] = {
    "unhealthy route": ("route_unhealthy=true",),
    "less bandwidth": ("degraded_bandwidth=true",),
    "another driver": ("driver_version=570.172.08",),
}
FAULTS = {**DETACHING, **HARMLESS}
# The same of the tools that are asked: the model has none.
MUTE: dict[str, tuple[str, ...]] = {
    "a GPU off the bus": ("gpu0.lost=true",),
    "no driver loaded": ("nvml=no_driver", "smi=no_driver"),
}
BY_OTHER_MEANS: dict[str, tuple[str, ...]] = {
    "NVML hangs": ("nvml=hang",),
    "no NVML": ("nvml=no_library",),
}
TOOLS = {**MUTE, **BY_OTHER_MEANS}
# What happens around the trays, to a run of the playbook and to what it works on.
OPERATOR = (
    "site killed on its way",
    "slurmctld killed",
    "topology edited by hand",
    "topology edited by hand and loaded",
    "state file lost",
)
# What happens to IMEX on a tray, where it is among the site's phases.
IMEX = ("IMEX killed", "IMEX stopped by hand", "IMEX list edited by hand")


@dataclass
class Tray:
    """One tray as it really is. shown: the clique that it has last shown to anybody who asked."""

    name: str
    rack: str
    cluster_uuid: str
    clique_id: int
    gpus: tuple[str, ...]
    driver: str
    on: bool = True
    trouble: str = ""
    shown: Place | None = None
    replaced: int = 0

    @property
    def attached(self) -> bool:
        return self.on and self.trouble not in DETACHING and self.trouble not in MUTE


@dataclass(frozen=True)
class Event:
    """What happened, in words, and what to do on the racks: settings and power by tray, or one of OPERATOR.

    tray: that to which one of IMEX happens.
    """

    what: str
    settings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    off: tuple[str, ...] = ()
    on: tuple[str, ...] = ()
    operator: str = ""
    tray: str = ""


class World:
    """The racks of one seed. real: they run, so that their tools and their operator may fail too. imex: so may IMEX."""

    def __init__(self, trays: Iterable[Tray], seed: int, real: bool = False, imex: bool = False) -> None:
        self.trays = {tray.name: tray for tray in trays}
        self.random = random.Random(seed)
        self.faults = {**FAULTS, **TOOLS} if real else FAULTS
        self.more = [*([self._operate] if real else []), *([self._meddle] if imex else [])]

    def happen(self) -> Event:
        """One thing more; repairs come as often as faults, so that a site neither dies out nor stays whole."""
        kinds = [self._fault, self._repair, self._repair, self._power_off, self._power_on, self._cut_or_join]
        event = self.random.choice([*kinds, self._replace, *self.more])()
        return event or self.happen()

    def heal(self) -> list[Event]:
        """Everything that is left to put right."""
        events = [self._put_right(tray) for tray in self.trays.values() if tray.trouble]
        return events + [self._switch_on(tray) for tray in self.trays.values() if not tray.on]

    def asked(self) -> None:
        """All trays were asked: those that are attached have shown their clique."""
        for tray in self.trays.values():
            if tray.attached:
                tray.shown = (tray.cluster_uuid, tray.clique_id)

    def _some(self, fits: Iterable[Tray]) -> Tray | None:
        found = list(fits)
        return self.random.choice(found) if found else None

    def _fault(self) -> Event | None:
        tray = self._some(tray for tray in self.trays.values() if tray.on and not tray.trouble)
        if tray is None:
            return None
        tray.trouble = self.random.choice(sorted(self.faults))
        return Event(f"{tray.name}: {tray.trouble}", {tray.name: self.faults[tray.trouble]})

    def _repair(self) -> Event | None:
        tray = self._some(tray for tray in self.trays.values() if tray.on and tray.trouble)
        return self._put_right(tray) if tray else None

    def _put_right(self, tray: Tray) -> Event:
        tray.trouble = ""
        return Event(f"{tray.name}: put right", {tray.name: self.settings(tray)})

    def settings(self, tray: Tray) -> tuple[str, ...]:
        """What a tray without trouble shows."""
        health = ("route_unhealthy=false", "degraded_bandwidth=false", f"driver_version={tray.driver}")
        place = ("state=completed", "status=success", f"uuid={tray.cluster_uuid}", f"clique={tray.clique_id}")
        tools = ("gpu0.lost=false", "nvml=ok", "smi=ok")
        return (*place, *health, *tools, *(f"gpu{number}.gpu_uuid={uuid}" for number, uuid in enumerate(tray.gpus)))

    def _power_off(self) -> Event | None:
        # Half of the trays are up at all times: an outage of all sources is another test's subject.
        up = [tray for tray in self.trays.values() if tray.on]
        tray = self._some(up) if len(up) * 2 > len(self.trays) else None
        if tray is None:
            return None
        tray.on = False
        return Event(f"{tray.name}: power off", off=(tray.name,))

    def _power_on(self) -> Event | None:
        tray = self._some(tray for tray in self.trays.values() if not tray.on)
        return self._switch_on(tray) if tray else None

    def _switch_on(self, tray: Tray) -> Event:
        """It comes back without its trouble, and as a tray of whatever its rack's partitions have become."""
        tray.on, tray.trouble = True, ""
        return Event(f"{tray.name}: power on", {tray.name: self.settings(tray)}, on=(tray.name,))

    def _replace(self) -> Event | None:
        tray = self._some(tray for tray in self.trays.values() if tray.on and not tray.trouble)
        if tray is None:
            return None
        tray.replaced += 1
        tray.gpus = tuple(f"GPU-{tray.replaced:08x}-{uuid.partition('-')[2].partition('-')[2]}" for uuid in tray.gpus)
        return Event(f"{tray.name}: another tray of the same name", {tray.name: self.settings(tray)})

    def _operate(self) -> Event:
        what = self.random.choice(OPERATOR)
        return Event(what, operator=what)

    def _meddle(self) -> Event | None:
        tray = self._some(tray for tray in self.trays.values() if tray.on)
        what = self.random.choice(IMEX)
        return Event(f"{tray.name}: {what}", operator=what, tray=tray.name) if tray else None

    def _cut_or_join(self) -> Event | None:
        """The fabric's team cuts a rack's partition in two, or joins it; trays that are off follow when they boot."""
        rack = self.random.choice(sorted({tray.rack for tray in self.trays.values()}))
        members = [tray for tray in self.trays.values() if tray.rack == rack]
        whole = all(tray.clique_id == WHOLE for tray in members)
        for number, tray in enumerate(members):
            tray.clique_id = 1 + number * 2 // len(members) if whole else WHOLE
        told = {tray.name: (f"clique={tray.clique_id}",) for tray in members if tray.on}
        return Event(f"{rack}: {'cut in two' if whole else 'joined'}", told)
