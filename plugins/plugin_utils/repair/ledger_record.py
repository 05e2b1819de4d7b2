# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger of repair as one task reads it and appends to it, under its lock."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.nodes import OURS
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import journal, storage
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.journal import DONE, FAILED, Line
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair import ledger, policy, tickets
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair.ledger import Incident
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair.plan import Row
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import mapped


class Record:
    """The lines of a ledger at this moment. check: nothing is written, as in check mode."""

    def __init__(self, path: str, fabric: Fabric, now: str, check: bool) -> None:
        self.path, self.fabric, self.now, self.check = path, fabric, now, check
        self.lines = journal.read(path)
        self.incidents = ledger.incidents(self.lines)

    def append(self, lines: Sequence[Line]) -> None:
        if lines and not self.check:
            with storage.locked(self.path, self.now):
                journal.append(self.path, lines)
            self.lines += lines
            self.incidents = ledger.incidents(self.lines)

    def rotate(self) -> None:
        """Drop what is older than 30 days; the file is replaced as a whole."""
        kept = ledger.rotated(self.lines, self.now)
        if len(kept) < len(self.lines) and not self.check:
            with storage.locked(self.path, self.now):
                storage.write_atomic(self.path, b"".join(journal.encode([line]) + b"\n" for line in kept))
            self.lines = kept

    def begin(self, incidents: Iterable[Incident], step: str) -> None:
        self.append([self._line(one, step, journal.BEGIN) for one in incidents])

    def end(self, ends: Iterable[tuple[Incident, str]], step: str) -> None:
        """Write that a step ended. ends: incidents, each with why it failed, empty where it did not."""
        self.append([self._line(one, step, FAILED if why else DONE, why) for one, why in ends])

    def failed(self, rows: Iterable[Row]) -> list[Incident]:
        """The incidents of this run with a step that failed last."""
        known = (self.incidents.get(row["incident"]) for row in rows)
        return [one for one in known if one and FAILED in one.steps.values()]

    def rows(self, incidents: Sequence[Incident], plan: Iterable[Row], state: str) -> list[dict[str, Any]]:
        """What the tasks of a step read of each incident, with the document of its ticket in this state.

        A ticket that is open is updated.
        """
        own = {row["incident"]: row for row in plan}
        # A domain, or a tray that the fabric file no longer has, is no node.
        places = {one.id: mapped(self.fabric.trays.get(one.subject)) for one in incidents}
        states = {one.id: "update" if state == "open" and one.is_sent else state for one in incidents}
        return [
            {
                "tray": one.subject,
                "incident": one.id,
                "node": places[one.id].get("slurm_node", ""),
                "kubernetes_node": places[one.id].get("kubernetes_node", ""),
                "action": one.action,
                # As slurm_nodes takes it: without its prefix.
                "reason": policy.own_reason(one.id).removeprefix(OURS),
                "ticket": tickets.document(one, own.get(one.id), states[one.id], self.now),
            }
            for one in incidents
        ]

    def evidence(self, incident: str = "") -> str:
        """The folder of an incident's evidence, repairs/INCIDENT beside the ledger."""
        return os.path.join(os.path.dirname(self.path), "repairs", incident)

    def _line(self, one: Incident, step: str, state: str, detail: str = "") -> Line:
        return Line(
            incident=one.id, at=self.now, step=step, state=state, subject=one.subject, code=one.code, detail=detail
        )
