# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What report and metrics show of repair: incidents, repeat offenders, hours lost and spare trays. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import natural_sorted
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import RenderContext
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair import ledger
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair.offenders import Offender, hours_lost, offenders
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import spans
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.node_states import RESERVED

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
    """The spare trays of a clique: configured, reserved and fit for service, and those that are not fit."""

    clique: str
    domain: str
    configured: int
    available: int
    unhealthy: int


def repairs(context: RenderContext) -> Repairs | None:
    """What the ledger has; None where there is no line yet.

    Open incidents last until the verdict or the last line, whichever is later: the same files give the same bytes.
    """
    if not context.repairs:
        return None
    times = [context.repairs[-1]["at"], *filter(None, [context.verdict and context.verdict["checked_at"]])]
    hours = hours_lost(context.repairs, max(times, key=ledger.when))
    return Repairs(
        incidents=tuple(ledger.incidents(context.repairs).values()),
        offenders=tuple(one for one in offenders(context.repairs) if one.count >= REPEATED),
        hours=dict(sorted(hours.items(), key=lambda row: -row[1])),
        stopped=tuple(natural_sorted(ledger.tripped(context.repairs))),
    )


def reached(incident: ledger.Incident) -> str:
    """The last step of an incident and its state, such as action failed."""
    step = [name for name in ledger.STEPS if name in incident.steps][-1]
    return f"{step} {incident.steps[step]}"


def spares(fabric: model.Fabric, state: model.State, context: RenderContext) -> list[Spares]:
    """The spares of each clique with trays; none where their number or the states in Slurm are unknown."""
    if context.nodes is None or not context.spares_active:
        return []
    rows = ((name, members) for name, members in fabric.members.items() if members)
    return [
        _spares(name, fabric.cliques[name]["domain"], members, state, context.spares_active) for name, members in rows
    ]


def _spares(clique: str, domain: str, members: Sequence[str], state: model.State, active: int) -> Spares:
    known = [state.trays.get(name) for name in members]
    reserved = [tray for tray in known if tray and tray["state"] == RESERVED]
    available = sum(tray["health"] != model.UNHEALTHY for tray in reserved)
    unfit = len(members) - available - sum(map(spans.works, known))
    configured = max(0, len(members) - active)
    return Spares(clique, domain, configured, available, min(configured, unfit))
