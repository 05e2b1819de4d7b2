# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of slurm_nodes: reads the blocks of the fabric file, for spare trays."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import clusters


class ActionModule(ActionBase):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        arguments = {option: value for option, value in self._task.args.items() if value is not None}
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
        result: dict[str, Any] = self._execute_module(
            module_name="rackscale.nvlink.slurm_nodes", module_args=arguments, task_vars=task_vars
        )
        return result

    def _blocks(self, path: str, name: object) -> list[dict[str, Any]]:
        """The blocks with the NodeNames of their trays, in the order of the rack."""
        path = self._loader.path_dwim(path)
        try:
            fabric = fabric_file.load(path)
            cluster = clusters.require(fabric, name, path)
        except NvlinkError as error:
            raise AnsibleActionFail(f"{str(error).rstrip('.')}.") from None
        return [
            {"name": block.name, "nodes": [fabric.trays[tray]["slurm_node"] for tray in block.trays]}
            for block in fabric.blocks(cluster)
        ]
