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
RACK_NAME = re.compile(r"[a-z][a-z0-9]{0,7}")  # nspawn's vb-NAME must fit a network interface's 15 characters


@dataclass(frozen=True)
class Slurm:
    """How the lab's Slurm starts; None leaves a setting out of slurm.conf."""

    topology_plugin: str | None = None
    prolog_flags: str | None = None
    select_type: str | None = "select/cons_tres"
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
    top = _Map(data, source, "")
    suite = top.take("suite", str, DEFAULT_SUITE)
    if suite not in SUITES:
        raise LabError(f"{source}: suite is {suite!r}, use one of {', '.join(SUITES)}.")
    controller = top.take("controller", bool, True)
    backup = top.take("backup", bool, False)
    empty = top.peek("slurm") == "packages"
    if backup and not (controller and empty):
        raise LabError(f"{source}: backup needs the controller host and slurm: packages, the lab's own Slurm has one.")
    slurm = _slurm(top, source)
    if slurm and not controller:
        raise LabError(f"{source}: slurm needs the controller host, set controller to true.")
    kubernetes = _kubernetes(top, source)
    racks = top.take("racks", list, [{}])
    settings = _settings(top.take("trays", dict, {}), source)
    top.done()

    trays: list[Tray] = []
    names: set[str] = set()
    for position, rack in enumerate(racks):
        for tray in _rack(rack, position + 1, len(trays), f"racks[{position}]", source, names):
            trays.append(tray)
    if not trays:
        raise LabError(f"{source}: racks holds no tray, give at least one.")
    if len(trays) > MAX_TRAYS:
        raise LabError(f"{source}: racks hold {len(trays)} trays, the lab's network has room for {MAX_TRAYS}.")
    unknown = sorted(set(settings) - {tray.name for tray in trays})
    if unknown:
        raise LabError(f"{source}: trays.{unknown[0]} is not a tray of racks.")
    gpus = {tray.name: tray.gpus for tray in trays}
    for name, values in settings.items():
        for key, value in values.items():
            check_setting(key, value, gpus[name], f"{source}: trays.{name}.{key}")
    return Scenario(
        suite,
        controller,
        slurm,
        tuple(replace(tray, settings={**tray.settings, **settings.get(tray.name, {})}) for tray in trays),
        empty,
        kubernetes,
        backup,
    )


def _kubernetes(top: _Map, source: str) -> str | None:
    value = top.raw("kubernetes", False)
    if isinstance(value, bool):
        return "" if value else None
    if not isinstance(value, str):
        raise LabError(f'{source}: kubernetes is {value!r}, use true, false or a version in quotes ("1.37.2").')
    return value


def _rack(data: Any, number: int, before: int, where: str, source: str, names: set[str]) -> list[Tray]:
    rack = _Map(data, source, where)
    name = rack.take("name", str, f"r{number:02d}")
    if not RACK_NAME.fullmatch(name):
        raise LabError(f"{source}: {where}.name is {name!r}, use up to 8 of a-z and 0-9, a letter first.")
    if name in names:
        raise LabError(f"{source}: {where}.name is {name!r}, which another rack has already.")
    names.add(name)
    count = rack.take("trays", int, 2)
    if not 1 <= count <= MAX_TRAYS:
        raise LabError(f"{source}: {where}.trays is {count}, use 1 to {MAX_TRAYS}.")
    gpus = rack.take("gpus", int, 4)
    if not 0 <= gpus <= MAX_GPUS:
        raise LabError(f"{source}: {where}.gpus is {gpus}, use 0 to {MAX_GPUS}.")
    clique_of = _cliques(rack.take("cliques", list, [{"id": DEFAULT_CLIQUE}]), count, where, source)
    settings = {str(key): _word(value) for key, value in rack.take("settings", dict, {}).items()}
    for key, value in settings.items():
        check_setting(key, value, gpus, f"{source}: {where}.settings.{key}")
    rack.done()
    return [
        Tray(
            name=f"{name}t{i:02d}",
            address=f"{NETWORK}.{FIRST_TRAY + before + i - 1}",
            rack=number,
            number=i,
            gpus=gpus,
            clique_id=clique_of[i],
            settings=settings,
        )
        for i in range(1, count + 1)
    ]


def _cliques(cliques: list[Any], count: int, where: str, source: str) -> dict[int, int]:
    """Tray number -> clique id; every tray is in exactly one clique."""
    clique_of: dict[int, int] = {}
    for position, item in enumerate(cliques):
        here = f"{where}.cliques[{position}]"
        clique = _Map(item, source, here)
        clique_id = clique.take("id", int, None)
        members = clique.take("trays", list, list(range(1, count + 1)))
        clique.done()
        if clique_id is None or not 0 <= clique_id < 2**32:
            raise LabError(f"{source}: {here}.id must be a number from 0 to 4294967295.")
        for member in members:
            if isinstance(member, bool) or not isinstance(member, int) or not 1 <= member <= count:
                raise LabError(f"{source}: {here}.trays holds {member!r}, use tray numbers from 1 to {count}.")
            if member in clique_of:
                raise LabError(f"{source}: {here}.trays holds {member}, which stands in another clique already.")
            clique_of[member] = clique_id
    missing = [i for i in range(1, count + 1) if i not in clique_of]
    if missing:
        raise LabError(f"{source}: {where}.cliques leaves out tray {missing[0]}, put every tray into one clique.")
    return clique_of


def _slurm(top: _Map, source: str) -> Slurm | None:
    value = top.raw("slurm", True)
    if value is False or value == "packages":
        return None
    if value is True:
        return Slurm()
    entry = _Map(value, source, "slurm")
    slurm = Slurm(
        topology_plugin=entry.take("topology_plugin", str, None),
        prolog_flags=entry.take("prolog_flags", str, None),
        select_type=entry.take("select_type", str, "select/cons_tres"),
        accounting=entry.take("accounting", bool, False),
        files=entry.take("files", dict, {}),
        conf=tuple(str(line) for line in entry.take("conf", list, [])),
    )
    for name, text in slurm.files.items():
        if not SLURM_FILE.fullmatch(str(name)) or not isinstance(text, str):
            raise LabError(f"{source}: slurm.files.{name} must be the text of a file like topology.conf.")
    entry.done()
    return slurm


def _settings(data: dict[Any, Any], source: str) -> dict[str, dict[str, str]]:
    settings = {}
    for name, values in data.items():
        if not isinstance(values, dict):
            raise LabError(f"{source}: trays.{name} must be a map of settings, as in {{health: unhealthy}}.")
        settings[str(name)] = {str(key): _word(value) for key, value in values.items()}
    return settings


def _word(value: Any) -> str:
    """A YAML value as it would be written on the command line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


class _Map:
    """A YAML map that is read key by key; done() rejects unknown keys."""

    def __init__(self, data: Any, source: str, where: str) -> None:
        if data is None:
            data = {}
        if not isinstance(data, dict):
            raise LabError(f"{source}: {where or 'the file'} must be a map of keys.")
        self._rest = dict(data)
        self._source = source
        self._prefix = f"{where}." if where else ""

    def peek(self, key: str) -> Any:
        return self._rest.get(key)

    def raw(self, key: str, default: Any) -> Any:
        return self._rest.pop(key, default)

    def take(self, key: str, kind: type, default: Any) -> Any:
        value = self._rest.pop(key, None)
        if value is None:
            return default
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            words = {str: "text", bool: "true or false", int: "a number", list: "a list", dict: "a map"}
            raise LabError(f"{self._source}: {self._prefix}{key} is {value!r}, it must be {words[kind]}.")
        return value

    def done(self) -> None:
        if self._rest:
            key = next(iter(self._rest))
            raise LabError(f"{self._source}: {self._prefix}{key} is not a key of a scenario, remove or correct it.")
