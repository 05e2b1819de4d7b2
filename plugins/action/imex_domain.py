# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of imex_domain: the role's variables, templates and TLS files of a tray; phases.py decides."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from ansible import constants
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.template import trust_as_template
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import domain, formats, reporting
from ansible_collections.rackscale.nvlink.plugins.modules.imex_domain import ARGUMENT_SPEC
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import absolute
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

# Strategies under which a task begins when all hosts have ended the one before, which the phases rely on.
BARRIERS = ("linear", "debug", "ansible.builtin.linear", "ansible.builtin.debug")


class ActionModule(GuardedAction):
    UNCHANGED = MappingProxyType({"changed": False, "changes": [], "findings": []})

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
            play_id = (task_vars.get("imex_unchanged") or {}).get("play", play_id)
        run = phases.Run(folder, play_id, set(clique.batch(hosts, play.serial or [], host)), self._task.check_mode)
        if options["phase"] == "compare":
            return {"unchanged_hosts": run.unchanged_hosts(hosts), "play": play_id}
        if options["phase"] == "pending":
            return {"pending": run.pending(hosts)}
        if options["phase"] == "report":
            return {"text": run.report(hosts, task_vars.get("ansible_play_hosts") or hosts)}
        tray = str(self._templar.template(task_vars.get("imex_tray")) or host)
        if options["phase"] == "inspect":
            # Of an earlier run of the role in this play; first, so that none counts where this one fails.
            run.forget(tray)
        values = variables.values(task_vars, self._templar.template)
        self.variables = task_vars
        return phases.Phases(run, host, tray, values, task_vars, self._on_tray).run(options["phase"])

    def _on_tray(self, phase: str, change: phases.Phases) -> Result:
        """Run a phase on the tray."""
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
        arguments = {"phase": phase, "plan": change.plan, "asked": asked._replace(**change.asked)._asdict()}
        is_read = phase in ("inspect", "prepare")
        if not is_read:
            sent = asdict(desired)
            arguments.update(tls=sent.pop("tls"), desired=sent)
        seconds = phases.seconds(phase, values)
        result = self.run_module("rackscale.nvlink.imex_domain", arguments, self.variables, rows.SCHEMA, seconds)
        if is_read and (report := (result.get("row") or {}).get("report")):
            try:
                row = difference.difference(desired, report, change.plan["allow_jobs"])
            except formats.ImexError as error:
                return {**result, "failed": True, "msg": str(error)}
            except (AttributeError, IndexError, KeyError, TypeError, ValueError):
                # Not as a tray answers: Phases fails one without a row.
                return {**result, "row": {}}
            result.update(row=row, findings=[*result.get("findings", ()), *row.pop("findings")])
        return result

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
