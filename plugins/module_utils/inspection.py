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
import shutil
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypedDict

from ansible_collections.rackscale.nvlink.plugins.module_utils import child, subsets
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import packages, processes
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import limits, rules
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import SlurmError

SUBSETS = ("gpu", "versions")
"""Those of fabric_facts that the doctor reads."""
MAX_CONNECTS = 160
# For all connections of a host together, and for what resolves their names.
CONNECT_SECONDS = 5.0
_PROGRAM_SECONDS = 15.0
# Keeps apt-cache from rebuilding its caches on the disk, and dnf from refreshing its own.
_APT = ("apt-cache", "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=", "madison")
_DNF = ("dnf", "--quiet", "--cacheonly", "repoquery", "--qf", "%{name} %{version}-%{release}\\n")


class Target(TypedDict):
    """A port of a peer, by the peer's name; a port of 0 is that of slurmd."""

    name: str
    address: str
    port: int


class Connection(Target):
    """reason: why the port cannot be reached; empty where it can."""

    reason: str


def answer(options: Arguments) -> Result:
    """The report of a host, by the options of the module doctor. NvlinkError for a wrong option only."""
    started = time.time()
    uid = os.geteuid()
    user = str(uid)
    with contextlib.suppress(KeyError):
        user = pwd.getpwuid(uid).pw_name
    return {
        "findings": [],
        **{"python": platform.python_version(), "user": user, "root": uid == 0},
        **(_of_controller(options) if options["role"] == "controller" else _of_tray(options)),
        "times": {"started": started, "ended": time.time()},
    }


def _of_tray(options: Arguments) -> dict[str, Any]:
    """What fabric_facts returns, by the options that are its own, and the rest."""
    own = {name: options[name] for name in subsets.Options._fields if name in options}
    found = subsets.gather(subsets.Options(SUBSETS, **own))
    versions = found["ansible_facts"][subsets.FACTS["versions"]] or {}
    return {
        **found,
        "imex": imex_offers(versions.get("driver"), versions.get("imex_package")),
        "connects": connect_all(options["connects"]),
    }


def _of_controller(options: Arguments) -> dict[str, Any]:
    slurm = inspect_slurm(Slurm(options["bin_dir"], _PROGRAM_SECONDS, options["conf_dir"]))
    port = slurm["slurmd_port"] or 6818
    given: list[Target] = options["connects"]
    wanted: list[Target] = [{**row, "port": row["port"] or port} for row in given]
    return {"slurm": slurm, "connects": connect_all(wanted)}


# --------------------------------------------------------------------------------------------------------------- Slurm


def inspect_slurm(slurm: Slurm) -> dict[str, Any]:
    """Version, ports and limits of slurmctld; `problem` where it is not installed or does not answer."""
    found: dict[str, Any] = dict.fromkeys(("version", "slurmd_port", "slurmctld_port", "problem"))
    found["limits"] = []
    try:
        version = slurm.version()
        found["version"] = rules.show_version(version)
        config = slurm.config()
        found["slurmd_port"] = _port(config.get("slurmdport", ""))
        found["slurmctld_port"] = _port(config.get("slurmctldport", ""))
        found["limits"] = limits.read(slurm, version, config, slurm.records("partitions"), slurm.shown())
    except SlurmError as error:
        return {**found, "problem": str(error)}
    return found


def _port(text: str) -> int | None:
    """The first port of what slurmctld prints, such as 6817 or 6817-6820."""
    first = text.partition("-")[0]
    return int(first) if first.isdecimal() else None


# ---------------------------------------------------------------------------------------------------------------- IMEX


def imex_offers(driver: str | None, installed: str | None) -> dict[str, Any]:
    """What the package manager's cache offers for this driver where no package is installed; refreshes nothing."""
    offers: list[packages.Offer] = []
    manager = next((name for name in ("apt-cache", "dnf") if shutil.which(name)), None)
    if driver and installed is None and manager:
        query, parse = (_APT, packages.parse_madison) if manager == "apt-cache" else (_DNF, packages.parse_repoquery)
        names = packages.names(driver)
        offers = parse(child.run([*query, *names], _PROGRAM_SECONDS, large_files=True).stdout)
    chosen = packages.choose(offers, driver) if driver else None
    return {
        "program": shutil.which(processes.DAEMON) is not None,
        "candidate": chosen.version if chosen else None,
        "offered": sorted({offer.version for offer in offers})[:20],
    }


# --------------------------------------------------------------------------------------------------------------- Ports


def connect_all(targets: Sequence[Target]) -> list[Connection]:
    """Try TCP connections, all at once, and close them.

    In a child: resolving a name may hang for longer than any limit.
    """
    rows: list[Target] = [{**row} for row in targets[:MAX_CONNECTS]]
    if not rows:
        return []
    reply = child.call(connect, CONNECT_SECONDS + 2.0, rows, CONNECT_SECONDS)
    return [*reply.value] if reply.value is not None else [{**row, "reason": reply.result.reason} for row in rows]


def connect(targets: Sequence[Target], seconds: float) -> list[Connection]:
    """connect_all in this process; `seconds` for each of them."""
    with ThreadPoolExecutor(max(1, len(targets))) as pool:
        reasons = pool.map(lambda row: _unreachable(row, seconds), targets)
        return [{**row, "reason": reason} for row, reason in zip(targets, reasons)]


def _unreachable(target: Target, seconds: float) -> str:
    """Why a port cannot be reached; empty where it can. A refused connection shows that the packets pass."""
    try:
        found = socket.getaddrinfo(target["address"], target["port"], type=socket.SOCK_STREAM)
        with socket.socket(*found[0][:3]) as peer:
            peer.settimeout(seconds)
            peer.connect(found[0][4])
    except ConnectionRefusedError:
        return ""
    except (OSError, UnicodeError) as error:
        return str(getattr(error, "strerror", None) or error)[:200]
    return ""
