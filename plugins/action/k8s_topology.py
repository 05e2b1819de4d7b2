# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tells a cluster's schedulers the cliques, from the controller; the module of the same name documents it."""

from __future__ import annotations

import json
import os
from typing import Any

import yaml
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import WARNING, finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import labels as k8s_labels
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.api import Cluster, K8sError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.plan import Step
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.runai import RunAi
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.topology import (
    KINDS,
    Change,
    DesiredState,
    Plan,
    Planner,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import schedulers
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import nearest, shown

NAME = "k8s_topology"


class ActionModule(ActionBase):
    """Fabric file in, one API server brought to it. Everything runs on the controller."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        _spec, options = self.validate_argument_spec(
            argument_spec={
                "fabric_file": {"type": "path", "required": True},
                "cluster": {"type": "str"},
                "api": {"type": "dict", "required": True, "no_log": True},
                "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
                "schedulers": {"type": "list", "elements": "str", "choices": ["auto", *KINDS], "default": ["auto"]},
                "name": {"type": "str", "default": schedulers.NAME},
                "levels_above": {
                    "type": "list",
                    "elements": "dict",
                    "default": [],
                    "options": {
                        "label": {"type": "str", "required": True},
                        "name": {"type": "str", "required": True},
                    },
                },
                "flavor_labels": {"type": "dict", "default": {schedulers.GPU_PRESENT: "true"}},
                "clique_label": {"type": "str", "choices": list(k8s_labels.WANTED), "default": k8s_labels.AUTO},
                "coming_writer": {"type": "str", "choices": [k8s_labels.GFD, k8s_labels.DRA]},
                "topograph": {"type": "str", "choices": ["look", "add", "finish"], "default": "look"},
                "tray_cliques": {"type": "dict", "default": {}},
                "allow_recreate": {"type": "bool", "default": False},
                "runai": {"type": "dict", "no_log": True},
            }
        )
        path = self._loader.path_dwim(options["fabric_file"])
        if self._task.check_mode and not os.path.exists(path):
            # On a new site --check of the whole way comes here before anything was accepted.
            told = f"{path}: is not there yet, so nothing can be shown; discover and accept it first."
            return {**result, "changed": False, "findings": [], "plan": [], "warnings": [told]}
        try:
            result.update(self._run(path, options))
        except NvlinkError as error:
            raise AnsibleActionFail(str(error)) from None
        return result

    def _run(self, path: str, options: dict[str, Any]) -> dict[str, Any]:
        if options["state"] == "absent" and options["topograph"] != "look":
            raise K8sError(f"topograph: {options['topograph']} is for state present; leave it out with state absent")
        fabric = fabric_file.load(path)
        chosen = _cluster(fabric, options["cluster"], path)
        topology = schedulers.describe(
            fabric,
            chosen,
            [schedulers.Level(row["label"], row["name"]) for row in options["levels_above"]],
            options["name"],
            {str(key): str(value) for key, value in options["flavor_labels"].items()},
        )
        names = options["schedulers"]
        wishes = DesiredState(
            names=None if "auto" in names else tuple(names),
            present=options["state"] == "present",
            clique_label=options["clique_label"],
            topograph=options["topograph"],
            allow_recreate=options["allow_recreate"],
            runai=bool(options["runai"]),
            coming=(options["coming_writer"],) if options["coming_writer"] else (),
            gpus=_gpus(fabric, options["tray_cliques"]),
        )
        plan = Planner(Cluster(options["api"], NAME), topology, wishes).plan()
        plan.findings[:0] = schedulers.problems(fabric, chosen)
        runai, steps = None, []
        if options["runai"] and wishes.present:
            runai = RunAi(options["runai"])
            steps, found = runai.plan(topology)
            plan.findings += found
        result = self._result(plan, steps)
        if plan.stopped:
            more = f" ({len(plan.stopped) - 1} more such findings)" if len(plan.stopped) > 1 else ""
            return {**result, "changed": False, "failed": True, "msg": plan.stopped[0]["message"] + more}
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

    def _unfinished(self, plan: Plan, more: int, error: str) -> dict[str, Any]:
        """What was done before an error, and how to go on."""
        total = len(plan.changes) + more
        message = f"{error}; {len(plan.done)} of {total} writes are done: run again, it goes on from there."
        plan.findings.append(finding("k8s_apply_incomplete", message))
        plan.changes = plan.done
        return {**self._result(plan, []), "failed": True, "msg": message}

    def _result(self, plan: Plan, steps: list[Step]) -> dict[str, Any]:
        rows = [*(change.step for change in plan.changes), *steps]
        result: dict[str, Any] = {
            "changed": bool(rows),
            "schedulers": plan.schedulers,
            "clique_label_writer": plan.writer,
            "plan": [row.as_dict() for row in rows],
            "findings": plan.findings,
            "warnings": [row["message"] for row in plan.findings if row["severity"] == WARNING],
        }
        if self._task.diff:
            result["diff"] = [*map(_diff, plan.changes), *map(_told, steps)]
        return result


def _cluster(fabric: Fabric, wanted: Any, path: str) -> str | None:
    """The Kubernetes cluster that is meant; None where there is but the implicit one."""
    names = sorted(fabric.clusters.get("kubernetes", {}))
    if not wanted:
        if len(names) > 1:
            raise fabric_file.FabricFileError(
                f"{path}: is for several Kubernetes clusters; set cluster to one of {', '.join(names)}"
            )
        return names[0] if names else None
    if not names:
        raise fabric_file.FabricFileError(f"{path}: has no Kubernetes clusters; leave the option cluster out")
    if wanted not in names:
        raise fabric_file.FabricFileError(f"{path}: has no Kubernetes cluster {shown(wanted)}{nearest(wanted, names)}")
    return str(wanted)


def _gpus(fabric: Fabric, cliques: dict[str, Any]) -> dict[str, str | None]:
    """Node -> what its GPUs say, of the trays that the fabric file has."""
    return {
        fabric.trays[tray]["kubernetes_node"]: str(clique) if clique else None
        for tray, clique in cliques.items()
        if tray in fabric.trays
    }


def _diff(change: Change) -> dict[str, str]:
    if change.before == change.after:
        # A field that is right already gets an owner more, which no text of the object shows.
        return _told(change.step)
    return {
        "before_header": change.step.what,
        "after_header": f"{change.step.what} ({change.step.action})",
        "before": _text(change.before),
        "after": _text(change.after),
    }


def _told(step: Step) -> dict[str, str]:
    return {"prepared": f"{step.action} {step.what} {step.why}".rstrip() + "\n"}


def _text(value: Any) -> str:
    # What came from a playbook are strings of Ansible's own classes, which YAML's writer refuses.
    plain = json.loads(json.dumps(value))
    return "" if value is None else str(yaml.safe_dump(plain, sort_keys=False, default_flow_style=False))
