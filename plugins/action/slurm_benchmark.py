# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The blocks of the fabric file to benchmark, and what the output of their jobs says of them."""

from __future__ import annotations

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import ERROR
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.modules.slurm_benchmark import DOCUMENTATION
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import BlockView
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas, trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import ControllerAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import clusters, srun
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import as_list, nearest, shown
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify import benchmarks, formatting

OPTIONS = schemas.arguments(DOCUMENTATION)
ISOLATED = {"own": True, "any": False, "none": None}
OF_FINDING = ("code", "severity", "message", "tray", "clique")


class ActionModule(ControllerAction):
    def act(self, task_vars: Variables) -> Result:
        _validation, options = self.validate_argument_spec(argument_spec=OPTIONS)
        views, programs = _blocks(options), options["programs"]
        isolated = ISOLATED[options["channel_isolation"]]
        done = {str(results["block"]): srun.row_of(results, programs) for results in as_list(options["results"])}
        failures = [
            failure
            for view, tray_of in views
            if view.name in done
            for failure in benchmarks.evaluate(done[view.name], view.clique, tray_of, programs, isolated)
        ]
        were = "would be" if self._task.check_mode else "was" if len(views) == 1 else "were"
        text = f"{count(len(views), 'block')} {were} benchmarked: {summarize(view.name for view, _tray_of in views)}."
        # The output of jobs is in them.
        failures = trust.cleaned(failures)
        return {
            "blocks": [{"name": view.name, "nodes": list(tray_of)} for view, tray_of in views],
            "programs": programs,
            "failures": failures,
            "findings": [{key: value for key, value in failure.items() if key in OF_FINDING} for failure in failures],
            "ok": not any(failure["severity"] == ERROR for failure in failures),
            "text": [text, *formatting.lines(failures)],
        }


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
