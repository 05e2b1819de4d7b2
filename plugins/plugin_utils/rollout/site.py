# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run of the playbook site has to do, and what is wrong with its inventory, before any host is touched. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.domain import OWNERS
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import nearest, shown

PHASES = ("discover", "slurm", "imex", "kubernetes", "verify", "report")
SLURM = ("existing", "managed")
# Tags of parts of a phase, as the playbooks and roles have them that a phase consists of.
PARTS = {
    "slurm": ("tiers",),
    "kubernetes": ("preflight", "crds", "release", "checks", "probe", "topology"),
    "verify": ("trays", "quick"),
}
_TAGS = {"always", *PHASES, *(part for parts in PARTS.values() for part in parts)}
_SHOWN = 5


@dataclass(frozen=True)
class Inventory:
    """What the inventory says.

    trays: the hosts that discover asks, each with its address (itself where none is given). controllers: the hosts of
    slurmctld. variables: those of the first tray. kubeconfig: whether that file is there.
    """

    trays: Mapping[str, str]
    controllers: Sequence[str]
    variables: Mapping[str, Any]
    kubeconfig: bool = False
    # The hosts that --limit leaves; None without a limit.
    limit: Collection[str] | None = None
    # What --tags says.
    tags: Collection[str] = ()


def phases(inventory: Inventory) -> list[str]:
    """What the site has: Slurm where it names a controller, Kubernetes where it says what to install there."""
    told = inventory.variables
    kubernetes = bool(told.get("dra_driver_shape") or told.get("k8s_topology_schedulers"))
    has = {
        "slurm": bool(inventory.controllers),
        # With the DRA driver its own playbook gives IMEX to its owner, once no ComputeDomain lives.
        "imex": not told.get("dra_driver_shape") and (bool(inventory.controllers) or "imex_owner" in told),
        "kubernetes": kubernetes,
    }
    return [name for name in PHASES if has.get(name, True)]


def tagged(wanted: Sequence[str], run: Collection[str], skip: Collection[str]) -> list[str]:
    """Those of the phases that --tags (run) and --skip-tags (skip) leave; one stays where only a part of it is meant.

    Ansible alone would still run, in a phase that is left out, what has the tag always: each role's look at its
    arguments, on every tray. Tags of which none is ours, as of a playbook that imports this one, are left to Ansible.
    """
    anything = not _TAGS & set(run) or {"all", "tagged"} & set(run)
    return [
        name
        for name in wanted
        if (anything or {name, *PARTS.get(name, ())} & set(run)) and not {name, "all", "tagged"} & set(skip)
    ]


def driver(inventory: Inventory) -> bool:
    """Whether the phase kubernetes brings the DRA driver; a site that only has schedulers told the cliques has none."""
    told = inventory.variables
    return bool(told.get("dra_driver_shape") or not told.get("k8s_topology_schedulers"))


def problems(inventory: Inventory, wanted: Sequence[str], fabric: Fabric | None) -> list[str]:
    """One sentence for each thing that would fail later, on some host, in the middle of the run."""
    return [sentence for check in _CHECKS for sentence in check(inventory, wanted, fabric)]


def _phases(inventory: Inventory, wanted: Sequence[str], fabric: Fabric | None) -> Iterator[str]:
    for name in wanted:
        if name not in PHASES:
            yield f"site_phases: {shown(name)} is no phase{nearest(name, PHASES)}"
    if "slurm" in wanted and not inventory.controllers:
        yield "slurm_controller: is empty; put the host of slurmctld into this group, or leave slurm out of site_phases"
    if {"imex", "kubernetes"} <= set(wanted) and driver(inventory):
        yield "site_phases: leave imex out, for with the DRA driver the phase kubernetes gives IMEX to its owner"
    if "kubernetes" in wanted and not inventory.kubeconfig:
        variable = "dra_driver_kubeconfig" if driver(inventory) else "k8s_topology_kubeconfig"
        yield f"{variable}: there is no such file on the controller; name the cluster's kubeconfig"


def _trays(inventory: Inventory, wanted: Sequence[str], fabric: Fabric | None) -> Iterator[str]:
    if not inventory.trays:
        yield "site_tray_hosts: matches no host; name the pattern of the trays"
    both = sorted(inventory.trays.keys() & set(inventory.controllers))
    if both:
        yield f"slurm_controller: {summarize(both)} would be asked as trays too; set site_tray_hosts to the trays alone"
    by_address: dict[str, list[str]] = {}
    for name, address in inventory.trays.items():
        by_address.setdefault(address, []).append(name)
    for address, names in by_address.items():
        if len(names) > 1:
            yield f"ansible_host: {summarize(sorted(names))} have the same address {address}; give each tray its own"


def _places(inventory: Inventory, wanted: Sequence[str], fabric: Fabric | None) -> Iterator[str]:
    if fabric is None:
        return
    if "imex" in wanted:
        without = [name for name, tray in fabric.trays.items() if not tray["imex_address"]]
        if without and inventory.variables.get("imex_owner", "domain") in ("domain", "host_managed"):
            yield f"imex_address: the fabric file has none of {summarize(without)}; set imex_network and discover again"


def _words(inventory: Inventory, wanted: Sequence[str], fabric: Fabric | None) -> Iterator[str]:
    owner = inventory.variables.get("imex_owner", "domain")
    if owner not in OWNERS:
        yield f"imex_owner: {shown(owner)} is no owner{nearest(owner, OWNERS)}"
    slurm = inventory.variables.get("site_slurm", "existing")
    if slurm not in SLURM:
        yield f"site_slurm: {shown(slurm)} must be existing or managed"


def warnings(inventory: Inventory, wanted: Sequence[str], fabric: Fabric | None) -> list[str]:
    """What is well as it is, if it is meant."""
    told = []
    lost = [name for name in fabric.trays if name not in inventory.trays] if fabric else []
    if lost:
        told.append(f"{summarize(lost)}: in the fabric file and not in the inventory, so they are left alone.")
    for tag in inventory.tags:
        if tag in PHASES and tag not in wanted:
            told.append(f"--tags: this site has no phase {tag}, so nothing is done for it.")
        elif tag not in _TAGS and "did you mean" in (meant := nearest(tag, PHASES)):
            told.append(f"--tags: {shown(tag)} is no phase{meant}")
    if inventory.limit is not None:
        if "slurm" in wanted and not set(inventory.controllers) & set(inventory.limit):
            told.append("The limit leaves slurm_controller out, so Slurm is told nothing; add it to the limit.")
        if "localhost" not in inventory.limit and {"verify", "report"} & set(wanted):
            told.append("The limit leaves localhost out, so nothing is verified or reported; add it to the limit.")
    return told


_CHECKS = (_phases, _trays, _places, _words)
