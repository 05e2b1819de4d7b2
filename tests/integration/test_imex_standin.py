# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What nvidia-imex and nvidia-imex-ctl are published to print and do, for the stand-in and the real daemon.

By default for the stand-in of tests/lab/imex, as its package installs it. With LAB_IMEX=real the same scenarios run on
the installed `nvidia-imex --nogpu`. What needs a GPU's driver or a fault to order is in the stories of the role imex.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nvlab import imex

from .conftest import CHECKOUT

pytestmark = [pytest.mark.lab, pytest.mark.long]

REAL = os.environ.get("LAB_IMEX") == "real"
# The real one comes back to a lost peer after 15, 31, 62, ... s.
PATIENCE = 150.0 if REAL else 60.0


sys.path.insert(0, str(CHECKOUT / "tests" / "lab" / "imex"))
import nodes as nodes_of_lab  # noqa: E402  (found through the path above)

Nodes, wait_until = nodes_of_lab.Nodes, nodes_of_lab.wait_until
Fleet = Any  # nodes_of_lab.Nodes; the module is not on the path of a type checker


@pytest.fixture(scope="module")
def programs() -> Path:
    if not REAL:
        return imex.packages() / f"tree-{imex.versions()[0]}" / "usr" / "bin"
    found = shutil.which("nvidia-imex")
    assert found, "LAB_IMEX=real, and nvidia-imex is not installed"
    return Path(found).parent


@pytest.fixture(scope="module")
def three(programs: Path) -> Iterator[Fleet]:
    with Nodes(3, programs) as nodes:
        yield nodes


@pytest.fixture
def nodes(three: Fleet) -> Fleet:
    three.reset()
    three.configure()
    return three


def start_all(nodes: Fleet) -> None:
    for node in nodes.all:
        done = node.start()
        assert done.returncode == 0, done.stderr + node.read("/run/imex/log")


def status_is(node: Any, status: str) -> None:
    wait_until(lambda: node.domain()["status"] == status, f"the domain is {status}", PATIENCE)


def cell_is(nodes: Fleet, reporter: int, peer: int, status: str) -> None:
    wait_until(
        lambda: nodes[reporter].row(reporter)[str(peer)] == status,
        f"node {reporter} reports {peer} as {status}, not {nodes[reporter].row(reporter)}",
        PATIENCE,
    )


def test_a_complete_domain_is_up_on_every_member(nodes: Fleet) -> None:
    done = nodes[0].run(str(nodes[0].programs / "nvidia-imex"), "--version")
    assert re.search(r"\b\d{3}\.\d+(\.\d+)?\b", done.stdout), done.stdout
    start_all(nodes)
    for number, node in enumerate(nodes.all):
        status_is(node, "UP")
        domain = node.domain()
        assert set(domain["nodes"]) == {"0", "1", "2"}
        assert [domain["nodes"][str(i)]["host"] for i in range(3)] == nodes.addresses
        assert {entry["status"] for entry in domain["nodes"].values()} == {"READY"}
        assert {entry["version"] for entry in domain["nodes"].values()} == {"NO_GPU"}
        assert {entry["hostName"] for entry in domain["nodes"].values()} == {""}
        assert node.row(number) == dict.fromkeys(("0", "1", "2"), "CONNECTED")
        assert re.fullmatch(r"\d+/\d+/\d{4} \d\d:\d\d:\d\d\.\d{3}", domain["timestamp"])
    named = json.loads(nodes[0].ctl("-N", "-j", "-H").stdout)
    assert {entry["hostName"] for entry in named["nodes"].values()} == {socket.gethostname()}


def test_a_domain_with_a_member_down_is_degraded_in_json_and_in_the_table(nodes: Fleet) -> None:
    nodes[0].start()
    nodes[1].start()
    cell_is(nodes, 0, 1, "CONNECTED")
    domain = nodes[0].domain()
    assert domain["status"] == "DEGRADED"
    absent = domain["nodes"]["2"]
    assert [absent[key] for key in ("status", "version", "hostName", "changed")] == ["UNAVAILABLE", "", "N/A", False]
    assert {cell["status"] for cell in absent["connections"].values()} <= {"INVALID"}
    assert nodes[0].row(0)["2"] != "CONNECTED"
    assert nodes[0].state() == "READY"
    text = nodes[0].ctl("-N").stdout
    assert text.startswith("Connectivity Table Legend:\nI - Invalid")
    assert re.search(r"(?m)^Node #0 +[-*] 198\.51\.100\.11( \*)? +- READY +- Version: NO_GPU", text), text
    assert re.search(r"(?m)^Node #2 +- 198\.51\.100\.13 +- UNAVAILABLE", text), text
    assert re.search(r"(?m)^ *Nodes From\\To +0 +1 +2$", text), text
    assert re.search(r"(?m)^ +0 +C +C +[NRI]$", text), text
    assert re.search(r"(?m)^ +2 +I +I +I$", text), text
    assert text.rstrip().endswith("Domain State: DEGRADED")


def cell_is_not_connected(nodes: Fleet, reporter: int, peer: int) -> None:
    wait_until(
        lambda: nodes[reporter].row(reporter)[str(peer)] not in ("CONNECTED", "NEVER_CONNECTED"), "blocked", PATIENCE
    )


def test_a_list_that_differs_blocks_the_pair_until_both_restart(nodes: Fleet) -> None:
    nodes[2].configure(nodes.addresses[::-1])
    start_all(nodes)
    cell_is_not_connected(nodes, 0, 2)
    cell_is_not_connected(nodes, 1, 2)
    cell_is(nodes, 0, 1, "CONNECTED")
    assert "Node configuration mapping mismatch" in nodes[0].read("/run/imex/log")
    assert " !M! " in nodes[0].ctl("-N").stdout.replace("\n", " \n")
    nodes[2].stop()
    nodes[2].configure(nodes.addresses)
    nodes[2].start()
    wait_until(lambda: nodes[2].state() == "READY", "READY", PATIENCE)
    assert nodes[0].row(0)["2"] != "CONNECTED"
    assert nodes[2].row(2)["0"] != "CONNECTED"
    for node in nodes.all:
        node.stop()
    start_all(nodes)
    status_is(nodes[0], "UP")


def test_a_member_that_dies_is_lost_and_reconnects(nodes: Fleet) -> None:
    start_all(nodes)
    status_is(nodes[0], "UP")
    nodes[1].stop("KILL")
    wait_until(lambda: nodes[0].row(0)["1"] != "CONNECTED", "the loss is reported", PATIENCE)
    assert "Connection lost to node 1" in nodes[0].read("/run/imex/log")
    nodes[1].start()
    status_is(nodes[0], "UP")
    nodes[1].stop()
    cell_is(nodes, 0, 1, "RECOVERING")
