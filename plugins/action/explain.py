# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a job, a tray or the whole queue waits: Slurm's words on its controller, with the health that is known here."""

from __future__ import annotations

import os

from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.explain import controller
from ansible_collections.rackscale.nvlink.plugins.modules.explain import DOCUMENTATION
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import absolute
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.explain import health
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, storage
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import steps

OPTIONS = {**steps.OF_CONTROLLER, **schemas.arguments(DOCUMENTATION)}


class ActionModule(steps.SteppedAction):
    """The file of the answer reports the run and is written in check mode too."""

    def act(self, task_vars: Variables) -> Result:
        _validation, options = self.validate_argument_spec(argument_spec=OPTIONS)
        path = absolute(options["path"]) if options["path"] else None
        storage.check_output("path", {"path": path, "fabric_file": options["fabric_file"]}, b'"waits_for":')
        if options["tray"] and (options["job"] or options["segment"]):
            raise AnsibleActionFail("explain: ask one question: a job, a tray or a segment.")
        # Pods and ComputeDomains are answered here, from the snapshot of the cluster, and have the same type.
        result = self.run_steps(task_vars, options, self._ask, controller.SECONDS)
        if path and not result.get("failed"):
            storage.write_atomic(path, fabric_file.encode(result["answer"]), follow=True)
        return result

    def _ask(self) -> Result:
        answer = self.step("explain", self._question())
        return {"changed": False, "changes": [], "findings": [], "answer": answer["answer"], "text": answer["text"]}

    def _question(self) -> Arguments:
        options, path = self.options, self.options["fabric_file"]
        fabric = fabric_file.load(path) if path and os.path.isfile(path) else Fabric()
        known = health.known(fabric, path, options["state_dir"], options["verdict_file"]) if fabric.trays else {}
        asked = {key: options[key] for key in ("job", "segment", "partition")}
        tray = fabric.trays[options["tray"]]["slurm_node"] if options["tray"] in fabric.trays else options["tray"]
        return {**asked, "tray": tray, "pending": not any((*asked.values(), tray)), "health": known}
