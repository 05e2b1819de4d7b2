# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Third step of a placement: NVLink domains that are split per tray, and the policy of the site for them. Pure.

NVIDIA's infra-controller can give each idle tray an NVLink partition of its own, and moves its GPUs to that of a tenant
when it creates an instance (issue 1559). What such a domain should be to Slurm is for the site to decide.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.claims import Claims
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import KEEP_BLOCK, Fabric, Identity
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import ASK, Policy

# One tray that leaves a clique of two is no split per tray.
_MIN_TRAYS = 2


def decide(fabric: Fabric, claims: Claims, policy: Policy, unplaced: int) -> tuple[Claims, dict[str, str]]:
    """The claims where trays keep their block, and cluster UUID -> policy of the domains to which one applies.

    unplaced: as in alone().

    The policy of the site precedes that of the fabric file; without either the gate tray_partitions decides.
    """
    known = {row["cluster_uuid"]: row.get("tray_partitions", ASK) for row in fabric.domains.values()}
    policies: dict[str, str] = {}
    trays = dict(claims.trays)
    for uuid, names in alone(fabric, {name: claims.identity(name) for name in claims.trays}, unplaced).items():
        chosen = known.get(uuid, ASK) if policy.tray_partitions == ASK else policy.tray_partitions
        if chosen == ASK:
            continue
        policies[uuid] = chosen
        for name in names & claims.trays.keys() & fabric.trays.keys() if chosen == KEEP_BLOCK else ():
            place = fabric.identity(fabric.trays[name]["clique"])
            if place[0] == uuid:
                trays[name] = replace(trays[name], identity=place)
    return replace(claims, trays=trays), policies


def alone(fabric: Fabric, reported: Mapping[str, Identity], unplaced: int = 0) -> dict[str, set[str]]:
    """Cluster UUID -> the trays that are each alone in a clique, of domains that are split per tray or have a policy.

    A domain is split per tray where at least half of its trays, and at least two, are each alone. reported: observed
    tray -> its clique; all others are where the fabric has them. unplaced: the number of trays without a place that
    gave no answer; each of them may share a clique with one that seems alone.
    """
    cliques = {name: fabric.identity(tray["clique"]) for name, tray in fabric.trays.items()}
    cliques.update(reported)
    sizes = Counter(cliques.values())
    trays: Counter[str] = Counter(uuid for uuid, _clique_id in cliques.values())
    single: dict[str, set[str]] = defaultdict(set)
    for name, identity in cliques.items():
        if sizes[identity] == 1:
            single[identity[0]].add(name)
    split = {uuid for uuid, names in single.items() if len(names) >= max(_MIN_TRAYS + unplaced, trays[uuid] / 2)}
    decided = {row["cluster_uuid"] for row in fabric.domains.values() if "tray_partitions" in row}
    return {uuid: single[uuid] for uuid in sorted(split | decided)}
