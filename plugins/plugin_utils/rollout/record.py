# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of a rollout in one run: its waves, and what became of their cliques."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import equal
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout import progress_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout.progress_file import (
    FAILED,
    PENDING,
    SKIPPED,
    STARTED,
    Unfinished,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout.waves import Wave

# States of a tray in a wave, besides FAILED and SKIPPED. Refused: its clique cannot be changed, so no tray of it is.
OBSERVED, REFUSED, PASSED = "observed", "refused", "passed"


class Row(TypedDict, total=False):
    """The last result of a tray in a wave. due: whether changes are due on it. reason: of a failed or refused tray."""

    state: str
    reason: str
    due: bool


Rows = Mapping[str, Row]
"""Tray -> its last result. A tray lost during the wave stays `observed`."""


@dataclass
class Record:
    """What a run knows of a rollout; plain data, stored as JSON.

    waves: the cliques of each wave. trays: tray -> (clique, node name in Slurm). cliques: the unfinished ones, as in
    the progress file. restarted: those that an earlier run started or failed. finished: clique -> its trays on which
    the steps ran. wave: the trays of the wave that runs. selected: those of them that are changed.
    """

    progress_file: str
    stop_after: int
    waves: list[list[str]]
    trays: dict[str, Sequence[str]]
    cliques: dict[str, Unfinished]
    restarted: list[str]
    finished: dict[str, list[str]] = field(default_factory=dict)
    wave: list[str] = field(default_factory=list)
    selected: list[str] = field(default_factory=list)

    def by_clique(self, trays: Iterable[str]) -> Wave:
        """Clique -> those of these trays that are in it; trays without a place are left out."""
        return equal((self.trays[tray][0], tray) for tray in trays if tray in self.trays)

    def nodes(self, trays: Iterable[str]) -> list[str]:
        """The node names of these trays in Slurm."""
        return [self.trays[tray][1] for tray in trays]

    def drop_unchanged(self, unchanged: Iterable[str]) -> Wave:
        """Finish each clique of which all trays are unchanged; the other cliques.

        One that a killed run had started may look complete on its trays, and is not.
        """
        due, trays = self.by_clique(self.trays), set(unchanged)
        for name in [name for name in due if name not in self.restarted and trays.issuperset(due[name])]:
            del due[name]
            self.cliques.pop(name, None)
            self.finished[name] = []
        return due

    def why_stop(self) -> str:
        """Why no further wave may start; empty if one may. A failed first wave, the canary, stops the rollout."""
        failed = {name for name, row in self.cliques.items() if row["state"] == FAILED}
        failed.intersection_update(itertools.chain(*self.waves))
        if failed.intersection(self.waves[0]):
            return "the canary failed"
        return f"{count(len(failed), 'clique')} failed" if len(failed) >= self.stop_after else ""

    def start(self, trays: list[str]) -> None:
        """Start the wave of these trays."""
        self.wave, self.selected = trays, []
        self.cliques.update({name: {"state": STARTED, "trays": {}} for name in self.by_clique(trays)})

    def select(self, rows: Rows) -> None:
        """Select the trays of all cliques in which changes are due on at least one tray."""
        self.selected = []
        for name, trays in self.by_clique(self.wave).items():
            found = [rows.get(tray, {}) for tray in trays]
            is_due = name in self.restarted or any(row.get("due") for row in found)
            # No tray is drained for a change that one of them would refuse.
            if is_due and not any(row.get("state") == REFUSED for row in found):
                self.selected += [tray for tray in trays if rows.get(tray, {}).get("state") == OBSERVED]

    def finish(self, rows: Rows) -> dict[str, Unfinished]:
        """Add the result of the wave, if one runs; its unfinished cliques."""
        cliques = self.by_clique(self.wave)
        unfinished = evaluate(cliques, rows)
        for name, trays in cliques.items():
            self.cliques.pop(name, None)
            if name not in unfinished:
                self.finished[name] = [tray for tray in trays if tray in self.selected]
        self.cliques.update(unfinished)
        self.wave = []
        return unfinished


def new(fabric: Fabric, waves: Sequence[Wave], path: str, stop_after: int) -> Record:
    """All cliques of the run are pending; unfinished ones of an earlier run that are not in this one stay.

    But for a clique without trays: those are in others now, so no run could finish it. path: the progress file.
    """
    earlier = progress_file.read(path) if os.path.exists(path) else {}
    cliques = {name: row for name, row in earlier.items() if fabric.members.get(name)}
    restarted = [name for name, row in cliques.items() if row["state"] in (STARTED, FAILED)]
    trays: dict[str, Sequence[str]] = {}
    for name, members in itertools.chain.from_iterable(wave.items() for wave in waves):
        # Not pending: this run may be killed too.
        cliques[name] = {"state": STARTED if name in restarted else PENDING, "trays": {}}
        trays.update({tray: (name, fabric.trays[tray]["slurm_node"]) for tray in members})
    return Record(path, stop_after, [list(wave) for wave in waves], trays, cliques, restarted)


def evaluate(cliques: Mapping[str, Sequence[str]], rows: Rows) -> dict[str, Unfinished]:
    """The unfinished cliques of a wave. A clique is finished only when every tray of it has passed."""
    unfinished: dict[str, Unfinished] = {}
    for name, trays in cliques.items():
        left = {tray: rows.get(tray, {"state": SKIPPED}) for tray in trays}
        reasons = {tray: _reason(row) for tray, row in left.items() if row["state"] != PASSED}
        if reasons:
            is_skipped = all(left[tray]["state"] == SKIPPED for tray in reasons)
            unfinished[name] = {"state": SKIPPED if is_skipped else FAILED, "trays": reasons}
    return unfinished


def _reason(row: Row) -> str:
    if row["state"] == SKIPPED:
        return "it was unreachable when the wave started"
    return row.get("reason") or "it became unreachable during the wave"
