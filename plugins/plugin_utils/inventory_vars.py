# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the fabric and its state to Ansible's groups, hosts and variables. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.fabric_file import group_word
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    DEGRADED,
    PRESENT,
    STALE,
    UNHEALTHY,
    UNKNOWN,
    UNPLACED,
    Fabric,
    State,
    Tray,
    TrayState,
    natural_sorted,
)

# The fabric file's rule, which the state file does not have: no finding may fail over the name that it is about.
TRAY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")

ROOT = "nvlink"
UNPLACED_GROUP = "nvlink_unplaced"
# Always there, so that a play may name them before a tray has got into one.
_BY_HEALTH = {UNHEALTHY: "nvlink_unhealthy", DEGRADED: "nvlink_degraded"}
_BY_STATE = {STALE: "nvlink_stale"}
_CLIQUE_VARS = (
    "nvlink_cluster_uuid",
    "nvlink_clique_id",
    "nvlink_clique",
    "nvlink_domain_name",
    "nvlink_clique_name",
    "nvlink_block",
)


@dataclass
class Group:
    """One group, below parent; vars are those that all its hosts share."""

    parent: str
    vars: dict[str, Any] = field(default_factory=dict)
    hosts: list[str] = field(default_factory=list)


@dataclass
class Plan:
    """What the inventory is to hold.

    hosts: tray -> its own vars, block after block, each in the natural order of names, unplaced trays last.
    groups: name -> group, a parent always before its children; ROOT, which holds every host, is none of them.
    vars: of ROOT, for hosts of which no group says otherwise.
    unfit: names in the state that no tray can have; they are left out.
    """

    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    vars: dict[str, Any] = field(default_factory=dict)
    unfit: list[str] = field(default_factory=list)


def plan(fabric: Fabric, state: State | None) -> Plan:
    """The groups and hosts of a fabric; without its state every tray is present in unknown health."""
    made = Plan()
    for name in fabric.domains:
        made.groups[f"nvlink_domain_{name}"] = Group(ROOT)
    for name in (UNPLACED_GROUP, *_BY_HEALTH.values(), *_BY_STATE.values()):
        made.groups[name] = Group(ROOT)
    # A var that only placed trays have would break every template that meets another one.
    made.groups[UNPLACED_GROUP].vars = dict.fromkeys(_CLIQUE_VARS)
    states = state.trays if state else {}
    for block in fabric.blocks():
        group = made.groups[f"nvlink_clique_{block.clique}"] = _clique_group(fabric, block.clique)
        group.hosts = list(block.trays)
        for name in block.trays:
            made.hosts[name] = _placed(fabric.trays[name], states.get(name))
    if fabric.clusters:
        _add_clusters(made, fabric)
    unplaced = (name for name, row in states.items() if row["state"] == UNPLACED and name not in fabric.trays)
    for name in natural_sorted(unplaced):
        if not TRAY_NAME.fullmatch(name):
            made.unfit.append(name)
            continue
        made.hosts[name] = _unplaced(name, states[name])
        made.groups[UNPLACED_GROUP].hosts.append(name)
    for name, own in made.hosts.items():
        for group_of, key in ((_BY_HEALTH, "nvlink_health"), (_BY_STATE, "nvlink_state")):
            if own[key] in group_of:
                made.groups[group_of[own[key]]].hosts.append(name)
    return made


def _add_clusters(made: Plan, fabric: Fabric) -> None:
    """A group for each cluster, which says its name; a block of its own for each tray whose clique has several."""
    clusters = (("slurm", fabric.slurm_clusters), ("kubernetes", natural_sorted(fabric.clusters.get("kubernetes", ()))))
    for kind, named in clusters:
        key = f"nvlink_{kind}_cluster"
        made.vars[key] = None
        groups = {name: Group(ROOT, {key: name}) for name in named}
        for name in made.hosts:
            cluster = fabric.trays[name].get(f"{kind}_cluster")
            if cluster:
                groups[str(cluster)].hosts.append(name)
        made.groups.update({f"nvlink_{kind}_{group_word(name)}": group for name, group in groups.items()})
    if not fabric.slurm_clusters:
        return
    for clique, names in fabric.members.items():
        blocks = [block["name"] if (block := fabric.block_of(name)) else None for name in names]
        shared = made.groups[f"nvlink_clique_{clique}"].vars
        if len(set(blocks)) == 1:
            shared["nvlink_block"] = blocks[0]
        else:
            del shared["nvlink_block"]
            for name, own in zip(names, blocks, strict=True):
                made.hosts[name]["nvlink_block"] = own


def _clique_group(fabric: Fabric, name: str) -> Group:
    clique = fabric.cliques[name]
    values = (
        fabric.cluster_uuid(name),
        clique["clique_id"],
        fabric.clique_text(name),
        clique["domain"],
        name,
        clique["block"]["name"],
    )
    return Group(f"nvlink_domain_{clique['domain']}", dict(zip(_CLIQUE_VARS, values, strict=True)))


def _placed(tray: Tray, seen: TrayState | None) -> dict[str, Any]:
    own = {
        "nvlink_tray_index": tray["tray_index"],
        # A live source may count GPUs without knowing their UUIDs.
        "nvlink_gpu_count": len(tray["gpu_uuids"]) or (seen.get("gpu_count", 0) if seen else 0),
        "nvlink_health": seen["health"] if seen else UNKNOWN,
        "nvlink_state": _state_of_placed(seen),
        "nvlink_imex_address": tray["imex_address"],
        "nvlink_slurm_node": tray["slurm_node"],
        "nvlink_kubernetes_node": tray["kubernetes_node"],
    }
    if "ansible_host" in tray:
        own["ansible_host"] = tray["ansible_host"]
    return own


def _state_of_placed(seen: TrayState | None) -> str:
    if seen is None:
        return PRESENT
    # A person has placed by hand what was unplaced when it was last seen: nobody has seen it in that place yet.
    return STALE if seen["state"] == UNPLACED else seen["state"]


def _unplaced(name: str, seen: TrayState) -> dict[str, Any]:
    return {
        "nvlink_tray_index": seen.get("tray_index"),
        "nvlink_gpu_count": seen.get("gpu_count", 0),
        "nvlink_health": seen["health"],
        "nvlink_state": UNPLACED,
        "nvlink_imex_address": None,
        "nvlink_slurm_node": name,
        "nvlink_kubernetes_node": name,
    }
