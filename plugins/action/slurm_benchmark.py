# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of slurm_benchmark: which blocks are tried, by the fabric file, and what their output means."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import ERROR
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import nearest, shown
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify import benchmarks, formatting

ISOLATED = {"own": True, "any": False, "none": None}


class ActionModule(ActionBase):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        path, cliques = arguments.pop("fabric_file", None), arguments.pop("cliques", None) or []
        channels, cluster = arguments.pop("channels", "any"), arguments.pop("cluster", None) or None
        if not isinstance(path, str) or not path:
            raise AnsibleActionFail(
                f"slurm_benchmark, option fabric_file: {path!r} is not a path, name the fabric file."
            )
        if channels not in ISOLATED:
            raise AnsibleActionFail(f"slurm_benchmark, option channels: {shown(channels)} is none of own, any, none.")
        try:
            fabric = fabric_file.load(self._loader.path_dwim(path))
            unknown = [name for name in cliques if name not in fabric.cliques]
            if unknown:
                message = f"{path}: has no clique {shown(unknown[0])}{nearest(str(unknown[0]), fabric.cliques)}"
                raise fabric_file.FabricFileError(message)
            if cluster is not None and cluster not in fabric.slurm_clusters:
                message = f"{path}: has no Slurm cluster {shown(cluster)}{nearest(str(cluster), fabric.slurm_clusters)}"
                raise fabric_file.FabricFileError(message)
        except NvlinkError as error:
            raise AnsibleActionFail(str(error)) from None
        views = [view for view in fabric.blocks(cluster) if view.trays and (not cliques or view.clique in cliques)]
        nodes = {view.name: {fabric.trays[tray]["slurm_node"]: tray for tray in view.trays} for view in views}
        arguments["blocks"] = [{"block": name, "nodes": list(known)} for name, known in nodes.items()]
        result: dict[str, Any] = self._execute_module(
            module_name="rackscale.nvlink.slurm_benchmark", module_args=arguments, task_vars=task_vars
        )
        if result.get("failed"):
            return result
        asked = [{"min_bandwidth": None, **program} for program in arguments.get("programs") or []]
        clique_of = {view.name: view.clique for view in views}
        failures = [
            failure
            for row in result["blocks"]
            for failure in benchmarks.judge(
                row, clique_of[row["block"]], nodes[row["block"]], asked, ISOLATED[channels]
            )
        ]
        result["failures"] = failures
        result["ok"] = not any(failure["severity"] == ERROR for failure in failures)
        counted = "would be tried" if self._task.check_mode else "were tried"
        result["text"] = [f"{len(nodes)} blocks {counted}: {summarize(list(nodes))}.", *formatting.lines(failures)]
        return result
