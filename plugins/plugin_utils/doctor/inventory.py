# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory as plugin_utils/run/site.py checks it, read from Ansible's variables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Variables
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import login
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run import site
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run.site import Inventory


def read(options: Arguments, task_vars: Variables) -> Inventory:
    """By the options trays, controllers, pattern and limit of run_check and doctor."""
    hostvars, controllers = task_vars["hostvars"], options["controllers"]
    trays, misplaced = _read_trays(options["trays"], hostvars)
    return Inventory(
        trays,
        controllers,
        hostvars["localhost"],
        _slurm(controllers, hostvars),
        _kubeconfig(hostvars["localhost"]),
        options.get("limit"),
        task_vars.get("ansible_run_tags") or (),
        misplaced,
        options["pattern"],
        list(task_vars["groups"]),
    )


def _read_trays(names: Sequence[str], hostvars: Any) -> tuple[dict[str, str], set[str]]:
    """(tray -> its address, the variables of localhost that trays have and localhost does not).

    Nothing else is read of a tray, since its facts may set any variable.
    """
    own = hostvars.raw_get("localhost")
    wanted = {name for name in site.OF_LOCALHOST if name not in own}
    addresses: dict[str, str] = {}
    misplaced: set[str] = set()
    for name in names:
        variables = hostvars.raw_get(name)
        addresses[name] = address(name, variables, hostvars)
        of_tray = wanted & (variables.keys() - set(trust.foreign_variables(variables.get("ansible_facts"))))
        # The inventory plugin sets the path for localhost too.
        if variables.get("fabric_file") == own.get("nvlink_fabric_file"):
            of_tray.discard("fabric_file")
        misplaced |= of_tray
    return addresses, misplaced


def address(name: str, variables: Variables, hostvars: Any) -> str:
    """ansible_host of a host, or its name; variables: its own, not templated, since its facts may set any."""
    # Most addresses are no template, and a template engine for each of ten thousand hosts takes long.
    value = variables.get("ansible_host") or name
    return str(hostvars[name]["ansible_host"] if "{" in str(value) else value)


def _slurm(controllers: Sequence[str], hostvars: Any) -> str:
    """site_slurm of the Slurm controller, which may be a variable of its group."""
    host = controllers[0] if controllers else "localhost"
    foreign = trust.foreign_variables(hostvars.raw_get(host).get("ansible_facts"))
    if foreign:
        raise AnsibleActionFail(trust.refusal(host, foreign)["msg"])
    return str(hostvars[host].get("site_slurm", "existing"))


def _kubeconfig(variables: Any) -> str:
    """What is wrong with the kubeconfig file of the phase kubernetes; empty for files and a pod's service account."""
    paths = [variables.get(name) for name in ("dra_driver_kubeconfig", "k8s_topology_kubeconfig")]
    path = next((str(path) for path in paths if path), os.environ.get("KUBECONFIG") or "~/.kube/config")
    files = [os.path.expanduser(part) for part in path.split(os.pathsep)]
    return "" if path == login.IN_CLUSTER or any(map(os.path.exists, files)) else site.NO_KUBECONFIG
