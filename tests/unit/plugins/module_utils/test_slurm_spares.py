# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who of a block works and who waits; and how the state of nodes is read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import nodes, spares
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.nodes import Node
from hypothesis import given
from hypothesis import strategies as st

MEMBERS = [f"r01t{number:02d}" for number in range(1, 19)]
WORDS = st.sampled_from(["IDLE", "ALLOCATED", "IDLE+DRAIN", "DOWN+NOT_RESPONDING", "MIXED+RESERVED"])


def known(**states: str) -> dict[str, Node]:
    return {name: Node(frozenset(states.get(name, "IDLE").split("+"))) for name in MEMBERS}


def test_of_eighteen_the_last_two_wait() -> None:
    assert spares.choose(MEMBERS, known(), (), (), 16) == ("r01t17", "r01t18")


def test_a_broken_tray_lets_a_spare_work_and_becomes_one_when_it_is_back() -> None:
    broken = spares.choose(MEMBERS, known(r01t03="IDLE+DRAIN"), ("r01t17", "r01t18"), (), 16)
    assert broken == ("r01t18",)
    busy = [name for name in MEMBERS if name != "r01t03"]
    assert spares.choose(MEMBERS, known(), broken, busy, 16) == ("r01t03", "r01t18")


def test_a_broken_spare_is_none() -> None:
    assert spares.choose(MEMBERS, known(r01t18="DOWN"), ("r01t17", "r01t18"), (), 16) == ("r01t17",)


@given(
    states=st.lists(WORDS, min_size=18, max_size=18),
    reserved=st.sets(st.sampled_from(MEMBERS)),
    busy=st.sets(st.sampled_from(MEMBERS)),
    active=st.integers(1, 20),
)
def test_as_many_work_as_are_wanted_and_a_second_look_changes_nothing(
    states: list[str], reserved: set[str], busy: set[str], active: int
) -> None:
    seen = known(**dict(zip(MEMBERS, states)))
    chosen = spares.choose(MEMBERS, seen, reserved, busy, active)
    usable = {name for name in MEMBERS if not {"DRAIN", "DOWN"} & seen[name].words}
    assert set(chosen) <= usable
    assert len(usable) - len(chosen) == min(active, len(usable))
    kept = reserved & usable
    assert kept <= set(chosen) or set(chosen) <= kept, "nobody is exchanged without need"
    assert spares.choose(MEMBERS, seen, chosen, busy, active) == chosen


def test_a_reason_is_read_with_its_spaces_and_equal_signs() -> None:
    text = (
        "NodeName=r01t01 State=IDLE+DRAIN ThreadsPerCore=1 Reason=nvlink: resume x=1 [root@2026-11-21T11:16:27]\n"
        "NodeName=r01t02 State=IDLE ThreadsPerCore=1\n"
    )
    found = nodes.parse(text)
    assert (found["r01t01"].drained, found["r01t01"].reason) == (True, "nvlink: resume x=1")
    assert (found["r01t02"].drained, found["r01t02"].reason) == (False, "")


class OneNode:
    """Of Slurm's programs what giving a node back needs: a node that died while it was drained, as 24.11.5 shows it."""

    def __init__(self, reason: str, state: str = "IDLE+DRAIN") -> None:
        self.reason, self.called = reason, list[tuple[str, ...]]()
        self.state = state

    def ask(self, *_arguments: str) -> str:
        return f"NodeName=r01t04 State={self.state} Reason={self.reason} [root@2026-11-21T15:10:00]\n"

    def jobs(self) -> list[Any]:
        return []

    def call(self, *command: str) -> Any:
        self.called.append(command)
        return SimpleNamespace(rc=0, timed_out=False)


@pytest.mark.parametrize("reason", ["nvlink: driver", "nvlink: driver : Not responding", "nvlink: test failed : gone"])
def test_what_slurmctld_adds_to_a_reason_makes_the_drain_nobody_elses(reason: str) -> None:
    slurm: Any = OneNode(reason)
    outcome = nodes.resume(slurm, ["r01t04"], "nvlink: driver", nodes.Test(), check=False)
    assert (outcome.changes, outcome.kept) == (["r01t04: resumed"], {})
    assert slurm.called == [("scontrol", "update", "nodename=r01t04", "state=undrain")]
    again = nodes.drain(slurm, ["r01t04"], reason.partition(" : ")[0], 0, check=False)
    assert (again.changes, again.kept) == ([], {})
    same = nodes.take_over(slurm, ["r01t04"], reason.partition(" : ")[0], check=False)
    assert same.changes == []


def test_what_a_person_has_written_stays_theirs() -> None:
    slurm: Any = OneNode("broken fan : Not responding")
    outcome = nodes.resume(slurm, ["r01t04"], "nvlink: driver", nodes.Test(), check=False)
    assert (outcome.changes, outcome.kept) == ([], {"r01t04": "broken fan : Not responding"})


@pytest.mark.parametrize("state", ["IDLE", "MIXED", "IDLE+NOT_RESPONDING", "UNKNOWN", "DOWN"])
def test_a_node_that_is_up_is_not_held_again_where_it_was_let_in_before(state: str) -> None:
    slurm: Any = OneNode("", state)
    up = state in ("IDLE", "MIXED")
    held = nodes.drain(slurm, ["r01t04"], "nvlink: resume", 0, check=False, unless_up=True)
    assert held.changes == ([] if up else ["r01t04: drained (nvlink: resume)"])
    assert nodes.drain(slurm, ["r01t04"], "nvlink: resume", 0, check=False).changes != []
