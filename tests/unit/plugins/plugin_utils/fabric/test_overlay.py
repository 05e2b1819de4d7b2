# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What live observations make of the inventory, and how they survive a cache."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import overlay
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.inventory_vars import plan
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.merging import Merged
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Address, Observation
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding
from hypothesis import given
from hypothesis import strategies as st

NOW = "2026-11-21T05:00:00Z"
UUID = "9f3c1234-1111-4222-8333-444444444444"


def attached(tray: str, uuid: str, clique_id: int = 32766) -> Observation:
    gpus = (f"GPU-{tray}",)
    return Observation(tray, "test", observed_at=NOW, identity=(uuid, clique_id), gpu_uuids=gpus, gpu_count=1)


def test_cliques_and_blocks_have_provisional_names() -> None:
    fabric, state = overlay.provisional([attached("a", UUID, 1), attached("b", UUID, 2)], NOW)
    assert {name: clique["block"]["name"] for name, clique in fabric.cliques.items()} == {
        "new_9f3c1234_1": "new_9f3c1234_1",
        "new_9f3c1234_2": "new_9f3c1234_2",
    }
    assert list(fabric.domains) == ["new_9f3c1234"]
    assert fabric.trays["b"]["clique"] == "new_9f3c1234_2"
    assert {row["state"] for row in state.trays.values()} == {"present"}


def test_domains_with_the_same_eight_digits_have_different_names() -> None:
    other = UUID.replace("444444444444", "555555555555")
    fabric, _state = overlay.provisional([attached("a", UUID), attached("b", other)], NOW)
    assert list(fabric.domains) == [
        "new_9f3c1234111142228333444444444444",
        "new_9f3c1234111142228333555555555555",
    ]


def test_gpus_without_uuids_are_counted() -> None:
    observed = Observation("a", "test", observed_at=NOW, identity=(UUID, 1), gpu_count=4)
    assert plan(*overlay.provisional([observed], NOW)).hosts["a"]["nvlink_gpu_count"] == 4


def test_a_tray_observed_elsewhere_keeps_its_accepted_place() -> None:
    fabric, state = overlay.provisional([attached("a", UUID, 1), attached("b", UUID, 2)], NOW)
    same, observed = overlay.overlaid(fabric, state, [attached("a", UUID, 2)], NOW)
    assert same is fabric
    assert [row["code"] for row in observed.trays["a"]["findings"] if row["code"] == "acceptance_pending"]


texts = st.text(max_size=5)
rows = st.builds(
    Observation,
    tray=texts,
    source=texts,
    reachable=st.booleans(),
    identity=st.none() | st.tuples(texts, st.integers(0, 2**32 - 1)),
    inconsistent=st.booleans(),
    cliques=st.dictionaries(texts, st.frozensets(st.integers(0, 9))),
    gpu_uuids=st.lists(texts).map(tuple),
    addresses=st.lists(st.builds(Address, texts, texts, st.integers(0, 128))).map(tuple),
    findings=st.lists(st.dictionaries(texts, texts | st.none())).map(tuple),
)


@given(st.lists(rows, max_size=3), st.lists(st.dictionaries(texts, texts), max_size=2))
def test_an_answer_is_the_same_after_caching(rows: list[Observation], findings: list[Finding]) -> None:
    reported = Merged(rows, findings)
    assert overlay.unpack(json.loads(json.dumps(overlay.pack(reported)))) == reported


@pytest.mark.parametrize(
    "packed",
    [
        *(None, [], "x", {}, {"format": 0, "observations": []}, {"format": overlay.FORMAT}),
        {"format": overlay.FORMAT, "observations": [{}], "findings": []},
        {"format": overlay.FORMAT, "observations": [], "findings": [1]},
    ],
)
def test_damaged_cached_data_and_those_of_another_format_are_ignored(packed: Any) -> None:
    assert overlay.unpack(packed) is None
