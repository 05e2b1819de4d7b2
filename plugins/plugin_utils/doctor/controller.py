# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of the controller: versions, collections and libraries that the site's variables need, ansible.cfg. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor import matrix
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor.checks import (
    ERROR,
    INFO,
    LOCALHOST,
    OK,
    WARNING,
    Check,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import as_list

READ = (
    "dra_driver_shape",
    "fabric_sources",
    "imex_network",
    "imex_tls",
    "k8s_topology_schedulers",
    "site_slurm",
    "slurm_accounting",
    "verify_kubeconfig",
)
"""The variables of localhost that the checks read."""
ROUNDS = 4
"""More rounds of forks than this for one task on all trays are slow."""


@dataclass(frozen=True)
class Controller:
    """What is installed and configured here.

    collections, libraries: name -> version, None where it is missing, "" where its version is unknown. config: options
    of ansible.cfg by their names in `ansible-config list`, with forks and ssh_args of the connection plugin ssh.
    """

    core: str
    python: str
    collections: Mapping[str, str | None] = field(default_factory=dict)
    libraries: Mapping[str, str | None] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)


_SOURCES = {
    "ssh": ("ClusterShell",),
    "rest": ("jmespath", "urllib3"),
    "topograph": ("urllib3",),
    "kubernetes": ("kubernetes",),
}


def checks(controller: Controller, variables: Variables, trays: int, processors: int) -> Iterator[Check]:
    """variables: those of localhost, READ. trays: their number. processors: those of the controller."""
    yield _check("ansible_core", *matrix.evaluate("ansible_core", controller.core))
    yield _check("controller_python", *matrix.evaluate("controller_python", controller.python))
    yield from _installed(
        "collections",
        needed_collections(variables),
        controller.collections,
        matrix.COLLECTIONS,
        "ansible-galaxy collection install {name}",
    )
    yield from _installed(
        "libraries",
        needed_libraries(variables),
        controller.libraries,
        matrix.LIBRARIES,
        "python -m pip install '{name}>={oldest}'",
    )
    yield from _config(controller.config, trays, processors)


def needed_collections(variables: Variables) -> dict[str, str]:
    """Collection -> the variable that needs it."""
    needed = {}
    if variables.get("dra_driver_shape"):
        needed["kubernetes.core"] = "dra_driver_shape"
    if variables.get("imex_tls") == "ca":
        needed["community.crypto"] = "imex_tls"
    if variables.get("site_slurm") == "managed" and boolean(variables.get("slurm_accounting", True), strict=False):
        needed["ansible.mariadb"] = "site_slurm"
    return needed


def needed_libraries(variables: Variables) -> dict[str, str]:
    """Python library -> the variable that needs it; empty for those that every playbook needs."""
    needed = {"fastjsonschema": ""}
    kubernetes = ("dra_driver_shape", "k8s_topology_schedulers", "verify_kubeconfig")
    named = next((name for name in kubernetes if variables.get(name)), None)
    if named:
        needed["kubernetes"] = named
    if variables.get("imex_network"):
        needed["netaddr"] = "imex_network"
    sources = {word for row in as_list(variables.get("fabric_sources")) for word in ([row] if _is_text(row) else row)}
    for source, libraries in _SOURCES.items():
        if source in sources:
            needed |= dict.fromkeys(libraries, "fabric_sources")
    return needed


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _installed(
    name: str,
    needed: Mapping[str, str],
    installed: Mapping[str, str | None],
    oldest: Mapping[str, str],
    remedy: str,
) -> Iterator[Check]:
    for wanted, variable in needed.items():
        version, least = installed.get(wanted), oldest[wanted]
        cause = f" and {variable} needs it" if variable else " and every run needs it"
        how = remedy.format(name=wanted, oldest=least)
        if version is None:
            yield _check(name, ERROR, f"{wanted} is not installed{cause}: {how}")
        elif version and matrix.is_older(version, least):
            old = f"{wanted} is {version}, older than {least}, the oldest that is supported"
            yield _check(name, WARNING, f"{old}: {how} --upgrade")
        else:
            yield _check(name, OK, f"{wanted} {version}".strip())


def _config(config: Mapping[str, Any], trays: int, processors: int) -> Iterator[Check]:
    found = [
        *_flag(
            not config.get("INVENTORY_ANY_UNPARSED_IS_FAILED"),
            WARNING,
            "an inventory source that cannot be read is only a warning, and its trays are missing; set"
            " any_unparsed_is_failed = true in [inventory] of ansible.cfg",
        ),
        *_flag(
            bool(config.get("INJECT_FACTS_AS_VARS")),
            INFO,
            "facts of a host become variables of that host; set inject_facts_as_vars = false in [defaults] of"
            " ansible.cfg where no other role of the site needs them",
        ),
        *_flag(
            not config.get("HOST_KEY_CHECKING", True),
            WARNING,
            "host keys are not checked, so another machine can pose as a tray; remove host_key_checking = false",
        ),
        *_flag(
            "ServerAliveInterval" not in str(config.get("ssh_args") or ""),
            INFO,
            "a tray that dies during a task is noticed after minutes; add -o ServerAliveInterval=10"
            " -o ServerAliveCountMax=3 to ssh_args in [ssh_connection] of ansible.cfg",
        ),
    ]
    forks = int(config.get("forks") or 5)
    if trays > ROUNDS * forks:
        advised = min(trays, max(ROUNDS * processors, forks + 1))
        found.append(
            _check(
                "ansible_cfg",
                WARNING,
                f"forks is {forks} for {count(trays, 'tray')}, so each task takes {-(-trays // forks)} rounds; set"
                f" forks = {advised} in [defaults] of ansible.cfg (four for each processor)",
            )
        )
    yield from found or [_check("ansible_cfg", OK, "")]


def _flag(wrong: bool, status: str, message: str) -> Sequence[Check]:
    return [_check("ansible_cfg", status, message)] if wrong else []


def _check(name: str, status: str, message: str) -> Check:
    return Check(name, status, LOCALHOST, message)
