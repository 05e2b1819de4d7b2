# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of slurm_topology: reads the blocks of the fabric file."""

from __future__ import annotations

import os
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result, Variables
from ansible_collections.rackscale.nvlink.plugins.modules.slurm_topology import ARGUMENTS, RETURN
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import blocks as slurm_blocks
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import clusters, ends, rehearsal_file, reporting
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import absolute

SCHEMA = schemas.of_return(RETURN)


class ActionModule(GuardedAction):
    def act(self, task_vars: Variables) -> Result:
        arguments = dict(self._task.args)
        warnings: list[str] = []
        path = arguments.pop("fabric_file", None)
        record = arguments.pop("rehearsal_file", None)
        given = [option for option in ("blocks", "clusters") if arguments.get(option) is not None]
        if arguments.get("state") == "absent":
            path = record = None  # nothing of the fabric file is needed to remove the topology
        elif len(given) + (path is not None) != 1:
            raise AnsibleActionFail(
                "slurm_topology needs exactly one of fabric_file, blocks and clusters: name the fabric file."
            )
        if path is not None:
            if not isinstance(path, str) or not path:
                raise AnsibleActionFail(
                    f"slurm_topology, option fabric_file: {path!r} is not a path: name the fabric file."
                )
            if self._task.check_mode and not os.path.exists(path):
                # On a new site --check runs this before a fabric file was accepted.
                warning = f"{path}: is not there yet, so no block can be shown; run discover and accept first."
                return {"changed": False, "findings": [], "warnings": [warning]}
            fabric = fabric_file.load(path)
            cluster = clusters.choose(fabric, arguments.pop("cluster", None), path)
            if cluster is None and fabric.slurm_clusters:
                # The module selects one by slurmctld's ClusterName.
                arguments["clusters"] = [
                    {"name": name, "blocks": _blocks(fabric, name)} for name in fabric.slurm_clusters
                ]
            else:
                arguments["blocks"] = _blocks(fabric, cluster)
        rehearsal = ends.seconds(arguments, "rehearse_timeout", ARGUMENTS["rehearse_timeout"]["default"])
        end = ends.controller(arguments, ARGUMENTS["timeout"]["default"], rehearsal)
        result = self.run_module("rackscale.nvlink.slurm_topology", arguments, task_vars, SCHEMA, end)
        if record:
            warnings += rehearsal_file.store(absolute(record), result)
        return reporting.report(result, warnings)


def _blocks(fabric: Fabric, cluster: str | None) -> list[dict[str, Any]]:
    made = slurm_blocks.blocks(fabric, cluster)
    return [{"name": block.name, "nodes": list(block.nodes), "group": block.group} for block in made]
