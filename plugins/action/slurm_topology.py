# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of slurm_topology: the fabric file becomes blocks, which the module gives to slurmctld."""

from __future__ import annotations

import os
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import slurm


class ActionModule(ActionBase):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        path = arguments.pop("fabric_file", None)
        if (path is None) == (arguments.get("blocks") is None):
            raise AnsibleActionFail(
                "slurm_topology needs either fabric_file or blocks: name the fabric file of the cluster."
            )
        if path is not None:
            if not isinstance(path, str) or not path:
                raise AnsibleActionFail(
                    f"slurm_topology, option fabric_file: {path!r} is not a path, name the fabric file."
                )
            path = self._loader.path_dwim(path)
            if self._task.check_mode and not os.path.exists(path):
                # On a new site --check of the whole way comes here before anything was accepted.
                told = f"{path}: is not there yet, so no block can be shown; discover and accept it first."
                return {"changed": False, "findings": [], "warnings": [told]}
            try:
                blocks = slurm.blocks(fabric_file.load(path))
            except NvlinkError as error:
                raise AnsibleActionFail(str(error)) from None
            arguments["blocks"] = [
                {"name": block.name, "nodes": list(block.nodes), "folded": block.folded} for block in blocks
            ]
        return self._execute_module(
            module_name="rackscale.nvlink.slurm_topology", module_args=arguments, task_vars=task_vars
        )
