# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random events from a seed: outages, GPU faults, replaced trays, and NVLink partitions with other trays or other IDs.

An event is written as settings of the lab (`lab set TRAY KEY=VALUE`), or happens to slurmctld, to a file or to a run.
The expected state is kept here, without the code under test: the clique that every tray reported last.
"""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

# Cluster UUID and clique ID.
Place = tuple[str, int]
WHOLE = 32766
# The partition of the first tray of a rack that is split per tray.
OF_TRAY = 1001
ZERO = "00000000-0000-0000-0000-000000000000"
# Fault -> the settings that cause it. With one that detaches, the tray reports no clique.
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
# Faults of the tools that report the facts.
NO_FACTS: dict[str, tuple[str, ...]] = {
    "a GPU off the bus": ("gpu0.lost=true",),
    "no driver loaded": ("nvml=no_driver", "smi=no_driver"),
}
NVML_FAULTS: dict[str, tuple[str, ...]] = {
    "NVML hangs": ("nvml=hang",),
    "no NVML": ("nvml=no_library",),
}
FAULTS = {**DETACHING, **HARMLESS, **NO_FACTS, **NVML_FAULTS}
# Events outside the trays: to a run of the playbook and to the files and daemons that it manages.
OPERATOR = (
    "site killed on its way",
    "slurmctld killed",
    "topology edited by hand",
    "topology edited by hand and loaded",
    "state file lost",
)
# Events of IMEX on a tray, where IMEX is one of the site's phases.
IMEX = ("IMEX killed", "IMEX stopped by hand", "IMEX list edited by hand")


@dataclass
class Tray:
    """The true state of one tray. shown: the clique that it reported last."""

    name: str
    rack: str
    cluster_uuid: str
    clique_id: int
    gpus: tuple[str, ...]
    driver: str
    on: bool = True
    fault: str = ""
    shown: Place | None = None
    replaced: int = 0

    @property
    def attached(self) -> bool:
        return self.on and self.fault not in DETACHING and self.fault not in NO_FACTS


@dataclass(frozen=True)
class Event:
    """A description and what to do on the racks: settings and power by tray, or one of OPERATOR.

    tray: the tray of an event of IMEX. keeps: trays whose clique keeps its name, although its IDs changed.
    """

    what: str
    settings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    off: tuple[str, ...] = ()
    on: tuple[str, ...] = ()
    operator: str = ""
    tray: str = ""
    keeps: tuple[str, ...] = ()


class RackModel:
    """The racks of one seed.

    imex: with events of IMEX. new_ids: racks get other cluster UUIDs and clique IDs, and are split per tray; not with
    IMEX, whose record (domains.py) is by these IDs.
    """

    def __init__(self, trays: Iterable[Tray], seed: int, imex: bool = False, new_ids: bool = False) -> None:
        self.trays = {tray.name: tray for tray in trays}
        self.random = random.Random(seed)
        # Racks with an event since all trays were queried, and those with new IDs, which have no other event then.
        self._touched: set[str] = set()
        self._with_new_ids: set[str] = set()
        self._new_id = 2000
        self.ids = [self._split_per_tray, self._rebuild, self._renumber] if new_ids else []
        self.more = [self._operate, *([self._disturb_imex] if imex else [])]

    def inject(self) -> Event:
        """Inject one event. Repairs are as likely as faults, so a site is rarely all broken or all healthy."""
        kinds = [self._fault, self._repair, self._repair, self._power_off, self._power_on, self._split_or_join]
        event = self.random.choice([*kinds, self._replace, *self.ids, *self.more])()
        if event is None:
            return self.inject()
        self._touched |= {self.trays[name].rack for name in (*event.settings, *event.off)}
        return event

    def repair_all(self) -> list[Event]:
        """Repair every tray and switch on those without power."""
        events = [self._repair_tray(tray) for tray in self.trays.values() if tray.fault]
        return events + [self._switch_on(tray) for tray in self.trays.values() if not tray.on]

    def observed(self) -> None:
        """Record that all trays were queried: the attached ones reported their clique."""
        for tray in self.trays.values():
            if tray.attached:
                tray.shown = (tray.cluster_uuid, tray.clique_id)
        self._touched, self._with_new_ids = set(), set()

    def _some(self, fits: Iterable[Tray]) -> Tray | None:
        found = [tray for tray in fits if tray.rack not in self._with_new_ids]
        return self.random.choice(found) if found else None

    def _fault(self) -> Event | None:
        tray = self._some(tray for tray in self.trays.values() if tray.on and not tray.fault)
        if tray is None:
            return None
        tray.fault = self.random.choice(sorted(FAULTS))
        return Event(f"{tray.name}: {tray.fault}", {tray.name: FAULTS[tray.fault]})

    def _repair(self) -> Event | None:
        tray = self._some(tray for tray in self.trays.values() if tray.on and tray.fault)
        return self._repair_tray(tray) if tray else None

    def _repair_tray(self, tray: Tray) -> Event:
        tray.fault = ""
        return Event(f"{tray.name}: repaired", {tray.name: self.settings(tray)})

    def settings(self, tray: Tray) -> tuple[str, ...]:
        """The settings of a tray without a fault."""
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
        """It boots without its fault, in the partition that its rack has by now."""
        tray.on, tray.fault = True, ""
        return Event(f"{tray.name}: power on", {tray.name: self.settings(tray)}, on=(tray.name,))

    def _replace(self) -> Event | None:
        tray = self._some(tray for tray in self.trays.values() if tray.on and not tray.fault)
        if tray is None:
            return None
        tray.replaced += 1
        tray.gpus = tuple(f"GPU-{tray.replaced:08x}-{uuid.partition('-')[2].partition('-')[2]}" for uuid in tray.gpus)
        return Event(f"{tray.name}: replaced by another tray of the same name", {tray.name: self.settings(tray)})

    def _operate(self) -> Event:
        what = self.random.choice(OPERATOR)
        return Event(what, operator=what)

    def _disturb_imex(self) -> Event | None:
        tray = self._some(tray for tray in self.trays.values() if tray.on)
        what = self.random.choice(IMEX)
        return Event(f"{tray.name}: {what}", operator=what, tray=tray.name) if tray else None

    def _split_or_join(self) -> Event | None:
        """Split a rack's partition in two, or join it again; trays without power follow when they boot."""
        rack, members = self._rack()
        whole = all(tray.clique_id == WHOLE for tray in members)
        for number, tray in enumerate(members):
            tray.clique_id = 1 + number * 2 // len(members) if whole else WHOLE
        return Event(f"{rack}: {'split in two' if whole else 'joined'}", _partitions(members))

    def _split_per_tray(self) -> Event:
        """Put each tray of a rack into a partition of its own."""
        rack, members = self._rack()
        for number, tray in enumerate(members):
            tray.clique_id = OF_TRAY + number
        return Event(f"{rack}: split per tray", _partitions(members))

    def _rack(self) -> tuple[str, list[Tray]]:
        racks = sorted({tray.rack for tray in self.trays.values()} - self._with_new_ids)
        rack = self.random.choice(racks)
        return rack, [tray for tray in self.trays.values() if tray.rack == rack]

    def _quiet_rack(self) -> tuple[str, list[Tray]] | None:
        """A rack whose trays are all attached and without another event; not each rack at once."""
        rack, members = self._rack()
        quiet = all(tray.attached and tray.shown for tray in members) and rack not in self._touched
        return None if self._with_new_ids or not quiet else (rack, members)

    def _rebuild(self) -> Event | None:
        """Build the fabric of a rack again: the fabric manager generates another cluster UUID."""
        found = self._quiet_rack()
        if found is None:
            return None
        rack, members = found
        self._with_new_ids.add(rack)
        cluster_uuid = str(uuid.UUID(int=self.random.getrandbits(128), version=4))
        for tray in members:
            tray.cluster_uuid = cluster_uuid
        settings = {tray.name: (f"uuid={cluster_uuid}",) for tray in members}
        return Event(f"{rack}: new cluster UUID", settings, keeps=tuple(settings))

    def _renumber(self) -> Event | None:
        """Create the partitions of a rack again, under other IDs; those of one tray are other partitions then."""
        found = self._quiet_rack()
        if found is None or {tray.clique_id for tray in found[1]} & {WHOLE, OF_TRAY}:
            return None
        rack, members = found
        self._with_new_ids.add(rack)
        # An ID that a clique of the fabric file ever had means that clique.
        self._new_id += 100
        for tray in members:
            tray.clique_id += self._new_id
        sizes = Counter(tray.clique_id for tray in members)
        keeps = tuple(tray.name for tray in members if sizes[tray.clique_id] > 1)
        return Event(f"{rack}: other clique IDs", _partitions(members), keeps=keeps)


def _partitions(trays: Iterable[Tray]) -> dict[str, tuple[str, ...]]:
    """The settings by which the trays with power report their partitions."""
    return {tray.name: (f"clique={tray.clique_id}",) for tray in trays if tray.on}
