# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Render a fabric file on the controller; the module of the same name documents it."""

from __future__ import annotations

import os

from ansible import constants as C
from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import rfc3339
from ansible_collections.rackscale.nvlink.plugins.modules.fabric_render import DOCUMENTATION
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor.environment import collection_version
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import json_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, journal, model, proposal
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import ControllerAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.cliques import TopologySettings
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import RenderError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import RENDERERS, render, report, since, tree
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import RenderContext
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.domain_map import change_map, domain_map
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.running_jobs import running_jobs
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.verdict import applied, verdict
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair import ledger
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import node_states

OPTIONS = schemas.arguments(DOCUMENTATION)
# The callback progress indents each line; the callback default prints it in quotes, too.
MARGIN = 2 if C.DEFAULT_STDOUT_CALLBACK == "rackscale.nvlink.progress" else 12
# Findings on trays and cliques that are missing in a file.
LEFT_OUT = ("k8s_node_missing", "name_conflict")

display = Display()


class ActionModule(ControllerAction):
    """Render the files and the domain map of a fabric file. Connects to no host."""

    def act(self, task_vars: Variables) -> Result:
        _spec, options = self.validate_argument_spec(argument_spec=OPTIONS)
        if not options["renderers"]:
            names = ", ".join(RENDERERS)
            raise AnsibleActionFail(f"renderers: is empty; name one or more of {names}, or leave it out")
        # A variable that is not set in a playbook becomes empty.
        path = fabric_file.required(options["fabric_file"])
        if not options["render_dir"] and not options["domain_map"]:
            raise AnsibleActionFail("render_dir: is not set; set the directory to write to, or set domain_map")
        if options["proposal_file"]:
            return self._change(options)
        if self._task.check_mode and (warning := fabric_file.not_yet(path, "nothing is rendered")):
            return {"files": [], "removed": [], "warnings": [warning]}
        fabric = fabric_file.load(path)
        state = fabric_file.load_state(path, options["state_dir"]) or model.State()
        context = _context(options, fabric)
        state = applied(state, context.verdict)
        assumed = dict.fromkeys(context.without, "DRAIN: assumed")
        state = node_states.applied(state, fabric, {**(context.nodes or {}), **assumed})
        # Prometheus would take what is assumed for the state of the site.
        chosen = [name for name in options["renderers"] if name != "metrics" or not assumed]
        result = self._render(fabric, state, {**options, "renderers": chosen}, context) if options["render_dir"] else {}
        if options["domain_map"]:
            drawn = domain_map(fabric, state, context.jobs, width=_width())
            result["domain_map"] = [*drawn, *since.lines(fabric, context)]
        return result

    def _change(self, options: Arguments) -> Result:
        """The map of a proposal; the files are those of an accepted fabric alone."""
        path, file = options["fabric_file"], options["proposal_file"]
        if options["render_dir"]:
            raise AnsibleActionFail(
                "render_dir: nothing is rendered from a proposal; accept it first, or leave"
                " render_dir out to print its domain map"
            )
        warnings = []
        proposed = proposal.load_proposal(file)
        base = fabric_file.read_signed(path) if os.path.exists(path) else None
        if proposed.base_sha256 != (None if base is None else fabric_file.digest(base)):
            warnings.append(f"{file}: {path} has changed since it was made, so it cannot be accepted; discover again.")
        before = model.Fabric() if base is None else fabric_file.parse(base, path)
        state = fabric_file.load_state(path, options["state_dir"]) or model.State()
        return {"warnings": warnings, "domain_map": change_map(before, proposed.fabric, state, width=_width())}

    def _render(self, fabric: model.Fabric, state: model.State, options: Arguments, context: RenderContext) -> Result:
        root = options["render_dir"]
        rendered = render(fabric, state, options["renderers"], context)
        plan = tree.plan(root, rendered.files, options["replace"])
        if not self._task.check_mode:
            plan.apply()
        result: Result = {
            "changed": plan.changed,
            "changes": [change.path for change in plan.changes],
            "render_dir": root,
            "files": sorted(path for texts in rendered.files.values() for path in texts),
            "removed": [change.path for change in plan.changes if change.after is None],
            "findings": rendered.findings,
        }
        if self._task.diff:
            result["diff"] = [change.difference(root, summary=change.path == report.PAGE) for change in plan.changes]
        kept = (
            f"{os.path.join(root, path)}: is no longer rendered, but was changed by hand, so it is kept: remove it"
            for path in plan.kept
        )
        left_out = (row["message"] for row in rendered.findings if row["code"] in LEFT_OUT)
        if warnings := [*kept, *left_out]:
            result["warnings"] = warnings
        if errors := [finding["message"] for finding in rendered.findings if finding["severity"] == "error"]:
            more = f" ({len(errors) - 1} more such findings)" if len(errors) > 1 else ""
            result.update(failed=True, msg=errors[0] + more)
        return result


def _context(options: Arguments, fabric: model.Fabric) -> RenderContext:
    """Read and check the other inputs of the renderers: verdict, jobs and node states."""
    lines, path, earlier = (options[name] for name in ("squeue", "verdict", "since"))
    found = verdict(json_file(path), path) if path else None
    shown = found["slurm_nodes"] if found else None
    at = found["checked_at"] if found and shown is not None else ""
    if options["scontrol"] is not None:
        shown = node_states.of_scontrol(options["scontrol"], fabric)
        at = rfc3339()
    if unknown := [name for name in options["without"] if name not in fabric.trays]:
        raise RenderError(f"without: {unknown[0]!r} is no tray of the fabric file; name trays that it has")
    return RenderContext(
        verdict=found,
        nodes=shown,
        nodes_at=at,
        since=since.earlier(json_file(earlier), earlier, found) if earlier else None,
        without=tuple(options["without"]),
        repairs=tuple(journal.read(ledger.path(options["fabric_file"], options["state_dir"]))),
        spares_active=options["spares_active"],
        jobs=None if lines is None else running_jobs(lines),
        block_sizes=tuple(options["block_sizes"]),
        gpus_by_dra=options["gpus_by_dra"],
        topology=TopologySettings.of_options(options["topology"]),
        site=options["site"],
        version=collection_version("rackscale.nvlink") or "",
    )


def _width() -> int:
    """The columns that a callback has for a line of the map; Ansible takes 79 where there is no terminal."""
    columns = os.environ.get("COLUMNS", "")
    return (int(columns) if columns.isdecimal() else display.columns) - MARGIN
