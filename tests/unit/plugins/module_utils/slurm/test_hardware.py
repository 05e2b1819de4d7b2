# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parsing slurmd -C and NodeName lines, and the memory that is configured."""

from __future__ import annotations

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import hardware
from hypothesis import given
from hypothesis import strategies as st

RECORD = dict(zip(hardware.KEYS, (144, 1, 2, 72, 1, 878123)))
PRINTED = "NodeName=r01t01 CPUs=144 Boards=1 SocketsPerBoard=2 CoresPerSocket=72 ThreadsPerCore=1 RealMemory=878123"


@pytest.mark.parametrize(
    ("text", "record"),
    [
        (f"{PRINTED}\nUpTime=0-03:39:01\n", RECORD),
        (f"slurmd: warning about something\n{PRINTED} Gres=gpu:4\n", RECORD),
        ("", None),
        ("slurmd: fatal: no", None),
        ("NodeName=r01t01 CPUs=many RealMemory=1", None),
        ("NodeName=r01t01 CPUs=0", None),
    ],
)
def test_the_output_of_slurmd_is_parsed(text: str, record: hardware.Record | None) -> None:
    assert hardware.parse_slurmd(text) == record


def test_node_lines_give_their_records_back() -> None:
    lines = PRINTED.replace("r01t01", "r01t[01-02],x") + "\n" + PRINTED.replace("r01t01", "DEFAULT") + "\nNodeName=y[\n"
    assert hardware.parse_nodes(lines) == dict.fromkeys(("r01t01", "r01t02", "x"), RECORD)


@given(st.integers(1, 2_000_000), st.integers(1, 2_000_000), st.integers(0, 4096))
def test_memory_is_never_more_than_the_tray_has(measured: int, before: int, step: int) -> None:
    stable = hardware.stable({"CPUs": 1, "RealMemory": measured}, {"CPUs": 1, "RealMemory": before}, step)
    assert 0 < stable["RealMemory"] <= measured
    again = hardware.stable({"CPUs": 1, "RealMemory": measured}, stable, step)
    assert again == stable, "a second run changes nothing"


@pytest.mark.parametrize(
    ("measured", "before", "stable"),
    [
        (878123, None, 877568),
        (877500, 877568, 876544),  # less than configured: slurmctld would refuse the tray
        (977568, 877568, 976896),  # memory was added
    ],
)
def test_memory_is_rounded_and_stays(measured: int, before: int | None, stable: int) -> None:
    old = {"CPUs": 1, "RealMemory": before} if before else None
    assert hardware.stable({"CPUs": 1, "RealMemory": measured}, old, 1024)["RealMemory"] == stable
