# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Scenario files: the hosts of a lab and the first state of their GPUs. Pure: text in, a Scenario out.

The shape, every key optional::

    suite: forky             # or trixie
    controller: true         # a host `ctl`
    backup: false            # true: a host `ctl2` too, for a second slurmctld, and a folder that both have
    slurm: true              # or packages (hosts without it, that can install it), or a map: topology_plugin,
                             # prolog_flags, select_type, accounting (true: slurmdbd and MariaDB on ctl), conf (lines
                             # for slurm.conf), files (topology.conf: TEXT)
    kubernetes: false        # true: a control plane with a Node for each tray; or its version ("1.37.2")
    racks:
      - name: r01
        trays: 2
        gpus: 4
        switches: 0          # NVLink switches of the rack (r01sw1, ...), the first with the controller; see switch.py
        cliques:             # default: one clique of every tray, id 32766
          - {id: 1, trays: [1]}
          - {id: 2, trays: [2]}
        settings: {name: NVIDIA GB300}  # of every tray: the settings of `lab set`, from the start
    trays:                   # those of single trays, on top
      r01t02: {health: unhealthy}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .addresses import BACKUP, BACKUP_ADDRESS, CONTROLLER, CONTROLLER_ADDRESS, FIRST_TRAY, NETWORK
from .errors import LabError

SUITES = ("forky", "trixie")
DEFAULT_SUITE = SUITES[0]
DEFAULT_CLIQUE = 32766
MAX_TRAYS = 254 - FIRST_TRAY + 1


@dataclass(frozen=True)
class Slurm:
    """How the lab's Slurm starts; an empty text leaves a setting out of slurm.conf."""

    topology_plugin: str = ""
    prolog_flags: str = ""
    select_type: str = "select/cons_tres"
    accounting: bool = False
    conf: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)  # name in /etc/slurm of the controller -> text


@dataclass(frozen=True)
class Tray:
    name: str
    address: str
    rack: int  # from 1
    number: int  # in the rack, from 1
    gpus: int
    clique_id: int
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Scenario:
    suite: str
    controller: bool
    slurm: Slurm | None
    trays: tuple[Tray, ...]
    empty: bool = False  # hosts without Slurm, with a repository that has it
    kubernetes: str | None = None  # the version of a control plane in the lab's network; "" is the lab's usual one
    backup: bool = False  # a host for a second slurmctld
    switches: dict[str, list[str]] = field(default_factory=dict)  # rack -> names of its NVLink switches

    @property
    def controllers(self) -> dict[str, str]:
        """Host name -> address of the hosts of slurmctld."""
        hosts = {CONTROLLER: CONTROLLER_ADDRESS} if self.controller else {}
        return {**hosts, BACKUP: BACKUP_ADDRESS} if self.backup else hosts

    @property
    def hosts(self) -> dict[str, str]:
        """Host name -> address, the controllers first."""
        hosts = self.controllers
        hosts.update((tray.name, tray.address) for tray in self.trays)
        return hosts

    def tray(self, name: str) -> Tray:
        for tray in self.trays:
            if tray.name == name:
                return tray
        raise LabError(f"there is no tray {name!r} in this lab: it has {self.trays[0].name} to {self.trays[-1].name}.")


def load(path: str | Path) -> Scenario:
    """Read a scenario file; LabError when it is not one."""
    import yaml  # most commands of a lab read no file of this kind

    try:
        data = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise LabError(f"{path}: cannot be read ({' '.join(str(error).split())}).") from error
    return parse(data, str(path))


def simple(racks: int, trays: int, suite: str) -> Scenario:
    """The scenario of `lab up --racks R --trays T`: R racks of T trays, one clique each."""
    data = {"suite": suite, "racks": [{"trays": trays} for _rack in range(racks)]}
    return parse(data, "command line")


def renamed(scenario: Scenario, names: dict[str, str]) -> Scenario:
    """The scenario with other names of its trays."""
    return replace(scenario, trays=tuple(replace(tray, name=names[tray.name]) for tray in scenario.trays))


def parse(data: Any, source: str = "scenario") -> Scenario:
    """Turn the parsed YAML into a Scenario; LabError where it is none."""
    try:
        return _scenario(**(data or {}))
    except (TypeError, ValueError, AttributeError, LookupError) as error:
        raise LabError(f"{source}: no scenario of nvlab/scenario.py ({type(error).__name__}: {error}).") from error


def _scenario(
    suite: str = DEFAULT_SUITE,
    controller: bool = True,
    backup: bool = False,
    slurm: bool | str | Mapping[str, Any] = True,
    kubernetes: bool | str = False,
    racks: Iterable[Mapping[str, Any]] = ({},),
    trays: Mapping[str, Any] | None = None,
) -> Scenario:
    if suite not in SUITES:
        raise ValueError(f"suite is {suite!r}, use one of {', '.join(SUITES)}")
    made: dict[str, Tray] = {}
    switched: dict[str, list[str]] = {}
    for number, row in enumerate(racks, 1):
        rack = dict(row)
        name = rack.setdefault("name", f"r{number:02d}")
        if count := int(rack.pop("switches", 0)):
            switched[name] = [f"{name}sw{one}" for one in range(1, count + 1)]
        made.update((tray.name, tray) for tray in _rack(number, len(made), **rack))
    for name, settings in (trays or {}).items():
        made[name] = replace(made[name], settings={**made[name].settings, **_words(settings)})
    if len(made) > MAX_TRAYS:
        raise ValueError(f"the lab's network has room for {MAX_TRAYS} trays")
    empty = slurm == "packages"
    given = {} if isinstance(slurm, (bool, str)) else slurm
    own = Slurm(**{**given, "conf": tuple(given.get("conf", ()))}) if slurm and not empty else None
    version = "" if kubernetes is True else kubernetes or None
    return Scenario(suite, controller, own, tuple(made.values()), empty, version, backup, switched)


def _rack(
    number: int,
    before: int,
    name: str,
    trays: int = 2,
    gpus: int = 4,
    cliques: Iterable[Mapping[str, Any]] = ({"id": DEFAULT_CLIQUE},),
    settings: Mapping[str, Any] | None = None,
) -> list[Tray]:
    clique_of = {member: row["id"] for row in cliques for member in row.get("trays") or range(1, trays + 1)}
    words = _words(settings or {})
    return [
        Tray(f"{name}t{i:02d}", f"{NETWORK}.{FIRST_TRAY + before + i - 1}", number, i, gpus, clique_of[i], words)
        for i in range(1, trays + 1)
    ]


def _words(settings: Mapping[str, Any]) -> dict[str, str]:
    """The settings of a tray, as they would be written on the command line."""
    return {str(key): str(value).lower() if isinstance(value, bool) else str(value) for key, value in settings.items()}
