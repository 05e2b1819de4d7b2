# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Propose, accept and edit the fabric file on the controller; the module of the same name documents it."""

from __future__ import annotations

import contextlib
import datetime
import functools
import math
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display
from ansible.utils.vars import load_extra_vars
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.modules.fabric_file import DOCUMENTATION
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import (
    audit,
    fabric_file,
    file_states,
    merging,
    policy,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.files import Files
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas, trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import ControllerAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import ansible_facts, hosts
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import absolute, shown

display = Display()

OPTIONS = schemas.arguments(DOCUMENTATION)
REQUIRED_IF: list[tuple[Any, ...]] = [
    ("state", "proposed", ["observations", "trays"]),
    ("state", "accepted", ["proposal"]),
    ("state", "edited", ["rename", "remove", "groups"], True),
]
# They need no lock.
_READ_ONLY = ("checked", "pending")


class ActionModule(ControllerAction):
    """Read registered results and write fabric file, state file and proposal. Connects to no host."""

    def act(self, task_vars: Variables) -> Result:
        try:
            done = self._done(task_vars)
        except NvlinkError as error:
            # Under the name of the variable by which the playbook discover was given the option.
            variable = f"fabric_{str(error).partition(':')[0]}"
            is_variable = variable in hosts.VARIABLES and trust.controller_value(task_vars, variable) is not None
            raise AnsibleActionFail(f"{'fabric_' if is_variable else ''}{error}") from None
        except ImportError as error:
            raise AnsibleActionFail(
                f"sources: the Python library {error.name} is missing on the controller; "
                "install the collection's requirements.txt"
            ) from error
        differences = done.pop("diff")
        if self._task.diff and differences:
            done["diff"] = {"prepared": "".join(f"{line}\n" for line in differences)}
            # Ansible shows the difference of a task that changes something, but not where the same proposal lies there.
            if not done["changed"] and "lines" in done:
                done["lines"] = [*differences, *done["lines"]]
        return done

    def _done(self, task_vars: Variables) -> Result:
        """The result, with the difference as lines."""
        _check(self._task.args)
        given = self._task.args.get("sources", [ansible_facts.SOURCE])
        uses_hosts = ansible_facts.SOURCE in map(str, given if isinstance(given, list) else [given])
        required_if = REQUIRED_IF if uses_hosts else [row for row in REQUIRED_IF if row[1] != "proposed"]
        _validation, options = self.validate_argument_spec(argument_spec=OPTIONS, required_if=required_if)
        state, path, now = options["state"], absolute(options["fabric_file"]), datetime.datetime.now(datetime.UTC)
        who = audit.who(*(trust.controller_value(task_vars, name) for name in ("awx_user_name", "awx_job_id")))
        groups = set(task_vars.get("groups") or ())
        time = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        value = functools.partial(trust.controller_value, task_vars)
        is_found = fabric_file.is_found(path, value, load_extra_vars(self._loader))
        files = Files(path, options["state_dir"], time, self._task.check_mode, who, groups, is_found)
        rules, rows = policy.of_options(options, groups), hosts.selected(options["sources"])
        if options["min_answer"] is not None:
            options["min_answer"] = merging.percent("min_answer", options["min_answer"])
        use_gates = options["accept"] == "gates"
        read_only = state in _READ_ONLY
        with contextlib.nullcontext() if read_only else files.locked(state == "proposed" and not use_gates):
            if state == "checked":
                done = file_states.checked(files)
            elif state == "pending":
                done = file_states.pending(files, options["proposal_file"])
            elif state == "accepted":
                done = file_states.accepted(files, options["proposal"], options["proposal_file"])
            elif state == "edited":
                renamed = {str(old): str(new) for old, new in (options["rename"] or {}).items()}
                grouped = policy.names_of("groups", options["groups"] or {}, "r[01-04]")
                done = file_states.edited(files, renamed, options["remove"] or [], grouped)
            else:
                known = hosts.Hosts(task_vars.get("hostvars"), self._evaluate)
                observe = functools.partial(hosts.observe, rows, options, known, time, display)
                done = file_states.proposed(files, rules, observe, use_gates, options["on_objection"] == "fail")
        return {"fabric_file": path, **done}

    def _evaluate(self, template: str, variables: Variables) -> Any:
        return self._templar.copy_with_new_env(available_variables=variables).template(template)


# Ansible's own messages about these name a Python class, or only what is allowed: option -> an example.
_NUMBERS = {
    "min_answer": "a percentage, such as 80",
    "moved_percent": "a percentage, such as 10",
    "max_age": "seconds, such as 3600",
    "expected_trays": "a number of trays, such as 18",
}


def _check(arguments: Arguments) -> None:
    """Raise an error with a remedy for a missing option and for a value of a wrong type."""
    if not (arguments.get("fabric_file") or arguments.get("path")):
        raise AnsibleActionFail("fabric_file: is not set; set its path, such as /srv/site/fabric.json")
    if arguments.get("state") == "accepted" and not arguments.get("proposal"):
        raise AnsibleActionFail("proposal: is not set; set the sha256 of the proposal, as state=proposed returned it")
    for option, example in _NUMBERS.items():
        value = arguments.get(option)
        try:
            wrong = isinstance(value, bool) or (value is not None and not math.isfinite(float(value)))
        except (TypeError, ValueError):
            wrong = True
        if wrong:
            raise policy.PlacementError(f"{option}: {shown(value)} is not a number; write {example}")
    accept = arguments.get("accept")
    if accept not in (None, "gates"):
        raise policy.PlacementError(
            f"accept: {shown(accept)} is not known; write gates to accept a proposal to which no gate objects, or "
            "leave it out to write a proposal for review"
        )
    for option in ("domain_names", "expected", "rename", "groups"):
        value = arguments.get(option)
        if value is not None and not isinstance(value, (Mapping, str)):
            raise policy.PlacementError(f"{option}: {shown(value)} is not a mapping; write NAME: VALUE lines below it")
