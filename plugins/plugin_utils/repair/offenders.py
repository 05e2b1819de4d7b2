# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Repeat offenders and the hours that they cost, from the lines of the ledger. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.journal import DONE, Line
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import equal, natural_key
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair.ledger import Incident, incidents, when


@dataclass(frozen=True)
class Offender:
    """A part, how many incidents it had, and the hours that its tray was out of service for them.

    kind: gpu, link, tray or switch_port.
    """

    kind: str
    name: str
    count: int
    hours: float


def offenders(lines: Sequence[Line], now: str) -> list[Offender]:
    """All parts with incidents, those with most first. now: until when the hours of open incidents count."""
    parts = equal((part, _hours(one, now)) for one in incidents(lines).values() for part in _parts(one))
    found = [Offender(kind, name, len(hours), round(sum(hours), 2)) for (kind, name), hours in parts.items()]
    return sorted(found, key=lambda one: (-one.count, one.kind, natural_key(one.name)))


def _parts(one: Incident) -> Iterator[tuple[str, str]]:
    if one.port:
        yield "switch_port", one.port
    if one.event:
        return
    yield "tray", one.subject
    if one.gpu is not None:
        yield "gpu", f"{one.subject} GPU {one.gpu}"
        if one.link is not None:
            yield "link", f"{one.subject} GPU {one.gpu} link {one.link}"


def _hours(one: Incident, now: str) -> float:
    """Between the drain of an incident and its end, or until now."""
    if one.steps.get("drain") != DONE:
        return 0.0
    resumed = one.at["resume"] if one.steps.get("resume") == DONE else None
    end = when(resumed or one.closed_at or now)
    return max(0.0, (end - when(one.at["drain"])).total_seconds() / 3600)
