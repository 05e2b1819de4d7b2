# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rename and remove trays of a fabric, and group its cliques, which no source can observe. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import cast

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.fabric_file import FabricFileError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    Change,
    Clique,
    Fabric,
    State,
    Tray,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.forms import NODE_NAME
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import shown, similar


def rename(fabric: Fabric, names: Mapping[str, str], today: str) -> tuple[Fabric, list[Change]]:
    """Rename trays (old name -> new name) and keep their places; FabricFileError for an unknown or invalid name.

    A tray that has its new name already is unchanged. Names in Slurm and Kubernetes stay: the site sets those.
    """
    trays, changes = dict(fabric.trays), list[Change]()
    for old, new in names.items():
        if old not in trays and new in trays:
            continue
        if old not in trays:
            hint = similar(old, fabric.trays, "; use the name that it has there")
            raise FabricFileError(f"rename: {shown(old)} is not a tray of the fabric file{hint}")
        if new in trays:
            raise FabricFileError(
                f"rename: {shown(new)} is already a tray of the fabric file; choose another name for {old}"
            )
        if not NODE_NAME.fullmatch(new):
            raise FabricFileError(
                f"rename: {shown(new)} is not valid in a Slurm hostlist; use letters, digits, . _ and -"
            )
        why = f"renamed {today} from {old}"
        tray = cast(Tray, {**trays.pop(old), "why": why})
        trays[new] = tray
        changes.append({"tray": new, "from": tray["clique"], "to": tray["clique"], "kind": "name", "why": why})
    return replace(fabric, trays=trays), changes


def remove(fabric: Fabric, names: Collection[str]) -> Fabric:
    """Remove trays; their cliques and blocks keep names and positions. A tray that the fabric lacks is gone already."""
    return replace(fabric, trays={name: tray for name, tray in fabric.trays.items() if name not in names})


def group(fabric: Fabric, groups: Mapping[str, Collection[str]]) -> Fabric:
    """Give cliques a group (group name -> names of cliques or domains); an empty group name takes them out of theirs.

    The name of a domain stands for those of its cliques that have trays. FabricFileError for an unknown clique or one
    in two groups.
    """
    chosen: dict[str, str] = {}
    for word, names in groups.items():
        for name in names:
            for clique in _cliques(fabric, name):
                if chosen.setdefault(clique, word) != word:
                    raise FabricFileError(f"groups: {clique} is in {chosen[clique]} and {word}; list it once")
    cliques = dict(fabric.cliques)
    for name, word in chosen.items():
        row = {key: value for key, value in cliques[name].items() if key != "group"}
        cliques[name] = cast(Clique, {**row, "group": word} if word else row)
    return replace(fabric, cliques=cliques)


def _cliques(fabric: Fabric, name: str) -> list[str]:
    in_use = [clique for clique, row in fabric.cliques.items() if row["domain"] == name and fabric.members[clique]]
    if not in_use and name not in fabric.cliques:
        hint = similar(name, [*fabric.cliques, *fabric.domains], "; use a name of cliques or domains there")
        raise FabricFileError(f"groups: {shown(name)} is no clique of the fabric file{hint}")
    return in_use or [name]


def of_state(state: State, renamed: Mapping[str, str], removed: Collection[str]) -> State:
    """Apply the same changes to the state."""
    kept = {renamed.get(name, name): tray for name, tray in state.trays.items() if name not in removed}
    repair = {renamed.get(name, name): row for name, row in state.acknowledged.items() if name not in removed}
    return replace(state, trays=kept, acknowledged=repair)
