# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run one phase of dra_driver_info or of the role dra_driver, on the controller; their modules document it."""

from __future__ import annotations

from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import phases
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction

_INPUTS = {"inputs": {"type": "dict", "default": {}}}


class ActionModule(GuardedAction):
    """The action plugin of both modules, by plugin_routing in meta/runtime.yml."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def act(self, task_vars: Variables) -> Result:
        public = str(self._task.action).endswith("dra_driver_info")
        choices = phases.PUBLIC if public else phases.INTERNAL
        phase = {"phase": {"type": "str", "choices": list(choices), "required": True}}
        _spec, options = self.validate_argument_spec(
            argument_spec={**phase, **phases.SPEC, **({} if public else _INPUTS)}
        )
        hostvars = task_vars.get("hostvars") or {}
        try:
            return phases.run(options, phases.Inputs(**options.get("inputs", {})), hostvars)
        except NvlinkError as error:
            raise AnsibleActionFail(f"{str(error).rstrip('.')}.") from None
