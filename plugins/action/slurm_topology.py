# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of slurm_topology: the fabric file becomes blocks, which the module gives to slurmctld."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import slurm
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import rehearsal_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import nearest, shown


class ActionModule(ActionBase):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        warnings: list[str] = []
        path = arguments.pop("fabric_file", None)
        kept = arguments.pop("rehearsal_file", None)
        given = [option for option in ("blocks", "clusters") if arguments.get(option) is not None]
        if arguments.get("state") == "absent":
            path = kept = None  # nothing of the fabric file is needed to remove the topology
        elif len(given) + (path is not None) != 1:
            raise AnsibleActionFail(
                "slurm_topology needs either fabric_file or blocks or clusters: name the fabric file of the cluster."
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
                fabric = fabric_file.load(path)
                cluster = _cluster(fabric, arguments.pop("cluster", None), path)
                if cluster is None and fabric.slurm_clusters:
                    # Which of them it is, only the host of slurmctld knows.
                    arguments["clusters"] = [
                        {"name": name, "blocks": _blocks(fabric, name)} for name in fabric.slurm_clusters
                    ]
                else:
                    arguments["blocks"] = _blocks(fabric, cluster)
                warnings = _trees(arguments, fabric, cluster, (task_vars or {}).get("hostvars", {}))
            except NvlinkError as error:
                raise AnsibleActionFail(str(error)) from None
        result: dict[str, Any] = self._execute_module(
            module_name="rackscale.nvlink.slurm_topology", module_args=arguments, task_vars=task_vars
        )
        if kept:
            warnings += rehearsal_file.store(self._loader.path_dwim(str(kept)), result)
        if warnings:
            result["warnings"] = [*result.get("warnings", []), *warnings]
        return result


def _cluster(fabric: Fabric, wanted: Any, path: str) -> str | None:
    """The Slurm cluster that is meant; None where there is but the implicit one, or where slurmctld's name decides."""
    names = fabric.slurm_clusters
    if wanted in (None, ""):
        return names[0] if len(names) == 1 else None
    if not names:
        raise fabric_file.FabricFileError(f"{path}: has no Slurm clusters; leave the option cluster out")
    if wanted not in names:
        raise fabric_file.FabricFileError(f"{path}: has no Slurm cluster {shown(wanted)}{nearest(wanted, names)}")
    return str(wanted)


def _trees(arguments: dict[str, Any], fabric: Fabric, cluster: str | None, hostvars: Mapping[str, Any]) -> list[str]:
    """Give each tree of other_topologies that names host variables its switches; what is left out, in sentences."""
    entries = arguments.get("other_topologies")
    if not isinstance(entries, list):
        return []  # the module says what is wrong with it
    told: list[str] = []
    made: list[Any] = []
    for entry in entries:
        if not isinstance(entry, Mapping) or not entry.get("leaf_variable"):
            made.append(entry)
            continue
        if cluster is None and fabric.slurm_clusters:
            raise SlurmError(
                f"other_topologies, {shown(entry.get('name'))}: the fabric file is for several Slurm clusters, whose"
                " trays a tree cannot tell apart: set the option cluster."
            )
        places, without = _places(entry, fabric, cluster, hostvars)
        switches = slurm.switches(str(entry.get("name")), places)
        made.append({**{key: entry[key] for key in entry if not key.endswith("_variable")}, "switches": switches})
        if without:
            told.append(
                f"The tree {entry.get('name')} leaves out {summarize(without)}, which have no {entry['leaf_variable']}."
            )
    arguments["other_topologies"] = made
    return told


def _places(
    entry: Mapping[str, Any], fabric: Fabric, cluster: str | None, hostvars: Mapping[str, Any]
) -> tuple[dict[str, tuple[str, str]], list[str]]:
    """node in Slurm -> (leaf, spine) from the trays' host variables, and the trays that have none."""
    places: dict[str, tuple[str, str]] = {}
    without: list[str] = []
    for view in fabric.blocks(cluster):
        for name in view.trays:
            known = hostvars.get(name, {})
            leaf = known.get(entry["leaf_variable"])
            if leaf in (None, ""):
                without.append(name)
                continue
            spine = known.get(entry["spine_variable"]) if entry.get("spine_variable") else ""
            places[fabric.trays[name]["slurm_node"]] = (str(leaf), str(spine or ""))
    return places, without


def _blocks(fabric: Fabric, cluster: str | None) -> list[dict[str, Any]]:
    made = slurm.blocks(fabric, cluster)
    return [{"name": block.name, "nodes": list(block.nodes), "folded": block.folded} for block in made]
