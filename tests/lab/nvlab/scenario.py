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
        cliques:             # default: one clique of every tray, id 32766
          - {id: 1, trays: [1]}
          - {id: 2, trays: [2]}
        settings: {name: NVIDIA GB300}  # of every tray: the settings of `lab set`, from the start
    trays:                   # those of single trays, on top
      r01t02: {health: unhealthy}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .addresses import BACKUP, BACKUP_ADDRESS, CONTROLLER, CONTROLLER_ADDRESS, FIRST_TRAY, NETWORK
from .errors import LabError
from .settings import check_setting

SUITES = ("forky", "trixie")
DEFAULT_SUITE = SUITES[0]
DEFAULT_CLIQUE = 32766
MAX_TRAYS = 254 - FIRST_TRAY + 1
MAX_GPUS = 64
SLURM_FILE = re.compile(r"[a-z_]+\.(conf|yaml)")
WORDS = {str: "text", bool: "true or false", int: "a number", list: "a list", dict: "a map"}
# The maps of a scenario file with their defaults; the keys in ANY have values of more than one type.
TOP = {
    "suite": DEFAULT_SUITE,
    "controller": True,
    "backup": False,
    "slurm": True,
    "kubernetes": False,
    "racks": [{}],
    "trays": {},
}
RACK = {"name": "", "trays": 2, "gpus": 4, "cliques": [{"id": DEFAULT_CLIQUE}], "settings": {}}
CLIQUE: dict[str, Any] = {"id": -1, "trays": []}
ANY = ("slurm", "kubernetes")
RACK_NAME = re.compile(r"[a-z][a-z0-9]{0,7}")  # nspawn's vb-NAME must fit a network interface's 15 characters


@dataclass(frozen=True)
class Slurm:
    """How the lab's Slurm starts; an empty text leaves a setting out of slurm.conf."""

    topology_plugin: str = ""
    prolog_flags: str = ""
    select_type: str = "select/cons_tres"
    accounting: bool = False
    conf: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)  # name in /etc/slurm of the controller -> text


SLURM: dict[str, Any] = {
    "topology_plugin": "",
    "prolog_flags": "",
    "select_type": "select/cons_tres",
    "accounting": False,
    "files": {},
    "conf": [],
}


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
    """Read a scenario file; LabError with file and field when it is not one."""
    import yaml  # most commands of a lab read no file of this kind

    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"{path}: cannot be read ({error}).") from error
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise LabError(f"{path}: not YAML ({' '.join(str(error).split())}).") from error
    return parse(data, str(path))


def simple(racks: int, trays: int, suite: str) -> Scenario:
    """The scenario of `lab up --racks R --trays T`: R racks of T trays, one clique each."""
    data = {"suite": suite, "racks": [{"trays": trays} for _rack in range(racks)]}
    return parse(data, "command line")


def renamed(scenario: Scenario, names: dict[str, str]) -> Scenario:
    """The scenario with other names of its trays."""
    return replace(scenario, trays=tuple(replace(tray, name=names[tray.name]) for tray in scenario.trays))


def parse(data: Any, source: str = "scenario") -> Scenario:
    """Turn the parsed YAML into a Scenario; LabError names `source` and the field."""
    top = _read(data, TOP, f"{source}: ")
    if top["suite"] not in SUITES:
        raise LabError(f"{source}: suite is {top['suite']!r}, use one of {', '.join(SUITES)}.")
    empty = top["slurm"] == "packages"
    if top["backup"] and not (top["controller"] and empty):
        raise LabError(f"{source}: backup needs the controller host and slurm: packages, the lab's own Slurm has one.")
    slurm = None if empty or top["slurm"] is False else _slurm(top["slurm"], source)
    if slurm and not top["controller"]:
        raise LabError(f"{source}: slurm needs the controller host, set controller to true.")
    kubernetes = top["kubernetes"]
    if not isinstance(kubernetes, (bool, str)):
        raise LabError(f'{source}: kubernetes is {kubernetes!r}, use true, false or a version in quotes ("1.37.2").')
    trays: list[Tray] = []
    for position, rack in enumerate(top["racks"]):
        trays += _rack(rack, position + 1, len(trays), f"{source}: racks[{position}].")
    if not 1 <= len(trays) <= MAX_TRAYS:
        raise LabError(f"{source}: racks hold {len(trays)} trays, the lab's network has room for 1 to {MAX_TRAYS}.")
    settings = {str(name): values for name, values in top["trays"].items()}
    unknown = sorted(settings.keys() - {tray.name for tray in trays})
    if unknown:
        raise LabError(f"{source}: trays.{unknown[0]} is not a tray of racks.")
    for number, tray in enumerate(trays):
        own = _settings(settings.get(tray.name), tray.gpus, f"{source}: trays.{tray.name}.")
        trays[number] = replace(tray, settings={**tray.settings, **own})
    version = "" if kubernetes is True else kubernetes or None
    return Scenario(top["suite"], top["controller"], slurm, tuple(trays), empty, version, top["backup"])


def _rack(data: Any, number: int, before: int, where: str) -> list[Tray]:
    rack = _read(data, RACK, where)
    name, count, gpus = rack["name"] or f"r{number:02d}", rack["trays"], rack["gpus"]
    if not RACK_NAME.fullmatch(name):
        raise LabError(f"{where}name is {name!r}, use up to 8 of a-z and 0-9, a letter first.")
    for key, low, high in (("trays", 1, MAX_TRAYS), ("gpus", 0, MAX_GPUS)):
        if not low <= rack[key] <= high:
            raise LabError(f"{where}{key} is {rack[key]}, use {low} to {high}.")
    clique_of = _cliques(rack["cliques"], count, where)
    settings = _settings(rack["settings"], gpus, f"{where}settings.")
    return [
        Tray(f"{name}t{i:02d}", f"{NETWORK}.{FIRST_TRAY + before + i - 1}", number, i, gpus, clique_of[i], settings)
        for i in range(1, count + 1)
    ]


def _cliques(cliques: list[Any], count: int, where: str) -> dict[int, int]:
    """Tray number -> clique id; every tray is in exactly one clique."""
    clique_of: dict[int, int] = {}
    for position, item in enumerate(cliques):
        here = f"{where}cliques[{position}]."
        clique = _read(item, CLIQUE, here)
        if not 0 <= clique["id"] < 2**32:
            raise LabError(f"{here}id must be a number from 0 to 4294967295.")
        for member in clique["trays"] or range(1, count + 1):
            if member not in range(1, count + 1) or member in clique_of:
                raise LabError(f"{here}trays holds {member!r}, use tray numbers from 1 to {count}, each in one clique.")
            clique_of[member] = clique["id"]
    missing = [i for i in range(1, count + 1) if i not in clique_of]
    if missing:
        raise LabError(f"{where}cliques leaves out tray {missing[0]}, put every tray into one clique.")
    return clique_of


def _slurm(value: Any, source: str) -> Slurm:
    entry = _read({} if value is True else value, SLURM, f"{source}: slurm.")
    for name, text in entry["files"].items():
        if not SLURM_FILE.fullmatch(str(name)) or not isinstance(text, str):
            raise LabError(f"{source}: slurm.files.{name} must be the text of a file like topology.conf.")
    return Slurm(**{**entry, "conf": tuple(map(str, entry["conf"]))})


def _settings(values: Any, gpus: int, where: str) -> dict[str, str]:
    """The settings of a tray, as they would be written on the command line."""
    if not isinstance(values or {}, dict):
        raise LabError(f"{where[:-1]} must be a map of settings, as in {{health: unhealthy}}.")
    settings = {
        str(key): str(value).lower() if isinstance(value, bool) else str(value) for key, value in (values or {}).items()
    }
    for key, value in settings.items():
        check_setting(key, value, gpus, f"{where}{key}")
    return settings


def _read(data: Any, defaults: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A map of YAML over its defaults, which give each value's type but for those that are None or of more than one."""
    if not isinstance(data or {}, dict):
        raise LabError(f"{where[:-1]} must be a map of keys.")
    given = {key: value for key, value in (data or {}).items() if value is not None}
    for key, value in given.items():
        if key not in defaults:
            raise LabError(f"{where}{key} is not a key of a scenario, remove or correct it.")
        kind = type(defaults[key])
        if key not in ANY and type(value) is not kind:
            raise LabError(f"{where}{key} is {value!r}, it must be {WORDS[kind]}.")
    return {**defaults, **given}
