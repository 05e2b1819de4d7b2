# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fabric and state from live observations, without a fabric file or on top of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, cast

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.merging import Merged
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    Address,
    Fabric,
    Observation,
    State,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.placement import mark_pending, place
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import Policy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding

FORMAT = 7
"""Format of cached answers; to be raised with every change of Observation, Address or Finding."""


def provisional(observations: Collection[Observation], now: str, groups: Collection[str] = ()) -> tuple[Fabric, State]:
    """The fabric as observed now, with provisional names: new_<start of the UUID>_<clique ID>. groups: as in Policy."""
    names = _domain_names({row.identity[0] for row in observations if row.identity})
    policy = Policy(domain_names=names, groups=groups, provisional=True)
    rows = [replace(row, block=None) for row in observations]
    placed = place(None, None, rows, now, policy)
    return placed.fabric, placed.state


def overlaid(
    fabric: Fabric, state: State | None, observations: Collection[Observation], now: str
) -> tuple[Fabric, State]:
    """Every tray in its accepted place, with the state that is observed now."""
    placed = place(fabric, state, observations, now, Policy())
    return fabric, mark_pending(placed.state, placed.fabric, fabric)


def _domain_names(uuids: Collection[str]) -> dict[str, str]:
    """Cluster UUID -> new_<its first 8 digits>, or all digits where two domains have the same first 8."""
    shared = Counter(uuid[:8] for uuid in uuids)
    return {uuid: f"new_{uuid[:8] if shared[uuid[:8]] == 1 else uuid.replace('-', '')}" for uuid in uuids}


def pack(merged: Merged) -> dict[str, Any]:
    """Convert observations and findings of sources to plain JSON data for a cache."""
    rows = [
        {
            **vars(row),
            "addresses": [list(vars(address).values()) for address in row.addresses],
            "cliques": {operation: sorted(ids) for operation, ids in row.cliques.items()},
        }
        for row in merged.observations
    ]
    return {"format": FORMAT, "observations": rows, "findings": merged.findings}


def unpack(packed: Any) -> Merged | None:
    """Restore the data of pack(); None for data of another format."""
    if not isinstance(packed, Mapping) or packed.get("format") != FORMAT:
        return None
    try:
        return Merged(
            [_unpacked(row) for row in packed["observations"]],
            [cast(Finding, dict(row)) for row in packed["findings"]],
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _unpacked(row: Mapping[str, Any]) -> Observation:
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    values["addresses"] = tuple(Address(*address) for address in row["addresses"])
    values["cliques"] = {operation: frozenset(ids) for operation, ids in row["cliques"].items()}
    return Observation(**values)
