# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which trays of a block are active and which are spares; how the state of nodes is parsed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils import child
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import nodes, spares
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.nodes import Node
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from hypothesis import given
from hypothesis import strategies as st

MEMBERS = [f"r01t{number:02d}" for number in range(1, 19)]
WORDS = st.sampled_from(["IDLE", "ALLOCATED", "IDLE+DRAIN", "DOWN+NOT_RESPONDING", "MIXED+RESERVED"])


def known(**states: str) -> dict[str, Node]:
    return {name: Node(frozenset(states.get(name, "IDLE").split("+"))) for name in MEMBERS}


@pytest.mark.parametrize(
    ("states", "reserved", "busy", "chosen"),
    [
        ({}, (), (), ("r01t17", "r01t18")),
        # A spare replaces a broken tray, which becomes the spare when it is back.
        ({"r01t03": "IDLE+DRAIN"}, ("r01t17", "r01t18"), (), ("r01t18",)),
        ({}, ("r01t18",), [name for name in MEMBERS if name != "r01t03"], ("r01t03", "r01t18")),
        # A broken tray is no spare.
        ({"r01t18": "DOWN"}, ("r01t17", "r01t18"), (), ("r01t17",)),
    ],
)
def test_eighteen_trays_keep_sixteen_for_jobs(
    states: dict[str, str], reserved: tuple[str, ...], busy: Sequence[str], chosen: tuple[str, ...]
) -> None:
    assert spares.choose(MEMBERS, known(**states), reserved, busy, 16) == chosen


@given(
    states=st.lists(WORDS, min_size=18, max_size=18),
    reserved=st.sets(st.sampled_from(MEMBERS)),
    busy=st.sets(st.sampled_from(MEMBERS)),
    active=st.integers(1, 20),
)
def test_the_number_of_active_trays_is_kept_and_a_second_run_changes_nothing(
    states: list[str], reserved: set[str], busy: set[str], active: int
) -> None:
    now = known(**dict(zip(MEMBERS, states)))
    chosen = spares.choose(MEMBERS, now, reserved, busy, active)
    usable = {name for name in MEMBERS if not {"DRAIN", "DOWN"} & now[name].words}
    assert set(chosen) <= usable
    assert len(usable) - len(chosen) == min(active, len(usable))
    kept = reserved & usable
    assert kept <= set(chosen) or set(chosen) <= kept, "no spare is exchanged without need"
    assert spares.choose(MEMBERS, now, chosen, busy, active) == chosen


def test_a_reason_is_read_with_its_spaces_and_equal_signs() -> None:
    text = (
        "NodeName=r01t01 State=IDLE+DRAIN ThreadsPerCore=1 Reason=nvlink: resume x=1 [root@2026-11-21T11:16:27]\n"
        "NodeName=r01t02 State=IDLE ThreadsPerCore=1\n"
    )
    found = nodes.parse(text)
    assert (found["r01t01"].drained, found["r01t01"].reason) == (True, "nvlink: resume x=1")
    assert (found["r01t02"].drained, found["r01t02"].reason) == (False, "")


class OneNode:
    """A stand-in for Slurm with one drained node, whose reason slurmctld has extended as 24.11.5 does."""

    def __init__(self, reason: str, state: str = "IDLE+DRAIN") -> None:
        self.reason, self.called = reason, list[tuple[str, ...]]()
        self.state = state

    def scontrol(self, *_arguments: str) -> str:
        return f"NodeName=r01t04 State={self.state} Reason={self.reason} [root@2026-11-21T15:10:00]\n"

    def jobs(self) -> list[Any]:
        return []

    def call(self, *command: str) -> Any:
        self.called.append(command)
        return child.Result(0, "", "")


@pytest.mark.parametrize("reason", ["nvlink: driver", "nvlink: driver : Not responding", "nvlink: test failed : gone"])
def test_a_reason_that_slurmctld_has_extended_is_still_ours(reason: str) -> None:
    slurm: Any = OneNode(reason)
    outcome = nodes.resume(slurm, ["r01t04"], "nvlink: driver", nodes.Test(), check=False)
    assert (outcome.changes, outcome.drained_by_others) == (["r01t04: resumed"], {})
    assert slurm.called == [("scontrol", "update", "nodename=r01t04", "state=undrain")]
    again = nodes.drain(slurm, ["r01t04"], reason.partition(" : ")[0], 0, check=False)
    assert (again.changes, again.drained_by_others) == ([], {})
    assert nodes.adopt(slurm, ["r01t04"], reason.partition(" : ")[0], check=False).changes == []
    others: Any = OneNode("broken fan : Not responding")
    outcome = nodes.resume(others, ["r01t04"], "nvlink: driver", nodes.Test(), check=False)
    assert (outcome.changes, outcome.drained_by_others) == ([], {"r01t04": "broken fan : Not responding"})


@pytest.mark.parametrize("state", ["IDLE", "MIXED", "IDLE+NOT_RESPONDING", "UNKNOWN", "DOWN"])
def test_unless_up_skips_a_node_that_answers(state: str) -> None:
    slurm: Any = OneNode("", state)
    up = state in ("IDLE", "MIXED")
    drained = nodes.drain(slurm, ["r01t04"], "nvlink: resume", 0, check=False, unless_up=True)
    assert drained.changes == ([] if up else ["r01t04: drained (nvlink: resume)"])
    assert nodes.drain(slurm, ["r01t04"], "nvlink: resume", 0, check=False).changes != []


class Reservations(Slurm):
    """A stand-in for scontrol that keeps reservations; calls that name a block of ``refuse`` fail."""

    def __init__(self, refuse: str = "", **reserved: str) -> None:
        super().__init__()
        self.refuse = refuse
        self.reserved = {spares.PREFIX + block: (nodes, "op") for block, nodes in reserved.items()}

    def scontrol(self, *arguments: str) -> str:
        if "reservation" in arguments:
            return "".join(
                f"ReservationName={name} Nodes={nodes} Users={user} State=ACTIVE\n"
                for name, (nodes, user) in self.reserved.items()
            )
        return "".join(f"NodeName=r0{rack}t0{tray} State=IDLE\n" for rack in (1, 2) for tray in (1, 2, 3))

    def jobs(self) -> list[Any]:
        return []

    def call(self, _name: str, *arguments: str, timeout: float | None = None) -> Any:
        action, *words = arguments
        settings = dict(word.split("=", 1) for word in words if "=" in word)
        name = settings["ReservationName"]
        if self.refuse and name.endswith(self.refuse):
            return child.Result(1, "", "Requested nodes are busy")
        if action == "delete":
            del self.reserved[name]
        else:
            user = settings.get("Users") or self.reserved[name][1]
            self.reserved[name] = (settings["Nodes"], user)
        return child.Result(0, "", "")


BLOCKS = {rack: [f"{rack}t0{tray}" for tray in (1, 2, 3)] for rack in ("r01", "r02")}


def test_spares_are_reserved_once_and_released_once() -> None:
    slurm: Any = Reservations()
    planned = spares.keep(slurm, BLOCKS, 1, "op", check=True)
    assert slurm.reserved == {}
    made = spares.keep(slurm, BLOCKS, 1, "op")
    assert made.changes == planned.changes == [f"nvlink_spare_{rack}: {rack}t[02-03] become spares" for rack in BLOCKS]
    assert slurm.reserved == {f"nvlink_spare_{rack}": (f"{rack}t[02-03]", "op") for rack in BLOCKS}
    assert spares.keep(slurm, BLOCKS, 1, "op").changes == []
    assert spares.keep(slurm, BLOCKS, 2, "op").changes == [
        f"nvlink_spare_{rack}: {rack}t02 becomes active" for rack in BLOCKS
    ]
    assert len(spares.keep(slurm, {}, 0, "root").changes) == 2
    assert (slurm.reserved, spares.keep(slurm, {}, 0, "root").changes) == ({}, [])


def test_reservations_are_restored_where_one_cannot_be_changed() -> None:
    slurm: Any = Reservations(refuse="r02", r01="r01t03", r02="r02t03")
    before = dict(slurm.reserved)
    with pytest.raises(SlurmError, match="Requested nodes are busy"):
        spares.keep(slurm, {}, 0, "root")
    assert slurm.reserved == before
