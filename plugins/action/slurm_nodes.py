# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of slurm_nodes: reads the blocks of the fabric file, for spare trays, and checks the answer."""

from __future__ import annotations

import functools
import os
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.nodes import MAX_TESTS
from ansible_collections.rackscale.nvlink.plugins.modules.slurm_nodes import ARGUMENTS, RETURN
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas, trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout import summary
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout.waves import check_controller
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import clusters
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import absolute

SCHEMA = schemas.of_return(RETURN)
# Calls of Slurm's programs besides those for each block, and seconds to connect, copy the module and start Python.
_CALLS, _REST = 20, 60.0


class ActionModule(GuardedAction):
    def act(self, task_vars: Variables) -> Result:
        arguments = dict(self._task.args)
        host = str(self._task.delegate_to or task_vars.get("inventory_hostname") or "")
        try:
            check_controller(host, self._trays(task_vars))
        except NvlinkError as error:
            raise AnsibleActionFail(f"{str(error).rstrip('.')}.") from None
        # With any other state the module rejects the option.
        if "fabric_file" in arguments and arguments.get("state") == "spares_present":
            if "blocks" in arguments:
                raise AnsibleActionFail("slurm_nodes has both fabric_file and blocks: name the fabric file alone.")
            path = arguments.pop("fabric_file")
            if not isinstance(path, str) or not path:
                raise AnsibleActionFail(
                    f"slurm_nodes, option fabric_file: {path!r} is not a path, name the fabric file."
                )
            arguments["blocks"] = self._blocks(path, arguments.pop("cluster", None))
        result = self.run_module("rackscale.nvlink.slurm_nodes", arguments, task_vars, SCHEMA, _end(arguments))
        if not result.get("failed"):
            result["text"] = summary.of_nodes(arguments, result, self._task.check_mode)
        return result

    def _trays(self, task_vars: Variables) -> set[str]:
        """The trays of the inventory, and of the fabric file where localhost names one."""
        trays = set((task_vars.get("groups") or {}).get("nvlink", ()))
        given = fabric_file.path_from(functools.partial(trust.controller_value, task_vars))
        path = absolute(given) if given else ""
        return trays.union(fabric_file.load(path).trays) if path and os.path.isfile(path) else trays

    def _blocks(self, path: str, name: object) -> list[dict[str, Any]]:
        """The blocks with the NodeNames of their trays, in natural order."""
        try:
            fabric = fabric_file.load(path)
            cluster = clusters.require(fabric, name, path)
        except NvlinkError as error:
            raise AnsibleActionFail(f"{str(error).rstrip('.')}.") from None
        return [
            {"name": block.name, "nodes": [fabric.trays[tray]["slurm_node"] for tray in block.trays]}
            for block in fabric.slurm_blocks(cluster)
            if block.clique
        ]


def _end(arguments: Arguments) -> float:
    """Seconds that lie above all that the module may wait for."""
    try:
        wait, test, call = (
            float(arguments.get(name, ARGUMENTS[name]["default"])) for name in ("wait", "test_timeout", "timeout")
        )
    except (TypeError, ValueError):
        raise AnsibleActionFail("slurm_nodes: wait, test_timeout and timeout are numbers of seconds.") from None
    rounds = -(-len(arguments.get("nodes") or ()) // MAX_TESTS) if arguments.get("test") else 0
    calls = _CALLS + 2 * len(arguments.get("blocks") or ())
    return wait + rounds * test + calls * call + _REST
