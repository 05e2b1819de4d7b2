# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan repair and keep its ledger, on the controller; the module of the same name documents it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, cast

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import rfc3339
from ansible_collections.rackscale.nvlink.plugins.modules.repair import DOCUMENTATION
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.capture import tray_evidence
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import absolute, json_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, storage
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import ControllerAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions import open_changes
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.running_jobs import running_jobs
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair import (
    RepairError,
    due_steps,
    ledger,
    plan,
    policy,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair.ledger_record import Record
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout import progress_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import mapped
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import node_states

OPTIONS = schemas.arguments(DOCUMENTATION)


class ActionModule(ControllerAction):
    """Connects to no host: what trays returned is read from what their tasks registered, and never templated."""

    def act(self, task_vars: Variables) -> Result:
        _validation, self.options = self.validate_argument_spec(argument_spec=OPTIONS)
        options, self.hosts = self.options, task_vars["hostvars"]
        self.path = fabric_file.required(options["fabric_file"])
        self.fabric = fabric_file.load(self.path)
        now = rfc3339()
        path = ledger.path(self.path, options["state_dir"])
        self.record = Record(path, self.fabric, now, self._task.check_mode)
        shown = options["scontrol"]
        self.nodes = None if shown is None else node_states.of_scontrol(shown, self.fabric)
        states = {"planned": self._planned, "begun": self._begun, "ended": self._ended, "reported": self._reported}
        return states[options["state"]]()

    def _planned(self) -> Result:
        options, record, own = self.options, self.record, os.getppid()
        settings = cast(plan.Settings, {key: options[key] for key in plan.Settings.__annotations__})
        verdict = json_file(absolute(options["verdict_file"]))
        if not isinstance(verdict, Mapping):
            raise RepairError(
                f"verdict_file: {options['verdict_file']} is no verdict; run the playbook verify with this verdict_file"
            )
        paths = (self.path, progress_file.marked(self.path, options["state_dir"]), record.path)
        blockers = [f"{path} is in use by {holder}" for path in paths if (holder := storage.held(path, own))]
        blockers += [*open_changes.sentences(self.path, options["state_dir"]).values(), *self._stopped()]
        made = plan.make(verdict, self.fabric, self.nodes, record.lines, settings, blockers, record.now)
        text, applies = plan.text(made), options["apply"] and not self._task.check_mode
        if self.nodes is None and made.rows:
            text.append("The inventory has no Slurm controller: repair drains no tray and acts on none.")
        if options["path"] and not self._task.check_mode:
            # An empty plan has no mark.
            if json_file(options["path"]) != []:
                files = {"repair_file": options["path"], "fabric_file": self.path}
                storage.check_output("repair_file", files, b'"brake":')
            storage.write_atomic(options["path"], fabric_file.encode(made.rows), follow=True)
        if not applies:
            rows = [{**row, "steps": []} for row in made.rows]
            return {"plan": rows, "text": text, "trays": [], "unfit": [], "rows": []}
        if any(row["steps"] for row in made.rows):
            storage.mark(record.path, record.now, own)
            # Both of two runs that began at the same time refuse: neither had the other's mark when it planned.
            if holder := storage.held(record.path, own):
                storage.unmark(record.path, own)
                raise RepairError(f"{record.path} is in use by {holder}; run this again after it")
        record.rotate()
        record.append(made.lines)
        acting = [record.incidents[row["incident"]] for row in made.rows if "action" in row["steps"]]
        return {
            "changed": bool(made.lines),
            "plan": [dict(row) for row in made.rows],
            "text": text,
            "trays": [row["tray"] for row in made.rows if row["steps"] and not row["event"]],
            "unfit": [self.fabric.trays[tray]["slurm_node"] for tray in sorted(made.errors)],
            "rows": record.rows(acting, made.rows, "open"),
        }

    def _stopped(self) -> list[str]:
        stop = self.options["stop_file"]
        return [f"{stop} exists, which stops repair; remove it to go on"] if stop and os.path.exists(stop) else []

    def _begun(self) -> Result:
        if stopped := self._stopped():
            raise RepairError(stopped[0])
        step, options, busy = self.options["step"], self.options, set[str]()
        if not options["kill_jobs"]:
            jobs = running_jobs(options["squeue"] or ())
            busy = {tray for tray, row in self.fabric.trays.items() if jobs.get(row["slurm_node"])}
            # squeue does not show each job to each user.
            busy.update(tray for tray, state in (self.nodes or {}).items() if not policy.is_drained(state))
            busy.update(due_steps.with_pods(options["pods"]))
        known, cordons = self.record.incidents, options["cordons"]
        found = list(due_steps.due(step, options["plan"], known, self.nodes, busy, cordons))
        self.record.begin(found, step)
        rows = self.record.rows(found, options["plan"], "close" if step == "close" else "open")
        return {"changed": bool(rows), "rows": rows, "trays": [row["tray"] for row in rows if row["node"]]}

    def _ended(self) -> Result:
        step, options = self.options["step"], self.options
        found = [self.record.incidents[name] for name in options["incidents"]]
        failed = due_steps.problems(options["results"], [one.subject for one in found])
        for tray, one in ((one.subject, one) for one in found):
            answers = self._answers(tray)
            if step == "evidence":
                folder = self.record.evidence(one.id)
                tray_evidence.write(folder, tray, self.record.now, answers[0], options["results"])
                failed[tray] = ""
            elif step in ("return", "resume"):
                failed[tray] = due_steps.still_out(self.nodes, tray, options["detail"]) or failed[tray]
            elif answers:
                failed[tray] = failed[tray] or due_steps.of_host(answers)
        self.record.end([(one, failed[one.subject]) for one in found], step)
        return {"changed": bool(found), "trays": due_steps.freed(options["results"], self.fabric)}

    def _reported(self) -> Result:
        rows, record = self.options["plan"], self.record
        storage.unmark(record.path, os.getppid())
        failed = record.failed(rows)
        text = due_steps.report(rows, record.incidents, record.lines, record.evidence())
        spares = [due_steps.of_spare(tray, self._answers(tray)[0]) for tray in self.options["spares"]]
        unfinished = len(failed) + sum(not is_ready for is_ready, _line in spares)
        text += [line for _is_ready, line in spares]
        return {"rows": record.rows(failed, rows, "update"), "text": text, "unfinished": unfinished}

    def _answers(self, tray: str) -> list[Mapping[str, Any]]:
        """What the tasks of a tray registered, in their order; empty where they did not run."""
        own = self.hosts.raw_get(tray) if tray in self.hosts else {}
        return [mapped(own.get(name)) for name in self.options["registered"]]
