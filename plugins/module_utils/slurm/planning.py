# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From what is there and what is wanted to what would be done. Reads through the survey, writes nothing.

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import files, rules
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.comparing import describe, difference
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf import INCLUDE_NAME
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import YAML, Block, Topology
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.surveying import Survey, read_file

Finding = dict[str, Any]


@dataclass(frozen=True)
class Wish:
    """What a caller wants to run: the blocks in order, sizes (empty: chosen here), the topology's name, policy."""

    blocks: tuple[Block, ...]
    block_sizes: tuple[int, ...] = ()
    name: str = "nvlink"
    manage_conf: bool = False
    segments: tuple[int, ...] = ()


@dataclass
class Plan:
    """What would be done: the new bytes of each file, what is in the way, and the difference in a person's words."""

    survey: Survey
    topology: Topology
    wanted: list[Topology]
    settings: dict[str, str]
    findings: list[Finding]
    writes: dict[str, bytes]
    reconfigure: bool
    moves: list[dict[str, str | None]]
    difference: list[str]

    @property
    def changed(self) -> bool:
        return bool(self.writes) or self.reconfigure

    def stopped_by(self) -> list[Finding]:
        """The findings that forbid to write anything."""
        # A topology.conf that no plugin reads yet is harmless, and must be there before the plugin is set.
        return [
            found for found in self.findings if found["severity"] == "error" and found["code"] != "slurm_plugin_missing"
        ]


def plan(seen: Survey, wish: Wish) -> Plan:
    """Compare the wish with what is there; reads, writes nothing."""
    blocks, findings = rules.drop_placeholders(wish.blocks, seen.version)
    sizes = wish.block_sizes or rules.auto_block_sizes(blocks, seen.version)
    # Slurm calls the one topology of a topology.conf "default".
    name = wish.name if seen.style == YAML else "default"
    topology = Topology(name=name, blocks=blocks, block_sizes=sizes)
    written = seen.written()
    others: list[Topology] = []
    if seen.style == YAML:
        others = [replace(other, cluster_default=False) for other in written if other.name != name]
    elif any(other.kind != "block" for other in written):
        message = f"{seen.path} holds a tree (SwitchName lines), which would be lost: move it away first."
        findings.append(finding("slurm_topology_foreign", message))
    before = seen.running_topology(name)
    overrides = _overrides(seen, topology)
    findings += rules.lint(
        rules.Candidate(
            version=seen.version,
            style=seen.style,
            topology=topology,
            known_nodes=seen.slurm.nodes(),
            partitions=seen.slurm.partitions(),
            previous=before,
            others=tuple(others),
            segments=wish.segments,
            node_topologies=overrides,
        )
    )
    findings += rules.twin_findings(seen.style, seen.version, seen.twin)
    findings += rules.settings_findings(seen.style, seen.config, seen.conf.settings, wish.manage_conf)
    for other in others:
        findings.append(
            finding("slurm_other_topology", f"The topology {other.name} ({other.kind}) stays beside {name}.")
        )
    # Where a site has put it among the others it stays: a topology that was made by hand is adopted as it is.
    number = next((number for number, known in enumerate(written) if known.name == name), 0) if others else 0
    wanted = [*others[:number], topology, *others[number:]]
    writes = {}
    if not _same(written, wanted):
        writes[seen.path] = files.render(wanted, seen.style).encode()
    if wish.manage_conf:
        writes.update(_managed(seen))
    # Where topology.conf is not read yet there is nothing to compare with, and nothing to load.
    loaded = seen.style == YAML or rules.satisfies("TopologyPlugin", seen.plugin)
    settings = rules.wanted_settings(seen.style) if wish.manage_conf else {}
    unset = [key for key in settings if not rules.satisfies(key, seen.config.get(key.lower(), ""))]
    reconfigure = (loaded or wish.manage_conf) and (bool(writes or unset) or difference(topology, seen) != "")
    moves, lines = describe(before if before is not None else same_named(written, name), topology)
    if not lines and writes.get(seen.path) is not None:
        lines = [f"{os.path.basename(seen.path)}: {'written anew' if seen.file is not None else 'created'}"]
    lines += [f"{os.path.basename(path)}: {_summary(data)}" for path, data in writes.items() if path != seen.path]
    if reconfigure and not lines:
        lines = ["slurmctld: runs another topology than its file, and reads the file again"]
    return Plan(seen, topology, wanted, settings, findings, writes, reconfigure, moves, lines)


def _overrides(seen: Survey, topology: Topology) -> dict[str, str]:
    """node -> block for the NodeName lines in slurm.conf that place a node in this topology themselves."""
    placed = {}
    for node, text in seen.conf.node_topologies.items():
        for part in text.split(","):
            name, _colon, unit = part.strip().partition(":")
            if name == topology.name and unit:
                placed[node] = unit
    return placed


def same_named(topologies: Sequence[Topology], name: str) -> Topology | None:
    return next((known for known in topologies if known.name == name and known.kind == "block"), None)


def _same(written: Sequence[Topology], wanted: Sequence[Topology]) -> bool:
    return [known.essence() for known in written] == [known.essence() for known in wanted]


def _managed(seen: Survey) -> dict[str, bytes]:
    """Our include file and the Include line in slurm.conf, as far as they are not there yet."""
    settings = [
        f"{key}={value}"
        for key, value in rules.wanted_settings(seen.style).items()
        if key.lower() not in seen.conf.settings
    ]
    path = os.path.join(seen.conf_dir, INCLUDE_NAME)
    text = "\n".join([files.HEADER, *settings]) + "\n"
    writes: dict[str, bytes] = {}
    if not settings and not seen.conf.includes_ours:
        return writes
    if read_file(path) != text.encode():
        writes[path] = text.encode()
    if not seen.conf.includes_ours:
        data = read_file(seen.conf.path) or b""
        # No folder in the name: only such an include travels to configless nodes.
        writes[seen.conf.path] = (
            data + (b"" if data.endswith(b"\n") or not data else b"\n") + f"Include {INCLUDE_NAME}\n".encode()
        )
    return writes


def _summary(data: bytes) -> str:
    lines = [line for line in data.decode("utf-8", "replace").splitlines() if line and not line.startswith("#")]
    return f"gets the line {lines[-1]}" if lines and lines[-1].startswith("Include ") else ", ".join(lines) or "emptied"
