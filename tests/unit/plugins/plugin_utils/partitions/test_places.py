# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs of trays in the list of a switch: found, missing or doubtful, also for any list."""

from __future__ import annotations

import json

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import tray_report
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import nvue
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions import places
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.places import Gpu, Located
from ansible_collections.rackscale.nvlink.tests.lab.nvlab import switch as standin
from ansible_collections.rackscale.nvlink.tests.lab.nvml import fleets
from hypothesis import given
from hypothesis import strategies as st

FACTS = fleets.fleet(racks=1, trays_per_rack=3)
REPORTS = {
    tray: tray_report.read(tray, {"ansible_facts": {"nvlink_fabric": facts}, "findings": []})
    for tray, facts in FACTS.items()
}
TRAYS = [*FACTS]
LISTED = {
    tray: [nvue.Gpu(row["location"], nvue.uid(row["uuid"])) for row in standin.gpus_of(tray, FACTS[tray])]
    for tray in TRAYS
}


def partition(number: int, gpus: list[nvue.Gpu], name: str = "p") -> nvue.Partition:
    return nvue.Partition(number, name, "healthy", "full_bandwidth", 16, tuple(gpus))


def test_trays_are_found_by_what_their_gpus_report_now() -> None:
    known = places.known(TRAYS, REPORTS, {})
    rows = [partition(1, LISTED[TRAYS[0]]), partition(2, [*LISTED[TRAYS[1]], *LISTED[TRAYS[2]][:3]])]
    found = places.locate(known, rows)
    assert found.gpus[TRAYS[0]] == [Located(*gpu, 1) for gpu in LISTED[TRAYS[0]]]
    assert [gpu.partition for gpu in found.gpus[TRAYS[2]]] == [2, 2, 2, None]
    assert found.gpus[TRAYS[2]][3] == Located("", LISTED[TRAYS[2]][3].uid, None)
    assert [gpu.partition is None for gpu in found.gpus[TRAYS[2]]].count(True) == 1
    assert found.doubts == {}


def test_a_silent_tray_is_found_by_what_the_verdict_file_kept() -> None:
    kept = json.loads(json.dumps(places.memory(places.known(TRAYS, REPORTS, {}))))
    answering = {tray: REPORTS[tray] for tray in TRAYS[1:]}
    assert places.known(TRAYS, answering, kept) == places.known(TRAYS, REPORTS, {})
    assert TRAYS[0] not in places.known(TRAYS, answering, {})


def test_two_gpus_with_each_others_uuid_are_doubtful() -> None:
    first, second = LISTED[TRAYS[0]][0], LISTED[TRAYS[1]][0]
    rows = [partition(1, [nvue.Gpu(first.location, second.uid), nvue.Gpu(second.location, first.uid)])]
    found = places.locate(places.known(TRAYS[:2], REPORTS, {}), rows)
    assert [*found.doubts] == TRAYS[:2]
    own = first.location.partition(".")[2]
    assert found.doubts[TRAYS[0]] == f"r01t01: {first.uid} at {second.location}, its driver has {first.uid} at {own}"


def test_a_switch_that_lists_no_uuid_is_matched_by_location() -> None:
    rows = [partition(1, [nvue.Gpu(gpu.location, "") for gpu in LISTED[TRAYS[0]]])]
    found = places.locate(places.known(TRAYS[:1], REPORTS, {}), rows)
    assert [gpu.partition for gpu in found.gpus[TRAYS[0]]] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("number", "name", "cliques"),
    [(32766, "x", {32766}), (1, "Default Partition", {1, 32766}), (1, "r01a", {1})],
)
def test_the_default_partition_is_found_by_id_or_name(number: int, name: str, cliques: set[int]) -> None:
    row = partition(number, [], name)
    assert {clique for clique in (1, 2, 32766) if places.is_clique(row, clique)} == cliques


UIDS, PLACES = st.sampled_from(["", "0x1", "0x2", "0x3"]), st.sampled_from(["", "1.1.1", "1.1.2", "2.1.1"])
KNOWN = st.dictionaries(
    st.sampled_from("ab"),
    st.lists(st.builds(Gpu, st.lists(UIDS.filter(bool), max_size=2).map(tuple), PLACES), max_size=3),
)
ROWS = st.lists(
    st.builds(
        partition,
        st.integers(1, 3),
        # A switch lists a GPU by one of both at least.
        st.lists(st.builds(nvue.Gpu, PLACES.map(lambda place: place and f"1.{place}"), UIDS).filter(any), max_size=4),
    ),
    max_size=3,
)


@given(known=KNOWN, rows=ROWS)
def test_each_known_gpu_is_found_missing_or_doubtful(known: dict[str, list[Gpu]], rows: list[nvue.Partition]) -> None:
    found = places.locate(known, rows)
    assert {tray: len(gpus) for tray, gpus in found.gpus.items()} == {tray: len(gpus) for tray, gpus in known.items()}
    for gpus in found.gpus.values():
        for gpu in gpus:
            listed = [row.id for row in rows if nvue.Gpu(gpu.location, gpu.uid) in row.gpus]
            assert gpu.partition in (listed or [None])
