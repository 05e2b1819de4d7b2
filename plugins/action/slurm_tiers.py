# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Survey a Slurm, plan its tiers here, and have the host rehearse and apply the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import host_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import conf, live
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import Block, SlurmError
from ansible_collections.rackscale.nvlink.plugins.modules.slurm_tiers import DOCUMENTATION
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import (
    accounting,
    changes,
    clusters,
    observed,
    steps,
    tier_plan,
    tiers,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import blocks as slurm_blocks

OPTIONS = {**steps.OF_PLAN, **schemas.arguments(DOCUMENTATION)}
REQUIRED_IF = [("state", "present", ("tiers", "fabric_file"))]
# The first one is included by slurm.conf.
FILES = (conf.TIERS_NAME, *conf.SCRIPTS)
OVERRIDE = "override (variable slurm_tiers_override)"
# The blocks of a cluster, and clique -> its blocks.
Blocks = tuple[Sequence[Block], Mapping[str, Sequence[str]]]


class ActionModule(steps.SteppedAction):
    def act(self, task_vars: Variables) -> Result:
        _validation, options = self.validate_argument_spec(argument_spec=OPTIONS, required_if=REQUIRED_IF)
        self.override = "" if live.GATE in options["override"] else OVERRIDE
        if options["state"] == "absent":
            return self.change(task_vars, options, self._remove)
        path = fabric_file.required(options["fabric_file"])
        if self._task.check_mode and (warning := fabric_file.not_yet(path, "no tier can be shown")):
            return {"warnings": [warning]}
        fabric = fabric_file.load(path)
        chosen = clusters.each(fabric, options["cluster"], path)
        of_cluster = {here: _blocks(fabric, cluster) for here, cluster in chosen.items()}
        return self.change(task_vars, options, lambda: self._apply(of_cluster))

    def _apply(self, of_cluster: Mapping[str, Blocks]) -> Result:
        # Only a user who may read the site's scripts can apply a policy by them.
        files = FILES if self.options["segment_script"] else FILES[:1]
        answer = self.survey(files, columns=accounting.COLUMNS)
        with observed.bounded():
            plan = self._plan(observed.Observed.of(answer.get("survey")), of_cluster)
        self.found = plan.findings
        seen, name = plan.observed, self.options["topology_name"]
        topology = seen.runs.blocks(name if seen.running else "default")
        answer = self.rehearse(plan, topology, _segment_jobs(plan.desired))
        self._evaluate(answer, plan)
        stopped = bool(plan.stopped_by())
        if not stopped and not self._task.check_mode and plan.changed:
            self.step("tiers", plan.change(self.override))
        return self.shown({**plan.result(stopped), "rehearsal": answer.get("rehearsal")}, plan.difference)

    def _plan(self, seen: observed.Observed, of_cluster: Mapping[str, Blocks]) -> tier_plan.TierPlan:
        options = self.options
        blocks, cliques = slurm_blocks.of_cluster(of_cluster, seen.config.get("clustername", ""))
        running = {topology.name for topology in seen.running}
        # A cluster with one topology needs no name for it.
        topology = options["topology_name"] if options["topology_name"] in running and len(running) > 1 else ""
        desired = tiers.build(options["tiers"], blocks, cliques, seen.version, topology)
        return tier_plan.plan(seen, desired, blocks, options)

    def _remove(self) -> Result:
        answer = self.survey(FILES, columns=accounting.COLUMNS)
        with observed.bounded():
            plan = tier_plan.plan_removal(observed.Observed.of(answer.get("survey")))
        self.found = plan.findings
        result = {**plan.result(False), "rehearsal": None}
        if not plan.stopped_by():
            files = changes.removed_files(plan.observed.texts, FILES)
            change = {**plan.change(self.override), **plan.to_rehearse(None, None), **files}
            answer = self.step("rehearse", {**change, "reloads": True})
            written = answer["written"]
            self._evaluate(answer, plan)
            stopped = bool(plan.stopped_by())
            changed = not stopped and bool(written or plan.changed)
            if changed and not self._task.check_mode:
                self.step("tiers", {**change, "load": bool(written)})
            lines = [*plan.difference, *changes.removal_lines(written, files)]
            result.update(changed=changed, changes=lines, written=[] if stopped else written)
            result.update(reconfigured=bool(written) and not stopped, findings=plan.result(stopped)["findings"])
        return self.shown(result, result["changes"])

    def _evaluate(self, answer: Result, plan: tier_plan.TierPlan) -> None:
        """Add the finding of jobs in partitions that go; SlurmError where live changes would be undone."""
        if answer.get("busy"):
            plan.findings.append(host_finding("jobs_running", "partitions", jobs=answer["busy"]))
        if answer.get("undone") and self.override and not plan.stopped_by():
            raise SlurmError(live.refusal(answer["undone"], self.override))


def _blocks(fabric: Fabric, cluster: str | None) -> Blocks:
    cliques: dict[str, list[str]] = {}
    for view in fabric.slurm_blocks(cluster):
        # Of a clique that is split, only the blocks with trays.
        if view.trays or "split_blocks" not in fabric.cliques.get(view.clique, ()):
            cliques.setdefault(view.clique or view.name, []).append(view.name)
    return slurm_blocks.blocks(fabric, cluster), cliques


def _segment_jobs(desired: tiers.DesiredTiers) -> list[dict[str, Any]]:
    """A test job of one or two segments for each tier with a policy, to check that such a job fits."""
    jobs = []
    for partition in desired.partitions:
        policy = desired.segments.get(partition.name, tiers.Segment())
        size = policy.default or policy.maximum
        if size:
            nodes = size * max(min(2, len(partition.nodes) // size), 1)
            jobs.append({"nodes": nodes, "segment": size, "partition": partition.name})
    return jobs
