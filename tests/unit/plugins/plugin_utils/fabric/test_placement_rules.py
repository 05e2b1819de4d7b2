# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of placement, over whole histories of a site.

A history is a site of six trays to which things happen: outages, moves, swaps, second names, other clusters. After each
step some of the trays are observed and placed. The examples are in test_placement.py, test_identity.py, test_gates.py
and test_clusters.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import (
    Address,
    Fabric,
    Identity,
    Observation,
    State,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.placement import Placement, place
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import GATES, PlacementError, Policy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import slurm_files
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import blocks as slurm_blocks
from hypothesis import given
from hypothesis import strategies as st

NOW = "2026-11-21T05:00:00Z"
BEFORE = "2026-11-21T04:00:00Z"
UUIDS = tuple(f"{letter * 8}-0000-4000-8000-000000000001" for letter in "abc")
NAMES = tuple(f"r0{rack}t0{tray}" for rack in (1, 2) for tray in (1, 2, 3))
# Every domain has both clique IDs.
PLACES = tuple((uuid, clique_id) for uuid in UUIDS for clique_id in (1, 32766))
# Fault -> what a tray reports with it.
FAULTS: dict[str, dict[str, Any]] = {
    "": {},
    "down": {"reachable": False, "problem": "down", "identity": None, "gpu_uuids": ()},
    "detached": {"identity": None},
    "no_gpu": {"identity": None, "gpu_uuids": ()},
    "mixed": {"identity": None, "inconsistent": True},
}


def gpus(kit: int) -> tuple[str, ...]:
    return tuple(f"GPU-{kit}-{number}" for number in range(3))


@dataclass(frozen=True)
class Run:
    """One discovery of a history."""

    before: Fabric
    state: State | None
    observations: list[Observation]
    targets: tuple[str, ...]
    policy: Policy
    placement: Placement

    @property
    def after(self) -> Fabric:
        return self.placement.fabric

    @property
    def observed(self) -> dict[str, Observation]:
        return {row.tray: row for row in self.observations}

    def kinds(self, name: str) -> list[str]:
        return [change["kind"] for change in self.placement.changes if change["tray"] == name]

    def codes(self, name: str) -> set[str]:
        return {row["code"] for row in self.placement.findings if row.get("tray") == name}


def identity(fabric: Fabric, name: str) -> Identity:
    """The clique in which a fabric has a tray."""
    clique = fabric.trays[name]["clique"]
    return fabric.cluster_uuid(clique), fabric.cliques[clique]["clique_id"]


# --- what happens ---

names = st.sampled_from(NAMES)
clusters = st.sampled_from(["alpha", "beta", "", None])
events = st.one_of(
    st.tuples(st.sampled_from(["move", "move_rack"]), names, st.sampled_from(PLACES)),
    st.tuples(st.just("renumber_rack"), names, st.none()),
    st.tuples(st.just("swap"), names, names),
    st.tuples(st.just("gpu_uuids"), names, st.sampled_from([gpus(kit) for kit in (100, 101)])),
    st.tuples(st.just("second_name"), names, names),
    st.tuples(st.just("fault"), names, st.sampled_from(list(FAULTS))),
    st.tuples(st.just("chassis_serial"), names, st.sampled_from(["s1", "s2"])),
    st.tuples(st.sampled_from(["slurm_cluster", "kubernetes_cluster"]), names, clusters),
    st.tuples(st.just("block"), names, st.sampled_from([("r02", 0), ("old", 4), ("older", 2)])),
    st.tuples(st.just("observed_at"), names, st.sampled_from([BEFORE, NOW])),
)
policies = st.builds(
    Policy,
    # Several domains report one chassis, and several chassis are in one domain.
    domain_names=st.sampled_from([{}, {"s1": "hall_a", "s2": "hall_b"}]),
    moved_percent=st.sampled_from([10, 100]),
    expected=st.sampled_from([{}, {"r01": NAMES[:3], "r02": NAMES[3:5]}]),
    max_age=st.sampled_from([None, 600]),
    override=st.sampled_from([(), GATES]),
)
targets = st.one_of(st.just(NAMES), st.sets(names, min_size=1).map(lambda some: tuple(sorted(some))))
histories = st.lists(st.tuples(st.lists(events, min_size=2, max_size=6), targets, policies), min_size=5, max_size=6)
History = list[tuple[list[tuple[str, str, Any]], tuple[str, ...], Policy]]


def happen(trays: dict[str, Observation], faults: dict[str, str], what: str, name: str, more: Any) -> None:
    rack = [other for other in NAMES if other[:3] == name[:3]]
    changed: dict[str, dict[str, Any]] = {name: {what: more}}
    if what == "fault":
        faults[name] = more
        changed = {}
    elif what == "move":
        changed = {name: {"identity": more}}
    elif what == "move_rack":
        changed = {other: {"identity": more} for other in rack}
    elif what == "renumber_rack":
        reported = {other: trays[other].identity or PLACES[0] for other in rack}
        changed = {other: {"identity": (uuid, 32767 - clique_id)} for other, (uuid, clique_id) in reported.items()}
    elif what == "swap":
        changed = {name: {"gpu_uuids": trays[more].gpu_uuids}, more: {"gpu_uuids": trays[name].gpu_uuids}}
    elif what == "second_name":
        changed = {name: {"gpu_uuids": trays[more].gpu_uuids}}
    elif what == "block":
        # Slurm has most of a rack in one block.
        changed = {other: {"block": more} for other in rack}
    for other, values in changed.items():
        trays[other] = replace(trays[other], **values)


def lived(history: History) -> Iterator[Run]:
    """The runs of a history; each accepted before the next."""
    trays = {
        name: Observation(
            name,
            "test",
            observed_at=NOW,
            identity=PLACES[1] if name.startswith("r01") else PLACES[3],
            gpu_uuids=gpus(number),
            gpu_count=3,
            tray_index=number % 3,
            chassis_serial=f"s{name[2]}",
            addresses=(Address("eth0", f"10.0.0.{number + 1}", 24),),
        )
        for number, name in enumerate(NAMES)
    }
    fabric, state, faults = Fabric(), None, dict.fromkeys(NAMES, "")
    for happened, asked, policy in history:
        for event in happened:
            happen(trays, faults, *event)
        observations = [replace(trays[name], **FAULTS[faults[name]]) for name in asked]
        try:
            placement = place(fabric, state, observations, NOW, policy)
        except PlacementError:
            # The domain of r02 has another name.
            policy = replace(policy, expected={})
            placement = place(fabric, state, observations, NOW, policy)
        run = Run(fabric, state, observations, asked, policy, placement)
        yield run
        fabric, state = run.after, placement.state


def a_tray_has_the_place_of_its_gpus_or_keeps_its_own(run: Run) -> None:
    assert run.before.trays.keys() <= run.after.trays.keys()
    for name, row in run.observed.items():
        old, new, kinds = run.before.trays.get(name), run.after.trays.get(name), run.kinds(name)
        state = run.placement.state.trays[name]["state"] if name in run.placement.state.trays else ""
        moved = bool(new) != bool(old) or bool(old and new and new["clique"] != old["clique"])
        if moved:
            assert (kinds[0], identity(run.after, name)) == ("moved" if old else "placed", row.identity)
        if row.inconsistent:
            assert state == ("conflict" if new else "unplaced")
        elif old and new and not row.identity:
            assert new["gpu_uuids"] == old["gpu_uuids"]
        # An equal clique ID in two domains never merges them.
        assert state != "present" or not new or identity(run.after, name) == row.identity


def only_targets_change_and_every_change_has_a_reason(run: Run) -> None:
    for name in {*run.before.trays, *(run.state.trays if run.state else ())} - set(run.targets):
        assert run.after.trays.get(name) == run.before.trays.get(name)
        assert run.state
        assert run.placement.state.trays.get(name) == run.state.trays.get(name)
    assert {change["tray"] for change in run.placement.changes} <= set(run.targets)
    assert all(change["why"] for change in run.placement.changes)
    for name, tray in run.after.trays.items():
        old, kinds = run.before.trays.get(name), run.kinds(name)
        assert tray["why"].split(" ")[0] in ("placed", "moved", "replaced")
        assert (tray != old) == bool(kinds)
        assert (old is None or tray["why"] != old["why"]) <= bool({"placed", "moved", "replaced"} & set(kinds))


def a_cluster_uuid_or_clique_id_changes_only_by_its_gate(run: Run) -> None:
    for name, domain in run.before.domains.items():
        cliques = {key for key, row in run.before.cliques.items() if row["domain"] == name}
        uuid_changed = run.after.domains[name]["cluster_uuid"] != domain["cluster_uuid"]
        ids_changed = any(
            run.after.cliques[key]["clique_id"] != run.before.cliques[key]["clique_id"] for key in cliques
        )
        rows = [*((row["code"], row["message"]) for row in run.placement.objections)]
        rows += [(row["gate"], row["what"]) for row in run.after.overrides if row not in run.before.overrides]
        about = [code for code, message in rows if message.startswith(f"NVLink domain {name} has ")]
        assert about == (["domain_uuid_changed"] if uuid_changed else ["clique_id_changed"] * ids_changed)


def one_gpu_is_of_one_tray_and_new_ones_are_recorded(run: Run) -> None:
    attached = [row for row in run.observations if row.identity]
    for shown in {row.gpu_uuids for row in attached}:
        same = [row.tray for row in attached if row.gpu_uuids == shown]
        assert sum("illegal_tray_name" not in run.codes(name) for name in same) <= 1
    for name, old in run.before.trays.items():
        new = run.after.trays[name]
        swapped = not set(old["gpu_uuids"]) & set(new["gpu_uuids"])
        # The state of a tray that is no target stays as it was, with its findings.
        assert swapped == ("tray_replaced" in run.codes(name)) or name not in run.targets
        if swapped:
            owners = [tray for tray, row in run.before.trays.items() if set(row["gpu_uuids"]) & set(new["gpu_uuids"])]
            assert new["why"].startswith("moved" if old["clique"] != new["clique"] else "replaced")
            assert new["why"].endswith(f", its GPUs are those of {owners[0]}" if owners else ", all its GPUs are new")


def each_tray_is_in_the_clusters_of_the_site_and_in_one_block(run: Run) -> None:
    fabric = run.after
    # No GPU, name, address, cluster UUID or clique is there twice.
    fabric_file.check(fabric.as_dict(), "fabric.json")
    for name, tray in fabric.trays.items():
        for key in ("slurm_cluster", "kubernetes_cluster"):
            old = run.before.trays[name].get(key, "") if name in run.before.trays else ""
            reported = getattr(run.observed[name], key) if name in run.observed else None
            assert tray.get(key, "") == (old if reported is None else reported)
    blocks = [block for cluster in fabric.slurm_clusters or [None] for block in slurm_blocks.blocks(fabric, cluster)]
    placed = [tray for tray in fabric.trays.values() if not fabric.slurm_clusters or "slurm_cluster" in tray]
    assert sorted(node for block in blocks for node in block.nodes) == sorted(tray["slurm_node"] for tray in placed)
    assert all(slurm_files.render(fabric, run.placement.state).values())


def every_gate_can_be_overridden_by_its_name_and_is_recorded(run: Run) -> None:
    strict = replace(run.policy, override=[])
    arguments = (run.before, run.state, run.observations, NOW)
    objecting = place(*arguments, strict)
    for row in objecting.objections:
        named = place(*arguments, replace(strict, override=[row["code"]]))
        assert row["code"] not in {left["code"] for left in named.objections}
        is_recorded = {"gate": row["code"], "when": NOW, "what": row["message"]} in named.fabric.overrides
        assert is_recorded or replace(objecting.fabric, overrides=[]) == replace(run.before, overrides=[])
        assert replace(named.fabric, overrides=[]) == replace(objecting.fabric, overrides=[])
    assert run.before.overrides == run.after.overrides[: len(run.before.overrides)]
    assert place(*arguments, replace(strict, override=GATES)).objections == []


def a_second_run_changes_nothing(run: Run) -> None:
    arguments = (run.observations[::-1], NOW, run.policy)
    assert place(run.before, run.state, *arguments) == run.placement, "the order of answers does not matter"
    again = place(run.after, run.placement.state, *arguments)
    assert again.changes == []
    written = fabric_file.serialise(run.after)
    assert fabric_file.serialise(again.fabric) == written
    assert fabric_file.parse(written, "fabric.json") == run.after


RULES: list[Callable[[Run], None]] = [
    a_tray_has_the_place_of_its_gpus_or_keeps_its_own,
    only_targets_change_and_every_change_has_a_reason,
    a_cluster_uuid_or_clique_id_changes_only_by_its_gate,
    one_gpu_is_of_one_tray_and_new_ones_are_recorded,
    each_tray_is_in_the_clusters_of_the_site_and_in_one_block,
    every_gate_can_be_overridden_by_its_name_and_is_recorded,
    a_second_run_changes_nothing,
]


def names_and_block_positions_never_change_or_get_reused(history: list[Run]) -> None:
    given_once: dict[tuple[str | None, ...], Any] = {}
    for run in history:
        # Of the fabric's own blocks and of those of each Slurm cluster.
        own = (None, *run.after.slurm_clusters)
        now = {(cluster, block.clique): block for cluster in own for block in run.after.blocks(cluster)}
        assert {key for key in given_once if len(key) == 2} <= now.keys(), "a block was dropped"
        for (cluster, clique), block in now.items():
            for what, to in (
                ((block.name, block.position), (cluster, clique)),
                (clique, (cluster, "name", block.name)),
                (clique, (cluster, "position", str(block.position))),
            ):
                assert given_once.setdefault(to, what) == what


def test_every_rule_holds_in_every_run() -> None:
    reached: set[str] = set()

    @given(histories)
    def check(history: History) -> None:
        runs = list(lived(history))
        for run in runs:
            for each in RULES:
                each(run)
            reached.update(change["kind"] for change in run.placement.changes)
            reached.update(row["code"] for row in [*run.placement.findings, *run.placement.objections])
            reached.update(row["gate"] for row in run.after.overrides)
            reached.update(row["state"] for row in run.placement.state.trays.values())
            split = {name for name, row in run.after.clusters.get("slurm", {}).items() if len(row["blocks"]) > 1}
            reached.update(["two blocks in a cluster"] if split else [])
        names_and_block_positions_never_change_or_get_reused(runs)

    check()
    # Otherwise the rules would show nothing.
    assert reached >= {
        *("placed", "moved", "replaced", "cluster", "present", "stale", "conflict", "unplaced"),
        *("illegal_tray_name", "tray_replaced", "domain_two_chassis", "tray_in_no_cluster", "two blocks in a cluster"),
        "slurm_topology_differs",
        *("moved_percent", "unknown_trays", "source_too_old", "clique_shrank"),
        *("domain_merged", "domain_split", "rotation_in_progress", "clique_id_changed"),
    }
