# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan a run of the playbook site and check its inventory; the module of the same name documents it."""

from __future__ import annotations

import os
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.modules.site_plan import ARGUMENT_SPEC
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout import site
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout.site import Inventory


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        self._task.args = {option: value for option, value in self._task.args.items() if value is not None}
        _validation, options = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        path = options["fabric_file"]
        if not os.path.isabs(path):
            raise AnsibleActionFail(
                f"fabric_file: {path!r} is not an absolute path; use one, such as -e fabric_file=/srv/site/fabric.json"
            )
        hostvars = (task_vars or {})["hostvars"]
        trays = {name: str(hostvars[name].get("ansible_host") or name) for name in options["trays"]}
        variables = hostvars[next(iter(trays))] if trays else (task_vars or {})
        limit = (task_vars or {}).get("ansible_play_hosts_all") if (task_vars or {}).get("ansible_limit") else None
        run, skip = ((task_vars or {}).get(f"ansible_{which}_tags") or () for which in ("run", "skip"))
        inventory = Inventory(trays, options["controllers"], variables, _kubeconfig(variables), limit, run)
        phases = site.select_by_tags(options["phases"] or site.default_phases(inventory), run, skip)
        try:
            fabric = fabric_file.load(path) if os.path.exists(path) else None
        except NvlinkError as error:
            raise AnsibleActionFail(f"{str(error).rstrip('.')}.") from None
        problems = site.problems(inventory, phases, fabric)
        result = {
            "changed": False,
            "changes": [],
            "findings": [],
            "phases": phases,
            "dra_driver": "kubernetes" in phases and site.installs_dra_driver(inventory),
            "problems": problems,
            "warnings": site.warnings(inventory, phases, fabric),
        }
        if problems:
            more = f" The list problems has {count(len(problems) - 1, 'more problem')}." if len(problems) > 1 else ""
            return {**result, "failed": True, "msg": f"{problems[0]}.{more}"}
        return {**result, "msg": f"{count(len(trays), 'tray')}; phases: {', '.join(phases) or 'none'}."}


def _kubeconfig(variables: Any) -> bool:
    """Whether the kubeconfig file of the phase kubernetes exists."""
    paths = [variables.get(name) for name in ("dra_driver_kubeconfig", "k8s_topology_kubeconfig")]
    path = next((str(path) for path in paths if path), os.environ.get("KUBECONFIG") or "~/.kube/config")
    return os.path.exists(os.path.expanduser(path))
