# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of slurm_conf: fabric file and measured trays become the files that the module writes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import cluster as on_host
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import hardware
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import conf as slurm_conf

MODULE = "rackscale.nvlink.slurm_conf"
FROM_SITE = frozenset(field.name for field in fields(slurm_conf.Site))
# Two runs of two racks may change the node lines at once; the later one starts again from what the first one wrote.
ATTEMPTS = 5


class ActionModule(ActionBase):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        path = arguments.pop("fabric_file", None)
        register = arguments.pop("observations", None)
        wanted = arguments.pop("slurm_cluster", None)
        if not isinstance(path, str) or not path:
            raise AnsibleActionFail(f"slurm_conf, option fabric_file: {path!r} is not a path, name the fabric file.")
        path = self._loader.path_dwim(path)
        if self._task.check_mode and not os.path.exists(path):
            told = f"{path}: is not there yet, so no node can be shown; discover and accept it first."
            return {"changed": False, "findings": [], "warnings": [told]}
        try:
            fabric = fabric_file.load(path)
            slurm_cluster = _cluster(fabric, wanted, str(arguments.get("cluster", "")), path)
            seen, channels, gpus, addresses = self._observed(fabric, register, task_vars or {})
            if not arguments.pop("node_addresses", False):
                addresses = {}
            nodes = slurm_conf.nodes_of(fabric, slurm_cluster, gpus, addresses)
            site = slurm_conf.Site(**{key: value for key, value in arguments.items() if key in FROM_SITE})
            return self._give(arguments, site, nodes, seen, channels, task_vars)
        except NvlinkError as error:
            raise AnsibleActionFail(str(error)) from None

    def _give(
        self,
        arguments: dict[str, Any],
        site: slurm_conf.Site,
        nodes: list[slurm_conf.Node],
        seen: Mapping[str, hardware.Record],
        channels: list[int],
        task_vars: dict[str, Any] | None,
    ) -> dict[str, Any]:
        passed = {
            key: value for key, value in arguments.items() if key in ("cluster", "conf_dir", "timeout", "allow_removal")
        }
        passed["accounting"] = bool(site.accounting_host)
        passed["log"] = f"{site.log_dir}/slurmctld.log"
        result: dict[str, Any] = {}
        for _attempt in range(ATTEMPTS):
            looked = self._execute_module(module_name=MODULE, module_args=passed, task_vars=task_vars)
            if looked.get("failed") or looked.get("unreachable"):
                return looked
            if self._task.check_mode and not seen and on_host.NODES not in looked["present"]:
                told = "No tray has slurmd yet to measure its hardware: what slurm.conf would say is not known yet."
                return {"changed": True, "findings": [], "installed": looked["installed"], "warnings": [told]}
            made = slurm_conf.render(site, nodes, seen, channels, looked["present"])
            texts = {
                **passed,
                "texts": made.texts,
                "made_from": on_host.digest(looked["present"].get(on_host.NODES)),
            }
            result = self._execute_module(module_name=MODULE, module_args=texts, task_vars=task_vars)
            result["findings"] = made.findings
            if not result.get("outdated"):
                break
        warnings = [found["message"] for found in result.get("findings", []) if found["severity"] == "warning"]
        if warnings:
            result["warnings"] = [*result.get("warnings", []), *warnings[:20]]
        return result

    def _observed(
        self, fabric: Fabric, register: Any, task_vars: Mapping[str, Any]
    ) -> tuple[dict[str, hardware.Record], list[int], dict[str, int], dict[str, str]]:
        """What this run's trays told: node -> record, channel counts, tray -> GPUs, tray -> address."""
        hostvars = task_vars["hostvars"]
        known = set(hostvars)
        present = set(task_vars.get("ansible_play_hosts_all", ()))
        seen: dict[str, hardware.Record] = {}
        channels, gpus, addresses = [], {}, {}
        for tray in fabric.trays:
            if tray not in known:
                continue
            variables = hostvars.raw_get(tray)
            for source, target in (("nvlink_gpu_count", gpus), ("ansible_host", addresses)):
                if isinstance(variables.get(source), (int, str)) and variables[source]:
                    target[tray] = variables[source]
            result = variables.get(register) if register and tray in present else None
            if not isinstance(result, Mapping) or result.get("failed") or result.get("unreachable"):
                continue
            record = result.get("hardware")
            if isinstance(record, Mapping):
                seen[fabric.trays[tray]["slurm_node"]] = {
                    key: int(record[key]) for key in hardware.KEYS if isinstance(record.get(key), int)
                }
            if isinstance(result.get("channels"), int):
                channels.append(result["channels"])
        return seen, channels, gpus, addresses


def _cluster(fabric: Fabric, wanted: Any, name: str, path: str) -> str | None:
    """The fabric's Slurm cluster that is brought up; None where there is but one Slurm."""
    names = fabric.slurm_clusters
    if not names:
        return None
    chosen = wanted or next((known for known in names if known.lower() == name.lower()), None)
    if chosen not in names:
        raise fabric_file.FabricFileError(
            f"{path}: has the Slurm clusters {', '.join(names)} and none called {chosen or name};"
            " set slurm_cluster to one of them"
        )
    return str(chosen)
