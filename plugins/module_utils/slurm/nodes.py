# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes that are kept from jobs, and given back to them once a test job ran there.

Private to this collection; it may change in any release. Python 3.9, standard library only.

A node cannot run a test while it is drained. So it is reserved for the test's user first and undrained then: nobody
else's job reaches it before its test has passed (seen on 24.11.5 and 26.05.5: MAINT and IGNORE_JOBS let a reservation
take a drained node). The reservation ends by itself should the run be killed.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import fold
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import files
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm, reason

# Every reason of ours begins with it, and no other reason is ever taken away.
OURS = "nvlink: "
UNPROVEN = f"{OURS}test failed"
# How many sruns wait for their tests side by side; each is little more than a process that waits.
TESTS_AT_ONCE = 32
# Seconds between two looks, which get longer: each asks slurmctld for all jobs or all nodes.
_FIRST_PAUSE, _PAUSE_GROWS, _LONGEST_PAUSE = 0.3, 1.3, 5.0
_REASON = re.compile(r" Reason=(.*?) \[[^\]\s]*@[^\]\s]*\]")
# Base states of a node that runs no job however it is flagged; DOWN ones wait for slurmd.
_AWAY = frozenset(("DOWN", "NOT_RESPONDING", "UNKNOWN", "FUTURE", "POWERED_DOWN"))


@dataclass(frozen=True)
class Node:
    """The words of a node's state, as IDLE and DRAIN, and why it is as it is; empty for no reason."""

    words: frozenset[str]
    reason: str = ""

    @property
    def drained(self) -> bool:
        return "DRAIN" in self.words

    @property
    def cause(self) -> str:
        """Why it was drained; slurmctld adds what befell the node since, as in ``nvlink: drain : Not responding``."""
        return self.reason.partition(" : ")[0]


@dataclass(frozen=True)
class Test:
    """A program that must end with 0 on every node before jobs come back; none where ``command`` is empty."""

    command: tuple[str, ...] = ()
    user: str = "root"
    timeout: float = 120.0


@dataclass
class Outcome:
    """What was done, or would be. Node -> a sentence or a reason; ``busy``: node -> its jobs."""

    changes: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    busy: dict[str, list[str]] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def parse(text: str) -> dict[str, Node]:
    """``scontrol -o show nodes``: node -> its state. A reason may hold white space, so it is not read as a key."""
    found = {}
    for line in text.splitlines():
        keys = dict(files.key_values(line))
        if "NodeName" in keys:
            why = _REASON.search(line)
            words = frozenset(keys.get("State", "").upper().split("+"))
            found[keys["NodeName"]] = Node(words, why.group(1) if why else "")
    return found


def survey(slurm: Slurm) -> dict[str, Node]:
    return parse(slurm.ask("-a", "-o", "show", "nodes"))


def drain(slurm: Slurm, names: Sequence[str], why: str, wait: float, check: bool, unless_up: bool = False) -> Outcome:
    """Keep jobs from these nodes, and wait until those that run have ended; who still has some is ``busy``.

    A node that is drained for another reason stays so: whoever drained it decides when it comes back. With
    ``unless_up`` one that answers slurmctld stays as it is too.
    """
    known = survey(slurm)
    outcome = Outcome(missing=[name for name in names if name not in known])
    here = [name for name in names if name in known]
    outcome.kept = {name: known[name].reason for name in here if known[name].drained and known[name].cause != why}
    fresh = [name for name in here if not known[name].drained and not (unless_up and not known[name].words & _AWAY)]
    outcome.changes = [f"{name}: drained ({why})" for name in fresh]
    if fresh and not check:
        _update(slurm, fresh, "state=drain", f"reason={why}")
    for _look in _looks(0 if check else wait):
        outcome.busy = _busy(slurm, here)
        if not outcome.busy:
            break
    return outcome


def take_over(slurm: Slurm, names: Sequence[str], why: str, check: bool) -> Outcome:
    """Give this reason to nodes that are drained for another one of ours; all others stay as they are."""
    known = survey(slurm)
    drained = {name: known[name].cause for name in names if name in known and known[name].drained}
    others = [name for name, old in drained.items() if old.startswith(OURS) and old != why]
    if others and not check:
        _update(slurm, others, "state=drain", f"reason={why}")
    return Outcome(
        changes=[f"{name}: {drained[name]} -> {why}" for name in others],
        missing=[name for name in names if name not in known],
        kept={name: old for name, old in drained.items() if not old.startswith(OURS)},
    )


def resume(slurm: Slurm, names: Sequence[str], why: str, test: Test, check: bool) -> Outcome:
    """Give nodes back to jobs that were drained for this reason, or when a test failed, each after its test."""
    known = survey(slurm)
    outcome = Outcome(missing=[name for name in names if name not in known])
    drained = {name: known[name] for name in names if name in known and known[name].drained}
    mine = [name for name, node in drained.items() if node.cause in (why, UNPROVEN)]
    outcome.kept = {name: node.reason for name, node in drained.items() if name not in mine}
    if mine and test.command and not check:
        outcome.refused = _prove(slurm, mine, test, {name: known[name] for name in mine})
    elif mine and not check:
        _give_back(slurm, {name: known[name] for name in mine})
    outcome.changes = [f"{name}: resumed" for name in mine if name not in outcome.refused]
    return outcome


def _busy(slurm: Slurm, names: Iterable[str]) -> dict[str, list[str]]:
    wanted = set(names)
    found: dict[str, list[str]] = {}
    for job in slurm.jobs():
        for node in wanted.intersection(job.nodes):
            found.setdefault(node, []).append(job.id)
    return found


def _prove(slurm: Slurm, names: Sequence[str], test: Test, known: Mapping[str, Node]) -> dict[str, str]:
    """Node -> why it is drained again. Whatever happens, no node is open to others without its test."""
    reservation = f"nvlink_test_{os.getpid()}"
    rounds = -(-len(names) // TESTS_AT_ONCE)
    minutes = int((test.timeout * rounds + slurm.timeout) / 60) + 2
    made = slurm.call(
        "scontrol",
        "create",
        "reservation",
        f"ReservationName={reservation}",
        "StartTime=now",
        f"Duration={minutes}",
        f"Nodes={fold(names)}",
        f"Users={test.user}",
        "Flags=MAINT,IGNORE_JOBS",
    )
    if made.rc != 0:
        raise SlurmError(
            f"No reservation for the test of {fold(names)} ({reason(made).rstrip('.')}): see that root may make"
            " reservations, or test by hand; the nodes stay drained."
        )
    refused = dict.fromkeys(names, "its test did not end")
    try:
        _give_back(slurm, known)
        away = _wait_for(slurm, names)
        refused.update(dict.fromkeys(away, "slurmd does not answer slurmctld"))
        here = [name for name in names if name not in away]
        for name, ran in zip(here, _tested(slurm, here, reservation, test)):
            if ran.rc == 0:
                del refused[name]
            else:
                refused[name] = f"its test {test.command[0]} failed ({reason(ran).rstrip('.')})"
    finally:
        if refused:
            _update(slurm, sorted(refused), "state=drain", f"reason={UNPROVEN}")
        slurm.call("scontrol", "delete", f"ReservationName={reservation}")
    return refused


def _tested(slurm: Slurm, names: Sequence[str], reservation: str, test: Test) -> list[child.Result]:
    """What became of the test on each node. Side by side, or the trays of 576 racks would take hours one by one."""
    limit = int(test.timeout / 60) + 1
    who = [] if test.user == "root" else [f"--uid={test.user}"]
    words = [
        f"--reservation={reservation}",
        "--nodes=1",
        "--ntasks=1",
        f"--time={limit}",
        "--chdir=/",
        "--",
        *test.command,
    ]
    return slurm.call_each(
        "srun", [[*who, f"--nodelist={name}", *words] for name in names], test.timeout, TESTS_AT_ONCE
    )


def _wait_for(slurm: Slurm, names: Sequence[str]) -> list[str]:
    """Those that slurmctld does not see, however long it is asked."""
    away: list[str] = []
    for _look in _looks(slurm.timeout):
        known = survey(slurm)
        away = [name for name in names if known.get(name, Node(frozenset(("DOWN",)))).words & _AWAY]
        if not away:
            break
    return away


def _looks(seconds: float) -> Iterator[None]:
    """Once at once and again as long as there is time, at its end too, so that what happens last is seen."""
    deadline = time.monotonic() + seconds
    pause = _FIRST_PAUSE
    yield
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(pause, left))
        pause = min(pause * _PAUSE_GROWS, _LONGEST_PAUSE)
        yield


def _give_back(slurm: Slurm, nodes: Mapping[str, Node]) -> None:
    """UNDRAIN takes the drain alone away; a node that was set down and whose slurmd answers needs RESUME."""
    down = [name for name, node in nodes.items() if "DOWN" in node.words and "NOT_RESPONDING" not in node.words]
    _update(slurm, [name for name in nodes if name not in down], "state=undrain")
    _update(slurm, down, "state=resume")


def _update(slurm: Slurm, names: Sequence[str], *settings: str) -> None:
    if not names:
        return
    done = slurm.call("scontrol", "update", f"nodename={fold(names)}", *settings)
    if done.rc != 0 or done.timed_out:
        raise SlurmError(
            f"scontrol update of {fold(names)} to {settings[0]} failed ({reason(done).rstrip('.')}): see that slurmctld"
            " runs and that this user is its operator."
        )
