# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the step configure of slurm_step knows of the trays: what a run measured, and what the inventory has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from ansible_collections.rackscale.nvlink.plugins.module_utils import text
from ansible_collections.rackscale.nvlink.plugins.module_utils.driver import PARAMETERS
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import hardware
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.hardware import Record
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import clusters

# The most CPUs that a Linux kernel is built for (CONFIG_NR_CPUS: 8192 on x86-64, less on arm64); Slurm's fields have 16
# bits. slurmctld keeps a bit for each core of the cluster, so their product has the same limit.
MAX_CPUS = 8192
# MiB of 52 bits of physical addresses, the most of x86-64 and arm64.
MAX_MEMORY = 1 << (52 - 20)
# NVreg_ImexChannelCount has 20 bits.
MAX_CHANNELS = 1 << 20
# The keys that multiply to the number of hardware threads.
_FACTORS = ("Boards", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore")


@dataclass
class Trays:
    """What is known of the trays: by node name what this run measured, by tray name what the inventory has."""

    measured: dict[str, Record] = field(default_factory=dict)
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
        record, channels, findings = accepted(tray, answer)
        found.findings += findings
        if record is not None:
            found.measured[row["slurm_node"]] = record
        if channels is not None:
            found.channels[row["slurm_node"]] = channels
    return found


def accepted(tray: str, answer: Mapping[str, object]) -> tuple[Record | None, int | None, list[Finding]]:
    """The hardware and the number of IMEX channels in a tray's answer, each None if unknown.

    answer: the result of the step prepare_tray, any data. Nothing is taken of one with an impossible value, which is a
    finding of that tray.
    """
    given, channels = answer.get("hardware"), answer.get("channel_count")
    record = None
    if isinstance(given, Mapping):
        record = {key: given[key] for key in hardware.KEYS if given.get(key) is not None}
    problem = _problem(record) if record is not None else ""
    if not problem and channels is not None and not _is_between(0, channels, MAX_CHANNELS):
        problem = f"no possible number of IMEX channels in {PARAMETERS}"
    if problem:
        message = (
            f"Tray {tray} reports impossible hardware ({problem}), so its line in slurm.conf stays as it was: run"
            " slurmd -C on it, and check its root."
        )
        return None, None, [finding("slurm_hardware_assumed", message, tray=tray)]
    return record, cast("int | None", channels), []


def _problem(record: Mapping[str, Any]) -> str:
    """What is impossible in a tray's hardware; empty if nothing is."""
    for key in ("CPUs", "RealMemory", *record):
        most = MAX_MEMORY if key == "RealMemory" else MAX_CPUS
        if not _is_between(1, record.get(key), most):
            return f"{key} is not a number from 1 to {most}"
    threads = math.prod(record.get(key, 1) for key in _FACTORS)
    if any(key in record for key in _FACTORS) and not record["CPUs"] <= threads <= MAX_CPUS:
        return f"{text.count(record['CPUs'], 'CPU')} of {text.count(threads, 'hardware thread')}"
    if record["RealMemory"] < record["CPUs"]:
        return f"{record['RealMemory']} MiB of memory for {record['CPUs']} CPUs"
    return ""


def _is_between(least: int, value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def cluster_of(fabric: Fabric, given: Any, name: str, path: str) -> str | None:
    """The fabric file's Slurm cluster to configure; None where it names none."""
    known = next((cluster for cluster in fabric.slurm_clusters if cluster.lower() == name.lower()), name)
    return clusters.choose(fabric, given or known, path) if fabric.slurm_clusters else None
