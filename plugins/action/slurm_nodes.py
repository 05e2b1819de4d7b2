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
from ansible_collections.rackscale.nvlink.plugins.modules.slurm_nodes import ARGUMENTS, REQUIRED_IF, RETURN, misplaced
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import absolute
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas, trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout import summary
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout.waves import check_controller
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import clusters

SCHEMA = schemas.of_return(RETURN)
# Calls of Slurm's programs besides those for each block, and seconds to connect, copy the module and start Python.
_CALLS, _REST = 20, 60.0


class ActionModule(GuardedAction):
    def act(self, task_vars: Variables) -> Result:
        _validation, options = self.validate_argument_spec(argument_spec=ARGUMENTS, required_if=REQUIRED_IF)
        host = str(self._task.delegate_to or task_vars.get("inventory_hostname") or "")
        problem = misplaced(options)
        if problem:
            raise AnsibleActionFail(problem)
        arguments = {key: value for key, value in self._task.args.items() if key not in ("fabric_file", "cluster")}
        try:
            check_controller(host, self._trays(task_vars))
            if options["state"] == "spares_present" or options["clique_test"]:
                arguments["blocks"] = _blocks(options["fabric_file"], options["cluster"], bool(options["clique_test"]))
        except NvlinkError as error:
            raise AnsibleActionFail(f"{str(error).rstrip('.')}.") from None
        end = _end(options, len(arguments.get("blocks", ())))
        result = self.run_module("rackscale.nvlink.slurm_nodes", arguments, task_vars, SCHEMA, end)
        if not result.get("failed"):
            result["text"] = summary.of_nodes(
                {**options, "blocks": arguments.get("blocks")}, result, self._task.check_mode
            )
        return result

    def _trays(self, task_vars: Variables) -> set[str]:
        """The trays of the inventory, and of the fabric file where localhost names one."""
        trays = set((task_vars.get("groups") or {}).get("nvlink", ()))
        given = fabric_file.path_from(functools.partial(trust.controller_value, task_vars))
        path = absolute(given) if given else ""
        return trays.union(fabric_file.load(path).trays) if path and os.path.isfile(path) else trays


def _blocks(path: str, name: str | None, by_clique: bool) -> list[dict[str, Any]]:
    """The blocks with the NodeNames of their trays, in natural order; by_clique: under the names of the cliques."""
    fabric = fabric_file.load(path)
    return [
        {
            "name": block.clique if by_clique else block.name,
            "nodes": [fabric.trays[tray]["slurm_node"] for tray in block.trays],
        }
        for block in fabric.slurm_blocks(clusters.require(fabric, name, path))
        if block.clique
    ]


def _end(options: Arguments, blocks: int) -> float:
    """Seconds that lie above all that the module may wait for."""
    rounds = -(-len(options["nodes"] or ()) // MAX_TESTS) if options["test"] else 0
    if options["clique_test"]:
        rounds += -(-blocks // MAX_TESTS)
    # Of each block its reservations are changed, or created and deleted.
    calls = _CALLS + (4 if options["clique_test"] else 2) * blocks
    return options["wait"] + rounds * options["test_timeout"] + calls * options["timeout"] + _REST
