# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of imex_domain: the role's variables, templates and TLS files of a tray; phases.py decides."""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from ansible import constants
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.inventory.host import Host
from ansible.template import trust_as_template
from ansible.utils.display import Display
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import fold
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import domain, formats, reporting
from ansible_collections.rackscale.nvlink.plugins.modules.imex_domain import ARGUMENT_SPEC
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import absolute
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import (
    clique,
    difference,
    phases,
    rows,
    run_store,
    variables,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex.desired import desired_state
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import connections, reading
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.hosts import Hosts

# Strategies under which a task begins when all hosts have ended the one before, which the phases rely on.
BARRIERS = ("linear", "debug", "ansible.builtin.linear", "ansible.builtin.debug")

display = Display()


class ActionModule(GuardedAction):
    UNCHANGED = MappingProxyType({"changed": False, "changes": [], "findings": []})
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
            # Of an earlier run of the role in this play; first, so that none counts where this one fails.
            run.forget(tray)
        values = variables.values(task_vars, self._templar.template)
        self.variables = task_vars
        return phases.Phases(run, host, tray, values, task_vars, self._on_tray)

    def _read(self, run: phases.Run, names: Iterable[str], task_vars: Variables) -> Result:
        """Inspect hosts by ssh: RV(read) and warnings. One that cannot be read so has no row, and Ansible does it."""
        asked: dict[str, tuple[phases.Phases, domain.DesiredState, reporting.Options]] = {}

        def ask(_phase: str, change: phases.Phases) -> Result:
            asked[change.host] = (change, *self._question(change))
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
        limit = max((phases.seconds("inspect", change.values) for change, *_rest in asked.values()), default=0.0)
        answers = connections.read(
            asked,
            reading.Question("imex.reporting", {}, _accepted, math.ceil(limit), limit + connections.SENDING),
            Hosts(task_vars["hostvars"], self.evaluate),
            bool(self._task.become),
            display,
            lambda name: asked[name][2]._asdict(),
        )
        found: dict[str, bool] = {}
        warnings: dict[str, None] = {}
        unread: dict[str, list[str]] = {}
        for name, (change, desired, _options) in asked.items():
            answer = answers[name]
            change.on_tray = functools.partial(_decided, desired, answer)
            with contextlib.suppress(NvlinkError):
                warnings |= dict.fromkeys(change.run("inspect").get("warnings", ()))
            if "facts" in run.rows("inspect", [change.tray]).get(change.tray, {}):
                found[name] = True
            else:
                run.forget(change.tray)
                unread.setdefault(str(answer.get("msg") or "it gave no valid answer"), []).append(name)
        rest = [f"{reading.OPTION}: {fold(hosts)}: {why}; Ansible reads it." for why, hosts in unread.items()]
        return {"read": found, "warnings": [*warnings, *rest]}

    def _variables_of(self, name: str, hostvars: Any) -> Variables:
        """The variables that this task would have on a host, as Ansible makes them of the role, the play and the host.

        Ansible makes them of a Host alone, and its own are not public: this one has all variables of the host, over
        which those of play and task, then registered ones and those of the command line, go as over its own.
        """
        known = hostvars.raw_get(name)
        host = Host(name)
        host.vars = dict(known)
        play, manager = self._task.play, self._task.get_variable_manager()
        found: Variables = manager.get_vars(play=play, host=host, task=self._task)
        return {**found, "group_names": known["group_names"]}

    def _question(self, change: phases.Phases) -> tuple[domain.DesiredState, reporting.Options]:
        """The desired state of a tray, and what the tray is asked for it."""
        values = change.values
        tls = self._tls(change) if values["imex_tls_used"] else {}
        desired = desired_state(values, self._rendered(values), change.clique, change.tray, tls)
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
        return _decided(desired, result, phase, change) if is_read else result

    def _rendered(self, values: Mapping[str, Any]) -> dict[str, str]:
        """Render the role's templates with the variables of the tray: file on the tray -> text.

        Not by the lookup of Ansible, which copies all variables, those of all groups too, for each tray.
        """
        texts = dict.fromkeys(domain.TEMPLATES.values(), "")
        for name, path in domain.TEMPLATES.items():
            template = values[name]
            if not template:
                continue
            try:
                found = self._loader.path_dwim_relative_stack(self._task.get_search_path(), "templates", template)
                text = self._loader.get_text_file_contents(found)
                # A template that renders nothing is None for Ansible.
                texts[path] = str(self._templar.template(trust_as_template(text)) or "")
            except AnsibleError as error:
                raise formats.ImexError(f"{name}: {template} cannot be rendered ({error}); correct it.") from None
        return texts

    def _tls(self, change: phases.Phases) -> dict[str, str]:
        """Read key, certificate and authority; a vaulted file is decrypted here, in memory."""
        paths = change.certificate["files"] if change.certificate else change.values["imex_tls_files"] or {}
        contents = {}
        for name in domain.TLS_FILES:
            path = paths.get(name)
            if not path:
                raise formats.ImexError(f"imex_tls_files: {name} is missing; set it to a file.")
            if change.certificate and change.changes_nothing and not os.path.exists(path):
                # No tray has this text, so its file counts as changed.
                contents[name] = "to be made\n"
                continue
            try:
                contents[name] = str(self._loader.get_text_file_contents(absolute(path)))
                if not contents[name].strip():
                    raise ValueError("it is empty")
            except (AnsibleError, OSError, ValueError) as error:
                raise formats.ImexError(
                    f"imex_tls_files, {name}: {path} cannot be read ({error}); name a file of the controller."
                ) from None
        return contents


def _accepted(tray: str, answer: Result, _asked_at: float) -> Result:
    return trust.answered(tray, answer, rows.SCHEMA)


def _decided(desired: domain.DesiredState, answer: Result, _phase: str, change: phases.Phases) -> Result:
    """The answer of a tray, with the row that is decided from its report."""
    result = dict(answer)
    if not (report := (result.get("row") or {}).get("report")):
        return result
    try:
        row = difference.difference(desired, report, change.plan["allow_jobs"])
    except formats.ImexError as error:
        return {**result, "failed": True, "msg": str(error)}
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        # Not as a tray answers: Phases fails one without a row.
        return {**result, "row": {}}
    return {**result, "row": row, "findings": [*result.get("findings", ()), *row.pop("findings")]}
