# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""First step of a placement: which observations place their tray. Pure.

A GPU belongs to one tray: a second tray that claims it is in conflict and changes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import Finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    Fabric,
    Identity,
    Observation,
    natural_sorted,
    tray_finding,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import (
    ERROR,
    MAJORITY,
    PlacementError,
    Policy,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import LOCALHOST, NODE_NAME

Gpus = Mapping[str, Collection[str]]
"""Tray name -> its GPUs' UUIDs."""


@dataclass(frozen=True)
class Claims:
    """The attached trays of a run.

    trays: the observations that place their tray, each with an identity. rivals: rejected tray -> the owner of the GPUs
    that it claims. mixed: trays that may enter the clique of most of their GPUs, since the policy overrides the gate
    mixed_cliques.
    """

    trays: dict[str, Observation]
    rivals: dict[str, str]
    mixed: set[str]
    findings: list[Finding]

    def identity(self, tray: str) -> Identity:
        """The clique in which a tray of `trays` is attached."""
        return cast(Identity, self.trays[tray].identity)


def collect(previous: Fabric, observed: Mapping[str, Observation], policy: Policy) -> Claims:
    """Collect the attached trays, without those that claim a GPU of another tray.

    PlacementError for GPUs in different cliques where conflict_policy is error.
    """
    inconsistent = [name for name, observation in observed.items() if observation.inconsistent]
    if inconsistent and policy.conflict_policy == ERROR:
        raise PlacementError(
            f"conflict_policy: is error, and the GPUs of {summarize(inconsistent)} are in different cliques; "
            "give each tray one NVLink partition, or use keep"
        )
    trays: dict[str, Observation] = {}
    mixed: set[str] = set()
    findings: list[Finding] = []
    for name, observation in observed.items():
        identity = observation.identity
        if observation.inconsistent and policy.conflict_policy == MAJORITY:
            clique = observation.majority
            # A tray that is placed there already keeps its place like any other in conflict.
            if clique is not None and not _is_placed_in(previous, name, clique):
                if "mixed_cliques" in policy.override:
                    mixed.add(name)
                    identity = clique
                else:
                    what = (
                        f"has most of its GPUs in clique {clique[0]}.{clique[1]}, but not all, and is not placed there"
                    )
                    remedy = "give its GPUs one NVLink partition, or name mixed_cliques in override"
                    findings.append(tray_finding(name, "mixed_cliques", what, remedy))
        if identity is None:
            continue
        if name in LOCALHOST or name in policy.groups:
            what = f"has the name of {'the controller' if name in LOCALHOST else 'a group of the inventory'}"
            findings.append(tray_finding(name, "illegal_tray_name", what, "rename it in its source"))
        elif NODE_NAME.fullmatch(name):
            trays[name] = observation if name not in mixed else replace(observation, identity=identity)
        else:
            what = "has a name that is not valid in a Slurm hostlist"
            findings.append(tray_finding(name, "illegal_tray_name", what, "rename it in the inventory"))
    known = {name: tray["gpu_uuids"] for name, tray in previous.trays.items()}
    rivals = _double_claims(known, {name: claim.gpu_uuids for name, claim in trays.items()})
    for name, owner in rivals.items():
        del trays[name]
        what = f"reports GPUs of {owner}"
        findings.append(tray_finding(name, "illegal_tray_name", what, "give each tray a single name in the inventory"))
    return Claims(trays, rivals, mixed, findings)


def _is_placed_in(fabric: Fabric, name: str, clique: Identity) -> bool:
    tray = fabric.trays.get(name)
    if tray is None:
        return False
    place = tray["clique"]
    return (fabric.cluster_uuid(place), fabric.cliques[place]["clique_id"]) == clique


def _double_claims(known: Gpus, claims: Gpus) -> dict[str, str]:
    """Map each tray whose claim is dropped to the tray that keeps the GPU.

    known: GPUs of each tray in the fabric file, where a GPU has one tray. claims: GPUs that attached trays report now.
    A GPU goes to its tray in the fabric, unless that tray now reports others; else to the first tray by name.
    """
    contested = sorted(set(_duplicates(known, claims)))
    return _resolve(known, claims, contested) if contested else {}


def _claimed(known: Gpus, claims: Gpus) -> Iterator[tuple[str, Collection[str]]]:
    """Every tray with the GPUs that it would have if all claims were accepted."""
    yield from claims.items()
    yield from ((name, gpus) for name, gpus in known.items() if name not in claims)


def _duplicates(known: Gpus, claims: Gpus) -> Iterator[str]:
    everything = [gpu for _name, gpus in _claimed(known, claims) for gpu in gpus]
    if len(set(everything)) == len(everything):
        return
    first: dict[str, str] = {}
    for name, gpus in _claimed(known, claims):
        for gpu in gpus:
            if first.setdefault(gpu, name) is not name:
                yield gpu


def _resolve(known: Gpus, claims: Gpus, contested: list[str]) -> dict[str, str]:
    """Drop claims until no GPU is contested.

    A tray whose claim is dropped falls back to its GPUs in the fabric, which another tray may claim in turn.
    """
    claims = dict(claims)
    claimants: dict[str, set[str]] = defaultdict(set)
    for name, gpus in _claimed(known, claims):
        for gpu in gpus:
            claimants[gpu].add(name)
    dropped: dict[str, str] = {}
    while contested:
        gpu_uuid = contested.pop()
        names = natural_sorted(claimants[gpu_uuid])
        owner = next((name for name in names if gpu_uuid in known.get(name, ())), None) or next(iter(names), None)
        for name in names:
            if name == owner or owner is None:
                continue
            for gpu in claims.pop(name):
                claimants[gpu].discard(name)
            for gpu in known.get(name, ()):
                claimants[gpu].add(name)
                contested.append(gpu)
            dropped[name] = owner
    return dropped
