# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verdicts, nodes and a run that does the steps of a plan, for the tests of repair."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.journal import Line
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, failure
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair import ledger, plan, policy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair.plan import Plan, Row, Settings

from ..fabrics import fabric

TWO = fabric(racks=2, trays=18, split=())
START = datetime.fromisoformat("2026-11-29T19:00:00Z")


def at(minutes: float) -> str:
    """A time so many minutes after the start."""
    return (START + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


def failed(code: str, tray: str, **more: Any) -> Finding:
    """A failure of one tray."""
    return failure(code, "hardware", f"{tray}: {code} was found.", tray, tray[:3], **more)


def verdict(failures: Iterable[Finding] = (), minutes: float = 0, of: Fabric = TWO, **more: Any) -> dict[str, Any]:
    """What a full verify writes."""
    number = len(of.trays)
    fixed = {"checked_at": at(minutes), "layers": {"hardware": "checked"}, "trays": number, "queried": number}
    return {**fixed, "failures": list(failures), **more}


def settings(**changes: Any) -> Settings:
    fixed: dict[str, Any] = {"actions": ["reset_gpu", "reboot"], "max_age": 3600, "limits": {}, "rack_share": 0.5}
    return {**fixed, "kill_jobs": False, "reset": [], **changes}  # type: ignore[typeddict-item]


def make(
    failures: Iterable[Finding] = (),
    minutes: float = 0,
    known: Sequence[Line] = (),
    nodes: Mapping[str, str] | None = None,
    blockers: Sequence[str] = (),
    of: Fabric = TWO,
    now: float | None = None,
    **changes: Any,
) -> Plan:
    """The plan of a verdict of `minutes`, made then or at `now`."""
    then = at(minutes if now is None else now)
    return plan.make(verdict(failures, minutes, of), of, nodes, known, settings(**changes), blockers, then)


def idle(of: Fabric = TWO, **changes: str) -> dict[str, str]:
    """Every tray idle in Slurm, but for some."""
    return {**dict.fromkeys(of.trays, "IDLE"), **changes}


def step(row: Row, name: str, state: str, minutes: float) -> Line:
    """The line of a step of a row's incident."""
    fixed = {"incident": row["incident"], "at": at(minutes), "step": name, "state": state}
    return {**fixed, "subject": row["tray"], "code": row["finding"], "detail": ""}  # type: ignore[typeddict-item]


def done(row: Row, steps: Iterable[str], minutes: float) -> list[Line]:
    """The lines of steps that a run has done."""
    return [step(row, name, state, minutes) for name in steps for state in ("begin", "done")]


def shown(made: Plan) -> dict[str, tuple[str, bool, str]]:
    """Subject -> action, whether it is allowed, and the finding."""
    return {row["tray"]: (row["action"], row["allowed"], row["finding"]) for row in made.rows}


def acts_on(made: Plan) -> list[str]:
    """The trays on which something is done."""
    return [row["tray"] for row in made.rows if row["allowed"] and row["action"] in policy.ON_TRAY and not row["event"]]


def open_ids(lines: Sequence[Line]) -> list[str]:
    """The incidents that are open."""
    return [id_ for id_, one in ledger.incidents(lines).items() if one.closed_at is None]
