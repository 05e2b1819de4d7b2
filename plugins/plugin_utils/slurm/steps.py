# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Base of the actions that plan here what the host of slurmctld surveys, rehearses and applies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.doc_fragments import rehearsal, slurmctld
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import (
    Arguments,
    Result,
    Variables,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import live
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import YAML, SlurmError, Topology
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.transaction import RESTARTED
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.modules import (
    explain,
    slurm_host,
    slurm_topology,
    slurm_topology_info,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import worded
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas, trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import ends, reporting, settings
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.changes import Change
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import ended

# What a step always returns besides its survey, of which Observed is the check.
RETURNED = {
    "rehearse": ("findings", "written", "busy", "undone"),
    "transact": ("changed",),
    "tiers": ("changed",),
    "explain": ("answer", "text"),
}
# The public module documents what a rehearsal returns.
SCHEMA_OF_HOST = {
    **schemas.of_return(slurm_host.RETURN),
    "rehearsal": schemas.of_return(slurm_topology.RETURN)["rehearsal"],
    "test_jobs": schemas.of_return(slurm_topology_info.RETURN)["test_jobs"],
    **{name: schemas.of_return(explain.RETURN)[name] for name in ("answer", "text")},
}
# The options that several actions have by documentation fragments.
OF_CONTROLLER = schemas.arguments(slurmctld.ModuleDocFragment.DOCUMENTATION)
OF_REHEARSAL = schemas.arguments(rehearsal.ModuleDocFragment.DOCUMENTATION)
OF_PLAN = {**OF_CONTROLLER, **OF_REHEARSAL, **schemas.arguments(slurmctld.ModuleDocFragment.CLUSTER)}
# Another run may change the files between survey and transaction.
ATTEMPTS = 5


class StepFailed(Exception):
    """A step on the host has failed; answer: what it returned."""

    def __init__(self, answer: Result) -> None:
        super().__init__(answer.get("msg"))
        self.answer = answer


class SteppedAction(GuardedAction):
    """An action whose steps on the host are those of the module slurm_host.

    OF_HOST: the options that each step gets.
    """

    OF_HOST: Sequence[str] = ("conf_dir", "bin_dir", "timeout")

    def change(self, task_vars: Variables, options: Arguments, attempt: Callable[[], Result]) -> Result:
        """As run_steps(); its findings are printed or fail it."""
        return reporting.report(self.run_steps(task_vars, options, attempt, options["rehearse_timeout"]))

    def run_steps(
        self, task_vars: Variables, options: Arguments, attempt: Callable[[], Result], seconds: float
    ) -> Result:
        """The result of an attempt, which calls step(), or of the last one where another run has changed the files.

        A failure has the findings that the attempt has put into ``found``. seconds: as ``more`` of ends.controller().
        """
        self.task_vars, self.options = task_vars, options
        self.warnings: list[Any] = []
        self.end = ends.controller(options, options["timeout"], seconds)
        for _attempt in range(ATTEMPTS):
            self.found: list[HostFinding] = []
            try:
                result = attempt()
            except StepFailed as error:
                result = self._failed(error.answer)
            except NvlinkError as error:
                result = self._failed({"failed": True, "msg": ended(str(error))})
            if not result.pop("outdated", False):
                break
        # Names and texts of the survey are in it.
        result = {key: trust.cleaned(value) for key, value in result.items()}
        return {**result, "warnings": self.warnings} if self.warnings else result

    def survey(self, files: Sequence[str], jobs: bool = False, columns: str = "") -> Result:
        """The answer to the step survey; the arguments are those of surveying.rows()."""
        return self.step("survey", {"files": files, "jobs": jobs, "columns": columns})

    def step(self, step: str, change: Arguments) -> Result:
        """The answer to a step; StepFailed where the host fails, SlurmError where its answer is not complete."""
        # As the task has them, since the host validates them too: ~ is the home there.
        given = {option: self._task.args.get(option, self.options[option]) for option in self.OF_HOST}
        arguments = {**given, "step": step, "change": change}
        answer = self.run_module("rackscale.nvlink.slurm_host", arguments, self.task_vars, SCHEMA_OF_HOST, self.end)
        self.warnings += answer.pop("warnings", [])
        if answer.pop("restarted", False):
            self.warnings.append(RESTARTED)
        # The planned change, with the text of each file.
        answer.pop("invocation", None)
        if answer.get("failed") or answer.get("unreachable"):
            raise StepFailed(answer)
        for found in answer.get("findings", []):
            if found["code"] == "tray_answer_invalid":
                raise StepFailed({**answer, "failed": True, "msg": found["message"]})
        if any(answer.get(key) is None for key in RETURNED.get(step, ())):
            raise incomplete(step)
        return answer

    def rehearse(self, plan: Change, topology: Topology | None, jobs: Sequence[Arguments] = ()) -> Result:
        """The answer to the step rehearse, whose findings the plan gets; empty where there is nothing to ask.

        topology: the blocks that are to run, None where there are none. jobs: besides those of the site.
        """
        options, despite = self.options, live.GATE in self.options["override"]
        rehearsed = not plan.stopped_by() and _is_rehearsed(options, plan, topology)
        if not (rehearsed or plan.reconfigure or plan.leaving):
            return {}
        wanted = {
            "jobs": [*options["rehearse_jobs"], *jobs],
            "timeout": options["rehearse_timeout"],
            "mandatory": options["rehearse"] == "always",
            "despite_undone": despite,
        }
        answer = self.step("rehearse", plan.to_rehearse(topology, wanted if rehearsed else None))
        stops = answer["busy"] or (answer["undone"] and not despite)
        if rehearsed and not stops and answer.get("rehearsal") is None:
            raise incomplete("rehearse")
        plan.findings += answer["findings"]
        if answer.get("rehearsal") is not None:
            answer["rehearsal"]["summary"] = summary(answer["rehearsal"])
        return answer

    def _failed(self, answer: Result) -> Result:
        findings = [*map(worded, self.found), *answer.get("findings", [])]
        return {"changed": False, **answer, "findings": findings}

    def shown(self, result: Result, lines: Sequence[str]) -> Result:
        """The result with these lines as its diff, with --diff."""
        if self._task.diff and lines:
            result["diff"] = {"prepared": "".join(f"{line}\n" for line in lines)}
        return result


def incomplete(step: str) -> SlurmError:
    return SlurmError(f"The host returned no complete answer to the step {step}: check the host.")


def summary(rehearsal: Mapping[str, Any]) -> str:
    """The result of a rehearsal in one sentence."""
    if not rehearsal.get("ran"):
        return f"No rehearsal: {rehearsal.get('why')}."
    slurmctld = f"Rehearsal: a private slurmctld {rehearsal.get('version')}"
    if not rehearsal.get("loaded"):
        return f"{slurmctld} refuses the new files: {rehearsal.get('fatal')}."
    jobs = [row.get("outcome") for row in rehearsal.get("outcomes", ()) if row.get("kind") == "block"]
    placed = "" if not jobs else f" and places jobs on {jobs.count('placed')} of {count(len(jobs), 'block')}"
    return f"{slurmctld} loads the new files{placed}."


def _is_rehearsed(options: Arguments, plan: Change, topology: Topology | None) -> bool:
    seen, loads = plan.observed, plan.reconfigure
    wanted = options["rehearse"] == "always" or (options["rehearse"] == "auto" and loads)
    # A standby loads nothing, and a slurmctld whose plugin reads no topology.conf has no blocks.
    has_blocks = seen.style == YAML or loads or seen.plugin.lower() == settings.PLUGIN
    return wanted and not seen.acting and topology is not None and has_blocks
