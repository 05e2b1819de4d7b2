# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waves of a rollout: which cliques are changed together, and in which order.

A wave has whole cliques: the trays of a clique share what is changed (a node list of IMEX, a driver).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import HEALTHY, PRESENT, Fabric, State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import natural_sorted
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import shown, similar

Wave = dict[str, list[str]]
"""Clique -> its trays of this run."""


class RolloutError(NvlinkError):
    """An option or file of a rollout is invalid."""


def plan(
    fabric: Fabric,
    trays: Collection[str],
    only: Collection[str],
    domains: Sequence[int] = (1,),
    canary: str = "",
    state: State | None = None,
) -> list[Wave]:
    """The waves in their order; RolloutError for an unknown canary or invalid sizes.

    trays: the trays of the run; other trays of their cliques and trays without a place are left out.
    only: the cliques that are changed. A canary that is none of them, as it is finished, is not repeated.
    domains: the number of NVLink domains in each wave after the canary; the last number repeats.
    canary: the clique that goes first, alone; empty for the first with all trays healthy at the last discover.
    """
    if not domains or any(size < 1 for size in domains):
        raise RolloutError(
            f"rollout_domains: {shown(list(domains))} must be whole numbers from 1, one or a list of them"
        )
    if canary:
        check_names([canary], fabric.cliques, "rollout_canary", "clique")
    selected = set(trays)
    members = {
        name: [tray for tray in fabric.members[name] if tray in selected]
        for name in natural_sorted(fabric.cliques)
        if name in only
    }
    members = {name: chosen for name, chosen in members.items() if chosen}
    first = canary or _healthiest(members, state or State())
    waves = [{first: members.pop(first)}] if first in members else []
    by_domain: dict[str, Wave] = {}
    for name, chosen in members.items():
        by_domain.setdefault(fabric.cliques[name]["domain"], {})[name] = chosen
    rest = iter(by_domain[name] for name in natural_sorted(by_domain))
    sizes = itertools.chain(domains, itertools.repeat(domains[-1]))
    while taken := list(itertools.islice(rest, next(sizes))):
        waves.append({name: chosen for cliques in taken for name, chosen in cliques.items()})
    return waves


def _healthiest(members: Mapping[str, Sequence[str]], state: State) -> str:
    """The first clique with all trays healthy, so that an old fault is not mistaken for one of this change."""
    for name, trays in members.items():
        observed = [state.trays[tray] for tray in trays if tray in state.trays]
        if all(row["state"] == PRESENT and row["health"] == HEALTHY for row in observed):
            return name
    return next(iter(members), "")


def cliques_of(fabric: Fabric, names: str, check: bool = True) -> set[str]:
    """The cliques of trays that a person names by rollout_trays (Fabric.trays_of).

    RolloutError for an unknown name, but for check=False, where a new tray has no place yet.
    """
    trays = fabric.trays_of(names)
    if check:
        known = dict.fromkeys((*fabric.domains, *fabric.cliques, *fabric.trays))
        check_names(trays, known, "rollout_trays", "tray, clique or domain")
    return {fabric.trays[tray]["clique"] for tray in trays if tray in fabric.trays}


def check_names(names: Iterable[str], known: Collection[str], where: str, kind: str) -> None:
    """Raise RolloutError for the first name that the fabric file does not have. where: the variable or file."""
    for name in names:
        if name not in known:
            hint = similar(name, known, "; it lists their names")
            raise RolloutError(f"{where}: {shown(name)} is no {kind} of the fabric file{hint}")


def check_controller(host: str, trays: Collection[str]) -> None:
    """Raise RolloutError if the host that runs scontrol is a tray: its root would decide for all other trays."""
    if host in trays:
        raise RolloutError(
            f"slurm_controller: {shown(host)} is a tray of the fabric, and no tray may run commands for others; put the"
            " host of slurmctld first in the group slurm_controller"
        )
