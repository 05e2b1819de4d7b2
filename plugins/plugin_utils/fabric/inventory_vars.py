# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Convert the fabric and its state to groups, hosts and variables of Ansible. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
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
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import natural_sorted
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.forms import NODE_NAME, RESERVED

ROOT = "nvlink"
UNPLACED_GROUP = "nvlink_unplaced"
RUN_GROUPS = ("nvlink_rollout", "nvlink_repair", "nvlink_repair_spare")
"""The hosts of plays of the playbooks rollout and repair, which put trays into them."""
# These groups always exist, so that a play can use them while they are empty.
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
    """One group below parent; vars: variables that all its hosts share."""

    parent: str
    vars: dict[str, Any] = field(default_factory=dict)
    hosts: list[str] = field(default_factory=list)


@dataclass
class Plan:
    """The content of the inventory.

    hosts: tray -> its own variables, in the order of blocks, then of names; unplaced trays last.
    groups: name -> group, parents before children; without ROOT, which contains every host.
    vars: variables of ROOT, the defaults for all hosts. unreviewed: the hosts that are not in ROOT.
    invalid: names in the state that no tray can have; they are left out.
    """

    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    vars: dict[str, Any] = field(default_factory=dict)
    invalid: list[str] = field(default_factory=list)
    unreviewed: set[str] = field(default_factory=set)


def plan(fabric: Fabric, state: State | None, groups: Collection[str] = (), is_reviewed: bool = True) -> Plan:
    """Plan the groups and hosts of a fabric; without a state every tray is present with unknown health.

    groups: the names of groups that the inventory has already. is_reviewed: whether the fabric is that of a fabric
    file. Then a tray that the state alone has is in UNPLACED_GROUP and in no group where plays go: nobody has reviewed
    its name. Live sources alone have no other trays.
    """
    result = Plan()
    for name in fabric.domains:
        result.groups[f"nvlink_domain_{name}"] = Group(ROOT)
    for name in (UNPLACED_GROUP, *_BY_HEALTH.values(), *_BY_STATE.values(), *RUN_GROUPS):
        result.groups[name] = Group(ROOT)
    # Every tray has the same variables, so that templates do not fail on unplaced trays.
    result.groups[UNPLACED_GROUP].vars = dict.fromkeys(_CLIQUE_VARS)
    states = state.trays if state else {}
    for block in fabric.blocks():
        group = result.groups[f"nvlink_clique_{block.clique}"] = _clique_group(fabric, block.clique)
        group.hosts = list(block.trays)
        for name in block.trays:
            result.hosts[name] = _own(name, fabric.trays[name], states.get(name))
    if fabric.clusters:
        _add_clusters(result, fabric)
    _add_blocks(result, fabric)
    unplaced = (name for name, row in states.items() if row["state"] == UNPLACED and name not in fabric.trays)
    for name in natural_sorted(unplaced):
        # The state file accepts any name, since a finding may be about an invalid one.
        if name in RESERVED or name in groups or not NODE_NAME.fullmatch(name):
            result.invalid.append(name)
            continue
        result.hosts[name] = _own(name, None, states[name])
        result.groups[UNPLACED_GROUP].hosts.append(name)
    if is_reviewed:
        result.groups[UNPLACED_GROUP].parent = "all"
        result.groups[UNPLACED_GROUP].vars.update(result.vars)
        result.unreviewed.update(result.groups[UNPLACED_GROUP].hosts)
    for name, own in result.hosts.items():
        if name in result.unreviewed:
            continue
        for group_of, key in ((_BY_HEALTH, "nvlink_health"), (_BY_STATE, "nvlink_state")):
            if own[key] in group_of:
                result.groups[group_of[own[key]]].hosts.append(name)
    return result


def _add_clusters(result: Plan, fabric: Fabric) -> None:
    """Add a group for each cluster with its name."""
    clusters = (("slurm", fabric.slurm_clusters), ("kubernetes", natural_sorted(fabric.clusters.get("kubernetes", ()))))
    for kind, named in clusters:
        key = f"nvlink_{kind}_cluster"
        result.vars[key] = None
        groups = {name: Group(ROOT, {key: name}) for name in named}
        for name in result.hosts:
            cluster = fabric.trays[name].get(f"{kind}_cluster")
            if cluster:
                groups[str(cluster)].hosts.append(name)
        result.groups.update({f"nvlink_{kind}_{group_word(name)}": group for name, group in groups.items()})


def _add_blocks(result: Plan, fabric: Fabric) -> None:
    """Give each clique the block of its trays, or each tray its own where they have several."""
    for clique, names in fabric.members.items():
        blocks = [block["name"] if (block := fabric.block_of.get(name)) else None for name in names]
        shared = result.groups[f"nvlink_clique_{clique}"].vars
        if len(set(blocks)) > 1:
            del shared["nvlink_block"]
            for name, own in zip(names, blocks, strict=True):
                result.hosts[name]["nvlink_block"] = own
        elif blocks:
            shared["nvlink_block"] = blocks[0]


def _clique_group(fabric: Fabric, name: str) -> Group:
    clique = fabric.cliques[name]
    values = (
        fabric.cluster_uuid(name),
        clique["clique_id"],
        fabric.clique_text(name),
        clique["domain"],
        name,
        None if fabric.is_left_out(name) else clique["block"]["name"],
    )
    return Group(f"nvlink_domain_{clique['domain']}", dict(zip(_CLIQUE_VARS, values, strict=True)))


def _own(name: str, tray: Tray | None, state: TrayState | None) -> dict[str, Any]:
    """The variables of a tray; tray: its row in the fabric file, None for one without a place, which has a state."""
    observed: Mapping[str, Any] = state or {}
    # Unplaced in the state and placed in the file: placed by hand, and not observed there yet.
    known = STALE if tray and observed.get("state") == UNPLACED else observed.get("state", PRESENT)
    own = {
        "nvlink_tray_index": tray["tray_index"] if tray else observed.get("tray_index"),
        # A live source may report a GPU count without UUIDs.
        "nvlink_gpu_count": (len(tray["gpu_uuids"]) if tray else 0) or observed.get("gpu_count", 0),
        "nvlink_health": observed.get("health", UNKNOWN),
        "nvlink_state": known,
        "nvlink_imex_address": tray["imex_address"] if tray else None,
        "nvlink_slurm_node": tray["slurm_node"] if tray else name,
        "nvlink_kubernetes_node": tray["kubernetes_node"] if tray else name,
    }
    return {**own, "ansible_host": tray["ansible_host"]} if tray and "ansible_host" in tray else own
