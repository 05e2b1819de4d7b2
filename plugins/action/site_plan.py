# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan a run of the playbook site and check its inventory; the module of the same name documents it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.modules.site_plan import ARGUMENT_SPEC
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import login
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout import site
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout.site import Inventory


class ActionModule(GuardedAction):
    TRANSFERS_FILES = False
    _requires_connection = False

    def act(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        _validation, options = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        path = options["fabric_file"]
        hostvars, controllers = task_vars["hostvars"], options["controllers"]
        run, skip = (task_vars.get(f"ansible_{which}_tags") or () for which in ("run", "skip"))
        trays, misplaced = _read_trays(options["trays"], hostvars)
        if not os.path.isabs(path):
            raise AnsibleActionFail(site.wrong_path(path, misplaced))
        inventory = Inventory(
            trays,
            controllers,
            hostvars["localhost"],
            _slurm(controllers, hostvars),
            _kubeconfig(hostvars["localhost"]),
            options["limit"],
            run,
            misplaced,
            options["pattern"],
            list(task_vars["groups"]),
        )
        phases = site.select_by_tags(options["phases"] or site.default_phases(inventory), run, skip)
        try:
            fabric = fabric_file.load(path) if os.path.exists(path) else None
        except NvlinkError as error:
            raise AnsibleActionFail(f"{str(error).rstrip('.')}.") from None
        problems = site.problems(inventory, phases, fabric)
        if problems:
            # One string alone: Ansible prints every value of a failed result.
            ended = (text if text.endswith("?") else f"{text}." for text in problems)
            raise AnsibleActionFail(" ".join(ended))
        return {
            "changed": False,
            "changes": [],
            "findings": [],
            "phases": phases,
            "slurm": inventory.slurm,
            "dra_driver": "kubernetes" in phases and site.installs_dra_driver(inventory),
            "warnings": site.warnings(inventory, phases, fabric),
            "msg": f"{count(len(trays), 'tray')}; phases: {', '.join(phases) or 'none'}.",
        }


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
        address = variables.get("ansible_host") or name
        # Most addresses are no template, and a template engine for each of ten thousand hosts takes long.
        addresses[name] = str(hostvars[name]["ansible_host"] if "{" in str(address) else address)
        misplaced |= wanted & (variables.keys() - set(trust.foreign_variables(variables.get("ansible_facts"))))
    return addresses, misplaced


def _slurm(controllers: Sequence[str], hostvars: Any) -> str:
    """site_slurm of the Slurm controller, which may be a variable of its group."""
    host = controllers[0] if controllers else "localhost"
    foreign = trust.foreign_variables(hostvars.raw_get(host).get("ansible_facts"))
    if foreign:
        raise AnsibleActionFail(trust.refusal(host, foreign)["msg"])
    return str(hostvars[host].get("site_slurm", "existing"))


def _kubeconfig(variables: Any) -> bool:
    """Whether the kubeconfig file of the phase kubernetes exists, or a pod's service account is to be used."""
    paths = [variables.get(name) for name in ("dra_driver_kubeconfig", "k8s_topology_kubeconfig")]
    path = next((str(path) for path in paths if path), os.environ.get("KUBECONFIG") or "~/.kube/config")
    return path == login.IN_CLUSTER or os.path.exists(os.path.expanduser(path))
