# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action plugin of slurm_conf: renders the files from the fabric file and the measured trays; the module writes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import Finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import cluster as on_host
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import hardware
from ansible_collections.rackscale.nvlink.plugins.modules.slurm_conf import ARGUMENTS, RETURN
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import conf as slurm_conf
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import ends

MODULE = "rackscale.nvlink.slurm_conf"
SCHEMA = schemas.of_return(RETURN)
FROM_SITE = frozenset(field.name for field in fields(slurm_conf.Site))
# Two runs on two cliques may change the node lines at once; the later one renders again from what the first one wrote.
ATTEMPTS = 5


class ActionModule(GuardedAction):
    def act(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        arguments = dict(self._task.args)
        path = arguments.pop("fabric_file", None)
        register = arguments.pop("observations", None)
        cluster = arguments.pop("cluster", None)
        if not isinstance(path, str) or not path:
            raise AnsibleActionFail(f"slurm_conf, option fabric_file: {path!r} is not a path, name the fabric file.")
        if self._task.check_mode and not os.path.exists(path):
            warning = f"{path}: does not exist yet, so no node can be shown; discover and accept it first."
            return {"changed": False, "changes": [], "findings": [], "warnings": [warning]}
        try:
            fabric = fabric_file.load(path)
            slurm_cluster = _cluster(fabric, cluster, str(arguments.get("cluster_name", "")), path)
            trays = _trays(fabric, str(register or ""), task_vars["hostvars"])
            addresses = trays.addresses if boolean(arguments.pop("node_addresses", False), strict=False) else {}
            features = boolean(arguments.pop("node_features", False), strict=False)
            nodes = slurm_conf.nodes_of(fabric, slurm_cluster, trays.gpus, addresses, features)
            site = slurm_conf.Site(**{key: value for key, value in arguments.items() if key in FROM_SITE})
            return self._write(arguments, site, nodes, trays, task_vars)
        except NvlinkError as error:
            raise AnsibleActionFail(str(error)) from None

    def _write(
        self,
        arguments: dict[str, Any],
        site: slurm_conf.Site,
        nodes: list[slurm_conf.Node],
        trays: _Trays,
        task_vars: dict[str, Any],
    ) -> dict[str, Any]:
        options = ("cluster_name", "conf_dir", "timeout", "allow_removal", "override")
        passed: dict[str, Any] = {key: arguments[key] for key in options if key in arguments}
        passed["accounting"] = bool(site.accounting_host)
        passed["log"] = f"{site.log_dir}/slurmctld.log"
        end = ends.controller(passed, ARGUMENTS["timeout"]["default"])
        result: dict[str, Any] = {}
        for _attempt in range(ATTEMPTS):
            observed = self.run_module(MODULE, passed, task_vars, SCHEMA, end)
            if observed.get("failed") or observed.get("unreachable"):
                return observed
            if observed.get("present") is None:
                raise AnsibleActionFail("slurm_conf returned no files: check its host.")
            if self._task.check_mode and not trays.measured and on_host.NODES not in observed["present"]:
                warning = "No tray has slurmd yet to measure its hardware, so the new slurm.conf cannot be shown."
                return {
                    "changed": True,
                    "changes": [f"{on_host.CONF} written"],
                    "findings": [],
                    "installed": observed["installed"],
                    "warnings": [warning],
                }
            made = slurm_conf.render(site, nodes, trays.measured, trays.channels, observed["present"])
            texts = {
                **passed,
                "texts": made.texts,
                "made_from": on_host.digest(observed["present"].get(on_host.NODES)),
            }
            result = self.run_module(MODULE, texts, task_vars, SCHEMA, end)
            result["findings"] = [*result.get("findings", []), *trays.findings, *made.findings]
            if not result.get("outdated"):
                break
        warnings = [found["message"] for found in result.get("findings", []) if found["severity"] == "warning"]
        if warnings:
            result["warnings"] = [*result.get("warnings", []), *warnings[:20]]
        return result


@dataclass
class _Trays:
    """What is known of the trays: by node name what this run measured, by tray name what the inventory has."""

    measured: dict[str, hardware.Record] = field(default_factory=dict)
    channels: dict[str, int] = field(default_factory=dict)
    gpus: dict[str, int] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def _trays(fabric: Fabric, register: str, hostvars: Any) -> _Trays:
    """register: the variable with the result of slurm_tray; a tray without one was not in this run."""
    found = _Trays()
    known = set(hostvars)
    for tray, row in fabric.trays.items():
        if tray not in known:
            continue
        variables = hostvars.raw_get(tray)
        # A fact of the tray could stand in the place of each of them.
        facts = variables.get("ansible_facts") or {}
        gpus, address, answer = (
            None if name in facts else variables.get(name) for name in ("nvlink_gpu_count", "ansible_host", register)
        )
        if str(gpus or "").isdecimal():
            found.gpus[tray] = int(str(gpus))
        if isinstance(address, str) and address:
            found.addresses[tray] = address
        if not isinstance(answer, Mapping) or answer.get("failed") or answer.get("unreachable"):
            continue
        record, channels, findings = slurm_conf.accepted(tray, answer)
        found.findings += findings
        if record is not None:
            found.measured[row["slurm_node"]] = record
        if channels is not None:
            found.channels[row["slurm_node"]] = channels
    return found


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
