# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from collections import Counter

from ansible_collections.rackscale.nvlink.plugins.plugin_utils import progress
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.progress import Messages, Phase
from hypothesis import given
from hypothesis import strategies as st

RESULTS = st.tuples(st.sampled_from(["", "r1", "r2", "r10"]), st.integers(1, 5), st.sampled_from(progress.OUTCOMES))


def _phase(racks: int = 3) -> Phase:
    phase = Phase()
    for rack in range(1, racks + 1):
        for tray in range(1, 19):
            phase.add(f"r{rack:02d}", f"r{rack:02d}t{tray:02d}", progress.OK)
    return phase


def test_a_line_for_each_rack_in_natural_order_and_hosts_without_one_last() -> None:
    phase = Phase()
    for rack in ("r10", "", "r9"):
        phase.add(rack, f"host-{rack}", progress.OK)
    assert phase.lines() == ["r9         1 host: 1 ok", "r10        1 host: 1 ok", "(no rack)  1 host: 1 ok"]


def test_the_worst_result_of_a_host_counts_and_hosts_with_problems_are_named() -> None:
    phase = _phase(1)
    for tray in (3, 4, 7):
        phase.add("r01", f"r01t{tray:02d}", progress.UNREACHABLE)
    phase.add("r01", "r01t04", progress.CHANGED)
    phase.add("r01", "r01t01", progress.CHANGED)
    assert phase.lines() == ["r01  18 hosts: 14 ok, 1 changed, 3 unreachable (r01t[03-04,07])"]


def test_racks_with_equal_results_share_a_line_with_fold() -> None:
    phase = _phase(576)
    assert len(phase.lines()) == 576
    assert phase.lines(fold=True) == ["r[01-99],r[100-576]  18 hosts: 18 ok"]
    phase.add("r07", "r07t01", progress.FAILED)
    assert phase.lines(fold=True) == [
        "r[01-06,08-99],r[100-576]  18 hosts: 18 ok",
        "r07                        18 hosts: 17 ok, 1 failed (r07t01)",
    ]


@given(st.lists(RESULTS))
def test_every_host_is_counted_once_in_any_order_of_results(results: list[tuple[str, int, str]]) -> None:
    phase, other = Phase(), Phase()
    for rack, number, outcome in results:
        phase.add(rack, f"{rack}h{number}", outcome)
    for rack, number, outcome in reversed(results):
        other.add(rack, f"{rack}h{number}", outcome)
    assert phase.outcomes == other.outcomes
    hosts = {(rack, number) for rack, number, _outcome in results}
    counted = Counter(rack for rack, _number in hosts)
    assert {rack: len(of) for rack, of in phase.outcomes.items()} == counted


def test_equal_messages_share_a_line_without_control_characters() -> None:
    messages = Messages()
    for tray in (1, 2, 3):
        messages.add("failed", f"r01t{tray:02d}", "the GPU\nis gone\033[2J")
    messages.add("", "localhost", "x" * 1000)
    failed, printed = messages.lines()
    assert failed == "failed: r01t[01-03]: the GPU is gone [2J"
    assert len(printed) == len("localhost: ") + progress.MAX_MESSAGE_LENGTH


def test_different_messages_are_limited() -> None:
    messages = Messages()
    for number in range(10_000):
        messages.add("failed", f"t{number}", f"text {number}")
    lines = messages.lines()
    assert len(lines) == progress.MAX_MESSAGES + 1
    assert lines[-1] == f"and {10_000 - progress.MAX_MESSAGES} more hosts"
