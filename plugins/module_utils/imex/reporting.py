# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Report what is on a tray, for the decision on the controller. Changes nothing, and compares with nothing.

It reads nothing from other trays but the records that members offer. Every call of a program has a time limit.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic, driver
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import (
    assembly,
    boot,
    domain,
    firewall,
    formats,
    installing,
    job_host,
    slurm_jobs,
    survey,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.parts import Facts, Report
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.prolog import state

# For one call of a program.
SECONDS = 30.0
PYTHON = "/usr/bin/python3"
PROGRAMS = (PYTHON, "apt-get", "dracut", "update-initramfs")


class Options(NamedTuple):
    """What a tray is asked.

    files: the paths whose states are reported; that of the recorded list and of its channels are always. own: the line
    of the tray. outside: lines of members that this run does not reach, whose records are read where owner has members.
    ports: of the firewall, None where it is not managed. job: the variables imex_job_* of the role. members: of the
    clique, as Slurm names them. nodes: of Slurm, whose jobs are looked up where a daemon runs. package: the one whose
    offers are looked up unless it is installed in the driver's version; empty for any, None to look up none.
    """

    owner: str
    ctl_timeout: float = 10.0
    proc_devices: str = survey.PROC_DEVICES
    files: Sequence[str] = ()
    own: str = ""
    outside: Sequence[str] = ()
    list_port: int = 50006
    ports: Sequence[int] | None = None
    job: Mapping[str, Any] = {}
    members: Sequence[str] = ()
    nodes: Sequence[str] = ()
    package: str | None = None


def answer(options: Mapping[str, Any]) -> Result:
    """What the module imex_domain returns of an inspection, for the probe; nothing where this user may not see all."""
    if os.geteuid():
        return {"failed": True, "msg": "it was not read as root; allow ansible_become by sudo without a password"}
    try:
        row = {"report": report(Host(True, SECONDS), Options(**options))}
    except NvlinkError as error:
        return {"failed": True, "msg": str(error)}
    return {"changes": [], "findings": [], "row": row}


def report(host: Host, options: Options) -> Report:
    found, gives_channels = facts(options)
    record = read_record()
    files = [*options.files, *_recorded(record)]
    by_service = found["running"] and any(entry["owner"] == "service" for entry in found["owners"])
    # Without a domain that it is in or comes to, a tray has no peers.
    asks = options.owner in domain.LIST_OWNERS or record is not None or by_service
    jobs, unknown = slurm_jobs.running_on(options.nodes) if options.nodes and found["running"] else ([], None)
    return {
        "facts": found,
        "files": {path: known for path in files if (known := host.state(path)) is not None},
        "record": record,
        "approved": record is not None and atomic.read_text(domain.START_APPROVAL) == approval(record),
        "socket": host.is_active(domain.LIST_SOCKET),
        "programs": [name for name in PROGRAMS if shutil.which(name)],
        "params": driver.channel_parameters(),
        "firewall": (
            {"name": None, "open": [], "opened": {}} if options.ports is None else firewall.read(host, options.ports)
        ),
        "slurm": job_host.read(options.owner, options.job, options.members),
        "gives_channels": gives_channels,
        "local": not options.own or boot.is_local(options.own),
        "peers": boot.query(list(options.outside), options.list_port) if options.outside and asks else {},
        "jobs": jobs,
        "unknown": unknown,
        "offers": None if options.package is None else installing.read_offers(host, found, options.package),
    }


def facts(options: Options) -> tuple[Facts, bool]:
    """(nvlink_imex, whether Slurm gives each job a channel); the role's own prolog is no other owner."""
    read = survey.survey(timeout=options.ctl_timeout, proc_devices=options.proc_devices)
    if options.owner != domain.JOB or (read["processes"] and state.read_state() is None):
        # The change removes it; or it has not started this daemon.
        others = [path for path in read["prolog_files"] if os.path.basename(path) != survey.JOB_PROLOG]
        read["prolog_files"] = others
    return assembly.assemble(read), read["slurm_gives_channels"]


def read_record() -> boot.Record | None:
    """The record of the clique's list, or of its members for jobs: its generation goes on under another owner."""
    return boot.read_record(formats.RECORD_FILE) or boot.read_record(state.SETTINGS_FILE)


def approval(record: boot.Record) -> str:
    """The text of the approval of a start with the recorded list."""
    return f"{record['generation']} {record['sha256']}\n"


def _recorded(record: boot.Record | None) -> list[str]:
    """The files of an earlier run that its record names."""
    if record is None:
        return []
    channels = (f"{boot.CHANNELS}/channel{minor}" for minor in record.get("channels", []))
    return [record.get("nodes", formats.NODES_FILE), *channels]
