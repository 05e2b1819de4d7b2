# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What holds each tray that a job may use, and which of them must come free before Slurm can place it. Pure.

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.explain import sentences
from ansible_collections.rackscale.nvlink.plugins.module_utils.explain.sentences import Row, clean
from ansible_collections.rackscale.nvlink.plugins.module_utils.explain.slurm_evidence import (
    EXPEDITING,
    Evidence,
    Job,
    Reservation,
    seconds_of,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import placement, rules
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.nodes import Node
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.spares import PREFIX

IDLE, BUSY, RESERVED, OUT = "idle", "busy", "reserved", "out"
_STARTING = frozenset(("POWERING_UP", "POWERED_DOWN", "POWERING_DOWN"))
# The reasons of Slurm that are about trays, or none yet; each other keeps a job from taking any.
CLAIMS = re.compile(r"Resources|ReqNodeNotAvail|Nodes required for job|.*topolog|Partition|Priority|$", re.IGNORECASE)
# More holders than this are not reduced to those that are needed.
_MAX_REDUCED = 400


def is_away(node: Node) -> bool:
    """Whether a tray runs no new job, in a reservation or not; one that powers up answers later."""
    away = node.words & (rules.UNAVAILABLE - {"MAINTENANCE", "RESERVED"})
    return bool(away) and not (away == {"NOT_RESPONDING"} and bool(node.words & _STARTING))


class Held(NamedTuple):
    """A tray: what holds it, until when (empty: no end), and its jobs or the reservation."""

    kind: str
    until: str = ""
    by: tuple[Any, ...] = ()


class Holding:
    """The trays of a job's partition by what holds them."""

    def __init__(self, evidence: Evidence, job: Job) -> None:
        self.evidence, self.job = evidence, job
        mine = [one for one in evidence.reservations if one.name == job.reservation]
        of_partition = evidence.partitions[job.partitions[0]].nodes
        members = frozenset().union(*(one.nodes for one in mine)) or frozenset(of_partition)
        if job.wants and len(job.wants) >= job.nodes:
            members &= frozenset(job.wants)
        usable = members.difference(job.without)
        self.blocks = {block: [name for name in names if name in usable] for block, names in evidence.blocks.items()}
        if not self.blocks:
            self.blocks = {"": sorted(usable)}
        self.block = {name: block for block, names in self.blocks.items() for name in names}
        self.sizes = evidence.sizes if evidence.blocks else ()
        self.base = self.sizes[0] if self.sizes else 0
        on: dict[str, list[Job]] = defaultdict(list)
        for one in evidence.jobs.values():
            if one.active:
                for name in one.names:
                    on[name].append(one)
        kept = self._kept()
        self.trays = {name: self._held(name, on.get(name, ()), kept.get(name)) for name in self.block}
        self.idle = self.of_kind(IDLE)

    def _kept(self) -> dict[str, Reservation]:
        """Tray -> the reservation that keeps this job from it: one that is active, or begins before the job ends."""
        now, minutes = seconds_of(self.evidence.now), self.job.minutes
        found = {}
        for one in self.evidence.reservations:
            begins = seconds_of(one.start) - now if one.start else 0
            if one.name != self.job.reservation and (minutes is None or begins < minutes * 60):
                found.update(dict.fromkeys(one.nodes, one))
        return found

    def _held(self, name: str, jobs: Sequence[Job], kept: Reservation | None) -> Held:
        node = self.evidence.trays.get(name)
        if node is None or is_away(node):
            return Held(OUT)
        if kept is not None:
            return Held(RESERVED, kept.end, (kept,))
        if jobs or node.words & rules.TAKEN:
            return Held(BUSY, sentences.latest(jobs), tuple(jobs))
        return Held(IDLE)

    # -------------------------------------------------------------------------------------------------- sets of trays

    def of_kind(self, kind: str) -> set[str]:
        return {name for name, held in self.trays.items() if held.kind == kind}

    def timed(self) -> set[str]:
        """Those whose job or reservation has an end."""
        return {name for name, held in self.trays.items() if held.until}

    def ended_by(self, end: str) -> set[str]:
        """Those whose job or reservation has ended then."""
        return {name for name in self.timed() if self.trays[name].until <= end}

    def by_block(self, names: Iterable[str]) -> dict[str, int]:
        numbers = dict.fromkeys(self.blocks, 0)
        for name in names:
            numbers[self.block[name]] += 1
        return numbers

    def counts(self, names: Iterable[str]) -> list[int]:
        return list(self.by_block(names).values())

    def places(self, names: set[str]) -> bool:
        """Whether Slurm can place the job when these trays are free."""
        return names.issuperset(self.job.wants) and self.fits(self.counts(names))

    def fits(self, counts: Sequence[int], nodes: int = 0, segment: int = 0) -> bool:
        """Whether Slurm can place the job, or one of this size or segment, on so many trays of each block."""
        return placement.places(counts, self.sizes, nodes or self.job.nodes, segment or self.job.segment or 0)

    def earliest_end(self) -> str:
        """When as many jobs and reservations have ended that Slurm can place the job; empty where that is not known."""
        ends = sorted({self.trays[name].until for name in self.timed()})
        low, high = 0, len(ends)
        while low < high:
            middle = (low + high) // 2
            if self.places(self.idle | self.ended_by(ends[middle])):
                high = middle
            else:
                low = middle + 1
        return ends[low] if low < len(ends) else ""

    def needed(self, free: set[str], more: set[str]) -> set[str]:
        """Those of ``more`` that the job needs besides the free ones; what one job or reservation holds is one."""
        groups: dict[tuple[object, ...], set[str]] = defaultdict(set)
        for name in more:
            # Not by the jobs themselves: to hash one takes as long as it has trays.
            groups[tuple(map(id, self.trays[name].by)) or (name,)].add(name)
        kept = set(more)
        if len(groups) > _MAX_REDUCED:
            return kept
        # Those that end last are given up first, then those of the blocks that have the fewest free trays.
        numbers, counts = self.by_block(free), self.by_block(free | more)
        order = sorted(
            groups.values(),
            key=lambda names: (min(self.trays[name].until for name in names), -numbers[self.block[min(names)]]),
        )
        for names in reversed(order):
            fewer = dict(counts)
            for name in names:
                fewer[self.block[name]] -= 1
            if names.isdisjoint(self.job.wants) and self.fits(list(fewer.values())):
                counts, kept = fewer, kept - names
        return kept

    def jobs(self, names: Iterable[str]) -> tuple[str, str]:
        """(the jobs on these trays in words, in the order in which they end; when the last ends, empty if unknown)."""
        busy = [self.trays[name].by for name in names if self.trays[name].kind == BUSY]
        by_number = {job.number: job for by in busy for job in by}
        jobs = sorted(by_number.values(), key=lambda job: (job.end, job.number))
        return sentences.named_jobs(jobs, not all(busy)), sentences.latest(jobs) if all(busy) else ""

    def reservations(self, names: Iterable[str]) -> list[Reservation]:
        """Those that keep these trays, by name."""
        found = {one for name in names if self.trays[name].kind == RESERVED for one in self.trays[name].by}
        return sorted(found, key=lambda one: one.name)

    def rivals(self, names: set[str]) -> list[Job]:
        """The pending jobs before this one that may take these trays; one that is held or has to wait may not."""
        me, found = self.job, []
        near = {one.name for one in self.evidence.partitions.values() if not names.isdisjoint(one.nodes)}
        for job in self.evidence.jobs.values():
            ranks = [(one.state == EXPEDITING, one.priority, -one.number) for one in (job, me)]
            is_first = not job.active and job.priority and ranks[0] > ranks[1] and CLAIMS.match(job.reason)
            if is_first and not near.isdisjoint(job.partitions):
                found.append(job)
        return found

    def minutes_before_reservations(self) -> int:
        """The time limit with which the job would end before a reservation that begins later; 0 for none."""
        now = self.evidence.now
        starts = [one.start for one in self.reservations(self.trays) if one.start > now]
        minutes = int(seconds_of(min(starts)) - seconds_of(now)) // 60 - 1 if starts else 0
        return max(0, minutes)

    # -------------------------------------------------------------------------------------------------------- in words

    def states(self, names: Iterable[str]) -> list[tuple[str, list[str]]]:
        """Why these trays are out of service, with the trays of each reason; the most first."""
        found: dict[str, list[str]] = defaultdict(list)
        for name in sorted(names):
            node = self.evidence.trays.get(name)
            found[sentences.state(node) if node is not None else "not shown by sinfo"].append(name)
        return sorted(found.items(), key=lambda one: -len(one[1]))

    def rows(self) -> tuple[Row, ...]:
        """At most five lines of evidence: idle, busy, reserved, out of service, in other partitions."""
        total = len(self.trays)
        busy, reserved, out = (self.of_kind(kind) for kind in (BUSY, RESERVED, OUT))
        jobs, end = self.jobs(busy)
        names = [one.name for one in self.reservations(reserved)]
        spares = " as spares" if all(name.startswith(PREFIX) for name in names) else ""
        kept = f"reserved{spares} by {', '.join(map(clean, names[:3]))}"
        why = tuple(f"{sentences.trays(names)} {state}" for state, names in self.states(out)[:3])
        elsewhere = sum(name not in self.trays for names in self.evidence.blocks.values() for name in names)
        rows = [
            Row("idle", len(self.idle), total, sentences.blocks(self.by_block(self.idle))),
            Row(f"busy with {jobs}", len(busy), total, sentences.blocks(self.by_block(busy)), end),
            Row(kept, len(reserved), total, (sentences.trays(reserved),)),
            Row("out of service", len(out), total, why),
            Row("more that it may not use (its partition, --nodelist or --exclude)", elsewhere),
        ]
        return tuple(row for row in rows if row.count or row.what == "idle")
