# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a change of NVLink partitions: which tray goes where, what objects to it, and the calls of the switch.

- The ID of a partition is the clique ID of its GPUs. It belongs to one clique of the fabric file and is not given to
  another one.
- A shape keeps the partitions that exist and the trays that fit into them, then takes cliques without trays, then new
  IDs. The default partition ends empty and is kept.
- A tray that does not answer is moved only where the switch lists its GPUs as it last reported them.
- All trays of a clique whose members change are affected: they share an IMEX list, and the switch reroutes them.

Pure functions.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypedDict

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.nodes import UNPROVEN
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import nvue
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric, Identity
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import equal, folded, grouped
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.places import (
    DEFAULT_CLIQUE,
    Places,
    is_clique,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.wish import (
    MULTICAST_GROUPS,
    MULTICAST_STEP,
    OPTION,
    Part,
    Wish,
    cliques_of,
    trays_of,
)

Placing = Mapping[str, int]
"""Tray -> its partition."""
NVUE, HAND = "nvue", "hand"
OVERRIDES = JOBS, DRAINED, COMPUTE_DOMAINS, DEGRADED = ("jobs", "drained", "compute_domains", "degraded")
"""Gates that a site may override by naming them in partition_override; no other one can be."""
REASON = "nvlink: partition"
"""The reason in Slurm of a tray that this change drains."""
SECONDS = 10
"""Expected time of a call: NVIDIA's test suite of NVOS waits so long after each."""
_STAYS = "no answer, and no switch lists its GPUs as it last reported them"


class Row(TypedDict):
    """An NVLink partition. mode, limit: empty and None where unknown. made: whether this collection has created it."""

    id: int
    name: str
    trays: list[str]
    mode: str
    limit: int | None
    default: bool
    made: bool


class Plan(TypedDict):
    """The change of one domain. by: nvue or hand. before, after: all partitions, by their IDs.

    gpus: moved tray -> location and uid of each GPU, as the switch lists them; none by hand. moved: trays whose
    partition changes. affected: trays of cliques whose members change. clique_ids: moved tray that answers -> its
    clique ID then. staying: tray that should move -> why it stays. imex_owner: of all affected trays, before and after;
    empty where the site sets none.
    """

    domain: str
    by: str
    before: list[Row]
    after: list[Row]
    gpus: dict[str, list[list[str]]]
    moved: list[str]
    affected: list[str]
    clique_ids: dict[str, int]
    staying: dict[str, str]
    imex_owner: str


class Objection(NamedTuple):
    """Why a plan does not run. gate: of OVERRIDES, or a word that cannot be overridden. message: without full stop."""

    gate: str
    message: str


class Operation(NamedTuple):
    """One call of the switch. verb: of clients/nvue.py. tray, location, uid: of its GPU; empty for DELETE."""

    verb: str
    partition: int
    tray: str
    location: str
    uid: str


@dataclass(frozen=True)
class Seen:
    """What was read for a plan. partitions: None by hand, where no switch is read.

    observed: tray that answers -> its cluster UUID and clique ID, None where its GPUs are attached to no clique. nodes:
    tray -> its state in Slurm as of slurm/node_states.py. jobs, compute_domains: tray -> the names of those on it. put:
    tray -> the partition that the last change of its domain left it in.
    """

    partitions: Sequence[nvue.Partition] | None
    places: Places
    observed: Mapping[str, Identity | None]
    nodes: Mapping[str, str] = field(default_factory=dict)
    jobs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    compute_domains: Mapping[str, Sequence[str]] = field(default_factory=dict)
    put: Mapping[str, int] = field(default_factory=dict)

    def partition_of(self, tray: str, clique: int) -> int:
        """The partition of a tray: that of its clique, until a tray answers that the switch has moved while silent."""
        listed = {gpu.partition for gpu in self.places.gpus.get(tray, ())}
        is_put = tray not in self.observed and listed == {self.put.get(tray, clique)}
        return self.put.get(tray, clique) if is_put else clique

    def can_move(self, tray: str) -> bool:
        """Whether the switch lists all known GPUs of a tray; by hand, whether its GPUs are attached."""
        if self.partitions is None:
            return self.observed.get(tray) is not None
        gpus = self.places.gpus.get(tray, ())
        return bool(gpus) and all(gpu.partition is not None for gpu in gpus)

    def flags(self, tray: str) -> list[str]:
        """The state of a tray in Slurm without its reason."""
        return self.nodes.get(tray, "").partition(": ")[0].split("+")

    def leaves_late(self, tray: str) -> tuple[bool, bool, bool]:
        """Sort key of the trays of a partition: those that cannot move first, then busy, idle and drained ones."""
        return self.can_move(tray), "DRAIN" in self.flags(tray), "IDLE" in self.flags(tray)


def make(
    domain: str, wish: Wish, fabric: Fabric, seen: Seen, used_ids: Collection[int], made_ids: Collection[int]
) -> tuple[Plan, list[Objection]]:
    """The plan of a domain, and what objects to it. Without moved trays there is nothing to change.

    used_ids: of partitions that the journal has. made_ids: of those that this collection has created.
    """
    trays, cliques = trays_of(fabric, domain), cliques_of(fabric, domain)
    by, listed = (HAND, _by_hand(cliques, fabric)) if seen.partitions is None else (NVUE, seen.partitions)
    defaults = [row.id for row in listed if is_clique(row, DEFAULT_CLIQUE)]
    default = DEFAULT_CLIQUE if DEFAULT_CLIQUE in defaults or not defaults else defaults[0]
    # Older releases list the default partition by another ID than its GPUs report.
    own = {name: default if number == DEFAULT_CLIQUE else number for name, number in cliques.items()}
    now = {tray: seen.partition_of(tray, own[fabric.trays[tray]["clique"]]) for tray in trays}
    before = [
        _row(row, [tray for tray in trays if now[tray] == row.id], row.id == default, row.id in made_ids)
        for row in sorted(listed, key=lambda row: row.id)
    ]
    taken = {*cliques.values(), *used_ids, *(row["id"] for row in before)}
    free = (number for number in range(1, DEFAULT_CLIQUE) if number not in taken)
    parts: dict[int, Part] = {}
    if wish and wish[0].name:
        parts = {own[part.name] if part.name in own else next(free): part for part in wish}
        wanted = now | {tray: number for number, part in parts.items() for tray in part.trays}
    elif wish:
        empty = [number for name, number in cliques.items() if not fabric.members[name] and number != DEFAULT_CLIQUE]
        wanted = _shaped(wish, now, default, itertools.chain(empty, free), seen)
    else:
        wanted = dict.fromkeys(trays, default)
    then = {tray: wanted[tray] if seen.can_move(tray) else now[tray] for tray in trays}
    moved = [tray for tray in trays if then[tray] != now[tray]]
    changed = {place[tray] for tray in moved for place in (now, then)}
    gpus_of = seen.places.gpus if by == NVUE else {}
    plan = Plan(
        domain=domain,
        by=by,
        before=before,
        after=[],
        gpus={tray: [[gpu.location, gpu.uid] for gpu in gpus_of[tray]] for tray in moved if tray in gpus_of},
        moved=moved,
        affected=[tray for tray in trays if {now[tray], then[tray]} & changed],
        clique_ids={},
        staying={tray: _STAYS for tray in trays if wanted[tray] != then[tray]},
        imex_owner="",
    )
    plan["after"] += _after(plan, now, then, Counter(wanted.values()), parts)
    plan["clique_ids"] |= placed(plan, [tray for tray in moved if seen.observed.get(tray)])
    found = _differing(plan, fabric, seen), _unplanned(plan, seen), _refused(plan, parts, seen), _busy(plan, seen)
    return plan, list(itertools.chain(*found))


def is_met(wish: Wish, domain: str, fabric: Fabric) -> bool:
    """Whether a plan of the fabric file alone moves no tray; the file has no limit and no resiliency mode."""
    observed = {tray: fabric.identity(fabric.trays[tray]["clique"]) for tray in trays_of(fabric, domain)}
    plan, _objections = make(domain, wish, fabric, Seen(None, Places({}, {}), observed), (), ())
    return not plan["moved"]


def _by_hand(cliques: Mapping[str, int], fabric: Fabric) -> list[nvue.Partition]:
    """The partitions where no switch is read: cliques of the fabric file with trays, and the default one."""
    names = {DEFAULT_CLIQUE: "default"} | {number: name for name, number in cliques.items() if fabric.members[name]}
    return [nvue.Partition(number, name, "", "", None, ()) for number, name in names.items()]


def _row(of: nvue.Partition, trays: list[str], default: bool, made: bool) -> Row:
    limit = of.multicast_limit
    return Row(id=of.id, name=of.name, trays=trays, mode=of.mode, limit=limit, default=default, made=made)


def _shaped(wish: Wish, now: Placing, default: int, new: Iterator[int], seen: Seen) -> dict[str, int]:
    """Tray -> its partition by a shape. now: in the order in which trays fill it. new: IDs of further partitions.

    The largest partitions get the largest sizes: no other assignment keeps more trays where they are.
    """
    members = equal((number, tray) for tray, number in now.items() if number != default)
    kept = sorted(members, key=lambda number: (-len(members[number]), number))
    largest = sorted(range(len(wish)), key=lambda at: -wish[at].size)
    ids = dict(zip(largest, kept, strict=False))
    wanted, open_places = dict[str, int](), list[int]()
    for at, part in enumerate(wish):
        number = ids[at] if at in ids else next(new)
        staying = sorted(members.get(number, ()), key=seen.leaves_late)[: part.size]
        wanted.update(dict.fromkeys(staying, number))
        open_places += [number] * (part.size - len(staying))
    return wanted | dict(zip((tray for tray in now if tray not in wanted), open_places, strict=True))


def _after(plan: Plan, now: Placing, then: Placing, sizes: Mapping[int, int], parts: Mapping[int, Part]) -> list[Row]:
    """The partitions then, by their IDs. One that is empty is deleted if this collection has created it.

    sizes: partition -> how many trays are wanted there. parts: those that the wish names. A new one without a limit
    gets its share of the multicast groups, or the rest of them; where nothing is left, an objection follows. named()
    gives those of a shape their names.
    """
    before = {row["id"]: row for row in plan["before"]}
    members = {number: list[str]() for number, row in before.items() if row["default"] or not row["made"]}
    for tray, number in then.items():
        members.setdefault(number, []).append(tray)
    rows: list[Row] = [{**before[number], "trays": own} for number, own in members.items() if number in before]
    for number in sorted(members.keys() - before.keys()):
        part, old = parts.get(number, Part("", 0)), before.get(now[members[number][0]])
        name = part.name or f"{plan['domain']}_{number}"
        mode = part.resiliency or (old["mode"] if old else "")
        share, left = MULTICAST_GROUPS * sizes[number] // len(now), MULTICAST_GROUPS - sum(_limits(rows).values())
        limit = min(share, left) if left >= MULTICAST_STEP else share
        limit = limit - limit % MULTICAST_STEP if part.multicast_limit is None else part.multicast_limit
        rows.append(_row(nvue.Partition(number, name, "", mode, limit, ()), members[number], default=False, made=True))
    return sorted(rows, key=lambda row: row["id"])


def _limits(rows: Sequence[Row]) -> dict[int, int]:
    """The multicast limits that count: of partitions with trays, without the default one, whose limit is not ours."""
    return {row["id"]: row["limit"] or 0 for row in rows if row["trays"] and not row["default"]}


def _differing(plan: Plan, fabric: Fabric, seen: Seen) -> Iterator[Objection]:
    """Where fabric file, GPUs and switch differ before the change: nothing is guessed."""
    domain, now = plan["domain"], {tray: row["id"] for row in plan["before"] for tray in row["trays"]}
    trays = trays_of(fabric, domain)
    if doubts := [seen.places.doubts[tray] for tray in trays if tray in seen.places.doubts]:
        what = f"the switch lists GPUs of NVLink domain {domain} otherwise than their drivers ({summarize(doubts, 2)})"
        yield Objection("gpu_mismatch", f"{what}; find out which GPU is where, and change nothing until both agree")
    owners = equal((gpu, tray) for tray in trays for gpu in seen.places.gpus.get(tray, ()) if gpu.partition is not None)
    if shared := {tray for own in owners.values() if len(own) > 1 for tray in own}:
        what = f"{folded(shared)} of NVLink domain {domain} report the same GPU"
        yield Objection("gpu_shared", f"{what}; find out whose it is, and change nothing until one tray has it")
    listed = {tray: {gpu.partition for gpu in seen.places.gpus.get(tray, ())} - {None} for tray in trays}
    identities = {tray: fabric.identity(fabric.trays[tray]["clique"]) for tray in trays}
    for which, differ in (
        ("the switch", [tray for tray in trays if tray not in now or listed[tray] - {now[tray]}]),
        ("its GPUs", [tray for tray in trays if seen.observed.get(tray) not in (None, identities[tray])]),
    ):
        if differ:
            what = f"the fabric file and {which} have different cliques of {folded(differ)} in NVLink domain {domain}"
            yield Objection("fabric_differs", f"{what}; run the playbook discover, accept its proposal, and plan again")


def _unplanned(plan: Plan, seen: Seen) -> Iterator[Objection]:
    """GPUs of the switch that would be left behind: of a tray that moves, or in a partition that is deleted."""
    own = {tuple(gpu) for gpus in plan["gpus"].values() for gpu in gpus}
    hosts, kept = {_host(location) for location, _uid in own} - {""}, {row["id"] for row in plan["after"]}
    if left := [
        f"{gpu.location or gpu.uid} in partition {row.id}"
        for row in seen.partitions or ()
        for gpu in row.gpus
        if gpu not in own and (_host(gpu.location) in hosts or row.id not in kept)
    ]:
        what = f"the switch of NVLink domain {plan['domain']} lists GPUs that no tray of the plan reports"
        remedy = "repair the trays that they belong to, or remove them there, and plan again"
        yield Objection("gpu_unknown", f"{what} ({summarize(left, 4)}); {remedy}")


def _host(location: str) -> str:
    """chassis.slot.host of a location: the GPUs of one tray."""
    return location.rpartition(".")[0]


def _refused(plan: Plan, parts: Mapping[int, Part], seen: Seen) -> Iterator[Objection]:
    """What a switch cannot do, and what is not ours to change. parts: those that the wish names."""
    domain, before = plan["domain"], {row["id"]: row for row in plan["before"]}
    where = f"{OPTION}.{domain}"
    unassigned = [tray for tray in plan["staying"] if tray in seen.observed]
    if plan["by"] == NVUE and unassigned:
        what = f"GPUs of {folded(unassigned)} of NVLink domain {domain} are in no NVLink partition of the switch"
        yield Objection("gpu_unassigned", f"{what}; add them to one there, and plan again")
    if DEFAULT_CLIQUE in {row["id"] for row in plan["after"]} - before.keys():
        what = f"the switch of NVLink domain {domain} lists no default partition"
        yield Objection("no_default", f"{what}; check its controller with nv show sdn partition, and plan again")
    for number, row in before.items():
        leaving = [tray for tray in row["trays"] if tray in plan["moved"]]
        if plan["by"] == NVUE and leaving and not (row["default"] or row["made"] or number in parts):
            what = f"{folded(leaving)} would leave NVLink partition {number} ({row['name']}) of {domain}"
            remedy = f"name it in {where}, with trays: [] where none stays"
            yield Objection("foreign_partition", f"{what}, which this collection has not created; {remedy}")
    for part, row in ((parts[number], row) for number, row in before.items() if number in parts):
        wishes = (part.resiliency, row["mode"]), (part.multicast_limit, row["limit"])
        for key, (wanted, has) in zip(("resiliency", "multicast_limit"), wishes, strict=True):
            if wanted not in ("", None, has) and has not in ("", None):
                what = f"{where}.{part.name}.{key}: the partition has {has}, which a switch cannot change"
                yield Objection("partition_settings", f"{what}; leave it out, or name a new partition")
    limits = _limits(plan["after"])
    if plan["moved"] and sum(limits.values()) > MULTICAST_GROUPS:
        rows = summarize(f"{row['name']} {limits[row['id']]}" for row in plan["after"] if row["id"] in limits)
        what = f"{where}: the multicast limits ({rows}) are more than {MULTICAST_GROUPS} in all"
        yield Objection("multicast_limits", f"{what}; name the new partitions there with a smaller multicast_limit")


def is_ours(state: str, reasons: Collection[str] = (REASON, UNPROVEN)) -> bool:
    """Whether a tray with this state in Slurm is drained, and the tests of this change return it to service.

    reasons: REASON alone for those that have not been tested since, UNPROVEN for those whose tests have failed.
    """
    flags, _colon, reason = state.partition(": ")
    # slurmctld appends to a reason, as in "nvlink: partition : Not responding".
    return "DRAIN" in flags.split("+") and reason.partition(" : ")[0] in reasons


def _busy(plan: Plan, seen: Seen) -> Iterator[Objection]:
    """What a site may override, each with what happens then."""
    drained = {tray: seen.nodes[tray] for tray in plan["affected"] if "DRAIN" in seen.flags(tray)}
    others = {tray: state for tray, state in drained.items() if not is_ours(state)}
    for gate, rows, what, then in (
        (JOBS, seen.jobs, "jobs run on", "the run drains them and waits drain_wait seconds"),
        (DRAINED, others, "another reason drains", "they change, too, and stay drained"),
        (COMPUTE_DOMAINS, seen.compute_domains, "ComputeDomains use", "they stay, and only their pods must end"),
    ):
        if trays := [tray for tray in plan["affected"] if rows.get(tray)]:
            remedy = f"wait until that has ended, or set partition_override to {gate} ({then})"
            yield Objection(gate, f"{what} {folded(trays)} of NVLink domain {plan['domain']}; {remedy}")
    sick = [row for row in seen.partitions or () if row.gpus and row.health != "healthy"]
    if plan["moved"] and sick:
        what = summarize(f"{row.id} is {row.health} in the mode {row.mode}" for row in sick)
        remedy = f"repair it first, or set partition_override to {DEGRADED} (its GPUs change all the same)"
        yield Objection(DEGRADED, f"NVLink partition {what} (NVLink domain {plan['domain']}); {remedy}")


def named(plan: Plan, wish: Wish, planned: Fabric) -> tuple[Plan, list[Objection]]:
    """The plan with the names that its new partitions have as cliques of the planned fabric file.

    An objection for each new name of the wish that the fabric file would not give.
    """
    names = {number: name for name, number in cliques_of(planned, plan["domain"]).items()}
    known, objections = {row["id"] for row in plan["before"]}, []
    after: list[Row] = []
    for row in plan["after"]:
        name = row["name"] if row["id"] in known else names.get(row["id"], row["name"])
        if name != row["name"] and row["name"] in [part.name for part in wish]:
            what = f"{OPTION}.{plan['domain']}.{row['name']}: the fabric file gives this clique the name {name}"
            objections.append(Objection("clique_name", f"{what}; use that name"))
        after.append({**row, "name": name})
    return {**plan, "after": after}, objections


def placed(plan: Plan, trays: Collection[str]) -> dict[str, int]:
    """Tray of the domain, of these -> its clique ID then."""
    # Older releases list the default partition by another ID than its GPUs report.
    rows = ((DEFAULT_CLIQUE if row["default"] else row["id"], row["trays"]) for row in plan["after"])
    return {tray: number for number, members in rows for tray in members if tray in trays}


def only_in(rows: Sequence[Row], others: Sequence[Row]) -> list[Row]:
    """The partitions that only the first ones have: the created ones of after and before, or the deleted ones."""
    ids = {row["id"] for row in others}
    return [row for row in rows if row["id"] not in ids]


def turned(plan: Plan) -> Plan:
    """The plan that undoes a plan."""
    back: Plan = {**plan, "before": plan["after"], "after": plan["before"]}
    return {**back, "clique_ids": placed(back, plan["clique_ids"])}


def operations(plan: Plan) -> list[Operation]:
    """The calls that change the switch as planned: all removals, then additions, then deletions; none by hand.

    The addition of the first GPU of a partition that the switch does not list creates it.
    """

    def of(verb: str, rows: Iterable[Row]) -> list[Operation]:
        gpus = ((row["id"], tray, gpu) for row in rows for tray in row["trays"] for gpu in plan["gpus"].get(tray, ()))
        return [Operation(verb, number, tray, *gpu) for number, tray, gpu in gpus]

    deleted = [Operation(nvue.DELETE, row["id"], "", "", "") for row in only_in(plan["before"], plan["after"])]
    return of(nvue.RESTORE, plan["before"]) + of(nvue.UPDATE, plan["after"]) + deleted


def text(plan: Plan, fabric: Fabric, planned: Fabric, seen: Seen) -> list[str]:
    """What a plan changes, in lines for a person: partitions, cliques with IMEX list and block, jobs, calls.

    The map of the rack is render/domain_map.change_map(fabric, planned); Slurm and Kubernetes have plans of their own.
    """
    lines = [f"NVLink domain {plan['domain']}: {folded(plan['moved'])} move"]
    for row in only_in(plan["after"], plan["before"]):
        limit = f"multicast limit {row['limit']}" if row["limit"] else "no multicast"
        settings = ", ".join(filter(None, (row["mode"], limit)))
        lines.append(f"partition {row['id']} ({row['name']}) is created: {folded(row['trays'])}, {settings}")
    deleted = only_in(plan["before"], plan["after"])
    lines += [f"partition {row['id']} ({row['name']}), which is empty then, is deleted" for row in deleted]
    for clique in cliques_of(planned, plan["domain"]):
        trays, block = planned.members[clique], planned.cliques[clique]["block"]
        if trays != fabric.members.get(clique, []):
            which = f"block {block['name']} at position {block['position']}"
            lines.append(f"clique {clique}: {folded(trays) if trays else 'no tray'} in its IMEX list and {which}")
    lines.append(f"affected: {folded(plan['affected'])}, since members of their cliques change")
    for what, names in (("jobs", seen.jobs), ("ComputeDomains", seen.compute_domains)):
        rows = [f"{tray}: {summarize(names[tray])}" for tray in plan["affected"] if names.get(tray)]
        lines += [f"{what} on {row}" for row in rows]
    if silent := [tray for tray in plan["moved"] if tray not in plan["clique_ids"]]:
        lines.append(
            f"without an answer: {folded(silent)}; the switch moves them, and the fabric file keeps"
            " their place until they answer"
        )
    lines += [f"not moved: {line}" for line in grouped(plan["staying"].items())]
    lines += ["by hand: you set the partitions on the switch"] if plan["by"] == HAND and plan["moved"] else []
    calls = Counter(operation.verb for operation in operations(plan))
    if calls and plan["by"] == NVUE:
        minutes = math.ceil(sum(calls.values()) * SECONDS / 60)
        gpus = f"{count(calls[nvue.RESTORE], 'GPU')} removed, {calls[nvue.UPDATE]} added"
        lines.append(f"switch: {count(sum(calls.values()), 'call')}, one GPU each ({gpus}), about {minutes} min")
    return lines


def sha(plans: Sequence[Plan], planned: Fabric, overridden: Collection[str], lines: Sequence[str]) -> str:
    """The SHA-256 of what a person reviews, in hex: no times, jobs or states of nodes.

    overridden: gates of fabric file and Slurm. lines: what else a plan says. The calls of the switch follow from plans.
    """
    names = [name for plan in plans for name in cliques_of(planned, plan["domain"])]
    cliques = {name: {**planned.cliques[name], "trays": planned.members[name]} for name in names}
    # Without the dates.
    rows = {tray: {**planned.trays[tray], "why": ""} for name in names for tray in planned.members[name]}
    document = {"plans": plans, "cliques": cliques, "trays": rows, "overridden": sorted(overridden), "lines": lines}
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
