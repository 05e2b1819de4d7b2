# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Test trays that return to service together with idle trays of their clique, by one job.

Private to this collection; it may change in any release. Python 3.9, standard library only.

A tray's own test shows its GPUs, and no link or IMEX channel to another tray. The job has a reservation without
IGNORE_JOBS, so Slurm refuses it where jobs run, and no user's job shares a tray with it. It has MAINT, which may
overlap the reservation of the trays that return, and that of spares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import nodes, rules, spares
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.nodes import Node, Test
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm, polls

_POWER = {"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN", "POWER_UP"}
# Flags of an idle node that runs no job soon. RESERVED is not one where the reservation is that of spares.
_BUSY = (rules.UNAVAILABLE | _POWER | {"COMPLETING", "BLOCKED"}) - {"RESERVED"}


def run(
    test: Test, cliques: Mapping[str, Sequence[str]], slurm: Slurm, reservation: str, names: Sequence[str]
) -> tuple[dict[str, str], list[str]]:
    """(node -> why it failed; a sentence for each clique that was not tested). names: nodes that may run jobs.

    test: its program runs on all nodes of a job. cliques: clique -> the NodeNames of its trays. reservation: how the
    names of those made here begin. All cliques are tested concurrently.
    """
    tested = {clique: [name for name in members if name in names] for clique, members in cliques.items()}
    waiting = {clique: members for clique, members in tested.items() if members}
    jobs: dict[str, list[str]] = {}
    notes: dict[str, str] = {}
    failed: dict[str, str] = {}
    try:
        # A node whose own test has just ended is still completing.
        for _poll in polls(slurm.timeout, 0.3, 5.0):
            known, kept = nodes.survey(slurm), spares.reservations(slurm)
            reserved = {name for those, _users in kept.values() for name in those}
            for clique in [clique for clique in waiting if clique not in jobs]:
                idle = _idle([name for name in cliques[clique] if name not in names], known, reserved)
                notes[clique] = f"no idle tray in clique {clique}: not tested together"
                together = [name for name in cliques[clique] if name in idle or name in names]
                if len(together) < 2:
                    del waiting[clique]
                    continue
                minutes = str(int(test.timeout / 60) + 3)
                made = slurm.reserve(f"{reservation}_{clique}", together, test.user, minutes, "MAINT")
                if made.rc == 0:
                    jobs[clique] = together
                    del notes[clique]
                else:
                    notes[clique] = f"clique {clique}: not tested together ({made.reason.rstrip('.')})"
            if waiting.keys() == jobs.keys():
                break
        tests = [(f"{reservation}_{clique}", those) for clique, those in jobs.items()]
        for clique, ran in zip(jobs, nodes.run_tests(slurm, tests, test)):
            if ran.rc != 0:
                why = f"its test {test.command[0]} with clique {clique} failed ({ran.reason.rstrip('.')})"
                failed.update(dict.fromkeys(tested[clique], why))
    finally:
        for clique in jobs:
            _end(slurm, f"{reservation}_{clique}")
    return failed, list(notes.values())


def _idle(names: Sequence[str], known: Mapping[str, Node], spare: set[str]) -> set[str]:
    states = {name: known[name].words for name in names if name in known}
    return {
        name
        for name, words in states.items()
        if "IDLE" in words and not words & _BUSY and ("RESERVED" not in words or name in spare)
    }


def _end(slurm: Slurm, reservation: str) -> None:
    """Cancel the job, if a hung one is left, and delete the reservation, which Slurm refuses while a job is in it."""
    slurm.call("scancel", f"--reservation={reservation}", acts=True)
    for _poll in polls(slurm.timeout, 0.3, 5.0):
        if slurm.release(reservation).rc == 0:
            break
