# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan repair and keep its ledger, on the controller; the module of the same name documents it."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

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
        state = self.options["state"]
        if state == "planned":
            return self._planned()
        ids = set(self.options["incidents"])
        self.incidents = [row for name, row in ledger.incidents(self.lines).items() if name in ids]
        if state == "begun":
            return self._begun()
        if state == "ended":
            return self._ended(task_vars)
        storage.unmark(self.ledger, os.getppid())
        return self._reported()

    def _planned(self) -> Result:
        options, settings = self.options, {key: self.options[key] for key in plan.Settings.__annotations__}
        verdict = json_file(options["verdict_file"])
        if not isinstance(verdict, Mapping):
            raise RepairError(
                f"verdict_file: {options['verdict_file']} is no verdict; run the playbook verify with this verdict_file"
            )
        own = os.getppid()
        blockers = [
            f"{name} is in use by {holder}"
            for name, holder in ((path, storage.held(path, own)) for path in (self.path, self.ledger))
            if holder
        ]
        stop = options["stop_file"]
        blockers += [f"{stop} exists, which stops repair; remove it to go on"] if stop and os.path.exists(stop) else []
        made = plan.make(verdict, self.fabric, self.nodes, self.lines, settings, blockers, self.now)
        text, rows = plan.text(made), [dict(row) for row in made.rows]
        document = {"at": self.now, "apply": options["apply"], "rows": rows, "text": text}
        if options["path"]:
            storage.check_output("path", {"path": options["path"], "fabric_file": self.path}, b'"rows":')
            storage.write_atomic(options["path"], fabric_file.encode(document), follow=True)
        result: Result = {"plan": rows, "text": text, "incidents": [], "trays": []}
        if not options["apply"] or self._task.check_mode:
            return result
        self._append(made.lines)
        if blockers:
            return result
        storage.mark(self.ledger, self.now, own)
        self._rotate()
        mine = {row["incident"] for row in made.rows if row["allowed"]} | {row.id for row in made.open}
        refused = {row["incident"] for row in made.rows if not row["allowed"]}
        known = [row for name, row in ledger.incidents(self.lines).items() if name in mine - refused]
        for incident in steps.by_a_person(known, self.lines, verdict, self.nodes, options["actions"]):
            self._append(_line(self.now, incident, step, DONE, "by a person") for step in ("action", "return", "resume"))
        trays = sorted({row.subject for row in known if row.subject in self.fabric.trays})
        return {**result, "changed": bool(known), "incidents": [row.id for row in known], "trays": trays}

    def _begun(self) -> Result:
        step, options = self.options["step"], self.options
        nodes = {tray: row["slurm_node"] for tray, row in self.fabric.trays.items()}
        jobs = running_jobs(options["squeue"] or ())
        busy = {tray for tray, node in nodes.items() if jobs.get(node)}
        found = list(steps.due(step, self.incidents, nodes, options["actions"], self.nodes, busy))
        self._append(_line(self.now, incident, step, BEGIN) for incident in found)
        rows = [
            {
                "tray": incident.subject,
                "incident": incident.id,
                "node": nodes.get(incident.subject, ""),
                "action": incident.action,
                "reason": steps.reason(incident),
                "ticket": tickets.document(incident, None, "close" if step == "close" else "open", self.now),
            }
            for incident in found
        ]
        trays = [row["tray"] for row in rows if row["tray"] in nodes]
        return {"changed": bool(rows), "rows": rows, "trays": trays, "incidents": [row.id for row in found]}

    def _ended(self, task_vars: Variables) -> Result:
        step, options = self.options["step"], self.options
        hosts = task_vars["hostvars"]
        failed = steps.problems(options["results"], [row.subject for row in self.incidents])
        for incident in self.incidents:
            tray, why = incident.subject, ""
            own = hosts.raw_get(tray) if tray in hosts else {}
            answers = [mapped(own.get(name)) for name in options["registered"]]
            if step == "evidence":
                folder = evidence.folder(self.ledger, incident.id)
                evidence.write(folder, tray, self.now, answers[0] if answers else {}, options["results"])
            elif answers:
                why = steps.of_host(answers)
            if step in ("return", "resume"):
                why = steps.still_out(self.nodes, tray, options["detail"])
            failed[tray] = failed.get(tray, "") or why if step != "evidence" else ""
        self._append(
            _line(self.now, row, step, FAILED if failed[row.subject] else DONE, failed[row.subject])
            for row in self.incidents
        )
        text = [f"{row.subject}: {step} failed: {failed[row.subject]}" for row in self.incidents if failed[row.subject]]
        return {"changed": bool(self.incidents), "text": text}

    def _reported(self) -> Result:
        failed = [row for row in self.incidents if FAILED in row.steps.values()]
        rows = [
            {"tray": row.subject, "ticket": tickets.document(row, None, "update", self.now)} for row in failed
        ]
        text = steps.report(self.incidents, self.lines, self.options["actions"], evidence.folder(self.ledger, ""))
        return {"rows": rows, "text": text, "unfinished": len(failed)}

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
                storage.write_atomic(self.ledger, b"".join(json.dumps(line).encode() + b"\n" for line in kept))
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
