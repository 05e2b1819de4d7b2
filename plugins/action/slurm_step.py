# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of slurm_step: renders slurmctld's files, and keeps only documented values of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.loader import lookup_loader
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import cluster as on_host
from ansible_collections.rackscale.nvlink.plugins.modules.slurm_step import ARGUMENTS, REQUIRED_IF, RETURN, STEPS
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import ends, measured, node_lines

MODULE = "rackscale.nvlink.slurm_step"
SCHEMAS = {step: schemas.of_return(RETURN, f"step={step}") for step in STEPS}
# The options that its host needs.
OF_HOST = ("step", "cluster_name", "conf_dir", "log", "accounting", "timeout", "allow_removal", "override")
# Two runs on two cliques may change the node lines at once; the later one renders again from what the first one wrote.
ATTEMPTS = 5


class ActionModule(GuardedAction):
    def act(self, task_vars: Variables) -> Result:
        arguments = dict(self._task.args)
        step = str(arguments.get("step"))
        if step == "configure":
            return self._configure(task_vars)
        default = ARGUMENTS["timeout"]["default"]
        end = ends.controller(arguments, default)
        if step in ("prepare_tray", "start_tray"):
            if task_vars.get("inventory_hostname") in (arguments.pop("controllers", None) or []):
                return {"changed": False, "skipped": True, "skip_reason": "This host is a Slurm controller."}
            _require_earlier_steps(arguments, task_vars)
            end = ends.tray(arguments, default)
        return self.run_module(MODULE, arguments, task_vars, SCHEMAS.get(step, {}), end)

    def _configure(self, task_vars: Variables) -> Result:
        _validation, options = self.validate_argument_spec(argument_spec=ARGUMENTS, required_if=REQUIRED_IF)
        path = fabric_file.required(options["fabric_file"])
        if self._task.check_mode and (warning := fabric_file.not_yet(path, "no node can be shown")):
            return {"warnings": [warning]}
        try:
            fabric = fabric_file.load(path)
            slurm_cluster = measured.cluster_of(fabric, options["cluster"], options["cluster_name"], path)
            trays = measured.of_run(fabric, options["observations"] or "", task_vars["hostvars"])
            addresses, features = options["node_addresses"], options["node_features"]
            nodes = node_lines.nodes_of(fabric, slurm_cluster, trays, addresses, features)
            return self._write(options, nodes, trays, task_vars)
        except NvlinkError as error:
            raise AnsibleActionFail(str(error)) from None

    def _write(
        self, options: Arguments, nodes: list[node_lines.Node], trays: measured.Trays, task_vars: Variables
    ) -> Result:
        passed: dict[str, Any] = {key: self._task.args[key] for key in OF_HOST if key in self._task.args}
        end = ends.controller(options, options["timeout"])
        result: Result = {}
        for _attempt in range(ATTEMPTS):
            observed = self.run_module(MODULE, passed, task_vars, SCHEMAS["configure"], end)
            if observed.get("failed") or observed.get("unreachable"):
                return observed
            if observed.get("present") is None:
                raise AnsibleActionFail("slurm_step returned no files: check its host.")
            if self._task.check_mode and not trays.measured and on_host.NODES not in observed["present"]:
                warning = "No tray has slurmd yet to measure its hardware, so the new slurm.conf cannot be shown."
                return {
                    "changed": True,
                    "changes": [f"{on_host.CONF} written"],
                    "findings": [],
                    "warnings": [warning],
                }
            made = node_lines.render(options, nodes, trays, observed["present"])
            texts = {
                **passed,
                "texts": self._texts(options["templates"], made, task_vars),
                "made_from": on_host.digest(observed["present"].get(on_host.NODES)),
            }
            result = self.run_module(MODULE, texts, task_vars, SCHEMAS["configure"], end)
            result["findings"] = [*result.get("findings", []), *trays.findings, *made.findings]
            if not result.get("outdated"):
                break
        warnings = [found["message"] for found in result.get("findings", []) if found["severity"] == "warning"]
        if warnings:
            result["warnings"] = [*result.get("warnings", []), *warnings[:20]]
        return result

    def _texts(self, templates: Mapping[str, str], made: node_lines.Rendered, task_vars: Variables) -> dict[str, str]:
        """The files by name, from the site's templates; these have the variable _slurm_trays besides the role's."""
        lookup = lookup_loader.get("ansible.builtin.template", loader=self._loader, templar=self._templar)
        variables = {"_slurm_trays": vars(made)}
        texts = {
            name: lookup.run([template], task_vars, template_vars=variables)[0] for name, template in templates.items()
        }
        return {**texts, on_host.NODES: made.lines}


def _require_earlier_steps(arguments: dict[str, Any], task_vars: Variables) -> None:
    """Fail as an earlier step of the tray or its Slurm controller did; removes the options that say so."""
    before = [task_vars.get(str(name)) for name in arguments.pop("after", None) or []]
    controller_failed = boolean(arguments.pop("controller_failed", False), strict=False)
    for result in before:
        if isinstance(result, Mapping) and result.get("unreachable"):
            raise AnsibleConnectionFailure("The tray was unreachable in an earlier step: run again when it is up.")
        if isinstance(result, Mapping) and result.get("failed"):
            raise AnsibleActionFail(f"The tray was not prepared: {result.get('msg')}")
    if controller_failed:
        raise AnsibleActionFail("This tray was left as it is, since its Slurm controller failed.")
