# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rename and remove trays of a fabric, which no source can observe. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import cast

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.fabric_file import FabricFileError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Change, Fabric, State, Tray
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import NODE_NAME, nearest, shown


def rename(fabric: Fabric, names: Mapping[str, str], today: str) -> tuple[Fabric, list[Change]]:
    """Rename trays (old name -> new name) and keep their places; FabricFileError for an unknown or invalid name.

    A tray that has its new name already is unchanged. Names in Slurm and Kubernetes stay: the site sets those.
    """
    trays, changes = dict(fabric.trays), list[Change]()
    for old, new in names.items():
        if old not in trays and new in trays:
            continue
        if old not in trays:
            raise FabricFileError(f"rename: {shown(old)} is not a tray of the fabric file{_suggestion(old, fabric)}")
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


def remove(fabric: Fabric, names: Collection[str], today: str) -> tuple[Fabric, list[Change]]:
    """Remove trays; their cliques and blocks keep names and positions. A tray that the fabric lacks is gone already."""
    trays = {name: tray for name, tray in fabric.trays.items() if name not in names}
    changes: list[Change] = [
        {"tray": name, "from": tray["clique"], "to": None, "kind": "removed", "why": f"removed {today}"}
        for name, tray in fabric.trays.items()
        if name in names
    ]
    return replace(fabric, trays=trays), changes


def of_state(state: State, renamed: Mapping[str, str], removed: Collection[str]) -> State:
    """Apply the same changes to the state."""
    kept = {renamed.get(name, name): tray for name, tray in state.trays.items() if name not in removed}
    return replace(state, trays=kept)


def _suggestion(name: str, fabric: Fabric) -> str:
    hint = nearest(name, fabric.trays)
    return hint if hint.startswith("; did you mean") else "; use the name that it has there"
