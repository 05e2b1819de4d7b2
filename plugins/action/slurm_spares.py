# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of slurm_spares: the blocks of the fabric file with their trays in the order of the rack."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import nearest, shown


class ActionModule(ActionBase):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        arguments = {option: value for option, value in self._task.args.items() if value is not None}
        path, cluster = arguments.pop("fabric_file", None), arguments.pop("cluster", None)
        if (path is None) == ("blocks" not in arguments):
            raise AnsibleActionFail("slurm_spares needs either fabric_file or blocks: name the fabric file.")
        if path is not None:
            try:
                path = self._loader.path_dwim(str(path))
                arguments["blocks"] = blocks(fabric_file.load(path), cluster, path)
            except NvlinkError as error:
                raise AnsibleActionFail(f"{str(error).rstrip('.')}.") from None
        result: dict[str, Any] = self._execute_module(
            module_name="rackscale.nvlink.slurm_spares", module_args=arguments, task_vars=task_vars
        )
        return result


def blocks(fabric: Fabric, cluster: str | None, path: str) -> dict[str, list[str]]:
    """Name of a block -> the NodeNames of its trays."""
    names = fabric.slurm_clusters
    if cluster is None and len(names) == 1:
        cluster = names[0]
    if names and cluster not in names:
        raise fabric_file.FabricFileError(f"{path}: has no Slurm cluster {shown(cluster)}{nearest(cluster, names)}")
    return {
        block.name: [fabric.trays[tray]["slurm_node"] for tray in block.trays]
        for block in fabric.blocks(cluster if names else None)
    }
