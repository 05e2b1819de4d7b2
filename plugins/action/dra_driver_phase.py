# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run one phase of the role dra_driver, on the controller; documented by the module of the same name."""

from __future__ import annotations

import os
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import phases
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction


class ActionModule(GuardedAction):
    """Reads one cluster and returns findings and the inputs of later phases. Changes nothing."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def act(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        _spec, options = self.validate_argument_spec(
            argument_spec={
                "phase": {"type": "str", "choices": list(phases.INTERNAL), "required": True},
                "inputs": {"type": "dict", "default": {}},
                **phases.SPEC,
            }
        )
        if os.pathsep in options["kubeconfig"]:
            problem = f"{options['kubeconfig']} names several files, of which Helm gets one"
            raise AnsibleActionFail(f"dra_driver_kubeconfig: {problem}; set it to the kubeconfig of the cluster")
        try:
            inputs = phases.Inputs(**options["inputs"])
            return phases.run(options, inputs, task_vars.get("hostvars") or {})
        except NvlinkError as error:
            raise AnsibleActionFail(str(error)) from None
