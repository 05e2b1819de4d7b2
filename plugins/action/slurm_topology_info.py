# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of slurm_topology_info: predicts which jobs start by the running topology."""

from __future__ import annotations

from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import FILE_NAMES
from ansible_collections.rackscale.nvlink.plugins.modules.slurm_topology_info import DOCUMENTATION
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import worded
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import info, observed, spans, steps

OPTIONS = {**steps.OF_CONTROLLER, **schemas.arguments(DOCUMENTATION)}


class ActionModule(steps.SteppedAction):
    CHANGES = False

    def act(self, task_vars: Variables) -> Result:
        _validation, options = self.validate_argument_spec(argument_spec=OPTIONS)
        return self.run_steps(task_vars, options, self._read, options["test_seconds"])

    def _read(self) -> Result:
        options = self.options
        answer = self.survey((*FILE_NAMES.values(),))
        with observed.bounded():
            seen = observed.Observed.of(answer.get("survey"))
            result, running = info.report(seen, options["topology_name"], options["owner"])
        result["findings"] = [*map(worded, result["findings"]), *answer.get("findings", [])]
        result.update(changed=False, changes=[])
        if options["test_seconds"] > 0:
            answer = self.step("ask", {"seconds": options["test_seconds"], **running})
            result["test_jobs"] = answer.get("test_jobs")
            result["findings"] += answer.get("findings", [])
        if result["topology"] and result.get("test_jobs"):
            with observed.complete(result["test_jobs"]):
                predict(result["test_jobs"], result["topology"]["block_sizes"])
        return result


def predict(tests: dict[str, Any], block_sizes: list[int]) -> None:
    """Add ``predicted`` to the rows of jobs that slurmctld did not place as promised."""
    for row in tests.get("rows") or []:
        row["predicted"] = True
        if row.get("kind") == "all" and tests.get("counts") and block_sizes:
            [span] = spans.spans(tests["counts"], block_sizes, [row["nodes"]])
            row["predicted"] = span.starts
