# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide for one clique from the results of its members in the phase before: pure functions.

A row is the result of one member in one phase. A member without a row was not reached. Every decision uses rows of one
clique only, so no clique waits for, or blocks, another.

A member may be compromised, so what one alone reports of the clique decides little for the others: a restart of all
needs a majority or another member that is not connected to it, a generation that most members have stays, and a record
of a tray outside the run is the one that most members read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible.utils.helpers import pct_to_int
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import domain, peers
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.boot import Record
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import agreement
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex.rows import MAX_GENERATION, Stored
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import sentence

_MAX_LEAD = 1000


@dataclass(frozen=True)
class Clique:
    """A clique of the fabric file: its trays in the node list's order, their lines, and their names in Slurm."""

    name: str
    trays: tuple[str, ...]
    entries: tuple[str, ...]
    slurm_nodes: tuple[str, ...] = ()

    def entry_of(self, tray: str) -> str:
        return self.entries[self.trays.index(tray)]


@dataclass(frozen=True)
class Decision:
    """The decision for all members of a clique.

    ``restart``: every running daemon of the clique stops before any starts. ``generation``: of the node list.
    ``blocked``: why nothing may change, None where nothing blocks. ``findings``: the blocking finding, else one per
    member that does not get the list now.
    """

    restart: bool
    generation: int
    blocked: str | None = None
    findings: tuple[Finding, ...] = field(default=())


def decide(
    clique: Clique, sha256: str, rows: Mapping[str, Stored], play: Collection[str], allow_outdated: Collection[str]
) -> Decision:
    """Decide from the rows of `inspect`.

    ``sha256``: of the desired node list. ``play``: the hosts of this run, reached or not. ``allow_outdated``: trays
    that may keep an outdated list.
    """
    reached = {tray: rows[tray] for tray in clique.trays if tray in rows and not rows[tray].get("unreached")}
    inspected = {tray: row for tray, row in reached.items() if not row.get("failed")}
    failed = {tray: row for tray, row in reached.items() if row.get("failed")}
    restart = _restarts(clique, inspected)
    unreached = [tray for tray in clique.trays if tray not in reached]
    outside = [tray for tray in unreached if tray not in play and tray not in rows]
    records = _records(clique, inspected, outside, sha256)
    generation = _generation(
        sha256, [*records.values(), *(row.get("record") for row in inspected.values())], clique.name
    )

    def has_list(tray: str, known: Mapping[str, Record]) -> bool:
        return tray in known and known[tray]["sha256"] == sha256

    def blocked(message: str, tray: str | None = None) -> Decision:
        return Decision(True, generation, message, (_partial(clique, message, tray),))

    owners = {owner for row in inspected.values() if (owner := row.get("owner")) in domain.LIST_OWNERS}
    if domain.JOB in owners and len(owners) > 1:
        return blocked(
            f"Trays of clique {clique.name} have imex_owner {' and '.join(sorted(owners))}, whose lists differ; set one"
            " owner for all of them."
        )
    # A daemon that keeps running with another list would stay disconnected until all restart.
    running = sorted(tray for tray, row in failed.items() if row.get("running") and tray not in allow_outdated)
    if restart and running:
        return blocked(
            f"IMEX of clique {clique.name} must restart as a whole, but {running[0]} failed"
            f" ({sentence(failed[running[0]].get('msg')) or 'no reason'}) while its daemon runs; fix that first, stop"
            " its daemon, or name it in option allow_outdated.",
            running[0],
        )
    others = [tray for tray in outside if tray not in allow_outdated and not has_list(tray, records)]
    if restart and others:
        return blocked(f"IMEX of clique {clique.name} must restart as a whole, but {_left_out(others)}")
    others = [tray for tray in others if tray in records]
    if others:
        return blocked(
            f"Trays of clique {clique.name} that are not part of this run have another node list: {summarize(others)};"
            " run it on the whole clique, or name them in option allow_outdated."
        )
    known = {**records, **{tray: record for tray, row in failed.items() if (record := row.get("record"))}}
    missed = [*failed, *(tray for tray in unreached if tray not in outside or tray in allow_outdated)]
    outdated = [tray for tray in clique.trays if tray in missed and not has_list(tray, known)]
    return Decision(restart, generation, None, tuple(outdated_findings(clique, outdated, generation)))


def leaves_partially(
    clique: Clique, rows: Mapping[str, Stored], owner: str, allow_outdated: Collection[str], play: Collection[str]
) -> Finding | None:
    """The finding on a clique whose new owner runs no IMEX domain, while some of its trays stay in it.

    Their daemons would keep the others in their node lists, and Slurm sends jobs to the others. A tray of the run stays
    where it failed, as with a job on it, or has another owner. One that the run leaves out offers its record, or is
    connected to a member of the run; one that does neither has left the domain or is off, and a tray that missed the
    change may follow alone.
    rows: of `inspect`, which know the host of a tray that has another name in the inventory.
    """
    ends = f"Owner {owner} ends the IMEX domain of clique {clique.name}, but"
    for tray, row in rows.items():
        keeps = row.get("owner") in domain.SERVICE_OWNERS
        stays = (keeps or row.get("failed")) and row.get("running") and is_in_domain(row)
        if stays and tray not in allow_outdated:
            failed = f"failed ({sentence(row.get('msg')) or 'no reason'}) while its daemon runs; fix that first"
            why = f"has imex_owner {row['owner']}; set one owner for all trays of a clique" if keeps else failed
            return _partial(clique, f"{ends} {tray} {why}, stop its daemon, or name it in imex_allow_outdated.", tray)
    inspected = {tray: row for tray, row in rows.items() if not row.get("failed")}
    outside = [
        tray
        for tray in clique.trays
        if not {tray, rows.get(tray, {}).get("host")}.intersection(play) and tray not in allow_outdated
    ]
    records = _records(clique, inspected, outside, "")
    reported = [peer for row in inspected.values() if (facts := row.get("facts")) for peer in facts["peers"]]
    connected = {peer["host"] for peer in reported if peer["connection"] == "connected"}
    outside = [tray for tray in outside if tray in records or clique.entry_of(tray) in connected]
    if not outside:
        return None
    return _partial(clique, f"{ends} {_left_out(outside)}")


def _left_out(trays: Collection[str]) -> str:
    return (
        f"this run leaves out {summarize(trays)}; run it on the whole clique (serial must not split it), or name trays"
        " that may keep an outdated list in option allow_outdated."
    )


def is_in_domain(row: Stored) -> bool:
    """Whether a tray runs an IMEX domain for its clique, or has its node list; not one for a job or in a container."""
    facts, record = row.get("facts"), row.get("record")
    if record:
        return record.get("owner") != domain.JOB
    if not facts:
        return bool(row.get("running"))
    # A member may be compromised, and lack it.
    by_service = any(entry.get("owner") == "service" for entry in facts.get("owners") or ())
    # The daemon of a new image has no list.
    return bool(row.get("running")) and by_service and len(facts["nodes"]["entries"]) > 1


def is_unchanged(clique: Clique, rows: Mapping[str, Stored], decision: Decision, serves: bool) -> bool:
    """Whether all members are as decided, run with this list since it was approved, and are up: all decide the same.

    ``serves``: whether nvidia-imex.service runs; IMEX per job is unchanged where its files are.
    """
    if decision.findings or any(pending_changes(clique, rows, decision, tray, serves) for tray in clique.trays):
        return False
    if not serves:
        return True
    facts = {tray: rows[tray].get("facts") for tray in clique.trays}
    evaluated = agreement.evaluate(clique.name, list(zip(clique.trays, clique.entries)), facts)
    return evaluated.ok and not evaluated.findings and all(rows[tray]["approved"] for tray in clique.trays)


def remaining_changes(own: Stored, decision: Decision) -> list[str]:
    """The changes of stop_and_write on a tray, by its row of `inspect`."""
    changes = [*own.get("restart_clique", ()), *own.get("pending", ["be inspected"])]
    if decision.restart and not changes:
        changes.append("restart with the clique")
    record = own.get("record")
    if not record or record["generation"] != decision.generation:
        changes.append(f"generation {decision.generation} of the list")
    return changes


def pending_changes(
    clique: Clique, rows: Mapping[str, Stored], decision: Decision, tray: str, serves: bool = True
) -> list[str]:
    """The changes that a run would make on a tray, or the error on it; empty for none. decision: of decide().

    The start approval, which is gone after each boot, does not count, because it needs no daemon stopped.
    """
    own = rows.get(tray)
    if own is None or own.get("failed"):
        return pending_without_list(own)
    if decision.blocked is not None:
        return [decision.blocked]
    changes = remaining_changes(own, decision)
    if not serves:
        return changes
    if not changes and not own["running"]:
        changes.append("start nvidia-imex.service")
    others = [other for other in clique.trays if other != tray and other in rows and not rows[other].get("failed")]
    facts, expected = own["facts"], [clique.entry_of(other) for other in others]
    if not changes and not (facts and peers.is_up(facts, len(clique.trays), expected)):
        changes.append("wait until it is connected to the other members")
    return changes


def pending_without_list(own: Stored | None) -> list[str]:
    """The same for a tray whose owner needs no node list, or whose preview failed."""
    if own is None or own.get("failed"):
        return [str((own or {}).get("msg") or "it returned no preview")]
    return list(own["pending"])


def outdated_findings(clique: Clique, outdated: Sequence[str], generation: int) -> list[Finding]:
    return [
        finding(
            "imex_list_outdated",
            f"{tray} did not get generation {generation} of the IMEX node list of clique {clique.name}, so it has no"
            " IMEX with the trays that did; bring it back and run the role imex on it.",
            clique=clique.name,
            tray=tray,
        )
        for tray in outdated
    ]


def batch(hosts: Sequence[str], serial: Sequence[Any], host: str) -> list[str]:
    """The hosts of a play in the same batch as this one, unreachable ones included.

    ansible_play_batch lacks unreachable hosts, so the hosts are split here as the play does: by its ``serial``, a list
    of numbers and percentages, of which the last one repeats.
    """
    steps = [pct_to_int(step, len(hosts)) for step in serial] or [0]
    start = 0
    for number in range(len(hosts)):
        size = steps[min(number, len(steps) - 1)]
        part = list(hosts[start : start + size] if size > 0 else hosts[start:])
        if host in part or not part:
            return part
        start += len(part)
    return []


def _restarts(clique: Clique, inspected: Mapping[str, Stored]) -> bool:
    """Whether all daemons of the clique stop before any starts.

    By a change that most running members need, or that a member needs whose list another one reports as different
    (!M!): the daemon of that one, too, connects only after both were stopped. Otherwise the member restarts alone.
    """
    running = {tray: row for tray, row in inspected.items() if row["running"]}
    changing = [tray for tray, row in running.items() if row["restart_clique"]]
    if 2 * len(changing) > len(running):
        return True
    differing = {peers.key(clique.entry_of(tray)): tray for tray in changing}
    return any(
        peer["connection"] == "map_mismatch" and differing.get(peers.key(peer["host"]), other) != other
        for other, row in running.items()
        if (facts := row["facts"])
        for peer in facts["peers"]
    )


def _generation(sha256: str, records: Sequence[Record | None], clique: str) -> int:
    """The generation that most members have of this list; else one more than the highest of any list.

    The highest of one member counts only so far above that of the next.
    """
    known = [record for record in records if record and record["clique"] == clique]
    usual = Counter(record["generation"] for record in known if record["sha256"] == sha256).most_common(1)
    if usual and 2 * usual[0][1] > len(known):
        return int(usual[0][0])
    highest, next_one, *_rest = [*sorted((record["generation"] for record in known), reverse=True), 0, 0]
    top = min(highest, next_one + _MAX_LEAD)
    same = all(record["sha256"] == sha256 for record in known if record["generation"] == top)
    return top if top and same else min(top + 1, MAX_GENERATION)


def _records(clique: Clique, rows: Mapping[str, Stored], outside: Sequence[str], sha256: str) -> dict[str, Record]:
    """tray -> its record, of trays outside the run, as most members of the run read it.

    Where as many read another one, that with another list than ``sha256``, so that the change waits for a person.
    """
    records: dict[str, Record] = {}
    for tray in outside:
        read = [record for row in rows.values() if (record := row["peers"].get(clique.entry_of(tray))) is not None]
        votes = Counter((record["clique"], record["generation"], record["sha256"]) for record in read)
        if votes:
            name, generation, digest = max(votes, key=lambda vote: (votes[vote], vote[2] != sha256, vote))
            records[tray] = {"clique": name, "generation": generation, "sha256": digest}
    return records


def _partial(clique: Clique, message: str, tray: str | None = None) -> Finding:
    return finding("imex_clique_partial", message, clique=clique.name, tray=tray)
