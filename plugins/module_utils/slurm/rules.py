# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Versions of Slurm, and what the host of slurmctld must know of each; the linter is on the Ansible controller. Pure.

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import (
    CONF,
    YAML,
    SlurmError,
    Topology,
    names_of,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.syntax import known_minutes

Version = tuple[int, int, int]

OLDEST: Version = (24, 5, 0)
YAML_SINCE: Version = (25, 5, 0)
NODE_RANK_SINCE: Version = (25, 11, 0)
MAX_NODES = 65536  # MaxNodeCount's limit
# A node whose state has one of these flags gets no new job, or only those of its reservation.
RESERVED = frozenset(("MAINTENANCE", "REBOOT_ISSUED", "RESERVED"))
# A node whose state has one of these runs a job.
TAKEN = frozenset(("ALLOCATED", "COMPLETING", "MIXED"))
UNAVAILABLE = RESERVED | {"DOWN", "DRAIN", "FAIL", "FAILING", "FUTURE", "NOT_RESPONDING", "UNKNOWN"}


@dataclass(frozen=True)
class Partition:
    """A partition as slurmctld runs it; topology is empty where it uses the cluster's default.

    min_nodes, max_nodes: the numbers of nodes that a job there may have. minutes: its time limit, None for none.
    default: whether it is the cluster's default partition. qos: its own QoS, empty for none.
    """

    name: str
    nodes: tuple[str, ...] = ()
    topology: str = ""
    min_nodes: int = 1
    max_nodes: int = MAX_NODES
    state: str = "UP"
    minutes: int | None = None
    default: bool = False
    qos: str = ""

    def uses(self, topology: Topology) -> bool:
        """Whether its jobs are placed by this topology."""
        return self.topology == topology.name if self.topology else topology.cluster_default

    def fits(self, number: int) -> bool:
        """Whether a job of so many nodes may run there."""
        return self.min_nodes <= number <= self.max_nodes


def partitions_of(records: Iterable[Mapping[str, str]]) -> list[Partition]:
    """The partitions in what ``scontrol -o show partitions`` prints; without nodes where these cannot be read."""
    found = []
    for record in records:
        nodes = tuple(names_of(record.get("Nodes", "")))
        topology, qos = record.get("Topology", "").replace("(null)", ""), record.get("QoS", "").replace("N/A", "")
        limits = (record.get("MinNodes", ""), "1"), (record.get("MaxNodes", ""), str(MAX_NODES))
        least, most = (int(text if text.isdecimal() else none) for text, none in limits)
        minutes, state = known_minutes(record.get("MaxTime", "")), record.get("State", "")
        name, default = record.get("PartitionName", ""), record.get("Default") == "YES"
        found.append(Partition(name, nodes, topology, max(1, least), most, state, minutes, default, qos))
    return found


def parse_version(text: str) -> Version:
    """The version in what ``slurmctld -V`` or ``scontrol --version`` prints (``slurm-wlm 24.11.5``)."""
    match = re.search(r"(?:^|\s)(?:slurm\S*\s+)?(\d+)\.(\d+)(?:\.(\d+))?", text)
    if match is None:
        raise SlurmError(f"Slurm's version cannot be read from {text.strip()[:80]!r}: check slurm_topology_bin_dir.")
    return int(match.group(1)), int(match.group(2)), int(match.group(3) or 0)


def show_version(version: Version) -> str:
    return f"{version[0]:02d}.{version[1]:02d}.{version[2]}"


def require_supported(version: Version) -> None:
    """Raise SlurmError for a Slurm whose topology/block is not supported."""
    if version < OLDEST:
        raise SlurmError(
            f"Slurm {show_version(version)} is too old: topology/block came with 23.11, whose BlockLevels key counts"
            " levels where BlockSizes (24.05) counts nodes; upgrade Slurm to 24.05 or later."
        )


def style_of(version: Version) -> str:
    """The style of file: topology.yaml from 25.05, topology.conf before."""
    return YAML if version >= YAML_SINCE else CONF


def segment_limit(version: Version, base: int) -> int | None:
    """The largest ``--segment`` that Slurm accepts, None where there is no limit (25.11 and later; from source)."""
    return base if version < (25, 11, 0) else None
