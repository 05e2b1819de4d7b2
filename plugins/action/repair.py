# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan repair and keep its ledger, on the controller; the module of the same name documents it."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Mapping
from typing import cast

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result, Variables
from ansible_collections.rackscale.nvlink.plugins.modules.repair import DOCUMENTATION
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.capture import evidence
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import json_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, journal, storage
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.journal import BEGIN, DONE, FAILED, Line
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import ControllerAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.running_jobs import running_jobs
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair import RepairError, ledger, plan, steps, tickets
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair.ledger import Incident
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout import progress_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import mapped
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import node_states

OPTIONS = schemas.arguments(DOCUMENTATION)


class ActionModule(ControllerAction):
    """Connects to no host: what trays returned is read from what their tasks registered, and never templated."""

    def act(self, task_vars: Variables) -> Result:
        _validation, self.options = self.validate_argument_spec(argument_spec=OPTIONS)
        self.now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.path = fabric_file.required(self.options["fabric_file"])
        self.fabric = fabric_file.load(self.path)
        self.ledger = ledger.path(self.path, self.options["state_dir"])
        self.lines = journal.read(self.ledger)
        scontrol = self.options["scontrol"]
        self.nodes = None if scontrol is None else node_states.of_scontrol(scontrol, self.fabric)
        self.incidents = ledger.incidents(self.lines)
        state = self.options["state"]
        if state == "planned":
            return self._planned()
        if state == "begun":
            return self._begun()
        if state == "ended":
            return self._ended(task_vars)
        storage.unmark(self.ledger, os.getppid())
        return self._reported(task_vars)

    def _planned(self) -> Result:
        options = self.options
        settings = cast(plan.Settings, {key: options[key] for key in plan.Settings.__annotations__})
        verdict = json_file(options["verdict_file"])
        if not isinstance(verdict, Mapping):
            raise RepairError(
                f"verdict_file: {options['verdict_file']} is no verdict; run the playbook verify with this verdict_file"
            )
        own = os.getppid()
        paths = (self.path, progress_file.marked(self.path, options["state_dir"]), self.ledger)
        blockers = [f"{path} is in use by {holder}" for path in paths if (holder := storage.held(path, own))]
        stop = options["stop_file"]
        blockers += [f"{stop} exists, which stops repair; remove it to go on"] if stop and os.path.exists(stop) else []
        made = plan.make(verdict, self.fabric, self.nodes, self.lines, settings, blockers, self.now)
        text, rows = plan.text(made), [dict(row) for row in made.rows]
        document = {"at": self.now, "apply": options["apply"], "rows": rows, "text": text}
        if options["path"]:
            storage.check_output("path", {"path": options["path"], "fabric_file": self.path}, b'"rows":')
            storage.write_atomic(options["path"], fabric_file.encode(document), follow=True)
        result: Result = {"plan": rows, "text": text, "trays": [], "closed": [], "unfinished": 0}
        if not options["apply"] or self._task.check_mode:
            return {**result, "plan": [{**row, "steps": []} for row in rows]}
        storage.mark(self.ledger, self.now, own)
        self._rotate()
        self._append(made.lines)
        self.incidents = ledger.incidents(self.lines)
        closed = {line["incident"] for line in made.lines if line["step"] == "close"}
        result["closed"] = self._rows([self.incidents[name] for name in sorted(closed)], "close")
        result["trays"] = [row["tray"] for row in made.rows if row["steps"] and not row["event"]]
        return {**result, "changed": bool(made.lines)}

    def _rows(self, incidents: Iterable[Incident], state: str) -> list[Result]:
        """What the tasks of a step read of each incident, with the document of its ticket in this state."""
        own = {row["incident"]: row for row in self.options["plan"]}
        nodes = {tray: row["slurm_node"] for tray, row in self.fabric.trays.items()}
        return [
            {
                "tray": one.subject,
                "incident": one.id,
                "node": nodes.get(one.subject, ""),
                "action": one.action,
                "reason": steps.reason(one),
                "ticket": tickets.document(one, own.get(one.id), state, self.now),
            }
            for one in incidents
        ]

    def _begun(self) -> Result:
        step, options = self.options["step"], self.options
        jobs = running_jobs(options["squeue"] or ())
        busy = {tray for tray, row in self.fabric.trays.items() if jobs.get(row["slurm_node"])}
        waits = () if options["kill_jobs"] else busy
        found = list(steps.due(step, options["plan"], self.incidents, self.nodes, waits))
        self._append(_line(self.now, incident, step, BEGIN) for incident in found)
        rows = self._rows(found, "close" if step == "close" else "open")
        return {"changed": bool(rows), "rows": rows, "trays": [row["tray"] for row in rows if row["node"]]}

    def _ended(self, task_vars: Variables) -> Result:
        step, options, hosts = self.options["step"], self.options, task_vars["hostvars"]
        found = [self.incidents[name] for name in options["incidents"]]
        failed = steps.problems(options["results"] if step != "evidence" else {}, [one.subject for one in found])
        for tray, one in ((one.subject, one) for one in found):
            own = hosts.raw_get(tray) if tray in hosts else {}
            answers = [mapped(own.get(name)) for name in options["registered"]]
            if step == "evidence":
                folder = evidence.folder(self.ledger, one.id)
                evidence.write(folder, tray, self.now, answers[0], options["results"])
            elif step in ("return", "resume"):
                failed[tray] = steps.still_out(self.nodes, tray, options["detail"])
            elif answers:
                failed[tray] = failed[tray] or steps.of_host(answers)
        ends = [(one, failed[one.subject]) for one in found]
        self._append(_line(self.now, one, step, FAILED if why else DONE, why) for one, why in ends)
        text = [f"{one.subject}: {step} failed: {why}." for one, why in ends if why]
        return {"changed": bool(found), "text": text, "trays": steps.freed(options["results"], self.fabric)}

    def _reported(self, task_vars: Variables) -> Result:
        rows, hosts = self.options["plan"], task_vars["hostvars"]
        failed = [one for row in rows if (one := self.incidents.get(row["incident"])) and FAILED in one.steps.values()]
        text = steps.report(rows, self.incidents, self.lines, evidence.folder(self.ledger, ""))
        answers = [
            steps.of_spare(tray, mapped(hosts.raw_get(tray).get(name)))
            for tray in self.options["spares"]
            for name in self.options["registered"]
        ]
        unfinished = len(failed) + sum(not is_ready for is_ready, _line in answers)
        text += [line for _is_ready, line in answers]
        return {"rows": self._rows(failed, "update"), "text": text, "unfinished": unfinished}

    def _append(self, lines: Iterable[Line]) -> None:
        """Append lines to the ledger, under its lock; nothing in check mode."""
        rows = list(lines)
        if rows and not self._task.check_mode:
            with storage.locked(self.ledger, self.now):
                journal.append(self.ledger, rows)
            self.lines += rows

    def _rotate(self) -> None:
        """Drop what is older than 30 days; the ledger is replaced as a whole."""
        kept = ledger.rotated(self.lines, self.now)
        if len(kept) < len(self.lines):
            with storage.locked(self.ledger, self.now):
                storage.write_atomic(self.ledger, journal.encode(kept) + b"\n")
            self.lines = kept


def _line(now: str, incident: Incident, step: str, state: str, detail: str = "") -> Line:
    return {
        "incident": incident.id,
        "at": now,
        "step": step,
        "state": state,
        "subject": incident.subject,
        "code": incident.code,
        "detail": detail,
    }
