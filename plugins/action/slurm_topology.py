# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Survey a Slurm, plan its topology here, and have the host rehearse and apply the plan."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import live
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import FILE_NAMES, YAML, Block
from ansible_collections.rackscale.nvlink.plugins.modules.slurm_topology import DOCUMENTATION
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import worded
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import blocks as slurm_blocks
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import (
    changes,
    observed,
    plan_gates,
    planning,
    steps,
)

OPTIONS = {**steps.OF_PLAN, **schemas.arguments(DOCUMENTATION)}


class ActionModule(steps.SteppedAction):
    def act(self, task_vars: Variables) -> Result:
        _validation, options = self.validate_argument_spec(argument_spec=OPTIONS)
        if options["state"] == "absent":
            return self.change(task_vars, options, self._remove)
        if (options["fabric_file"] is None) is (options["blocks"] is None):
            raise AnsibleActionFail("slurm_topology needs either fabric_file or blocks: name the fabric file.")
        path = options["fabric_file"]
        if path and self._task.check_mode and (warning := fabric_file.not_yet(path, "no block can be shown")):
            return {"changed": False, "findings": [], "warnings": [warning]}
        of_cluster = slurm_blocks.of_options(options)
        return self.change(task_vars, options, lambda: self._apply(of_cluster))

    def _apply(self, of_cluster: Mapping[str, Sequence[Block]]) -> Result:
        answer = self.survey(planning.FILES, jobs=True)
        with observed.bounded():
            seen = observed.Observed.of(answer.get("survey"))
            blocks = slurm_blocks.of_cluster(of_cluster, seen.config.get("clustername", ""))
            plan = planning.plan(seen, planning.DesiredState.of(self.options, blocks))
        self.found = plan.findings
        skipped = bool(seen.acting) and self.options["standby"] == "skip"
        answer = self.rehearse(plan, plan.topology)
        plan.findings += plan_gates.check_live(answer.get("undone") or "", self.options["override"])
        stopped = bool(plan.stopped_by()) or skipped
        if not stopped and not self._task.check_mode and (plan.changed or plan.waits_for):
            self.step("transact", plan.change())
        result = {**plan.result(stopped), "rehearsal": answer.get("rehearsal")}
        return self.shown(result, [] if skipped else plan.difference)

    def _remove(self) -> Result:
        answer, name = self.step("read", {"files": planning.FILES}), self.options["topology_name"]
        path = os.path.join(self.options["conf_dir"], FILE_NAMES[YAML])
        with observed.bounded():
            change = planning.plan_removal(answer.get("survey"), path, name)
        override = self.options["override"]
        change["override"] = "" if live.GATE in override else planning.OVERRIDE
        answer = self.step("rehearse", change)
        written = answer["written"]
        self.found = plan_gates.check_live(answer.get("undone") or "", override)
        changed = bool(written) and not changes.stopping(self.found)
        if changed and not self._task.check_mode:
            self.step("transact", change)
        lines = changes.removal_lines(written, change)
        result = {"changed": changed, "changes": lines, "written": written if changed else [], "topology_name": name}
        result.update(reconfigured=changed, standby_of=None, findings=[*map(worded, self.found)])
        return self.shown(result, lines)
