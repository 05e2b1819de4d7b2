# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Record the progress of a rollout on the controller; the module of the same name documents it."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Mapping
from typing import Any

from ansible import constants
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.modules.rollout import DOCUMENTATION
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas, trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import ControllerAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import clique as imex_clique
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import run_store
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout import progress_file, summary
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout.progress_file import Row, WaveResult
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout.waves import RolloutError, check_controller
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import absolute, nearest, shown

OPTIONS = schemas.arguments(DOCUMENTATION)
PHASE, RECORD = "rollout", "record"
# The play that changes the trays has them from this group, which the role fills.
GROUP = "nvlink_rollout"
# A tray whose facts set variables of the collection fails in these states. It must be able to fail, and the states of
# the wave take nothing from the tray that they happen to run on.
GUARDED = ("observed", "checked", "passed")


class ActionModule(ControllerAction):
    """Connects to no host, so that a result can be recorded for an unreachable tray.

    What a wave does is read from localhost, which registered it in `rollout_plan`: no variable of a tray decides it.
    """

    def is_guarded(self) -> bool:
        return self._task.args.get("state") in GUARDED

    def act(self, task_vars: Variables) -> Result:
        _validation, self.options = self.validate_argument_spec(argument_spec=OPTIONS)
        self.tray = str(task_vars["inventory_hostname"])
        self.folder = str(constants.DEFAULT_LOCAL_TMP)
        if self.options["state"] == "checked":
            return {}
        if self.options["state"] == "planned":
            return self._planned(task_vars.get("groups") or {})
        if self.options["state"] == "reported":
            self.rollout = progress_file.check_name(self.options["rollout"] or "")
            return self._reported(trust.controller_value(task_vars, "rollout_plan"))
        self.plan = self._plan(task_vars)
        self.rollout, self.path = self.plan["rollout"], self.plan["fabric_file"]
        self.hosts: list[str] = list(task_vars.get("ansible_play_hosts_all") or [self.tray])
        play = self._task.play
        self.wave = imex_clique.batch(self.hosts, play.serial or [], self.tray)
        return getattr(self, f"_{self.options['state']}")()

    # --- The plan, on localhost.

    def _planned(self, groups: Mapping[str, Iterable[str]]) -> Result:
        options = self.options
        settings: dict[str, Any] = options["settings"]
        rollout = progress_file.check_name(options["rollout"] or "")
        path = options["fabric_file"] or ""
        steps = settings.get("steps")
        if not steps:
            hint = nearest(rollout, options["known"])
            raise RolloutError(f"rollout_name: {shown(rollout)} has no steps of its own{hint}, or set rollout_steps")
        if "hook" in steps:
            settings["hook"] = self._hook(str(settings.get("hook") or ""))
        if {"drain", "resume"} & set(steps):
            # In check mode there may be no fabric file yet.
            fabric = fabric_file.load(path) if os.path.exists(path) else Fabric()
            check_controller(str(settings.get("slurm_controller") or ""), (*fabric.trays, *groups.get("nvlink", ())))
        if not options["waves"] and not options["allow_empty"]:
            raise RolloutError(
                f"rollout {rollout}: no tray that the fabric file places is in this run, so there is nothing to change;"
                " check --limit, the inventory and the fabric file"
            )
        trays = [tray for wave in options["waves"] for tray in wave["trays"]]
        earlier = groups.get(GROUP)
        # Ansible removes no host from a group, and the order of the group is that of the waves.
        if earlier and list(earlier) != trays:
            raise RolloutError(f"rollout {rollout}: another one of this run has other trays; run them by two commands")
        given = options["progress_file"]
        return {
            "rollout": rollout,
            "fabric_file": path,
            "progress_file": absolute(given) if given else progress_file.default_path(path, rollout),
            "stop_after": options["stop_after"],
            "settings": settings,
            "trays": trays,
            "sizes": [len(wave["trays"]) for wave in options["waves"]],
            "cliques": [wave["cliques"] for wave in options["waves"]],
        }

    def _hook(self, given: str) -> str:
        """The absolute path of a file that is named relative to the working directory, or to the playbook."""
        if not given:
            raise RolloutError("rollout_hook is empty; set it to the path of a file with tasks for one tray")
        for path in (os.path.abspath(os.path.expanduser(given)), self._loader.path_dwim(given)):
            if os.path.isfile(path):
                return path
        raise RolloutError(f"rollout_hook: {shown(given)} is no file; set it to a file with tasks for one tray")

    def _plan(self, variables: Variables) -> dict[str, Any]:
        plan = trust.controller_value(variables, "rollout_plan")
        if not isinstance(plan, Mapping) or "settings" not in plan:
            raise RolloutError(
                "rollout_plan: localhost has none; before the play of the waves run the role rackscale.nvlink.rollout"
                " with tasks_from: plan in a play on localhost"
            )
        return dict(plan)

    # --- States of each tray.

    def _observed(self) -> Result:
        if self.options["unreachable"]:
            self._record({"state": progress_file.SKIPPED})
        elif self.options["refused"]:
            # Without a failure of this task: the report names it once for all trays of the clique.
            self._record({"state": progress_file.FAILED, "reason": _line(self.options["refused"]), "refused": True})
        else:
            self._record({"state": "observed", "due": self.options["due"]})
        return {}

    def _passed(self) -> Result:
        if self._rows([self.tray]).get(self.tray, {}).get("refused"):
            return {"passed": False}
        self._record({"state": "passed", "due": True})
        return {"passed": True}

    def _failed(self) -> Result:
        reason = _line(self.options["reason"]) or "a task failed"
        self._record({"state": progress_file.FAILED, "due": True, "reason": reason})
        return {"passed": False, "msg": f"{self.tray}: {reason}"}

    def _record(self, row: Row, tray: str = "") -> None:
        run_store.write_row(self.folder, self.rollout, PHASE, tray or self.tray, row)

    # --- States of the wave. Any of its trays may run them.

    def _inspected(self) -> Result:
        """Before the first wave, of all trays of the rollout: finishes the cliques of which each tray is unchanged."""
        fabric, unchanged = fabric_file.load(self.path), set(self.options["unchanged"])
        record = self._new_record(fabric)
        due: dict[str, list[str]] = {}
        for name, trays in self._cliques(fabric, self.hosts).items():
            if unchanged.issuperset(trays) and name not in record["unfinished"]:
                del record["cliques"][name]
                record["finished"][name] = []
            else:
                due[name] = trays
        self._write_record({**record, "inspected": True})
        waves = [[name for name in cliques if name in due] for cliques in self.plan["cliques"]]
        return {
            "due": [tray for trays in due.values() for tray in trays],
            "waves": [summarize(cliques) for cliques in waves if cliques],
        }

    def _started(self) -> Result:
        fabric = fabric_file.load(self.path)
        cliques = self._cliques(fabric, self.wave)
        first = self.wave[0] == self.hosts[0]
        record = self._read_record()
        if first and not record.pop("inspected", False):
            record = self._new_record(fabric)
        # Where no tray was left to finish the wave before.
        warnings = self._finish(record)
        outcome: Result = {"cliques": list(cliques), "progress_file": record["progress_file"], "stop": False}
        if warnings:
            outcome["warnings"] = warnings
        if progress_file.must_stop(record["failed"], record["canary_failed"], self.plan["stop_after"]):
            self._write_record(record)
            failed = "the canary" if record["canary_failed"] else count(record["failed"], "clique")
            message = f"No further wave starts: {failed} failed."
            return {**outcome, "stop": True, "msg": message, "warnings": [*warnings, message]}
        for tray in self.wave:
            run_store.delete_rows(self.folder, self.rollout, [PHASE], tray)
        for name in cliques:
            record["cliques"][name] = {"state": progress_file.STARTED, "trays": {}}
        record.update(wave=self.wave, is_canary=first, selected=[])
        self._write_record(record)
        # The callback progress prints it. Not by a task debug with run_once: ansible-core 2.21 then gives all hosts of
        # the play one dictionary of facts.
        return {**outcome, "announcement": f"Wave of {summarize(cliques)} with {count(len(self.wave), 'tray')}."}

    def _selected(self) -> Result:
        fabric, rows, record = fabric_file.load(self.path), self._rows(self.wave), self._read_record()
        due = [
            tray
            for name, trays in self._cliques(fabric, self.wave).items()
            if name in record["unfinished"] or any(rows.get(tray, {}).get("due") for tray in trays)
            # No tray is drained for a change that one of them would refuse.
            if not any(rows.get(tray, {}).get("refused") for tray in trays)
            for tray in trays
            if rows.get(tray, {}).get("state") == "observed"
        ]
        record["selected"] = due
        self._write_record(record)
        return {"trays": due, "nodes": [fabric.trays[tray]["slurm_node"] for tray in due]}

    def _evaluated(self) -> Result:
        fabric, record = fabric_file.load(self.path), self._read_record()
        passed = self._outcome(fabric, self.wave).passed
        # Only selected trays: an earlier run may have left others drained with the same reason.
        trays = [tray for tray in passed if tray in record["selected"]]
        return {"trays": trays, "nodes": [fabric.trays[tray]["slurm_node"] for tray in trays]}

    def _tested(self) -> Result:
        fabric, rows = fabric_file.load(self.path), self._rows(self.wave)
        for tray in self.wave:
            node = fabric.trays[tray]["slurm_node"] if tray in fabric.trays else tray
            if node in self.options["failed_tests"] and rows.get(tray, {}).get("state") == "passed":
                self._record({"state": progress_file.FAILED, "reason": str(self.options["failed_tests"][node])}, tray)
        return {}

    def _finished(self) -> Result:
        record = self._read_record()
        cliques = self._cliques(fabric_file.load(self.path), record["wave"])
        warnings = self._finish(record)
        self._write_record(record)
        if warnings:
            unfinished = [name for name in cliques if name in record["cliques"]]
            return {"unfinished": unfinished, "warnings": warnings, "msg": warnings[0]}
        return {"unfinished": [], "msg": f"Finished {summarize(cliques)}."}

    def _reported(self, plan: object) -> Result:
        """At the end of the run: fails if a clique is unfinished."""
        record = self._read_record()
        if self._finish(record):
            self._write_record(record)
        unfinished = record["cliques"]
        text = summary.of_rollout(self.rollout, record["finished"], list(unfinished), self._task.check_mode)
        settings = plan.get("settings") if isinstance(plan, Mapping) else None
        if settings and {"drain", "resume"} & set(settings["steps"]) and not settings.get("slurm_controller"):
            text.append("The inventory has no Slurm controller, so Slurm neither drained nor tested a tray.")
        if unfinished:
            message = progress_file.summary(unfinished, record["progress_file"], self.rollout)
            return {"failed": self.options["fail"], "unfinished": list(unfinished), "text": text, "msg": message}
        return {"unfinished": [], "text": text, "msg": f"The rollout {self.rollout} is complete."}

    # --- Helpers.

    def _finish(self, record: dict[str, Any]) -> list[str]:
        """Add the result of the wave that has begun, if any, to the record; a warning if a clique is unfinished."""
        wave = record["wave"]
        if not wave:
            return []
        fabric = fabric_file.load(record["fabric_file"])
        outcome = self._outcome(fabric, wave)
        for name, trays in self._cliques(fabric, wave).items():
            if name in outcome.unfinished:
                record["cliques"][name] = outcome.unfinished[name]
            else:
                record["cliques"].pop(name, None)
                record["finished"][name] = [tray for tray in trays if tray in record["selected"]]
        failed = [name for name, row in outcome.unfinished.items() if row["state"] == progress_file.FAILED]
        record["failed"] += len(failed)
        record["canary_failed"] |= bool(failed) and record["is_canary"]
        record["wave"] = []
        if not outcome.unfinished:
            return []
        return [progress_file.summary(outcome.unfinished, record["progress_file"], self.rollout)]

    def _cliques(self, fabric: Fabric, trays: Iterable[str]) -> dict[str, list[str]]:
        """Clique -> those of these trays that are in it."""
        found: dict[str, list[str]] = {}
        for tray in trays:
            if tray in fabric.trays:
                found.setdefault(fabric.trays[tray]["clique"], []).append(tray)
        return found

    def _rows(self, trays: Iterable[str]) -> dict[str, Row]:
        return run_store.read_rows(self.folder, self.rollout, PHASE, trays)

    def _outcome(self, fabric: Fabric, trays: list[str]) -> WaveResult:
        return progress_file.evaluate(self._cliques(fabric, trays), self._rows(trays))

    # The record of this run: unfinished and failed cliques, and the wave that has begun. The progress file has the
    # unfinished cliques for later runs.

    def _read_record(self) -> dict[str, Any]:
        rows = run_store.read_rows(self.folder, self.rollout, RECORD, [RECORD])
        record: dict[str, Any] = rows.get(RECORD) or self._empty_record("", "")
        return record

    def _empty_record(self, path: str, fabric_path: str) -> dict[str, Any]:
        counts = {"cliques": {}, "unfinished": [], "finished": {}, "failed": 0, "canary_failed": False}
        wave = {"wave": [], "is_canary": False, "selected": []}
        return {**counts, **wave, "progress_file": path, "fabric_file": fabric_path}

    def _new_record(self, fabric: Fabric) -> dict[str, Any]:
        """All cliques of the run are pending; unfinished ones of an earlier run that are not in this one stay."""
        path = self.plan["progress_file"]
        earlier = progress_file.read(path) if os.path.exists(path) else {}
        cliques = {name: row for name, row in earlier.items() if name in fabric.cliques}
        record = self._empty_record(path, self.path)
        # A clique that a killed run had started may look complete on its trays, and is not.
        record["unfinished"] = [
            name for name, row in cliques.items() if row["state"] in (progress_file.STARTED, progress_file.FAILED)
        ]
        for name in self._cliques(fabric, self.hosts):
            cliques[name] = {"state": progress_file.PENDING, "trays": {}}
        record["cliques"] = cliques
        return record

    def _write_record(self, record: dict[str, Any]) -> None:
        run_store.write_row(self.folder, self.rollout, RECORD, RECORD, record)
        if not self._task.check_mode:
            now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            progress_file.write(record["progress_file"], self.rollout, record["cliques"], now)


def _line(text: str) -> str:
    return " ".join(text.split())[:500]
