# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check a cluster for the DRA driver; documented by the module of the same name."""

from __future__ import annotations

from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import phases
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction


class ActionModule(GuardedAction):
    """Runs on the controller."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def act(self, task_vars: Variables) -> Result:
        _spec, options = self.validate_argument_spec(argument_spec=phases.SPEC)
        try:
            return phases.run(options, task_vars.get("hostvars") or {})
        except NvlinkError as error:
            raise AnsibleActionFail(f"{str(error).rstrip('.')}.") from None
