# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal of the partition changes of one NVLink domain: fabric.partition-DOMAIN.jsonl beside the state file.

A change begins with a line of step ``plan``, whose detail is the plan as JSON, and is open until a line of step ``end``
is done; so the plan stands in the journal alone. Each step has a line before it (begin) and one after it (done or
failed), and so has each operation of the switch within the step ``switch``: its code is the verb and the ID of the
partition (``update 1``), its subject the GPU, or the domain for a deletion. refused: the switch has not done it;
failed: it is not known whether it has.

A line of step ``rollback`` turns an open change back to what was before it, and its steps are due again; its detail is
what the switch refused, where no person asked for it.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, journal, storage
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.journal import (
    BEGIN,
    DONE,
    FAILED,
    REFUSED,
    Line,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions import PartitionError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_plan import Plan, turned
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import shown

STEPS = ("drain", "imex", "switch", "gpus", "accept", "slurm", "return")
"""The steps of a change, in their order, between ``plan`` and ``end``."""
_BEFORE_GPUS = ("drain", "imex")
"""Their end is no proof in a later run, since somebody may have resumed a tray meanwhile."""


class Journal:
    """The lines of a journal at this moment; FabricFileError where it cannot be read or written.

    now: returns the time, as RFC 3339 in UTC.
    """

    def __init__(self, path: str, domain: str, now: Callable[[], str]) -> None:
        self.path, self.domain, self._now = path, domain, now
        self.lines = journal.read(path)

    @property
    def change(self) -> list[Line]:
        """The lines of the open change, the first of which has its plan; none where no change is open."""
        lines = self._last
        return [] if any(line["step"] == "end" and line["state"] == DONE for line in lines) else lines

    @property
    def plan(self) -> Plan | None:
        """What the open change does now, turned where it was turned back; None where no change is open.

        With what else open() was given.
        """
        return self._last_plan if self.change else None

    @property
    def is_back(self) -> bool:
        """Whether the last change was turned back."""
        return any(line["step"] == "rollback" for line in self._last)

    @property
    def put(self) -> dict[str, int]:
        """Tray -> the partition that the last change has left it in; none while one is open."""
        if self.change or not self._last:
            return {}
        return {tray: row["id"] for row in self._last_plan["after"] for tray in row["trays"]}

    @property
    def used(self) -> set[int]:
        """The partition IDs of all plans, none of which is given to another clique."""
        plans = [self._plan(line) for line in self.lines if line["step"] == "plan"]
        return {row["id"] for plan in plans for row in (*plan["before"], *plan["after"])}

    @property
    def made(self) -> set[int]:
        """The partitions that are, or may be, on the switch because of an operation of this journal."""
        found = dict[int, bool]()
        for line in self.lines:
            verb, _space, number = line["code"].partition(" ")
            if number.isdecimal() and (verb == "create" or (verb, line["state"]) == ("delete", DONE)):
                found[int(number)] = verb == "create" and line["state"] != REFUSED
        return {number for number, is_made in found.items() if is_made}

    def due(self, step: str) -> bool:
        """Whether a step of the open change is still to be done; of _BEFORE_GPUS each time until they have moved."""
        lines, waited = self.change, "gpus" if step in _BEFORE_GPUS else step
        turned = max((number for number, line in enumerate(lines) if line["step"] == "rollback"), default=0)
        ends = (line for line in lines[turned:] if line["state"] == DONE and not line["code"])
        return bool(lines) and waited not in {line["step"] for line in ends}

    def begun(self) -> Line | None:
        """The last operation of the open change if it is not known whether the switch has done it."""
        last = next((line for line in reversed(self.change) if line["step"] == "switch" and line["code"]), None)
        return last if last and last["state"] in (BEGIN, FAILED) else None

    def open(self, sha256: str, document: Mapping[str, Any]) -> None:
        """Begin a change. document: a Plan, and whatever else a run that continues it must know."""
        self.write("plan", DONE, detail=json.dumps(document, sort_keys=True), incident=sha256[:12])

    def turn_back(self, why: str = "") -> None:
        """Turn the open change back; one that was turned back before stays so. why: empty where a person asks."""
        if not self.is_back:
            self.write("rollback", DONE, detail=why)

    def write(
        self, step: str, state: str, subject: str = "", code: str = "", detail: str = "", incident: str = ""
    ) -> None:
        """Append a line. subject: the domain without one. incident: that of the open change without one."""
        at, subject, incident = self._now(), subject or self.domain, incident or self.change[0]["incident"]
        line = Line(incident=incident, at=at, step=step, state=state, subject=subject, code=code, detail=detail)
        with storage.locked(self.path, at):
            journal.append(self.path, [line])
        self.lines.append(line)

    @property
    def _last(self) -> list[Line]:
        """The lines of the last change, open or not."""
        begins = max((at for at, line in enumerate(self.lines) if line["step"] == "plan"), default=len(self.lines))
        return self.lines[begins:]

    @property
    def _last_plan(self) -> Plan:
        plan = self._plan(self._last[0])
        return turned(plan) if self.is_back else plan

    def _plan(self, line: Line) -> Plan:
        plan = journal.content(line["detail"])
        if plan.keys() >= Plan.__required_keys__:
            return cast("Plan", plan)
        how = "restore the line, or move the file away, and run discover"
        raise PartitionError(f"{self.path}: the plan {shown(line['incident'])} is incomplete; {how}")


def journals(
    fabric_file_path: str, domains: Iterable[str] | None, state_dir: str | None, now: Callable[[], str]
) -> dict[str, Journal]:
    """Domain -> its journal; where domains is None, of all that have one."""
    begins = fabric_file.companion(fabric_file_path, "partition-", state_dir)
    if domains is None:
        files = sorted(glob.glob(f"{glob.escape(begins)}*.jsonl"))
        domains = [file.removeprefix(begins).removesuffix(".jsonl") for file in files]
    return {domain: Journal(f"{begins}{domain}.jsonl", domain, now) for domain in domains}
