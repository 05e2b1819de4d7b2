# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of slurm_topology_info: predicts which jobs start by the running topology."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import worded
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import rules
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import FILE_NAMES
from ansible_collections.rackscale.nvlink.plugins.modules import slurm_topology
from ansible_collections.rackscale.nvlink.plugins.modules.slurm_topology_info import DOCUMENTATION, RETURN
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric, State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas, trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import info, linter, observed, spans, steps

OPTIONS = {
    **{option: slurm_topology.ARGUMENTS[option] for option in ("conf_dir", "bin_dir")},
    **schemas.arguments(DOCUMENTATION),
}


class ActionModule(steps.SteppedAction):
    SCHEMA: Mapping[str, schemas.Check] = {**observed.SCHEMA, "test_jobs": schemas.of_return(RETURN)["test_jobs"]}

    def act(self, task_vars: Variables) -> Result:
        _validation, options = self.validate_argument_spec(argument_spec=OPTIONS)
        path = options["fabric_file"]
        if any(size < 1 for size in options["job_sizes"]):
            raise AnsibleActionFail("slurm_topology_info, option job_sizes: is not a list of numbers of nodes from 1.")
        fabric, state = (fabric_file.load(path), _state(path, task_vars)) if path else (None, State())
        return self.run_steps(task_vars, options, lambda: self._read(fabric, state), options["test_seconds"])

    def _read(self, fabric: Fabric | None, state: State) -> Result:
        options = self.options
        answer = self.survey((*FILE_NAMES.values(),))
        with observed.bounded():
            seen = observed.Observed.of(answer.get("survey"))
            result = info.report(seen, options["topology_name"], options["owner"])
        result["findings"] = [*map(worded, result["findings"]), *answer.get("findings", [])]
        result.update(changed=False, changes=[])
        if options["test_seconds"] > 0:
            answer = self.step("ask", {"seconds": options["test_seconds"], "running": result})
            result["test_jobs"] = answer.get("test_jobs")
            result["findings"] += answer.get("findings", [])
        if not result["topology"]:
            return result
        if result.get("test_jobs"):
            with observed.complete(result["test_jobs"]):
                predict(result["test_jobs"], result["topology"]["block_sizes"], linter.search_retries(seen.version))
        if fabric is not None:
            with observed.bounded():
                nodes = [node.name for node in seen.nodes]
                result["job_spans"] = job_spans(
                    result["topology"], fabric, state, options["job_sizes"], seen.version, nodes
                )
        return result


def predict(tests: dict[str, Any], block_sizes: list[int], retries: bool) -> None:
    """Add ``predicted`` to the rows of jobs that slurmctld did not place as promised."""
    for row in tests.get("rows") or []:
        row["predicted"] = True
        if row.get("kind") == "all" and tests.get("counts") and block_sizes:
            [span] = spans.spans(tests["counts"], block_sizes, [row["nodes"]], retries)
            row["predicted"] = span.starts


def _state(path: str, task_vars: Variables) -> State:
    names = ("fabric_state_dir", "nvlink_fabric_state_dir")
    folder = next(filter(None, (trust.controller_value(task_vars, name) for name in names)), None)
    return fabric_file.load_state(path, folder) or State()


def job_spans(
    topology: dict[str, Any],
    fabric: Fabric,
    state: State,
    sizes: list[int],
    version: rules.Version = (26, 5, 0),
    nodes: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """The rows of job_spans for the running topology; empty where no tray of it works.

    The blocks are the running ones; the fabric file and its state have the health of their nodes. nodes: all of
    slurmctld, in its order.
    """
    name_of = {tray["slurm_node"]: name for name, tray in fabric.trays.items()}
    position = {node: number for number, node in enumerate(nodes)}
    order = [
        sorted(
            position.get(node, len(nodes))
            for node in set(block["nodes"])
            if spans.works(state.trays.get(name_of.get(node, node)))
        )
        for block in topology["blocks"]
    ]
    counts = [len(working) for working in order]
    base = next((len(block["nodes"]) for block in topology["blocks"] if block["nodes"]), 0)
    block_sizes = linter.enabled_sizes(topology["block_sizes"], base)
    if not block_sizes or not sum(counts):
        return []
    jobs = spans.sizes_of_interest(counts, block_sizes[0], sizes)
    rows = spans.spans(counts, block_sizes, jobs, linter.search_retries(version), order)
    return [asdict(row) for row in rows]
