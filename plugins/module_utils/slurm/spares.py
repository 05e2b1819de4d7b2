# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Spare trays: of each block so many trays work, the others wait in a reservation until one of those breaks.

Private to this collection; it may change in any release. Python 3.9, standard library only.

Nothing is remembered but by Slurm itself. A tray that is drained or down counts as broken, so a spare of its block is
let go; when it comes back, it is the one that becomes a spare.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand, fold
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import files, nodes
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.nodes import Node
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm, reason

PREFIX = "nvlink_spare_"
# A state with one of these words runs no new job, whatever reservation the node is in.
_BROKEN = frozenset(("DRAIN", "DOWN", "FAIL", "FAILING", "NOT_RESPONDING", "FUTURE", "UNKNOWN"))


@dataclass(frozen=True)
class Change:
    """What a block's reservation has and is to have; nothing to have removes it."""

    name: str
    before: tuple[str, ...]
    after: tuple[str, ...]


def choose(
    members: Sequence[str], known: Mapping[str, Node], reserved: Collection[str], busy: Collection[str], active: int
) -> tuple[str, ...]:
    """The spares of a block, of which ``active`` trays are to work.

    Who is a spare stays one. New ones are the last in the block without a job, then the last of all: a job that runs
    on one ends first.
    """
    usable = [name for name in members if name in known and not known[name].words & _BROKEN]
    wanted = max(0, len(usable) - active)
    ranked = sorted(usable, key=lambda name: (name not in reserved, name in busy, -members.index(name)))
    chosen = set(ranked[:wanted])
    return tuple(name for name in members if name in chosen)


def plan(slurm: Slurm, blocks: Mapping[str, Sequence[str]], active: int) -> list[Change]:
    """The reservations that change. ``active`` 0 means that there are no spares, and removes ours."""
    known, there = nodes.survey(slurm), reservations(slurm)
    busy = {node for job in slurm.jobs() for node in job.nodes}
    changes = []
    for block, members in blocks.items():
        name = PREFIX + block
        before = there.pop(name, ())
        after = choose(members, known, before, busy, active) if active else ()
        if set(before) != set(after):
            changes.append(Change(name, before, after))
    # Those of blocks that the fabric file no longer has.
    changes += [Change(name, before, ()) for name, before in there.items()]
    return changes


def reservations(slurm: Slurm) -> dict[str, tuple[str, ...]]:
    """Ours, by their names, with their nodes."""
    found = {}
    for record in files.parse_records(slurm.ask("-o", "show", "reservation")):
        name = record.get("ReservationName", "")
        if name.startswith(PREFIX):
            found[name] = tuple(expand(record.get("Nodes", "").replace("(null)", "")))
    return found


def apply(slurm: Slurm, changes: Sequence[Change], user: str) -> None:
    for change in changes:
        if not change.after:
            _call(slurm, "delete", f"ReservationName={change.name}")
        elif change.before:
            _call(slurm, "update", f"ReservationName={change.name}", f"Nodes={fold(change.after)}")
        else:
            settings = ("StartTime=now", "Duration=UNLIMITED", f"Users={user}", "Flags=IGNORE_JOBS")
            where = (f"ReservationName={change.name}", f"Nodes={fold(change.after)}")
            _call(slurm, "create", "reservation", *where, *settings)


def told(change: Change) -> str:
    let_go = [name for name in change.before if name not in change.after]
    taken = [name for name in change.after if name not in change.before]
    parts = ([f"{fold(taken)} becomes a spare"] if taken else []) + ([f"{fold(let_go)} works"] if let_go else [])
    return f"{change.name}: {', '.join(parts)}"


def _call(slurm: Slurm, *arguments: str) -> None:
    done = slurm.call("scontrol", *arguments)
    if done.rc != 0 or done.timed_out:
        raise SlurmError(
            f"scontrol {' '.join(arguments[:2])} failed ({reason(done).rstrip('.')}): see that this user may make"
            " reservations, and that no other one holds these trays."
        )
