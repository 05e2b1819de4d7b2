# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Publish cliques to the schedulers of a Kubernetes cluster; documented by the module of the same name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import yaml
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.modules.k8s_topology import DOCUMENTATION
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import tray_report
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import WARNING
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import ControllerAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import cliques
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.api import connect
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.cliques import TopologySettings
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.plan import Step
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.runai import RunAi
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.topology import (
    Change,
    DesiredState,
    Plan,
    Planner,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.tray_report import TrayReport

NAME = "k8s_topology"

# The options of a login are checked by the client, with the defaults of each way to log in.
_LOGINS = {"api": {"type": "dict", "required": True, "no_log": True}, "runai": {"type": "dict", "no_log": True}}
OPTIONS = {**schemas.arguments(DOCUMENTATION), **_LOGINS}


class ActionModule(ControllerAction):
    """Applies a fabric file to one Kubernetes cluster, on the controller."""

    def act(self, task_vars: Variables) -> Result:
        _spec, options = self.validate_argument_spec(argument_spec=OPTIONS)
        path = fabric_file.required(options["fabric_file"])
        if self._task.check_mode and (warning := fabric_file.not_yet(path, "no change can be shown")):
            return {"warnings": [warning]}
        cached = tray_report.cached(task_vars.get("hostvars") or {}, options["trays"])
        return self._run(path, options, [report for report, _variables in cached.values()])

    def _run(self, path: str, options: Arguments, reports: Sequence[TrayReport]) -> Result:
        fabric = fabric_file.load(path)
        chosen = cliques.choose(fabric, options["kubernetes_cluster"], path)
        topology = cliques.describe(fabric, chosen, TopologySettings.of_options(options))
        names = options["schedulers"]
        desired = DesiredState(
            names=None if "auto" in names else tuple(names),
            present=options["state"] == "present",
            label_writer=options["label_writer"],
            runai=bool(options["runai"]),
            pending=(options["pending_label_writer"],) if options["pending_label_writer"] else (),
            gpus=_gpus(fabric, reports),
        )
        plan = Planner(connect(options["api"], NAME), topology, desired).plan()
        plan.findings[:0] = [
            *cliques.problems(fabric, chosen),
            *(row for report in reports for row in report.refused),
        ]
        runai: RunAi | None = None
        steps: list[Any] = []
        if options["runai"] and desired.present:
            runai = RunAi(options["runai"])
            steps, found = runai.apply(topology, dry_run=True)
            plan.findings += found
        result = self._result(plan, steps)
        if plan.blockers:
            first, *others = plan.blockers
            more = f" (and {count(len(others), 'more blocking finding')})" if others else ""
            return {**result, "changed": False, "failed": True, "msg": first["message"] + more}
        if self._task.check_mode:
            return result
        try:
            plan.apply()
            if runai and steps:
                runai.apply(topology)
        except NvlinkError as error:
            if not plan.done:
                raise
            return self._unfinished(plan, len(steps), str(error))
        return result

    def _unfinished(self, plan: Plan, more: int, error: str) -> Result:
        """The failed result after an error in the middle of the writes."""
        total = len(plan.changes) + more
        message = f"{error}; {len(plan.done)} of {count(total, 'write')} done: run again to continue."
        plan.findings.append(finding("k8s_apply_incomplete", message))
        plan.changes = plan.done
        return {**self._result(plan, []), "failed": True, "msg": message}

    def _result(self, plan: Plan, steps: list[Step]) -> Result:
        rows = [*(change.step for change in plan.changes), *steps]
        result: Result = {
            "changed": bool(rows),
            "schedulers": plan.schedulers,
            "label_writer": plan.writer,
            "changes": [row._asdict() for row in rows],
            "findings": plan.findings,
            "warnings": [row["message"] for row in plan.findings if row["severity"] == WARNING],
        }
        if self._task.diff:
            result["diff"] = [*map(_diff, plan.changes), *map(_describe, steps)]
        return result


def _gpus(fabric: Fabric, reports: Iterable[TrayReport]) -> dict[str, str | None]:
    """Node -> the clique that its GPUs report, for the trays of the fabric file that have facts."""
    return {
        fabric.trays[report.tray]["kubernetes_node"]: report.gpu.clique
        for report in reports
        if report.tray in fabric.trays and report.gpu is not None
    }


def _diff(change: Change) -> dict[str, str]:
    what = change.step.what
    if change.before == change.after:
        # A right field gets one more owner, which the text of the object does not show.
        return _describe(change.step)
    headers = {"before_header": what, "after_header": f"{what} ({change.step.action})"}
    return {**headers, "before": _text(change.before), "after": _text(change.after)}


def _describe(step: Step) -> dict[str, str]:
    return {"prepared": f"{step.action} {step.what} {step.why}".rstrip() + "\n"}


def _text(value: Any) -> str:
    # Strings from a playbook are of Ansible's own classes, which the YAML dumper rejects.
    plain = json.loads(json.dumps(value))
    return "" if value is None else str(yaml.safe_dump(plain, sort_keys=False, default_flow_style=False))
