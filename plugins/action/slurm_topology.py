# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Survey a Slurm, plan its topology here, and have the host rehearse and apply the plan."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import worded
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import FILE_NAMES, YAML
from ansible_collections.rackscale.nvlink.plugins.modules.slurm_topology import ARGUMENTS, RETURN
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import blocks as slurm_blocks
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import (
    ends,
    gates,
    observed,
    planning,
    rehearsal_file,
    reporting,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import absolute

SCHEMA = schemas.of_return(RETURN)
OF_HOST = ("conf_dir", "bin_dir", "timeout", "format", "state", "topology_name", "override", "segments")
OF_REHEARSAL = ("rehearse", "rehearse_jobs", "rehearse_timeout")
# Another run may change the files between survey and transaction.
ATTEMPTS = 5


class ActionModule(GuardedAction):
    def act(self, task_vars: Variables) -> Result:
        _validation, options = self.validate_argument_spec(argument_spec=ARGUMENTS)
        given = [option for option in ("fabric_file", "blocks", "clusters") if options[option] is not None]
        if options["state"] == "present" and len(given) != 1:
            raise AnsibleActionFail(
                "slurm_topology needs exactly one of fabric_file, blocks and clusters: name the fabric file."
            )
        path = options["fabric_file"]
        if options["state"] == "present" and path and self._task.check_mode and not os.path.exists(path):
            # On a new site --check runs this before a fabric file was accepted.
            warning = f"{path}: is not there yet, so no block can be shown; run discover and accept first."
            return {"changed": False, "findings": [], "warnings": [warning]}
        self.task_vars, self.options = task_vars, options
        self.warnings: list[Any] = []
        self.end = ends.controller(options, options["timeout"], options["rehearse_timeout"])
        of_cluster = slurm_blocks.of_options(options) if options["state"] == "present" else {}
        for _attempt in range(ATTEMPTS):
            result = self._apply(of_cluster) if of_cluster else self._remove()
            if not result.pop("outdated", False):
                break
        record = options["rehearsal_file"]
        stored = rehearsal_file.store(absolute(record), result) if record else []
        return reporting.report(result, [*self.warnings, *stored])

    def _step(self, step: str, change: Arguments, *more: str) -> Result:
        # As the task has them, since the host validates them too: ~ is the home there.
        given = {option: self._task.args.get(option, self.options[option]) for option in (*OF_HOST, *more)}
        arguments = {**given, "step": step, "change": change}
        answer = self.run_module("rackscale.nvlink.slurm_topology", arguments, self.task_vars, SCHEMA, self.end)
        self.warnings += answer.pop("warnings", [])
        return answer

    def _apply(self, of_cluster: Mapping[str, Sequence[Arguments]]) -> Result:
        answer = self._step("survey", {})
        if _failed(answer):
            return answer
        with observed.bounded():
            seen = observed.Observed.of(answer.get("survey"))
            blocks = slurm_blocks.of_cluster(of_cluster, seen.config.get("clustername", ""))
            plan = planning.plan(seen, planning.DesiredState.of(self.options, blocks))
        skipped = bool(seen.acting) and self.options["standby"] == "skip"
        rehearsed = not plan.stopped_by() and not skipped and plan.is_rehearsed(self.options)
        rehearsal = None
        if rehearsed or plan.reloads:
            answer = self._step("rehearse", plan.to_rehearse(rehearsed), *OF_REHEARSAL)
            if _failed(answer):
                return answer
            rehearsal = answer.get("rehearsal")
            plan.findings += gates.check_live(answer.get("undone") or "", self.options["override"])
            plan.findings += answer["findings"]
        stopped = bool(plan.stopped_by()) or skipped
        if not stopped and not self._task.check_mode and (plan.changed or plan.waits_for):
            answer = self._step("transact", plan.change())
            if _failed(answer):
                return {**answer, "findings": [*map(worded, plan.findings), *answer.get("findings", [])]}
            plan.live = plan.live if answer.get("moved") else None
        result = plan.result(stopped)
        result["rehearsal"] = rehearsal
        if self._task.diff and plan.difference and not skipped:
            result["diff"] = {"prepared": "".join(f"{line}\n" for line in plan.difference)}
        return result

    def _remove(self) -> Result:
        answer = self._step("survey", {})
        if _failed(answer):
            return answer
        survey, name = answer["survey"], self.options["topology_name"]
        text = survey["texts"].get(FILE_NAMES[YAML])
        kept = None if text is None else planning.kept_yaml(text, name)
        result = self._step("remove", {"checksums": survey["checksums"], "kept_yaml": kept})
        if not _failed(result):
            changes = result["changes"]
            result.update(topology_name=name, reconfigured=bool(changes), standby_of=None, findings=[])
            if self._task.diff and changes:
                result["diff"] = {"prepared": "".join(f"{line}\n" for line in changes)}
        return result


def _failed(answer: Result) -> bool:
    return bool(answer.get("failed") or answer.get("unreachable"))
