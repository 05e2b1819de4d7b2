# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger of repair: the incidents of trays, from the lines of its journal. Pure functions.

A step has a line before it (begin) and one after it (done or failed); so a step without an end was killed, and is done
again. Lines of step `open` have, as JSON in detail, what the incident is; a later one changes the action, for which the
steps from `ticket` on are done again. Lines of step `brake` and `reset` have no incident (brakes.py).
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file as files
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import journal
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.journal import BEGIN, DONE, REFUSED, Line
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair import RepairError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import whole

STEPS = ("open", "drain", "evidence", "spare", "ticket", "action", "return", "resume", "close")
KEPT = timedelta(days=30)
_AGAIN = STEPS[STEPS.index("ticket") :]


@dataclass(frozen=True)
class Incident:
    """One fault of a tray, or of a domain where event is true.

    steps: step -> state of its last line. at: step -> time of its last line. failed: step -> how often it began without
    an end that is done, since a person reset the tray.
    """

    id: str
    subject: str
    code: str
    action: str
    opened_at: str
    closed_at: str | None
    steps: dict[str, str]
    gpu: int | None = None
    link: int | None = None
    port: str | None = None
    event: bool = False
    at: dict[str, str] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)

    @property
    def is_sent(self) -> bool:
        """Whether the ticket system has its ticket."""
        return "ticket" in self.at and not self.failed.get("ticket")


def path(fabric_file: str, state_dir: str | None) -> str:
    """The ledger of a fabric file: fabric.repairs.jsonl beside its state file."""
    return files.companion(fabric_file, "repairs.jsonl", state_dir)


def when(at: Any) -> datetime:
    """A time of RFC 3339; RepairError for anything else."""
    try:
        found = datetime.fromisoformat(at)
        if found.tzinfo is not None:
            return found
    except (TypeError, ValueError):
        pass
    raise RepairError(f"The time {str(at)[:40]!r} is not of RFC 3339; run the playbook verify again, or correct it")


def incidents(lines: Sequence[Line]) -> dict[str, Incident]:
    """ID -> incident, in the order in which they were opened."""
    found: dict[str, Incident] = {}
    for line in lines:
        if line["step"] == "reset":
            for one in found.values():
                if one.subject == line["subject"]:
                    one.failed.clear()
        if not line["incident"] or line["state"] == REFUSED:
            continue
        if line["step"] == "open":
            found[line["incident"]] = _opened(line, found.get(line["incident"]))
        elif line["incident"] in found:
            _step(found, line)
    return found


def _opened(line: Line, known: Incident | None) -> Incident:
    what = journal.content(line["detail"])
    steps = {} if known is None else {step: state for step, state in known.steps.items() if step not in _AGAIN}
    port = what.get("port")
    action, at = str(what.get("action") or "watch"), {**(known.at if known else {}), "open": line["at"]}
    first = (line["incident"], line["subject"], line["code"], action, known.opened_at if known else line["at"], None)
    about = (whole(what.get("gpu")), whole(what.get("link")), port if isinstance(port, str) else None)
    is_event = what.get("event") is True
    return Incident(*first, {**steps, "open": DONE}, *about, is_event, at, known.failed if known else {})


def _step(found: dict[str, Incident], line: Line) -> None:
    one, step = found[line["incident"]], line["step"]
    one.steps[step], one.at[step] = line["state"], line["at"]
    if line["state"] == BEGIN:
        one.failed[step] = one.failed.get(step, 0) + 1
    elif line["state"] == DONE:
        one.failed.pop(step, None)
        if step == "close":
            found[one.id] = Incident(**{**vars(one), "closed_at": line["at"]})


def opened(id_: str, now: str, subject: str, code: str, what: Mapping[str, Any]) -> Line:
    """The line that opens an incident, or changes its action. what: action, reason, gpu, link, port, event."""
    detail = json.dumps(
        {key: value for key, value in what.items() if value is not None and value is not False}, sort_keys=True
    )
    return Line(incident=id_, at=now, step="open", state=DONE, subject=subject, code=code, detail=detail)


def new_id(subject: str, now: str, known: Container[str]) -> str:
    """The ID of a new incident, such as r01t04-20261129T191500Z; unlike all that are known."""
    first = f"{subject}-{when(now):%Y%m%dT%H%M%SZ}"
    number, name = 1, first
    while name in known:
        number += 1
        name = f"{first}-{number}"
    return name


def rotated(lines: Sequence[Line], now: str) -> list[Line]:
    """The lines to keep: all of the last 30 days, those of open incidents, and brakes that nobody has reset."""
    since = when(now) - KEPT
    is_open = {id_ for id_, one in incidents(lines).items() if one.closed_at is None}
    brakes = tripped(lines)
    return [
        line
        for line in lines
        if when(line["at"]) >= since or line["incident"] in is_open or line is brakes.get(line["subject"])
    ]


def tripped(lines: Sequence[Line]) -> dict[str, Line]:
    """Scope of a brake (hour, clique NAME, domain NAME) -> the line of its limit that nobody has reset since."""
    found: dict[str, Line] = {}
    for line in lines:
        if line["step"] == "brake":
            found[line["subject"]] = line
        elif line["step"] == "reset":
            found = {scope: row for scope, row in found.items() if line["subject"] not in ("all", *scope.split())}
    return found


def resets(lines: Sequence[Line]) -> dict[str, datetime]:
    """Name -> when a person reset it last."""
    return {line["subject"]: when(line["at"]) for line in lines if line["step"] == "reset"}
