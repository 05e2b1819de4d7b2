# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import outcomes
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import equal
from hypothesis import given
from hypothesis import strategies as st

RESULTS = st.tuples(st.sampled_from(["r01t01", "r01t02", "r02t01"]), st.sampled_from(outcomes.OUTCOMES))


def _play(domains: int) -> dict[str, str]:
    return {f"r{domain:02d}t{tray:02d}": outcomes.OK for domain in range(1, domains + 1) for tray in range(1, 19)}


MANY = {f"{number**3}a{number**3}": outcomes.FAILED for number in range(999, 0, -1)}


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        (_play(2), "r[01-02]t[01-18]"),
        (_play(576), "10368 hosts"),
        ({**_play(2), "r02t03": outcomes.CHANGED}, "36 hosts: 35 ok, 1 changed"),
        ({"localhost": outcomes.CHANGED}, "localhost"),
        (MANY, "999 hosts: 999 failed (1a1, 8a8, 27a27, 64a64, 125a125 and 994 more)"),
    ],
    ids=["two racks", "576 racks", "changed", "localhost", "many failed"],
)
def test_few_hosts_and_hosts_with_problems_are_named(hosts: dict[str, str], expected: str) -> None:
    assert outcomes.counted(hosts) == expected


@given(st.lists(RESULTS))
def test_the_worst_result_of_a_host_counts_in_any_order(results: list[tuple[str, str]]) -> None:
    play: dict[str, str] = {}
    for host, outcome in results:
        outcomes.add(play, host, outcome)
    ranks = {host: [outcomes.OUTCOMES.index(word) for name, word in results if name == host] for host, _ in results}
    assert play == {host: outcomes.OUTCOMES[max(of)] for host, of in ranks.items()}


def _printed(*rows: tuple[str, str, str]) -> list[str]:
    messages = equal((outcomes.message(outcome, text), host) for outcome, host, text in rows)
    return [str(line) for line in outcomes.lines("Check", messages, ["localhost"])]


def test_equal_messages_share_a_line_without_control_characters() -> None:
    gone = [("failed", f"r01t{tray:02d}", "the GPU\nis gone\033[2J") for tray in (1, 2, 3)]
    failed, cut = _printed(*gone, ("unreachable", "r01t04", "x" * 5000))
    assert failed == "failed       Check: r01t[01-03]: the GPU is gone [2J"
    assert len(cut) == len("unreachable  Check: r01t04: ") + outcomes.MAX_MESSAGE_LENGTH


def test_different_messages_are_limited() -> None:
    lines = _printed(*(("failed", f"t{number}", f"text {number}") for number in range(10_000)))
    assert len(lines) == outcomes.MAX_MESSAGES + 1
    assert lines[-1] == f"Check: and {10_000 - outcomes.MAX_MESSAGES} more hosts"
