# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Record the progress of a rollout on the controller; the module of the same name documents it."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Mapping

from ansible import constants
from ansible.inventory.manager import InventoryManager
from ansible.utils.vars import load_extra_vars
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.modules.rollout import DOCUMENTATION
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import absolute
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import (
    acknowledging,
    audit,
    fabric_file,
    next_command,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas, trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import ControllerAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import clique as imex_clique
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import run_store
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout import progress_file, record, summary, waves
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout.record import Record, Row, Rows
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout.waves import RolloutError, Wave
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import nearest, shown

OPTIONS = schemas.arguments(DOCUMENTATION)
PHASE, RECORD = "rollout", "record"
# The play that changes the trays has them from this group, which the role fills.
GROUP = "nvlink_rollout"
# A tray whose facts set variables of the collection fails in these states. It must be able to fail, and the states of
# the wave take nothing from the tray that they happen to run on.
GUARDED = ("observed", "checked", "passed")


class ActionModule(ControllerAction):
    """Connects to no host, so that a result can be recorded for an unreachable tray.

    What a wave does is read from localhost, which registered it in `rollout_plan`, and from the record of the run: no
    variable of a tray decides it.
    """

    def is_guarded(self) -> bool:
        return self._task.args.get("state") in GUARDED

    def act(self, task_vars: Variables) -> Result:
        _validation, self.options = self.validate_argument_spec(argument_spec=OPTIONS)
        state = self.options["state"]
        if state == "checked":
            return {}
        self.folder = str(constants.DEFAULT_LOCAL_TMP)
        if state == "acknowledged":
            return self._acknowledged(task_vars)
        if state == "planned":
            return self._planned(task_vars)
        plan = trust.controller_value(task_vars, "rollout_plan")
        planned = isinstance(plan, Mapping) and "settings" in plan
        # No phase ran where a playbook of the site imports ours and the run selects tags of its own alone.
        if state == "summarized" and not planned:
            return self._of_site({})
        if not planned:
            raise RolloutError(
                "rollout_plan: localhost has none; before the play of the waves run the role rackscale.nvlink.rollout"
                " with tasks_from: plan in a play on localhost"
            )
        self.rollout, self.settings = plan["rollout"], plan["settings"]
        self.tray = str(task_vars["inventory_hostname"])
        hosts = list(task_vars.get("ansible_play_hosts_all") or [self.tray])
        self.wave = imex_clique.batch(hosts, self._task.play.serial or [], self.tray)
        return getattr(self, f"_{state}")()

    # --- On localhost.

    def _acknowledged(self, variables: Variables) -> Result:
        """Set the entries of trays in repair in the state file."""
        options, path = self.options, self.options["fabric_file"]
        until = acknowledging.until(options["until_date"], datetime.datetime.now(datetime.UTC))
        by = audit.who(trust.controller_value(variables, "awx_user_name"), None)
        who = by.get("awx_user") or by.get("sudo_user") or by["user"]
        entry = {"reason": options["reason"], "who": who, "until": until}
        trays = fabric_file.load(path).trays_of(options["trays"])
        changed = acknowledging.change(path, options["state_dir"], trays, entry, _now(), self._task.check_mode)
        return {"changed": bool(changed), "text": [f"{tray}: acknowledged until {until}" for tray in changed]}

    def _planned(self, variables: Variables) -> Result:
        options, groups = self.options, variables.get("groups") or {}
        self.rollout, self.settings = progress_file.check_name(options["rollout"] or ""), options["settings"]
        steps = self.settings.get("steps")
        if not steps:
            hint = nearest(self.rollout, options["known"])
            raise RolloutError(
                f"rollout_name: {shown(self.rollout)} has no steps of its own{hint}, or set rollout_steps"
            )
        if "hook" in steps:
            self.settings["hook"] = _hook(str(self.settings.get("hook") or ""))
        path = fabric_file.required(options["fabric_file"])
        # In check mode there may be no fabric file yet.
        fabric = Fabric() if self._task.check_mode and not os.path.exists(path) else fabric_file.load(path)
        if {"drain", "resume"} & set(steps):
            controller = str(self.settings.get("slurm_controller") or "")
            waves.check_controller(controller, (*fabric.trays, *groups.get("nvlink", ())))
        planned = self._waves(fabric, variables)
        if not planned and not options["allow_empty"]:
            raise RolloutError(
                f"rollout {self.rollout}: no tray that the fabric file places is in this run, so there is nothing to"
                " change; check --limit, the inventory and the fabric file"
            )
        sizes = [sum(map(len, wave.values())) for wave in planned]
        trays = [tray for wave in planned for members in wave.values() for tray in members]
        earlier = groups.get(GROUP)
        # Ansible removes no host from a group, and the order of the group is that of the waves.
        if earlier and list(earlier) != trays:
            raise RolloutError(
                f"rollout {self.rollout}: another one of this run has other trays; run them by two commands"
            )
        given = options["progress_file"]
        file = absolute(given) if given else progress_file.default_path(path, self.rollout)
        self.settings["acknowledged"] = sorted(acknowledging.current(path, options["state_dir"], _now()))
        self.settings["files"] = [path, options["state_dir"]]
        made = record.new(fabric, planned, file, options["stop_after"])
        self._write(made)
        return {
            "rollout": self.rollout,
            "settings": self.settings,
            "trays": trays,
            "sizes": sizes,
            "cliques": made.waves,
        }

    def _waves(self, fabric: Fabric, variables: Variables) -> list[Wave]:
        options, only = self.options, set(fabric.cliques)
        if options["trays"]:
            only = waves.cliques_of(fabric, options["trays"], check=not self._task.check_mode)
        if options["resume"]:
            unfinished = progress_file.read(options["resume"])
            waves.check_names(unfinished, fabric.cliques, options["resume"], "clique")
            only &= unfinished.keys()
        state = fabric_file.load_state(options["fabric_file"], options["state_dir"])
        return waves.plan(fabric, self._hosts(variables), only, options["domains"], options["canary"], state)

    def _hosts(self, variables: Variables) -> list[str]:
        """The hosts that --limit selects."""
        groups, limit = variables.get("groups") or {}, variables.get("ansible_limit")
        if not limit:
            return list(groups.get("all", []))
        # The inventory itself is not a variable; this is the way of the lookup inventory_hostnames.
        manager = InventoryManager(self._loader, parse=False)
        for group, hosts in groups.items():
            manager.add_group(group)
            for host in hosts:
                manager.add_host(host, group=group)
        manager.subset(limit)
        return [host.name for host in manager.get_hosts("all")]

    def _reported(self) -> Result:
        """At the end of the run: fails if a clique is unfinished."""
        run = self._read()
        run.finish(self._rows(run.wave))
        self._write(run)
        # A tray in repair fails no run before its date.
        known = set(self.settings["acknowledged"])
        left = [name for name, row in run.cliques.items() if not row["trays"] or row["trays"].keys() - known]
        text = summary.of_rollout(self.rollout, run.finished, left, self._task.check_mode)
        if {"drain", "resume"} & set(self.settings["steps"]) and not self.settings.get("slurm_controller"):
            text.append("The inventory has no Slurm controller, so Slurm neither drained nor tested a tray.")
        message = f"The rollout {self.rollout} is complete."
        if left:
            message = progress_file.summary(run.cliques, run.progress_file, self.rollout)
        return {"failed": bool(left) and self.options["fail"], "unfinished": left, "text": text, "msg": message}

    def _summarized(self) -> Result:
        return self._of_site(self._reported())

    def _of_site(self, rollout: Result) -> Result:
        plan, verified, rendered = (self.options[name] for name in ("plan", "verify", "report"))
        text, failure = summary.of_site(plan, verified, rendered, rollout, self._task.check_mode)
        if not failure:
            text[-1] += next_command.sentence("verify", extra=load_extra_vars(self._loader))
        return {"text": text, "failure": failure}

    # --- Of each tray.

    def _observed(self) -> Result:
        if self.options["unreachable"]:
            self._record({"state": progress_file.SKIPPED})
        elif self.options["refused"]:
            # Without a failure of this task: the report names it once for all trays of the clique.
            self._record({"state": record.REFUSED, "reason": _line(self.options["refused"])})
        else:
            self._record({"state": record.OBSERVED, "due": self.options["due"]})
        return {}

    def _passed(self) -> Result:
        if self._rows([self.tray]).get(self.tray, {}).get("state") == record.REFUSED:
            return {"passed": False}
        self._record({"state": record.PASSED})
        return {"passed": True}

    def _failed(self) -> Result:
        reason = _line(self.options["reason"]) or "a task failed"
        self._record({"state": progress_file.FAILED, "due": True, "reason": reason})
        return {"passed": False, "msg": f"{self.tray}: {reason}"}

    # --- Of the wave. Any of its trays may run them.

    def _inspected(self) -> Result:
        """Before the first wave, of all trays of the rollout: finishes the cliques of which each tray is unchanged."""
        run = self._read()
        due = run.drop_unchanged(self.options["unchanged"])
        self._write(run)
        left = [[name for name in cliques if name in due] for cliques in run.waves]
        trays = [tray for members in due.values() for tray in members]
        return {"due": trays, "waves": [summarize(cliques) for cliques in left if cliques]}

    def _started(self) -> Result:
        run = self._read()
        # Where no tray was left to finish the wave before.
        warnings = self._finish(run)
        why = run.why_stop()
        if why:
            self._write(run)
            message = f"No further wave starts: {why}."
            return {"stop": True, "msg": message, "warnings": [*warnings, message]}
        for tray in self.wave:
            run_store.delete_rows(self.folder, self.rollout, [PHASE], tray)
        run.start(self.wave)
        self._write(run)
        # The callback progress prints it. Not by a task debug with run_once: ansible-core 2.21 then gives all hosts of
        # the play one dictionary of facts.
        text = f"Wave of {summarize(run.by_clique(self.wave))} with {count(len(self.wave), 'tray')}."
        return {"stop": False, "warnings": warnings, "announcement": text}

    def _selected(self) -> Result:
        run = self._read()
        run.select(self._rows(self.wave))
        self._write(run)
        return {"trays": run.selected, "nodes": run.nodes(run.selected)}

    def _evaluated(self) -> Result:
        run, rows = self._read(), self._rows(self.wave)
        # Only selected trays: an earlier run may have left others drained with the same reason.
        passed = [tray for tray in run.selected if rows.get(tray, {}).get("state") == record.PASSED]
        return {"nodes": run.nodes(passed)}

    def _finished(self) -> Result:
        run, failed = self._read(), self.options["failed_tests"]
        for tray, node in zip(run.selected, run.nodes(run.selected), strict=True):
            if node in failed:
                self._record({"state": progress_file.FAILED, "reason": str(failed[node])}, tray)
        rows = self._rows(run.selected)
        warnings = self._finish(run)
        self._write(run)
        if self.settings.get("any_reason"):
            resumed = [tray for tray in run.selected if rows[tray]["state"] == record.PASSED]
            path, state_dir = self.settings["files"]
            acknowledging.change(path, state_dir, resumed, None, _now(), self._task.check_mode)
        return {
            "warnings": warnings,
            "msg": warnings[0] if warnings else f"Finished {summarize(run.by_clique(self.wave))}.",
        }

    def _finish(self, run: Record) -> list[str]:
        """Add the result of the wave that has begun, if any; a warning if a clique of it is unfinished."""
        unfinished = run.finish(self._rows(run.wave))
        return [progress_file.summary(unfinished, run.progress_file, self.rollout)] if unfinished else []

    # --- The results of trays and the record of this run. The progress file has the unfinished cliques for later runs.

    def _record(self, row: Row, tray: str = "") -> None:
        run_store.write_row(self.folder, self.rollout, PHASE, tray or self.tray, row)

    def _rows(self, trays: Iterable[str]) -> Rows:
        return run_store.read_rows(self.folder, self.rollout, PHASE, trays)

    def _read(self) -> Record:
        return Record(**run_store.read_rows(self.folder, self.rollout, RECORD, [RECORD])[RECORD])

    def _write(self, run: Record) -> None:
        run_store.write_row(self.folder, self.rollout, RECORD, RECORD, vars(run))
        if not self._task.check_mode:
            progress_file.write(run.progress_file, self.rollout, run.cliques, _now())


def _hook(given: str) -> str:
    """The absolute path of the hook; RolloutError where it is no file."""
    path = absolute(given)
    if not os.path.isfile(path):
        raise RolloutError(f"rollout_hook: {shown(given)} is no file; set it to a file with tasks for one tray")
    return path


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _line(text: str) -> str:
    return " ".join(text.split())[:500]
