# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must hold for names and positions whatever the fabric manager, the provider and the technicians do.

The tests keep their own record of the NVLink partitions and never read how the code recognises them.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.placement import Placement, place
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import Policy
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.fabric.test_placement import NOW, Site
from hypothesis import given
from hypothesis import strategies as st

TRAYS = 10
RACKS = ("r01", "r02", "r03")
NAMES = tuple(f"{rack}t{tray:02d}" for rack in RACKS for tray in range(1, TRAYS + 1))
CHANGED = ("domain_uuid_changed", "clique_id_changed")


@dataclass(eq=False)
class Partition:
    """An NVLink partition as it really is; name: the clique that it became first."""

    clique_id: int
    name: str = ""


@dataclass(eq=False)
class Domain:
    """An NVLink domain as it really is."""

    cluster_uuid: str
    partitions: list[Partition] = field(default_factory=list)


class World:
    """Three racks of ten trays under discovery, in a shape, and the record of what happened to them."""

    def __init__(self, shape: str, policy: Policy) -> None:
        self.site = Site(racks=3, trays_per_rack=TRAYS)
        self.policy = policy
        self.numbers = iter(range(1, 10_000_000))
        self.domains = [Domain(self._uuid()) for _rack in RACKS]
        self.place: dict[str, tuple[Domain, Partition]] = {}
        if shape == "multi-rack domain":
            self.domains[1] = self.domains[0]
        for number, name in enumerate(NAMES):
            domain = self.domains[number // TRAYS]
            parts = 2 if shape == "two cliques" else 1
            if not domain.partitions:
                domain.partitions = [Partition(32766 - part) for part in range(parts)]
            self.place[name] = domain, domain.partitions[number % TRAYS * parts // TRAYS]
            if shape == "mini-racks":
                self.site.facts[name]["chassis_serial"] = "1820000000001"
        self.domains = list(dict.fromkeys(self.domains))
        self.fabric, self.state = Fabric(), None
        self.accept(self.discover())
        for name, (_domain, partition) in self.place.items():
            partition.name = self.fabric.trays[name]["clique"]

    def _uuid(self) -> str:
        return str(uuid.UUID(int=(0xA << 124) + next(self.numbers)))

    def discover(self) -> Placement:
        for name, (domain, partition) in self.place.items():
            self.site.attach(name, domain.cluster_uuid, partition.clique_id)
        return place(self.fabric, self.state, self.site.observations(), NAMES, NOW, self.policy)

    def accept(self, placement: Placement) -> None:
        self.fabric, self.state = placement.fabric, placement.state

    # --- what happens ---

    def rebuild(self, domain: Domain) -> None:
        domain.cluster_uuid = self._uuid()

    def renumber(self, domain: Domain, shift: int) -> None:
        """Give the partitions new IDs, or exchange them where shift is 0."""
        ids = [partition.clique_id for partition in domain.partitions]
        for partition, clique_id in zip(domain.partitions, ids[1:] + ids[:1], strict=True):
            partition.clique_id = clique_id + shift

    def swap(self, one: str, other: str) -> None:
        self.place[one], self.place[other] = self.place[other], self.place[one]
        facts = self.site.facts
        serials = facts[one]["chassis_serial"], facts[other]["chassis_serial"]
        facts[other]["chassis_serial"], facts[one]["chassis_serial"] = serials

    def replace_gpus(self, name: str, gpus: int = 4) -> None:
        for gpu in self.site.gpus(name)[:gpus]:
            gpu["uuid"] = f"GPU-{self._uuid()}"

    def split(self, names: Iterable[str]) -> None:
        """Put each tray into a partition of its own."""
        for name in names:
            self.place[name] = self.place[name][0], Partition(next(self.numbers) + 40_000)

    def trays_of(self, domain: Domain) -> list[str]:
        return [name for name in NAMES if self.place[name][0] is domain]


def blocks(fabric: Fabric) -> dict[str, tuple[str, int]]:
    return {name: (clique["block"]["name"], clique["block"]["position"]) for name, clique in fabric.cliques.items()}


def domain_names(fabric: Fabric) -> dict[str, str]:
    return {name: clique["domain"] for name, clique in fabric.cliques.items()}


shapes = st.sampled_from(["racks", "two cliques", "mini-racks", "multi-rack domain"])
trays = st.sampled_from(NAMES)
numbers = st.integers(0, 2)


# --- what a technician or the fabric manager does leaves every partition its name ---

disturbances = st.one_of(
    st.tuples(st.just("swap"), trays, trays),
    st.tuples(st.just("replace_gpus"), trays, st.integers(1, 4)),
    st.tuples(st.just("power"), trays, st.none()),
)
renamings = st.lists(
    st.tuples(st.sampled_from(["rebuild", "renumber"]), numbers, st.sampled_from([0, 1, 5, 1000])), max_size=3
)
rounds = st.lists(st.tuples(renamings, st.lists(disturbances, max_size=4)), min_size=1, max_size=6)


def disturb(world: World, events: Iterable[tuple[str, str, Any]]) -> int:
    """Let events happen, at most one in each partition, besides one tray without power; the trays that move."""
    disturbed: Counter[Partition] = Counter()
    moved = 0
    for what, name, more in events:
        places = {world.place[tray][1] for tray in ((name, more) if what == "swap" else (name,))}
        if what == "power":
            down = world.site.down
            if name in down:
                down.remove(name)
            elif not any(world.place[tray][1] in places for tray in down) and not disturbed.keys() & places:
                down.add(name)
            continue
        if any(disturbed[partition] for partition in places) or world.site.down & {name, more}:
            continue
        disturbed.update(places)
        if what == "swap":
            moved += 2 * (len(places) == 2)
            world.swap(name, more)
        else:
            world.replace_gpus(name, more)
    return moved


@given(shapes, rounds)
def test_every_partition_keeps_its_name_and_every_change_of_ids_is_one_objection(shape: str, history: Any) -> None:
    world = World(shape, Policy(moved_percent=100))
    for renamed, disturbed in history:
        before = world.fabric
        moved = disturb(world, disturbed)
        for what, number, shift in renamed:
            domain = world.domains[number % len(world.domains)]
            if what == "rebuild":
                world.rebuild(domain)
            # Where partitions get each other's IDs, a tray that moves reports the old ID of its clique, which has then
            # not changed: a person decides.
            elif not (moved and len(domain.partitions) > 1):
                world.renumber(domain, shift)
        placement = world.discover()
        changed = [
            name
            for name, domain in before.domains.items()
            for now in [next(row for row in world.domains if row.partitions[0].name in _cliques(before, name))]
            if now.cluster_uuid != domain["cluster_uuid"] or _ids(now) != _known_ids(before, name)
        ]
        assert sorted(row["domain"] for row in placement.objections) == sorted(changed)
        assert {row["code"] for row in placement.objections} <= set(CHANGED)
        assert sum(change["kind"] == "moved" for change in placement.changes) == moved
        world.accept(placement)
        assert (blocks(world.fabric), domain_names(world.fabric)) == (blocks(before), domain_names(before))
        for name, (_domain, partition) in world.place.items():
            assert world.fabric.trays[name]["clique"] == partition.name
        again = world.discover()
        assert (again.changes, again.objections, again.fabric) == ([], [], world.fabric)


def _cliques(fabric: Fabric, domain: str) -> list[str]:
    return [name for name, clique in fabric.cliques.items() if clique["domain"] == domain]


def _known_ids(fabric: Fabric, domain: str) -> dict[str, int]:
    return {name: fabric.cliques[name]["clique_id"] for name in _cliques(fabric, domain)}


def _ids(domain: Domain) -> dict[str, int]:
    return {partition.name: partition.clique_id for partition in domain.partitions}


@pytest.mark.parametrize("shape", ["two cliques", "mini-racks"])
def test_gpus_replaced_one_by_one_until_none_is_left(shape: str) -> None:
    world = World(shape, Policy())
    start, known = world.fabric, {gpu for tray in world.fabric.trays.values() for gpu in tray["gpu_uuids"]}
    for number, name in enumerate(NAMES):
        world.replace_gpus(name)
        if number % 7 == 3:
            world.rebuild(world.place[name][0])
        placement = world.discover()
        assert [row["code"] for row in placement.objections] == ["domain_uuid_changed"] * (number % 7 == 3)
        world.accept(placement)
    assert known.isdisjoint(gpu for tray in world.fabric.trays.values() for gpu in tray["gpu_uuids"])
    assert (blocks(world.fabric), domain_names(world.fabric)) == (blocks(start), domain_names(start))
    assert {name: tray["clique"] for name, tray in world.fabric.trays.items()} == {
        name: tray["clique"] for name, tray in start.trays.items()
    }


# --- without a person ---

anything = st.one_of(
    disturbances,
    st.tuples(st.just("rebuild"), trays, st.none()),
    st.tuples(st.just("renumber"), trays, st.sampled_from([0, 1, 5])),
    st.tuples(st.just("rolling"), trays, st.integers(1, TRAYS)),
    st.tuples(st.just("split"), trays, st.integers(1, TRAYS)),
    st.tuples(st.just("darkness"), trays, st.integers(1, TRAYS)),
)


def happen(world: World, what: str, name: str, more: Any) -> None:
    domain = world.place[name][0]
    members = world.trays_of(domain)
    if what == "swap":
        world.swap(name, more)
    elif what == "replace_gpus":
        world.replace_gpus(name, more)
    elif what == "power":
        world.site.down ^= {name}
    elif what == "rebuild":
        world.rebuild(domain)
    elif what == "renumber":
        world.renumber(domain, more)
    elif what == "rolling":
        # The new UUID has reached some trays only.
        new = Domain(world._uuid(), [Partition(32766)])
        for tray in members[:more]:
            world.place[tray] = new, new.partitions[0]
    elif what == "split":
        world.split(members[:more])
    else:
        world.site.down.update(members[:more])


@given(shapes, st.lists(st.lists(anything, max_size=4), min_size=1, max_size=6))
def test_gates_alone_change_no_name_no_uuid_and_no_position(shape: str, history: Any) -> None:
    world = World(shape, Policy(moved_percent=100))
    for events in history:
        for event in events:
            happen(world, *event)
        placement, before = world.discover(), world.fabric
        codes = Counter((row["code"], row.get("domain")) for row in placement.objections)
        assert set(codes.values()) <= {1}, "one objection for a domain and a cause"
        if placement.objections:
            continue
        world.accept(placement)
        after = world.fabric
        assert before.domains.keys() == after.domains.keys()
        assert all(after.domains[name]["cluster_uuid"] == row["cluster_uuid"] for name, row in before.domains.items())
        assert all(after.cliques[name]["clique_id"] == row["clique_id"] for name, row in before.cliques.items())
        assert blocks(before).items() <= blocks(after).items()


# --- tray partitions ---


@given(
    shapes,
    st.sampled_from(["ask", "own_block", "leave_out", "keep_block"]),
    st.lists(st.tuples(st.sampled_from(["split", "join", "rebuild"]), numbers, st.integers(0, TRAYS)), max_size=6),
)
def test_trays_that_are_split_and_joined_come_back_to_their_block(shape: str, policy: str, history: Any) -> None:
    world = World(shape, Policy(moved_percent=100, tray_partitions=policy))
    home, start = dict(world.place), world.fabric
    for what, number, more in history:
        domain = world.domains[number % len(world.domains)]
        members = world.trays_of(domain)
        if what == "split":
            world.split(members[: max(more, (len(members) + 1) // 2)])
        elif what == "join":
            world.place.update((name, home[name]) for name in members)
        else:
            world.rebuild(domain)
        before, placement = world.fabric, world.discover()
        asked = policy == "ask" and what == "split"
        expected = ["domain_uuid_changed"] * (what == "rebuild") + ["tray_partitions"] * asked
        assert [row["code"] for row in placement.objections] == expected
        world.accept(placement)
        assert blocks(before).items() <= blocks(world.fabric).items()
        if policy == "keep_block":
            assert placement.changes == []
    world.place = home
    world.accept(world.discover())
    assert {name: tray["clique"] for name, tray in world.fabric.trays.items()} == {
        name: tray["clique"] for name, tray in start.trays.items()
    }
    assert blocks(start).items() <= blocks(world.fabric).items()
