# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of the fabric file that Slurm does not have: which node is meant, and what to set."""

from __future__ import annotations

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils import node_names
from ansible_collections.rackscale.nvlink.plugins.module_utils.node_names import NodeNameError, NodeNames

SHORT = [NodeNames(name, (name, name)) for name in ("r01t01", "r01t02", "r01t03")]
LONG = [NodeNames(f"{node.name}.example.com", (node.name, "192.0.2.1")) for node in SHORT]


@pytest.mark.parametrize(
    ("wanted", "nodes", "expected"),
    [
        (["r01t01", "r01t02"], SHORT, {}),
        (["r01t01.example.com", "r01t02"], SHORT, {"r01t01.example.com": "r01t01"}),
        (["r01t01"], LONG, {"r01t01": "r01t01.example.com"}),
        # By NodeHostName, and by NodeAddr.
        (["gb1.example.com"], [NodeNames("n1", ("gb1", "192.0.2.1"))], {"gb1.example.com": "n1"}),
        (["192.0.2.1"], [NodeNames("n1", ("gb1", "192.0.2.1"))], {"192.0.2.1": "n1"}),
        # No other host: an address has no short form, and another domain's host keeps its own node.
        (["192.0.2.1"], [NodeNames("192", ("192", "192"))], {}),
        (["r09t01.example.com"], SHORT, {}),
        (["r01t01", "r01t01.example.com"], SHORT, {}),
        (["r01t01.a.example", "r01t01.b.example"], SHORT, {}),
        (["r01t01.a.example"], [NodeNames("r01t01.b.example", ("r01t01.b.example",))], {}),
        (["r01t01.a.example"], [NodeNames("n1", ("r01t01.b.example", "192.0.2.1"))], {}),
        (["r01t01"], [NodeNames("r01t01.a", ("r01t01.a",)), NodeNames("r01t01.b", ("r01t01.b",))], {}),
    ],
)
def test_a_node_is_found_where_it_is_unique(
    wanted: list[str], nodes: list[NodeNames], expected: dict[str, str]
) -> None:
    assert node_names.renamed(wanted, nodes) == expected


@pytest.mark.parametrize(
    ("wanted", "nodes", "remedy"),
    [
        (
            ["r01t01.example.com"],
            SHORT,
            'slurmctld calls r01t01.example.com r01t01: set fabric_slurm_node: "{{ inventory_hostname_short }}" for the'
            " group nvlink, then discover and accept again.",
        ),
        (
            ["r01t01.example.com", "r01t02.example.com", "r01t03.example.com"],
            SHORT,
            "slurmctld calls r01t01.example.com r01t01 (and 2 more alike): set ",
        ),
        (["r01t01", "r01t02"], LONG, '"{{ inventory_hostname }}.example.com" for the group nvlink, '),
        (
            ["gb1"],
            [NodeNames("n1", ("gb1",))],
            "set fabric_slurm_node of each of these hosts, such as ",
        ),
    ],
)
def test_the_sentence_names_the_variable(wanted: list[str], nodes: list[NodeNames], remedy: str) -> None:
    with pytest.raises(NodeNameError) as raised:
        node_names.check(wanted, nodes)
    assert remedy in str(raised.value)


def test_the_names_are_those_of_the_cluster() -> None:
    record = {"NodeName": "n1", "NodeHostName": "gb1", "NodeAddr": "192.0.2.1", "State": "IDLE"}
    assert node_names.of_slurm(record) == NodeNames("n1", ("gb1", "192.0.2.1"))
    node_names.check(["n1"], [node_names.of_slurm({"NodeName": "n1"})])
