# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of imex_domain: the role's variables, templates and TLS files of a tray; phases.py decides."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from ansible import constants
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.inventory.host import Host
from ansible.utils.display import Display
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import domain, reporting
from ansible_collections.rackscale.nvlink.plugins.modules.imex_domain import ARGUMENT_SPEC
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import (
    clique,
    difference,
    phases,
    rows,
    run_store,
    ssh_inspection,
    texts,
    variables,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex.desired import desired_state
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import reading
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.hosts import Hosts, require_placed

# Strategies under which a task begins when all hosts have ended the one before, which the phases rely on.
BARRIERS = ("linear", "debug", "ansible.builtin.linear", "ansible.builtin.debug")

display = Display()


class ActionModule(GuardedAction):
    # In turn that of each tray that is read by ssh.
    _templar: Any

    def act(self, task_vars: Variables) -> Result:
        _validation, options = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        play, host = self._task.play, task_vars["inventory_hostname"]
        strategy = getattr(play, "strategy", "linear") or "linear"
        if strategy not in BARRIERS:
            raise AnsibleActionFail(
                f"imex_domain: the play's strategy is {strategy}, under which trays do not wait for each other between"
                " the phases; use linear."
            )
        hosts = task_vars.get("ansible_play_hosts_all") or [host]
        folder, play_id = str(constants.DEFAULT_LOCAL_TMP), run_store.play_of(self._task)
        if options["phase"] == "report":
            # A play of its own may follow that of the phases.
            found = [task_vars.get(name) or {} for name in ("imex_read", "imex_unchanged")]
            play_id = next((row["play"] for row in found if "play" in row), play_id)
        run = phases.Run(folder, play_id, set(clique.batch(hosts, play.serial or [], host)), self._task.check_mode)
        if options["phase"] == "compare":
            return {"unchanged_hosts": run.unchanged_hosts(hosts), "play": play_id}
        if options["phase"] == "pending":
            return {"pending": run.pending(hosts)}
        if options["phase"] == "report":
            return {"text": run.report(hosts, task_vars.get("ansible_play_hosts") or hosts)}
        if options["phase"] == "read":
            left = set(task_vars.get("ansible_play_hosts") or hosts)
            read = self._read(run, [name for name in hosts if name in run.hosts & left], task_vars)
            return {**read, "unchanged_hosts": run.unchanged_hosts(hosts), "play": play_id}
        return self._change(run, task_vars, options["phase"]).run(options["phase"])

    def _change(self, run: phases.Run, task_vars: Variables, phase: str) -> phases.Phases:
        """The phases of the tray with these variables, which the templar has too."""
        host = task_vars["inventory_hostname"]
        tray = str(self._templar.template(task_vars.get("imex_tray")) or host)
        if phase in ("inspect", "read"):
            given = self._templar.template(task_vars.get(reading.OPTION))
            if given and given != trust.controller_value(task_vars, reading.OPTION):
                require_placed([reading.OPTION])
            # Of an earlier run of the role in this play; first, so that none counts where this one fails.
            run.forget(tray)
        values = variables.values(task_vars, self._templar.template)
        self.variables = task_vars
        return phases.Phases(run, host, tray, values, task_vars, self._on_tray)

    def _read(self, run: phases.Run, names: Iterable[str], task_vars: Variables) -> Result:
        """Inspect hosts by ssh: RV(read) and warnings. One that cannot be read so has no row, and Ansible does it."""
        asked: dict[str, ssh_inspection.Asked] = {}

        def ask(_phase: str, change: phases.Phases) -> Result:
            asked[change.host] = ssh_inspection.Asked(change, *self._question(change))
            return {"failed": True}

        templar = self._templar
        for name in names:
            # The inspection by Ansible fails by the same error.
            with contextlib.suppress(AnsibleError, NvlinkError):
                own = self._variables_of(name, task_vars["hostvars"])
                self._templar = templar.copy_with_new_env(available_variables=own)
                change = self._change(run, own, "read")
                change.on_tray = ask
                change.run("inspect")
        self._templar = templar
        known, becomes = Hosts(task_vars["hostvars"], self.evaluate), bool(self._task.become)
        return ssh_inspection.inspect(run, asked, known, becomes, display)

    def _variables_of(self, name: str, hostvars: Any) -> Variables:
        """The variables that this task would have on a host, as Ansible makes them of the role, the play and the host.

        Ansible makes them of a Host alone, and its own are not public: this one has all variables of the host, over
        which those of play and task, then registered ones and those of the command line, go as over its own.
        """
        known = hostvars.raw_get(name)
        if foreign := trust.foreign_variables(known.get("ansible_facts")):
            raise NvlinkError(trust.refusal(name, foreign)["msg"])
        host = Host(name)
        host.vars = dict(known)
        play, manager = self._task.play, self._task.get_variable_manager()
        found: Variables = manager.get_vars(play=play, host=host, task=self._task)
        return {**found, "group_names": known["group_names"]}

    def _question(self, change: phases.Phases) -> tuple[domain.DesiredState, reporting.Options]:
        """The desired state of a tray, and what the tray is asked for it."""
        values = change.values
        tls = texts.tls(change, self._loader) if values["imex_tls_used"] else {}
        rendered = texts.rendered(values, self._task.get_search_path(), self._loader, self._templar.template)
        desired = desired_state(values, rendered, change.clique, change.tray, tls)
        asked = reporting.Options(
            desired.owner,
            values["imex_ctl_timeout"],
            desired.proc_devices,
            difference.paths(desired),
            desired.own,
            list_port=desired.list_port,
            ports=desired.ports_to_open if desired.manage_firewall else None,
            job=desired.job,
            members=desired.nodes,
        )
        return desired, asked._replace(**change.asked)

    def _on_tray(self, phase: str, change: phases.Phases) -> Result:
        """Run a phase on the tray."""
        desired, asked = self._question(change)
        arguments = {"phase": phase, "plan": change.plan, "asked": asked._asdict()}
        is_read = phase in ("inspect", "prepare")
        if not is_read:
            sent = asdict(desired)
            arguments.update(tls=sent.pop("tls"), desired=sent)
        seconds = phases.seconds(phase, change.values)
        result = self.run_module("rackscale.nvlink.imex_domain", arguments, self.variables, rows.SCHEMA, seconds)
        return ssh_inspection.decided(desired, result, phase, change) if is_read else result
