# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each layer reported in one run, unprocessed: the input of every check. Pure data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.parts import Facts
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import nvue
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.snapshot import Snapshot
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric, Observation
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.host_errors import cause
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.wish import Wish
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import ansible_facts
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.tray_report import TrayReport


@dataclass(frozen=True)
class Controller:
    """What one Slurm controller reported.

    info: the result of slurm_topology_info. tiers: the result of slurm_tiers in check mode, None where no tiers are
    defined. problem: why it did not answer, empty where it did.
    """

    host: str
    info: Result = field(default_factory=dict)
    tiers: Result | None = None
    problem: str = ""


@dataclass(frozen=True)
class Evidence:
    """The evidence of one run.

    reports: tray -> what it reported, of the trays that this run queried. quick: no tray was queried.
    kubernetes_problem: why there is no snapshot of the cluster. slurm: None where no controller is configured.
    channels: minor numbers that every tray must have; empty for those that most trays of a clique have.
    links_before: what the last run kept of the links (links_check.memory()). is_found: whether commands need no
    -e fabric_file (fabric_file.is_found). acknowledged: tray in repair -> its entry of the state file
    (State.acknowledged). switches: domain -> the reports of its NVLink switches, None where the inventory has none;
    switch_before: what the last run kept of the GPUs (switch_check.memory()). wishes: domain -> the partitions that the
    site wants there.
    """

    fabric: Fabric
    fabric_file: str = "fabric.json"
    quick: bool = False
    reports: Mapping[str, TrayReport] = field(default_factory=dict)
    slurm: Sequence[Controller] | None = None
    kubernetes: Snapshot | None = None
    kubernetes_problem: str = ""
    kubernetes_cluster: str | None = None
    channels: tuple[int, ...] = ()
    links_before: Object = field(default_factory=dict)
    is_found: bool = False
    acknowledged: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    switches: Mapping[str, Sequence[nvue.Report]] | None = None
    switch_before: Object = field(default_factory=dict)
    wishes: Mapping[str, Wish] = field(default_factory=dict)

    @cached_property
    def trays(self) -> dict[str, TrayReport]:
        """Tray -> its report, of those that answered."""
        return {tray: report for tray, report in self.reports.items() if not report.problem}

    @cached_property
    def unreachable(self) -> dict[str, str]:
        """Placed tray -> why it did not answer; without addresses, which differ: so equal causes are one failure."""
        placed = self.fabric.trays
        return {
            tray: cause(report.problem) for tray, report in self.reports.items() if report.problem and tray in placed
        }

    @cached_property
    def observations(self) -> dict[str, Observation]:
        """Tray -> its observation, of placed trays that reported their GPUs."""
        placed = self.fabric.trays
        return {
            tray: report.observation(ansible_facts.SOURCE)
            for tray, report in self.trays.items()
            if tray in placed and report.gpu is not None
        }

    def clique_of(self, tray: str) -> str | None:
        """The clique of a tray in the fabric file; None for a tray that has no place there."""
        return self.fabric.trays[tray]["clique"] if tray in self.fabric.trays else None

    def answered(self, clique: str) -> list[str]:
        """The trays of a clique that answered, in the clique's order."""
        return [tray for tray in self.fabric.members[clique] if tray in self.trays]

    @cached_property
    def imex(self) -> dict[str, Facts | None]:
        """Tray -> its IMEX facts, None where they could not be read; of trays that answered."""
        return {tray: report.imex for tray, report in self.trays.items()}
