# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read slurm.conf with its includes: what matters for the topology and for tiers.

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import HostlistError, expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import syntax
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError

MAIN = "slurm.conf"
# The file with the settings of this collection, with manage_conf.
INCLUDE_NAME = "nvlink_topology.conf"
# No folder in the name: only such an Include is shipped to configless nodes.
TIERS_NAME = "nvlink_partitions.conf"
TIERS_HEADER = "# Written by rackscale.nvlink (slurm_tiers): the next run overwrites changes made here."
# The scripts of the tiers' policy for --segment: of job_submit/lua, what it calls, and of cli_filter/lua.
SCRIPT_NAME = "job_submit.lua"
POLICY_NAME = "nvlink_segments.lua"
CLIENT_NAME = "cli_filter.lua"
SCRIPTS = (SCRIPT_NAME, POLICY_NAME, CLIENT_NAME)
SCRIPT_HEADER = "-- Written by rackscale.nvlink (slurm_tiers): the next run overwrites changes made here."


@dataclass(frozen=True)
class SlurmConf:
    """The settings of slurm.conf and of its includes but those that this collection writes.

    settings: those of _KEYS. node_topologies: node -> the value of Topology= on its NodeName line, which overrides the
    topology file. partitions: name in lower case -> the file that defines it. includes_ours, includes_tiers: whether
    slurm.conf includes the file of the topology's settings, and that of the tiers.
    """

    path: str
    settings: Mapping[str, str] = field(default_factory=dict)
    node_topologies: Mapping[str, str] = field(default_factory=dict)
    partitions: Mapping[str, str] = field(default_factory=dict)
    includes_ours: bool = False
    includes_tiers: bool = False


_KEYS = ("topologyplugin", "topologyparam", "selecttype", "prologflags", "jobsubmitplugins", "clifilterplugins")


def read_slurm_conf(conf_dir: str) -> SlurmConf:
    """Read slurm.conf with its includes; SlurmError where there is none or it cannot be read."""
    path = os.path.join(conf_dir, MAIN)
    settings: dict[str, str] = {}
    node_topologies: dict[str, str] = {}
    partitions: dict[str, str] = {}
    included: set[str] = set()
    default = ""

    def read(name: str) -> str:
        try:
            with open(name, encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError as error:
            if name != path:
                return ""
            raise SlurmError(
                f"{name} cannot be read ({error.strerror}): set conf_dir to the folder of slurm.conf."
            ) from None

    for file, line in syntax.conf_lines(path, read, (INCLUDE_NAME, TIERS_NAME)):
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
            with contextlib.suppress(HostlistError):
                node_topologies.update(dict.fromkeys(expand(lowered["nodename"]), topology))
    return SlurmConf(path, settings, node_topologies, partitions, INCLUDE_NAME in included, TIERS_NAME in included)
