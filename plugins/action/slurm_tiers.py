# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of slurm_tiers: blocks, cliques and folded node names of the fabric file, for the module."""

from __future__ import annotations

import os
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import rehearsal_file, tiers
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import nearest, shown


class ActionModule(ActionBase):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        path = arguments.pop("fabric_file", None)
        kept = arguments.pop("rehearsal_file", None)
        if arguments.get("state") == "absent":
            path = kept = None  # nothing of the fabric file is needed to remove the tiers
        elif (path is None) == (arguments.get("clusters") is None):
            raise AnsibleActionFail("slurm_tiers needs either fabric_file or clusters: name the fabric file.")
        if path is not None:
            if not isinstance(path, str) or not path:
                raise AnsibleActionFail(
                    f"slurm_tiers, option fabric_file: {path!r} is not a path, name the fabric file."
                )
            path = self._loader.path_dwim(path)
            if self._task.check_mode and not os.path.exists(path):
                # On a new site --check of the whole way comes here before anything was accepted.
                told = f"{path}: is not there yet, so no tier can be shown; discover and accept it first."
                return {"changed": False, "findings": [], "warnings": [told]}
            wanted = arguments.pop("cluster", None)
            try:
                fabric = fabric_file.load(path)
                names = fabric.slurm_clusters
                if wanted and wanted not in names:
                    raise fabric_file.FabricFileError(
                        f"{path}: has no Slurm cluster {shown(wanted)}{nearest(wanted, names)}"
                    )
                chosen = [str(wanted)] if wanted else names
                # Which of several clusters it is, only the host of slurmctld knows.
                arguments["clusters"] = [
                    tiers.for_cluster(fabric, name, arguments.get("tiers")) for name in (chosen or [None])
                ]
            except NvlinkError as error:
                raise AnsibleActionFail(str(error)) from None
        result: dict[str, Any] = self._execute_module(
            module_name="rackscale.nvlink.slurm_tiers", module_args=arguments, task_vars=task_vars
        )
        warnings = rehearsal_file.store(self._loader.path_dwim(str(kept)), result) if kept else []
        if warnings:
            result["warnings"] = [*result.get("warnings", []), *warnings]
        return result
