# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of doctor_facts: a tray's neighbours, its clock, and why a host did not answer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ansible import constants
from ansible.errors import AnsibleError
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.modules.doctor_facts import ARGUMENTS, RETURN
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor import peers
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import run_store
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import mapped, whole

SCHEMA = {name: check for name, check in schemas.of_return(RETURN).items() if name != "clock"}
# Seconds to connect, to copy the module, to start Python, for Slurm's programs and for all ports.
_REST = 120.0
_PASSED = ("role", "backend", "nvidia_smi", "ip", "timeout", "bin_dir", "conf_dir", "connects")
SLURMCTLD_PORT = 6817


class ActionModule(GuardedAction):
    def act(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        _spec, options = self.validate_argument_spec(argument_spec=ARGUMENTS)
        arguments = {name: options[name] for name in _PASSED if options[name] is not None}
        if self._connection.transport == "local":
            arguments["connects"] = []  # a stand-in shares this machine
        elif options["role"] == "tray":
            arguments["connects"] = self._targets(options, task_vars)
        asked = time.time()
        try:
            answer = self.run_module(
                "rackscale.nvlink.doctor_facts", arguments, task_vars, SCHEMA, _REST + 2 * options["timeout"]
            )
        except AnsibleError as error:
            # Reported in one line by the last play, in place of a report of each tray.
            return _result(problem=str(error))
        if answer.get("failed") or "times" not in answer:
            return _result(problem=str(answer.get("msg") or "its answer has another shape"))
        times = mapped(answer["times"])
        clock = {"low": times["ended"] - time.time(), "high": times["started"] - asked}
        return {**answer, "clock": clock}

    def _targets(self, options: Mapping[str, Any], task_vars: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The ports of the tray's neighbours and of slurmctld."""
        tray, hostvars = str(task_vars["inventory_hostname"]), task_vars["hostvars"]
        addresses = self._neighbours(tray, options["fabric_file"], task_vars)
        found = [
            {"name": name, "address": address, "port": port}
            for name, address in addresses.items()
            for port in options["peer_ports"]
        ]
        for name in options["controllers"]:
            variables = hostvars.raw_get(name)
            slurm = mapped(mapped(variables.get("doctor_slurm")).get("slurm"))
            if not slurm.get("problem"):
                port = whole(slurm.get("slurmctld_port")) or SLURMCTLD_PORT
                found.append({"name": name, "address": peers.address(name, variables, hostvars), "port": port})
        return found

    def _neighbours(self, tray: str, path: str, task_vars: Mapping[str, Any]) -> dict[str, str]:
        """Name -> address: of the clique in the fabric file, else those next to the tray in this play."""
        if path:
            try:
                clique = run_store.clique_of(constants.DEFAULT_LOCAL_TMP, path, tray)
            except NvlinkError:
                clique = None  # the first play reports a broken fabric file
            if clique is not None:
                return {name: clique.entry_of(name) for name in peers.next_to(tray, clique.trays)}
        # In the plan, since reading the variables of all neighbours of each tray takes minutes at ten thousand.
        plan = mapped(task_vars["hostvars"].raw_get("localhost").get("doctor_plan"))
        addresses = mapped(plan.get("addresses"))
        hosts = [str(name) for name in task_vars["ansible_play_hosts_all"]]
        return {name: str(addresses.get(name) or name) for name in peers.next_to(tray, hosts)}


def _result(**more: Any) -> dict[str, Any]:
    return {"changed": False, "changes": [], "findings": [], **more}
