# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What survey() reads of IMEX on a tray, the facts nvlink_imex, and the row of a phase of a change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from ansible_collections.rackscale.nvlink.plugins.module_utils.child import Result
    from ansible_collections.rackscale.nvlink.plugins.module_utils.host import FileState
    from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.boot import Record
    from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.processes import Process


class Unit(TypedDict, total=False):
    """The state of nvidia-imex.service in systemd, in its words; empty without systemd."""

    load: str | None
    active: str | None
    sub: str | None
    enabled: str | None
    main_pid: int | None
    result: str | None


class Device(TypedDict):
    name: str
    major: int
    minor: int
    mode: str


class Channels(TypedDict):
    major: int | None
    """Of this boot; None where the driver offers no channels."""
    devices: list[Device]


class File(TypedDict, total=False):
    """A file; text is None where it cannot be read, and missing where it is not read. changed_at: since the epoch."""

    path: str
    text: str | None
    changed_at: float | None
    exists: bool


class Survey(TypedDict):
    """What was read, without any evaluation; None for what could not be."""

    observed_at: str
    hostname: str
    names: list[str]
    addresses: list[str]
    program: str | None
    version: str | None
    package: dict[str, str] | None
    driver_version: str | None
    unit: Unit | None
    config: File
    nodes: File
    record: File
    persist: File
    processes: list[Process]
    answers: dict[str, Result]
    """state and domain -> what nvidia-imex-ctl printed; empty where no daemon runs."""
    control_tool: bool
    channels: Channels
    prolog_files: list[str]
    slurm_gives_channels: bool
    prolog_gives_channels: bool
    log_path: str
    log: str


class Owner(TypedDict):
    owner: str
    why: str
    pid: int | None


class _PeerId(TypedDict, total=False):
    id: int
    state: str | None
    """As the tray's ctl shows it: unavailable where the peer does not answer."""


class Peer(_PeerId):
    host: str
    """Its line in the node list."""
    connection: str | None


class Config(TypedDict):
    path: str
    sha256: str | None
    settings: dict[str, str | None]
    """A value that may be the text of a key is None."""
    unknown_keys: list[str]


class _List(TypedDict, total=False):
    path: str
    read_sha256: str | None
    own_id: int | None
    changed_at: float | None
    generation: int | None
    clique: str | None
    recorded_owner: str | None
    recorded_sha256: str | None


class NodeList(_List):
    sha256: str | None
    entries: list[str]


class _Facts(TypedDict, total=False):
    observed_at: str
    hostname: str
    installed: bool
    package: dict[str, str] | None
    control_tool: bool
    driver_version: str | None
    domain_state: str | None
    unit: Unit | None
    config: Config
    persist_file: bool
    channels: Channels
    owners: list[Owner]
    reason: str | None


class Facts(_Facts):
    """nvlink_imex, as fabric_facts documents it. The keys here are those that every use of a tray's answer checks."""

    version: str | None
    running: bool
    state: str | None
    ready: bool
    peers: list[Peer]
    nodes: NodeList
    findings: list[Any]
    """Each a HostFinding on the tray, a Finding on the controller."""


class Firewall(TypedDict):
    """name: of the firewall that runs. open: of the ports that were asked and those that the role opened.

    opened: firewall -> the ports that the role opened in it.
    """

    name: str | None
    open: list[int]
    opened: dict[str, list[int]]


class Slurm(TypedDict):
    """What IMEX per job needs of Slurm on a tray.

    path: of slurm.conf. settings: key in lower case -> its values in order; for SHARED_PARTITIONS those of the clique.
    called: the keys of slurm.conf whose programs call that of this collection. alone: a file of this collection -> the
    key of slurm.conf that names no other file. python: why the program cannot run, empty where it can. job: whose
    daemon runs.
    """

    path: str | None
    settings: dict[str, list[str]]
    called: list[str]
    alone: dict[str, str]
    python: str
    job: str | None


class Report(TypedDict):
    """What is on a tray, whatever is desired there; what reporting.report() was not asked is empty or None.

    approved: whether this boot may start the daemon with the recorded list. socket: whether the list is offered.
    programs: those of reporting.PROGRAMS that the tray has. params: driver.channel_parameters(). local: whether
    the tray has the address of its line. jobs, unknown: Slurm's jobs, or why they are unknown. offers: the (name,
    version) of packages.
    """

    facts: Facts
    files: dict[str, FileState]
    record: Record | None
    approved: bool
    socket: bool
    programs: list[str]
    params: dict[str, int | None]
    firewall: Firewall
    slurm: Slurm
    gives_channels: bool
    local: bool
    peers: dict[str, Record]
    jobs: list[str]
    unknown: str | None
    offers: list[list[str]] | None


class Row(TypedDict, total=False):
    """What a tray returns in a phase of imex_domain; plugin_utils/imex/rows.py has the keys that each phase needs.

    Those of inspect are the controller's, from the tray's Report.
    """

    report: Report
    facts: Facts | None
    findings: list[Any]
    """As those of Facts."""
    running: bool
    approved: bool
    pending: list[str]
    restart_clique: list[str]
    sha256: str | None
    record: Record | None
    peers: dict[str, Record]
    reload: bool
    started: bool
