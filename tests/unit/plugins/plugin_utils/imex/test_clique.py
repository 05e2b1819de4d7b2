# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import clique as imex_clique
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex.clique import Clique
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.imex.imex_fleet import addresses
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.imex.imex_fleet import tray as facts
from hypothesis import given
from hypothesis import strategies as st

TRAYS = ("a", "b", "c", "d")
CLIQUE = Clique("r01", TRAYS, ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"))
NEW, OLD = "new", "old"


def record(generation: int, sha256: str, clique: str = "r01") -> dict[str, Any]:
    return {"clique": clique, "generation": generation, "sha256": sha256}


def row(generation: int = 0, sha256: str = OLD, restart: bool = False, **more: Any) -> dict[str, Any]:
    return {
        "failed": False,
        "running": True,
        "restart_clique": ["the list"] if restart else [],
        "record": record(generation, sha256) if generation else None,
        "peers": {},
        "facts": facts(0, 4),
        **more,
    }


def decide(rows: dict[str, Any], play: Any = TRAYS, allow_outdated: Any = ()) -> imex_clique.Decision:
    return imex_clique.decide(CLIQUE, NEW, rows, play, allow_outdated)


def all_but_d(**change: Any) -> dict[str, Any]:
    return {tray: row(3, OLD, restart=True) for tray in TRAYS[:3]} | ({"d": change} if change else {})


BROKEN = {"failed": True, "running": True, "msg": "the driver\nis old {{ x }}"}
HAS_LIST = {tray: row(3, NEW) for tray in TRAYS[:3]}
OTHER_NAMES = [f"{tray}.example.com" for tray in TRAYS]


@pytest.mark.parametrize(
    ("rows", "play", "allowed", "restart", "generation", "outdated"),
    [
        # A changed list gets the next generation and restarts all.
        ({tray: row(number, OLD, restart=True) for number, tray in enumerate(TRAYS, 3)}, TRAYS, (), True, 7, ""),
        # A tray that comes back alone takes the generation of its peers.
        (
            {"d": row(4, OLD, running=False, peers={f"10.0.0.{number}": record(5, NEW) for number in (1, 2)})},
            ["d"],
            (),
            False,
            5,
            "",
        ),
        (all_but_d(), TRAYS, (), True, 4, "d"),
        # One that does not answer is in the run whatever its name in the inventory.
        (all_but_d(failed=True, unreached=True), OTHER_NAMES, (), True, 4, "d"),
        ({"a": row(3, OLD, restart=True)}, ["a"], ["b", "c", "d"], True, 4, "bcd"),
        (all_but_d(failed=True, running=False), TRAYS, (), True, 4, "d"),
        (all_but_d(**BROKEN), TRAYS, ["d"], True, 4, "d"),
        (HAS_LIST | {"d": BROKEN}, TRAYS, (), False, 3, "d"),
        (HAS_LIST | {"d": row(3, NEW, failed=True, msg="The disk is full.")}, TRAYS, (), False, 3, ""),
        # A record of another clique.
        (HAS_LIST | {"d": row(record=record(9, OLD, "r02"))}, TRAYS, (), False, 3, ""),
    ],
)
def test_a_clique_restarts_and_names_the_trays_that_miss_its_list(
    rows: dict[str, Any], play: Any, allowed: Any, restart: bool, generation: int, outdated: str
) -> None:
    decision = decide(rows, play, allowed)
    assert (decision.restart, decision.generation, decision.blocked) == (restart, generation, None)
    assert [(note["code"], note["tray"]) for note in decision.findings] == [
        ("imex_list_outdated", tray) for tray in outdated
    ]


@pytest.mark.parametrize(
    ("rows", "play", "tray", "words"),
    [
        ({"a": row(3, OLD, restart=True)}, ["a"], None, "leaves out b, c, d"),
        # A first tray does not join members of another list.
        ({"a": row(running=False, peers={"10.0.0.2": record(3, OLD)})}, ["a"], None, "have another node list: b"),
        # Only d itself reports why: one that lies is named in allow_outdated.
        (all_but_d(**BROKEN), TRAYS, "d", "d failed (the driver is old { { x }}) while its daemon runs"),
    ],
)
def test_a_change_that_would_split_the_clique_is_blocked(
    rows: dict[str, Any], play: Any, tray: str | None, words: str
) -> None:
    decision = decide(rows, play)
    assert [(note["code"], note["tray"]) for note in decision.findings] == [("imex_clique_partial", tray)]
    assert words in str(decision.blocked)


JOBS = {"failed": True, "msg": "Jobs run on this clique (12 (root))."}


@pytest.mark.parametrize(
    ("rows", "allowed", "words"),
    [
        ({"a": {}, "d": JOBS}, (), "but d failed (Jobs run on this clique (12 (root))) while its daemon runs; fix"),
        ({"a": JOBS, "b": JOBS, "c": {}, "d": {}}, (), "but a failed (Jobs run on"),
        ({"a": {}, "d": {"owner": "domain"}}, (), "but d has imex_owner domain; "),
        ({"a": {}, "d": {"owner": "host_managed"}}, (), "but d has imex_owner host_managed; "),
        ({"a": {}, "d": JOBS}, ["d"], None),
        # It has no domain to lose, left it before, or has the one of a job, from which each tray comes alone.
        ({"a": {}, "d": JOBS | {"running": False}}, (), None),
        ({"a": {}, "d": JOBS | {"record": {**record(3, OLD), "owner": "job"}}}, (), None),
        ({tray: {} for tray in TRAYS}, (), None),
    ],
)
def test_a_clique_leaves_its_imex_domain_as_a_whole(rows: dict[str, Any], allowed: Any, words: str | None) -> None:
    """A job on some of its trays keeps the domain of all: Slurm sends jobs to the others too."""
    known = {tray: row(3, **{"owner": "none", "pending": ["stop"], **more}) for tray, more in rows.items()}
    found = imex_clique.leaves_partially(CLIQUE, known, "none", allowed, TRAYS)
    assert (found and found["code"]) == (words and "imex_clique_partial")
    assert (words or "") in (found["message"] if found else "")


@pytest.mark.parametrize(
    ("owners", "blocked"),
    [
        (["domain", "domain", "job", "job"], "Trays of clique r01 have imex_owner domain and job, whose lists differ;"),
        (["host_managed", "job", "job", "job"], "Trays of clique r01 have imex_owner host_managed and job, whose"),
        (["domain", "host_managed", "domain", "domain"], None),
        (["none", "job", "job", "job"], None),
    ],
)
def test_a_clique_has_no_list_for_jobs_beside_another(owners: list[str], blocked: str | None) -> None:
    """Each run would give both a higher generation than the other."""
    rows = {tray: row(3, OLD, owner=owner) for tray, owner in zip(TRAYS, owners)}
    decision = decide(rows)
    assert [note["code"] for note in decision.findings] == ["imex_clique_partial"] * bool(blocked)
    assert str(decision.blocked).startswith(str(blocked))


# One member lies.


def test_no_member_alone_changes_the_generation_of_a_list_that_most_have() -> None:
    for lie in (row(9, OLD), row(2**31 - 1, NEW), row(0)):
        assert decide({**{tray: row(7, NEW) for tray in TRAYS[1:]}, "a": lie}).generation == 7


def test_no_member_alone_exhausts_the_generations() -> None:
    """In a change, a claim counts only so far above the others."""
    honest = {tray: row(7, OLD, restart=True) for tray in TRAYS[1:]}
    assert 7 < decide({**honest, "a": row(2**31 - 1, OLD)}).generation < 2000
    assert decide({"a": row(2**31 - 1, OLD), "b": row(2**31 - 1, OLD)}).generation == 2**31 - 1


def test_the_record_of_a_tray_outside_the_run_is_that_which_most_members_read() -> None:
    def reads(generation: int, sha256: str) -> dict[str, Any]:
        return row(7, NEW, peers={CLIQUE.entries[3]: record(generation, sha256)})

    rows = {"a": reads(9, OLD), "b": reads(7, NEW), "c": reads(7, NEW)}
    assert decide(rows, TRAYS[:3]) == imex_clique.Decision(False, 7)
    assert decide({**rows, "a": reads(7, NEW), "b": reads(6, OLD), "c": reads(6, OLD)}, TRAYS[:3]).blocked is not None
    # Two that disagree: a person decides.
    assert decide({tray: rows[tray] for tray in "ab"}, TRAYS[:2]).blocked is not None


ROWS = st.dictionaries(
    st.sampled_from(TRAYS),
    st.builds(
        row,
        generation=st.integers(0, 5),
        sha256=st.sampled_from([NEW, OLD]),
        restart=st.booleans(),
        failed=st.booleans(),
        running=st.booleans(),
    ),
    min_size=1,
)


@given(ROWS, st.sets(st.sampled_from(TRAYS)))
def test_the_new_generation_is_higher_than_that_of_every_older_list(rows: dict[str, Any], play: set[str]) -> None:
    decision = decide(rows, play | set(rows))
    known = [entry["record"] for entry in rows.values() if not entry["failed"] and entry["record"]]
    kept = [other for other in known if other == record(decision.generation, NEW)]
    assert 2 * len(kept) > len(known) or all(
        decision.generation > other["generation"] for other in known if other["sha256"] == OLD
    )
    assert decision.generation >= 1
    outdated = {note["tray"] for note in decision.findings if note["code"] == "imex_list_outdated"}
    assert not outdated & {tray for tray, entry in rows.items() if not entry["failed"]}


# Pending changes, reported before trays are drained.

MEMBERS = Clique("r01", ("t0", "t1", "t2"), tuple(addresses(3)))


def inspected(number: int, **more: Any) -> dict[str, Any]:
    """The row of a tray in the desired state."""
    return {**row(), "record": record(4, NEW), "pending": [], "approved": True, "facts": facts(number, 3), **more}


def pending(rows: dict[str, Any], tray: str = "t0", play: Any = MEMBERS.trays) -> list[str]:
    return imex_clique.pending_changes(MEMBERS, rows, imex_clique.decide(MEMBERS, NEW, rows, play, []), tray)


def unchanged() -> dict[str, Any]:
    return {tray: inspected(number) for number, tray in enumerate(MEMBERS.trays)}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"pending": ["change /etc/nvidia-imex/config.cfg"]}, "change /etc/nvidia-imex/config.cfg"),
        ({"running": False}, "start nvidia-imex.service"),
        ({"record": record(3, NEW)}, "generation 4 of the list"),
        ({"failed": True, "msg": "Two owners."}, "Two owners."),
        ({"facts": {**facts(0, 3), "ready": False}}, "wait until it is connected to the other members"),
        ({"facts": {**facts(0, 3), "domain_state": "degraded"}}, "wait until it is connected to the other members"),
        # The approval is gone after a boot, and is written again while the daemon runs.
        ({"approved": False}, None),
    ],
)
def test_a_tray_with_a_difference_has_pending_changes(change: dict[str, Any], why: str | None) -> None:
    rows = {**unchanged(), "t0": inspected(0, **change)}
    assert pending(rows) == [why] * bool(why)
    assert pending(rows, "t1") == [], "the rollout, not this function, drains the rest of the clique"


def lost(number: int, *peers: int, word: str = "map_mismatch") -> dict[str, Any]:
    """The facts of a tray that is not connected to some peers."""
    observed = facts(number, 3)
    entries = {MEMBERS.entries[peer] for peer in peers}
    changed = [{**p, "connection": word} if p["host"] in entries else p for p in observed["peers"]]
    return {**observed, "peers": changed}


LIST = {"restart_clique": ["the list of clique r01"]}
PORT = {"restart_clique": ["SERVER_PORT of config.cfg"], "facts": lost(0, 1, 2, word="disconnected")}


@pytest.mark.parametrize(
    ("changes", "restart", "changed"),
    [
        # A change on one tray to which another one is not connected, and one on most of them.
        ({"t1": LIST, "t2": {"facts": lost(2, 1)}}, True, [True, True, True]),
        ({"t1": LIST, "t2": LIST}, True, [True, True, True]),
        ({"t1": {**LIST, "facts": lost(1, 0, 2)}}, False, [False, True, False]),
        # Only unequal lists need a restart of both; the others connect to it once it listens on their port.
        ({"t0": PORT, **{f"t{n}": {"facts": lost(n, 0, word="disconnected")} for n in (1, 2)}}, False, [True] * 3),
    ],
)
def test_a_restart_of_the_clique_is_pending_on_each_of_its_trays(
    changes: dict[str, Any], restart: bool, changed: list[bool]
) -> None:
    rows = {tray: inspected(number, **changes.get(tray, {})) for number, tray in enumerate(MEMBERS.trays)}
    assert imex_clique.decide(MEMBERS, NEW, rows, MEMBERS.trays, []).restart is restart
    assert [bool(pending(rows, tray)) for tray in MEMBERS.trays] == changed


def test_an_unreachable_tray_is_not_pending_for_the_others() -> None:
    rows = {tray: entry for tray, entry in unchanged().items() if tray != "t2"}
    for number, entry in enumerate(rows.values()):
        entry["facts"] = {**lost(number, 2, word="lost"), "domain_state": "degraded"}
    assert [pending(rows, tray) for tray in rows] == [[], []]
    assert pending({**rows, "t2": inspected(2)}) == ["wait until it is connected to the other members"]


@given(
    st.dictionaries(
        st.sampled_from(MEMBERS.trays),
        st.builds(
            inspected,
            number=st.integers(0, 2),
            restart_clique=st.sampled_from([[], ["the list"]]),
            pending=st.sampled_from([[], ["change a file"]]),
            record=st.none() | st.builds(record, st.integers(1, 5), st.sampled_from([NEW, OLD])),
            failed=st.booleans(),
            running=st.booleans(),
        ),
        min_size=1,
    )
)
def test_no_daemon_is_stopped_or_started_without_pending_changes(rows: dict[str, Any]) -> None:
    """For any rows, the decision from them restarts no daemon of such a tray."""
    decision = imex_clique.decide(MEMBERS, NEW, rows, MEMBERS.trays, [])
    for tray, entry in rows.items():
        if not pending(rows, tray):
            assert not decision.restart
            assert entry["running"]
            assert not entry["pending"]
            assert not imex_clique.remaining_changes(entry, decision)


def test_pending_changes_without_a_node_list() -> None:
    assert imex_clique.pending_without_list({"pending": ["mask nvidia-imex.service"]}) == ["mask nvidia-imex.service"]
    assert imex_clique.pending_without_list({"failed": True, "msg": "No driver."}) == ["No driver."]
    assert imex_clique.pending_without_list(None) == pending({}, "t0") == ["it returned no preview"]


@pytest.mark.parametrize(
    ("serial", "sizes"),
    [([], [7]), ([1, 4], [1, 4, 2]), (["50%"], [3, 3, 1]), (["1%"], [1] * 7), ([0], [7]), ([9], [7])],
)
def test_batches_are_those_of_ansible(serial: list[Any], sizes: list[int]) -> None:
    from ansible.executor.playbook_executor import PlaybookExecutor

    hosts = [f"t{number}" for number in range(7)]
    executor = PlaybookExecutor.__new__(PlaybookExecutor)
    executor._inventory = SimpleNamespace(get_hosts=lambda *_pattern, **_order: list(hosts))
    parts = executor._get_serialized_batches(SimpleNamespace(hosts="all", order=None, serial=serial))
    assert [len(part) for part in parts] == sizes
    for part in parts:
        for host in part:
            assert imex_clique.batch(hosts, serial, host) == part
