# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The phases of a run of the playbook site, and errors of its inventory, before any host is changed. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import equal
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run.specifications import CHECKS, VARIABLES
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import nearest, shown, similar

PHASES = ("discover", "slurm", "imex", "kubernetes", "verify", "report")
_TAGS = {"always", *CHECKS["site"].tags}
# Tags of parts of a phase, as in the playbooks and roles of the phase.
PARTS = {
    phase: [tag for tag in CHECKS[phase].tags if tag in _TAGS.difference(PHASES)] for phase in PHASES if phase in CHECKS
}
# Variables of localhost that decide what a run does; on trays alone they would have no effect.
OF_LOCALHOST = (
    "fabric_file",
    "site_accept",
    "imex_owner",
    "dra_driver_shape",
    "dra_driver_kubeconfig",
    "k8s_topology_schedulers",
    "k8s_topology_kubeconfig",
    "tray_reading",
)
NO_KUBECONFIG = "no such file on the controller"


@dataclass(frozen=True)
class Inventory:
    """Facts of the inventory and of the command line.

    trays: tray -> its address (its name without ansible_host). controllers: the hosts of slurmctld. variables: those
    of localhost. slurm: site_slurm of the controller. kubeconfig: what is wrong with its file, else empty. limit: the
    hosts of --limit, None without one. tags: those of --tags. misplaced: names of OF_LOCALHOST that only trays have.
    pattern: site_tray_hosts, None where it is not set. groups: the groups of the inventory.
    """

    trays: Mapping[str, str]
    controllers: Sequence[str]
    variables: Variables
    slurm: str = "existing"
    kubeconfig: str = NO_KUBECONFIG
    limit: Collection[str] | None = None
    tags: Collection[str] = ()
    misplaced: Collection[str] = ()
    pattern: str | None = None
    groups: Collection[str] = ()


def default_phases(inventory: Inventory) -> list[str]:
    """The phases that apply: Slurm with a controller, IMEX and Kubernetes with variables of what to do there."""
    variables = inventory.variables
    kubernetes = bool(variables.get("dra_driver_shape") or variables.get("k8s_topology_schedulers"))
    has = {
        "slurm": bool(inventory.controllers),
        # With the DRA driver the phase kubernetes configures IMEX, once no ComputeDomain exists.
        "imex": not variables.get("dra_driver_shape") and "imex_owner" in variables,
        "kubernetes": kubernetes,
    }
    return [name for name in PHASES if has.get(name, True)]


def select_by_tags(phases: Sequence[str], run: Collection[str], skip: Collection[str]) -> list[str]:
    """The phases that --tags (run) and --skip-tags (skip) select, with a phase of which a part is selected.

    In a deselected phase Ansible would still run tasks with the tag always: the validation of each role's arguments, on
    every tray. Foreign tags, such as those of a playbook that imports this one, are left to Ansible.
    """
    every = not _TAGS & set(run) or {"all", "tagged"} & set(run)
    return [
        name
        for name in phases
        if (every or {name, *PARTS.get(name, ())} & set(run)) and not {name, "all", "tagged"} & set(skip)
    ]


def playbooks(inventory: Inventory, phases: Sequence[str]) -> list[str]:
    """The playbooks of these phases."""
    slurm = "slurm_bringup" if inventory.slurm == "managed" else "slurm"
    names = {"slurm": slurm, "imex": "rollout", "report": "render"}
    return [names.get(phase, phase) for phase in phases]


def misplaced(name: str) -> str:
    """The sentence on a variable that only trays have."""
    return f"{name}: set for trays and not for localhost, where it is read; set it for the group all"


def problems(inventory: Inventory, phases: Sequence[str], fabric: Fabric | None) -> Iterator[str]:
    """One sentence for each error that would stop a later phase on some host."""
    if not phases:
        yield f"--tags, --skip-tags: leave no phase to run; run one of {', '.join(default_phases(inventory))}"
    absent = [name for name in inventory.controllers if inventory.limit is not None and name not in inventory.limit]
    if "slurm" in phases and inventory.slurm == "managed" and absent:
        yield f"--limit: excludes {summarize(absent)}, without which Slurm is not installed; add slurm_controller to it"
    if "kubernetes" in phases and inventory.kubeconfig:
        variable = "dra_driver_kubeconfig" if inventory.variables.get("dra_driver_shape") else "k8s_topology_kubeconfig"
        yield f"{variable}: {inventory.kubeconfig}; set it to the kubeconfig of the cluster"
    yield from _trays(inventory)
    without = [name for name, tray in fabric.trays.items() if not tray["imex_address"]] if fabric else []
    if without and "imex" in phases and inventory.variables.get("imex_owner") in ("domain", "host_managed"):
        yield f"imex_address: {summarize(without)} lacks one in the fabric file; set imex_network and run discover"
    values = {"imex_owner": inventory.variables.get("imex_owner", "domain"), "site_slurm": inventory.slurm}
    for name, value in values.items():
        if value not in (words := VARIABLES[name]["choices"]):
            yield f"{name}: {shown(value)} is not one of its values{nearest(value, words)}"
    yield from map(misplaced, sorted(inventory.misplaced))


def _trays(inventory: Inventory) -> Iterator[str]:
    if not inventory.trays:
        yield _no_trays(inventory)
    both = sorted(inventory.trays.keys() & set(inventory.controllers))
    if both:
        yield f"site_tray_hosts: {summarize(both)} of group slurm_controller would be a tray too; exclude that group"
    for address, names in equal((address, name) for name, address in inventory.trays.items()).items():
        if len(names) > 1:
            yield f"ansible_host: {summarize(sorted(names))} have the same address {address}; give each tray its own"


def _no_trays(inventory: Inventory) -> str:
    if inventory.pattern is None:
        return (
            "site_tray_hosts: is not set, and the groups trays and nvlink have no host; put the trays into the group"
            " trays, or set site_tray_hosts to their pattern"
        )
    # Without a list of all groups, which may be one a clique.
    remedy = similar(inventory.pattern, inventory.groups) or "; set it to the pattern of the trays"
    return f"site_tray_hosts: {shown(inventory.pattern)} matches no host{remedy}"


def warnings(inventory: Inventory, phases: Sequence[str], fabric: Fabric | None) -> list[str]:
    """Conditions that may be intended."""
    found = []
    absent = [name for name in fabric.trays if name not in inventory.trays] if fabric else []
    if absent:
        found.append(f"{summarize(absent)}: in the fabric file and not in the inventory; not changed in this run.")
    for tag in inventory.tags:
        if tag in PHASES and tag not in phases:
            why = "imex_owner is not set" if tag == "imex" and "imex_owner" not in inventory.variables else ""
            found.append(f"--tags: phase {tag} does not apply to this inventory{why and f' ({why})'} and is skipped.")
    limit = inventory.limit
    if limit is not None and "slurm" in phases and not set(inventory.controllers) & set(limit):
        found.append("--limit excludes slurm_controller, so Slurm is not configured; add it to the limit.")
    return found
