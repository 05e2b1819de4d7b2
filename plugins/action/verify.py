# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare what trays, Slurm and Kubernetes reported with the fabric file; plugins/modules/verify.py documents it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display
from ansible.utils.vars import isidentifier, load_extra_vars
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.explain import summary
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import fold
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, rfc3339
from ansible_collections.rackscale.nvlink.plugins.modules.verify import DOCUMENTATION
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import verify
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import absolute, json_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.explain import health
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, next_command, storage
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings import lines
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import CHECKED, Finding, Verdict
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import ERROR, WARNING
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas, trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import ControllerAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import mapped
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import connections, hosts
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify import junit, kubernetes_check, read_evidence

display = Display()

_OPTIONS = connections.with_facts(schemas.arguments(DOCUMENTATION))


class ActionModule(ControllerAction):
    """Changes nothing; the two files of the verdict report the run and are written in check mode too."""

    CHANGES = False

    def act(self, task_vars: Variables) -> Result:
        _spec, options = self.validate_argument_spec(argument_spec=_OPTIONS)
        if options["observations"] and not isidentifier(options["observations"]):
            raise AnsibleActionFail(f"verify: observations: {options['observations']!r} is not a variable name.")
        path = fabric_file.required(options["fabric_file"])
        if self._task.check_mode and (warning := fabric_file.not_yet(path, "nothing can be verified")):
            nothing = {"ok": True, "failures": [], "layers": {}}
            return {**_result(nothing, [warning]), "warnings": [warning]}
        verdict_file, junit_file = options["verdict_file"], options["junit_file"]
        files = {"fabric_file": path, "verdict_file": verdict_file, "junit_file": junit_file}
        storage.check_output("verdict_file", files, b'"failures":')
        storage.check_output("junit_file", files, b'<testsuites name="rackscale.nvlink.verify"')
        fabric = fabric_file.load(path)
        value = functools.partial(trust.controller_value, task_vars)
        is_found = fabric_file.is_found(absolute(path), value, load_extra_vars(self._loader))
        # What the last run kept; nothing where there is no verdict yet, or none that can be read.
        last = mapped(json_file(verdict_file)) if verdict_file else {}
        known = hosts.Hosts(task_vars.get("hostvars"), self.evaluate)
        results = self._read(options, known) if options["tray_reading"] == "ssh" and not options["quick"] else None
        reports = read_evidence.reports(options, known, results)
        now = rfc3339()
        evidence = read_evidence.read(fabric, options, reports, now, last, is_found, known)
        verdict = verify.verify(evidence, now)
        sick = health.of_failures(verdict["failures"], now, mapped(last.get("health")))
        if verdict_file:
            kept = {**verdict, "links": verify.links_check.memory(evidence), "health": sick, "placed": fabric.members}
            if evidence.switches is not None:
                kept["switch"] = verify.switch_check.memory(evidence)
            storage.write_atomic(verdict_file, fabric_file.encode(kept), follow=True)
        if junit_file:
            cliques = [name for name, members in fabric.members.items() if members]
            storage.write_atomic(junit_file, junit.render(verdict, cliques), follow=True)
        left_out = [] if evidence.quick else [tray for tray in fabric.trays if tray not in reports]
        shown = {"schema_version": summary.SCHEMA_VERSION, "at": now, "trays": health.by_node(fabric, sick)}
        # The verdict's own commands have no inventory, since other programs read them elsewhere.
        text = _text(verdict, left_out, lambda *row: next_command.completed(verify.remediation(evidence, *row)))
        return {**_result(verdict, text), "health": shown}

    def _read(self, options: Arguments, known: hosts.Hosts) -> dict[str, Result]:
        """Host -> the result of a reading by ssh, of the trays that are in this run."""
        in_run = set(options["trays"] if options["hosts"] is None else options["hosts"])
        trays = [tray for tray in options["trays"] if tray in in_run]
        question = connections.of_facts(options["facts"])
        return connections.read(trays, question, known, self._play_context.become, display)


def _result(verdict: Mapping[str, Any], text: list[str]) -> Result:
    keys = ("code", "severity", "message", "tray", "clique")
    findings = [{key: row[key] for key in keys} for row in verdict["failures"]]
    first = lines.first_error(verdict["failures"])
    summary = f"{text[0]} First: {first}" if first else text[0]
    return {"findings": findings, "verdict": verdict, "text": text, "summary": summary}


def _text(verdict: Verdict, left_out: Sequence[str], remedy: Callable[[Finding, Sequence[str]], str]) -> list[str]:
    """The verdict as lines of text. left_out: the placed trays that this run has not queried."""
    rows = verdict["failures"]
    errors, warnings = (sum(1 for row in rows if row["severity"] == severity) for severity in (ERROR, WARNING))
    outside = f", {len(left_out)} not evaluated (outside this run: {fold(left_out)})" if left_out else ""
    some = f", {verdict['answered']} answered" if verdict["answered"] < verdict["queried"] else ""
    summary = (
        f"{count(verdict['trays'], 'tray')} in {count(verdict['cliques'], 'clique')},"
        f" {verdict['queried']} queried{some}{outside}:"
        f" {'all layers agree' if verdict['ok'] else 'the layers do not agree'}"
        f" ({count(errors, 'error')}, {count(warnings, 'warning')})."
    )
    skipped = [f"{layer}: {state}" for layer, state in verdict["layers"].items() if state != CHECKED]
    return [
        summary,
        *skipped,
        *lines.shown(rows, remedy),
        *kubernetes_check.stranded_lines(verdict["compute_domains"]),
    ]
