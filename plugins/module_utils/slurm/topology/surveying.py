# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the running Slurm and its files; the Ansible controller plans from it (plugin_utils/slurm/observed.py).

Private to this collection; it may change in any release. Python 3.9, standard library only.

Observed on slurmctld 24.11.5 and 26.05.5: ``scontrol show topoconf`` shows the content of
topology.yaml; with topology.conf it is empty even where topology/block runs, so ``scontrol show topology`` is read
there.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import host
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import fold
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import conf, conf_folder, limits, rules, scontrol
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf import (
    MAIN,
    POLICY_NAME,
    SCRIPT_HEADER,
    SCRIPTS,
    read_slurm_conf,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import (
    FILE_NAMES,
    SlurmError,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.tiers.sacctmgr import Sacctmgr

# Of slurm.conf, which may have passwords, no more than these leave the host.
_SETTINGS = """
topologyplugin topologyparam selecttype prologflags suspendtime clustername accountingstoragetype
accountingstorageenforce preempttype priorityweightqos
"""


def texts(conf_dir: str, names: Iterable[str]) -> dict[str, str]:
    """Name -> text of those of these files that exist; of a script of the site, whether it names ours.

    Of a topology file also the former version, where it can be read.
    """
    read = {name: host.read(os.path.join(conf_dir, name)) for name in names}
    found = {name: data.decode("utf-8", "replace") for name, data in read.items() if data is not None}
    former = [name + conf_folder.PREVIOUS for name in read if name in FILE_NAMES.values()]
    reader = conf.reader({})
    found.update((name, text) for name in former if (text := reader(os.path.join(conf_dir, name))) is not None)
    for name in SCRIPTS:
        if name in found and not found[name].startswith(SCRIPT_HEADER):
            found[name] = POLICY_NAME if POLICY_NAME in found[name] else ""
    return found


def checksums(conf_dir: str, names: Iterable[str]) -> dict[str, str]:
    """Name -> SHA-256 of these files; empty where there is none."""
    return {name: conf_folder.checksum(os.path.join(conf_dir, name)) for name in names}


def rows(slurm: Slurm, conf_dir: str, change: Arguments) -> dict[str, Any]:
    """The survey as plain data: plugin_utils/slurm/observed.py has the schema.

    change: files: the names of those that are read, since an unprivileged user may not read all. jobs: whether the jobs
    are read. columns: those of QoS for which slurmdbd is asked, where Slurm has one; empty to ask nothing. SlurmError
    where Slurm is too old, does not answer or has no slurm.conf there.
    """
    version = slurm.version()
    rules.require_supported(version)
    # First: a file that changes meanwhile is then not the known one.
    sums = checksums(conf_dir, (*change["files"], MAIN))
    read, config = read_slurm_conf(conf_dir), slurm.config()
    acting = active_controller(slurm, config)
    _require_same(conf_dir, version, config, acting)
    nodes, partitions = slurm.records("nodes"), slurm.records("partitions")
    shown = slurm.shown()
    records, unanswered = {}, ""
    if change["columns"] and not acting and "slurmdbd" in config.get("accountingstoragetype", ""):
        try:
            records = Sacctmgr(slurm, config.get("clustername", "").lower()).records(change["columns"])
        except SlurmError as error:
            unanswered = str(error)
    return {
        "conf_dir": conf_dir,
        "version": rules.show_version(version),
        "style": rules.style_of(version),
        "acting": acting,
        "config": {
            **{key: config.get(key, "") for key in _SETTINGS.split()},
            "suspendprogram": "set" if config.get("suspendprogram") else "",
        },
        **read,
        "records": records,
        "unanswered": unanswered,
        "texts": texts(conf_dir, change["files"]),
        "checksums": sums,
        "running": scontrol.documents(slurm.topologies(version)),
        "shown": [{**asdict(line), "nodes": fold(line.nodes), "size": line.size or 0} for line in shown],
        "limits": limits.read(slurm, version, config, partitions, shown),
        "nodes": [
            {key: record.get(key, "") for key in ("NodeName", "NodeHostName", "NodeAddr", "State", "Reason")}
            for record in nodes
        ],
        "partitions": partitions,
        "jobs": [{**asdict(job), "nodes": fold(job.nodes)} for job in (slurm.jobs() if change["jobs"] else ())],
    }


def _require_same(conf_dir: str, version: rules.Version, config: Mapping[str, str], acting: str) -> None:
    """SlurmError where slurmctld is of another release than its program, or reads another folder."""
    running = rules.parse_version(config.get("slurm_version", rules.show_version(version)))
    if running[:2] != version[:2]:
        raise SlurmError(
            f"slurmctld {rules.show_version(running)} runs while {rules.show_version(version)} is installed: restart"
            " slurmctld first, so that both read the same topology file."
        )
    reads = os.path.dirname(config.get("slurm_conf", ""))
    # The active controller does not report what a standby reads.
    if not acting and reads and os.path.realpath(reads) != os.path.realpath(conf_dir):
        raise SlurmError(f"slurmctld reads its files from {reads}, not {conf_dir}: set slurm_conf_dir to {reads}.")


def active_controller(slurm: Slurm, config: Mapping[str, str]) -> str:
    """The active controller, where this host is a standby of it; empty where this host is the active one.

    config: ``scontrol show config``. The first SlurmctldHost that answers is active; a host that is none of them (it
    may share the folder) counts as active.
    """
    listed = [value.partition("(")[0] for key, value in config.items() if key.startswith("slurmctldhost")]
    name = socket.gethostname()
    mine = [host for host in listed if host == name or host.partition(".")[0] == name.partition(".")[0]]
    if len(listed) < 2 or not mine:
        return ""
    first = next((host for host, up in slurm.controllers() if up), mine[0])
    return "" if first == mine[0] else first
