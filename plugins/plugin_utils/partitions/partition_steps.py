# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which partition changes a run makes, and what became of their steps. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import fold
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import names
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions import PartitionError, wish
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_plan import (
    Plan,
    is_met,
    only_in,
    placed,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import nearest, shown

_OF_PLACE = ("clique", "block", "why")
"""What a move changes in the row of a tray."""


def begun(
    opened: Mapping[str, str], wanted: Collection[str], only: Sequence[str], rollback: bool, plan: str | None
) -> list[str]:
    """The domains whose open change this run continues or turns back; none where it plans another one.

    opened: domain -> the ID of its open change. wanted: the domains of the wish, which may not fit the trays any more.
    only: the domains that a person has named, as partition_domains. plan: the SHA-256 that a person has reviewed.
    PartitionError where a person may mean another change than the open one.
    """
    found = [domain for domain in opened if not only or domain in only]
    how = f"name what this run ends, as -e partition_domains={','.join(found)}"
    if rollback and not found:
        remedy = f"to go back, set {wish.OPTION} to the partitions as they were"
        raise PartitionError(f"partition_rollback: no change of NVLink partitions is unfinished; {remedy}")
    if len(found) > 1 and not only:
        raise PartitionError(f"changes of the partitions of {' and '.join(found)} are unfinished; {how}")
    if found and (new := [domain for domain in only if domain not in opened]):
        raise PartitionError(
            f"partition_domains: the unfinished change is of {names(found)}, not of {shown(new[0])}; {how}"
        )
    if found and not (only or rollback or found[0] in wanted):
        raise PartitionError(f"{wish.OPTION}: lacks {found[0]}, whose change is unfinished; {how}")
    if plan and (other := [domain for domain in found if not plan.startswith(opened[domain])]):
        what = f"the unfinished change of {other[0]} is {opened[other[0]]}, not the plan of this SHA-256"
        raise PartitionError(f"partition_plan: {what}; leave it out to go on with that one")
    return found


def chosen(wanted: Mapping[str, wish.Wish], fabric: Fabric, only: Sequence[str]) -> list[str]:
    """The domains that this run plans. only: those that a person has named, as partition_domains."""
    for domain in only:
        if domain not in wanted:
            raise PartitionError(f"partition_domains: {shown(domain)} is not in {wish.OPTION}{nearest(domain, wanted)}")
    asked = [domain for domain in wanted if not only or domain in only]
    found = [domain for domain in asked if not is_met(wanted[domain], domain, fabric)]
    if len(found) > 1 and not only:
        remedy = f"name those that this run changes, as -e partition_domains={','.join(found)}"
        raise PartitionError(f"{wish.OPTION}: the partitions of {' and '.join(found)} differ; {remedy}")
    return found


def met(wanted: Collection[str]) -> str:
    """What a run says that has nothing to change; the fabric file has no modes and no limits."""
    what = f"The trays of {names(wanted)} are in the partitions of {wish.OPTION}"
    return f"{what}; the layer switch of the playbook verify compares their resiliency and multicast_limit."


def by_hand(plan: Plan) -> list[str]:
    """What a person is to do on the switch."""
    return [
        f"Set the NVLink partitions of {plan['domain']} on its switch now; this run goes on when the GPUs report them:",
        *(f"partition {row['id']} ({row['name']}): {fold(row['trays']) or 'no GPU'}" for row in plan["after"]),
        *(f"partition {row['id']} ({row['name']}): delete it" for row in only_in(plan["before"], plan["after"])),
    ]


def disagreements(plans: Sequence[Plan], trays: Collection[str], before: Fabric, after: Fabric) -> Iterator[str]:
    """How a fabric file that is to be accepted differs from the plans, beyond the trays that do not answer.

    trays: those that answer. before: the fabric file as it is. after: the one to be accepted. A tray that was silent at
    the plan and answers now may follow its GPUs, which the switch has moved in this change or an earlier one.
    """
    places = {tray: (plan["domain"], to) for plan in plans for tray, to in placed(plan, before.trays).items()}
    wanted = {tray for plan in plans for tray in plan["clique_ids"]}.intersection(trays)
    for tray, row in before.trays.items():
        now = after.trays.get(tray)
        if now is None:
            yield f"{tray} would be removed"
            continue
        clique = after.cliques[now["clique"]]
        is_there = (clique["domain"], clique["clique_id"]) == places.get(tray)
        if tray in wanted and not is_there:
            wrong = f"{now['clique']} with ID {clique['clique_id']}"
            yield f"{tray} would be in clique {wrong} instead of {places[tray][1]}"
        elif not is_there and now["clique"] != row["clique"]:
            yield f"{tray} would move to clique {now['clique']}"
        # A tray that changes clique brings nothing else of its own along: its address is in the list of its IMEX peers.
        if differ := sorted(key for key in {*row, *now}.difference(_OF_PLACE) if row.get(key) != now.get(key)):
            yield f"{tray} would have another {' and '.join(differ)}"
    if new := after.trays.keys() - before.trays.keys():
        yield f"{names(new)} would be added"
    if changed := [name for name, row in before.cliques.items() if after.cliques.get(name) != row]:
        yield f"clique {names(changed)} would change"
