# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read slurm.conf with its includes: what matters for the topology and for tiers.

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Callable

from ansible_collections.rackscale.nvlink.plugins.module_utils import host
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import syntax
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import FILE_NAMES, SlurmError, names_of

MAIN = "slurm.conf"
# The file with the settings of this collection, with manage_conf.
INCLUDE_NAME = "nvlink_topology.conf"
# No folder in the name: only such an Include is shipped to configless nodes.
TIERS_NAME = "nvlink_partitions.conf"
TIERS_HEADER = "# Written by rackscale.nvlink (slurm_tiers): the next run overwrites changes made here."
# The scripts of the tiers' policy for --segment: of job_submit/lua, and what it calls.
SCRIPT_NAME = "job_submit.lua"
POLICY_NAME = "nvlink_segments.lua"
SCRIPTS = (SCRIPT_NAME, POLICY_NAME)
SCRIPT_HEADER = "-- Written by rackscale.nvlink (slurm_tiers): the next run overwrites changes made here."


_KEYS = ("topologyplugin", "topologyparam", "selecttype", "prologflags", "jobsubmitplugins")


Reader = Callable[[str], "str | None"]
"""The text of a file by its path; None where it cannot be read."""


def reader(writes: Mapping[str, bytes | None]) -> Reader:
    """Read files as they would be after ``writes``: path -> new bytes, None where it is removed."""
    changed = {os.path.realpath(path): data for path, data in writes.items()}

    def read(path: str) -> str | None:
        path = os.path.realpath(path)
        data = changed.get(path)
        if path not in changed:
            with contextlib.suppress(NvlinkError):
                data = host.read(path)
        return None if data is None else data.decode("utf-8", "replace")

    return read


def lines(conf_dir: str, read: Reader, skip: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """As syntax.conf_lines(); a file that cannot be read has no lines."""
    return syntax.conf_lines(os.path.join(conf_dir, MAIN), lambda path: read(path) or "", skip)


def topologies(conf_dir: str, read: Reader) -> dict[str, str]:
    """Name -> text of the topology files that are there."""
    texts = {name: read(os.path.join(conf_dir, name)) for name in FILE_NAMES.values()}
    return {name: text for name, text in texts.items() if text is not None}


def read_slurm_conf(conf_dir: str) -> dict[str, Any]:
    """The part of a survey from slurm.conf and its includes but those that this collection writes.

    settings: those of _KEYS. node_topologies: node -> the value of Topology= on its NodeName line, which overrides the
    topology file. site_partitions: name in lower case -> the file that defines it. includes_ours, includes_tiers:
    whether slurm.conf includes the file of the topology's settings, and that of the tiers. SlurmError where there is no
    slurm.conf or it cannot be read.
    """
    settings: dict[str, str] = {}
    node_topologies: dict[str, str] = {}
    partitions: dict[str, str] = {}
    included: set[str] = set()
    default = ""

    read = reader({})
    if read(path := os.path.join(conf_dir, MAIN)) is None:
        remedy = "correct the group slurm_controller, set slurm_conf_dir to the folder of slurm.conf, or run as root"
        raise SlurmError(f"{path} cannot be read: {remedy}.")
    for file, line in lines(conf_dir, read, (INCLUDE_NAME, TIERS_NAME)):
        included.add(os.path.basename(syntax.include_of(line)))
        pairs = syntax.key_values(line)
        lowered = {key.lower(): value for key, value in pairs}
        settings.update((key, lowered[key]) for key in _KEYS if key in lowered)
        first = pairs[0][0].lower() if pairs else ""
        if first == "partitionname":
            partitions.setdefault(lowered[first].lower(), file)
        if first != "nodename":
            continue
        topology = lowered.get("topology", default)
        if lowered["nodename"].upper() == "DEFAULT":
            default = topology  # of the lines that follow
        elif topology:
            node_topologies.update(dict.fromkeys(names_of(lowered["nodename"]), topology))
    return {
        "settings": settings,
        "node_topologies": node_topologies,
        "site_partitions": partitions,
        "includes_ours": INCLUDE_NAME in included,
        "includes_tiers": TIERS_NAME in included,
    }
