# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import progress
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.progress import Messages
from hypothesis import given
from hypothesis import strategies as st

RESULTS = st.tuples(st.sampled_from(["r01t01", "r01t02", "r02t01"]), st.sampled_from(progress.OUTCOMES))


def _play(domains: int) -> dict[str, str]:
    return {f"r{domain:02d}t{tray:02d}": progress.OK for domain in range(1, domains + 1) for tray in range(1, 19)}


MANY = {f"{number**3}a{number**3}": progress.FAILED for number in range(999, 0, -1)}


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        (_play(2), "r[01-02]t[01-18]"),
        (_play(576), "10368 hosts"),
        ({**_play(2), "r02t03": progress.CHANGED}, "36 hosts: 35 ok, 1 changed"),
        ({"localhost": progress.CHANGED}, "localhost"),
        (MANY, "999 hosts: 999 failed (1a1, 8a8, 27a27, 64a64, 125a125 and 994 more)"),
    ],
    ids=["two racks", "576 racks", "changed", "localhost", "many failed"],
)
def test_few_hosts_and_hosts_with_problems_are_named(outcomes: dict[str, str], expected: str) -> None:
    assert progress.counted(outcomes) == expected


@given(st.lists(RESULTS))
def test_the_worst_result_of_a_host_counts_in_any_order(results: list[tuple[str, str]]) -> None:
    play: dict[str, str] = {}
    for host, outcome in results:
        progress.add(play, host, outcome)
    ranks = {host: [progress.OUTCOMES.index(word) for name, word in results if name == host] for host, _ in results}
    assert play == {host: progress.OUTCOMES[max(of)] for host, of in ranks.items()}


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


def test_different_messages_are_limited() -> None:
    messages = Messages()
    for number in range(10_000):
        messages.add("failed", f"t{number}", f"text {number}")
    lines = _printed(messages)
    assert len(lines) == progress.MAX_MESSAGES + 1
    assert lines[-1] == f"Check: and {10_000 - progress.MAX_MESSAGES} more hosts"
