# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which trays get no new job by their states in Slurm, as states of the fabric's trays. Pure.

A state in Slurm is a text here, flags and reason: ``DRAIN+IDLE: RMA 4711``. A user wrote the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import nodes, rules
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    HEALTHY,
    PRESENT,
    UNKNOWN,
    Fabric,
    State,
    TrayState,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import sentence

WORDS = DOWN, DRAINED, RESERVED = ("down", "drained", "reserved")
_NEVER_OBSERVED = TrayState(
    state=UNKNOWN, health=UNKNOWN, observed_at=None, source=None, driver_version=None, findings=[]
)


def text(flags: Iterable[str], reason: str) -> str:
    """The text of a node's state."""
    return ": ".join(filter(None, ("+".join(sorted(flags)), sentence(reason))))


def of_trays(shown: Mapping[str, str], fabric: Fabric, cluster: str | None = None) -> dict[str, str]:
    """Tray -> its state, from those of nodes; of one Slurm cluster where it is named."""
    rows = (
        (tray, row["slurm_node"]) for tray, row in fabric.trays.items() if cluster in (None, row.get("slurm_cluster"))
    )
    return {tray: str(shown[node]) for tray, node in rows if node in shown}


def of_scontrol(lines: Iterable[str], fabric: Fabric) -> dict[str, str]:
    """Tray -> its state, from the lines of ``scontrol --all --oneliner show nodes``."""
    known = nodes.parse("\n".join(lines))
    return of_trays({name: text(node.words, node.reason) for name, node in known.items()}, fabric)


def without_job(texts: Mapping[str, str]) -> set[str]:
    """The trays on which no job runs; texts: tray -> its state in Slurm."""
    return {tray for tray, shown in texts.items() if rules.TAKEN.isdisjoint(shown.partition(": ")[0].split("+"))}


def applied(state: State, fabric: Fabric, texts: Mapping[str, str]) -> State:
    """The state of the trays, where those that get no new job have one of WORDS in place of present.

    A healthy tray whose slurmd does not respond has health unknown. texts: tray -> its state in Slurm.
    """
    found: dict[str, TrayState] = {}
    for tray in fabric.trays.keys() & texts.keys():
        now, (flags, _colon, reason) = state.trays.get(tray, _NEVER_OBSERVED), texts[tray].partition(": ")
        why = rules.UNAVAILABLE.intersection(flags.split("+"))
        if why and now["state"] in (PRESENT, UNKNOWN):
            word = DRAINED if "DRAIN" in why else RESERVED if why <= rules.RESERVED else DOWN
            health = UNKNOWN if "NOT_RESPONDING" in why and now["health"] == HEALTHY else now["health"]
            found[tray] = {**now, "state": word, "health": health, "reason": sentence(reason)}
    return replace(state, trays={**state.trays, **found})
