# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A backup slurmctld: the files of the primary one, the same StateSaveLocation, and a daemon that waits to take over.

Private to this collection; it may change in any release. Python 3.9, standard library only.

A slurmctld that starts without the other's state cancels all jobs, so the role checks that first (tasks/shared.yml).
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result
from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host, LogCursor, read
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import cluster, keys, syntax
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf_folder import Checksums, checksums, locked
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.transaction import UNIT, Transaction

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


def read_files(_host: Host, options: Arguments) -> Result:
    """The step read_files of slurm_step: the files of the first slurmctld in Base64."""
    files = gather(options["conf_dir"])
    return {"files": {name: base64.b64encode(data).decode("ascii") for name, data in files.items()}}


def start_backup(host: Host, options: Arguments) -> Result:
    """The step start_backup: write the files of read_files and start slurmctld. A failure rolls back."""
    conf_dir = options["conf_dir"]
    files = {str(name): keys.decoded(text, "files") for name, text in options["files"].items()}
    for name in files:
        # Else it could be a file of another folder. A null byte is in no file name either.
        if os.path.basename(name) != name or name in ("", ".", "..") or "\0" in name:
            raise SlurmError(
                f"The first controller returned {name!r}, which is no file name: check that host; nothing was written."
            )
    if not host.check and cluster.CONF not in files:
        raise SlurmError("The first controller has no slurm.conf yet: bring it up first.")
    with locked(conf_dir, host.timeout, host.check):
        known = checksums(conf_dir)
        found = {name: read(os.path.join(conf_dir, name)) for name in {*files, *OTHER_FILES}}
        before = cluster.as_texts(found)
        # slurm.conf last: it includes the others.
        changed = sorted(
            (name for name in found if found[name] != files.get(name)), key=lambda name: (name == cluster.CONF, name)
        )
        for name in changed:
            verb = "remove" if name not in files else "change" if name in before else "write"
            host.changes.append(f"{verb} {name}")
        if host.check:
            host.run(UNIT)
        else:
            _load(host, options, {os.path.join(conf_dir, name): files.get(name) for name in changed}, known)
    return {"diff": cluster.difference(changed, before, cluster.as_texts(files))}


def _load(host: Host, options: Arguments, files: Mapping[str, bytes | None], known: Checksums) -> None:
    slurm = Slurm("", host.timeout, options["conf_dir"])
    cursor = LogCursor(options["log"])
    # slurmctld reads the other files when it takes over.
    restart = os.path.join(options["conf_dir"], cluster.CONF) in files
    started = False

    def load(_transaction: Transaction) -> str:
        nonlocal started
        started = host.run(UNIT, restart=restart, log=options["log"])
        return ""

    cluster.transaction_of(
        host,
        slurm,
        options,
        files,
        problem=lambda: _problem(host, slurm, cursor) if started else "",
        restored=slurm.answers,
        load=load,
        known=known,
        restart=restart,
    ).apply()


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
