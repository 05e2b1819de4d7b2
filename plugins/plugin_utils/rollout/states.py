# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each state of the module rollout does, of a tray and of a wave. Pure functions: they change the record alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout import progress_file, record, summary
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout.record import Record, Row, Rows


@dataclass(frozen=True)
class Task:
    """A task of a rollout.

    rollout: its name. settings: of its plan. options: of the module. trays: those of Ansible's batch, which are the
    wave. rows: trays -> their last results. check_mode: whether the run changes nothing.
    """

    rollout: str
    settings: Mapping[str, Any]
    options: Arguments
    trays: Sequence[str]
    rows: Callable[[Iterable[str]], Rows]
    check_mode: bool


# --- Of each tray, whose last row they get: its next row, and the result of the task.


def observed(tray: str, options: Arguments, row: Row) -> tuple[Row, Result]:
    if options["unreachable"]:
        return {"state": progress_file.SKIPPED}, {}
    if options["refused"]:
        # Without a failure of this task: the report names it once for all trays of the clique.
        return {"state": record.REFUSED, "reason": _line(options["refused"])}, {}
    return {"state": record.OBSERVED, "due": options["due"]}, {}


def passed(tray: str, options: Arguments, row: Row) -> tuple[Row, Result]:
    if row.get("state") == record.REFUSED:
        return row, {"passed": False}
    return {"state": record.PASSED}, {"passed": True}


def failed(tray: str, options: Arguments, row: Row) -> tuple[Row, Result]:
    reason = _line(options["reason"]) or "a task failed"
    return {"state": progress_file.FAILED, "due": True, "reason": reason}, {"passed": False, "msg": f"{tray}: {reason}"}


# --- Of the wave. Any of its trays may run them.


def inspected(run: Record, task: Task) -> Result:
    """Before the first wave, of all trays of the rollout: finishes the cliques of which each tray is unchanged."""
    due = run.drop_unchanged(task.options["unchanged"])
    left = [[name for name in cliques if name in due] for cliques in run.waves]
    trays = [tray for members in due.values() for tray in members]
    return {"due": trays, "waves": [summarize(cliques) for cliques in left if cliques]}


def started(run: Record, task: Task) -> Result:
    # Where no tray was left to finish the wave before.
    warnings = _finish(run, task, task.rows(run.wave))
    if why := run.why_stop():
        message = f"No further wave starts: {why}."
        return {"stop": True, "msg": message, "warnings": [*warnings, message]}
    run.start([*task.trays])
    # The callback progress prints it. Not by a task debug with run_once: ansible-core 2.21 then gives all hosts of the
    # play one dictionary of facts.
    text = f"Wave of {summarize(run.by_clique(task.trays))} with {count(len(task.trays), 'tray')}."
    return {"stop": False, "warnings": warnings, "announcement": text}


def selected(run: Record, task: Task) -> Result:
    run.select(task.rows(task.trays))
    return {"trays": run.selected, "nodes": run.nodes(run.selected)}


def evaluated(run: Record, task: Task) -> Result:
    """`nodes` are tested, and `any_reason` of them resumed whichever playbook has drained them."""
    # Only selected trays: an earlier run may have left others drained with the same reason.
    trays, named = _passed(run, task.rows(run.selected)), task.settings.get("any_reason", ())
    return {"nodes": run.nodes(trays), "any_reason": run.nodes([tray for tray in trays if tray in named])}


def finished(run: Record, task: Task) -> Result:
    """`resumed`: the trays that run jobs again."""
    rows, tests = dict(task.rows(run.wave)), task.options["failed_tests"]
    for tray, node in zip(run.selected, run.nodes(run.selected), strict=True):
        if node in tests:
            rows[tray] = {"state": progress_file.FAILED, "reason": str(tests[node])}
    warnings = _finish(run, task, rows)
    message = warnings[0] if warnings else f"Finished {summarize(run.by_clique(task.trays))}."
    return {"warnings": warnings, "msg": message, "resumed": _passed(run, rows)}


def reported(run: Record, task: Task) -> Result:
    """At the end of the run: fails if a clique is unfinished, of those alone that a run names."""
    run.finish(task.rows(run.wave))
    # A tray in repair fails no run before its date.
    known = set(task.settings["acknowledged"])
    rows = {name: row for name, row in run.cliques.items() if not row["trays"] or row["trays"].keys() - known}
    own = {*itertools.chain(*run.waves)} if task.settings["others_may_wait"] else rows.keys()
    left = [name for name in rows if name in own]
    members = {name: [tray for tray, row in run.trays.items() if row[0] == name] for name in left}
    trays = [tray for name in left for tray in run.cliques[name]["trays"] or members[name]]
    path = "" if task.check_mode else run.progress_file
    text = summary.of_rollout(task.rollout, run.finished, left, task.check_mode)
    if {"drain", "resume"} & set(task.settings["steps"]) and not task.settings.get("slurm_controller"):
        text.append("The inventory has no Slurm controller: no tray was drained or tested in Slurm.")
    message = f"The rollout {task.rollout} is complete."
    if left:
        message = progress_file.summary(run.cliques, path, task.rollout)
    elif rows:
        message = progress_file.earlier(rows, path, task.rollout)
        text.append(message)
    is_failed = bool(left) and task.options["fail"]
    return {"failed": is_failed, "unfinished": left, "trays": trays, "text": text, "msg": message}


OF_TRAY = {"observed": observed, "passed": passed, "failed": failed}
OF_WAVE = {
    **{"inspected": inspected, "started": started, "selected": selected, "evaluated": evaluated, "finished": finished},
    **dict.fromkeys(("reported", "summarized"), reported),
}


def _finish(run: Record, task: Task, rows: Rows) -> list[str]:
    """Add the result of the wave that has begun, if any; a warning if a clique of it is unfinished."""
    unfinished = run.finish(rows)
    path = "" if task.check_mode else run.progress_file
    return [progress_file.summary(unfinished, path, task.rollout)] if unfinished else []


def _passed(run: Record, rows: Rows) -> list[str]:
    return [tray for tray in run.selected if rows.get(tray, {}).get("state") == record.PASSED]


def _line(text: str) -> str:
    return " ".join(text.split())[:500]
