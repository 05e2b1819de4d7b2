# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts a host connects to: bounded, whatever the size of the site. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric

SLURMCTLD_PORT = 6817
MAX_PEERS = 17
"""All others of an NVL72's 18 trays; of a larger clique the next ones, so that each tray is tried by as many."""
MAX_SAMPLE = 128
"""Trays to which a Slurm controller connects."""

Group = Mapping[str, Any]
"""Tray -> its address, of trays that connect to each other."""


def groups(trays: Mapping[str, str], fabric: Fabric | None) -> list[Group]:
    """The cliques of the fabric file with the addresses of IMEX; without one all trays of the inventory."""
    if fabric is None:
        return [trays]
    return [{name: fabric.trays[name]["imex_address"] for name in names} for names in fabric.members.values()]


def neighbours(tray: str, given: Iterable[Group]) -> dict[str, str]:
    """Name -> address of those that follow a tray in its group, which begins again at its end."""
    group = next((group for group in given if tray in group), {tray: ""})
    names = [*group]
    at = names.index(tray)
    return {name: str(group[name] or name) for name in [*names[at + 1 :], *names[:at]][:MAX_PEERS]}


def sample(names: Sequence[str], most: int = MAX_SAMPLE) -> list[str]:
    """At most so many of the names, spread evenly."""
    step = max(1, -(-len(names) // most))
    return list(names[::step])
