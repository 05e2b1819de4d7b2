# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one run of imex_domain decides for a clique, from what its members said in the phase before: pure.

A row is what the module returned on one member in one phase. A member without a row was not reached. Every decision is
taken from rows of one clique only, so that no clique waits for, or stops, another.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import verdict
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Clique:
    """A clique of the fabric file: its trays in the list's order with their lines, and their names in Slurm."""

    name: str
    trays: tuple[str, ...]
    entries: tuple[str, ...]
    slurm_nodes: tuple[str, ...] = ()

    def entry_of(self, tray: str) -> str:
        return self.entries[self.trays.index(tray)]


@dataclass(frozen=True)
class Decision:
    """For all members alike.

    ``restart``: every running daemon of the clique stops before any starts. ``generation``: of the list.
    ``outdated``: members that do not get the list now. ``held``: why nothing may be touched, None where all is well;
    ``findings`` then holds the reason, and otherwise who owes.
    """

    restart: bool
    generation: int
    outdated: tuple[str, ...]
    held: str | None = None
    findings: tuple[dict[str, Any], ...] = field(default=())


def decide(
    clique: Clique, sha256: str, rows: Mapping[str, Row], play: Collection[str], allow_outdated: Collection[str]
) -> Decision:
    """From the rows of `look`.

    ``play``: the hosts that this run addresses, reached or not. ``allow_outdated``: trays that the site lets stay behind.
    """
    here = {tray: rows[tray] for tray in clique.trays if tray in rows}
    sound = {tray: row for tray, row in here.items() if not row.get("failed")}
    broken = {tray: row for tray, row in here.items() if row.get("failed")}
    restart = any(row["restart_clique"] for row in sound.values())
    away = [tray for tray in clique.trays if tray not in here]
    outside = [tray for tray in away if tray not in play]
    records = _records(clique, sound, outside)
    generation = _generation(sha256, [*records.values(), *(row.get("record") for row in sound.values())], clique.name)
    if restart:
        # What runs on and holds another list would be cut off from the rest, both ways, until all restart.
        running = sorted(tray for tray, row in broken.items() if row.get("running"))
        if running:
            return _hold(
                clique,
                generation,
                "imex_change_blocked",
                f"IMEX of clique {clique.name} must restart as a whole, and {running[0]} cannot take part"
                f" ({broken[running[0]].get('msg', 'it failed')}) but runs its daemon; correct that first, or stop the"
                " daemon there.",
                running[0],
            )
        partial = [
            tray
            for tray in outside
            if tray not in allow_outdated and (tray not in records or records[tray]["sha256"] != sha256)
        ]
        if partial:
            return _hold(
                clique,
                generation,
                "imex_clique_partial",
                f"IMEX of clique {clique.name} must restart as a whole, and this run leaves out {summarize(partial)}; run"
                " it on the whole clique (serial must not cut it), or name those that may stay behind in imex_allow_outdated.",
                None,
            )
    elif any(tray in records and records[tray]["sha256"] != sha256 and tray not in allow_outdated for tray in outside):
        other = [tray for tray in outside if tray in records and records[tray]["sha256"] != sha256]
        return _hold(
            clique,
            generation,
            "imex_clique_partial",
            f"{summarize(other)} of clique {clique.name} hold another list and are not part of this run; run it on the"
            " whole clique, or name them in imex_allow_outdated.",
            None,
        )
    outdated = tuple(
        tray
        for tray in clique.trays
        if tray in broken
        or (
            (tray in away and (tray in play or tray in allow_outdated))
            and not (tray in records and records[tray]["sha256"] == sha256)
        )
    )
    return Decision(restart, generation, outdated, None, tuple(owes(clique, outdated, generation)))


def is_done(own: Row, decision: Decision) -> bool:
    """Whether a tray is as the decision wants it, by its own look."""
    return not _to_do(own, decision) and (own.get("record") or {}).get("outdated") == list(decision.outdated)


def _to_do(own: Row, decision: Decision) -> list[str]:
    """What stop_and_write has to do on a tray, in words, but for the note of who owes the list."""
    todo = [*own.get("restart_clique", ()), *own.get("pending", ["be looked at"])]
    if decision.restart and not todo:
        todo.append("restart with the clique")
    if (own.get("record") or {}).get("generation") != decision.generation:
        todo.append(f"generation {decision.generation} of the list")
    return todo


def due(
    clique: Clique,
    sha256: str,
    rows: Mapping[str, Row],
    play: Collection[str],
    allow_outdated: Collection[str],
    tray: str,
) -> list[str]:
    """Why the change would not pass a tray by, in words; empty where it would. Arguments as of decide().

    Less than a run of the role may write does not count: who owes the list, which is a note for people, and the
    approval, which is gone after each boot. Neither needs a daemon stopped.
    """
    own = rows.get(tray)
    if own is None or own.get("failed"):
        return due_alone(own)
    decision = decide(clique, sha256, rows, play, allow_outdated)
    if decision.held is not None:
        return [decision.held]
    todo = _to_do(own, decision)
    if not todo and not own["running"]:
        todo.append("start nvidia-imex.service")
    others = [other for other in clique.trays if other != tray and other in rows and not rows[other].get("failed")]
    if not todo and not verdict.settled(own["facts"], len(clique.trays), [clique.entry_of(other) for other in others]):
        todo.append("wait until it sees the other members")
    return todo


def due_alone(own: Row | None) -> list[str]:
    """The same of a tray whose owner needs no list, or that did not get as far as to answer."""
    if own is None or own.get("failed"):
        return [str((own or {}).get("msg") or "it did not say what it has")]
    return list(own["pending"])


def owes(clique: Clique, outdated: Sequence[str], generation: int) -> list[dict[str, Any]]:
    return [
        finding(
            "imex_list_outdated",
            f"{tray} could not be given generation {generation} of the IMEX list of clique {clique.name}, so its IMEX"
            " does not start at boot; bring it back and run the role imex on it.",
            clique=clique.name,
            tray=tray,
        )
        for tray in outdated
    ]


def batch(hosts: Sequence[str], serial: Sequence[Any], host: str) -> list[str]:
    """The hosts that a play handles together with this one, those too that it could not reach.

    ansible_play_batch lacks the latter, so the hosts are cut here as the play cuts them: by its ``serial``, a list of
    numbers and percentages, of which the last one repeats.
    """
    steps = [_count(step, len(hosts)) for step in serial] or [0]
    at = 0
    for number in range(len(hosts)):
        size = steps[min(number, len(steps) - 1)]
        part = list(hosts[at : at + size] if size > 0 else hosts[at:])
        if host in part or not part:
            return part
        at += len(part)
    return []


def _count(step: Any, total: int) -> int:
    text = str(step).strip()
    if text.endswith("%"):
        return max(1, int(float(text[:-1]) / 100 * total))
    return int(text)


def starters(clique: Clique, sha256: str, rows: Mapping[str, Row]) -> tuple[list[str], list[dict[str, Any]]]:
    """From the rows of `stop_and_write`: who may start, those that proved the one list by its hash; and who may not."""
    proven = [tray for tray in clique.trays if tray in rows and rows[tray].get("sha256") == sha256]
    other = [
        tray
        for tray in clique.trays
        if tray in rows and not rows[tray].get("failed") and rows[tray].get("sha256") != sha256
    ]
    notes = [
        finding(
            "imex_list_differs",
            f"{tray} read back another list than that of clique {clique.name}, so its IMEX stays off; find what else"
            " writes nodes_config.cfg there.",
            clique=clique.name,
            tray=tray,
        )
        for tray in other
    ]
    return proven, notes


def generation_of(record: Mapping[str, Any] | None, clique: str) -> int:
    return int(record["generation"]) if record and record["clique"] == clique else 0


def _generation(sha256: str, records: Sequence[Mapping[str, Any] | None], clique: str) -> int:
    """The highest that any member knows; one more where that is of another list."""
    known = [record for record in records if record and record["clique"] == clique]
    top = max((generation_of(record, clique) for record in known), default=0)
    same = all(record["sha256"] == sha256 for record in known if record["generation"] == top)
    return top if top and same else top + 1


def _records(clique: Clique, rows: Mapping[str, Row], outside: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """What trays that are no part of the run told its members of their list."""
    told: dict[str, Mapping[str, Any]] = {}
    by_entry = {clique.entry_of(tray): tray for tray in outside}
    for row in rows.values():
        for entry, record in (row.get("peers") or {}).items():
            if entry in by_entry:
                told[by_entry[entry]] = record
    return told


def _hold(clique: Clique, generation: int, code: str, message: str, tray: str | None) -> Decision:
    return Decision(True, generation, (), message, (finding(code, message, clique=clique.name, tray=tray),))
