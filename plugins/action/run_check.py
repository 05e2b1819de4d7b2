# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fail where a person names what does not exist, and plan a run of site; the module of the same name documents it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ansible import context
from ansible.inventory.manager import split_host_pattern
from ansible.plugins.loader import lookup_loader
from ansible.utils.vars import load_extra_vars
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.modules.run_check import DOCUMENTATION
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor import controller, environment
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor import inventory as doctor_inventory
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import absolute
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import ERROR, WARNING
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas, trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import ControllerAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run import run_variables, site, site_variables, targets
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run.targets import Run
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import inventory_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import ended

OPTIONS = schemas.arguments(DOCUMENTATION)
PLAYBOOKS = str(Path(__file__).resolve().parents[2] / "playbooks")


class ActionModule(ControllerAction):
    """Runs once, on whichever host is first: it reads variables of localhost alone, and connects to no host."""

    def act(self, task_vars: Variables) -> Result:
        _validation, options = self.validate_argument_spec(argument_spec=OPTIONS)
        run = self._run(task_vars)
        # Before the variables that must be set: a misspelled name is why one is not.
        playbook = Path(self._task.get_path().rpartition(":")[0]).stem
        playbooks = targets.own_playbooks(context.CLIARGS.get("args") or (), PLAYBOOKS)
        errors, warnings = run_variables.check(self._loader, task_vars, playbook, playbooks is not None)
        if errors:
            return {"failed": True, "msg": site_variables.joined(errors), "warnings": warnings}
        tags = {"--tags": _tags("tags"), "--skip-tags": _tags("skip_tags")}
        wrong = list(targets.wrong_tags(playbooks, tags))
        if wrong and playbooks is None:
            warnings += map(ended, wrong)
            wrong = []
        wrong += targets.wrong_parts(playbooks, tags, load_extra_vars(self._loader))
        missing = list(self._missing(options["files"], task_vars, warnings))
        problem = next(filter(None, itertools.chain(wrong, missing, self._problems(options, task_vars, run))), "")
        if problem:
            raise NvlinkError(problem)
        planned = _planned(run, task_vars) if options["plan"] else {"warnings": []}
        planned["warnings"] += warnings
        hosts = self._hosts([*options["patterns"], *options["optional_patterns"]], task_vars, run)
        return {"playbooks": [playbook], "dra_driver": True, "hosts": hosts, **planned}

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

        sources = task_vars.get("ansible_inventory_sources") or ()
        # Not ansible_limit: without --limit it may be a fact of a tray.
        limit = str(context.CLIARGS.get("subset") or "")
        selected = task_vars.get("ansible_play_hosts_all") or ()
        return Run(groups, selected, limit, match, lambda: "".join(inventory_file.problems(sources, self._loader)[:1]))

    def _missing(self, names: Sequence[str], task_vars: Variables, warnings: list[str]) -> Iterator[str]:
        """A sentence for each file of an extra variable that does not exist; others are warnings."""
        extra = load_extra_vars(self._loader) if names else {}
        for name in names:
            path = trust.controller_value(task_vars, name)
            # Of a kubeconfig there may be several. A file may have a colon in its name.
            if path and not any(map(os.path.isfile, map(absolute, (path, *str(path).split(os.pathsep))))):
                sentence = f"{name}: {path} is not a file; correct the path, or run the playbook that writes it first"
                if name in extra:
                    yield sentence
                else:
                    warnings.append(f"{sentence}.")

    def _problems(self, options: Arguments, task_vars: Variables, run: Run) -> Iterator[str]:
        of_play = self._task.play.vars

        def value(name: str) -> Any:
            return self._value(name, task_vars)

        def on_reader(name: str) -> Any:
            # As the Slurm controller has it, whose group may set the file; its facts may not.
            patterns = (*options["patterns"], *options["inventory_patterns"])
            hosts = (host for row in patterns for host in run.match(targets.pattern_of(row, value(row))))
            host, own = next(hosts, "localhost"), task_vars["hostvars"]
            if name in of_play or trust.foreign_variables(own.raw_get(host).get("ansible_facts")):
                return value(name)
            return own[host].get(name)

        trays_of = value("nvlink_fabric_file") or "the source of the trays in the inventory"
        yield from targets.named_like_groups(run, str(trays_of))
        yield from targets.wrong_limit(run, split_host_pattern(run.limit) if run.limit else [], options["localhost"])
        for name in options["required"]:
            yield targets.wrong_value(name, value(name))
        for name in options["renames"]:
            yield targets.wrong_pairs(name, value(name))
        # The plan names the variable of site, and a run of Slurm alone needs no tray.
        for name in () if options["plan"] else options["patterns"]:
            yield targets.wrong_pattern(run, name, value(name), in_run=True)
        optional = filter(value, options["optional_patterns"])
        for name in (*options["inventory_patterns"], *optional):
            yield targets.wrong_pattern(run, name, value(name), in_run=False)
        if options["fabric_variable"]:
            path = fabric_file.path_from(on_reader, options["fabric_variable"])
            if path:
                fabric_file.load(absolute(path))
            else:
                yield fabric_file.NOT_SET
        names = [name for name in (*options["trays"], *options["placed"]) if value(name)]
        if names:
            fabric = self._fabric(fabric_file.path_from(value))
            # A discovery in check mode places new trays in no file.
            placed = () if self._task.check_mode else options["placed"]
            for name in names:
                yield targets.wrong_trays(run, fabric, name, value(name), name in placed)

    def _value(self, name: str, task_vars: Variables) -> Any:
        """A variable of the play, which ranks above those of a host, or as localhost has it."""
        if name in self._task.play.vars:
            return self._templar.template(task_vars.get(name))
        return trust.controller_value(task_vars, name)

    def _hosts(self, patterns: Sequence[str], task_vars: Variables, run: Run) -> list[str]:
        """The hosts of this run that match a pattern."""
        rows = (run.match(targets.pattern_of(name, self._value(name, task_vars))) for name in patterns)
        matched = {host for row in rows for host in row}
        return [host for host in run.selected if host in matched]

    def _fabric(self, given: str) -> Fabric:
        """An empty fabric before the first file exists: the first trays are named by the inventory."""
        path = absolute(fabric_file.required(given))
        return fabric_file.load(path) if os.path.exists(path) else Fabric()


def _planned(run: Run, task_vars: Variables) -> dict[str, Any]:
    """The phases of the playbook site, with warnings; one error has all that would stop a later phase."""

    def value(name: str) -> Any:
        return trust.controller_value(task_vars, name)

    pattern = value("site_tray_hosts")
    # Ansible would warn of a group that does not exist.
    tray_hosts = str(pattern or ":".join(row for row in _TRAY_GROUPS if row in run.groups))
    given = {
        "trays": run.match(tray_hosts) if tray_hosts else [],
        "pattern": pattern,
        "controllers": run.match(targets.pattern_of("slurm_controller_hosts", value("slurm_controller_hosts"))),
        "limit": run.selected if run.limit else None,
    }
    inventory = doctor_inventory.read(given, task_vars)
    if "fabric_file" in inventory.misplaced:
        raise NvlinkError(site.misplaced("fabric_file"))
    path = absolute(fabric_file.required(fabric_file.path_from(value)))
    phases = site.select_by_tags(site.default_phases(inventory), _tags("tags"), _tags("skip_tags"))
    fabric = fabric_file.load(path) if os.path.exists(path) else None
    here, trays, processors = environment.read(), len(inventory.trays), os.cpu_count() or 1
    discovers = "discover" in phases
    checks = list(controller.checks(here, inventory.variables, inventory.slurm, trays, processors, discovers))
    errors = [f"{row['code']}: {row['message']}" for row in checks if row["severity"] == ERROR]
    problems = [*site.problems(inventory, phases, fabric), *errors]
    if problems:
        raise NvlinkError(" ".join(map(ended, problems)))
    # ansible.cfg is for doctor: a warning in each run would be noise.
    warned = [row for row in checks if row["severity"] == WARNING and row["code"] != "ansible_cfg"]
    old = [f"{row['code']}: {row['message']}." for row in warned]
    return {
        "phases": phases,
        "playbooks": site.playbooks(inventory, phases),
        "dra_driver": "kubernetes" in phases and bool(inventory.variables.get("dra_driver_shape")),
        "warnings": [*site.warnings(inventory, phases, fabric), *old],
        "msg": f"{count(len(inventory.trays), 'tray')}; phases: {', '.join(phases) or 'none'}.",
    }


_TRAY_GROUPS = ("trays", "nvlink")
_OF_PATTERNS = frozenset("*?[]~!&:,")


def _tags(option: str) -> list[str]:
    return list(map(str, context.CLIARGS.get(option) or ()))
