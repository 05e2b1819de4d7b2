# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fail where a person names what does not exist, and plan a run of site; the module of the same name documents it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ansible import context
from ansible.errors import AnsibleUndefinedVariable
from ansible.plugins.loader import lookup_loader
from ansible.utils.vars import load_extra_vars
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor import site_plan
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import ControllerAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run import (
    run_variables,
    site_variables,
    specifications,
    targets,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run.targets import Run
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import inventory_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import ended

PLAYBOOKS = str(Path(__file__).resolve().parents[2] / "playbooks")
_OF_PATTERNS = frozenset("*?[]~!&:,")


class ActionModule(ControllerAction):
    """Runs once, on whichever host is first: it reads variables of localhost alone, and connects to no host."""

    CHANGES = False

    def act(self, task_vars: Variables) -> Result:
        self.validate_argument_spec(argument_spec={})
        # Of the play itself: facts of a tray and extra variables rank above its variables.
        playbook, run = self._task.play.vars["run_playbook"], self._run(task_vars)
        # Before the variables that must be set: a misspelled name is why one is not.
        playbooks = targets.own_playbooks(context.CLIARGS.get("args") or (), PLAYBOOKS)
        errors, warnings = run_variables.check(self._loader, task_vars, playbook, playbooks is not None)
        if errors:
            return {"failed": True, "msg": site_variables.joined(errors), "warnings": warnings}
        tags = {"--tags": _words("tags"), "--skip-tags": _words("skip_tags")}
        extra, check = load_extra_vars(self._loader), specifications.CHECKS[playbook].of_run(_or_none(run.value))

        def on_host(host: str, name: str) -> Any:
            own = task_vars["hostvars"]
            if name in self._task.play.vars or trust.foreign_variables(own.raw_get(host).get("ansible_facts")):
                return run.value(name)
            return own[host].get(name)

        wrong = list(targets.wrong_tags(playbooks, tags))
        if playbooks is None:
            warnings += map(ended, wrong)
            wrong = []
        wrong += targets.wrong_parts(playbooks, tags, extra)
        found = targets.problems(check, run, on_host, extra, self._task.check_mode)
        if problem := next(filter(None, itertools.chain(wrong, found)), ""):
            raise NvlinkError(problem)
        warnings += [ended(sentence) for name, sentence in targets.missing_files(check, run) if name not in extra]
        planned = site_plan.plan(run, tags, task_vars) if check.plan else {"warnings": []}
        matched = set(run.matched((*check.patterns, *check.optional_patterns)))
        hosts = [host for host in run.selected if host in matched]
        warnings = [*planned["warnings"], *warnings]
        return {"playbooks": [playbook], "dra_driver": True, "hosts": hosts, **planned, "warnings": warnings}

    def _run(self, task_vars: Variables) -> Run:
        groups = task_vars.get("groups") or {}
        known = set(groups.get("all", ()))

        def match(pattern: str) -> Sequence[str]:
            pattern = pattern.strip()
            if pattern in groups:
                return list(groups[pattern])
            # Ansible would warn of an unknown name.
            if not set(pattern) & _OF_PATTERNS:
                return [pattern] if pattern in known else []
            lookup = lookup_loader.get("ansible.builtin.inventory_hostnames", loader=self._loader)
            return [host for host in lookup.run([pattern], task_vars) if host in known]

        def value(name: str) -> Any:
            # A variable of the play ranks above those of a host; others are as localhost has them.
            if name in self._task.play.vars:
                return self._templar.template(task_vars.get(name))
            return trust.controller_value(task_vars, name)

        def unread() -> str:
            return next(inventory_file.problems(task_vars.get("ansible_inventory_sources") or (), self._loader), "")

        # Not ansible_limit: without --limit it may be a fact of a tray.
        limit = str(context.CLIARGS.get("subset") or "")
        return Run(groups, task_vars.get("ansible_play_hosts_all") or (), limit, match, unread, value)


def _or_none(value: Callable[[str], Any]) -> Callable[[str], Any]:
    """The same, with None for a template that only trays can fill, such as one of inventory_hostname."""

    def read(name: str) -> Any:
        try:
            return value(name)
        except AnsibleUndefinedVariable:
            return None

    return read


def _words(option: str) -> list[str]:
    return list(map(str, context.CLIARGS.get(option) or ()))
