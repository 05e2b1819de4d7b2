# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of slurm_tray: gives the tray an end, and keeps only documented values of its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.rackscale.nvlink.plugins.modules.slurm_tray import ARGUMENTS, RETURN
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import ends

SCHEMA = schemas.of_return(RETURN)


class ActionModule(GuardedAction):
    def act(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        arguments = dict(self._task.args)
        if task_vars.get("inventory_hostname") in (arguments.pop("controllers", None) or []):
            return {"changed": False, "skipped": True, "skip_reason": "This host is a Slurm controller."}
        before = [task_vars.get(str(name)) for name in arguments.pop("after", None) or []]
        controller_failed = boolean(arguments.pop("controller_failed", False), strict=False)
        for result in before:
            if isinstance(result, Mapping) and result.get("unreachable"):
                raise AnsibleConnectionFailure("The tray was unreachable in an earlier step: run again when it is up.")
            if isinstance(result, Mapping) and result.get("failed"):
                raise AnsibleActionFail(f"The tray was not prepared: {result.get('msg')}")
        if controller_failed:
            raise AnsibleActionFail("This tray was left as it is, since its Slurm controller failed.")
        end = ends.tray(arguments, ARGUMENTS["timeout"]["default"])
        return self.run_module("rackscale.nvlink.slurm_tray", arguments, task_vars, SCHEMA, end)
