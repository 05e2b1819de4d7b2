# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import status
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.imex import imex_fleet
from hypothesis import given
from hypothesis import strategies as st

OLD_TABLE = """\
Connectivity Table Legend:
I - Invalid - Node wasn't reachable, no connection status available
N - Never Connected
R - Recovering - Connection was lost, but clean up has not yet been triggered.
C - Connected - Ready for operation

3/25/2025 10:39:43.659
Nodes:
Node #0   - 192.0.2.48   - READY

 Nodes From\\To  0
       0        C
Domain State: UP
"""
TABLE_570 = """\
Connectivity Table Legend:
!V! - Version mismatch, communication disabled.
C - Connected - Ready for operation

5/12/2025 06:08:10.580
Nodes:
Node #0   - 192.0.2.81      - READY                - Version: 570.172
Node #1   - 192.0.2.98      - READY                - Version: 570.133
Node #2   - 192.0.2.221     - UNAVAILABLE          - Version:

 Nodes From\\To  0   1   2
       0        C   !V! N
       1        !A! C   !M!
       2        I   I   I

Domain State: DEGRADED
"""
TABLE_OF_NAMES = """\
3/31/2026 16:57:17.721
Nodes:
Node #0   - 192.0.2.1        - READY   - Version: 580.95.09   - Hostname: tray-01
Node #1   - 192.0.2.2        - UNAVAILABLE   - Version:    - Hostname:
Node #4   * 192.0.2.5 *      - READY   - Version: 580.95.09   - Hostname: tray-05
Node #6   - 192.0.2.7 (tray-07) - INIT_GPU - Version: NO_GPU
"""


def test_the_oldest_table_is_parsed() -> None:
    found = status.parse_domain(OLD_TABLE)
    node = status.Node(0, "192.0.2.48", None, "ready", None, {0: "connected"})
    assert found == status.Domain("up", "3/25/2025 10:39:43.659", {0: node})


def test_a_table_with_versions_and_mismatches_is_parsed() -> None:
    found = status.parse_domain(TABLE_570)
    assert found.status == "degraded"
    assert [(node.state, node.version) for node in found.nodes.values()] == [
        ("ready", "570.172"),
        ("ready", "570.133"),
        ("unavailable", None),
    ]
    assert found.nodes[0].connections == {0: "connected", 1: "version_mismatch", 2: "never_connected"}
    assert found.nodes[1].connections == {0: "authentication_error", 1: "connected", 2: "map_mismatch"}
    assert set(found.nodes[2].connections.values()) == {"invalid"}


def test_a_table_with_names_marks_the_local_node() -> None:
    found = status.parse_domain(TABLE_OF_NAMES)
    assert found.local == 4
    assert {number: (node.host, node.host_name, node.state) for number, node in found.nodes.items()} == {
        0: ("192.0.2.1", "tray-01", "ready"),
        1: ("192.0.2.2", None, "unavailable"),
        4: ("192.0.2.5", "tray-05", "ready"),
        6: ("192.0.2.7", "tray-07", "init_gpu"),
    }


def test_json_of_current_releases_is_parsed_in_any_order() -> None:
    text = imex_fleet.domain_json(imex_fleet.addresses(3), {(1, 2): "INVALID"}, status="DEGRADED")
    data = json.loads(text)
    data["nodes"] = dict(reversed(data["nodes"].items()))
    data["nodes"]["0"]["hostName"] = "tray-01"
    data["generation"] = {"of": "a newer release"}
    data["nodes"]["1"]["gpus"] = 4
    found = status.parse_domain(json.dumps(data))
    assert found.status == "degraded"
    assert sorted(found.nodes) == [0, 1, 2]
    assert found.nodes[0].host_name == "tray-01"
    assert found.nodes[1] == status.Node(
        1, "198.51.100.12", None, "ready", imex_fleet.VERSION, {0: "connected", 1: "connected", 2: "invalid"}
    )


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
    found = status.parse_domain(json.dumps({"nodes": nodes, "status": "DOWN"}, indent="\t"))
    assert (found.status, found.timestamp) == ("down", None)
    assert found.nodes[3].connections == {6: "connected"}
    assert found.nodes[1] == status.Node(1, "192.0.2.2", None, "unavailable", None, {})
    assert found.nodes[2].host == "tray-02"


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
    assert status.parse_json(text).nodes[0].connections[1] == word


@pytest.mark.parametrize(
    "text",
    ["", "READY\n", "{", "[]", "{}", '{"nodes": []}', "terminate called after throwing", "Nodes:\n", "{" * 100_000],
)
def test_output_without_structure_is_an_error(text: str) -> None:
    with pytest.raises(status.StatusError, match="nvidia-imex-ctl"):
        status.parse_domain(text)


@pytest.mark.parametrize("head", ["Node #0 - a - READY", "Node #0 - a", "Nodes From\\To 0 1\n0", "Nodes From\\To "])
def test_a_long_row_takes_time_in_proportion_to_its_length(head: str) -> None:
    """An expression that goes back to the start of a row would take minutes for each of these."""
    began = time.process_time()
    for unit in (" ", "\t", " - ", "-", "a ", " (", " *", " A"):
        status.parse_domain(f"Node #0 - a - READY\n{head}{unit * (80_000 // len(unit))}x")
    assert time.process_time() - began < 30


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
        "status": st.sampled_from([word.upper() for word in status.STATES]) | JSON,
        "host": JSON,
        "hostName": JSON,
        "version": JSON,
        "connections": st.dictionaries(st.integers(0, 99).map(str) | st.text(max_size=3), CELL, max_size=4) | JSON,
    },
)


def _is_clean(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.isascii() and value.isprintable())


@given(st.dictionaries(st.integers(0, 5000).map(str) | st.text(max_size=3), NODE | JSON, max_size=4), JSON, JSON)
def test_any_json_value_is_null_or_clean(nodes: dict[str, Any], state: Any, timestamp: Any) -> None:
    text = json.dumps({"nodes": nodes, "status": state, "timestamp": timestamp})
    found = status.parse_domain(text)
    assert all(map(_is_clean, (found.status, found.timestamp)))
    for number, node in found.nodes.items():
        assert 0 <= number == node.id < status.MAX_NODES
        assert all(map(_is_clean, (node.host, node.host_name, node.state, node.version, *node.connections.values())))
        if [key for key in nodes if key.isdecimal() and int(key) == number] == [str(number)]:
            assert status.parse_row(text, number) == (node.state, node.connections)
    assert status.parse_row(text, status.MAX_NODES + 1000) is None


WORDS = {"C": "CONNECTED", "N": "NEVER_CONNECTED", "!V!": "VERSION_MISMATCH", "!M!": "NODE_MAP_MISMATCH"}
MATRIX = st.integers(1, 7).flatmap(
    lambda count: st.lists(
        st.lists(st.sampled_from(sorted(WORDS)), min_size=count, max_size=count), min_size=count, max_size=count
    )
)


@given(MATRIX)
def test_table_and_json_of_one_domain_agree(matrix: list[list[str]]) -> None:
    entries = imex_fleet.addresses(len(matrix))
    lines = [f"Node #{n!s:<3} - {host:<15} - READY        - Version: 580.173.02" for n, host in enumerate(entries)]
    lines += ["", " Nodes From\\To  " + "".join(f"{n!s:<4}" for n in range(len(matrix)))]
    lines += [f"{n:>8}        " + "".join(f"{cell:<4}" for cell in row) for n, row in enumerate(matrix)]
    table = status.parse_table("\n".join([*lines, "", "Domain State: UP"]))
    cells = {(a, b): WORDS[cell] for a, row in enumerate(matrix) for b, cell in enumerate(row)}
    assert table.nodes == status.parse_json(imex_fleet.domain_json(entries, cells)).nodes
    rows = [status.parse_row(imex_fleet.domain_json(entries, cells), number) for number in range(len(matrix) + 1)]
    assert rows == [*((node.state, node.connections) for node in table.nodes.values()), None]


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
