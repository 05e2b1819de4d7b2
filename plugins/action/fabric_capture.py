# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of fabric_capture: gives the host an end, and keeps only documented values of its answer."""

from __future__ import annotations

from typing import Any

from ansible_collections.rackscale.nvlink.plugins.modules.fabric_capture import ARGUMENTS, RETURN
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction

SCHEMA = schemas.of_return(RETURN)
# Seconds to connect, to copy the module, to start Python, and to read addresses and versions.
_REST = 60.0
# NVML and nvidia-smi twice each, nvidia-imex-ctl six times: for the facts, and as they print it.
_ANSWERS = 10


class ActionModule(GuardedAction):
    def act(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        _spec, options = self.validate_argument_spec(argument_spec=ARGUMENTS)
        seconds = _REST + _ANSWERS * options["timeout"]
        return self.run_module("rackscale.nvlink.fabric_capture", dict(self._task.args), task_vars, SCHEMA, seconds)
