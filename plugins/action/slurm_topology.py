# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of slurm_topology: reads the blocks of the fabric file and the switches of host variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.modules.slurm_topology import ARGUMENTS, RETURN
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import blocks as slurm_blocks
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import clusters, ends, rehearsal_file, reporting
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import absolute, shown

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
            try:
                fabric = fabric_file.load(path)
                cluster = clusters.choose(fabric, arguments.pop("cluster", None), path)
                if cluster is None and fabric.slurm_clusters:
                    # The module selects one by slurmctld's ClusterName.
                    arguments["clusters"] = [
                        {"name": name, "blocks": _blocks(fabric, name)} for name in fabric.slurm_clusters
                    ]
                else:
                    arguments["blocks"] = _blocks(fabric, cluster)
                warnings = _trees(arguments, fabric, cluster, task_vars.get("hostvars", {}))
            except NvlinkError as error:
                raise AnsibleActionFail(str(error)) from None
        rehearsal = ends.seconds(arguments, "rehearse_timeout", ARGUMENTS["rehearse_timeout"]["default"])
        end = ends.controller(arguments, ARGUMENTS["timeout"]["default"], rehearsal)
        result = self.run_module("rackscale.nvlink.slurm_topology", arguments, task_vars, SCHEMA, end)
        if record:
            warnings += rehearsal_file.store(absolute(record), result)
        return reporting.report(result, warnings)


def _trees(arguments: dict[str, Any], fabric: Fabric, cluster: str | None, hostvars: Any) -> list[str]:
    """Add the switches to each tree of other_topologies that names host variables; returns warnings."""
    entries = arguments.get("other_topologies")
    if not isinstance(entries, list):
        return []  # the module rejects it
    warnings: list[str] = []
    made: list[Any] = []
    for entry in entries:
        if not isinstance(entry, Mapping) or not entry.get("leaf_variable"):
            made.append(entry)
            continue
        if cluster is None and fabric.slurm_clusters:
            raise SlurmError(
                f"other_topologies, {shown(entry.get('name'))}: the fabric file has several Slurm clusters, and a tree"
                " is for one of them: set the option cluster."
            )
        places, without = _places(entry, fabric, cluster, hostvars)
        switches = slurm_blocks.switches(str(entry.get("name")), places)
        made.append({**{key: entry[key] for key in entry if not key.endswith("_variable")}, "switches": switches})
        if without:
            warnings.append(
                f"The tree {entry.get('name')} leaves out {summarize(without)}, which have no {entry['leaf_variable']}."
            )
    arguments["other_topologies"] = made
    return warnings


def _places(
    entry: Mapping[str, Any], fabric: Fabric, cluster: str | None, hostvars: Any
) -> tuple[dict[str, tuple[str, str]], list[str]]:
    """NodeName -> (leaf, spine) from the trays' host variables, and the trays without them."""
    places: dict[str, tuple[str, str]] = {}
    without: list[str] = []
    for view in fabric.blocks(cluster):
        for name in view.trays:
            variables = hostvars.get(name, {})
            leaf, spine = (variables.get(entry.get(f"{kind}_variable") or "") for kind in ("leaf", "spine"))
            # A tray's own facts could give a leaf, which it shares with others, a second spine.
            facts = variables.get("ansible_facts") or {}
            if leaf in (None, "") or entry["leaf_variable"] in facts or entry.get("spine_variable") in facts:
                without.append(name)
                continue
            places[fabric.trays[name]["slurm_node"]] = (str(leaf), str(spine or ""))
    return places, without


def _blocks(fabric: Fabric, cluster: str | None) -> list[dict[str, Any]]:
    made = slurm_blocks.blocks(fabric, cluster)
    return [{"name": block.name, "nodes": list(block.nodes), "group": block.group} for block in made]
