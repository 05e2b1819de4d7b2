# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts a host connects to: bounded, whatever the size of the site."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible import constants
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import run_store
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import mapped, whole

SLURMCTLD_PORT = 6817
MAX_PEERS = 17
"""All others of an NVL72's 18 trays; of a larger clique the next ones, so that each tray is tried by as many."""
MAX_SAMPLE = 128
"""Trays to which a Slurm controller connects."""


def next_to(name: str, names: Sequence[str], most: int = MAX_PEERS) -> list[str]:
    """The names that follow one in the list, which begins again at its end; without itself."""
    if name not in names:
        return []
    start = list(names).index(name) + 1
    return [*names[start:], *names[: start - 1]][:most]


def sample(names: Sequence[str], most: int = MAX_SAMPLE) -> list[str]:
    """At most so many of the names, spread evenly."""
    step = max(1, -(-len(names) // most))
    return list(names[::step])


def address(name: str, variables: Variables, hostvars: Any) -> str:
    """ansible_host of a host, or its name; variables: its own, not templated, since its facts may set any."""
    # Most addresses are no template, and a template engine for each of ten thousand hosts takes long.
    value = variables.get("ansible_host") or name
    return str(hostvars[name]["ansible_host"] if "{" in str(value) else value)


def targets(options: Arguments, task_vars: Variables) -> list[dict[str, Any]]:
    """The ports of the tray's neighbours and of slurmctld."""
    tray, hostvars = str(task_vars["inventory_hostname"]), task_vars["hostvars"]
    addresses = _neighbours(tray, options["fabric_file"], task_vars)
    found = [
        {"name": name, "address": at, "port": port} for name, at in addresses.items() for port in options["peer_ports"]
    ]
    for name in options["controllers"]:
        variables = hostvars.raw_get(name)
        slurm = mapped(mapped(variables.get("doctor_slurm")).get("slurm"))
        if not slurm.get("problem"):
            port = whole(slurm.get("slurmctld_port")) or SLURMCTLD_PORT
            found.append({"name": name, "address": address(name, variables, hostvars), "port": port})
    return found


def _neighbours(tray: str, path: str, task_vars: Variables) -> dict[str, str]:
    """Name -> address: of the clique in the fabric file, else those next to the tray in this play."""
    if path:
        try:
            clique = run_store.clique_of(constants.DEFAULT_LOCAL_TMP, path, tray)
        except NvlinkError:
            clique = None  # the first play reports a broken fabric file
        if clique is not None:
            return {name: clique.entry_of(name) for name in next_to(tray, clique.trays)}
    # In the plan, since reading the variables of all neighbours of each tray takes minutes at ten thousand.
    plan = mapped(task_vars["hostvars"].raw_get("localhost").get("doctor_plan"))
    addresses = mapped(plan.get("addresses"))
    hosts = [str(name) for name in task_vars["ansible_play_hosts_all"]]
    return {name: str(addresses.get(name) or name) for name in next_to(tray, hosts)}
