# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action plugin of slurm_conf: renders the files from the fabric file and the measured trays; the module writes."""

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
# Two runs of two racks may change the node lines at once; the later one renders again from what the first one wrote.
ATTEMPTS = 5


class ActionModule(ActionBase):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        path = arguments.pop("fabric_file", None)
        register = arguments.pop("observations", None)
        cluster = arguments.pop("cluster", None)
        if not isinstance(path, str) or not path:
            raise AnsibleActionFail(f"slurm_conf, option fabric_file: {path!r} is not a path, name the fabric file.")
        path = self._loader.path_dwim(path)
        if self._task.check_mode and not os.path.exists(path):
            warning = f"{path}: does not exist yet, so no node can be shown; discover and accept it first."
            return {"changed": False, "changes": [], "findings": [], "warnings": [warning]}
        try:
            fabric = fabric_file.load(path)
            slurm_cluster = _cluster(fabric, cluster, str(arguments.get("cluster_name", "")), path)
            measured, channels, gpus, addresses = self._measured(fabric, register, task_vars or {})
            if not arguments.pop("node_addresses", False):
                addresses = {}
            nodes = slurm_conf.nodes_of(fabric, slurm_cluster, gpus, addresses)
            site = slurm_conf.Site(**{key: value for key, value in arguments.items() if key in FROM_SITE})
            return self._write(arguments, site, nodes, measured, channels, task_vars)
        except NvlinkError as error:
            raise AnsibleActionFail(str(error)) from None

    def _write(
        self,
        arguments: dict[str, Any],
        site: slurm_conf.Site,
        nodes: list[slurm_conf.Node],
        measured: Mapping[str, hardware.Record],
        channels: list[int],
        task_vars: dict[str, Any] | None,
    ) -> dict[str, Any]:
        options = ("cluster_name", "conf_dir", "timeout", "allow_removal")
        passed: dict[str, Any] = {key: arguments[key] for key in options if key in arguments}
        passed["accounting"] = bool(site.accounting_host)
        passed["log"] = f"{site.log_dir}/slurmctld.log"
        result: dict[str, Any] = {}
        for _attempt in range(ATTEMPTS):
            observed = self._execute_module(module_name=MODULE, module_args=passed, task_vars=task_vars)
            if observed.get("failed") or observed.get("unreachable"):
                return observed
            if self._task.check_mode and not measured and on_host.NODES not in observed["present"]:
                warning = "No tray has slurmd yet to measure its hardware, so the new slurm.conf cannot be shown."
                return {
                    "changed": True,
                    "changes": [f"{on_host.CONF} written"],
                    "findings": [],
                    "installed": observed["installed"],
                    "warnings": [warning],
                }
            made = slurm_conf.render(site, nodes, measured, channels, observed["present"])
            texts = {
                **passed,
                "texts": made.texts,
                "made_from": on_host.digest(observed["present"].get(on_host.NODES)),
            }
            result = self._execute_module(module_name=MODULE, module_args=texts, task_vars=task_vars)
            result["findings"] = made.findings
            if not result.get("outdated"):
                break
        warnings = [found["message"] for found in result.get("findings", []) if found["severity"] == "warning"]
        if warnings:
            result["warnings"] = [*result.get("warnings", []), *warnings[:20]]
        return result

    def _measured(
        self, fabric: Fabric, register: Any, task_vars: Mapping[str, Any]
    ) -> tuple[dict[str, hardware.Record], list[int], dict[str, int], dict[str, str]]:
        """The results of this run's trays: node -> record, channel counts, tray -> GPUs, tray -> address."""
        hostvars = task_vars["hostvars"]
        known = set(hostvars)
        present = set(task_vars.get("ansible_play_hosts_all", ()))
        measured: dict[str, hardware.Record] = {}
        channels: list[int] = []
        gpus: dict[str, int] = {}
        addresses: dict[str, str] = {}
        for tray in fabric.trays:
            if tray not in known:
                continue
            variables = hostvars.raw_get(tray)
            targets: tuple[tuple[str, dict[str, Any]], ...] = (("nvlink_gpu_count", gpus), ("ansible_host", addresses))
            for source, target in targets:
                if isinstance(variables.get(source), (int, str)) and variables[source]:
                    target[tray] = variables[source]
            result = variables.get(register) if register and tray in present else None
            if not isinstance(result, Mapping) or result.get("failed") or result.get("unreachable"):
                continue
            record = result.get("hardware")
            if isinstance(record, Mapping):
                measured[fabric.trays[tray]["slurm_node"]] = {
                    key: int(record[key]) for key in hardware.KEYS if isinstance(record.get(key), int)
                }
            if isinstance(result.get("channel_count"), int):
                channels.append(result["channel_count"])
        return measured, channels, gpus, addresses


def _cluster(fabric: Fabric, given: Any, name: str, path: str) -> str | None:
    """The fabric file's Slurm cluster to configure; None where it names none."""
    names = fabric.slurm_clusters
    if not names:
        return None
    chosen = given or next((known for known in names if known.lower() == name.lower()), None)
    if chosen not in names:
        raise fabric_file.FabricFileError(
            f"{path}: has the Slurm clusters {', '.join(names)} and none called {chosen or name};"
            " set cluster to one of them"
        )
    return str(chosen)
