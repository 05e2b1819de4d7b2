# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A backup slurmctld: the files of the primary one, the same StateSaveLocation, and a daemon that waits to take over.

Private to this collection; it may change in any release. Python 3.9, standard library only.

A slurmctld that starts without the other's state cancels all jobs, so that is checked first: the role writes a random
ID into StateSaveLocation on the first controller, and a backup must find the same ID there.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result
from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host, LogCursor, ids, read
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import cluster, keys
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf_folder import locked, stamps
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.daemon import UNIT, Transaction
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm

ID_FILE = "nvlink_state_id"
# The other files that slurmctld reads in the folder of slurm.conf: those that it ships to configless trays, and those
# that it alone reads.
OTHER_FILES = (
    cluster.GRES,
    cluster.CGROUP,
    "topology.conf",
    "topology.yaml",
    "job_submit.lua",
    "acct_gather.conf",
    "burst_buffer.conf",
    "cli_filter.lua",
    "helpers.conf",
    "job_container.conf",
    "mpi.conf",
    "namespace.yaml",
    "oci.conf",
    "plugstack.conf",
    "resources.yaml",
    "scrun.lua",
)
_MAX_INCLUDES = 10


@dataclass(frozen=True)
class DesiredState:
    """files: name in conf_dir -> bytes, all files of the first slurmctld; log: SlurmctldLogFile."""

    files: Mapping[str, bytes]
    conf_dir: str
    log: str


# ---------------------------------------------------------------------------------------------- the steps of slurm_step


def prepare_backup(host: Host, options: Arguments) -> Result:
    """Install the cluster's key and check StateSaveLocation; in check mode there may be no key yet."""
    if options["key"] or not host.check:
        keys.install(host, options["auth"], keys.decoded(options["key"]))
    check_state(host, options["state_dir"], options["state_id"], options["user"])
    return {}


def read_files(_host: Host, options: Arguments) -> Result:
    """The files of the first slurmctld in Base64."""
    files = gather(options["conf_dir"])
    return {"files": {name: base64.b64encode(data).decode("ascii") for name, data in files.items()}}


def start_backup(host: Host, options: Arguments) -> Result:
    """Write the files that read_files returned on the first controller, and start slurmctld."""
    before = gather(options["conf_dir"])
    desired = DesiredState(_decoded(options["files"]), options["conf_dir"], options["log"])
    changed = bring_up(host, desired)
    return {"diff": cluster.difference(changed, _texts(before), _texts(desired.files))}


def _texts(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: data.decode("utf-8", "replace") for name, data in files.items()}


def _decoded(given: Arguments) -> dict[str, bytes]:
    try:
        return {str(name): base64.b64decode(text, validate=True) for name, text in given.items()}
    except (binascii.Error, TypeError, ValueError):
        raise SlurmError("The option files is not the result of step=read_files: pass it unchanged.") from None


# ------------------------------------------------------------------------------------------- shared StateSaveLocation


def check_state(host: Host, state_dir: str, expected: str, user: str) -> None:
    """SlurmError unless this host's StateSaveLocation is the first controller's and belongs to SlurmUser here too.

    expected: content of the first controller's ID file as slurp returns it, empty in check mode before there is one.
    """
    if host.check and not expected:
        return
    state_id = base64.b64decode(expected).decode("ascii", "replace").strip()
    here = (read(os.path.join(state_dir, ID_FILE)) or b"").decode("ascii", "replace").strip()
    if not state_id or here != state_id:
        raise SlurmError(
            f"{state_dir} is not the same folder as on the first controller, so a takeover would cancel all jobs: mount"
            " one shared folder there on all controllers, or set state_dir to one."
        )
    owner = os.stat(state_dir).st_uid
    if not host.check and owner != ids(user)[0]:
        raise SlurmError(
            f"{state_dir} belongs to UID {owner} and {user} has UID {ids(user)[0]} on this host: give {user} the same"
            " UID on all controllers."
        )


# ------------------------------------------------------------------------------------------------------- the files


def gather(conf_dir: str) -> dict[str, bytes]:
    """name -> bytes of slurm.conf, its includes from the same folder, and the OTHER_FILES that exist."""
    found: dict[str, bytes] = {}
    pending = [cluster.CONF]
    for _depth in range(_MAX_INCLUDES):
        named: list[str] = []
        for name in pending:
            data = read(os.path.join(conf_dir, name))
            if data is not None and name not in found:
                found[name] = data
                named += cluster.included(data.decode("utf-8", "replace"))
        # Includes from other folders belong to the site, which keeps them equal on its controllers.
        pending = [name for name in named if os.path.basename(name) == name]
    for name in OTHER_FILES:
        data = read(os.path.join(conf_dir, name))
        if data is not None:
            found[name] = data
    return found


def bring_up(host: Host, desired: DesiredState) -> list[str]:
    """Write these files and start the backup slurmctld; returns the changed files' names. A failure rolls back."""
    if host.check:
        changed = _changed(host, desired)
        host.run(UNIT)
        return changed
    if cluster.CONF not in desired.files:
        raise SlurmError("The first controller has no slurm.conf yet: bring it up first.")
    with locked(desired.conf_dir, host.timeout):
        known = stamps(desired.conf_dir)
        changed = _changed(host, desired)
        slurm = Slurm("", host.timeout, desired.conf_dir)
        cursor = LogCursor(desired.log)
        # slurmctld reads the other files when it takes over.
        restart = cluster.CONF in changed
        started = False

        def load(_transaction: Transaction) -> str:
            nonlocal started
            started = host.run(UNIT, restart=restart, log=desired.log)
            return ""

        names = sorted(changed, key=lambda name: name == cluster.CONF)
        Transaction(
            slurm,
            desired.conf_dir,
            {os.path.join(desired.conf_dir, name): desired.files.get(name) for name in names},
            what="the new configuration",
            problem=lambda: _problem(host, slurm, cursor) if started else "",
            restored=slurm.answers,
            load=load,
            stamps=known,
            log=desired.log,
            like=cluster.OWNER_OF_NEW_FILES,
            # It gives the primary some seconds, and waits for the state's heartbeat.
            seconds=min(host.timeout, 60.0),
            ran=host.is_active(UNIT),
            restart=restart,
        ).apply()
    return changed


def _changed(host: Host, desired: DesiredState) -> list[str]:
    names = {*desired.files, *(name for name in OTHER_FILES if os.path.exists(os.path.join(desired.conf_dir, name)))}
    before = {name: read(os.path.join(desired.conf_dir, name)) for name in sorted(names)}
    changed = [name for name, data in before.items() if data != desired.files.get(name)]
    for name in changed:
        verb = "remove" if name not in desired.files else "write" if before[name] is None else "change"
        host.changes.append(f"{verb} {name}")
    return changed


def _problem(host: Host, slurm: Slurm, cursor: LogCursor) -> str:
    """Why it does not answer as a backup, in a clause."""
    own = os.uname().nodename.partition(".")[0]
    controllers = dict(slurm.controllers())
    if controllers.get(own):
        return ""
    if own not in controllers:
        return (
            f"slurm.conf names {', '.join(controllers) or 'no controller that answers'} and this host is {own}: name it"
            " in slurm_controller_addresses as hostname -s prints it"
        )
    error = host.last_error(UNIT, cursor, "it does not answer")
    return f"The slurmctld of {own} does not become a backup ({error}): read its log"
