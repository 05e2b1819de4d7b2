# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An NVLink switch in memory, with a clock of its own, and plans of its rack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import nvue
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.journal import Line
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions import switching
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_journal import Journal
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_plan import Plan, Row

DEFAULT = 32766
TRAYS = ["r01t01", "r01t02", "r01t03", "r01t04"]
NOW = "2026-11-29T23:00:00Z"
SHA = "ab" * 32
Answer = str | None
"""What becomes of a call: None (done), lost (done, without an answer), dropped (without both), or refused."""


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 0.01)


class MemorySwitch(nvue.Switch):
    """partitions: ID -> its GPUs. answers: what becomes of the next calls, each of the later ones is done.

    lag: seconds after which a call is listed.
    """

    def __init__(self, clock: Clock, gpus: Mapping[int, Sequence[tuple[str, str]]]) -> None:
        self.name, self.clock, self.lag = "r01sw1", clock, 0.0
        self.rows = {number: list(row) for number, row in gpus.items()}
        self.at = {gpu[0]: gpu for row in gpus.values() for gpu in row}
        self.names = {DEFAULT: "Default Partition"}
        self.answers: list[Answer] = []
        self.calls: list[tuple[str, str]] = []
        self.later: list[tuple[float, dict[int, list[tuple[str, str]]]]] = []
        self.is_primary = True

    def controller(self) -> nvue.Controller:
        return nvue.Controller("CONFIGURED" if self.is_primary else "STANDBY", "ok", "")

    def partitions(self) -> tuple[nvue.Partition, ...]:
        shown = self.rows
        for at, rows in self.later:
            if at > self.clock.now:
                shown = rows
                break
        return tuple(
            nvue.Partition(
                number,
                self.names.get(number, "?"),
                "healthy",
                "full_bandwidth",
                16,
                tuple(nvue.Gpu(*gpu) for gpu in row),
            )
            for number, row in shown.items()
        )

    def act(self, path: str, verb: str, parameters: Mapping[str, Any], seconds: float) -> nvue.Outcome:
        self.calls.append((verb, path))
        answer = self.answers.pop(0) if self.answers else None
        if answer == "dropped":
            return nvue.Outcome(nvue.UNKNOWN, "gave no answer")
        if answer == "refused":
            return nvue.Outcome(nvue.REFUSED, "no resources")
        before = {number: list(row) for number, row in self.rows.items()}
        if not self._applied(path.removeprefix("/sdn/partition/").split("/"), verb, parameters):
            return nvue.Outcome(nvue.REFUSED, f"failed to {verb[1:]}")
        if self.lag:
            self.later.append((self.clock.now + self.lag, before))
        return nvue.Outcome(nvue.UNKNOWN, "gave no answer") if answer == "lost" else nvue.Outcome(nvue.DONE)

    def _applied(self, path: list[str], verb: str, parameters: Mapping[str, Any]) -> bool:
        number, members = int(path[0]), self.rows.get(int(path[0]))
        if verb == nvue.CREATE:
            gpu = self.at[parameters["location"]]
            if members is not None or self.partition_of(gpu) is not None:
                return False
            self.rows[number], self.names[number] = [gpu], parameters["name"]
            return True
        if members is None:
            return False
        if verb == nvue.DELETE:
            assert members == [], "a partition with GPUs is deleted"
            del self.rows[number]
            return True
        gpu = self.at[path[2]]
        if (verb == nvue.UPDATE) == (self.partition_of(gpu) is not None) or (verb == nvue.RESTORE) != (gpu in members):
            return False
        (members.append if verb == nvue.UPDATE else members.remove)(gpu)
        return True

    def partition_of(self, gpu: tuple[str, str]) -> int | None:
        return next((number for number, row in self.rows.items() if gpu in row), None)

    @property
    def state(self) -> dict[int, set[tuple[str, str]]]:
        return {number: set(row) for number, row in self.rows.items()}


def gpu_at(location: str) -> tuple[str, str]:
    return location, f"0x{int(location.replace('.', '')):016x}"


def gpus_of(tray: str, number: int = 2) -> list[tuple[str, str]]:
    slot = 10 + TRAYS.index(tray)
    return [gpu_at(f"1.{slot}.1.{module}") for module in range(1, number + 1)]


def row(number: int, trays: Sequence[str], made: bool = False) -> Row:
    name = "Default Partition" if number == DEFAULT else f"p{number}"
    return Row(
        id=number, name=name, trays=[*trays], mode="full_bandwidth", limit=16, default=number == DEFAULT, made=made
    )


def plan_of(before: Mapping[str, int], after: Mapping[str, int], made: Sequence[int] = (), gpus: int = 2) -> Plan:
    """The plan that moves trays from one partition to another; tray -> ID. Emptied partitions of made are deleted."""
    moved = [tray for tray in TRAYS if before[tray] != after[tray]]

    def rows(where: Mapping[str, int], kept: set[int]) -> list[Row]:
        ids = sorted({*where.values(), *kept, DEFAULT})
        return [row(number, [tray for tray in TRAYS if where[tray] == number], number in made) for number in ids]

    return Plan(
        domain="r01",
        by="nvue",
        before=rows(before, set()),
        after=rows(after, {*before.values()} - {*made}),
        gpus={tray: [list(gpu) for gpu in gpus_of(tray, gpus)] for tray in moved},
        moved=moved,
        affected=TRAYS,
        clique_ids={tray: after[tray] for tray in moved},
        staying={},
        imex_owner="",
    )


class Killed(BaseException):
    """The run was killed."""


class Stopped(Journal):
    """A journal whose run is killed before or after the line of a number is written."""

    def __init__(self, path: Path, stops: int | None = None, is_written: bool = False) -> None:
        super().__init__(str(path), "r01", lambda: NOW)
        self.stops, self.is_written, self.count = stops, is_written, 0

    def write(self, *given: str, **more: str) -> None:
        if self.count == self.stops and not self.is_written:
            raise Killed
        super().write(*given, **more)
        if self.count == self.stops:
            raise Killed
        self.count += 1


class Rack:
    """A plan on a switch in memory, with the journal of it in a folder. made: of an earlier change of the journal."""

    def __init__(self, folder: Path, plan: Plan, made: Sequence[int] = (), gpus: int = 2) -> None:
        self.plan, self.clock, self.path = plan, Clock(), folder / "fabric.partition-r01.jsonl"
        self.switch = MemorySwitch(self.clock, placed(plan["before"], gpus))
        self.said: list[str] = []
        journal = Stopped(self.path)
        if made:
            journal.open("cd" * 32, plan_of(dict.fromkeys(TRAYS, DEFAULT), dict.fromkeys(TRAYS, DEFAULT)))
            for number in made:
                journal.write("switch", "done", "1.1.1.1", f"create {number}")
            journal.write("end", "done")
        journal.open(SHA, plan)

    def run(self, stops: int | None = None, is_written: bool = False, wait: float = 60) -> nvue.Outcome:
        journal = Stopped(self.path, stops, is_written)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(switching, "time", self.clock)
            return switching.converge(self.switch, journal.plan or self.plan, journal, wait, self.said.append)

    def turn_back(self) -> None:
        Stopped(self.path).turn_back()

    @property
    def lines(self) -> list[Line]:
        return Stopped(self.path).lines

    def calls(self, verb: str) -> int:
        return sum(call[0] == verb for call in self.switch.calls)


def placed(rows: Sequence[Row], gpus: int = 2) -> dict[int, list[tuple[str, str]]]:
    """ID -> the GPUs of the trays of each row."""
    return {one["id"]: [gpu for tray in one["trays"] for gpu in gpus_of(tray, gpus)] for one in rows}


def state_of(rows: Sequence[Row], gpus: int = 2) -> dict[int, set[tuple[str, str]]]:
    return {number: set(row) for number, row in placed(rows, gpus).items()}
