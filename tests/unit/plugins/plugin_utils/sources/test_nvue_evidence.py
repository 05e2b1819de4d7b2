# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Source nvue: what a switch lists is a finding beside what the GPUs report, and places nothing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients.nvue import Controller, Gpu, Partition, Report
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients.nvue import uid as as_listed
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.merging import Merged
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric, Observation
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.placement import place
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.policy import Policy
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import SourceError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import ansible_facts, nvue_evidence
from ansible_collections.rackscale.nvlink.tests.lab.nvml import fleets
from hypothesis import given
from hypothesis import strategies as st

NOW = "2026-11-21T05:00:00Z"
TRAYS = {tray: ansible_facts.from_facts(tray, row) for tray, row in fleets.fleet(2, NOW, trays_per_rack=3).items()}
FABRIC = place(None, None, TRAYS.values(), NOW, Policy()).fabric
PRIMARY = Controller("CONFIGURED", "ok", "")
THEN = "; the GPUs alone place a tray, and the switch decides what they join after a reset"


def partition(number: int, trays: Collection[str], key: str = "fabric_guids") -> Partition:
    gpus = tuple(Gpu("", as_listed(text)) for tray in trays for text in getattr(TRAYS[tray], key))
    return Partition(number, f"p{number}", "healthy", "full_bandwidth", 64, gpus)


def switch(*partitions: Partition, **changes: Any) -> Report:
    return replace(Report("sw1", controller=PRIMARY, partitions=partitions), **changes)


def found(
    *reports: Report, observed: dict[str, Observation] = TRAYS, fabric: Fabric | None = FABRIC, domain: str = "r01"
) -> list[Finding]:
    """The findings, where other sources observe these trays and a domain has switches with these reports."""
    merged = Merged([*observed.values()], [{"code": "x"}])

    def read(_fabric: Fabric, domains: Collection[str]) -> Any:
        return {domain: reports} if domain in domains else {}

    got, failure = nvue_evidence.observe(lambda _fabric: (merged, "too few"), read, fabric)
    assert (got.observations, got.findings[0], failure) == (merged.observations, {"code": "x"}, "too few")
    return list(got.findings[1:])


def texts(*reports: Report, **more: Any) -> list[str]:
    return [row["message"] for row in found(*reports, **more)]


@pytest.mark.parametrize("key", ["fabric_guids", "gpu_uuids"])
def test_a_switch_that_agrees_adds_nothing(key: str) -> None:
    assert found(switch(partition(32766, ["r01t01", "r01t02", "r01t03"], key)), switch(controller=Controller())) == []
    # The default partition of an older release, by its name.
    older = partition(1, ["r01t01", "r01t02", "r01t03"], key)._replace(name="Default partition")
    assert found(switch(older)) == []


def test_both_are_quoted_where_switch_and_gpus_disagree() -> None:
    listed = switch(partition(32766, ["r01t01"]), partition(7, ["r01t02", "r01t03"]))
    [row] = found(listed)
    assert (row["code"], row["domain"], row.get("tray")) == ("sources_disagree", "r01", None)
    assert row["message"].rstrip(".") == (
        "Source nvue: switch sw1 lists GPUs of r01t[02-03] of NVLink domain r01 in NVLink partition 7, and the GPUs"
        f" report clique ID 32766{THEN}"
    )
    # Also where the GPUs, and no switch, have changed.
    moved = {**TRAYS, "r01t02": replace(TRAYS["r01t02"], identity=(FABRIC.cluster_uuid("r01"), 9))}
    [text] = texts(switch(partition(32766, ["r01t01", "r01t02", "r01t03"])), observed=moved)
    assert "lists GPUs of r01t02" in text
    assert "partition 32766, and the GPUs report clique ID 9" in text


def test_the_gpus_of_one_tray_in_two_partitions_are_named() -> None:
    row = partition(32766, ["r01t01"])
    [text] = texts(switch(row._replace(gpus=row.gpus[:2]), row._replace(id=7, gpus=row.gpus[2:])))
    assert "r01t01 of NVLink domain r01 in NVLink partition 7 and 32766, and the GPUs report clique ID 32766" in text


@pytest.mark.parametrize(
    ("observed", "words"),
    [
        (Observation("r01t01", "x", reachable=False, problem="down"), "the GPUs do not answer"),
        (replace(TRAYS["r01t01"], identity=None), "the GPUs report none"),
    ],
)
def test_a_tray_without_a_clique_is_compared_by_its_place_in_the_fabric_file(observed: Observation, words: str) -> None:
    rows = {"r01t01": observed}
    assert found(switch(partition(32766, ["r01t01"], "gpu_uuids")), observed=rows) == []
    [text] = texts(switch(partition(7, ["r01t01"], "gpu_uuids")), observed=rows)
    assert f"partition 7, and {words}, and the fabric file has clique r01 (32766)" in text
    # Not in the fabric file: nothing is known to compare.
    unplaced = {"r01t01": TRAYS["r01t01"], "r09t01": replace(observed, tray="r09t01")}
    assert found(switch(partition(32766, ["r01t01"], "gpu_uuids")), observed=unplaced) == []


def test_gpus_that_a_switch_does_not_list_say_nothing() -> None:
    assert found(switch()) == []


@pytest.mark.parametrize(
    ("reports", "why"),
    [
        ([switch(controller=Controller(), problem="sw1: no answer.")], "sw1: no answer"),
        ([switch(controller=Controller())], "none or several of them run the controller"),
        ([switch(), switch(switch="sw2")], "none or several of them run the controller"),
    ],
)
def test_switches_that_show_no_partitions_are_a_failed_source(reports: list[Report], why: str) -> None:
    [row] = found(*reports)
    assert (row["code"], row["domain"]) == ("source_failed", "r01")
    assert f"the switches of NVLink domain r01 show no partitions ({why})" in row["message"]


def test_a_site_needs_switches_and_a_first_discovery_reads_none() -> None:
    with pytest.raises(SourceError, match="sources: nvue finds no switch of these trays; add them to the group"):
        found(switch(), domain="r09")
    assert found(switch(partition(7, TRAYS)), fabric=None) == []


@given(st.lists(st.sampled_from([1, 2, 32766]), min_size=6, max_size=6), st.sets(st.sampled_from([*TRAYS])))
def test_no_list_of_a_switch_changes_a_place(ids: list[int], silent: set[str]) -> None:
    rows = {tray: Observation(tray, "x", reachable=False) if tray in silent else row for tray, row in TRAYS.items()}
    by_id = {number: [tray for tray, own in zip(TRAYS, ids, strict=True) if own == number] for number in ids}
    merged = Merged([*rows.values()], [])
    got, _why = nvue_evidence.observe(
        lambda _fabric: (merged, ""), lambda *_: {"r01": [switch(*map(partition, by_id, by_id.values()))]}, FABRIC
    )
    placed = place(FABRIC, None, got.observations, NOW, Policy(), got)
    assert placed.fabric == FABRIC
    named = [row for row in placed.findings if row["code"] == "sources_disagree"]
    assert bool(named) == any(
        own != 32766 and tray < "r02" and tray not in silent for tray, own in zip(TRAYS, ids, strict=True)
    )
