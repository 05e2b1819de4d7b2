# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of slurm_tiers: reads blocks and node names from the fabric file; the module applies them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result, Variables
from ansible_collections.rackscale.nvlink.plugins.modules.slurm_tiers import ARGUMENT_SPEC, REQUIRED_IF, RETURN
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import blocks as slurm_blocks
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import ends, rehearsal_file, reporting
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import absolute, nearest, shown

SCHEMA = schemas.of_return(RETURN)
# Options that the host has no use for.
_CONTROLLER_OPTIONS = ("fabric_file", "cluster", "rehearsal_file")


class ActionModule(GuardedAction):
    def act(self, task_vars: Variables) -> Result:
        _validation, options = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC, required_if=REQUIRED_IF)
        # As they are, since the host validates them too: ~ is the home there.
        arguments = {key: value for key, value in self._task.args.items() if key not in _CONTROLLER_OPTIONS}
        if options["state"] == "present":
            path = options["fabric_file"]
            if not path:
                raise AnsibleActionFail("slurm_tiers: the option fabric_file is empty; name the fabric file.")
            if self._task.check_mode and not os.path.exists(path):
                # On a new site --check of all playbooks comes here before anything was accepted.
                warning = f"{path}: does not exist yet, so no tier can be shown; discover and accept it first."
                return {"changed": False, "changes": [], "findings": [], "warnings": [warning]}
            arguments["clusters"] = _clusters(path, options["cluster"])
        end = ends.controller(options, options["timeout"], options["rehearse_timeout"])
        result = self.run_module("rackscale.nvlink.slurm_tiers", arguments, task_vars, SCHEMA, end)
        stored_in = options["rehearsal_file"]
        return reporting.report(result, rehearsal_file.store(absolute(stored_in), result) if stored_in else [])


def _clusters(path: str, cluster: str | None) -> list[dict[str, Any]]:
    """The blocks of the given Slurm cluster, else of each: which of several it is, only slurmctld's host knows."""
    fabric = fabric_file.load(path)
    names = fabric.slurm_clusters
    if cluster and cluster not in names:
        raise fabric_file.FabricFileError(f"{path}: has no Slurm cluster {shown(cluster)}{nearest(cluster, names)}")
    chosen: Sequence[str | None] = [cluster] if cluster else names
    return [{"name": name or "", "blocks": _blocks(fabric, name)} for name in (chosen or [None])]


def _blocks(fabric: Fabric, cluster: str | None) -> list[dict[str, Any]]:
    cliques = {view.name: view.clique for view in fabric.slurm_blocks(cluster)}
    return [
        {"name": block.name, "clique": cliques[block.name], "nodes": list(block.nodes)}
        for block in slurm_blocks.blocks(fabric, cluster)
    ]
