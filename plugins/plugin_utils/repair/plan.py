# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of repair: at most one action a tray, with finding, evidence, reason and the brake that refuses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.journal import Line
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair.ledger import Incident


class Row(TypedDict):
    """One action. tray: the name of a domain where event is true, which has a ticket and no action."""

    tray: str
    action: str
    finding: str
    reason: str
    allowed: bool
    brake: str
    incident: str
    evidence: str
    event: bool


class Settings(TypedDict):
    """limits: hour (trays an hour in all), clique and domain (trays out of service in each)."""

    actions: list[str]
    max_age: int
    limits: dict[str, int]
    rack_share: float
    kill_jobs: bool
    reset: list[str]


@dataclass(frozen=True)
class Plan:
    """lines: decisions and refusals, to append before anything is done. open: incidents that were open before."""

    rows: list[Row]
    lines: list[Line]
    open: list[Incident]


def make(
    verdict: Mapping[str, Any],
    fabric: Fabric,
    nodes: Mapping[str, str] | None,
    known: Sequence[Line],
    settings: Settings,
    blockers: Sequence[str],
    now: str,
) -> Plan:
    """The plan. verdict: content of verdict.json. nodes: tray -> its state in Slurm and the reason; None: no Slurm.

    blockers: sentences on what forbids any action. RepairError for a verdict that is too old or lacks layers.
    """
    raise NotImplementedError


def text(plan: Plan) -> list[str]:
    """The plan as lines of text."""
    raise NotImplementedError
