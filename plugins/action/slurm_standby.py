# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of slurm_standby: gives the host an end, and keeps only documented values of its answer."""

from __future__ import annotations

from typing import Any

from ansible_collections.rackscale.nvlink.plugins.modules.slurm_standby import ARGUMENTS, RETURN
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import ends

SCHEMA = schemas.of_return(RETURN)


class ActionModule(GuardedAction):
    def act(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        arguments = dict(self._task.args)
        end = ends.controller(arguments, ARGUMENTS["timeout"]["default"])
        return self.run_module("rackscale.nvlink.slurm_standby", arguments, task_vars, SCHEMA, end)
