# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The open partition changes of a run: each step has a line in the journal of its domain before it and after it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import nvue
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import storage
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.journal import BEGIN, DONE, FAILED, REFUSED
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
    ASKED,
    BEFORE,
    PUT_BACK,
    STEPS,
    Journal,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_plan import HAND, NVUE, Plan
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

    def going_on(self, domains: Collection[str], rollback: bool) -> list[str]:
        """A line for the open change of each of these domains."""
        text = []
        for journal in (self.journals[domain] for domain in domains):
            left, first = [step for step in STEPS if journal.due(step)], journal.change[0]
            back = " back" if rollback or journal.target == BEFORE else ""
            what = f"The change {first['incident']} of NVLink domain {journal.domain} began at {first['at']}"
            text.append(f"{what}; it goes{back} on with: {', '.join(left)}.")
        return text

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
        """
        for journal in self.journals.values():
            storage.mark(journal.path, now, pid)
        # After the marks, so that both of two runs that began at the same time refuse.
        begun = [plan["domain"] for plan in plans if plan["domain"] in self.incidents]
        meanwhile = [f"a change of the partitions of {names(begun)} has begun; run partition again"] if begun else []
        if refused := [*self.in_use(others, pid), *meanwhile]:
            self.unmark(pid)
            raise PartitionError(refused[0])
        for plan in plans:
            if plan["moved"]:
                self.journals[plan["domain"]].open(sha256, plan)
        for journal, _plan in self.opened() if rollback else ():
            journal.turn_back(ASKED)

    @property
    def trays(self) -> list[str]:
        """The trays of the domains of this run."""
        return [tray for domain in self.journals for tray in wish.trays_of(self.fabric, domain)]

    def affected(self, step: str = "") -> list[str]:
        """The trays of the open changes whose clique changes, of those for which a step is due."""
        return [tray for _journal, plan in self.opened(step) for tray in plan["affected"] if tray in self.fabric.trays]

    def rows(self, step: str, nodes: Mapping[str, str]) -> list[dict[str, str]]:
        """What tasks/cordon.yml and labels.yml need of affected() trays with a node in Kubernetes."""
        return [
            {
                "tray": tray,
                "kubernetes_node": nodes[tray],
                "clique": (clique := self.fabric.trays[tray]["clique"]),
                "label": self.fabric.clique_text(clique),
                "incident": journal.change[0]["incident"],
            }
            for journal, plan in self.opened(step)
            for tray in plan["affected"]
            if tray in nodes
        ]

    def clique_ids(self, step: str) -> dict[str, int]:
        """What the GPUs of the trays that move are to report, of the changes for which a step is due."""
        due = self.opened(step)
        return {
            tray: number
            for journal, plan in due
            for tray, number in partition_steps.clique_ids(plan, journal.target).items()
        }

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
            wanted = partition_steps.clique_ids(plan, journal.target)
            own = problem if found is None else partition_answers.gpu_problem(wanted, found)
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
            # A run that goes on waits for that person again.
            if HAND in (plan["by"], self.by) and not journal.due("switch"):
                text += partition_steps.by_hand(plan, journal.target)
        for journal, plan in self.opened("switch"):
            storage.mark(journal.path, now, own)
            try:
                text += self._switched(journal, plan, find, wait, go_on)
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

    def _switched(
        self, journal: Journal, plan: Plan, find: Callable[[str], nvue.Switch], wait: float, say: switching.Say
    ) -> list[str]:
        journal.write("switch", BEGIN)
        if HAND in (plan["by"], self.by):
            journal.write("switch", DONE, detail="by hand")
            return partition_steps.by_hand(plan, journal.target)
        end = switching.converge(find(plan["domain"]), plan, journal, wait, say)
        is_done = end.state in (switching.DONE, switching.IS_BACK)
        journal.write("switch", DONE if is_done else FAILED, detail=end.detail)
        if not is_done:
            raise PartitionError(end.detail)
        return [end.detail or f"The switch has the partitions of NVLink domain {plan['domain']} now."]

    def require_agreed(self, proposed: Fabric, trays: Collection[str]) -> None:
        """PartitionError unless a fabric file has the places of the plans and no other change. trays: that answer."""
        plans = [(plan, journal.target) for journal, plan in self.opened()]
        if others := list(partition_steps.disagreements(plans, trays, self.fabric, proposed)):
            raise PartitionError(f"the next fabric file would not be that of the plan ({summarize(others)}); {NEXT}")

    def report(self, trays: Sequence[str], pid: int) -> tuple[list[str], str]:
        """End the open changes; what they have done, and why one was put back. trays: those that answer."""
        text, failures = list[str](), list[str]()
        for journal, plan in self.opened():
            domain, lines = plan["domain"], journal.change
            back = " back" if journal.target == BEFORE else ""
            text.append(f"NVLink domain {domain}: {count(len(plan['moved']), 'tray')} moved{back}.")
            text += [f"{tray} stays in its partition: {why}." for tray, why in plan["staying"].items()]
            if silent := [tray for tray in plan["affected"] if tray not in trays]:
                text.append(f"{folded(silent)} did not answer and stays drained; return it with the playbook resume.")
            if any(line["code"] == PUT_BACK for line in lines):
                ends = (line for line in reversed(lines) if line["step"] == "switch" and line["detail"])
                why = next(line["detail"] for line in ends if not line["code"] or line["state"] == REFUSED)
                what = f"The partitions of NVLink domain {domain} are as before, and its trays in service"
                failures.append(f"{what}: {why}")
            journal.write("end", DONE)
        self.unmark(pid)
        return text, " ".join(map(ended, failures))

    def unmark(self, pid: int) -> None:
        """Remove the marks of this run, which ends: on another host, as of a container, they would count for ever."""
        for journal in self.journals.values():
            storage.unmark(journal.path, pid)

    @contextlib.contextmanager
    def unmarked_by_failure(self, pid: int, goes_on: bool) -> Iterator[None]:
        """Remove the marks of this run where an error ends it; goes_on: whether it tries again instead."""
        try:
            yield
        except NvlinkError:
            if not goes_on:
                self.unmark(pid)
            raise
