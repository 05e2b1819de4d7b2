# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make a tray a node of a configless Slurm: the cluster's key, slurmd's options, its health check, slurmd itself.

Private to this collection; it may change in any release. Python 3.9, standard library only.

Two steps, because slurmctld must have the node's hardware before slurmd starts: ``prepare`` configures and measures,
``start`` starts slurmd. No configuration file of Slurm is written on a tray; slurmd fetches all from slurmctld.
"""

from __future__ import annotations

import os

from ansible_collections.rackscale.nvlink.plugins.module_utils import child, driver
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result
from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host, read
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import hardware, keys, slurmd
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import SlurmError

UNIT = "slurmd.service"
# The first line of the options file starts with it.
MARK = "# Written by rackscale.nvlink (slurm)"


def prepare(host: Host, options: Arguments) -> Result:
    """The step prepare_tray of slurm_step: everything but to start slurmd.

    Returns the hardware, None where slurmd is not installed yet, and the driver's number of IMEX channels.
    """
    check_owner(options["options_file"])
    auth, key, log = options["auth"], keys.decoded(options["key"]), options["log"]
    if not key and not host.check and read(keys.path(auth)) is None:
        raise SlurmError(
            "This tray has no authentication key, and no Slurm controller of this run has given it one: run"
            " slurm_bringup with the Slurm controllers in --limit."
        )
    if key:
        keys.install(host, auth, key)
    if auth == "munge":
        host.run(keys.MUNGE_UNIT)
    servers = f"SLURMD_OPTIONS='--conf-server {','.join(options['conf_servers'])}'"
    text = f"{MARK}: slurmd fetches its configuration from slurmctld.\n{servers}\n"
    host.file(options["options_file"], text.encode())
    for program in options["programs"]:
        if program["path"]:
            host.file(program["path"], program["text"].encode(), mode=0o755)
    if not os.path.isdir(os.path.dirname(log)):
        host.folder(os.path.dirname(log), "root:root", 0o755)
    rotate(host, log, options["logrotate"])
    return {"hardware": measure(host), "channel_count": driver.channel_parameters()["ImexChannelCount"]}


def check_owner(options_file: str, conf: str | None = None) -> None:
    """Raise SlurmError for a slurmd that another Slurm has configured: it would get this cluster's key and options.

    conf: its slurm.conf, by default that of the slurmd of this tray.
    """
    conf = conf or slurmd.find().conf
    if conf is None:
        return
    given, options = (read(path) or b"" for path in (conf, options_file))
    ours = any(text.startswith(MARK.encode()) for text in (given, options))
    if given and not ours and not _is_example(conf):
        raise SlurmError(
            f"{conf} of this tray is of a Slurm that slurm_bringup has not configured: run the playbook slurm on the"
            " controller of that Slurm, or remove the tray from it and then this file; nothing was changed."
        )


def _is_example(conf: str) -> bool:
    """Whether a file is as its package has it: the package slurm of EPEL has a slurm.conf."""
    result = child.run(["rpm", "--verify", "--nodeps", "--file", conf], 60)
    # It names the files that differ, and one that no package has.
    return result.rc in (0, 1) and not result.error and not result.stderr and conf not in result.stdout.split()


def rotate(host: Host, log: str, rule: str, folder: str = "/etc/logrotate.d") -> None:
    """Rotate slurmd's log where no other rule does; logrotate fails on two rules for one log."""
    ours = os.path.join(folder, "slurm-nvlink")
    if not os.path.isdir(folder):
        return
    others = [entry.path for entry in os.scandir(folder) if entry.path != ours]
    if not any(log.encode() in (read(path) or b"") for path in others):
        host.file(ours, rule.encode())


def measure(host: Host) -> hardware.Record | None:
    """The hardware that ``slurmd -C`` prints; None in check mode without slurmd."""
    try:
        program = Slurm().program("slurmd")
    except SlurmError:
        if host.check:
            return None
        raise
    result = host.call(program, "-C")
    record = next(iter(hardware.parse_nodes(result.stdout).values()), None)
    if record is None:
        raise SlurmError("slurmd -C prints no hardware: run it manually on this tray.")
    return record


def start(host: Host, options: Arguments) -> Result:
    """The step start_tray of slurm_step: enable slurmd and start it; jobs continue where it is restarted."""
    stale = host.is_active(UNIT) and not _runs_with(host, f"--conf-server\0{','.join(options['conf_servers'])}\0")
    host.run(UNIT, restart=stale, log=options["log"])
    return {}


def _runs_with(host: Host, words: str) -> bool:
    shown = host.call("systemctl", "show", "--property=MainPID", "--value", UNIT).stdout.strip()
    return shown.isdecimal() and words.encode() in (read(f"/proc/{shown}/cmdline") or b"")
