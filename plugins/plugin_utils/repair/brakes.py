# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The limits of repair: how many trays may be taken out of service, and what a person must reset. Pure functions.

Where a limit is exceeded, its scope (hour, clique NAME, domain NAME) stays closed for new incidents until a person
resets it; those that are open go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.journal import DONE, REFUSED, Line
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair import RepairError, ledger
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair.policy import domain_of, is_out
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import nearest, sentence, similar

LIMITS = {"hour": 4, "clique": 2, "domain": 4}
"""Trays in an hour in all; trays out of service of a clique, and of a domain."""


def limits(given: Mapping[str, int]) -> dict[str, int]:
    """All limits, of which a site has set some."""
    for name, number in given.items():
        if name not in LIMITS:
            raise RepairError(f"repair_limits: {sentence(name)} is no limit{nearest(name, LIMITS)}")
        if not isinstance(number, int) or number < 0:
            raise RepairError(f"repair_limits.{name}: {sentence(str(number))} is not a number of trays; set 0 or more")
    return {**LIMITS, **given}


def resets(names: Sequence[str], fabric: Fabric, now: str) -> list[Line]:
    """A line for each name that a person resets: all, hour, a clique, a domain, or a tray that was repaired."""
    known = {"all", "hour", *fabric.cliques, *fabric.domains, *fabric.trays}
    for name in names:
        if name not in known:
            close = similar(name, known, "; name a tray, a clique, a domain, hour or all")
            raise RepairError(f"repair_reset: {sentence(name)} is not in the fabric file{close}")
    return [_line("reset", DONE, name, "a person has reset it", now) for name in names]


def _line(step: str, state: str, subject: str, detail: str, now: str) -> Line:
    return Line(incident="", at=now, step=step, state=state, subject=subject, code="", detail=detail)


class Brakes:
    """What is out of service, and what is closed. lines: those of the ledger, with the resets of this run."""

    def __init__(
        self, fabric: Fabric, nodes: Mapping[str, str], lines: Sequence[Line], given: dict[str, int], now: str
    ) -> None:
        self.fabric, self.limits, self.now = fabric, limits(given), now
        known = [one for one in ledger.incidents(lines).values() if not one.event]
        since = ledger.when(now) - timedelta(hours=1)
        since = max([since, *(at for name, at in ledger.resets(lines).items() if name in ("all", "hour"))])
        self.hour = {one.id for one in known if ledger.when(one.opened_at) > since}
        self.out = {one.subject for one in known if one.closed_at is None}
        self.out |= {tray for tray, state in nodes.items() if is_out(state)}
        self.out &= fabric.trays.keys()
        self.closed = {scope: line["detail"] for scope, line in ledger.tripped(lines).items()}
        self.lines: list[Line] = []

    def refuse(self, tray: str) -> str:
        """Why this tray may not be taken out of service; empty where it may, and then it counts as out."""
        for scope, out, what in self._scopes(tray):
            limit = self.limits[scope.partition(" ")[0]]
            if scope not in self.closed and len(out - {tray}) >= limit:
                kind, *name = scope.split()
                why = f"{count(len(out - {tray}), 'tray')} {what}, and repair_limits.{kind} is {limit}"
                self.closed[scope] = f"{why}; find the cause, then run this with -e repair_reset={(name or [kind])[0]}"
                self.lines.append(_line("brake", REFUSED, scope, self.closed[scope], self.now))
            if scope in self.closed:
                return self.closed[scope]
        self.out.add(tray)
        self.hour.add(tray)
        return ""

    def _scopes(self, tray: str) -> Iterator[tuple[str, set[str], str]]:
        clique, domain = self.fabric.trays[tray]["clique"], domain_of(self.fabric, tray)
        members = self.out.intersection(self.fabric.members[clique])
        yield f"clique {clique}", members, f"of clique {clique} are out of service"
        members = {one for one in self.out if domain_of(self.fabric, one) == domain}
        yield f"domain {domain}", members, f"of NVLink domain {domain} are out of service"
        # The last one: what a closed clique refuses has the same reason in the next run.
        yield "hour", self.hour, "in an hour"
