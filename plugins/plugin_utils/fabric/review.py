# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A discovery for a person: a table of the changes, Markdown for a pull request, lines of trays. Pure."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, one_line
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.differences import structure_diff, tray_changes
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    CONFLICT,
    STALE,
    UNPLACED,
    Change,
    Fabric,
    State,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.proposal import Proposal
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.host_errors import MAX_LENGTH
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import (
    equal,
    folded,
    grouped,
    limited,
    names,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding

# A person reads a screen or two; the Markdown has all rows.
MAX_ROWS = 40
HEADER = ("tray", "from", "to", "why", "gate")
NONE = "none"

_KEEPS = re.compile(r"^Tray \S+ (keeps its place in \S+|gets no place): ")
# Nothing else of the run shows that a value has no effect.
_SHOWN = ("name_conflict", "domain_incomplete", "gpu_missing")
_TRAY = re.compile(r"^Tray \S+ ")


def table(changes: Iterable[Change], gates: Mapping[str, Iterable[str]], more_in: str = "") -> list[str]:
    """The changes with a header, in columns: the trays that change alike share a row. Empty without any.

    gates: tray -> the gates that object to its change. more_in: where further changes are, of a short table for a
    terminal; empty for all rows and trays.
    """
    trays_of = equal(
        ((row["from"] or NONE, row["to"] or NONE, row["why"], ", ".join(gates.get(row["tray"], "-"))), row["tray"])
        for row in changes
    )
    if not trays_of:
        return []
    groups, more = limited(trays_of, MAX_ROWS if more_in else len(trays_of))
    length = MAX_LENGTH if more_in else sys.maxsize
    shown = [HEADER, *((names(trays, length), *same) for same, trays in groups)]
    # The two last columns are free text.
    widths = [max(len(row[at]) for row in shown) for at in range(len(HEADER))]
    lines = ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown]
    if more:
        lines.append(f"and {count(more, 'more change')}, all of them in {more_in}")
    return lines


def all_changes(before: Fabric, after: Fabric, gates: Mapping[str, Iterable[str]]) -> list[str]:
    """All that a file changes of another, in lines for a terminal; gates: as in table()."""
    more_in = "the output of --check --diff"
    rest = structure_diff(before, after)
    more = [f"and {count(len(rest) - MAX_ROWS, 'more change')}, in {more_in}"] if len(rest) > MAX_ROWS else []
    return [*table(tray_changes(before, after), gates, more_in), *rest[:MAX_ROWS], *more]


def objection_lines(objections: Iterable[Finding]) -> list[str]:
    """A line for each gate that objects."""
    return [f"stopped by gate {row['code']}: {row['message']}" for row in objections]


def markdown(proposed: Proposal, before: Fabric, gates: Mapping[str, Iterable[str]], accept: str) -> str:
    """The proposal as Markdown for a pull request; the same proposal gives the same text.

    before: the accepted fabric. gates: as in table(). accept: the command that accepts it. What trays and services said
    is code, in which nothing is a link or a format.
    """
    made_from = f"sha256 {proposed.base_sha256 or 'none'} -> {proposed.sha256}, proposed at {proposed.proposed_at}"
    parts = {
        "Proposal of the next fabric file": [made_from],
        "Accept exactly this proposal with": [accept],
        "Gates that object": objection_lines(proposed.objections),
        "Trays": table(tray_changes(before, proposed.fabric), gates),
        "Domains, cliques and blocks": structure_diff(before, proposed.fabric),
    }
    return "\n".join(f"# {title}\n\n{_code(lines or ['none'])}" for title, lines in parts.items())


def _code(lines: Iterable[str]) -> str:
    return "".join(f"    {one_line(line)}\n" for line in lines)


def state_lines(fabric: Fabric, state: State, targets: Collection[str]) -> list[str]:
    """A line for each state and cause that somebody should look at, with the trays; the next fabric and its state.

    targets: the hosts of this run; causes, and hosts that are no trays, are named for these alone.
    """
    lines: list[str] = []
    for word in (STALE, CONFLICT, UNPLACED):
        trays = {
            name: row
            for name, row in state.trays.items()
            if row["state"] == word and not (word == UNPLACED and name in fabric.trays)
        }
        reasons = ((name, _reason(row["findings"])) for name, row in trays.items() if name in targets)
        lines.extend(f"{word}: {text}" for text in grouped(reasons))
        others = [name for name in trays if name not in targets]
        lines.extend([f"{word}: {folded(others)}, not in this run"] if others else [])
    no_trays = [
        name for row in state.findings if row["code"] == "not_a_tray" and (name := row["tray"]) and name in targets
    ]
    if no_trays:
        lines.append(f"not a tray: {folded(no_trays, 'host')}: no GPU found; leave them out of fabric_hosts")
    lines += [row["message"] for row in state.findings if row["code"] in _SHOWN]
    return lines


def _reason(findings: Iterable[Finding]) -> str:
    """Why a tray is stale, in conflict or without a place: of its findings the one about its place."""
    messages = list(_of_place(findings))
    if not messages:
        return "not observed there yet"
    frame = next((message for message in messages if _KEEPS.match(message)), messages[0])
    text = _TRAY.sub("", _KEEPS.sub("", frame))
    return text.rpartition("; ")[0] or text


def _of_place(findings: Iterable[Finding]) -> Iterator[str]:
    return (row["message"] for row in findings if row.get("severity") != "info" and row["code"] != "acceptance_pending")
