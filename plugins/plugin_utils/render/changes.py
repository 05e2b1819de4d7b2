# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What changed since the last report: report.json has the numbers of a report, to which the next one is compared.

Pure. A report with the numbers of the last one leaves report.json byte by byte as it is: rendering twice changes
nothing, and the changes stay on the page until there are new ones.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import view
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.capacity import Capacity

PATH = "report/report.json"
SCHEMA_VERSION = 2
# Who changes everything at once reads the sums.
MAX_ROWS = 200
NOTHING = "-"
_TRAY = ("clique", "health", "state")


@dataclass(frozen=True)
class Changes:
    """Rows are subject, before and after; sums are a name and its two numbers, only those that differ.

    since: when the state of the last report was written, empty where it had no time.
    """

    since: str
    sums: tuple[tuple[str, int, int], ...]
    rows: tuple[tuple[str, str, str], ...]
    more: int


def text_and_changes(
    shown: view.Figure, capacities: list[Capacity], written_at: str | None, earlier: Mapping[str, Any] | None
) -> tuple[str, Changes | None]:
    """The next report.json, and what to show as changed: None where no report came before."""
    numbers = _numbers(shown, capacities)
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "numbers": numbers,
        "written_at": written_at,
        "changes": None,
    }
    if earlier is not None and is_report(earlier):
        if earlier["numbers"] == numbers:
            document = {key: earlier[key] for key in document}
        else:
            document["changes"] = _changes(earlier["numbers"], numbers, earlier["written_at"])
    changes = document["changes"]
    signed = {**document, "sha256": _digest(document)}
    return json.dumps(signed, sort_keys=True, ensure_ascii=False) + "\n", changes and _shown(changes)


def is_report(document: Any) -> bool:
    """Whether data read from report.json is what this version wrote: none that a person has changed is compared."""
    if not isinstance(document, dict) or document.get("schema_version") != SCHEMA_VERSION:
        return False
    return document.get("sha256") == _digest({key: value for key, value in document.items() if key != "sha256"})


def _digest(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _shown(changes: Mapping[str, Any]) -> Changes:
    return Changes(
        since=changes["since"] or "",
        sums=tuple((word, before, after) for word, before, after in changes["sums"]),
        rows=tuple((subject, before, after) for subject, before, after in changes["rows"]),
        more=changes["more"],
    )


def _numbers(shown: view.Figure, capacities: list[Capacity]) -> dict[str, Any]:
    trays = [*shown.trays, *shown.unplaced]
    findings = {_finding(finding): str(finding.get("severity")) for finding in shown.findings}
    severities = [finding.get("severity") for finding in shown.findings]
    return {
        "sums": {
            "trays": len(trays) - len(shown.unplaced),
            "unplaced trays": len(shown.unplaced),
            **{f"{word} trays": sum(tray.health == word for tray in trays) for word in view.HEALTH},
            "stale trays": sum(tray.state == model.STALE for tray in trays),
            "working trays": sum(capacity.working for capacity in capacities),
            "largest job inside one clique": max((capacity.largest for capacity in capacities), default=0),
            "errors": severities.count("error"),
            "warnings": severities.count("warning"),
        },
        "trays": {tray.name: [tray.clique.name if tray.clique else NOTHING, tray.health, tray.state] for tray in trays},
        "findings": findings,
    }


def _finding(finding: model.Finding) -> str:
    """The name of a finding: its code and its subject, without the message, which may contain numbers."""
    subject = view.subject(finding)
    return f"{finding.get('code')} of {subject}" if subject else str(finding.get("code"))


def _changes(before: Mapping[str, Any], after: Mapping[str, Any], since: str | None) -> dict[str, Any]:
    rows = []
    for name in model.natural_sorted({*before["trays"], *after["trays"]}):
        old, new = before["trays"].get(name), after["trays"].get(name)
        if old == new:
            continue
        if old is None or new is None:
            rows.append([name, _tray(old), _tray(new)])
        else:
            rows += [[f"{name}, {word}", old[at], new[at]] for at, word in enumerate(_TRAY) if old[at] != new[at]]
    for name in sorted({*before["findings"], *after["findings"]}):
        old, new = before["findings"].get(name), after["findings"].get(name)
        if old != new:
            rows.append([name, old or NOTHING, new or NOTHING])
    words = [*after["sums"], *(word for word in before["sums"] if word not in after["sums"])]
    sums = [[word, before["sums"].get(word, 0), after["sums"].get(word, 0)] for word in words]
    return {
        "since": since,
        "sums": [row for row in sums if row[1] != row[2]],
        "rows": rows[:MAX_ROWS],
        "more": max(len(rows) - MAX_ROWS, 0),
    }


def _tray(words: list[str] | None) -> str:
    return NOTHING if words is None else ", ".join(words)
