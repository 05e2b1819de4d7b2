# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts of trays that are not what fabric_facts returns: each costs its own tray a finding, and nothing raises."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import role_phases
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import tray_facts
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.simulation import fleet

from ..dra import dra_cluster as world
from ..fabrics import HostVars

GOOD = fleet(racks=1, trays_per_rack=2)


def hosts(**more: Any) -> HostVars:
    """Two trays, the first with these variables instead of its facts."""
    good = {name: {"ansible_facts": {"nvlink_fabric": facts}} for name, facts in GOOD.items()}
    return HostVars({**good, "r01t01": more})


def test_facts_of_simulated_trays_are_kept_whole() -> None:
    found = tray_facts.read(hosts(nvlink_fabric=GOOD["r01t01"]), GOOD)
    assert {name: tray.fabric for name, tray in found.items()} == GOOD
    assert not [tray.findings for tray in found.values() if tray.findings]


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
def test_an_invalid_fact_is_that_trays_finding(fabric: Any) -> None:
    found = tray_facts.read(hosts(ansible_facts={"nvlink_fabric": fabric, "ansible_kernel": "6"}), GOOD)
    assert found["r01t01"].fabric is None
    assert [row["code"] for row in found["r01t01"].findings] == ["tray_answer_invalid"]
    assert found["r01t02"].fabric == GOOD["r01t02"]
    assert found["r01t02"].findings == ()


@pytest.mark.parametrize(("key", "value"), [("clique", "r01"), ("driver_version", "9" * 9000), ("clique", "{{ 1 }}")])
def test_a_text_of_the_wrong_form_becomes_null(key: str, value: str) -> None:
    found = tray_facts.read(hosts(ansible_facts={"nvlink_fabric": {**GOOD["r01t01"], key: value}}), GOOD)["r01t01"]
    assert found.fabric is not None
    assert (found.fabric[key], found.fabric["attached"]) == (None, True)
    assert [(row["code"], row["tray"]) for row in found.findings] == [("unusable_value", "r01t01")]


@pytest.mark.parametrize("facts", ["text", None])
def test_facts_that_are_no_mapping_are_none(facts: Any) -> None:
    found = tray_facts.read(hosts(ansible_facts=facts), [*GOOD, "r09t01"])
    assert [tray.fabric for tray in found.values()] == [None, GOOD["r01t02"], None]


def test_nothing_is_read_of_a_tray_whose_facts_set_variables() -> None:
    facts = {"nvlink_fabric": GOOD["r01t01"], "nvlink_kubernetes_node": "r01t02"}
    found, findings = role_phases.read_trays([*GOOD], hosts(ansible_facts=facts, nvlink_kubernetes_node="r01t02"))
    assert [(tray.node, tray.fabric is None) for tray in found.values()] == [("r01t01", True), ("r01t02", False)]
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
