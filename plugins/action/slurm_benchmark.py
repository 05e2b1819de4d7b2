# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of slurm_benchmark: reads the blocks of the fabric file, evaluates the output of its jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import ERROR
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.modules.slurm_benchmark import ARGUMENTS, PROGRAM, RETURN
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import clusters, ends
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import nearest, shown
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify import benchmarks, formatting

SCHEMA = schemas.of_return(RETURN)
ISOLATED = {"own": True, "any": False, "none": None}
OF_FINDING = ("code", "severity", "message", "tray", "clique")


class ActionModule(GuardedAction):
    def act(self, task_vars: Variables) -> Result:
        arguments = dict(self._task.args)
        isolation = arguments.pop("channel_isolation", "any")
        if isolation not in ISOLATED:
            message = f"option channel_isolation: {shown(isolation)} is none of own, any, none."
            raise AnsibleActionFail(f"slurm_benchmark, {message}")
        trays, clique_of = self._blocks(arguments)
        arguments["blocks"] = [{"name": name, "nodes": list(tray_of)} for name, tray_of in trays.items()]
        programs = [{"min_bandwidth": None, **program} for program in arguments.get("programs") or []]
        each = 120 + sum(ends.seconds(program, "seconds", PROGRAM["seconds"]["default"]) for program in programs)
        end = ends.controller(arguments, ARGUMENTS["timeout"]["default"], len(trays) * each)
        result = self.run_module("rackscale.nvlink.slurm_benchmark", arguments, task_vars, SCHEMA, end)
        if result.get("failed"):
            return result
        if result.get("results") is None:
            raise AnsibleActionFail("slurm_benchmark returned no results: check its host.")
        failures = [
            failure
            for row in result["results"]
            for failure in benchmarks.evaluate(
                row, clique_of[row["block"]], trays[row["block"]], programs, ISOLATED[isolation]
            )
        ]
        result["failures"] = failures
        result["findings"] = result.get("findings", []) + [
            {key: value for key, value in failure.items() if key in OF_FINDING} for failure in failures
        ]
        result["ok"] = not any(failure["severity"] == ERROR for failure in failures)
        were = "would be" if self._task.check_mode else "was" if len(trays) == 1 else "were"
        names = f": {summarize(trays)}" if trays else ""
        result["text"] = [f"{count(len(trays), 'block')} {were} benchmarked{names}.", *formatting.lines(failures)]
        return result

    def _blocks(self, arguments: dict[str, Any]) -> tuple[dict[str, Mapping[str, str]], dict[str, str]]:
        """Block -> node -> tray, and block -> clique; their options are taken out of ``arguments``."""
        path, cliques = arguments.pop("fabric_file", None), arguments.pop("cliques", None) or []
        if isinstance(cliques, str):
            # As Ansible converts a text to a list.
            cliques = [name.strip() for name in cliques.split(",")]
        cluster, blocks = arguments.pop("cluster", None), arguments.pop("blocks", None)
        if (path is None) == (blocks is None):
            raise AnsibleActionFail("slurm_benchmark needs either fabric_file or blocks: name the fabric file.")
        if blocks is not None:
            return _given(blocks)
        if not isinstance(path, str) or not path:
            message = f"option fabric_file: {path!r} is not a path: name the fabric file."
            raise AnsibleActionFail(f"slurm_benchmark, {message}")
        try:
            fabric = fabric_file.load(path)
            unknown = [name for name in cliques if name not in fabric.cliques]
            if unknown:
                message = f"{path}: has no clique {shown(unknown[0])}{nearest(str(unknown[0]), fabric.cliques)}"
                raise fabric_file.FabricFileError(message)
            name = clusters.choose(fabric, cluster, path)
        except NvlinkError as error:
            raise AnsibleActionFail(str(error)) from None
        views = [view for view in fabric.slurm_blocks(name) if view.trays and (not cliques or view.clique in cliques)]
        if not views:
            where = f"clique {summarize(cliques)}" if cliques else "the fabric file"
            raise AnsibleActionFail(f"{path}: no block of {where} has a tray, so there is nothing to benchmark.")
        trays: dict[str, Mapping[str, str]] = {
            view.name: {fabric.trays[tray]["slurm_node"]: tray for tray in view.trays} for view in views
        }
        return trays, {view.name: view.clique for view in views}


def _given(blocks: Any) -> tuple[dict[str, Mapping[str, str]], dict[str, str]]:
    """The same of the option ``blocks``, where nodes and blocks have no other names."""
    trays: dict[str, Mapping[str, str]]
    try:
        trays = {str(block["name"]): {str(node): str(node) for node in block["nodes"]} for block in blocks}
    except (KeyError, TypeError):
        message = "slurm_benchmark, option blocks: is not a list of blocks, each with name and nodes."
        raise AnsibleActionFail(message) from None
    return trays, {name: name for name in trays}
