# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Renders a fabric file on the controller; the module of the same name documents it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, TypeVar

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.color import ANSIBLE_COLOR
from ansible.utils.display import Display
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import tree
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import RENDERERS, changes, render, report
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import RenderContext
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.rack_map import rack_map
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.rehearsal import RehearsalError, rehearsed
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.running_jobs import running_jobs
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.verdict import VerdictError, verdict

T = TypeVar("T")

MANIFEST = ".fabric_render.json"
# A terminal tells its width; a log file or a pager has none, and two racks should still stand side by side there.
WIDTH_WITHOUT_TERMINAL = 120
# A page of markup, or all numbers of a report, say nothing to who reads a diff.
LONGEST_DIFF = 100_000

display = Display()


class ActionModule(ActionBase):
    """Fabric file in, render tree and rack map out. Touches no host."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        every = list(RENDERERS)
        _spec, options = self.validate_argument_spec(
            argument_spec={
                "fabric_file": {"type": "path", "required": True},
                "render_dir": {"type": "path"},
                "renderers": {"type": "list", "elements": "str", "choices": every, "default": every},
                "rack_map": {"type": "bool", "default": False},
                "rehearsal": {"type": "path"},
                "verdict": {"type": "path"},
                "squeue": {"type": "list", "elements": "str"},
            }
        )
        # Empty is what a forgotten variable of a playbook becomes.
        if not options["fabric_file"]:
            raise AnsibleActionFail("fabric_file: is empty; give its path, as /srv/site/fabric.json")
        if not options["render_dir"] and not options["rack_map"]:
            raise AnsibleActionFail("render_dir: is not set; give the directory to write to, or set rack_map")
        if self._task.check_mode and not os.path.exists(options["fabric_file"]):
            # On a new site --check of the whole way comes here before anything was accepted.
            told = f"{options['fabric_file']}: is not there yet, so nothing can be shown; discover and accept it first."
            return {**result, "changed": False, "files": [], "removed": [], "findings": [], "warnings": [told]}
        try:
            fabric = fabric_file.load(options["fabric_file"])
            state = fabric_file.load_state(options["fabric_file"]) or model.State()
            beside = _beside(options)
            result["changed"] = False
            if options["render_dir"]:
                result.update(self._render(fabric, state, options["render_dir"], options["renderers"], beside))
        except NvlinkError as error:
            raise AnsibleActionFail(str(error)) from error
        if options["rack_map"]:
            result["rack_map"] = rack_map(fabric, state, beside.jobs, width=WIDTH_WITHOUT_TERMINAL)
            _show(fabric, state, beside)
        return result

    def _render(
        self, fabric: model.Fabric, state: model.State, root: str, names: list[str], beside: RenderContext
    ) -> dict[str, Any]:
        rendered = render(fabric, state, names, beside)
        files = {path: tree.File(text, name) for name, texts in rendered.files.items() for path, text in texts.items()}
        plan = tree.plan(root, files, set(names), MANIFEST)
        if not self._task.check_mode:
            plan.apply()
        result: dict[str, Any] = {
            "changed": bool(plan.changes),
            "render_dir": root,
            "files": sorted(files),
            "removed": [change.path for change in plan.changes if change.after is None],
            "findings": rendered.findings,
        }
        if self._task.diff:
            result["diff"] = [_difference(root, change) for change in plan.changes if change.path != MANIFEST]
        if plan.kept:
            result["warnings"] = [
                f"{os.path.join(root, path)}: is no longer rendered but was changed by hand, so it was left: remove it"
                for path in plan.kept
            ]
        errors = [finding["message"] for finding in rendered.findings if finding["severity"] == "error"]
        if errors:
            more = f" ({len(errors) - 1} more such findings)" if len(errors) > 1 else ""
            result.update(failed=True, msg=errors[0] + more)
        return result


def _beside(options: dict[str, Any]) -> RenderContext:
    """What the options give beside the fabric file, read and checked."""
    lines, root = options["squeue"], options["render_dir"]
    return RenderContext(
        verdict=_read(options["verdict"], verdict, VerdictError, "run the playbook verify again, or leave it out"),
        rehearsed=_read(options["rehearsal"], rehearsed, RehearsalError, "rehearse again, or leave it out"),
        jobs=None if lines is None else running_jobs(lines),
        earlier=_earlier(os.path.join(root, changes.PATH)) if root else None,
    )


def _read(path: str | None, check: Callable[[Any, str], T], error_class: type[NvlinkError], remedy: str) -> T | None:
    """What check makes of the JSON in a file; None where no file is named."""
    if not path:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except OSError as error:
        raise error_class(f"{path} cannot be read ({error.strerror}): {remedy}.") from None
    except ValueError:
        raise error_class(f"{path}: is no JSON; {remedy}.") from None
    return check(document, path)


def _earlier(path: str) -> Any:
    """The numbers of the last report; None where there are none, or nothing that a report left."""
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except (OSError, ValueError):
        return None
    return document if changes.is_report(document) else None


def _difference(root: str, change: tree.Change) -> dict[str, str]:
    path = os.path.join(root, change.path)
    if (
        change.path in (report.PAGE, changes.PATH)
        or max(len(change.before or b""), len(change.after or b"")) > LONGEST_DIFF
    ):
        word = "removed" if change.after is None else "new" if change.before is None else "changed"
        return {"prepared": f"{path}: {word}\n"}
    return {
        "before_header": path,
        "after_header": path,
        "before": (change.before or b"").decode(errors="replace"),
        "after": (change.after or b"").decode(errors="replace"),
    }


def _show(fabric: model.Fabric, state: model.State, beside: RenderContext) -> None:
    """Print the map as lines; a result would show it as one string with escapes."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal():
        width = int(columns)
    else:
        width = display.columns if ANSIBLE_COLOR or display.columns > 79 else WIDTH_WITHOUT_TERMINAL
    display.display(
        "\n".join(rack_map(fabric, state, beside.jobs, width=width, colour=ANSIBLE_COLOR)), screen_only=True
    )
    display.display("\n".join(rack_map(fabric, state, beside.jobs, width=width)), log_only=True)
