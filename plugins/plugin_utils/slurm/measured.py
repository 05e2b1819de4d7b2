# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the step configure of slurm_step knows of the trays: what a run measured, and what the inventory has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import Finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import hardware
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import node_lines


@dataclass
class Trays:
    """What is known of the trays: by node name what this run measured, by tray name what the inventory has."""

    measured: dict[str, hardware.Record] = field(default_factory=dict)
    channels: dict[str, int] = field(default_factory=dict)
    gpus: dict[str, int] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def of_run(fabric: Fabric, register: str, hostvars: Any) -> Trays:
    """register: the variable with the result of the step prepare_tray; a tray without one was not in this run."""
    found = Trays()
    known = set(hostvars)
    for tray, row in fabric.trays.items():
        if tray not in known:
            continue
        variables = hostvars.raw_get(tray)
        # A fact of the tray could stand in the place of each of them.
        facts = variables.get("ansible_facts") or {}
        gpus, address, answer = (
            None if name in facts else variables.get(name) for name in ("nvlink_gpu_count", "ansible_host", register)
        )
        if str(gpus or "").isdecimal():
            found.gpus[tray] = int(str(gpus))
        if isinstance(address, str) and address:
            found.addresses[tray] = address
        if not isinstance(answer, Mapping) or answer.get("failed") or answer.get("unreachable"):
            continue
        record, channels, findings = node_lines.accepted(tray, answer)
        found.findings += findings
        if record is not None:
            found.measured[row["slurm_node"]] = record
        if channels is not None:
            found.channels[row["slurm_node"]] = channels
    return found


def cluster_of(fabric: Fabric, given: Any, name: str, path: str) -> str | None:
    """The fabric file's Slurm cluster to configure; None where it names none."""
    names = fabric.slurm_clusters
    if not names:
        return None
    chosen = given or next((known for known in names if known.lower() == name.lower()), None)
    if chosen not in names:
        raise fabric_file.FabricFileError(
            f"{path}: has the Slurm clusters {', '.join(names)} and none called {chosen or name};"
            " set cluster to one of them"
        )
    return str(chosen)
