# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Drain nodes, and resume them after a test job ran there.

Private to this collection; it may change in any release. Python 3.9, standard library only.

A drained node runs no test. So it is first reserved for the test's user and then undrained: no job of another user
runs on it before its test has passed (observed on 24.11.5 and 26.05.5: with MAINT and IGNORE_JOBS a reservation can
include a drained node). The reservation ends by itself if the run is killed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.rackscale.nvlink.plugins.module_utils import child, node_names
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import fold
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import rules, scontrol
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm, polls
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import SlurmError

# The prefix of every reason that this collection sets; nodes with another reason stay drained.
OURS = "nvlink: "
UNPROVEN = f"{OURS}test failed"
# How many sruns wait for their tests concurrently; each is little more than a waiting process.
MAX_TESTS = 32
# Seconds between two queries, which grow: each makes slurmctld list all jobs or all nodes.
_PAUSES = (0.3, 5.0)
_DRAINED_BY = " : drained by "
# States in which a node runs no job, whatever its other flags are; DOWN nodes wait for slurmd.
_AWAY = frozenset(("DOWN", "NOT_RESPONDING", "UNKNOWN", "FUTURE", "POWERED_DOWN"))


@dataclass(frozen=True)
class Node:
    """The flags of a node's state, such as IDLE and DRAIN, and the reason that Slurm shows, empty if it has none.

    by: who set the reason, and when, as in ``root@2026-11-21T15:10:00``.
    """

    words: frozenset[str]
    reason: str = ""
    by: str = ""

    @property
    def drained(self) -> bool:
        return "DRAIN" in self.words

    @property
    def cause(self) -> str:
        """Why it was drained, without what slurmctld appends later, as in ``nvlink: drain : Not responding``."""
        return self.reason.partition(" : ")[0]


@dataclass(frozen=True)
class Test:
    """A program that must exit with 0 on a node before it is resumed; no test if ``command`` is empty.

    together: a test of the nodes that passed, as clique_test.run() by its first arguments; None for no such test.
    """

    command: tuple[str, ...] = ()
    user: str = "root"
    timeout: float = 120.0
    together: Callable[[Slurm, str, Sequence[str]], tuple[dict[str, str], list[str]]] | None = None


@dataclass
class Outcome:
    """What was done, or would be done.

    ``changes``: sentences. ``unknown_nodes``: names that slurmctld does not know. ``running_jobs``: node -> job IDs.
    ``drained_by_others``: node -> the reason in Slurm. ``failed_tests``: node -> why its test failed. ``untested``: a
    sentence for each clique of which no other tray took part in the test.
    """

    changes: list[str] = field(default_factory=list)
    unknown_nodes: list[str] = field(default_factory=list)
    running_jobs: dict[str, list[str]] = field(default_factory=dict)
    drained_by_others: dict[str, str] = field(default_factory=dict)
    failed_tests: dict[str, str] = field(default_factory=dict)
    untested: list[str] = field(default_factory=list)


def parse(text: str) -> dict[str, Node]:
    """Parse ``scontrol -o show nodes``: node -> its state. A reason may contain white space."""
    return {
        record["NodeName"]: Node(
            frozenset(record.get("State", "").upper().split("+")),
            record.get("Reason", ""),
            record.get("ReasonBy", ""),
        )
        for record in scontrol.parse_records(text)
        if "NodeName" in record
    }


def survey(slurm: Slurm, wanted: Iterable[str] = ()) -> dict[str, Node]:
    """The nodes that slurmctld has; SlurmError where it has a wanted one under another name."""
    known = parse(slurm.scontrol("-a", "-o", "show", "nodes"))
    if any(name not in known for name in wanted):
        node_names.check(wanted, slurm.node_names())
    return known


def _begin(slurm: Slurm, names: Sequence[str]) -> tuple[Outcome, dict[str, Node], dict[str, Node]]:
    """An outcome with the unknown nodes; the known ones of these names; those of them that are drained."""
    known = survey(slurm, names)
    here = {name: known[name] for name in names if name in known}
    outcome = Outcome(unknown_nodes=[name for name in names if name not in known])
    return outcome, here, {name: node for name, node in here.items() if node.drained}


def drain(slurm: Slurm, names: Sequence[str], why: str, wait: float, check: bool, unless_up: bool = False) -> Outcome:
    """Drain these nodes and wait up to ``wait`` seconds for their running jobs; those left are in ``running_jobs``.

    A node that is drained for another reason keeps it: whoever drained it decides when it is resumed. ``unless_up``:
    skip nodes that answer slurmctld.
    """
    outcome, here, drained = _begin(slurm, names)
    outcome.drained_by_others = {name: node.reason for name, node in drained.items() if node.cause != why}
    fresh = [name for name, node in here.items() if name not in drained and not (unless_up and not node.words & _AWAY)]
    outcome.changes = [f"{name}: drained ({why})" for name in fresh]
    if fresh and not check:
        _update(slurm, fresh, "state=drain", f"reason={why}")
    for _poll in polls(0 if check else wait, *_PAUSES):
        outcome.running_jobs = _running_jobs(slurm, here)
        if not outcome.running_jobs:
            break
    return outcome


def adopt(slurm: Slurm, names: Sequence[str], why: str, check: bool) -> Outcome:
    """Give this reason to nodes that are drained for another reason of this collection; others keep their state."""
    outcome, _here, drained = _begin(slurm, names)
    causes = {name: node.cause for name, node in drained.items()}
    others = [name for name, old in causes.items() if old.startswith(OURS) and old != why]
    if others and not check:
        _update(slurm, others, "state=drain", f"reason={why}")
    outcome.changes = [f"{name}: {causes[name]} -> {why}" for name in others]
    outcome.drained_by_others = {name: old for name, old in causes.items() if not old.startswith(OURS)}
    return outcome


def resume(
    slurm: Slurm, names: Sequence[str], why: str, test: Test, check: bool, any_reason: Collection[str] = ()
) -> Outcome:
    """Resume nodes that were drained for this reason or after a failed test, each once its test has passed.

    any_reason: those of them that are resumed for another reason of this collection too, which one keeps whose test
    fails.
    """
    outcome, _here, drained = _begin(slurm, names)
    mine = {
        name: node
        for name, node in drained.items()
        if node.cause in (why, UNPROVEN) or (name in any_reason and node.cause.startswith(OURS))
    }
    outcome.drained_by_others = {name: node.reason for name, node in drained.items() if name not in mine}
    if mine and (test.command or test.together) and not check:
        reasons = {name: _after_failure(node, why) for name, node in mine.items()}
        outcome.failed_tests, outcome.untested = _test_and_resume(slurm, mine, test, reasons)
    elif mine and not check:
        _undrain(slurm, mine)
    outcome.changes = [f"{name}: resumed" for name in mine if name not in outcome.failed_tests]
    return outcome


def _running_jobs(slurm: Slurm, names: Iterable[str]) -> dict[str, list[str]]:
    named = set(names)
    found: dict[str, list[str]] = {}
    for job in slurm.jobs():
        for node in named.intersection(job.nodes):
            found.setdefault(node, []).append(job.id)
    return found


def _after_failure(node: Node, why: str) -> str:
    """The reason of a node whose test has failed: that of an earlier drain, with who drained it and when.

    Slurm has the user and the time of the last update alone.
    """
    if node.cause in (why, UNPROVEN):
        return UNPROVEN
    return node.reason if _DRAINED_BY in node.reason else f"{node.cause}{_DRAINED_BY}{node.by}, test failed"


def _test_and_resume(
    slurm: Slurm, names: Mapping[str, Node], test: Test, reasons: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """(node -> why it is drained again, with its reason; Outcome.untested).

    On any error no untested node is open to other users' jobs.
    """
    reservation = f"nvlink_test_{os.getpid()}"
    rounds = -(-len(names) // MAX_TESTS) * (2 if test.together else 1)
    minutes = int((test.timeout * rounds + 3 * slurm.timeout) / 60) + 2
    made = slurm.reserve(reservation, names, test.user, str(minutes), "MAINT,IGNORE_JOBS")
    if made.rc != 0:
        raise SlurmError(
            f"The reservation for the test of {fold(names)} cannot be created ({made.reason.rstrip('.')}): allow root"
            " to create reservations, or test by hand; the nodes stay drained."
        )
    failed, untested = dict.fromkeys(names, "its test did not end"), list[str]()
    try:
        _undrain(slurm, names)
        away = _unresponsive(slurm, names)
        failed.update(dict.fromkeys(away, "slurmd does not answer slurmctld"))
        passed = here = [name for name in names if name not in away]
        if test.command:
            ran = dict(zip(here, run_tests(slurm, [(reservation, [name]) for name in here], test)))
            passed = [name for name in here if ran[name].rc == 0]
            why = f"its test {test.command[0]} failed"
            failed.update((name, f"{why} ({ran[name].reason.rstrip('.')})") for name in here if name not in passed)
        if test.together and passed:
            together, untested = test.together(slurm, reservation, passed)
            failed.update(together)
            passed = [name for name in passed if name not in together]
        for name in passed:
            del failed[name]
    finally:
        for reason in sorted({reasons[name] for name in failed}):
            _update(
                slurm, [name for name in sorted(failed) if reasons[name] == reason], "state=drain", f"reason={reason}"
            )
        slurm.release(reservation)
    return failed, untested


def run_tests(slurm: Slurm, jobs: Sequence[tuple[str, Sequence[str]]], test: Test) -> list[child.Result]:
    """The results of the test as jobs, of each its reservation and nodes.

    Concurrently, since one by one the trays of 576 racks would take hours.
    """
    partitions = partition_words(slurm.records("partitions"), [names for _reservation, names in jobs])
    words = [_srun_words(*job, test, where) for job, where in zip(jobs, partitions)]
    return slurm.call_each("srun", words, test.timeout, MAX_TESTS, acts=True)


def partition_words(records: Sequence[Mapping[str, str]], jobs: Iterable[Sequence[str]]) -> list[list[str]]:
    """For each job on these nodes the argument of srun that names a partition with all of them.

    The cluster's default partition comes first, since tiers may leave nodes out of it. No argument where no partition
    has all of them: then srun prints Slurm's reason. records: of ``scontrol show partitions``.
    """
    in_order = sorted(records, key=lambda record: record.get("Default") != "YES")
    up = [record for record in in_order if record.get("State") == "UP" and record.get("DisableRootJobs") != "YES"]
    usable = [(partition, frozenset(partition.nodes)) for partition in rules.partitions_of(up)]
    return [
        [
            f"--partition={partition.name}"
            for partition, nodes in usable
            if nodes.issuperset(job) and partition.fits(len(job))
        ][:1]
        for job in jobs
    ]


def _srun_words(reservation: str, names: Sequence[str], test: Test, where: Sequence[str]) -> list[str]:
    """The arguments of srun for one task of the test on each of these nodes; where: of partition_words()."""
    who = [] if test.user == "root" else [f"--uid={test.user}"]
    place = [f"--nodelist={fold(names)}", f"--reservation={reservation}", f"--nodes={len(names)}"]
    limits = [f"--ntasks={len(names)}", "--ntasks-per-node=1", f"--time={int(test.timeout / 60) + 1}", "--chdir=/"]
    return [*who, *where, *place, *limits, "--", *test.command]


def _unresponsive(slurm: Slurm, names: Collection[str]) -> list[str]:
    """The nodes that still do not answer slurmctld after ``slurm.timeout`` seconds."""
    away: list[str] = []
    for _poll in polls(slurm.timeout, *_PAUSES):
        known = survey(slurm)
        away = [name for name in names if known.get(name, Node(frozenset(("DOWN",)))).words & _AWAY]
        if not away:
            break
    return away


def _undrain(slurm: Slurm, nodes: Mapping[str, Node]) -> None:
    """UNDRAIN clears the drain flag alone; a node that was set down and whose slurmd answers needs RESUME."""
    down = [name for name, node in nodes.items() if "DOWN" in node.words and "NOT_RESPONDING" not in node.words]
    _update(slurm, [name for name in nodes if name not in down], "state=undrain")
    _update(slurm, down, "state=resume")


def _update(slurm: Slurm, names: Sequence[str], *settings: str) -> None:
    if not names:
        return
    done = slurm.call("scontrol", "update", f"nodename={fold(names)}", *settings, acts=True)
    if done.rc != 0 or done.timed_out:
        raise SlurmError(
            f"scontrol update of {fold(names)} to {settings[0]} failed ({done.reason.rstrip('.')}): check that"
            " slurmctld runs and that this user is a Slurm operator."
        )
