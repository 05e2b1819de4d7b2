# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of placement, one property each, over whole histories of a site.

A history is a site of six trays to which things happen: outages, moves, swaps, second names, troubles, other clusters.
After each step some of the trays are observed and placed. What they report is computed here from the site alone.
The examples of these rules are in test_placement.py, test_gates.py and test_clusters.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric, Identity, Observation, State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.placement import Placement, place
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import GATES, PlacementError, Policy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import slurm_files
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import blocks as slurm_blocks
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources.ansible_facts import from_facts
from hypothesis import given
from hypothesis import strategies as st

NOW = "2026-11-21T05:00:00Z"
BEFORE = "2026-11-21T04:00:00Z"
ZERO = "00000000-0000-0000-0000-000000000000"
UUIDS = tuple(f"{letter * 8}-0000-4000-8000-000000000001" for letter in "abc")
NAMES = tuple(f"r0{rack}t0{tray}" for rack in (1, 2) for tray in (1, 2, 3))
GPUS = 3
# Every domain has both clique IDs.
PLACES = tuple((uuid, clique_id) for uuid in UUIDS for clique_id in (1, 32766))
DETACHING = ("down", "not_available", "in_progress", "one_in_progress", "zero_uuid", "no_gpu", "mixed")
TROUBLES = (*DETACHING, "unhealthy")


@dataclass
class Tray:
    """One tray of the site as it really is."""

    name: str
    kit: int
    place: Identity
    serial: str
    fault: str = ""
    observed_at: str = NOW
    # Settings of the site; the first of two names for one tray reports the GPUs of the other.
    site: dict[str, str] = field(default_factory=dict)
    shows: str = ""
    # Where a running Slurm has it.
    block: tuple[str, int] | None = None


@dataclass(frozen=True)
class Seen:
    """The observation of one tray in one run, computed without the code under test."""

    gpus: frozenset[str]
    identity: Identity | None
    inconsistent: bool
    fault: str
    serial: str
    site: dict[str, str]


@dataclass(frozen=True)
class Run:
    """One discovery of a history."""

    before: Fabric
    state: State | None
    observations: list[Observation]
    targets: tuple[str, ...]
    policy: Policy
    observed: dict[str, Seen]
    placement: Placement

    @property
    def after(self) -> Fabric:
        return self.placement.fabric

    def kinds(self, name: str) -> list[str]:
        return [change["kind"] for change in self.placement.changes if change["tray"] == name]

    def codes(self, name: str) -> set[str]:
        return {row["code"] for row in self.placement.findings if row.get("tray") == name}


def identity(fabric: Fabric, name: str) -> Identity | None:
    """The clique in which a fabric has a tray."""
    if name not in fabric.trays:
        return None
    clique = fabric.trays[name]["clique"]
    return fabric.cluster_uuid(clique), fabric.cliques[clique]["clique_id"]


def clique(fabric: Fabric, name: str) -> str | None:
    """The clique of a tray by its name, which stays when its cluster UUID or clique ID changes."""
    return fabric.trays[name]["clique"] if name in fabric.trays else None


def other(place_: Identity) -> Identity:
    """Another clique of the same domain, or of the other one."""
    return PLACES[(PLACES.index(place_) + 1) % len(PLACES)]


def observe(tray: Tray, trays: dict[str, Tray]) -> tuple[Observation, Seen]:
    """What a tray's observation is, and what it means."""
    kit = trays[tray.shows].kit if tray.shows else tray.kit
    uuids = [f"GPU-{kit}-{number}" for number in range(GPUS)]
    attached = not tray.fault or tray.fault == "unhealthy"
    mixed = tray.fault == "mixed"
    meaning = Seen(
        gpus=frozenset(uuids),
        identity=tray.place if attached else None,
        inconsistent=mixed,
        fault=tray.fault,
        serial=tray.serial,
        site=dict(tray.site),
    )
    if tray.fault == "down":
        down = Observation(tray.name, "ansible_facts", reachable=False, problem="down", block=tray.block)
        return replace(down, **tray.site), meaning
    gpus = []
    for number, uuid in enumerate(uuids if tray.fault != "no_gpu" else ()):
        cluster, clique = tray.place
        if mixed and number < GPUS - 1:
            cluster, clique = other(tray.place)
        fabric: dict[str, Any] = {
            "state": "completed",
            "status": "success",
            "cluster_uuid": ZERO if tray.fault == "zero_uuid" else cluster,
            "clique_id": clique,
            "health": {"summary": "unhealthy" if tray.fault == "unhealthy" else "healthy"},
        }
        if tray.fault == "not_available":
            fabric.update(state=None, status=None, cluster_uuid=None, clique_id=None)
        if tray.fault == "in_progress" or (tray.fault == "one_in_progress" and not number):
            fabric["state"] = "in_progress"
        gpus.append({"uuid": uuid, "fabric": fabric})
    facts = {
        "observed_at": tray.observed_at,
        # A tray may say so of itself; its GPUs decide.
        "attached": True,
        "gpu_count": len(gpus),
        "gpus": gpus,
        "tray_index": 0,
        "chassis_serial": tray.serial,
        "addresses": [{"interface": "eth0", "address": f"10.0.0.{NAMES.index(tray.name) + 1}", "prefix": 24}],
    }
    return replace(from_facts(tray.name, facts), block=tray.block, **tray.site), meaning


# --- what happens ---

names = st.sampled_from(NAMES)
clusters = st.sampled_from(["alpha", "beta", ""])
events = st.one_of(
    st.tuples(st.just("move"), names, st.sampled_from(PLACES)),
    st.tuples(st.just("move_rack"), names, st.sampled_from(PLACES)),
    st.tuples(st.just("renumber_rack"), names, st.none()),
    st.tuples(st.just("swap"), names, names),
    st.tuples(st.just("replace"), names, st.integers(100, 103)),
    st.tuples(st.just("second_name"), names, names),
    st.tuples(st.just("trouble"), names, st.sampled_from(TROUBLES)),
    st.tuples(st.just("trouble"), names, st.just("mixed")),
    st.tuples(st.just("heal"), names, st.none()),
    st.tuples(st.just("chassis"), names, st.sampled_from(["s1", "s2"])),
    st.tuples(st.just("slurm_cluster"), names, clusters),
    st.tuples(st.just("kubernetes_cluster"), names, clusters),
    st.tuples(st.just("silent_site"), names, st.none()),
    st.tuples(st.just("block"), names, st.sampled_from([("r02", 0), ("old", 4), ("older", 2)])),
    st.tuples(st.just("old_answer"), names, st.none()),
)
policies = st.builds(
    Policy,
    moved_percent=st.sampled_from([10, 100]),
    expected=st.sampled_from([{}, {"r01": NAMES[:3], "r02": NAMES[3:5]}]),
    max_age=st.sampled_from([None, 600]),
    override=st.sampled_from([(), GATES]),
)
targets = st.one_of(st.just(NAMES), st.sets(names, min_size=1).map(lambda some: tuple(sorted(some))))
histories = st.lists(st.tuples(st.lists(events, min_size=2, max_size=6), targets, policies), min_size=5, max_size=6)
History = list[tuple[list[tuple[str, str, Any]], tuple[str, ...], Policy]]


def happen(trays: dict[str, Tray], what: str, name: str, more: Any) -> None:
    tray = trays[name]
    if what == "move":
        tray.place = more
    elif what == "move_rack":
        for row in trays.values():
            if row.name[:3] == name[:3]:
                row.place = more
    elif what == "renumber_rack":
        for row in trays.values():
            if row.name[:3] == name[:3]:
                row.place = row.place[0], 1 if row.place[1] != 1 else 32766
    elif what == "swap":
        tray.kit, trays[more].kit = trays[more].kit, tray.kit
    elif what == "replace":
        if all(row.kit != more for row in trays.values()):
            tray.kit = more
    elif what == "second_name":
        tray.shows = more if more != name else ""
    elif what == "trouble":
        tray.fault = more
    elif what == "heal":
        tray.fault, tray.shows, tray.observed_at = "", "", NOW
    elif what == "chassis":
        tray.serial = more
    elif what == "silent_site":
        for row in trays.values():
            row.site.clear()
    elif what == "block":
        # Slurm has most of a rack in one block.
        for row in trays.values():
            if row.name[:3] == name[:3]:
                row.block = more
    elif what == "old_answer":
        tray.observed_at = BEFORE
    else:
        tray.site[what] = more


def lived(history: History) -> Iterator[Run]:
    """The runs of a history; each accepted before the next."""
    trays = {
        name: Tray(name, number, PLACES[1] if name.startswith("r01") else PLACES[3], f"s{name[2]}")
        for number, name in enumerate(NAMES)
    }
    fabric, state = Fabric(), None
    for happened, targets, policy in history:
        for what, name, more in happened:
            happen(trays, what, name, more)
        result = {name: observe(trays[name], trays) for name in targets}
        observations = [observation for observation, _shown in result.values()]
        observed = {name: meaning for name, (_observation, meaning) in result.items()}
        try:
            placement = place(fabric, state, observations, targets, NOW, policy)
        except PlacementError:
            # The domain of r02 has another name.
            policy = replace(policy, expected={})
            placement = place(fabric, state, observations, targets, NOW, policy)
        run = Run(fabric, state, observations, targets, policy, observed, placement)
        yield run
        fabric, state = run.after, placement.state


RULES: list[Callable[[Run], None]] = []


def rule(check: Callable[[Run], None]) -> Callable[[Run], None]:
    """A check of each run of each history."""
    RULES.append(check)
    return check


# --- places ---


@rule
def unreachable_not_available_in_progress_or_unhealthy_trays_keep_their_place(run: Run) -> None:
    for name in run.before.trays:
        kept = name not in run.observed or run.observed[name].fault in DETACHING
        if kept and not (name in run.observed and run.observed[name].inconsistent):
            assert clique(run.after, name) == clique(run.before, name)
            assert run.after.trays[name]["gpu_uuids"] == run.before.trays[name]["gpu_uuids"]
        # Health alone is no reason for anything.
        elif name in run.observed and run.observed[name].fault == "unhealthy" and "moved" in run.kinds(name):
            assert identity(run.after, name) == run.observed[name].identity
    assert run.before.trays.keys() <= run.after.trays.keys()


@rule
def a_new_tray_is_placed_only_when_attached(run: Run) -> None:
    for name in run.after.trays.keys() - run.before.trays.keys():
        assert run.observed[name].identity is not None
        assert identity(run.after, name) == run.observed[name].identity


@rule
def a_tray_moves_only_on_an_attached_observation_of_another_clique(run: Run) -> None:
    for name in run.before.trays:
        if clique(run.after, name) != clique(run.before, name):
            assert name in run.targets
            assert run.kinds(name)[0] == "moved"
            assert run.observed[name].identity is not None
            assert identity(run.after, name) == run.observed[name].identity


@rule
def only_the_targets_of_a_run_change_their_place_or_state(run: Run) -> None:
    for name in {*run.before.trays, *(run.state.trays if run.state else ())} - set(run.targets):
        assert run.after.trays.get(name) == run.before.trays.get(name)
        assert run.state
        assert run.placement.state.trays.get(name) == run.state.trays.get(name)
    assert {change["tray"] for change in run.placement.changes} <= set(run.targets)


@rule
def every_tray_has_a_reason_and_every_change_is_reported(run: Run) -> None:
    for name, tray in run.after.trays.items():
        old, kinds = run.before.trays.get(name), run.kinds(name)
        assert tray["why"].split(" ")[0] in ("placed", "moved", "replaced")
        assert (tray != old) == bool(kinds)
        assert (old is None or tray["why"] != old["why"]) <= bool({"placed", "moved", "replaced"} & set(kinds))
    assert all(change["why"] for change in run.placement.changes)


# --- identities ---


@rule
def an_equal_clique_id_in_two_domains_never_merges_them(run: Run) -> None:
    for name, observed in run.observed.items():
        if name in run.after.trays and observed.identity and run.placement.state.trays[name]["state"] == "present":
            assert identity(run.after, name) == observed.identity
    identities = [(clique["domain"], clique["clique_id"]) for clique in run.after.cliques.values()]
    uuids = [domain["cluster_uuid"] for domain in run.after.domains.values()]
    assert len(set(identities)) == len(identities)
    assert len(set(uuids)) == len(uuids)


@rule
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


# --- trays whose GPUs are in different cliques ---


@rule
def gpus_in_different_cliques_are_a_conflict_and_the_place_stays(run: Run) -> None:
    for name, observed in run.observed.items():
        if observed.inconsistent:
            state = run.placement.state.trays[name]["state"]
            assert state == ("conflict" if name in run.after.trays else "unplaced")
            assert clique(run.after, name) == clique(run.before, name)


# --- what a domain and a tray are ---


@rule
def a_tray_known_by_two_names_is_found(run: Run) -> None:
    shown: dict[frozenset[str], list[str]] = defaultdict(list)
    for name, observed in run.observed.items():
        if observed.identity:
            shown[observed.gpus].append(name)
    for same in shown.values():
        # All but one, at most, are set to another.
        assert sum("illegal_tray_name" not in run.codes(name) for name in same) <= 1
    owners = [gpu for tray in run.after.trays.values() for gpu in tray["gpu_uuids"]]
    assert len(set(owners)) == len(owners)
    fabric_file.check(run.after.as_dict(), "fabric.json")


@rule
def a_tray_whose_gpus_are_all_new_is_recorded_as_replaced(run: Run) -> None:
    for name, old in run.before.trays.items():
        new = run.after.trays[name]
        swapped = not set(old["gpu_uuids"]) & set(new["gpu_uuids"])
        # The state of a tray that is no target stays as it was, with its findings.
        assert swapped == ("tray_replaced" in run.codes(name)) or name not in run.targets
        if swapped:
            moved = old["clique"] != new["clique"]
            assert run.kinds(name)[0] == ("moved" if moved else "replaced")
            assert new["why"].startswith("moved" if moved else "replaced")
            owners = [tray for tray, row in run.before.trays.items() if set(row["gpu_uuids"]) & set(new["gpu_uuids"])]
            assert new["why"].endswith(f", its GPUs are those of {owners[0]}" if owners else ", all its GPUs are new")


# --- clusters ---


@rule
def the_site_sets_at_most_one_cluster_of_each_kind_for_a_tray(run: Run) -> None:
    for name, tray in run.after.trays.items():
        for key in ("slurm_cluster", "kubernetes_cluster"):
            old = run.before.trays[name].get(key, "") if name in run.before.trays else ""
            reported = run.observed[name].site.get(key) if name in run.observed else None
            assert tray.get(key, "") == (old if reported is None else reported)
        members = [
            cluster for cluster in run.after.slurm_clusters for b in run.after.blocks(cluster) if name in b.trays
        ]
        assert members == ([tray["slurm_cluster"]] if "slurm_cluster" in tray else [])
    fabric_file.check(run.after.as_dict(), "fabric.json")


@rule
def slurm_has_each_placed_tray_in_one_block_and_in_a_file(run: Run) -> None:
    fabric = run.after
    blocks = [block for cluster in fabric.slurm_clusters or [None] for block in slurm_blocks.blocks(fabric, cluster)]
    placed = [tray for tray in fabric.trays.values() if not fabric.slurm_clusters or "slurm_cluster" in tray]
    assert sorted(node for block in blocks for node in block.nodes) == sorted(tray["slurm_node"] for tray in placed)
    assert all(slurm_files.render(fabric, run.placement.state).values())


# --- gates ---


@rule
def every_gate_can_be_overridden_by_its_name_and_is_recorded(run: Run) -> None:
    strict = replace(run.policy, override=[])
    arguments = (run.before, run.state, run.observations, run.targets, NOW)
    objecting = place(*arguments, strict)
    for row in objecting.objections:
        named = place(*arguments, replace(strict, override=[row["code"]]))
        assert row["code"] not in {left["code"] for left in named.objections}
        is_recorded = {"gate": row["code"], "when": NOW, "what": row["message"]} in named.fabric.overrides
        assert is_recorded or replace(objecting.fabric, overrides=[]) == replace(run.before, overrides=[])
        assert replace(named.fabric, overrides=[]) == replace(objecting.fabric, overrides=[])
    assert run.before.overrides == run.after.overrides[: len(run.before.overrides)]
    everything = place(*arguments, replace(strict, override=GATES))
    assert everything.objections == []


# --- always ---


@rule
def a_second_run_changes_nothing(run: Run) -> None:
    arguments = (run.observations[::-1], run.targets[::-1], NOW, run.policy)
    assert place(run.before, run.state, *arguments) == run.placement, "the order of answers does not matter"
    again = place(run.after, run.placement.state, *arguments)
    assert again.changes == []
    written = fabric_file.serialise(run.after)
    assert fabric_file.serialise(again.fabric) == written
    assert fabric_file.parse(written, "fabric.json") == run.after


def names_and_block_positions_never_change_or_get_reused(history: list[Run]) -> None:
    given_once: dict[tuple[str, ...], Any] = {}

    def give(what: Any, *to: Any) -> None:
        assert given_once.setdefault(to, what) == what

    for run in history:
        for name, row in run.after.cliques.items():
            give(row["domain"], "clique", name)
        # Of the fabric's own blocks and of those of each Slurm cluster.
        for cluster in (None, *run.after.slurm_clusters):
            for block in run.after.blocks(cluster):
                give((block.name, block.position), "block of", cluster, block.clique)
                give(block.clique, "name", cluster, block.name)
                give(block.clique, "position", cluster, block.position)
        reserved = {key for key in given_once if key[0] == "block of"}
        now = {
            ("block of", cluster, block.clique)
            for cluster in (None, *run.after.slurm_clusters)
            for block in run.after.blocks(cluster)
        }
        assert reserved == now, "a block was dropped"


def test_every_rule_holds_in_every_run() -> None:
    reached: set[str] = set()

    @given(histories)
    def check(history: History) -> None:
        runs = list(lived(history))
        for run in runs:
            for each in RULES:
                each(run)
            reached.update(change["kind"] for change in run.placement.changes)
            reached.update(row["code"] for row in run.placement.findings)
            reached.update(row["gate"] for row in run.after.overrides)
            reached.update(row["code"] for row in run.placement.objections)
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
