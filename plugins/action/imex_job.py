# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the tray's clique from the fabric file for imex_job, and fails the task on error findings."""

from __future__ import annotations

from typing import Any

from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import ERROR
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import run_store as imex_run_store


class ActionModule(ActionBase):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        path, tray = arguments.pop("fabric_file", None), arguments.pop("tray", None)
        if path and arguments.get("state", "present") == "present":
            if arguments.get("members"):
                raise AnsibleActionFail("imex_job: fabric_file and members are both given; leave one of them out.")
            tray = str(tray or (task_vars or {})["inventory_hostname"])
            try:
                clique = imex_run_store.clique_of(
                    str(constants.DEFAULT_LOCAL_TMP), self._loader.path_dwim(str(path)), tray
                )
            except NvlinkError as error:
                raise AnsibleActionFail(str(error)) from None
            if clique:
                pairs = zip(clique.slurm_nodes, clique.entries)
                members = [{"node": node, "address": line} for node, line in pairs]
                arguments.update(clique=clique.name, members=members)
        result: dict[str, Any] = self._execute_module(
            module_name="rackscale.nvlink.imex_job", module_args=arguments, task_vars=task_vars
        )
        errors = [entry["message"] for entry in result.get("findings", []) if entry["severity"] == ERROR]
        if errors and not result.get("failed"):
            # All errors are reported at once, after everything that can be installed is installed.
            result.update(failed=True, msg=" ".join(errors))
        return result
