# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of fabric_facts: gives the tray a time limit, and keeps only documented facts of its answer."""

from __future__ import annotations

from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.module_utils import subsets
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result, Variables
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import tray_report
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import reading

_DEFAULTS = subsets.Options()
# Seconds to connect, to copy the module, to start Python and to read addresses and versions.
_REST = 60.0


class ActionModule(GuardedAction):
    CHANGES = False

    def act(self, task_vars: Variables) -> Result:
        arguments = dict(self._task.args)
        names = arguments.get("gather_subset", _DEFAULTS.gather_subset)
        names = names.split(",") if isinstance(names, str) else names
        timeouts = [arguments.get(name, getattr(_DEFAULTS, name)) for name in ("timeout", "imex_timeout")]
        try:
            seconds = _REST + reading.waits(names, *map(float, timeouts))
        except (TypeError, ValueError):
            raise AnsibleActionFail("fabric_facts: timeout and imex_timeout are numbers of seconds.") from None
        answer = self.run_module("rackscale.nvlink.fabric_facts", arguments, task_vars, tray_report.SCHEMA, seconds)
        return reading.complete(answer, names)
