# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import CATALOGUE
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import files
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import verdict
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.imex.imex_fleet import (
    addresses,
    answer,
    domain_json,
    tray,
    unit,
)
from hypothesis import given
from hypothesis import strategies as st

Cells = dict[tuple[int, int], str]


def members(count: int) -> list[tuple[str, str]]:
    return [(f"t{number}", entry) for number, entry in enumerate(addresses(count))]


def clique(count: int, cells: Cells | None = None, **trays: dict[str, Any]) -> dict[str, Any]:
    """The facts of all trays, each from its own ctl. ``more``: tray -> other facts."""
    connected = set((cells or {}).values()) <= {"CONNECTED"}
    text = domain_json(addresses(count), cells, status="UP" if connected else "DEGRADED")
    answers = {"state": answer("READY\n"), "domain": answer(text)}
    return {
        f"t{number}": tray(number, count, **{"answers": answers, **trays.get(f"t{number}", {})})
        for number in range(count)
    }


def found(evaluated: verdict.Verdict) -> list[tuple[str, str | None]]:
    return [(note["code"], note["tray"]) for note in evaluated.findings]


def both_ways(pairs: list[tuple[int, int]], word: str) -> Cells:
    return {pair: word for a, b in pairs for pair in ((a, b), (b, a))}


def test_a_clique_that_is_up_has_no_finding() -> None:
    assert verdict.evaluate("r01", members(18), clique(18)) == verdict.Verdict(True, (), ())


def test_a_domain_that_is_degraded_though_all_are_connected_is_an_error() -> None:
    facts = clique(3)
    for entry in facts.values():
        entry["domain_state"] = "degraded"
    evaluated = verdict.evaluate("r01", members(3), facts)
    assert found(evaluated) == [("imex_not_ready", None)]
    assert "degraded on t0, t1" in evaluated.findings[0]["message"]
    assert not evaluated.ok


def test_one_wrong_list_among_18_is_one_finding() -> None:
    wrong = {"path": "/n", "text": files.render_nodes(addresses(18)[::-1]), "changed_at": 1.0}
    cells = both_ways([(number, 7) for number in range(18) if number != 7], "NODE_MAP_MISMATCH")
    evaluated = verdict.evaluate("r01", members(18), clique(18, cells, t7={"nodes": wrong}))
    assert found(evaluated) == [("imex_list_differs", "t7")]
    assert not evaluated.ok


def test_a_mismatch_with_equal_files_needs_a_restart_of_all() -> None:
    cells = both_ways([(0, 2), (1, 2), (3, 2)], "NODE_MAP_MISMATCH")
    evaluated = verdict.evaluate("r01", members(4), clique(4, cells))
    assert found(evaluated) == [("imex_list_differs", "t2")]
    assert "stop all its daemons, then start all" in evaluated.findings[0]["message"]
    assert len(evaluated.disconnected) == 6


def test_the_same_wrong_list_on_all_trays_is_one_finding() -> None:
    evaluated = verdict.evaluate("r01", [*members(3), ("t3", "198.51.100.99")], {**clique(3), "t3": None})
    assert found(evaluated)[0] == ("imex_list_differs", None)
    assert "t0, t1, t2" in evaluated.findings[0]["message"]


def test_a_tray_with_another_version_is_named() -> None:
    text = domain_json(addresses(3), both_ways([(0, 1), (1, 2)], "VERSION_MISMATCH"), version="595.58.03")
    other = {"answers": {"state": answer("READY\n"), "domain": answer(text)}, "driver_version": "595.58.03"}
    facts = clique(3, both_ways([(0, 1), (1, 2)], "VERSION_MISMATCH"), t1=other)
    evaluated = verdict.evaluate("r01", members(3), facts)
    assert found(evaluated) == [("imex_peer_version", "t1")]
    assert "t1 (595.58.03)" in evaluated.findings[0]["message"]


def test_a_short_version_is_that_of_the_rest_of_the_clique() -> None:
    facts = clique(3)
    for number, version in enumerate(("570.172", "570.172.08", "570.172")):
        facts[f"t{number}"]["version"] = version
    assert verdict.evaluate("r01", members(3), facts).ok
    facts["t2"]["version"] = "570.172.18"
    assert found(verdict.evaluate("r01", members(3), facts)) == [("imex_peer_version", None)]
    facts["t0"]["version"] = "570.172.08"
    assert found(verdict.evaluate("r01", members(3), facts)) == [("imex_peer_version", "t2")]


def test_a_member_that_is_down_explains_its_pairs() -> None:
    cells = {(0, 2): "DISCONNECTED", (1, 2): "DISCONNECTED"}
    down = {"processes": [], "answers": {}, "unit": unit(active="inactive", main_pid=None)}
    evaluated = verdict.evaluate("r01", members(3), clique(3, cells, t2=down))
    assert found(evaluated) == [("imex_unit_down", "t2")]


def test_an_unreachable_member_is_a_finding() -> None:
    facts = clique(3, {(0, 2): "RECOVERING", (1, 2): "RECOVERING"})
    del facts["t2"]
    evaluated = verdict.evaluate("r01", members(3), facts)
    assert found(evaluated) == [("tray_unreachable", "t2")]
    assert not evaluated.ok


def test_a_pair_that_is_connected_one_way_only_is_a_finding() -> None:
    evaluated = verdict.evaluate("r01", members(4), clique(4, {(0, 3): "NEVER_CONNECTED"}))
    # The fault of the tray that alone reports it: the other one is connected.
    assert found(evaluated) == [("imex_pair_disconnected", "t0")]
    assert "t0-t3 are connected one way only, though all are ready; open" in evaluated.findings[0]["message"]
    assert evaluated.disconnected == (("t0", "t3", "never_connected"),)


def test_only_a_trays_own_row_counts() -> None:
    """t0's ctl shows a broken row of t1 that t1 itself does not have."""
    text = domain_json(addresses(2), {(1, 0): "INVALID"}, status="DEGRADED")
    facts = clique(2, t0={"answers": {"state": answer("READY\n"), "domain": answer(text)}})
    evaluated = verdict.evaluate("r01", members(2), facts)
    assert (evaluated.disconnected, found(evaluated)) == ((), [("imex_not_ready", "t0")])


WORDS = ["CONNECTED", "NEVER_CONNECTED", "RECOVERING", "NODE_MAP_MISMATCH", "VERSION_MISMATCH"]
KINDS = ["ready", "ready", "ready", "down", "absent", "init"]


@st.composite
def cliques(draw: st.DrawFn) -> tuple[int, Cells, list[str]]:
    count = draw(st.integers(1, 5))
    cells = draw(
        st.dictionaries(
            st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), st.sampled_from(WORDS), max_size=6
        )
    )
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=count, max_size=count))
    return count, {pair: word for pair, word in cells.items() if pair[0] != pair[1]}, kinds


@given(cliques())
def test_a_verdict_is_ok_only_without_errors_and_otherwise_has_a_finding(case: tuple[int, Cells, list[str]]) -> None:
    count, cells, kinds = case
    changes: dict[str, dict[str, Any]] = {}
    for number, kind in enumerate(kinds):
        if kind == "down":
            changes[f"t{number}"] = {"processes": [], "answers": {}, "unit": unit(active="inactive", main_pid=None)}
        if kind == "init":
            text = domain_json(addresses(count), cells)
            changes[f"t{number}"] = {"answers": {"state": answer("INIT_GPU\n"), "domain": answer(text)}}
    facts = clique(count, cells, **changes)
    for number, kind in enumerate(kinds):
        if kind == "absent":
            facts[f"t{number}"] = None
    evaluated = verdict.evaluate("r01", members(count), facts)
    speaking = [number for number, kind in enumerate(kinds) if kind in ("ready", "init")]
    broken = {pair for pair, word in cells.items() if word != "CONNECTED" and pair[0] in speaking}
    assert {(a, b) for a, b, word in evaluated.disconnected if word != "unknown"} == {
        (f"t{a}", f"t{b}") for a, b in broken
    }
    assert evaluated.ok == (set(kinds) == {"ready"} and not broken)
    assert evaluated.ok or evaluated.findings
    for note in evaluated.findings:
        assert note["code"] in CATALOGUE
        assert note["clique"] == "r01"
        assert note["message"].isprintable()
    blamed = {note["tray"] for note in evaluated.findings}
    assert {f"t{number}" for number, kind in enumerate(kinds) if kind != "ready"} <= blamed


def test_a_ready_tray_whose_ctl_hangs_is_reported_once() -> None:
    answers = {"state": answer("READY\n"), "domain": answer("")._replace(rc=None, timed_out=True)}
    facts = clique(4, t1={"answers": answers})
    assert facts["t1"]["ready"]
    evaluated = verdict.evaluate("r01", members(4), facts)
    assert (evaluated.ok, evaluated.disconnected, found(evaluated)) == (False, (), [("imex_timeout", "t1")])
