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
import os
from collections.abc import Mapping

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result
from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host, LogCursor, ids, read
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import cluster, keys, syntax
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
    conf_dir = options["conf_dir"]
    files = {str(name): keys.decoded(text, "files") for name, text in options["files"].items()}
    before = gather(conf_dir)
    changed = bring_up(host, files, conf_dir, options["log"])
    return {"diff": cluster.difference(changed, _texts(before), _texts(files))}


def _texts(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: data.decode("utf-8", "replace") for name, data in files.items()}


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
    """name -> bytes of slurm.conf, its includes from the same folder, and the OTHER_FILES that exist.

    Includes from other folders belong to the site, which keeps them equal on its controllers.
    """
    found: dict[str, bytes] = {}
    main = os.path.join(conf_dir, cluster.CONF)

    def load(path: str) -> str:
        data = read(path)
        if data is not None and os.path.dirname(path) == os.path.dirname(main):
            found[os.path.basename(path)] = data
        return (data or b"").decode("utf-8", "replace")

    for _file, _line in syntax.conf_lines(main, load):
        pass
    for name in OTHER_FILES:
        load(os.path.join(conf_dir, name))
    return found


def bring_up(host: Host, files: Mapping[str, bytes], conf_dir: str, log: str) -> list[str]:
    """Write all files of the first slurmctld and start the backup; returns the changed files' names.

    files: name in conf_dir -> bytes. log: SlurmctldLogFile. A failure rolls back.
    """
    if host.check:
        changed = _changed(host, files, conf_dir)
        host.run(UNIT)
        return changed
    if cluster.CONF not in files:
        raise SlurmError("The first controller has no slurm.conf yet: bring it up first.")
    with locked(conf_dir, host.timeout):
        known = stamps(conf_dir)
        changed = _changed(host, files, conf_dir)
        slurm = Slurm("", host.timeout, conf_dir)
        cursor = LogCursor(log)
        # slurmctld reads the other files when it takes over.
        restart = cluster.CONF in changed
        started = False

        def load(_transaction: Transaction) -> str:
            nonlocal started
            started = host.run(UNIT, restart=restart, log=log)
            return ""

        names = sorted(changed, key=lambda name: name == cluster.CONF)
        Transaction(
            slurm,
            conf_dir,
            {os.path.join(conf_dir, name): files.get(name) for name in names},
            what="the new configuration",
            problem=lambda: _problem(host, slurm, cursor) if started else "",
            restored=slurm.answers,
            load=load,
            stamps=known,
            log=log,
            like=cluster.OWNER_OF_NEW_FILES,
            # It gives the primary some seconds, and waits for the state's heartbeat.
            seconds=min(host.timeout, 60.0),
            ran=host.is_active(UNIT),
            restart=restart,
        ).apply()
    return changed


def _changed(host: Host, files: Mapping[str, bytes], conf_dir: str) -> list[str]:
    names = {*files, *(name for name in OTHER_FILES if os.path.exists(os.path.join(conf_dir, name)))}
    before = {name: read(os.path.join(conf_dir, name)) for name in sorted(names)}
    changed = [name for name, data in before.items() if data != files.get(name)]
    for name in changed:
        verb = "remove" if name not in files else "write" if before[name] is None else "change"
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
