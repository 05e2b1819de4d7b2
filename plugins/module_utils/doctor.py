# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inspect a host for the playbook doctor: user, Python, driver, IMEX package, ports, clock, Slurm. Changes nothing.

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

import contextlib
import os
import platform
import pwd
import re
import shutil
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypedDict

from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic, child, subsets
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import facts as gpu_facts
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import packages, survey
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import files, rules
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm

MAX_CONNECTS = 160
# For all connections of a host together, and for what resolves their names.
CONNECT_SECONDS = 5.0
_PROGRAM_SECONDS = 15.0
OPEN, REFUSED, TIMEOUT, UNREACHABLE, UNRESOLVED = "open", "refused", "timeout", "unreachable", "unresolved"
_SLURMD_NAME = re.compile(r"(?:^|\s)NodeName=(\S+)")
# Keeps apt-cache from rebuilding its caches on the disk, and dnf from refreshing its own.
_APT = ("apt-cache", "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=", "madison")
_DNF = ("dnf", "--quiet", "--cacheonly", "repoquery", "--qf", "%{name} %{version}-%{release}\\n")


class Target(TypedDict):
    """A port of a peer, by the peer's name; a port of 0 is that of slurmd."""

    name: str
    address: str
    port: int


class Connection(Target):
    """state: open, or why not, with the reason in words."""

    state: str
    reason: str


def inspect(options: Arguments) -> Result:
    """The report of a host, by the options of the module doctor. NvlinkError for a wrong option only."""
    started = time.time()
    uid = os.geteuid()
    user = str(uid)
    with contextlib.suppress(KeyError):
        user = pwd.getpwuid(uid).pw_name
    return {
        "findings": [],
        **{"python": platform.python_version(), "user": user, "root": uid == 0, "hostname": os.uname().nodename},
        **(_of_controller(options) if options["role"] == "controller" else _of_tray(options)),
        "times": {"started": started, "ended": time.time()},
    }


def _of_tray(options: Arguments) -> dict[str, Any]:
    gpu = gpu_facts.gather(options["backend"], options["nvidia_smi"], options["timeout"], options["ip"])
    driver = survey.loaded_driver() or gpu["driver_version"]
    return {
        "slurmd_name": slurmd_name(),
        "gpu": {"driver": driver, "gpus": gpu["gpu_count"], "findings": gpu["findings"]},
        "slurmd": subsets.slurmd_version("slurmd"),
        "imex": imex_package(driver),
        "listens": listening_ports(),
        "connects": connect_all(options["connects"]),
    }


def _of_controller(options: Arguments) -> dict[str, Any]:
    slurm = inspect_slurm(Slurm(options["bin_dir"], _PROGRAM_SECONDS, options["conf_dir"]))
    port = slurm["slurmd_port"] or 6818
    given: list[Target] = options["connects"]
    wanted: list[Target] = [{**row, "port": row["port"] or port} for row in given]
    return {"slurm": slurm, "connects": connect_all(wanted)}


# --------------------------------------------------------------------------------------------------------------- Slurm


def slurmd_name() -> str | None:
    """The NodeName that slurmd would register here; None where it is not installed or does not print one."""
    program = shutil.which("slurmd") or shutil.which("slurmd", path=os.pathsep.join(subsets.SLURMD_FOLDERS))
    if program is None:
        return None
    found = _SLURMD_NAME.search(child.run([program, "-C"], _PROGRAM_SECONDS).stdout)
    return found.group(1) if found else None


def inspect_slurm(slurm: Slurm) -> dict[str, Any]:
    """Version, ports and nodes of slurmctld; `problem` where it is not installed or does not answer."""
    found: dict[str, Any] = {"version": None, "slurmd_port": None, "slurmctld_port": None, "nodes": [], "problem": None}
    try:
        found["version"] = rules.show_version(slurm.version())
        config = slurm.config()
        found["slurmd_port"] = _port(config.get("slurmdport", ""))
        found["slurmctld_port"] = _port(config.get("slurmctldport", ""))
        records = files.parse_records(slurm.scontrol("-a", "-o", "show", "nodes"))
    except SlurmError as error:
        return {**found, "problem": str(error)}
    keys = {"name": "NodeName", "hostname": "NodeHostName", "address": "NodeAddr"}
    found["nodes"] = [{key: record.get(word) for key, word in keys.items()} for record in records]
    return found


def _port(text: str) -> int | None:
    """The first port of what slurmctld prints, such as 6817 or 6817-6820."""
    first = text.partition("-")[0]
    return int(first) if first.isdecimal() else None


# ---------------------------------------------------------------------------------------------------------------- IMEX


def imex_package(driver: str | None) -> dict[str, Any]:
    """The installed package, and what the package manager's cache offers for this driver; refreshes nothing."""
    installed = survey.installed_package()
    offers: list[packages.Offer] = []
    manager = next((name for name in ("apt-cache", "dnf") if shutil.which(name)), None)
    if driver and installed is None and manager:
        query, parse = (_APT, packages.parse_madison) if manager == "apt-cache" else (_DNF, packages.parse_repoquery)
        names = packages.names(driver)
        offers = parse(child.run([*query, *names], _PROGRAM_SECONDS, large_files=True).stdout)
    chosen = packages.choose(offers, driver) if driver else None
    return {
        "program": shutil.which(survey.DAEMON) is not None,
        "installed": installed["version"] if installed else None,
        "candidate": chosen.version if chosen else None,
        "offered": sorted({offer.version for offer in offers})[:20],
    }


# --------------------------------------------------------------------------------------------------------------- Ports


def listening_ports() -> list[int]:
    """The TCP ports on which this host listens, other than on loopback alone."""
    ports = set()
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in (atomic.read_text(path) or "").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 3 and fields[3] == "0A":  # TCP_LISTEN
                address, _colon, port = fields[1].partition(":")
                # The kernel prints the address as words of its own byte order.
                if address[-2:] != "7F" and address != "0" * 24 + "01000000":
                    ports.add(int(port, 16))
    return sorted(ports)


def connect_all(targets: Sequence[Target]) -> list[Connection]:
    """Try TCP connections, all at once, and close them: name, address, port, state, and reason of those that fail.

    In a child: resolving a name may hang for longer than any limit.
    """
    rows: list[Target] = [{**row} for row in targets[:MAX_CONNECTS]]
    if not rows:
        return []
    reply = child.call(connect, CONNECT_SECONDS + 2.0, rows, CONNECT_SECONDS)
    return [*reply.value] if reply.value is not None else [_row(row, UNRESOLVED, reply.result.reason) for row in rows]


def connect(targets: Sequence[Target], seconds: float) -> list[Connection]:
    """connect_all in this process; `seconds` for each of them."""
    with ThreadPoolExecutor(max(1, len(targets))) as pool:
        return [*pool.map(lambda row: _connect(row, seconds), targets)]


def _connect(target: Target, seconds: float) -> Connection:
    try:
        found = socket.getaddrinfo(target["address"], target["port"], type=socket.SOCK_STREAM)
        with socket.socket(*found[0][:3]) as peer:
            peer.settimeout(seconds)
            peer.connect(found[0][4])
    except (socket.gaierror, UnicodeError) as error:
        return _row(target, UNRESOLVED, str(error))
    except socket.timeout:
        return _row(target, TIMEOUT, f"no answer in {seconds:g} s")
    except OSError as error:
        is_refused = isinstance(error, ConnectionRefusedError)
        return _row(target, REFUSED if is_refused else UNREACHABLE, error.strerror or str(error))
    return _row(target, OPEN)


def _row(target: Target, state: str, reason: str = "") -> Connection:
    return {**target, "state": state, "reason": reason[:200]}
