# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import formats
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import CATALOGUE
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import agreement
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
    return {
        f"t{number}": tray(number, count, **{**ctl(text), **trays.get(f"t{number}", {})}) for number in range(count)
    }


def found(evaluated: agreement.Verdict) -> list[tuple[str, str | None]]:
    return [(note["code"], note["tray"]) for note in evaluated.findings]


def both_ways(pairs: list[tuple[int, int]], word: str) -> Cells:
    return {pair: word for a, b in pairs for pair in ((a, b), (b, a))}


def ctl(text: str, state: str = "READY\n", **how: Any) -> dict[str, Any]:
    return {"answers": {"state": answer(state), "domain": answer(text)._replace(**how)}}


DOWN = {"processes": [], "answers": {}, "unit": unit(active="inactive", main_pid=None)}
REVERSED = {"nodes": {"path": "/n", "text": formats.render_nodes(addresses(18)[::-1]), "changed_at": 1.0}}
ONE_OF_18 = both_ways([(number, 7) for number in range(18) if number != 7], "NODE_MAP_MISMATCH")
ONE_OF_4 = both_ways([(0, 2), (1, 2), (3, 2)], "NODE_MAP_MISMATCH")
VERSIONS = both_ways([(0, 1), (1, 2)], "VERSION_MISMATCH")
OF_595 = {**ctl(domain_json(addresses(3), VERSIONS, version="595.58.03")), "driver_version": "595.58.03"}
# The ctl of t0 prints a broken row of t1 that t1 itself does not have.
SILENT = ctl(domain_json(addresses(3), states={2: "UNAVAILABLE"}, status="DEGRADED"))
OF_ANOTHER = ctl(domain_json(addresses(2), {(1, 0): "INVALID"}, status="DEGRADED"))


@pytest.mark.parametrize(
    ("count", "cells", "trays", "expected", "words"),
    [
        (18, {}, {}, [], ""),
        (18, ONE_OF_18, {"t7": REVERSED}, [("imex_list_differs", "t7")], "on t7 is not that of clique r01"),
        # With equal files.
        (4, ONE_OF_4, {}, [("imex_list_differs", "t2")], "stop all its daemons, then start all"),
        (3, VERSIONS, {"t1": OF_595}, [("imex_peer_version", "t1")], "t1 (595.58.03)"),
        # A member that is down, or does not answer, explains its pairs.
        (3, {(0, 2): "DISCONNECTED", (1, 2): "DISCONNECTED"}, {"t2": DOWN}, [("imex_unit_down", "t2")], "t2: "),
        (3, {(0, 2): "RECOVERING", (1, 2): "RECOVERING"}, {"t2": None}, [("tray_unreachable", "t2")], "t2 returned"),
        (4, {}, {"t1": ctl("", rc=None, timed_out=True)}, [("imex_timeout", "t1")], "t1: "),
        # The fault of the tray that alone reports it: the other one is connected.
        (4, {(0, 3): "NEVER_CONNECTED"}, {}, [("imex_pair_disconnected", "t0")], "t0-t3 are connected one way only"),
        (2, {}, {"t0": OF_ANOTHER}, [("imex_not_ready", "t0")], "degraded on t0;"),
        # The member that does not answer, where more than one tray names it.
        (3, {}, {"t0": SILENT, "t1": SILENT}, [("imex_not_ready", "t2")], "t2 does not answer (UNAVAILABLE); open"),
        (3, {}, {"t0": SILENT}, [("imex_not_ready", "t0")], "on t0, where t2 does not answer (UNAVAILABLE); open"),
    ],
)
def test_each_fault_of_a_clique_is_one_finding_on_the_tray_that_has_it(
    count: int, cells: Cells, trays: dict[str, Any], expected: list[Any], words: str
) -> None:
    facts = clique(count, cells, **{tray: change or {} for tray, change in trays.items()})
    facts.update({tray: None for tray, change in trays.items() if change is None})
    evaluated = agreement.evaluate("r01", members(count), facts)
    assert found(evaluated) == expected
    assert words in "".join(note["message"] for note in evaluated.findings)
    assert evaluated.ok is not bool(expected)


def test_a_domain_that_is_degraded_though_all_are_connected_is_an_error() -> None:
    facts = clique(3)
    for entry in facts.values():
        entry["domain_state"] = "degraded"
    evaluated = agreement.evaluate("r01", members(3), facts)
    assert (evaluated.ok, found(evaluated)) == (False, [("imex_not_ready", None)])


def test_the_same_wrong_list_on_all_trays_is_one_finding() -> None:
    evaluated = agreement.evaluate("r01", [*members(3), ("t3", "198.51.100.99")], {**clique(3), "t3": None})
    assert found(evaluated)[0] == ("imex_list_differs", None)
    assert "t0, t1, t2" in evaluated.findings[0]["message"]


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        (("570.172", "570.172.08", "570.172"), []),
        (("570.172", "570.172.08", "570.172.18"), [("imex_peer_version", None)]),
        (("570.172.08", "570.172.08", "570.172.18"), [("imex_peer_version", "t2")]),
    ],
)
def test_a_short_version_is_that_of_the_rest_of_the_clique(versions: tuple[str, ...], expected: Any) -> None:
    facts = clique(3)
    for entry, version in zip(facts.values(), versions):
        entry["version"] = version
    assert found(agreement.evaluate("r01", members(3), facts)) == expected


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
            changes[f"t{number}"] = DOWN
        if kind == "init":
            changes[f"t{number}"] = ctl(domain_json(addresses(count), cells), "INIT_GPU\n")
    facts = clique(count, cells, **changes)
    for number, kind in enumerate(kinds):
        if kind == "absent":
            facts[f"t{number}"] = None
    evaluated = agreement.evaluate("r01", members(count), facts)
    speaking = [number for number, kind in enumerate(kinds) if kind in ("ready", "init")]
    broken = {pair for pair, word in cells.items() if word != "CONNECTED" and pair[0] in speaking}
    assert evaluated.ok == (set(kinds) == {"ready"} and not broken)
    assert evaluated.ok or evaluated.findings
    for note in evaluated.findings:
        assert note["code"] in CATALOGUE
        assert note["clique"] == "r01"
        assert note["message"].isprintable()
    blamed = {note["tray"] for note in evaluated.findings}
    assert {f"t{number}" for number, kind in enumerate(kinds) if kind != "ready"} <= blamed


def test_a_tray_that_waits_for_recovery_names_the_trays_it_waits_for() -> None:
    """By their names in the fabric file: its own finding has their addresses."""
    text = domain_json(addresses(3), {(0, 2): "INVALID"}, status="DEGRADED")
    facts = clique(3, t0=ctl(text, "WAITING_FOR_RECOVERY\n"))
    [note] = [note for note in agreement.evaluate("r01", members(3), facts).findings if note["tray"] == "t0"]
    assert note["code"] == "imex_waiting_for_recovery"
    assert note["message"].startswith("t0 waits for the peers it had before its unclean stop (t2); bring them back")
