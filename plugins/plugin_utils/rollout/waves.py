# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the waves of a rollout: one canary, then a number of NVLink domains at a time. Pure functions.

A wave has whole cliques: the trays of a clique share what is changed (a node list of IMEX, a driver).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    HEALTHY,
    PRESENT,
    Fabric,
    State,
    natural_sorted,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import shown, similar

_LISTED = "; it lists their names"


class RolloutError(NvlinkError):
    """An option or file of a rollout is invalid."""


@dataclass(frozen=True)
class Wave:
    """Cliques that are changed together, each with its trays of this run."""

    cliques: Mapping[str, tuple[str, ...]]

    @property
    def trays(self) -> tuple[str, ...]:
        return tuple(itertools.chain.from_iterable(self.cliques.values()))


def plan(
    fabric: Fabric,
    trays: Collection[str],
    domains: Sequence[int] = (1,),
    canary: str = "",
    only: Collection[str] | None = None,
    state: State | None = None,
) -> list[Wave]:
    """The waves in their order; RolloutError for an unknown canary or invalid sizes.

    trays: the trays of the run; other trays of their cliques and trays without a place are left out.
    domains: the number of NVLink domains in each wave after the canary; the last number repeats.
    canary: the clique that goes first, alone; empty for the first with all trays healthy at the last discover.
    only: the unfinished cliques of an earlier run; None for all. A finished canary is not repeated.
    """
    if not domains or any(size < 1 for size in domains):
        raise RolloutError(
            f"rollout_domains: {shown(list(domains))} must be whole numbers from 1, one or a list of them"
        )
    known_cliques(fabric, [canary] if canary else [], "rollout_canary")
    selected = set(trays)
    members = {
        name: tuple(tray for tray in fabric.members[name] if tray in selected)
        for name in natural_sorted(fabric.cliques)
        if only is None or name in only
    }
    members = {name: chosen for name, chosen in members.items() if chosen}
    first = canary or _healthiest(members, state or State())
    waves = [Wave({first: members.pop(first)})] if first in members else []
    rest = _by_domain(fabric, members)
    sizes = itertools.chain(domains, itertools.repeat(domains[-1]))
    while rest:
        taken = [rest.pop(0) for _domain in range(min(next(sizes), len(rest)))]
        waves.append(Wave({name: members[name] for cliques in taken for name in cliques}))
    return waves


def _healthiest(members: Mapping[str, Sequence[str]], state: State) -> str:
    """The first clique with all trays healthy, so that an old fault is not mistaken for one of this change."""
    for name, trays in members.items():
        observed = [state.trays[tray] for tray in trays if tray in state.trays]
        if all(row["state"] == PRESENT and row["health"] == HEALTHY for row in observed):
            return name
    return next(iter(members), "")


def _by_domain(fabric: Fabric, members: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """The cliques of each domain, domains in natural order."""
    domains: dict[str, list[str]] = {}
    for name in members:
        domains.setdefault(fabric.cliques[name]["domain"], []).append(name)
    return [domains[name] for name in natural_sorted(domains)]


def placed(fabric: Fabric, names: str) -> list[str]:
    """Fabric.trays_of() for placed trays; RolloutError for an unknown name."""
    found = fabric.trays_of(names)
    for name in found:
        if name not in fabric.trays:
            hint = similar(name, (*fabric.domains, *fabric.cliques, *fabric.trays), _LISTED)
            raise RolloutError(f"rollout_trays: {shown(name)} is no tray, clique or domain of the fabric file{hint}")
    return found


def cliques_of(fabric: Fabric, trays: Collection[str]) -> list[str]:
    """The cliques of these trays in the fabric file."""
    return natural_sorted({fabric.trays[tray]["clique"] for tray in trays if tray in fabric.trays})


def check_controller(host: str, trays: Collection[str]) -> None:
    """Raise RolloutError if the host that runs scontrol is a tray: its root would decide for all other trays."""
    if host in trays:
        raise RolloutError(
            f"slurm_controller: {shown(host)} is a tray of the fabric, and no tray may run commands for others; put the"
            " host of slurmctld first in the group slurm_controller"
        )


def known_cliques(fabric: Fabric, names: Collection[str], where: str) -> list[str]:
    """The clique names of a progress file; RolloutError for one that the fabric file no longer has."""
    for name in names:
        if name not in fabric.cliques:
            hint = similar(name, fabric.cliques, _LISTED)
            raise RolloutError(f"{where}: {shown(name)} is no clique of the fabric file{hint}")
    return list(names)
