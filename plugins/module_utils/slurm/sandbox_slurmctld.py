# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A slurmctld of its own in a sandbox (sandbox.py), and its clients; runs inside the sandbox.

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Mapping

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import scontrol
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.sandbox import (
    ADDRESS,
    DAEMON,
    FOLDER,
    HOST,
    Sandbox,
    Timeout,
)

# The settings of a site's slurm.conf on which its lines of nodes and partitions depend.
KEPT = """
clustername selecttype selecttypeparameters topologyplugin topologyparam grestypes maxnodecount plugindir defmempernode
defmempercpu defmempergpu defcpupergpu maxmempernode maxmempercpu jobdefaults
"""
# slurmctld's saved copy of slurmdbd's records, used when it starts and slurmdbd does not answer.
RECORDS = ("assoc_mgr_state", "last_tres", "clustername")
# Nothing answers there, so slurmctld uses the saved records of the site's slurmctld.
NO_DATABASE = (
    "AccountingStorageType=accounting_storage/slurmdbd",
    "AccountingStorageHost=127.0.0.1",
    "AccountingStoragePort=9",
)

_SETTINGS = f"""\
SlurmctldHost={HOST}({ADDRESS})
SlurmctldPort=6817
SlurmdPort=6818
SlurmUser=nvlink-daemon
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={FOLDER}/state
SlurmctldPidFile={FOLDER}/state/pid
SlurmctldLogFile={FOLDER}/state/log
SlurmctldDebug=info
ProctrackType=proctrack/pgid
TaskPlugin=task/none
EnforcePartLimits=ALL
MailProg=/bin/true
MessageTimeout=60
"""


def load(sandbox: Sandbox, text: str, topologies: Mapping[str, str]) -> str:
    """Start slurmctld with these lines of slurm.conf and topology files; its error message, empty once it answers."""
    sandbox.owned(sandbox.path("state"))
    sandbox.owned("/run/slurmctld")
    for name in (*scontrol.FILE_NAMES.values(), "state/log"):
        if os.path.exists(sandbox.path(name)):
            os.unlink(sandbox.path(name))
    for name, topology in topologies.items():
        sandbox.write(name, topology)
    sandbox.write("cgroup.conf", "CgroupPlugin=disabled\n")
    sandbox.write("client/cgroup.conf", "CgroupPlugin=disabled\n")
    lines = [*_SETTINGS.splitlines(), *text.splitlines()]
    if not any(line.lower().startswith("clustername=") for line in lines):
        lines.append("ClusterName=rehearsal")
    conf = sandbox.write("slurm.conf", "".join(f"{line}\n" for line in lines))
    # Clients print some settings, such as PreemptMode, from their own file. They need no nodes, so they get none.
    lines = [line for line in lines if not line.lower().startswith(("nodename=", "partitionname=", "nodeset="))]
    sandbox.write("client/slurm.conf", "".join(f"{line}\n" for line in lines))
    daemon = sandbox.start("slurmctld", "-D", "-f", conf, output="state/output", SLURM_CONF=conf)
    while daemon.poll() is None:
        if sandbox.left <= 0:
            raise Timeout(f"its slurmctld does not answer in time ({last_error(sandbox)})")
        if client(sandbox, "scontrol", "ping").stdout.find(" is UP") >= 0:
            return ""
        time.sleep(0.02)
    return last_error(sandbox) or f"it ended with {daemon.returncode}"


def client(sandbox: Sandbox, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return sandbox.run(name, *arguments, SLURM_CONF=sandbox.path("client/slurm.conf"))


def load_records(sandbox: Sandbox, saved: Mapping[str, bytes]) -> None:
    """Give the next slurmctld the records that the site's slurmctld has saved, by RECORDS."""
    sandbox.owned(sandbox.path("state"))
    for name, data in saved.items():
        path = sandbox.write(f"state/{name}", data)
        os.chmod(path, 0o600)
        os.chown(path, DAEMON, DAEMON)


def read(sandbox: Sandbox, name: str, start: int = 0) -> str:
    try:
        with open(sandbox.path(name), "rb") as file:
            file.seek(start)
            return file.read(1 << 20).decode("utf-8", "replace")
    except OSError:
        return ""


def last_error(sandbox: Sandbox) -> str:
    """The last fatal line of the log, else the last error, else the last line; without its timestamp."""
    lines = [
        line for name in ("state/output", "state/log") for line in read(sandbox, name).splitlines() if line.strip()
    ]
    for mark in ("fatal: ", "error: "):
        found = [line.partition(mark)[2].strip() for line in lines if mark in line]
        if found:
            return found[-1][:300]
    return re.sub(r"^\[[^]]*\]\s*", "", lines[-1])[:300] if lines else ""
