# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of the controller: collections and libraries that the site's variables need, and ansible.cfg. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor import matrix
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor.results import OK, check
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import ERROR, INFO, WARNING
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run.site import Inventory
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import as_list

ROUNDS = 4
"""More rounds of forks than this for one task on all trays are slow."""


USERS_OF_KUBERNETES = ("dra_driver_shape", "k8s_topology_schedulers", "verify_kubeconfig")

CONFIG = {
    "INVENTORY_ANY_UNPARSED_IS_FAILED": "an inventory source that cannot be read is only a warning, and its trays are"
    " missing; set any_unparsed_is_failed = true in [inventory] of ansible.cfg",
    "HOST_KEY_CHECKING": "host keys are not checked, so another machine can pose as a tray; remove host_key_checking ="
    " false",
}
"""An option of Ansible that should be set -> what is wrong without it, with the remedy."""


@dataclass(frozen=True)
class Controller:
    """What is installed and configured here.

    installed: collection or library -> version, None where it is missing, "" where its version is unknown. unset: the
    options of CONFIG that are not set. forks: those of this run. processors: how many there are.
    """

    installed: Mapping[str, str | None] = field(default_factory=dict)
    unset: Sequence[str] = ()
    forks: int = 5
    processors: int = 1


def checks(controller: Controller, inventory: Inventory, discovers: bool = True) -> Iterator[Finding]:
    """The checks of the controller. discovers: whether this run does."""
    trays = len(inventory.trays)
    for name, variable in needed(inventory.variables, inventory.slurm, discovers).items():
        yield _installed(name, variable, controller.installed.get(name))
    found = [(WARNING, CONFIG[option]) for option in controller.unset]
    if trays > ROUNDS * controller.forks:
        advised = min(trays, max(ROUNDS * controller.processors, controller.forks + 1))
        rounds = -(-trays // controller.forks)
        message = f"forks is {controller.forks} for {count(trays, 'tray')}, so each task takes {rounds} rounds; set"
        found.append((INFO, f"{message} forks = {advised} in [defaults] of ansible.cfg (four for each processor)"))
    yield from (check("ansible_cfg", *row) for row in found)
    if not found:
        yield check("ansible_cfg", OK, "")


def needed(variables: Variables, slurm: str, discovers: bool) -> dict[str, str]:
    """Collection or library -> the variable that needs it; empty for what every playbook needs.

    Few variables are read: a template of the site may have no value on localhost.
    """
    accounting = boolean(variables.get("slurm_accounting", True), strict=False)
    of_kubernetes = next((name for name in USERS_OF_KUBERNETES if variables.get(name)), "")
    rows = as_list(variables.get("fabric_sources")) if discovers else []
    sources = {word for row in rows for word in ([row] if isinstance(row, str) else row)}
    wanted = (
        ("kubernetes.core", variables.get("dra_driver_shape"), "dra_driver_shape"),
        ("community.crypto", variables.get("imex_tls") == "ca", "imex_tls"),
        ("ansible.mariadb", slurm == "managed" and accounting, "site_slurm"),
        ("ansible-core", True, ""),
        ("fastjsonschema", True, ""),
        ("kubernetes", of_kubernetes, of_kubernetes),
        ("netaddr", discovers and variables.get("imex_network"), "imex_network"),
        ("ClusterShell", "ssh" in sources, "fabric_sources"),
        ("jmespath", "rest" in sources, "fabric_sources"),
        ("urllib3", sources & {"rest", "topograph"}, "fabric_sources"),
        ("kubernetes", "kubernetes" in sources, "fabric_sources"),
    )
    return {name: variable for name, is_needed, variable in wanted if is_needed}


def _installed(name: str, variable: str, version: str | None) -> Finding:
    is_library = name in matrix.LIBRARIES
    about, oldest = "libraries" if is_library else "collections", {**matrix.COLLECTIONS, **matrix.LIBRARIES}[name]
    remedy = f"python -m pip install '{name}>={oldest}'" if is_library else f"ansible-galaxy collection install {name}"
    if name == "ansible-core":
        remedy = f"make an environment with Python {matrix.PYTHON} or later; there {remedy}"
    if version is None:
        cause = f"{variable} needs it" if variable else "every run needs it"
        return check(about, ERROR, f"{name} is not installed and {cause}: {remedy}")
    if version and matrix.is_older(version, oldest):
        old = f"{name} is {version}, older than {oldest}, the oldest that is supported"
        return check(about, WARNING, f"{old}: {remedy} --upgrade")
    return check(about, OK, f"{name} {version}".strip())
