# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of the incidents in one run: for which a step is due, and what became of its tasks. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.nodes import OURS
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.journal import DONE, FAILED, Line
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import ERROR
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair.ledger import Incident
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import as_list, mapped
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import sentence

AUTOMATIC = ("reset_gpu", "reboot", "power_cycle")
"""The actions that a run can do; a person does every other one."""
NEEDS: dict[str, tuple[str, ...]] = {
    "drain": (),
    "evidence": ("drain",),
    "spare": ("drain",),
    "ticket": (),
    # What a reset or a reboot destroys must be on disk.
    "action": ("drain", "evidence"),
    "return": ("action",),
    "resume": ("return",),
    "close": ("resume",),
}
"""Step -> the steps that must be done before."""
OF_EVENTS = ("ticket", "close")
"""The steps of an incident of a whole domain, which has one ticket and no tray."""


def reason(incident: Incident) -> str:
    """The reason of the drain in Slurm, as slurm_nodes takes it: without its prefix."""
    return f"repair {incident.id}"


def due(
    step: str,
    incidents: Iterable[Incident],
    trays: Collection[str],
    actions: Collection[str],
    nodes: Mapping[str, str] | None,
    busy: Collection[str],
) -> Iterator[Incident]:
    """The incidents whose step is next. trays: those of the fabric file.

    An action is due where the site allows it (``actions``), no job runs on the tray (``busy``) and Slurm still has it
    drained for this incident (``nodes``: tray -> its state and reason; None without Slurm).
    """
    for incident in incidents:
        steps, tray = incident.steps, incident.subject
        is_next = steps.get(step) != DONE and all(steps.get(before) == DONE for before in NEEDS[step])
        if not is_next or incident.closed_at or (tray not in trays and step not in OF_EVENTS):
            continue
        if step != "action" or (
            incident.action in AUTOMATIC
            and incident.action in actions
            and tray not in busy
            and (nodes is None or is_drained(nodes.get(tray, ""), f"{OURS}{reason(incident)}"))
        ):
            yield incident


def is_drained(state: str, why: str = "") -> bool:
    """Whether a node's state, such as ``DRAIN+IDLE: nvlink: repair 1``, is a drain, for this reason where it is set."""
    flags, _colon, set_for = state.partition(": ")
    return "DRAIN" in flags.split("+") and (not why or set_for.partition(" : ")[0] == why)


def by_a_person(
    incidents: Iterable[Incident],
    lines: Sequence[Line],
    verdict: Mapping[str, Any],
    nodes: Mapping[str, str] | None,
    actions: Collection[str],
) -> Iterator[Incident]:
    """The incidents whose action was a person's, and whose tray a person has returned to service since.

    The verdict is newer than all that is known of the incident, and has no error of the tray.
    """
    failures = [row for row in map(mapped, as_list(verdict.get("failures"))) if row.get("severity") == ERROR]
    sick = {str(tray) for row in failures for tray in (row.get("tray"), *as_list(row.get("trays")))}
    last = {line["incident"]: line["at"] for line in lines}
    for incident in incidents:
        is_manual = incident.action not in AUTOMATIC or incident.action not in actions
        is_newer = str(verdict.get("checked_at")) > last.get(incident.id, "")
        was_drained = incident.steps.get("drain") == DONE and incident.steps.get("action") != DONE
        if is_manual and was_drained and is_newer and incident.subject not in sick and nodes is not None:
            if incident.subject in nodes and not is_drained(nodes[incident.subject]):
                yield incident


def problems(results: Any, trays: Iterable[str]) -> dict[str, str]:
    """Tray -> why its task failed, empty where it did not; of a loop over rows with a tray, or of one task for all."""
    loop = mapped(results).get("results")
    if loop is None:
        return dict.fromkeys(trays, problem(mapped(results)))
    rows = [(mapped(row), mapped(mapped(row).get("item"))) for row in as_list(loop)]
    found = {str(item["tray"]): problem(row) for row, item in rows if "tray" in item}
    return {tray: found.get(tray, "") for tray in trays}


def of_host(answers: Iterable[Mapping[str, Any]]) -> str:
    """Why the tasks of one tray failed, of which it runs one or several; empty where none did."""
    ran = [answer for answer in answers if answer and not answer.get("skipped")]
    return next(filter(None, map(problem, ran)), "") if ran else "its tasks did not run"


def problem(result: Mapping[str, Any]) -> str:
    """Why a task failed, in a sentence; empty where it did not."""
    if result.get("unreachable"):
        return "it is unreachable"
    unknown = as_list(result.get("unknown_nodes"))
    if unknown:
        return f"slurmctld does not have the node {sentence(unknown[0])}"
    if not result.get("failed"):
        return ""
    text = str(result.get("stderr") or result.get("msg") or "it failed")
    return sentence(text).rstrip(".") or "it failed"


def still_out(nodes: Mapping[str, str] | None, tray: str, detail: str) -> str:
    """Why a tray is not back after its tests; empty where it is. detail: what the report of the tests has."""
    is_out = bool(detail) if nodes is None else tray not in nodes or is_drained(nodes[tray])
    return sentence(detail).rstrip(".") or "Slurm still has it drained" if is_out else ""


def report(incidents: Iterable[Incident], lines: Sequence[Line], actions: Collection[str], folder: str) -> list[str]:
    """One line for each incident of a run: what was done last, and what is next. folder: that of the evidence."""
    details = {(line["incident"], line["step"]): line["detail"] for line in lines}
    found = []
    for row in incidents:
        failed = [step for step, state in row.steps.items() if state == FAILED]
        if row.closed_at:
            what = "is in service and the incident is closed"
        elif failed:
            what = "; ".join(f"{step} failed: {details[row.id, step]}" for step in failed)
        elif row.steps.get("action") == DONE:
            what = f"{row.action} is done, and its return goes on in the next run"
        elif row.action in AUTOMATIC and row.action in actions:
            what = f"{row.action} waits until its jobs have ended; run this again"
        else:
            what = f"{row.action} is a person's; evidence is in {folder}{row.id}, and the playbook resume returns it"
        found.append(f"{row.subject} ({row.id}, {row.code}): {what}.")
    return found
