# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host of slurmctld returned of it (topology/surveying.py), checked and typed. Pure."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, host_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.node_names import NodeNames, of_slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import rules
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf import MAIN
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf_folder import PREVIOUS
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Job
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import (
    CONF,
    FILE_NAMES,
    HEADER,
    YAML,
    ShownBlock,
    SlurmError,
    Topology,
    names_of,
    topologies_of,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.topology.comparing import Running
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.deadline import limited_memory
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import topology_files

MAX_MEMORY = 256 * 1024 * 1024


@dataclass
class Observed:
    """The running Slurm and its files.

    settings, node_topologies, site_partitions, includes_ours, includes_tiers: as of conf.read_slurm_conf().
    texts: name -> text of the files of this collection that exist (surveying.texts). checksums: name -> SHA-256.
    acting: the active controller, where the host is a standby. partition_records: as scontrol shows them. records,
    unanswered: what sacctmgr has printed, if it was asked, and why it has not. limits: as of limits.read().
    """

    conf_dir: str
    version: rules.Version
    style: str
    config: Mapping[str, str]
    running: list[Topology]
    shown: list[ShownBlock]
    settings: Mapping[str, str] = field(default_factory=dict)
    node_topologies: Mapping[str, str] = field(default_factory=dict)
    includes_ours: bool = False
    texts: Mapping[str, str] = field(default_factory=dict)
    checksums: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[NodeNames, ...] = ()
    states: Mapping[str, frozenset[str]] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    partitions: tuple[rules.Partition, ...] = ()
    jobs: tuple[Job, ...] = ()
    acting: str = ""
    partition_records: tuple[Mapping[str, str], ...] = ()
    site_partitions: Mapping[str, str] = field(default_factory=dict)
    includes_tiers: bool = False
    records: Mapping[str, str] = field(default_factory=dict)
    unanswered: str = ""
    limits: tuple[str, ...] = ()

    @classmethod
    def of(cls, rows: Any) -> Observed:
        """The rows that a host returned; SlurmError where they are not those of surveying.rows()."""
        with complete(rows):
            nodes, jobs = [*map(_texts, rows["nodes"])], map(_texts, rows["jobs"])
            partitions = [{**_texts(row), "PartitionName": str(row["PartitionName"])} for row in rows["partitions"]]
            same = ("conf_dir", "includes_ours", "includes_tiers", "acting", "unanswered")
            maps = ("config", "settings", "node_topologies", "site_partitions", "texts", "checksums", "records")
            given: dict[str, Any] = {name: rows[name] for name in same}
            given.update((name, _texts(rows[name])) for name in maps)
            return cls(
                version=rules.parse_version(rows["version"]),
                style={YAML: YAML, CONF: CONF}[rows["style"]],
                running=topologies_of(rows["running"]),
                shown=[ShownBlock(**{**row, "nodes": tuple(names_of(row["nodes"]))}) for row in rows["shown"]],
                nodes=tuple(map(of_slurm, nodes)),
                states={row["NodeName"]: frozenset(row["State"].upper().split("+")) for row in nodes},
                reasons={row["NodeName"]: row["Reason"] for row in nodes},
                partitions=tuple(rules.partitions_of(partitions)),
                jobs=tuple(
                    Job(row["id"], row["user"], row["partition"], tuple(names_of(row["nodes"]))) for row in jobs
                ),
                partition_records=tuple(partitions),
                limits=tuple(map(str, rows["limits"])),
                **given,
            )

    @property
    def path(self) -> str:
        return os.path.join(self.conf_dir, FILE_NAMES[self.style])

    @property
    def main(self) -> str:
        return os.path.join(self.conf_dir, MAIN)

    @property
    def file(self) -> str | None:
        """The text of the topology file; None where there is none."""
        return self.texts.get(FILE_NAMES[self.style])

    @property
    def duplicate(self) -> list[HostFinding]:
        """The finding about a topology file of the other format that slurmctld does not read."""
        other, case = (FILE_NAMES[CONF], "other_file") if self.style == YAML else (FILE_NAMES[YAML], "other_file_later")
        # As long as slurmctld has loaded no topology.yaml, topology.conf is the only copy of what runs.
        unread = other in self.texts and (self.style == CONF or (self.file is not None and bool(self.running)))
        return [host_finding("slurm_conf_advice", case)] if unread else []

    @property
    def runs(self) -> Running:
        return Running(self.running, self.shown, self.config)

    @property
    def version_text(self) -> str:
        return rules.show_version(self.version)

    @property
    def plugin(self) -> str:
        return self.config.get("topologyplugin", "")

    @property
    def cluster(self) -> str:
        """ClusterName in lower case, as slurmdbd stores it."""
        return self.config.get("clustername", "").lower()

    @property
    def base(self) -> int:
        """The running base block size, 0 without blocks."""
        return min((line.size for line in self.shown if not line.aggregated and line.size), default=0)

    @property
    def power_saving(self) -> bool:
        """Whether slurmctld powers idle nodes down."""
        after = self.config.get("suspendtime", "").split(" ")[0].upper()
        return bool(self.config.get("suspendprogram")) and after not in ("", "-1", "INFINITE", "NONE")

    @cached_property
    def tree(self) -> Topology | None:
        """The running tree of a topology.conf that a topology.yaml would hide."""
        if self.style != YAML or self.file is not None or self.plugin.lower() != "topology/tree":
            return None
        try:
            return topology_files.tree_of(self.texts.get(FILE_NAMES[CONF], ""))
        except SlurmError as error:
            raise SlurmError(f"{os.path.join(self.conf_dir, FILE_NAMES[CONF])}: {error}") from None

    def written(self) -> list[Topology]:
        """The topologies of the topology file; SlurmError where it cannot be read.

        Where slurmctld would read a first topology.yaml instead of the site's tree, that tree.
        """
        if self.file is None:
            return [self.tree] if self.tree else []
        try:
            return topology_files.parse(self.file, self.style)
        except SlurmError as error:
            raise SlurmError(f"{self.path}: {error}") from None

    def site_sizes(self, name: str) -> tuple[int, ...]:
        """The block sizes of that topology, or of the topology.conf that is read, where the site has written them."""
        style = CONF if self.file is None else self.style
        text = self.texts.get(FILE_NAMES[style], "")
        try:
            found = [] if text.startswith(HEADER) else topology_files.parse(text, style)
        except SlurmError:
            return ()
        return next(
            (known.block_sizes for known in found if known.kind == "block" and known.name in (name, "default")), ()
        )

    def replaced(self) -> list[Topology]:
        """The topologies of the file that the last apply has replaced; none where it cannot be read."""
        try:
            return topology_files.parse(self.texts.get(FILE_NAMES[self.style] + PREVIOUS, ""), self.style)
        except SlurmError:
            return []

    def named(self) -> list[str]:
        """What the header of the topology file names: other topologies of earlier runs, or blocks that are left out."""
        return self.own_topologies() or topology_files.left_out(self.file or "")

    def own_topologies(self) -> list[str]:
        """The other topologies that an earlier run has written into the file."""
        return topology_files.own_topologies(self.file or "") if self.style == YAML else []


@contextmanager
def bounded() -> Iterator[None]:
    """SlurmError where a survey costs too much memory: a hostlist of a few characters can name 65,536 nodes."""
    try:
        with limited_memory(MAX_MEMORY):
            yield
    except MemoryError:
        raise SlurmError("The host's survey of Slurm names more nodes than Slurm can have: check the host.") from None


@contextmanager
def complete(rows: Any) -> Iterator[None]:
    """SlurmError where the rows of a survey have a null, or are not what is done with them here."""
    try:
        if not _is_complete(rows):
            raise ValueError
        yield
    except (KeyError, TypeError, AttributeError, ValueError):
        raise SlurmError("The host returned no complete survey of Slurm: check the host.") from None


def _is_complete(value: Any) -> bool:
    """Whether no part of it is null, which the schema of a module's answer accepts."""
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return value is not None and all(map(_is_complete, parts))


def _texts(rows: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in rows.items()}
