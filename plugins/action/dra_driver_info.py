# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check a cluster for the DRA driver; documented by the module of the same name."""

from __future__ import annotations

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result, Variables
from ansible_collections.rackscale.nvlink.plugins.modules.dra_driver_info import DOCUMENTATION
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import role_phases
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import ControllerAction

OPTIONS = schemas.arguments(DOCUMENTATION)


class ActionModule(ControllerAction):
    """Reads one cluster, on the controller."""

    CHANGES = False

    def act(self, task_vars: Variables) -> Result:
        _spec, options = self.validate_argument_spec(argument_spec=OPTIONS)
        return role_phases.run(options, task_vars.get("hostvars") or {}, self._task.check_mode)
