# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The open partition changes of a run: each step has a line in the journal of its domain before it and after it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.nodes import UNPROVEN
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import nvue
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import storage
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.journal import BEGIN, DONE, FAILED
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric, Identity
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import folded, names
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions import (
    PartitionError,
    partition_answers,
    partition_steps,
    switching,
    wish,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_journal import (
    STEPS,
    Journal,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_plan import (
    HAND,
    NVUE,
    Plan,
    is_ours,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import ended

NEXT = "the trays stay drained: run partition again to go on, or with -e partition_rollback=true to go back"
"""What a person does after a step that failed."""


class Changes:
    """The journals of the domains that a run changes. fabric: the fabric file as it is now.

    by: who changes the switch in this run; a person goes on by hand with what the switch does not do.
    """

    def __init__(self, fabric: Fabric, journals: Mapping[str, Journal], by: str = NVUE) -> None:
        self.fabric, self.journals, self.by = fabric, journals, by

    def opened(self, step: str = "") -> list[tuple[Journal, Plan]]:
        """The journals with an open change, and its plan; with a step those for which it is due."""
        found = ((journal, journal.plan) for journal in self.journals.values())
        return [(journal, plan) for journal, plan in found if plan and (not step or journal.due(step))]

    @property
    def incidents(self) -> dict[str, str]:
        """Domain -> the ID of its open change."""
        return {plan["domain"]: journal.change[0]["incident"] for journal, plan in self.opened()}

    def going_on(self, domains: Collection[str], rollback: bool) -> Iterator[str]:
        """A line for the open change of each of these domains."""
        for journal in (self.journals[domain] for domain in domains):
            left, first = [step for step in STEPS if journal.due(step)], journal.change[0]
            back = " on the way back" if rollback or journal.is_back else ""
            what = f"The change {first['incident']} of NVLink domain {journal.domain} began at {first['at']}"
            yield f"{what}; steps left{back}: {', '.join(left)}."

    def in_use(self, paths: Iterable[str], pid: int) -> list[str]:
        """A sentence for each other run that works on one of these files or on a journal. pid: of this run."""
        every = (*paths, *(journal.path for journal in self.journals.values()))
        held = {path: storage.held(path, pid) for path in every}
        return [f"{path} is in use by {holder}; plan again after it" for path, holder in held.items() if holder]

    def confirm(
        self, plans: Sequence[Plan], sha256: str, rollback: bool, now: str, pid: int, others: Iterable[str] = ()
    ) -> None:
        """Mark the journals for this run, and open these changes, or turn the open ones back.

        A person may have thought about the plans for hours. others: paths that no other run may have in use (in_use).
        Where it refuses, unmarked_by_failure() removes the marks.
        """
        for journal in self.journals.values():
            storage.mark(journal.path, now, pid)
        # After the marks, so that both of two runs that began at the same time refuse.
        if used := self.in_use(others, pid):
            raise PartitionError(used[0])
        if begun := [plan["domain"] for plan in plans if plan["domain"] in self.incidents]:
            raise PartitionError(
                f"another run has begun a change of the partitions of {names(begun)}; run partition again"
            )
        for plan in plans:
            if plan["moved"]:
                self.journals[plan["domain"]].open(sha256, plan)
        for journal, _plan in self.opened() if rollback else ():
            journal.turn_back()

    @property
    def trays(self) -> list[str]:
        """The trays of the domains of this run."""
        return [tray for domain in self.journals for tray in wish.trays_of(self.fabric, domain)]

    def affected(self, step: str = "") -> list[str]:
        """The trays of the open changes whose clique changes, of those for which a step is due."""
        return [tray for _journal, plan in self.opened(step) for tray in plan["affected"] if tray in self.fabric.trays]

    @property
    def imex_owner(self) -> str:
        """Who owns IMEX on affected(), as planned; PartitionError where changes that go on together have several."""
        owners = {plan["domain"]: plan["imex_owner"] for _journal, plan in self.opened()}
        if len({*owners.values()}) > 1:
            what = f"the changes of {' and '.join(owners)} were planned with different imex_owner"
            raise PartitionError(f"{what}; end each of them alone, as -e partition_domains={next(iter(owners))}")
        return next(iter(owners.values()), "")

    def due(self, step: str, found: Mapping[str, partition_answers.Occupants]) -> dict[str, Any]:
        """What the tasks of a step need of the changes for which it is due.

        rows: of trays with a node in Kubernetes, for tasks/cordon.yml and labels.yml. clique_ids: what the GPUs of the
        trays that move are to report.
        """
        due = self.opened(step)
        rows = [
            {
                "tray": tray,
                "kubernetes_node": found[tray].node,
                "label": self.fabric.clique_text(self.fabric.trays[tray]["clique"]),
                "incident": journal.change[0]["incident"],
            }
            for journal, plan in due
            for tray in plan["affected"]
            if tray in found
        ]
        trays = self.affected(step)
        nodes = [self.fabric.trays[tray]["slurm_node"] for tray in trays]
        clique_ids = {tray: number for _journal, plan in due for tray, number in plan["clique_ids"].items()}
        return {"trays": trays, "nodes": nodes, "rows": rows, "clique_ids": clique_ids}

    def begin(self, step: str) -> bool:
        """Write that a step begins where it is due; whether it is anywhere."""
        due = self.opened(step)
        for journal, _plan in due:
            journal.write(step, BEGIN)
        return bool(due)

    def end(self, step: str, problem: str, found: Mapping[str, Identity | None] | None = None) -> bool:
        """Write how a step ended where it is due; PartitionError where it failed.

        found: tray that answers -> its clique, which decides in place of the problem, for each change alone.
        """
        due, problems = self.opened(step), list[str]()
        for journal, plan in due:
            own = problem if found is None else partition_answers.gpu_problem(plan, found)
            journal.write(step, FAILED if own else DONE, detail=own)
            problems += [own] if own and own not in problems else []
        if problems:
            raise PartitionError(f"{'; '.join(problems)}; {NEXT}{self._alone()}")
        return bool(due)

    def _alone(self) -> str:
        """How those of several changes go on that have not failed."""
        domains = self.incidents
        return f"; each of {' and '.join(domains)} goes on alone with -e partition_domains" if len(domains) > 1 else ""

    def switch(self, find: Callable[[str], nvue.Switch], wait: float, say: switching.Say, now: str) -> list[str]:
        """Do the step switch where it is due. find: domain -> its switch. say: shows a line of progress.

        Ansible runs it in a process of its own, which lives on where the run is killed: it has a mark too, so that no
        other run begins meanwhile, and sends nothing more.
        """
        text, errors, own, parent = list[str](), list[str](), os.getpid(), os.getppid()

        def go_on(line: str) -> None:
            if os.getppid() != parent:
                raise PartitionError("the run has been killed")
            say(line)

        for journal, plan in self.opened("gpus"):
            is_by_hand, domain = HAND in (plan["by"], self.by), plan["domain"]
            if is_by_hand:
                # A run that goes on waits for that person again.
                text += partition_steps.by_hand(plan)
            if not journal.due("switch"):
                continue
            storage.mark(journal.path, now, own)
            try:
                journal.write("switch", BEGIN)
                if is_by_hand:
                    journal.write("switch", DONE, detail="by hand")
                    continue
                end = switching.converge(find(domain), plan, journal, wait, go_on)
                is_done = end.state == nvue.DONE
                journal.write("switch", DONE if is_done else FAILED, detail=end.reason)
                said = end.reason or f"The switch has the partitions of NVLink domain {domain} now."
                (text if is_done else errors).append(said)
            except NvlinkError as error:
                if os.getppid() != parent:
                    raise
                errors.append(str(error))
            finally:
                storage.unmark(journal.path, own)
        if errors:
            # Else a person who changes a switch by hand does not see them.
            for line in text:
                say(line)
            raise PartitionError(f"{'; '.join(errors)}{self._alone()}")
        return text

    def require_agreed(self, proposed: Fabric, trays: Collection[str]) -> None:
        """PartitionError unless a fabric file has the places of the plans and no other change. trays: that answer."""
        plans = [plan for _journal, plan in self.opened()]
        if others := list(partition_steps.disagreements(plans, trays, self.fabric, proposed)):
            raise PartitionError(f"the next fabric file would not be that of the plan ({summarize(others)}); {NEXT}")

    def report(self, trays: Sequence[str], nodes: Mapping[str, str], pid: int) -> tuple[list[str], str]:
        """End the open changes; what they have done, and why the run fails: one was put back, or a test failed.

        trays: those that answer. nodes: tray -> its state in Slurm.
        """
        text, failures = list[str](), list[str]()
        for journal, plan in self.opened():
            domain = plan["domain"]
            back = " back" if journal.is_back else ""
            text.append(f"NVLink domain {domain}: {count(len(plan['moved']), 'tray')} moved{back}.")
            text += [f"{tray} stays in its partition: {why}." for tray, why in plan["staying"].items()]
            if silent := [tray for tray in plan["affected"] if tray not in trays]:
                text.append(f"No answer, so still drained: {folded(silent)}; return with the playbook resume.")
            turned = [line["detail"] for line in journal.change if line["step"] == "rollback" and line["detail"]]
            failures += [f"The partitions of NVLink domain {domain} are as before: {why}" for why in turned]
            answering = [tray for tray in plan["affected"] if tray in trays]
            # Those are not fit for jobs, which holds no change open, and are left to resume and repair.
            if sick := [tray for tray in answering if is_ours(nodes.get(tray, ""), (UNPROVEN,))]:
                what = f"The tests of {folded(sick)} have failed, and the change has ended without them"
                failures.append(f"{what}: they stay drained; return them with the playbook repair or resume")
            journal.write("end", DONE)
        self.unmark(pid)
        return text, " ".join(map(ended, [*text, *failures] if failures else []))

    def unmark(self, pid: int) -> None:
        """Remove the marks of this run, which ends: on another host, as of a container, they would count for ever."""
        for journal in self.journals.values():
            storage.unmark(journal.path, pid)

    @contextlib.contextmanager
    def unmarked_by_failure(self, pid: int, state: str, step: str | None) -> Iterator[None]:
        """Remove the marks of this run where an error ends it. state, step: what its task does.

        The playbook repeats the begin of the step imex while pods run, and ends it after that.
        """
        try:
            yield
        except NvlinkError:
            if (state, step) != ("begun", "imex"):
                self.unmark(pid)
            raise
