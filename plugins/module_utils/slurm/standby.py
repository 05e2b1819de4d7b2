# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A second slurmctld: the files of the first one, the same folder of state, and a daemon that waits to take over.

Private to this collection; it may change in any release. Python 3.9, standard library only.

A slurmctld that comes up without the others' state cancels all jobs, so that is looked at before anything: the first
controller leaves a note in StateSaveLocation, and a backup must find the same note there.
"""

from __future__ import annotations

import base64
import os
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import cluster
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.host import Host, LogCursor, ids, read
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.transaction import Files, locked

NOTE = "nvlink_state_id"
# What slurmctld reads beside slurm.conf, its includes apart: the files that it ships to configless trays, and what only
# slurmctld itself reads.
BESIDE = (
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
    """files: name in conf_dir -> bytes, all that the first slurmctld has; log: SlurmctldLogFile."""

    files: Mapping[str, bytes]
    conf_dir: str
    log: str


# --------------------------------------------------------------------------------------------- one folder of state


def leave_note(host: Host, state_dir: str, owner: str) -> None:
    """Have the note in the first controller's StateSaveLocation; it is made once."""
    path = os.path.join(state_dir, NOTE)
    if not re.fullmatch(rb"[0-9a-f]{32}\n", read(path) or b""):
        host.file(path, f"{secrets.token_hex(16)}\n".encode(), owner, 0o600)


def check_state(host: Host, state_dir: str, told: str, user: str) -> None:
    """SlurmError unless this host's StateSaveLocation is the first controller's, and SlurmUser's here too.

    told: the first controller's note as slurp gives it, empty in a check before it has one.
    """
    if host.check and not told:
        return
    note = base64.b64decode(told).decode("ascii", "replace").strip()
    here = (read(os.path.join(state_dir, NOTE)) or b"").decode("ascii", "replace").strip()
    if not note or here != note:
        raise SlurmError(
            f"{state_dir} is not the folder that the first controller has under that name, so a takeover would cancel"
            " all jobs: mount one shared folder there on all controllers, or set slurm_state_dir to one."
        )
    owner = os.stat(state_dir).st_uid
    if not host.check and owner != ids(user)[0]:
        raise SlurmError(
            f"{state_dir} belongs to user {owner} and {user} is {ids(user)[0]} on this host: give {user} the same"
            " number on all controllers."
        )


# ------------------------------------------------------------------------------------------------------- the files


def gather(conf_dir: str) -> dict[str, bytes]:
    """name -> bytes of slurm.conf, what it includes from its own folder, and what slurmctld reads beside it."""
    found: dict[str, bytes] = {}
    pending = [cluster.CONF]
    for _depth in range(_MAX_INCLUDES):
        named: list[str] = []
        for name in pending:
            data = read(os.path.join(conf_dir, name))
            if data is not None and name not in found:
                found[name] = data
                named += cluster.included(data.decode("utf-8", "replace"))
        # One in another folder is the site's, which keeps it alike on its controllers.
        pending = [name for name in named if os.path.basename(name) == name]
    for name in BESIDE:
        data = read(os.path.join(conf_dir, name))
        if data is not None:
            found[name] = data
    return found


def bring_up(host: Host, wish: DesiredState) -> list[str]:
    """Have these files and a slurmctld that waits; the names of the files that change. All is as before on failure."""
    if host.check:
        changed = _changed(host, wish)
        host.run(cluster.UNIT)
        return changed
    if cluster.CONF not in wish.files:
        raise SlurmError("The first controller has no slurm.conf yet: bring it up first.")
    with locked(wish.conf_dir, host.timeout):
        changed = _changed(host, wish)
        written = Files(cluster.ROOTS)
        gone = {name: read(os.path.join(wish.conf_dir, name)) for name in changed if name not in wish.files}
        try:
            for name in sorted(set(changed) - set(gone), key=lambda name: name == cluster.CONF):
                written.write(os.path.join(wish.conf_dir, name), wish.files[name])
            for name in gone:
                os.unlink(os.path.join(wish.conf_dir, name))
            # What else changes is read when it takes over.
            if host.run(cluster.UNIT, restart=cluster.CONF in changed, log=wish.log):
                _wait(host, wish)
        except BaseException as error:
            written.undo()
            for name, data in gone.items():
                written.write(os.path.join(wish.conf_dir, name), data or b"")
            if isinstance(error, OSError):
                raise SlurmError(
                    f"{error.filename or wish.conf_dir} could not be written ({error.strerror}): make room or correct"
                    f" the mode of {wish.conf_dir}; nothing was changed."
                ) from None
            raise
    return changed


def _changed(host: Host, wish: DesiredState) -> list[str]:
    names = {*wish.files, *(name for name in BESIDE if os.path.exists(os.path.join(wish.conf_dir, name)))}
    before = {name: read(os.path.join(wish.conf_dir, name)) for name in sorted(names)}
    changed = [name for name, data in before.items() if data != wish.files.get(name)]
    for name in changed:
        how = "removed" if name not in wish.files else "written" if before[name] is None else "changed"
        host.changes.append(f"{name} {how}")
    return changed


def _wait(host: Host, wish: DesiredState) -> None:
    """Until it answers as a backup: it gives the first one some seconds, and waits for the state's heartbeat."""
    slurm = Slurm("", host.timeout, wish.conf_dir)
    since = LogCursor(wish.log)
    own = os.uname().nodename.partition(".")[0]
    deadline = time.monotonic() + min(host.timeout, 60.0)
    while True:
        known = dict(slurm.controllers())
        if known.get(own):
            return
        if time.monotonic() > deadline:
            break
        time.sleep(0.5)
    if own not in known:
        raise SlurmError(
            f"slurm.conf knows {', '.join(known) or 'no controller that answers'} and this host is {own}: name it in"
            " slurm_controller_addresses as hostname -s does."
        )
    why = host.why(cluster.UNIT, since, "it does not answer")
    raise SlurmError(f"The slurmctld of {own} does not become a backup ({why}): look at its log.")
