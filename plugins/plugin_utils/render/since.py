# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What changed since an earlier verdict.json: trays, findings, places and incidents as lines of text. Pure.

Layers that both runs of verify have checked are compared, and states in Slurm where both have read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import bounded
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import (
    equal,
    folded,
    names,
    natural_sorted,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import CHECKED, Finding, Verdict
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import INFO
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import RenderError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import RenderContext
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.verdict import state_of, verdict, worst
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair import ledger
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import as_list, mapped
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import node_states
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import sentence

MAX_LINES = 100
"""The further ones are counted."""
MAX_LENGTH = 1000


def earlier(document: Any, path: str, now: Verdict | None) -> Verdict:
    """The verdict that was read from path; RenderError for any other content, or where now has none to compare."""
    then, why = verdict(document, path), ""
    if now is None:
        why = "there is no verdict to compare it with; set verdict_file to that of the last verify"
    elif (of := then.get("fabric_file")) != (mine := now.get("fabric_file")):
        why = f"is about {of}, and verdict_file about {mine}; give one of the same fabric file"
    elif not "" < then["checked_at"] < now["checked_at"]:
        why = f"is of {then['checked_at'] or 'no time'}, and verdict_file of {now['checked_at']}; give an earlier one"
    elif bool(then.get("queried")) is not bool(now.get("queried")):
        why = "one of it and verdict_file is of a run with --tags quick; give two of the same kind"
    if why:
        raise RenderError(f"report_since: {path}: {why}.")
    return then


def lines(fabric: model.Fabric, context: RenderContext) -> list[str]:
    """A title and a line for each change, printable; none without an earlier verdict."""
    then, now = context.since, context.verdict
    if then is None or now is None:
        return []
    checked = {layer for layer, word in now["layers"].items() if word == CHECKED == then["layers"].get(layer)}
    rows, rows_now = ([row for row in one["failures"] if row["layer"] in checked] for one in (then, now))
    is_known = None not in (then["slurm_nodes"], now["slurm_nodes"])
    states, states_now = (
        _states(fabric, found, one["slurm_nodes"] if is_known else None)
        for found, one in ((rows, then), (rows_now, now))
    )
    places = {
        str(tray): f"clique {clique}" for clique, of in mapped(then.get("placed")).items() for tray in as_list(of)
    }
    places_now = {tray: f"clique {row['clique']}" for tray, row in fabric.trays.items()} if places else {}
    found, found_now = _findings(rows), _findings(rows_now)
    changed = [
        *_differences(states, states_now),
        *(f"new {what}" for what in _named(found_now - found)),
        *(f"no longer {what}" for what in _named(found - found_now)),
        *_differences(places, places_now),
        *_incidents(context, then["checked_at"]),
    ]
    title = f"Since {then['checked_at']}, in the layers {', '.join(sorted(checked))}"
    shown = [f"{title}:" if changed else f"{title}, nothing changed", *bounded(changed, MAX_LINES, "change")]
    return [sentence(line, MAX_LENGTH) for line in shown]


def _states(fabric: model.Fabric, failures: Iterable[Finding], nodes: Mapping[str, str] | None) -> dict[str, str]:
    """Tray -> its state by its worst failure and, where these are known, by Slurm."""
    sick = {tray: state_of(row) for tray, row in worst(failures).items()}
    slurm = node_states.applied(model.State(), fabric, nodes or {}).trays
    words = {tray: [sick.get(tray, model.HEALTHY)] for tray in fabric.trays}
    return {tray: ", ".join([*of, *([slurm[tray]["state"]] if tray in slurm else [])]) for tray, of in words.items()}


def _differences(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    both = ((tray, before.get(tray, "none"), after.get(tray, "none")) for tray in natural_sorted({*before, *after}))
    for what, trays in equal((f"{old} -> {new}", tray) for tray, old, new in both if old != new).items():
        yield f"{folded(trays)}: {what}"


def _findings(failures: Iterable[Finding]) -> set[tuple[str, str]]:
    rows = ((f"{row['severity']} {row['code']} ({row['layer']})", row) for row in failures if row["severity"] != INFO)
    return {(what, subject) for what, row in rows for subject in row["trays"] or [row["clique"] or "the cluster"]}


def _named(found: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{what}: {names(subjects)}" for what, subjects in equal(sorted(found)).items()]


def _incidents(context: RenderContext, since: str) -> Iterator[str]:
    for one in ledger.incidents(context.repairs).values():
        if one.opened_at > since:
            yield f"incident {one.id} opened: {one.code}"
        if (one.closed_at or "") > since:
            yield f"incident {one.id} closed"
