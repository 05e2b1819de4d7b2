# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run one phase of the role dra_driver, on the controller; documented by the module of the same name."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import phases


class ActionModule(ActionBase):
    """Reads one cluster and returns findings and the inputs of later phases. Changes nothing."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        _spec, options = self.validate_argument_spec(
            argument_spec={
                "phase": {"type": "str", "choices": list(phases.INTERNAL), "required": True},
                "inputs": {"type": "dict", "default": {}},
                **phases.SPEC,
            }
        )
        try:
            inputs = phases.Inputs(**options["inputs"])
            result.update(phases.run(options, inputs, (task_vars or {}).get("hostvars") or {}))
        except NvlinkError as error:
            raise AnsibleActionFail(str(error)) from None
        return result
