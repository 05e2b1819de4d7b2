# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from collections import Counter

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import progress
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.progress import Messages, Phase
from hypothesis import given
from hypothesis import strategies as st

RESULTS = st.tuples(st.sampled_from(["", "r1", "r2", "r10"]), st.integers(1, 5), st.sampled_from(progress.OUTCOMES))


def _phase(domains: int = 3) -> Phase:
    phase = Phase()
    for domain in range(1, domains + 1):
        for tray in range(1, 19):
            phase.add(f"r{domain:02d}", f"r{domain:02d}t{tray:02d}", progress.OK)
    return phase


def _lines(phase: Phase) -> list[str]:
    return [str(line) for line in phase.lines()]


def test_a_phase_without_problems_is_one_line() -> None:
    assert _lines(_phase(2)) == ["ok           r[01-02]t[01-18]"]
    assert _lines(_phase(576)) == ["ok           10368 hosts"]
    phase = _phase(2)
    phase.add("r02", "r02t03", progress.CHANGED)
    assert _lines(phase) == ["changed      36 hosts: 35 ok, 1 changed"]
    alone = Phase()
    alone.add("", "localhost", progress.CHANGED)
    assert _lines(alone) == ["changed      localhost"]
    assert _lines(Phase()) == []


def test_domains_with_problems_come_first_in_natural_order_and_hosts_without_one_last() -> None:
    phase = Phase()
    for domain in ("r10", "", "r9", "r8"):
        phase.add(domain, f"host-{domain}", progress.OK if domain == "r8" else progress.FAILED)
        phase.add(domain, f"more-{domain}", progress.OK)
    assert _lines(phase) == [
        "failed       r9: 2 hosts: 1 ok, 1 failed (host-r9)",
        "failed       r10: 2 hosts: 1 ok, 1 failed (host-r10)",
        "failed       (no domain): 2 hosts: 1 ok, 1 failed (host-)",
        "ok           all others: host-r8,more-r8",
    ]


def test_domains_that_failed_as_a_whole_share_a_line() -> None:
    phase = _phase(4)
    for domain in (1, 2):
        for tray in range(1, 19):
            phase.add(f"r{domain:02d}", f"r{domain:02d}t{tray:02d}", progress.FAILED)
    phase.add("r03", "r03t05", progress.RESCUED)
    assert _lines(phase) == [
        "failed       36 hosts: 36 failed (r[01-02]t[01-18])",
        "rescued      all others: 36 hosts: 35 ok, 1 rescued (r03t05)",
    ]


def test_the_worst_result_of_a_host_counts_and_hosts_with_problems_are_named() -> None:
    phase = _phase(2)
    for tray in (3, 4, 7):
        phase.add("r01", f"r01t{tray:02d}", progress.UNREACHABLE)
    phase.add("r01", "r01t04", progress.CHANGED)
    phase.add("r01", "r01t01", progress.CHANGED)
    assert _lines(phase) == [
        "unreachable  r01: 18 hosts: 14 ok, 1 changed, 3 unreachable (r01t[03-04,07])",
        "ok           all others: r02t[01-18]",
    ]


@pytest.mark.parametrize(
    ("outcomes", "causes", "expected"),
    [
        ({"r01t01": "ok", "localhost": "ok"}, [], "OK in 1.5 s: localhost,r01t01"),
        ({"localhost": "changed"}, [], "CHANGED in 1.5 s: localhost"),
        ({"r01t01": "rescued", "localhost": "ok"}, [], "OK in 1.5 s: 2 hosts: 1 ok, 1 rescued (r01t01)"),
        ({"localhost": "failed"}, ["Check: x: set it."], "FAILED in 1.5 s: localhost: Check: x: set it."),
        (
            {"r01t01": "failed", "r01t02": "failed", "localhost": "changed"},
            ["Check: a.", "Start: b.", "Start: c."],
            "FAILED in 1.5 s: 3 hosts: 1 changed, 2 failed (r01t[01-02]): Check: a. (2 more causes above)",
        ),
        ({}, [], "OK in 1.5 s: no play had a host"),
    ],
)
def test_the_last_line_is_the_verdict_of_the_run(outcomes: dict[str, str], causes: list[str], expected: str) -> None:
    assert progress.verdict(outcomes, causes, 1.52, check_mode=False)[1] == expected


@given(st.lists(RESULTS))
def test_every_host_is_counted_once_in_any_order_of_results(results: list[tuple[str, int, str]]) -> None:
    phase, other = Phase(), Phase()
    for domain, number, outcome in results:
        phase.add(domain, f"{domain}h{number}", outcome)
    for domain, number, outcome in reversed(results):
        other.add(domain, f"{domain}h{number}", outcome)
    assert phase.outcomes == other.outcomes
    hosts = {(domain, number) for domain, number, _outcome in results}
    counted = Counter(domain for domain, _number in hosts)
    assert {domain: len(of) for domain, of in phase.outcomes.items()} == counted


def _printed(messages: Messages) -> list[str]:
    return [str(line) for line in messages.lines("Check", ["localhost"])]


def test_equal_messages_share_a_line_without_control_characters() -> None:
    messages = Messages()
    for tray in (1, 2, 3):
        messages.add("failed", f"r01t{tray:02d}", "the GPU\nis gone\033[2J")
    messages.add("unreachable", "r01t04", "x" * 5000)
    failed, cut = _printed(messages)
    assert failed == "failed       Check: r01t[01-03]: the GPU is gone [2J"
    assert len(cut) == len("unreachable  Check: r01t04: ") + progress.MAX_MESSAGE_LENGTH
    assert messages.errors() == ["the GPU is gone [2J", "x" * (progress.MAX_MESSAGE_LENGTH - 1) + "…"]


def test_each_entry_of_the_output_of_a_debug_task_is_a_line() -> None:
    messages = Messages()
    messages.add("", "localhost", "2 trays", "r01t01  placed\nr01t02  moved\033[2J", "")
    for tray in ("r01t01", "r01t02"):
        messages.add("", tray, "one")
        messages.add("", tray, "a", "b")
    messages.add("", "r01t03")
    assert _printed(messages) == [
        *("2 trays", "r01t01  placed", "r01t02  moved [2J", ""),
        *("r01t[01-02]: one", "r01t[01-02]:", "  a", "  b"),
    ]
    assert messages.errors() == []


def test_different_messages_are_limited() -> None:
    messages = Messages()
    for number in range(10_000):
        messages.add("failed", f"t{number}", f"text {number}")
    lines = _printed(messages)
    assert len(lines) == progress.MAX_MESSAGES + 1
    assert lines[-1] == f"Check: and {10_000 - progress.MAX_MESSAGES} more hosts"
