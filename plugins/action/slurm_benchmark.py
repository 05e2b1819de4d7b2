# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of slurm_benchmark: reads the blocks of the fabric file, evaluates the output of its jobs."""

from __future__ import annotations

from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.modules.slurm_benchmark import ARGUMENTS, RETURN
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import BlockView
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings import lines
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import ERROR
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import clusters, ends
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify import benchmarks
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import nearest, shown

SCHEMA = schemas.of_return(RETURN)
ISOLATED = {"own": True, "any": False, "none": None}
_CONTROLLER_OPTIONS = ("fabric_file", "cluster", "cliques", "channel_isolation")
OF_FINDING = ("code", "severity", "message", "tray", "clique")


class ActionModule(GuardedAction):
    def act(self, task_vars: Variables) -> Result:
        _validation, options = self.validate_argument_spec(argument_spec=ARGUMENTS, required_one_of=[("fabric_file",)])
        try:
            views = _blocks(options)
        except NvlinkError as error:
            raise AnsibleActionFail(str(error)) from None
        trays = {view.name: tray_of for view, tray_of in views}
        programs = options["programs"]
        arguments = {key: value for key, value in self._task.args.items() if key not in _CONTROLLER_OPTIONS}
        arguments["blocks"] = [{"name": name, "nodes": list(tray_of)} for name, tray_of in trays.items()]
        each = 120 + sum(program["seconds"] for program in programs)
        end = ends.controller(options, options["timeout"], len(trays) * each)
        result = self.run_module("rackscale.nvlink.slurm_benchmark", arguments, task_vars, SCHEMA, end)
        if result.get("failed"):
            return result
        if result.get("results") is None:
            raise AnsibleActionFail("slurm_benchmark returned no results: check its host.")
        clique_of = {view.name: view.clique for view, _tray_of in views}
        isolated = ISOLATED[options["channel_isolation"]]
        failures = [
            failure
            for row in result["results"]
            for failure in benchmarks.evaluate(row, clique_of[row["block"]], trays[row["block"]], programs, isolated)
        ]
        result["failures"] = failures
        result["findings"] = result.get("findings", []) + [
            {key: value for key, value in failure.items() if key in OF_FINDING} for failure in failures
        ]
        result["ok"] = not any(failure["severity"] == ERROR for failure in failures)
        were = "would be" if self._task.check_mode else "was" if len(trays) == 1 else "were"
        names = f": {summarize(trays)}" if trays else ""
        result["text"] = [f"{count(len(trays), 'block')} {were} benchmarked{names}.", *lines.shown(failures)]
        return result


def _blocks(options: Arguments) -> list[tuple[BlockView, dict[str, str]]]:
    """The blocks to benchmark, of each node -> tray. FabricFileError where there is none."""
    path, cliques = options["fabric_file"], options["cliques"]
    fabric = fabric_file.load(path)
    for name in cliques:
        if name not in fabric.cliques:
            raise fabric_file.FabricFileError(f"{path}: has no clique {shown(name)}{nearest(name, fabric.cliques)}")
    cluster = clusters.choose(fabric, options["cluster"], path)
    views = [view for view in fabric.slurm_blocks(cluster) if view.trays and (not cliques or view.clique in cliques)]
    if not views:
        where = f"clique {summarize(cliques)}" if cliques else "the fabric file"
        raise fabric_file.FabricFileError(f"{path}: no block of {where} has a tray, so there is nothing to benchmark.")
    return [(view, {fabric.trays[tray]["slurm_node"]: tray for tray in view.trays}) for view in views]
