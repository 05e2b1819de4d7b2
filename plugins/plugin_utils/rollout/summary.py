# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run has done: one line for all, and one for each thing that changed. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import fold
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize

BEFORE = "Verify reads what is there before the changes of this dry run:"
"""What stands above a verdict of layers that may still disagree, since nothing has changed."""


def of_nodes(arguments: Arguments, result: Result, check: bool) -> list[str]:
    """The result of slurm_nodes. arguments: those of the module."""
    changes = list(result.get("changes") or ())
    if arguments["state"] == "drained":
        return _drained(arguments["nodes"], result, changes, check)
    would = "would be " if check else ""
    trays = count(len(changes), "tray") if changes else "No tray"
    reservations = f"{count(len(changes), 'reservation')} {would}changed" if changes else "no reservation changes"
    active = count(int(arguments.get("active") or 0), "tray")
    # The block of an empty default partition has no trays.
    blocks = count(sum(bool(block["nodes"]) for block in arguments.get("blocks") or ()), "block")
    sentences = {
        "resumed": f"{trays} {would}resumed",
        "adopted": f"{trays} {would}given a new reason",
        "spares_absent": f"No block has spare trays: {reservations}",
        "spares_present": f"Up to {active} of each of {blocks} run jobs, the others are spares: {reservations}",
    }
    others = result.get("drained_by_others") or {} if arguments["state"] == "resumed" else {}
    kept = [f"{node}: stays drained ({reason})" for node, reason in others.items()]
    return [f"{sentences[arguments['state']]}.", *changes, *kept, *(result.get("untested") or ())]


def _drained(given: Sequence[str], result: Result, changes: list[str], check: bool) -> list[str]:
    running: Mapping[str, Sequence[str]] = result.get("running_jobs") or {}
    unknown = list(result.get("unknown_nodes") or ())
    others: Mapping[str, str] = result.get("drained_by_others") or {}
    nodes = [node for node in given if node not in unknown]
    would = "would be" if check else "is" if len(nodes) < 2 else "are"
    first = f"{count(len(nodes), 'tray') if nodes else 'No tray'} {would} drained{_names(nodes)}"
    first += f"; jobs still run on {count(len(running), 'tray')}{_names(list(running))}" if running else ""
    first += f"; slurmctld does not know {summarize(unknown)}" if unknown else ""
    kept = [f"{node}: was drained before ({reason})" for node, reason in others.items()]
    jobs = [f"{node}: still runs {', '.join(f'job {job}' for job in ids)}" for node, ids in running.items()]
    return [f"{first}.", *changes, *kept, *jobs]


def _names(names: Sequence[str]) -> str:
    return f": {fold(names)}" if names else ""


def of_rollout(
    rollout: str, finished: Mapping[str, Sequence[str]], unfinished: Sequence[str], check: bool
) -> list[str]:
    """The result of a rollout. finished: clique -> its trays on which the steps ran, none where nothing was due."""
    changed = {name: trays for name, trays in finished.items() if trays}
    rows = (
        (len(changed), "would change" if check else "changed"),
        (len(finished) - len(changed), "unchanged"),
        (len(unfinished), f"unfinished: {summarize(unfinished)}"),
    )
    first = ", ".join(f"{count(number, 'clique')} {word}" for number, word in rows if number)
    of_cliques = (f"{name}: {count(len(trays), 'tray')}: {fold(trays)}" for name, trays in changed.items())
    none = "no clique yet, since check mode places no tray" if check else "no clique"
    return [f"Rollout {rollout}: {first or none}.", *of_cliques]


def of_site(plan: Result, verified: Result, rendered: Result, rollout: Result, check: bool) -> tuple[list[str], str]:
    """(lines of text, failure) of the playbook site; failure: why it fails as a sentence, empty where it does not.

    The results of run_check, verify, fabric_render and the rollout of IMEX, empty where the run has left the phase out.
    """
    verdict = verified.get("text", [])
    is_before = bool(verdict) and check and not verified["verdict"]["ok"]
    text = [*[BEFORE] * is_before, *verdict[1:], *verdict[:1], *rendered.get("domain_map", ())]
    if "render_dir" in rendered:
        text.append(f"Report: {rendered['render_dir']}/report/index.html.")
    text += rollout.get("text", ())
    if rollout.get("unfinished"):
        return text, rollout["msg"]
    if verdict and not verified["verdict"]["ok"] and not is_before:
        return text, f"{verified['summary']} See the verdict above."
    return [*text, f"Site: {plan['msg']}"], ""
