# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of trays that are not what fabric_facts returns: each costs its own tray a finding, and nothing raises."""

from __future__ import annotations

import copy
from dataclasses import fields
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.subsets import FACTS
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import tray_report
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import role_phases
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import CATALOGUE
from ansible_collections.rackscale.nvlink.tests.lab.nvml.fleets import fleet
from hypothesis import given
from hypothesis import strategies as st

from .dra import dra_cluster as world
from .fabrics import LINKS, HostVars, replace_one

GOOD = fleet(racks=1, trays_per_rack=2)
PARTS = tray_report._PARTS
ANSWER = {
    "ansible_facts": {
        "nvlink_fabric": GOOD["r01t01"],
        "nvlink_imex": world.imex(),
        "nvlink_channels": {"major": 235, "devices": [{"minor": 0}]},
        "nvlink_versions": {"driver": "580.1", "slurmd": "25.11.2"},
        "nvlink_links": LINKS,
    },
    "findings": [{"code": "gpu_lost", "gpu": 1, "part": "gpu", "message": "GPU 1 is lost; reboot."}],
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "code", "gpus"]), inner),
    max_leaves=6,
)


def hosts(**more: Any) -> HostVars:
    """Two trays, the first with these variables instead of its facts."""
    good = {name: {"ansible_facts": {"nvlink_fabric": facts}} for name, facts in GOOD.items()}
    return HostVars({**good, "r01t01": more})


def cached(**more: Any) -> dict[str, tray_report.TrayReport]:
    return {name: report for name, (report, _variables) in tray_report.cached(hosts(**more), [*GOOD, "r09t01"]).items()}


def test_each_subset_of_fabric_facts_but_that_for_people_is_a_part_of_the_report() -> None:
    report = tray_report.read("r01t01", ANSWER)
    assert {*FACTS} - {"serials"} == {*PARTS} <= {row.name for row in fields(report)}
    assert all(getattr(report, part) for part in PARTS)
    assert (report.problem, report.missing, report.refused) == ("", {}, ())
    assert [row["code"] for row in report.findings] == ["gpu_lost"]


def test_a_part_that_was_not_read_has_the_reason() -> None:
    report = tray_report.read("r01t01", {"ansible_facts": {"nvlink_versions": {}, "nvlink_imex": {"ready": "yes"}}})
    assert report.missing["gpu"] == "the task that reads its facts returned none"
    assert report.missing["imex"] == "its imex facts are not well-formed"
    assert [row["code"] for row in report.refused] == ["tray_subset_failed"]


@given(data=st.data(), garbage=JSON)
def test_any_value_in_any_place_gives_a_part_or_a_reason(data: st.DataObject, garbage: Any) -> None:
    answer = {"answer": copy.deepcopy(ANSWER)}
    replace_one(data, answer, garbage)
    report = tray_report.read("r01t01", answer["answer"])
    assert all((getattr(report, part) is None) == (part in report.missing) for part in PARTS)
    assert {row["code"] for row in (*report.findings, *report.refused)} <= {*CATALOGUE}


@pytest.mark.parametrize(
    "fabric",
    [
        "a string",
        {"gpus": [1, 2]},
        {"unknown": True},
        {"clique": "\ud800"},
        {"gpus": [{"fabric": {"health": "well"}}]},
    ],
    ids=str,
)
def test_an_invalid_cached_fact_is_that_trays_finding(fabric: Any) -> None:
    found = cached(ansible_facts={"nvlink_fabric": fabric, "ansible_kernel": "6"})
    assert found["r01t01"].gpu is None
    assert [row["code"] for row in found["r01t01"].refused] == ["tray_answer_invalid"]
    assert found["r01t02"] == tray_report.read("r01t02", {"ansible_facts": {"nvlink_fabric": GOOD["r01t02"]}})


@pytest.mark.parametrize(("key", "value"), [("clique", "r01"), ("driver_version", "9" * 9000), ("clique", "{{ 1 }}")])
def test_a_text_of_the_wrong_form_becomes_null(key: str, value: str) -> None:
    report = cached(ansible_facts={"nvlink_fabric": {**GOOD["r01t01"], key: value}})["r01t01"]
    assert report.gpu is not None
    assert (getattr(report.gpu, key), report.gpu.attached) == (None, True)
    assert [(row["code"], row["tray"]) for row in report.refused] == [("unusable_value", "r01t01")]


@pytest.mark.parametrize("facts", ["text", None])
def test_cached_facts_that_are_no_mapping_are_none(facts: Any) -> None:
    assert [report.gpu is None for report in cached(ansible_facts=facts).values()] == [True, False, True]


def test_a_site_may_set_the_facts_in_its_inventory() -> None:
    assert cached(nvlink_fabric=GOOD["r01t01"])["r01t01"].gpu is not None


def test_nothing_is_read_of_a_tray_whose_facts_set_variables() -> None:
    facts = {"nvlink_fabric": GOOD["r01t01"], "nvlink_kubernetes_node": "r01t02"}
    found, findings = role_phases.read_trays([*GOOD], hosts(ansible_facts=facts, nvlink_kubernetes_node="r01t02"))
    assert [(tray.node, tray.gpu is None) for tray in found.values()] == [("r01t01", True), ("r01t02", False)]
    assert [row["code"] for row in findings] == ["tray_facts_foreign"]


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (world.root_files(), True),
        ({"stdout": "/usr/bin/nvidia-smi"}, False),
        ({"stdout": ""}, False),
        ({"stdout": ["/usr/bin/nvidia-smi"]}, None),
        ({"unreachable": True}, None),
        ("yes", None),
        (None, None),
    ],
)
def test_the_programs_below_the_driver_root(result: Any, expected: bool | None) -> None:
    found, _findings = role_phases.read_trays([*GOOD], hosts(dra_driver_root_files=result))
    assert found["r01t01"].root is expected
