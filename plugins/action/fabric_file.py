# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Propose, accept and edit the fabric file on the controller; the module of the same name documents it."""

from __future__ import annotations

import contextlib
import datetime
import functools
from typing import Any

from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display
from ansible.utils.vars import load_extra_vars
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.modules.fabric_file import DOCUMENTATION
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import absolute
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import (
    audit,
    fabric_file,
    file_states,
    policy,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.files import Files
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas, trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import ControllerAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions import open_changes
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run.targets import SWITCHES
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import (
    EVIDENCE,
    connections,
    hosts,
    nvue_evidence,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify import switch_reading
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import missing_library

display = Display()

OPTIONS = connections.with_facts(schemas.arguments(DOCUMENTATION))
REQUIRED_IF: list[tuple[Any, ...]] = [
    ("state", "accepted", ["proposal"]),
    ("state", "edited", ["rename", "remove", "groups"], True),
]
# They write no file of the site, so they need no lock.
_READ_ONLY = ("checked", "pending", "planned")


class ActionModule(ControllerAction):
    """Read registered results, or the trays by ssh, and write fabric file, state file and proposal."""

    def act(self, task_vars: Variables) -> Result:
        try:
            done = self._done(task_vars)
        except NvlinkError as error:
            # Under the name of the variable by which the playbook discover was given the option.
            variable = f"fabric_{str(error).partition(':')[0]}"
            is_variable = variable in hosts.VARIABLES and trust.controller_value(task_vars, variable) is not None
            raise AnsibleActionFail(f"{'fabric_' if is_variable else ''}{error}") from None
        except ImportError as error:
            raise AnsibleActionFail(f"sources: {missing_library(error.name)}") from error
        differences = done.pop("diff", [])
        if self._task.diff and differences:
            done["diff"] = {"prepared": "".join(f"{line}\n" for line in differences)}
            # Ansible shows the difference of a task that changes something, but not where the same proposal lies there.
            if not done.get("changed"):
                done["lines"] = [*differences, *done["lines"]]
        return done

    def _done(self, task_vars: Variables) -> Result:
        """The result, with the difference as lines."""
        _validation, options = self.validate_argument_spec(argument_spec=OPTIONS, required_if=REQUIRED_IF)
        path = absolute(fabric_file.required(options["fabric_file"]))
        state, now = options["state"], datetime.datetime.now(datetime.UTC)
        who = audit.who(*(trust.controller_value(task_vars, name) for name in ("awx_user_name", "awx_job_id")))
        groups = set(task_vars.get("groups") or ())
        time = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        value = functools.partial(trust.controller_value, task_vars)
        is_found = fabric_file.is_found(path, value, load_extra_vars(self._loader))
        files = Files(path, options["state_dir"], time, self._task.check_mode, who, groups, is_found)
        if state == "proposed":
            options["moves"] = options["moves"] or open_changes.moves(path, files.state_dir)
        rules, rows = policy.of_options(options, groups), hosts.selected(options["sources"])
        if options["min_answer"] is not None:
            options["min_answer"] = policy.percent("min_answer", options["min_answer"])
        use_gates = options["accept"] == "gates"
        with contextlib.nullcontext() if state in _READ_ONLY else files.locked(state == "proposed" and not use_gates):
            files.read()
            if state == "checked":
                done = file_states.checked(files)
            elif state == "pending":
                done = file_states.pending(files, rules, options["proposal_file"])
            elif state == "accepted":
                done = file_states.accepted(files, options["proposal"], options["proposal_file"])
            elif state == "edited":
                renamed = {str(old): str(new) for old, new in (options["rename"] or {}).items()}
                grouped = policy.names_of("groups", options["groups"] or {}, "r[01-04]")
                done = file_states.edited(files, renamed, options["remove"] or [], grouped)
            else:
                known = hosts.Hosts(task_vars.get("hostvars"), self.evaluate)
                if options["tray_reading"] == "ssh" and "sources" not in self._task.args:
                    question, becomes = connections.of_facts(options["facts"]), self._play_context.become
                    known.results = connections.read(options["trays"], question, known, becomes, display)
                observe = functools.partial(hosts.observe, rows, options, known, time, display)
                if EVIDENCE in options["sources"]:
                    switches = (task_vars.get("groups") or {}).get(SWITCHES, ())
                    read = functools.partial(switch_reading.read, switches, known)
                    observe = functools.partial(nvue_evidence.observe, observe, read)
                if state == "planned":
                    done = file_states.planned(files, rules, observe, constants.DEFAULT_LOCAL_TMP)
                else:
                    done = file_states.proposed(files, rules, observe, use_gates, options["on_objection"] == "fail")
        return {"fabric_file": path, **done}
