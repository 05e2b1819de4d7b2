# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks at a site's inventory before the playbook site touches a host; the module of the same name documents it."""

from __future__ import annotations

import os
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
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
                f"fabric_file: {path!r} is no absolute path; give one, as -e fabric_file=/srv/site/fabric.json"
            )
        hostvars = (task_vars or {})["hostvars"]
        trays = {name: str(hostvars[name].get("ansible_host") or name) for name in options["trays"]}
        variables = hostvars[next(iter(trays))] if trays else (task_vars or {})
        limit = (task_vars or {}).get("ansible_play_hosts_all") if (task_vars or {}).get("ansible_limit") else None
        run, skip = ((task_vars or {}).get(f"ansible_{which}_tags") or () for which in ("run", "skip"))
        inventory = Inventory(trays, options["controllers"], variables, _kubeconfig(variables), limit, run)
        wanted = site.tagged(options["phases"] or site.phases(inventory), run, skip)
        try:
            fabric = fabric_file.load(path) if os.path.exists(path) else None
        except NvlinkError as error:
            raise AnsibleActionFail(f"{str(error).rstrip('.')}.") from None
        wrong, told = site.problems(inventory, wanted, fabric), site.warnings(inventory, wanted, fabric)
        result = {
            "changed": False,
            "phases": wanted,
            "dra_driver": "kubernetes" in wanted and site.driver(inventory),
            "problems": wrong,
            "warnings": told,
        }
        if wrong:
            more = f" There are {len(wrong) - 1} more, see problems." if len(wrong) > 1 else ""
            return {**result, "failed": True, "msg": f"{wrong[0]}.{more}"}
        return {**result, "msg": f"{len(trays)} trays; phases: {', '.join(wanted) or 'none'}."}


def _kubeconfig(variables: Any) -> bool:
    """Whether the file is there that the roles of the phase kubernetes would read."""
    named = [variables.get(name) for name in ("dra_driver_kubeconfig", "k8s_topology_kubeconfig")]
    path = next((str(name) for name in named if name), os.environ.get("KUBECONFIG") or "~/.kube/config")
    return os.path.exists(os.path.expanduser(path))
