# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Record the progress of a rollout on the controller; the module of the same name documents it."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from ansible import constants
from ansible.inventory.manager import InventoryManager
from ansible.utils.vars import load_extra_vars
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import rfc3339
from ansible_collections.rackscale.nvlink.plugins.modules.rollout import DOCUMENTATION
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import (
    acknowledging,
    audit,
    fabric_file,
    next_command,
    storage,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas, trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import ControllerAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import clique as imex_clique
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import run_store
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout import new_run, progress_file, states, summary
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout.record import Record
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout.waves import RolloutError

OPTIONS = schemas.arguments(DOCUMENTATION)
PHASE, RECORD = "rollout", "record"
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
        _validation, options = self.validate_argument_spec(argument_spec=OPTIONS)
        state, now = options["state"], rfc3339()
        if state == "checked":
            return {}
        if state == "acknowledged":
            return self._acknowledged(options, task_vars, now)
        if state == "planned":
            groups = task_vars.get("groups") or {}
            run, result = new_run.plan(options, groups, self._hosts(task_vars), now, self._task.check_mode)
            if not self._task.check_mode:
                storage.mark(progress_file.marked(*result["settings"]["files"]), now, os.getppid())
            self._write(run, result["rollout"], now)
            return result
        plan = trust.controller_value(task_vars, "rollout_plan")
        planned = isinstance(plan, Mapping) and "settings" in plan
        # No phase ran where a playbook of the site imports ours and the run selects tags of its own alone.
        if state == "summarized" and not planned:
            return self._of_site(options, {})
        if not planned:
            raise RolloutError(
                "rollout_plan: is missing on localhost; before the play of the waves run the role"
                " rackscale.nvlink.rollout with tasks_from: plan in a play on localhost"
            )
        tray, rollout, settings = str(task_vars["inventory_hostname"]), plan["rollout"], plan["settings"]
        rows = partial(run_store.read_rows, _folder(), rollout, PHASE)
        if state in states.OF_TRAY:
            row, result = states.OF_TRAY[state](tray, options, rows([tray]).get(tray, {}))
            run_store.write_row(_folder(), rollout, PHASE, tray, row)
            return result
        hosts = list(task_vars.get("ansible_play_hosts_all") or [tray])
        trays = imex_clique.batch(hosts, self._task.play.serial or [], tray)
        run = Record(**run_store.read_rows(_folder(), rollout, RECORD, [RECORD])[RECORD])
        task = states.Task(rollout, settings, options, trays, rows, self._task.check_mode)
        result = states.OF_WAVE[state](run, task)
        if state == "started" and not result["stop"]:
            for name in trays:
                run_store.delete_rows(_folder(), rollout, [PHASE], name)
        self._write(run, rollout, now)
        path, state_dir = settings["files"]
        if state == "finished" and settings.get("any_reason"):
            resumed = [name for name in result["resumed"] if name in settings["any_reason"]]
            acknowledging.change(path, state_dir, resumed, None, now, self._task.check_mode)
        if state in ("reported", "summarized"):
            storage.unmark(progress_file.marked(path, state_dir), os.getppid())
        return self._of_site(options, result) if state == "summarized" else result

    def _acknowledged(self, options: Mapping[str, Any], variables: Variables, now: str) -> Result:
        """Set the entries of trays in repair in the state file."""
        path, state_dir = options["fabric_file"], options["state_dir"]
        until = acknowledging.until(options["until_date"], datetime.datetime.now(datetime.UTC))
        by = audit.who(trust.controller_value(variables, "awx_user_name"), None)
        who = by.get("awx_user") or by.get("sudo_user") or by["user"]
        entry = {"reason": options["reason"], "who": who, "until": until}
        trays = fabric_file.load(path).trays_of(options["trays"])
        changed = acknowledging.change(path, state_dir, trays, entry, now, self._task.check_mode)
        return {"changed": bool(changed), "text": [f"{tray}: acknowledged until {until}" for tray in changed]}

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

    def _of_site(self, options: Mapping[str, Any], rollout: Result) -> Result:
        plan, verified, rendered = (options[name] for name in ("plan", "verify", "report"))
        text, failure = summary.of_site(plan, verified, rendered, rollout, self._task.check_mode)
        if not failure:
            text[-1] += next_command.sentence("verify", extra=load_extra_vars(self._loader))
        return {"text": text, "failure": failure}

    def _write(self, run: Record, rollout: str, now: str) -> None:
        """Store the record of this run, and the progress file, which has the unfinished cliques for later runs."""
        run_store.write_row(_folder(), rollout, RECORD, RECORD, vars(run))
        if not self._task.check_mode:
            progress_file.write(run.progress_file, rollout, run.cliques, now)


def _folder() -> str:
    return str(constants.DEFAULT_LOCAL_TMP)
