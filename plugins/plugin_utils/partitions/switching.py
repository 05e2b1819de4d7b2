# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Move the GPUs of a plan on an NVLink switch, one operation after the other, each with its lines in the journal.

What is due is what the switch does not list yet, so a run that continues, or that goes back, is the same as the first
one. An operation is done when the switch lists what it asked for, and the next one begins after it: the public test
suite of NVOS waits between two operations, and shows lists that lag behind them. What was sent and is not known to be
done is not sent twice in one run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import http, nvue
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients.nvue import DONE, REFUSED, UNKNOWN, Outcome
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import journal as lines
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import folded
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions import places
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_journal import (
    Journal,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_plan import (
    Operation,
    Plan,
    only_in,
    operations,
    turned,
)

FOREIGN = "foreign"
"""How a change ended, beside the states of nvue.Outcome: somebody else has changed the partitions, and nothing more is
sent."""
PROGRESS = 30.0
"""Seconds between two lines about a wait."""
Listed = Sequence[nvue.Partition]
Say = Callable[[str], object]
_WORDS = {
    nvue.CREATE: "the creation of NVLink partition {0} with {1}",
    nvue.UPDATE: "the addition of {1} to NVLink partition {0}",
    nvue.RESTORE: "the removal of {1} from NVLink partition {0}",
    nvue.DELETE: "the deletion of NVLink partition {0}",
}
_REMEDIES = {
    REFUSED: "remove the cause, then run partition again",
    UNKNOWN: "check the switch, then run partition again to go on, or with -e partition_rollback=true to go back",
    FOREIGN: "somebody else has changed it: undo that on the switch, then run partition again",
}


def converge(switch: nvue.Switch, plan: Plan, journal: Journal, wait: float, say: Say) -> Outcome:
    """Carry out the plan of an open change (Journal.plan); where the switch refuses that, back to what was before.

    wait: seconds that one operation may take until the switch lists it. say: receives lines of progress. DONE with a
    reason: the switch refused it, and everything is as it was before. After any other end the trays must stay drained.
    """
    run = _Run(switch, plan, journal, wait, say)
    end = run.end()
    if end.state == REFUSED and not journal.is_back:
        say(f"{end.reason}. Everything goes back to the partitions of before.")
        journal.turn_back(end.reason)
        run.plan = turned(plan)
        back = run.end()
        is_back = back.state == DONE
        where = "All GPUs are in the partitions of before" if is_back else f"It cannot be put back: {back.reason}"
        end = Outcome(back.state, f"{end.reason}. {where}")
    out = [tray for tray, gpus in _located(plan, run.listed).gpus.items() for gpu in gpus if gpu.partition is None]
    if end.state == DONE or not (out and run.listed):
        return end
    what = f"In no NVLink partition: {count(len(out), 'GPU')} of {folded({*out})}, which must stay drained"
    return Outcome(end.state, f"{end.reason}. {what}")


def is_listed(operation: Operation, listed: Listed) -> bool:
    """Whether a switch lists what an operation asks for."""
    if operation.verb == nvue.DELETE:
        return all(row.id != operation.partition for row in listed)
    own = {operation.tray: [_own(operation.location, operation.uid)]}
    there = places.locate(own, listed).gpus[operation.tray][0].partition
    return (there == operation.partition) == (operation.verb != nvue.RESTORE)


def foreign(plan: Plan, listed: Listed, made: set[int]) -> str:
    """What a switch lists that somebody else has changed since the plan was made, in words; empty where nobody has.

    made: the partitions that are of this collection (Journal.made).
    """
    new = {row["id"] for row in only_in(plan["after"], plan["before"])} - made
    if strange := [row.id for row in listed if row.id in new]:
        return f"NVLink partition {strange[0]}, which the plan has not made"
    found = _located(plan, listed)
    for tray, gpus in found.gpus.items():
        expected = {row["id"] for row in (*plan["before"], *plan["after"]) if tray in row["trays"]}
        if others := {gpu.partition for gpu in gpus} - expected - {None}:
            wanted = " and ".join(map(str, sorted(expected)))
            return f"GPUs of {tray} in NVLink partition {others.pop()}, and the plan has {wanted}"
    return f"GPUs otherwise than the plan: {doubts[0]}" if (doubts := list(found.doubts.values())) else ""


def _located(plan: Plan, listed: Listed) -> places.Places:
    known = {tray: [_own(*gpu) for gpu in gpus] for tray, gpus in plan["gpus"].items()}
    return places.locate(known, listed)


def _own(location: str, uid: str) -> places.Gpu:
    """A GPU of a plan, as its driver had it."""
    return places.Gpu((uid,) if uid else (), places.place(nvue.Gpu(location, uid)))


class _Run:
    """One way of a domain to what a plan has after it."""

    def __init__(self, switch: nvue.Switch, plan: Plan, journal: Journal, wait: float, say: Say) -> None:
        self.switch, self.plan, self.journal, self.wait, self.say = switch, plan, journal, wait, say
        self.listed: Listed = ()
        self.problem = ""

    def end(self) -> Outcome:
        """Wait for what was begun, then do what is due."""
        if not self._reads(self.wait):
            return Outcome(UNKNOWN, f"{self.problem}. Nothing was sent")
        made, every = self.journal.made, operations(self.plan)
        # Of a partition that is not in the journal nothing is deleted, whatever the plan has.
        due = [operation for operation in every if operation.verb != nvue.DELETE or operation.partition in made]
        if end := self._awaited(due):
            return end
        if found := foreign(self.plan, self.listed, made):
            return self._end(FOREIGN, f"lists {found}")
        for number, operation in enumerate(due, 1):
            if not is_listed(operation, self.listed) and (end := self._do(operation, f"{number} of {len(due)}")):
                return end
        return Outcome(DONE)

    def _awaited(self, due: Sequence[Operation]) -> Outcome | None:
        """Wait for the operation that an earlier run began, and of which it is not known whether it is done."""
        line = self.journal.begun()
        if line is None:
            return None
        verb, _space, number = line["code"].partition(" ")
        gpus = ((tray, *gpu) for tray, gpus in self.plan["gpus"].items() for gpu in gpus)
        gpu = next((gpu for gpu in gpus if line["subject"] in gpu[1:]), ("", "", ""))
        operation = Operation(f"@{verb}", int(number), *gpu)
        if self._reads(self.wait, operation):
            self._write(operation, lines.DONE)
        elif line["state"] == lines.BEGIN:
            # The other operations may be sent again; a second creation only after a person has read of it.
            self._write(operation, lines.FAILED, "killed")
            if operation.verb == nvue.CREATE and operation._replace(verb=nvue.UPDATE) in due:
                return self._end(UNKNOWN, f"may or may not have done {_words(operation)} (its run was killed)")
        return None

    def _do(self, operation: Operation, number: str) -> Outcome | None:
        """Do one operation, until the switch lists it; the end of the run where that fails. number: its place."""
        there = next((row for row in self.listed if row.id == operation.partition), None)
        if operation.verb == nvue.DELETE and there and there.gpus:
            return self._end(FOREIGN, f"lists GPUs in NVLink partition {there.id}, which the plan empties")
        if operation.verb == nvue.UPDATE and not there:
            operation = operation._replace(verb=nvue.CREATE)
        self.say(f"{number}: {_words(operation)}")
        is_again = self.journal.begun() is not None
        self._write(operation, lines.BEGIN)
        ends = time.monotonic() + self.wait
        try:
            outcome = self.switch.act(*_request(self.plan, operation), self.wait)
        except http.HttpError as error:
            self._write(operation, lines.REFUSED, str(error))
            return Outcome(UNKNOWN, f"{error}. Not sent: {_words(operation)}")
        is_refused = outcome.state == REFUSED
        # What is refused when it is sent again may have been done the first time, and is listed later.
        waits = not is_refused or is_again
        if self._reads(ends - time.monotonic() if waits else 0, operation):
            self._write(operation, lines.DONE)
            return None
        why = outcome.reason or self.problem or f"not listed in {self.wait:g} seconds"
        self._write(operation, lines.REFUSED if is_refused else lines.FAILED, why)
        if is_refused:
            return self._end(REFUSED, f"refuses {_words(operation)} ({why})")
        return self._end(UNKNOWN, f"may or may not have done {_words(operation)} ({why})")

    def _reads(self, seconds: float, operation: Operation | None = None) -> bool:
        """Read the partitions, until an operation is listed; False after so many seconds, or where the login fails."""
        began = said = now = time.monotonic()
        while True:
            try:
                controller = self.switch.controller()
                if controller.is_ok:
                    listed = self.switch.partitions()
                    self.problem = self._lost(listed)
                    if not self.problem:
                        self.listed = listed
                        if operation is None or is_listed(operation, listed):
                            return True
                else:
                    what = f"its controller is not ok ({controller.words}); check where it runs"
                    self.problem = f"{self.switch.name}: {what}"
            except http.HttpError as error:
                self.problem = str(error)
                if error.status in (401, 403):
                    return False
            now = time.monotonic()
            if now >= began + seconds:
                return False
            if now >= said + PROGRESS:
                said, what = now, _words(operation) if operation else "an answer"
                self.say(f"{self.switch.name}: waits since {now - began:.0f} of {self.wait:g} seconds for {what}")
            time.sleep(nvue.POLL)

    def _lost(self, listed: Listed) -> str:
        """Why a list is not that of the domain, as one of a controller that still starts; empty where it is."""
        before, after = ({row["id"] for row in rows} for rows in (self.plan["before"], self.plan["after"]))
        lost = sorted((before & after) - {row.id for row in listed})
        if not lost:
            return ""
        what = f"does not list NVLink partition {lost[0]}, which the plan keeps"
        return f"{self.switch.name}: {what}; check its controller with nv show sdn partition"

    def _write(self, operation: Operation, state: str, detail: str = "") -> None:
        code = f"{operation.verb[1:]} {operation.partition}"
        self.journal.write("switch", state, operation.location or operation.uid, code, detail or operation.tray)

    def _end(self, state: str, what: str) -> Outcome:
        which = f"Switch {self.switch.name} of NVLink domain {self.plan['domain']}"
        return Outcome(state, f"{which} {what}; {_REMEDIES[state]}")


def _request(plan: Plan, operation: Operation) -> tuple[str, str, dict[str, Any]]:
    """The path, the verb and the parameters of an operation."""
    path = f"/sdn/partition/{operation.partition}"
    kind, value = ("location", operation.location) if operation.location else ("uuid", operation.uid)
    if operation.verb == nvue.CREATE:
        row = next(row for row in plan["after"] if row["id"] == operation.partition)
        given = {"name": row["name"], "resiliency-mode": row["mode"], "mcast-limit": row["limit"], kind: value}
        return path, operation.verb, {name: value for name, value in given.items() if value not in ("", None)}
    return (path if operation.verb == nvue.DELETE else f"{path}/{kind}/{value}"), operation.verb, {}


def _words(operation: Operation) -> str:
    gpu = f"the GPU {operation.location or operation.uid} of {operation.tray}"
    return _WORDS[operation.verb].format(operation.partition, gpu)
