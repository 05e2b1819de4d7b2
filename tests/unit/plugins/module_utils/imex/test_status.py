# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import status
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.imex import imex_fleet
from hypothesis import given
from hypothesis import strategies as st


def test_json_of_current_releases_is_parsed_in_any_order() -> None:
    text = imex_fleet.domain_json(imex_fleet.addresses(3), {(1, 2): "INVALID"}, status="DEGRADED")
    data = json.loads(text)
    data["nodes"] = dict(reversed(data["nodes"].items()))
    data["nodes"]["0"]["hostName"] = "tray-01"
    data["generation"] = {"of": "a newer release"}
    data["nodes"]["1"]["gpus"] = 4
    found = [status.parse_domain(json.dumps(data), number) for number in range(4)]
    assert {domain.status for domain in found} == {"degraded"}
    assert found[1].own == status.Node("ready", imex_fleet.VERSION, {0: "connected", 1: "connected", 2: "invalid"})
    assert [domain.own is None for domain in found] == [False, False, False, True]


def test_json_of_early_releases_and_of_absent_members_is_parsed() -> None:
    """Ids with gaps, no version, no hostName, no connections, tabs and all."""
    nodes = {
        "3": {
            "status": "READY",
            "host": "192.0.2.5",
            "connections": {"6": {"host": "192.0.2.9", "status": "CONNECTED"}},
        },
        "1": {"status": "UNAVAILABLE", "host": "192.0.2.2", "connections": {}, "version": ""},
        "2": {"status": "READY", "host": "tray-02"},
    }
    text = json.dumps({"nodes": nodes, "status": "DOWN"}, indent="\t")
    found = {number: status.parse_domain(text, number) for number in (1, 2, 3, None)}
    assert found[3] == ("down", status.Node("ready", None, {6: "connected"}))
    assert found[1].own == status.Node("unavailable", None, {})
    assert found[2].own == status.Node("ready", None, {})
    assert found[None] == ("down", None)


@pytest.mark.parametrize(
    ("printed", "word"),
    [
        ("CONNECTED", "connected"),
        ("NODE_MAP_MISMATCH", "map_mismatch"),
        ("CONFIG_MISMATCH", "map_mismatch"),
        ("VERSION_MISMATCH", "version_mismatch"),
        ("AUTH_FAILED", "authentication_error"),
    ],
)
def test_connection_states_are_parsed(printed: str, word: str) -> None:
    text = imex_fleet.domain_json(imex_fleet.addresses(2), {(0, 1): printed})
    own = status.parse_domain(text, 0).own
    assert own is not None
    assert own.connections[1] == word


@pytest.mark.parametrize(
    "text",
    [
        "",
        "READY\n",
        "Nodes:\nNode #0 - 192.0.2.1 - READY\n\nDomain State: UP\n",
        "{",
        "[]",
        "{}",
        '{"nodes": []}',
        "terminate called after throwing",
        "Nodes:\n",
        "{" * 100_000,
    ],
)
def test_output_without_structure_is_an_error(text: str) -> None:
    with pytest.raises(status.StatusError, match="nvidia-imex-ctl"):
        status.parse_domain(text, 0)


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("READY\n", "ready"),
        ("WAITING_FOR_RECOVERY\n", "waiting_for_recovery"),
        ("SOME_NEW_STATE\n", "some_new_state"),
        ("", None),
        ("Query Status returned error code: 14\n", None),
        ("READY READY", None),
    ],
)
def test_the_output_of_ctl_q_is_parsed(text: str, state: str | None) -> None:
    assert status.parse_state(text) == state


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
CELL = st.fixed_dictionaries({}, optional={"status": JSON, "host": JSON}) | JSON
NODE = st.fixed_dictionaries(
    {},
    optional={
        "status": st.sampled_from(["READY", "WAITING_FOR_RECOVERY"]) | JSON,
        "host": JSON,
        "hostName": JSON,
        "version": JSON,
        "connections": st.dictionaries(st.integers(0, 99).map(str) | st.text(max_size=3), CELL, max_size=4) | JSON,
    },
)


def _is_clean(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.isascii() and value.isprintable())


@given(st.dictionaries(st.integers(0, 3).map(str) | st.text(max_size=3), NODE | JSON, max_size=4), JSON)
def test_any_json_value_is_null_or_clean(nodes: dict[str, Any], state: Any) -> None:
    text = json.dumps({"nodes": nodes, "status": state})
    for number in range(4):
        found = status.parse_domain(text, number)
        assert (found.own is not None) == isinstance(nodes.get(str(number)), dict)
        assert _is_clean(found.status)
        if found.own:
            assert all(map(_is_clean, (found.own.state, found.own.version, *found.own.connections.values())))
            assert all(0 <= peer < status.MAX_NODES for peer in found.own.connections)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("570.172.08", "570.172.08", True),
        # AWS's table of 18 ready nodes: package 570.172.08, Version 570.172.
        ("570.172", "570.172.08", True),
        ("570.172.08", "570.172.18", False),
        ("570.17", "570.172.08", False),
        ("570.172", "570.1720.08", False),
        # A branch alone is no version of a driver.
        ("570", "570.172.08", False),
        ("", "570.172.08", False),
    ],
)
def test_a_version_that_ends_early_is_the_same_version(one: str, other: str, same: bool) -> None:
    for versions in ((one, other), (other, one)):
        assert status.is_same_version(*versions) == same
