# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the tray's clique from the fabric file for imex_job, and fails the task on error findings."""

from __future__ import annotations

import contextlib

from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import ERROR, Finding, finding
from ansible_collections.rackscale.nvlink.plugins.modules.imex_job import RETURN
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import run_store as imex_run_store

SCHEMA = schemas.of_return(RETURN)
# Above all that the module waits for: systemd, which may stop a daemon, scontrol, and the tray itself.
SECONDS = 600.0


class ActionModule(GuardedAction):
    def act(self, task_vars: Variables) -> Result:
        arguments, folder = dict(self._task.args), str(constants.DEFAULT_LOCAL_TMP)
        path, tray = arguments.pop("fabric_file", None), arguments.pop("tray", None)
        allowed = arguments.pop("allow_outdated", None) or []
        host = str(task_vars["inventory_hostname"])
        tray = str(tray or host)
        play, clique = imex_run_store.play_of(self._task), None
        if path and arguments.get("state", "present") == "present":
            if arguments.get("members"):
                raise AnsibleActionFail("imex_job: fabric_file and members are both given; leave one of them out.")
            try:
                clique = imex_run_store.clique_of(folder, str(path), tray)
            except NvlinkError as error:
                raise AnsibleActionFail(str(error)) from None
            if clique:
                pairs = zip(clique.slurm_nodes, clique.entries)
                members = [{"node": node, "address": line} for node, line in pairs]
                # Those of this play that were inspected, by their names in the fabric file.
                inspected = imex_run_store.read_rows(folder, play, "inspect", clique.trays)
                named = {*inspected, *task_vars["ansible_play_hosts_all"], *allowed}
                outside = [node for name, node in zip(clique.trays, clique.slurm_nodes) if name not in named]
                arguments.update(clique=clique.name, members=members, outside=outside)
        result = self.run_module("rackscale.nvlink.imex_job", arguments, task_vars, SCHEMA, SECONDS)
        with contextlib.suppress(NvlinkError):
            row = {"host": host, "changes": list(result.get("changes") or ())}
            imex_run_store.write_row(folder, play, imex_run_store.JOB, tray, row)
        if clique and result.get("changed"):
            lost = {*task_vars["ansible_play_hosts_all"], *allowed}.difference(task_vars["ansible_play_hosts"])
            findings = [_outdated(name, clique.name) for name in clique.trays if name in lost]
            result["findings"] = [*(result.get("findings") or []), *findings]
            if tray == next((name for name in clique.trays if name not in lost), None):  # once for the clique
                result["warnings"] = [*result.get("warnings", []), *(entry["message"] for entry in findings)]
        errors = [entry["message"] for entry in result.get("findings") or [] if entry["severity"] == ERROR]
        if errors and not result.get("failed"):
            # All errors are reported at once, after everything that can be installed is installed.
            result.update(failed=True, msg=" ".join(errors))
        return result


def _outdated(tray: str, clique: str) -> Finding:
    return finding(
        "imex_list_outdated",
        f"{tray} was not changed by this run, so it may have other members of clique {clique} for the IMEX domains of"
        " jobs; run the role imex on it before it gets a job.",
        clique=clique,
        tray=tray,
    )
