# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of the incidents in one run: for which a step is due, and what became of its tasks. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.journal import DONE, FAILED, Line
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.pods import is_of_a_job
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair import policy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair.ledger import Incident
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair.plan import Row
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import as_list, mapped
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import sentence

NEEDS: dict[str, tuple[str, ...]] = {
    "drain": (),
    "evidence": ("drain",),
    "spare": ("drain",),
    "ticket": (),
    # What a reset or a reboot destroys must be on disk.
    "action": ("drain", "evidence"),
    "return": ("drain", "action"),
    "resume": ("return",),
    "close": ("ticket", "resume"),
}
"""Step -> the steps that must be done before, where the plan of this run has them."""
_WITHOUT_SLURM = ("evidence", "ticket", "close")
_FREED = re.compile(r"(\S+) becomes? active")


def due(
    step: str,
    rows: Iterable[Row],
    incidents: Mapping[str, Incident],
    nodes: Mapping[str, str] | None,
    busy: Collection[str] = (),
    cordons: bool = False,
) -> Iterator[Incident]:
    """The incidents whose step is next, of those that the plan of this run has.

    An action waits while a job runs on the tray (``busy``), and is done only while Slurm has the tray drained for this
    incident (``nodes``: tray -> its state and reason). Without Slurm nodes is None, and a person drains and repairs;
    cordons: where there is Kubernetes, the drain cordons the node.
    """
    for row in rows:
        incident = incidents.get(row["incident"])
        if incident is None or not row["allowed"] or step not in row["steps"] or incident.steps.get(step) == DONE:
            continue
        tray, planned = incident.subject, row["steps"]
        possible = planned if nodes is not None else [name for name in planned if name in _WITHOUT_SLURM]
        is_next = all(incident.steps.get(before) == DONE for before in NEEDS[step] if before in possible)
        if nodes is None:
            is_next = is_next and (step in possible or (step == "drain" and cordons))
        elif step == "action":
            is_next = is_next and tray not in busy and _is_ours(nodes.get(tray, ""), incident)
        if is_next:
            yield incident


def _is_ours(state: str, incident: Incident) -> bool:
    """Whether Slurm has the tray drained, and for this incident."""
    set_for = state.partition(": ")[2].partition(" : ")[0]
    return policy.is_out(state) and set_for == policy.own_reason(incident.id)


def with_pods(results: Any) -> Iterator[str]:
    """The trays on whose nodes a pod of a job is, or whose pods could not be read; of a loop over rows with a tray."""
    for row in map(mapped, as_list(results)):
        if problem(row) or any(map(is_of_a_job, as_list(row.get("resources")))):
            yield str(mapped(row.get("item")).get("tray"))


def problems(results: Any, trays: Iterable[str]) -> dict[str, str]:
    """Tray -> why its task failed, empty where it did not; of a loop over rows with a tray, or of one task for all."""
    if not isinstance(results, list):
        return dict.fromkeys(trays, problem(mapped(results)))
    found = dict.fromkeys(trays, "")
    for row in map(mapped, results):
        item = mapped(row.get("item"))
        # Of a loop over the results of another one.
        tray = str(mapped(item.get("item")).get("tray") or item.get("tray"))
        found[tray] = found.get(tray) or problem(row)
    return found


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
    return sentence(result.get("stderr") or result.get("msg") or "").rstrip(".") or "its task failed"


def still_out(nodes: Mapping[str, str] | None, tray: str, detail: str) -> str:
    """Why a tray is not back after its tests; empty where it is. detail: what the report of the tests has."""
    is_out = bool(detail) if nodes is None else tray not in nodes or policy.is_out(nodes[tray])
    return sentence(detail).rstrip(".") or "Slurm still has it drained" if is_out else ""


def freed(results: Any, fabric: Fabric) -> list[str]:
    """The trays that left the reservation of spares, from what slurm_nodes returned."""
    texts = " ".join(map(str, as_list(mapped(results).get("changes"))))
    nodes = {node for names in _FREED.findall(texts) for node in expand(names)}
    return sorted(tray for tray, row in fabric.trays.items() if row["slurm_node"] in nodes)


def of_spare(tray: str, answer: Mapping[str, Any]) -> tuple[bool, str]:
    """(whether IMEX is ready on a spare that came into service, a line about it)."""
    facts = mapped(mapped(answer.get("ansible_facts")).get("nvlink_imex"))
    why = problem(answer) or sentence(facts.get("reason") or "its daemon is not READY").rstrip(".")
    if facts.get("ready") is True and not problem(answer):
        return True, f"{tray} is in service in place of a broken tray, with IMEX READY."
    return False, f"{tray} is in service in place of a broken tray, but IMEX is not ready ({why}): run imex."


def report(rows: Iterable[Row], incidents: Mapping[str, Incident], lines: Sequence[Line], folder: str) -> list[str]:
    """One line for each incident of a run: what was done, or what is next. folder: that of the evidence."""
    details = {(line["incident"], line["step"]): line["detail"] for line in lines}
    found = []
    for row in rows:
        one = incidents.get(row["incident"])
        if one is None:
            continue
        failed = [step for step, state in one.steps.items() if state == FAILED]
        if one.closed_at:
            what = "closed"
        elif row["brake"]:
            what = f"nothing is done: {row['brake']}"
        elif failed:
            what = "; ".join(f"{step} failed: {details[one.id, step]}" for step in failed)
        elif "action" in row["steps"] and one.steps.get("action") != DONE:
            what = f"{one.action} waits for the jobs on it; run this again when they have ended"
        elif one.event or one.steps.get("action") == DONE:
            what = "it stays open until repair reads the next verdict of verify"
        else:
            what = f"do {one.action} by hand, or add it to repair_actions; evidence is in {folder}{one.id}"
        found.append(f"{one.subject} ({one.id}, {one.code}): {what}.")
    return found
