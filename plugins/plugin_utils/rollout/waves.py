# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""In which order the cliques of a fabric are changed: one canary, then so many racks at a time. Pure.

A wave holds whole cliques, since what is changed on trays (a list of IMEX, a driver) is shared by a clique's members.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    HEALTHY,
    PRESENT,
    Fabric,
    State,
    natural_sorted,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import nearest, shown


class RolloutError(NvlinkError):
    """What a site has written about a rollout cannot be followed."""


@dataclass(frozen=True)
class Wave:
    """Cliques that are changed together, each with those of its trays that the run addresses."""

    cliques: Mapping[str, tuple[str, ...]]

    @property
    def trays(self) -> tuple[str, ...]:
        return tuple(itertools.chain.from_iterable(self.cliques.values()))


def plan(
    fabric: Fabric,
    trays: Collection[str],
    racks: Sequence[int] = (1,),
    canary: str = "",
    only: Collection[str] | None = None,
    state: State | None = None,
) -> list[Wave]:
    """The waves in their order; RolloutError for a canary or sizes that cannot be.

    trays: whom the run addresses; others of their cliques are left out, those without a place too.
    racks: how many NVLink domains each wave after the canary has; the last number repeats.
    canary: the clique that goes first, alone; empty for the first whose trays were all well when last seen.
    only: the cliques that an earlier run has left; None for all. A canary that is done is not asked again.
    """
    if not racks or any(size < 1 for size in racks):
        raise RolloutError(f"rollout_racks: {shown(list(racks))} must be whole numbers from 1, one or a list of them")
    if canary and canary not in fabric.cliques:
        raise RolloutError(f"rollout_canary: {shown(canary)} is no clique of the fabric file")
    addressed = set(trays)
    members = {
        name: tuple(tray for tray in fabric.members[name] if tray in addressed)
        for name in natural_sorted(fabric.cliques)
        if only is None or name in only
    }
    members = {name: there for name, there in members.items() if there}
    first = canary or _soundest(members, state or State())
    waves = [Wave({first: members.pop(first)})] if first in members else []
    rest = _by_domain(fabric, members)
    sizes = itertools.chain(racks, itertools.repeat(racks[-1]))
    while rest:
        taken = [rest.pop(0) for _rack in range(min(next(sizes), len(rest)))]
        waves.append(Wave({name: members[name] for cliques in taken for name in cliques}))
    return waves


def _soundest(members: Mapping[str, Sequence[str]], state: State) -> str:
    """The first clique whose trays were all well, so that an old fault is not taken for one of the change."""
    for name, trays in members.items():
        seen = [state.trays[tray] for tray in trays if tray in state.trays]
        if all(row["state"] == PRESENT and row["health"] == HEALTHY for row in seen):
            return name
    return next(iter(members), "")


def _by_domain(fabric: Fabric, members: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """The cliques of each domain, domains in natural order."""
    domains: dict[str, list[str]] = {}
    for name in members:
        domains.setdefault(fabric.cliques[name]["domain"], []).append(name)
    return [domains[name] for name in natural_sorted(domains)]


def trays_of(fabric: Fabric, names: str) -> list[str]:
    """The trays that a person names by hostlists, cliques and domains; a name of none of them is a new tray's."""
    found: dict[str, None] = {}
    for name in expand(names):
        found.update(dict.fromkeys(_named(fabric, name)))
    return list(found)


def _named(fabric: Fabric, name: str) -> Iterator[str]:
    if name in fabric.trays or not (name in fabric.domains or name in fabric.cliques):
        yield name
        return
    for clique, trays in fabric.members.items():
        if name in (clique, fabric.cliques[clique]["domain"]):
            yield from trays


def placed(fabric: Fabric, names: str) -> list[str]:
    """trays_of(), where each has its place; RolloutError for a name that is unknown."""
    found = trays_of(fabric, names)
    for name in found:
        if name not in fabric.trays:
            meant = _meant(name, (*fabric.domains, *fabric.cliques, *fabric.trays))
            raise RolloutError(f"rollout_trays: {shown(name)} is no tray, clique or domain of the fabric file{meant}")
    return found


def _meant(name: str, known: Sequence[str]) -> str:
    """The name that was probably meant; thousands of others help nobody."""
    said = nearest(name, known)
    return said if said.startswith("; did you mean") else "; see it for their names"


def cliques_of(fabric: Fabric, trays: Collection[str]) -> list[str]:
    """The cliques in which these trays have their places."""
    return natural_sorted({fabric.trays[tray]["clique"] for tray in trays if tray in fabric.trays})


def known_cliques(fabric: Fabric, names: Collection[str], where: str) -> list[str]:
    """Names of cliques that a file holds; RolloutError for one that the fabric file no longer has."""
    for name in names:
        if name not in fabric.cliques:
            raise RolloutError(f"{where}: {shown(name)} is no clique of the fabric file{nearest(name, fabric.cliques)}")
    return list(names)
