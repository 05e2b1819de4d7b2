# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan changes of NVLink partitions and keep their journals; the module of the same name documents it."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ansible.utils.display import Display
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import rfc3339
from ansible_collections.rackscale.nvlink.plugins.modules.partition import DOCUMENTATION
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import tray_report
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import nvue
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import json_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import occupants
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, proposal, signature
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import ControllerAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions import (
    PartitionError,
    partition_answers,
    partition_plan,
    partition_review,
    partition_steps,
    places,
    wish,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_changes import Changes
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_journal import journals
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import domain_map
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.running_jobs import running_jobs
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair import ledger
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout import progress_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import mapped
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import node_states
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import hosts
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify import switch_reading

display = Display()

OPTIONS = schemas.arguments(DOCUMENTATION)


class ActionModule(ControllerAction):
    """Connects to no host but the switches: what trays returned is read from what their tasks registered."""

    @functools.cached_property
    def wanted(self) -> dict[str, wish.Wish]:
        """What the site wants of the domains of this run; a change that has begun does not need it."""
        given, only = self.options["wish"], self.options["only"] or self.options["domains"]
        return wish.parse({domain: given[domain] for domain in only if domain in given} or given, self.fabric)

    @functools.cached_property
    def nodes(self) -> dict[str, str]:
        """Tray -> its state in Slurm now."""
        return node_states.of_scontrol(self.options["scontrol"] or (), self.fabric)

    def act(self, task_vars: Variables) -> Result:
        _validation, self.options = self.validate_argument_spec(argument_spec=OPTIONS)
        options, self.hosts = self.options, hosts.Hosts(task_vars["hostvars"], self.evaluate)
        self.path, folder = fabric_file.required(options["fabric_file"]), options["state_dir"]
        # Of other runs that change trays.
        self.marks = (self.path, progress_file.marked(self.path, folder), ledger.path(self.path, folder))
        data = fabric_file.read_signed(self.path)
        self.fabric, self.base = fabric_file.parse(data, self.path), fabric_file.digest(data)
        domains = options["domains"] or [*self.fabric.domains]
        self.changes = Changes(self.fabric, journals(self.path, domains, folder, rfc3339), options["by"])
        with self.changes.unmarked_by_failure(os.getppid(), options["state"], options["step"]):
            return dict(getattr(self, f"_{options['state']}")())

    def _named(self) -> Result:
        options, only, rollback = self.options, self.options["only"], self.options["rollback"]
        begun = partition_steps.begun(self.changes.incidents, options["wish"], only, rollback, options["plan"])
        domains = begun or partition_steps.chosen(self.wanted, self.fabric, only)
        trays = [] if begun else [tray for domain in domains for tray in wish.trays_of(self.fabric, domain)]
        text = [*self.changes.going_on(begun, rollback)] if domains else [partition_steps.met(only or self.wanted)]
        return {"domains": domains, "is_new": bool(trays), "trays": trays, "text": text}

    def _planned(self) -> Result:
        options = self.options
        trays, reports = self.changes.trays, self._reports(self.changes.trays)
        verdict = mapped(json_file(options["verdict_file"])) if options["verdict_file"] else {}
        known = places.known(trays, reports, mapped(verdict.get("switch")))
        placed = {tray: self.fabric.identity(self.fabric.trays[tray]["clique"]) for tray in trays}
        seen = replace(self._seen(), observed=placed if options["simulated"] else partition_answers.identities(reports))

        def listed(domain: str) -> Sequence[nvue.Partition] | None:
            return None if options["by"] == partition_plan.HAND else self._primary(domain)[1].partitions

        made = partition_review.plan(options, self.wanted, self.changes, seen, known, listed)
        set_for = functools.partial(self.hosts.setting, name="imex_owner", default=options["imex_owner"])
        made["objections"] += partition_review.set_owner(made["plans"], set_for)
        others = self.changes.in_use(self.marks, os.getppid())
        return {**made, "objections": [*others, *made["objections"]], "base": self.base}

    def _reviewed(self) -> Result:
        options, path = self.options, str(self.options["planned"]["planned"])
        planned, seen = fabric_file.parse(fabric_file.read(path), path), self._seen()
        answers = partition_answers.of_hosts(options["hosts"] or (), self.hosts.variables, options["registered"])
        made = partition_review.review(options, self.wanted, self.fabric, planned, seen, answers)
        state = fabric_file.load_state(self.path, options["state_dir"]) or State()
        lines = domain_map.change_map(self.fabric, planned, node_states.applied(state, planned, seen.nodes))
        return {**made, "text": [*lines, *partition_review.signing(signature.required()), *made["text"]]}

    def _confirmed(self) -> Result:
        plans, sha256, base, rollback = (self.options[name] for name in ("plans", "sha256", "base", "rollback"))
        if base not in (None, self.base):
            raise PartitionError(f"{self.path} has changed since the plan; plan again")
        self.changes.confirm(plans, sha256, rollback, rfc3339(), os.getppid(), self.marks)
        return {"changed": True, "trays": self.changes.affected(), "imex_owner": self.changes.imex_owner}

    def _begun(self) -> Result:
        step, changes = self.options["step"], self.changes
        found = occupants.of_trays(self.options, self.fabric, self.path, changes.affected(step))
        if step == "imex":
            partition_answers.require_idle(found, self.options["override"])
        return {"changed": changes.begin(step), **changes.due(step, found)}

    def _ended(self) -> Result:
        options, step, changes = self.options, self.options["step"], self.changes
        if step == "gpus":
            found = partition_answers.identities(self._reports(changes.affected()))
            return {"changed": changes.end(step, "", found), "trays": [*found]}
        of_hosts = changes.affected() if options["hosts"] is None else options["hosts"]
        answers = partition_answers.of_hosts(of_hosts, self.hosts.variables, options["registered"])
        problem = partition_answers.problem(step, {"": list(map(mapped, options["results"])), **answers})
        if step == "return":
            problem = problem or partition_answers.still_out(self.nodes, options["trays"])
        return {"changed": changes.end(step, problem)}

    def _switched(self) -> Result:
        # By hand GPUs move until they report it.
        options, trays = self.options, self.changes.affected("gpus")
        if problem := partition_answers.in_service(self._seen(), trays, options["scontrol"] is not None):
            self.changes.end("gpus", problem)
        said = self.changes.switch(lambda domain: self._primary(domain)[0], options["wait"], display.display, rfc3339())
        return {"changed": True, "text": said}

    def _agreed(self) -> Result:
        path = self.options["proposed"].get("proposal_file")
        proposed = proposal.load_proposal(str(path)).fabric if path else self.fabric
        self.changes.require_agreed(proposed, self.options["trays"])
        return {}

    def _reported(self) -> Result:
        text, failure = self.changes.report(self.options["trays"], self.nodes, os.getppid())
        return {"changed": True, "text": text, "failure": failure}

    def _seen(self) -> partition_plan.Seen:
        """What Slurm and Kubernetes report now."""
        running, placed, trays = running_jobs(self.options["squeue"] or ()), self.fabric.trays, self.changes.trays
        found = occupants.of_trays(self.options, self.fabric, self.path, trays)
        jobs = {tray: running.get(placed[tray]["slurm_node"], ()) for tray in trays}
        return partition_answers.seen(self.nodes, jobs, found)

    def _primary(self, domain: str) -> tuple[nvue.Switch, nvue.Report]:
        clients = switch_reading.clients(self.options["switches"], self.hosts, self.fabric)
        return switch_reading.primary(domain, clients)

    def _reports(self, trays: Iterable[str]) -> dict[str, tray_report.TrayReport]:
        return partition_answers.reports(trays, self.hosts.variables, self.options["registered"][0])
