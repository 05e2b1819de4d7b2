# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keep spare trays of each block in a reservation.

Private to this collection; it may change in any release. Python 3.9, standard library only.

Only Slurm keeps the list of spares. A drained or down tray does not count as active, so a spare of its block leaves
the reservation; when the tray comes back, it becomes the spare.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import expand, fold
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import nodes, rules, scontrol
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.nodes import Node
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import SlurmError

PREFIX = "nvlink_spare_"
# A node whose state has one of these flags runs no new job, in a reservation or not.
_UNAVAILABLE = rules.UNAVAILABLE - rules.RESERVED


@dataclass(frozen=True)
class Change:
    """The nodes of a block's reservation before and after; without nodes after, it is deleted.

    ``users``: who may use it before the change, empty where it does not exist. ``out``: the nodes before that are
    drained or down.
    """

    name: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    users: str = ""
    out: tuple[str, ...] = ()


def choose(
    members: Sequence[str],
    known: Mapping[str, Node],
    reserved: Collection[str],
    busy: Collection[str],
    active: int,
    unfit: Collection[str] = (),
    returned: Collection[str] = (),
) -> tuple[str, ...]:
    """The spares of a block that keeps ``active`` trays for jobs.

    A spare stays a spare; of those that become active, the ones without a job are first. New spares are ``returned``
    trays, which were repaired, then the last trays of the block without a job, then the last of all: a job that runs
    on one ends first. ``unfit`` trays do not count as active, and stay in the reservation where they are in it.
    """
    available = [name for name in members if name in known and not known[name].words & _UNAVAILABLE]
    usable = [name for name in available if name not in unfit]
    number = max(0, len(usable) - active)
    ranked = sorted(
        usable,
        key=lambda name: (
            name not in reserved,
            name not in returned,
            (name in busy) != (name in reserved),
            -members.index(name),
        ),
    )
    chosen = {*ranked[:number], *(name for name in available if name in unfit and name in reserved)}
    return tuple(name for name in members if name in chosen)


def keep(
    slurm: Slurm,
    blocks: Mapping[str, Sequence[str]],
    active: int,
    user: str,
    check: bool = False,
    unfit: Collection[str] = (),
    returned: Collection[str] = (),
) -> nodes.Outcome:
    """Change the reservations; on failure those that were already changed are restored. With ``check`` only plan it.

    ``active`` 0: no spares, every reservation of ours is deleted.
    """
    known, existing = nodes.survey(slurm), reservations(slurm)
    busy = {node for job in slurm.jobs() for node in job.nodes}
    changes = []
    for block, members in blocks.items():
        name = PREFIX + block
        before, users = existing.pop(name, ((), ""))
        after = choose(members, known, before, busy, active, unfit, returned) if active else ()
        if set(before) != set(after):
            out = tuple(node for node in before if node in known and known[node].words & _UNAVAILABLE)
            changes.append(Change(name, before, after, users, out))
    # Blocks that the fabric file no longer has.
    changes += [Change(name, before, (), users) for name, (before, users) in existing.items()]
    if not check:
        apply(slurm, changes, user)
    return nodes.Outcome(changes=[describe(change) for change in changes])


def reservations(slurm: Slurm) -> dict[str, tuple[tuple[str, ...], str]]:
    """The reservations of spares: name -> (nodes, users)."""
    found = {}
    for record in scontrol.parse_records(slurm.scontrol("-o", "show", "reservation")):
        name = record.get("ReservationName", "")
        if name.startswith(PREFIX):
            found[name] = (tuple(expand(record.get("Nodes", "").replace("(null)", ""))), record.get("Users", ""))
    return found


def apply(slurm: Slurm, changes: Sequence[Change], user: str) -> None:
    """Make the changes in their order. SlurmError where one fails; those before it are undone."""
    done: list[Change] = []
    try:
        for change in changes:
            _apply(slurm, change, user)
            done.append(change)
    except BaseException:
        for change in reversed(done):
            with contextlib.suppress(SlurmError):
                _apply(slurm, Change(change.name, change.after, change.before), change.users or user)
        raise


def _apply(slurm: Slurm, change: Change, user: str) -> None:
    if not change.after:
        done = slurm.release(change.name)
    elif change.before:
        where = (f"ReservationName={change.name}", f"Nodes={fold(change.after)}")
        done = slurm.call("scontrol", "update", *where, acts=True)
    else:
        done = slurm.reserve(change.name, change.after, user, "UNLIMITED", "IGNORE_JOBS")
    if done.rc != 0 or done.timed_out:
        raise SlurmError(
            f"The reservation {change.name} cannot be changed ({done.reason.rstrip('.')}): check that this user may"
            " create reservations, and that no other reservation contains these trays."
        )


def describe(change: Change) -> str:
    """One line of the diff."""
    released = [name for name in change.before if name not in change.after and name not in change.out]
    out = [name for name in change.out if name not in change.after]
    reserved = [name for name in change.after if name not in change.before]
    parts = []
    if reserved:
        parts.append(f"{fold(reserved)} {'becomes a spare' if len(reserved) == 1 else 'become spares'}")
    if released:
        parts.append(f"{fold(released)} {'becomes' if len(released) == 1 else 'become'} active")
    if out:
        parts.append(f"{fold(out)} {'is' if len(out) == 1 else 'are'} out of service and no spare now")
    return f"{change.name}: {', '.join(parts)}"
