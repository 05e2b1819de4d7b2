# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What report and metrics show of repair: incidents, repeat offenders, hours lost and spare trays. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import natural_sorted
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import RenderContext
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair import ledger
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair.offenders import Offender, offenders
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import node_states, spans

KINDS = ("tray", "gpu", "link", "switch_port")
REPEATED = 2
"""So many incidents in 30 days make a part a repeat offender."""


@dataclass(frozen=True)
class Repairs:
    """The incidents of the ledger, which keeps 30 days and the open ones.

    hours: tray -> how many it was out of service, most first. stopped: the limits that a person has to reset, such as
    hour or clique r01.
    """

    incidents: tuple[ledger.Incident, ...]
    offenders: tuple[Offender, ...]
    hours: dict[str, float]
    stopped: tuple[str, ...]

    @property
    def open(self) -> list[ledger.Incident]:
        """The open incidents, the oldest first."""
        return [one for one in self.incidents if one.closed_at is None]


@dataclass(frozen=True)
class Spares:
    """The spare trays of a block; its cluster is empty where there is one.

    wanted: its trays above spares_active. reserved: trays in a reservation. free: those of them that are healthy and
    without a job. promoted: spares that run jobs in place of trays that cannot. missing: neither reserved nor promoted.
    """

    cluster: str
    block: model.BlockView
    wanted: int
    reserved: int
    free: int
    promoted: int
    missing: int


def repairs(context: RenderContext) -> Repairs | None:
    """What the ledger has; None where there is no line yet.

    Open incidents last until the verdict or the last line, whichever is later: the same files give the same bytes.
    """
    if not context.repairs:
        return None
    times = [context.repairs[-1]["at"], *filter(None, [context.verdict and context.verdict["checked_at"]])]
    known = offenders(context.repairs, max(times, key=ledger.when))
    worst = sorted(known, key=lambda one: -one.hours)
    return Repairs(
        incidents=tuple(ledger.incidents(context.repairs).values()),
        offenders=tuple(one for one in known if one.count >= REPEATED),
        hours={one.name: one.hours for one in worst if one.kind == "tray" and one.hours},
        stopped=tuple(natural_sorted(ledger.tripped(context.repairs))),
    )


def reached(incident: ledger.Incident) -> str:
    """The last step of an incident and its state, such as action failed."""
    step = [name for name in ledger.STEPS if name in incident.steps][-1]
    return f"{step} {incident.steps[step]}"


def spares(fabric: model.Fabric, state: model.State, context: RenderContext) -> list[Spares]:
    """The spares of each block that is to have some; none where their number or the states in Slurm are unknown."""
    nodes, active = context.nodes or {}, context.spares_active
    without_job = node_states.without_job(nodes)
    return [
        _spares(cluster, block, state, without_job, len(block.trays) - active)
        for cluster in fabric.slurm_clusters or [""]
        for block in fabric.slurm_blocks(cluster or None)
        if 0 < active < len(block.trays) and not nodes.keys().isdisjoint(block.trays)
    ]


def _spares(cluster: str, block: model.BlockView, state: model.State, without_job: set[str], wanted: int) -> Spares:
    known = {name: state.trays.get(name) for name in block.trays}
    reserved = {name: tray["health"] for name, tray in known.items() if tray and tray["state"] == node_states.RESERVED}
    free = sum(name in without_job and health != model.UNHEALTHY for name, health in reserved.items())
    away = len(known) - len(reserved) - sum(map(spans.works, known.values()))
    due = max(0, wanted - len(reserved))
    return Spares(cluster, block, wanted, len(reserved), free, min(due, away), max(0, due - away))
