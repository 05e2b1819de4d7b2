# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVLinks in verify: what grows from run to run is named, a counter that begins anew is not, and nothing else is."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.verify import links_check, xids_check
from hypothesis import example, given
from hypothesis import strategies as st

from .verify_world import World

HOME = World()
TRAY = "r01t01"
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def gpu(index: int, uuid: str | None, recoveries: dict[int, int], **changes: Any) -> dict[str, Any]:
    """What verify reads of a GPU of the facts nvlink_links."""
    return {
        "index": index,
        "uuid": uuid,
        "pci_bus_id": f"0000000{index}:01:00.0",
        "link_count": 18,
        "links": [row(53125)],
        "counters": [{"link": link, "recoveries": number} for link, number in recoveries.items() if number],
        "unknown_counters": [],
        **changes,
    }


def row(speed: int | None) -> dict[str, Any]:
    """18 links of a GPU at one speed."""
    return {"state": "active", "speed": speed, "links": list(range(18))}


@dataclass
class Runs:
    """Runs of verify on one tray, each of which keeps what the next one compares with."""

    world: World = field(default_factory=lambda: copy.deepcopy(HOME))
    kept: dict[str, Any] = field(default_factory=dict)

    def run(self, *gpus: dict[str, Any]) -> list[tuple[str, str]]:
        """(code, message) of each failure."""
        self.world.trays[TRAY]["links"] = {"gpus": list(gpus), "xids": [], "findings": []}
        evidence = self.world.evidence(links_before=self.kept)
        rows = [(row["code"], row["message"]) for row in links_check.check(evidence)]
        self.kept = json.loads(json.dumps(links_check.memory(evidence)))
        return rows


def test_the_link_is_named_on_the_first_day_that_its_counter_grows() -> None:
    """Marin issue 9086: 505 recoveries of GPU 0 link 14 and growing, five days before Xid 149."""
    runs = Runs()
    assert runs.run(gpu(0, "A", {14: 505})) == [], "a first number is no growth"
    assert runs.run(gpu(0, "A", {14: 508})) == [
        (
            "nvlink_link_recovering",
            "r01t01: NVLink 14 of GPU 0 went into recovery 3 times since the last run, 508 in all.",
        )
    ]
    [(_code, message)] = runs.run(gpu(0, "A", {14: 509, 2: 1}))
    assert message == (
        "r01t01: NVLink 2 of GPU 0 went into recovery 1 time since the last run, 1 in all, NVLink 14 of GPU 0 went into"
        " recovery 1 time since the last run, 509 in all."
    )
    assert runs.run(gpu(0, "A", {14: 509, 2: 1})) == [], "it is said once"
    assert runs.run(gpu(0, "A", {14: 0, 2: 0})) == [], "a reset is no growth"
    assert runs.kept == {TRAY: {"gpus": {"A": {}}, "xid_at": 0}}
    assert len(runs.run(gpu(0, "A", {14: 2}))) == 1, "after the reset"
    assert runs.run(gpu(0, "B", {14: 7})) == [], "a new GPU has its own numbers"


WITHOUT = {"unknown_counters": ["recoveries"]}


@pytest.mark.parametrize(
    "unknown",
    [
        gpu(0, None, {}, link_count=None, links=[]),
        gpu(0, "A", {}, **WITHOUT),
        # JSON of a tray whose numbers are no integers.
        gpu(0, "A", {14.0: 5}),  # type: ignore[dict-item]
        gpu(0, "A", {}, links=[row(53125) | {"links": [0.0, 1.0]}], **WITHOUT),
    ],
    ids=["GPU", "counter", "link", "links"],
)
def test_what_cannot_be_read_for_one_run_is_not_zero_and_compared_again(unknown: dict[str, Any]) -> None:
    runs = Runs()
    runs.run(gpu(0, "A", {14: 1}), gpu(1, "B", {}))
    assert runs.run(unknown, gpu(1, "B", {})) == []
    assert [code for code, _message in runs.run(gpu(0, "A", {14: 2}), gpu(1, "B", {}))] == ["nvlink_link_recovering"]


def test_a_tray_outside_the_run_keeps_its_counters_and_a_removed_one_does_not() -> None:
    runs = Runs()
    runs.run(gpu(0, "A", {14: 7}))
    before = runs.kept
    evidence = runs.world.evidence(links_before={**before, "gone": before[TRAY]}, reports={})
    assert links_check.memory(evidence) == before


def test_degraded_links_are_failures_and_explain_the_bandwidth_of_their_gpu() -> None:
    world = copy.deepcopy(HOME)
    degraded = gpu(1, "B", {}, links=[{"state": "active", "speed": 53125, "links": list(range(17))}], link_count=17)
    world.trays[TRAY]["links"] = {"gpus": [gpu(0, "A", {}), degraded], "xids": [], "findings": []}
    world.report(TRAY, "gpu", "fabric_degraded")
    [row] = world.verdict()["failures"]
    assert (row["layer"], row["code"], row["severity"], row["tray"]) == (
        "hardware",
        "nvlink_links_degraded",
        "warning",
        TRAY,
    )
    assert row["message"].startswith("r01t01: GPU 1: 17 of 18 NVLinks are active at 53125 MB/s, link 17 is not; ")


@pytest.mark.parametrize(
    ("speeds", "product", "expected"),
    [
        ((53125, 53125, 53125, 53125), "NVIDIA GB200", []),
        ((26562, 53125, 53125, None), "NVIDIA GB200", [1]),
        # Of two speeds that as many trays have, the higher one.
        ((26562, 26562, 53125, 53125), "", [1, 2]),
        ((26562, 26562, 26562, 26562), "NVIDIA GB300", [1, 2, 3, 4]),
        ((26562, 26562, 26562, 26562), "NVIDIA H100", []),
    ],
)
def test_slow_links_are_found_by_their_product_and_by_most_trays_of_it(
    speeds: tuple[int | None, ...], product: str, expected: list[int]
) -> None:
    world = copy.deepcopy(HOME)
    for tray, speed in zip(world.fabric.members["r01"], speeds, strict=True):
        slow = [gpu(index, f"{tray}-{index}", {}, links=[row(speed)]) for index in range(4)]
        world.trays[tray]["links"] = {"gpus": slow, "xids": [], "findings": []}
        for row_of in world.trays[tray]["gpu"]["gpus"]:
            row_of["name"] = product
    found = list(links_check.check(world.evidence()))
    assert [(row["code"], row["severity"], row["message"]) for row in found] == [
        (
            "nvlink_links_degraded",
            "warning",
            f"r01t0{tray}: its NVLinks run at 26562 MB/s, and 53125 MB/s are expected.",
        )
        for tray in expected
    ]


NONE = {"state": "inactive", "speed": None, "links": list(range(18))}


@pytest.mark.parametrize(
    ("host", "product", "counts", "expected"),
    [
        # PCIe cards without a bridge have links too, and may be in a run for all hosts.
        ("h01", "NVIDIA A100 80GB PCIe", 18, ("nvlink_links_degraded", "warning")),
        ("h01", "NVIDIA GB200", 18, ("nvlink_links_down", "error")),
        (TRAY, "NVIDIA X100", 18, ("nvlink_links_down", "error")),
        # A driver that counts no link more than those that are active.
        (TRAY, "NVIDIA GB300", 17, ("nvlink_links_degraded", "warning")),
        (TRAY, "NVIDIA X100", 17, ("nvlink_links_degraded", "warning")),
        (TRAY, "NVIDIA X100", 2**31, None),
    ],
)
def test_gpus_have_the_links_of_their_product_or_of_most_in_the_site(
    host: str, product: str, counts: int, expected: tuple[str, str] | None
) -> None:
    world = copy.deepcopy(HOME)
    world.trays["h01"] = copy.deepcopy(world.trays[TRAY])
    for tray, facts in world.trays.items():
        facts["links"] = {"gpus": [gpu(0, tray, {})], "xids": [], "findings": []}
        facts["gpu"]["gpus"] = [{**row_of, "name": product} for row_of in facts["gpu"]["gpus"]]
    some = NONE if counts == 18 else {**row(53125), "links": list(range(17))}
    world.trays[host]["links"]["gpus"] = [gpu(0, host, {}, link_count=counts, links=[some])]
    found = [(row["code"], row["severity"]) for row in links_check.check(world.evidence())]
    assert found == ([expected] if expected else [])


@example(before={TRAY: {"gpus": {"A": {"x": 1}}}})
@given(before=PLAIN)
def test_no_edited_file_stops_the_verdict(before: Any) -> None:
    world = copy.copy(HOME)
    world.trays = {**HOME.trays, TRAY: {**HOME.trays[TRAY], "links": {"gpus": [gpu(0, "A", {14: 3})], "xids": []}}}
    kept = before if isinstance(before, dict) else {TRAY: before}
    evidence = world.evidence(links_before=kept)
    list(links_check.check(evidence))
    list(xids_check.check(evidence))
    again = links_check.memory(evidence)
    assert json.loads(json.dumps(again)) == again
    list(links_check.check(world.evidence(links_before=again)))
