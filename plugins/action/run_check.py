# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fail where a person names what does not exist; the module of the same name documents it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible import context
from ansible.errors import AnsibleActionFail
from ansible.inventory.manager import InventoryManager, split_host_pattern
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.modules.run_check import ARGUMENT_SPEC
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import run_variables, site_variables, trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout import targets
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout.targets import Run
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import inventory_file

PLAYBOOKS = str(Path(__file__).resolve().parents[2] / "playbooks")


class ActionModule(GuardedAction):
    """Runs once, on whichever host is first: it reads variables of localhost alone, and connects to no host."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def act(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        _validation, options = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        result: dict[str, Any] = {"changed": False, "changes": [], "findings": []}
        # Before the variables that must be set: a misspelled name is why one is not.
        playbook = Path(self._task.get_path().rpartition(":")[0]).stem
        errors, result["warnings"] = run_variables.check(self._loader, task_vars, playbook)
        if errors:
            return {**result, "failed": True, "msg": site_variables.joined(errors)}
        playbooks = targets.own_playbooks(context.CLIARGS.get("args") or (), PLAYBOOKS)
        tags = {f"--{which}": _words(task_vars.get(f"ansible_{name}_tags")) for which, name in _TAG_OPTIONS}
        wrong = list(targets.wrong_tags(playbooks, tags))
        if wrong and playbooks is None:
            result["warnings"] += map(_ended, wrong)
            wrong = []
        try:
            problem = next(filter(None, itertools.chain(wrong, self._problems(options, task_vars))), "")
        except NvlinkError as error:
            problem = str(error)
        if problem:
            raise AnsibleActionFail(_ended(problem))
        return result

    def _problems(self, options: Mapping[str, Any], task_vars: Mapping[str, Any]) -> Iterator[str]:
        # Variables of the play rank above those of a host.
        of_play = self._task.play.vars

        def value(name: str) -> Any:
            if name in of_play:
                return self._templar.template(task_vars.get(name))
            return trust.controller_value(task_vars, name)

        def on_reader(name: str) -> Any:
            # As the Slurm controller has it, whose group may set the file; its facts may not.
            patterns = (*options["patterns"], *options["inventory_patterns"])
            host = next((host for row in patterns for host in match(targets.pattern_of(row, value(row)))), "localhost")
            own = task_vars["hostvars"]
            if name in of_play or trust.foreign_variables(own.raw_get(host).get("ansible_facts")):
                return value(name)
            return own[host].get(name)

        # Not ansible_limit: without --limit it may be a fact of a tray.
        limit = str(context.CLIARGS.get("subset") or "")
        manager: list[InventoryManager] = []

        def match(pattern: str) -> Sequence[str]:
            pattern = pattern.strip()
            if pattern in groups:
                return list(groups[pattern])
            # Ansible would warn of an unknown name.
            if not set(pattern) & _OF_PATTERNS:
                return [pattern] if pattern in known else []
            if not manager:
                manager.append(self._manager(groups))
            return [host.name for host in manager[0].get_hosts(pattern) if host.name in known]

        def unread() -> str:
            found = inventory_file.problems(task_vars.get("ansible_inventory_sources") or (), self._loader)
            return found[0] if found else ""

        groups = task_vars.get("groups") or {}
        known = set(groups.get("all", ()))
        run = Run(groups, task_vars.get("ansible_play_hosts_all") or (), limit, match, unread)
        yield from targets.wrong_limit(run, split_host_pattern(limit) if limit else [], options["localhost"])
        for name in options["required"]:
            yield targets.wrong_value(name, value(name))
        for name in options["seconds"]:
            yield targets.wrong_number(name, value(name), whole=False)
        for name in options["numbers"]:
            yield targets.wrong_number(name, value(name), whole=True)
        for name in options["renames"]:
            yield targets.wrong_pairs(name, value(name))
        for name in options["patterns"]:
            yield targets.wrong_pattern(run, name, value(name), in_run=True)
        for name in options["inventory_patterns"]:
            yield targets.wrong_pattern(run, name, value(name), in_run=False)
        for name in options["optional_patterns"]:
            if value(name):
                yield targets.wrong_pattern(run, name, value(name), in_run=False)
        if options["fabric_files"]:
            paths = map(on_reader, options["fabric_files"])
            path = next((path for path in paths if path is not None), "")
            if path:
                fabric_file.load(self._loader.path_dwim(str(path)))
            else:
                yield "No fabric file is set: add -e fabric_file=PATH, the file that the playbook discover writes"
        names = [name for name in (*options["trays"], *options["placed"], *options["cliques"]) if value(name)]
        if names:
            fabric = self._fabric(value("fabric_file") or value("nvlink_fabric_file"))
            for name in names:
                if name in options["cliques"]:
                    yield targets.wrong_clique(fabric, name, value(name))
                else:
                    yield targets.wrong_trays(run, fabric, name, value(name), name in options["placed"])

    def _manager(self, groups: Mapping[str, Sequence[str]]) -> InventoryManager:
        """The inventory itself is not a variable; this is the way of the lookup inventory_hostnames."""
        manager = InventoryManager(self._loader, parse=False)
        for group, hosts in groups.items():
            manager.add_group(group)
            for host in hosts:
                manager.add_host(host, group=group)
        return manager

    def _fabric(self, given: object) -> Fabric:
        """An empty fabric before the first file exists: the first trays are named by the inventory."""
        if not given:
            raise NvlinkError("fabric_file: is not set; add -e fabric_file=PATH, the file that discover wrote")
        path = self._loader.path_dwim(str(given))
        return fabric_file.load(path) if os.path.exists(path) else Fabric()


_OF_PATTERNS = frozenset("*?[]~!&:,")
_TAG_OPTIONS = (("tags", "run"), ("skip-tags", "skip"))


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith(("?", ".")) else f"{sentence}."


def _words(value: Any) -> list[str]:
    return [str(word) for word in value or ()]
