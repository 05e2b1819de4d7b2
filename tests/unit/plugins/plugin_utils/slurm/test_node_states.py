# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which trays get no new job by their states in Slurm."""

from __future__ import annotations

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import node_states
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics


@pytest.mark.parametrize(
    ("flags", "reason", "word", "shown"),
    [
        ("IDLE+DRAIN", "RMA 4711 State=IDLE", "drained", "RMA 4711 State=IDLE"),
        ("MIXED", "", "present", ""),
        ("IDLE+POWERED_DOWN", "", "present", ""),
        ("DOWN+NOT_RESPONDING", "off: no power", "down", "off: no power"),
        ("IDLE+RESERVED", "", "reserved", ""),
        ("DOWN+RESERVED", "\x1b{{ x }}", "down", "{ { x }}"),
    ],
)
def test_a_drained_down_or_reserved_tray_gets_no_new_job(flags: str, reason: str, word: str, shown: str) -> None:
    fabric = fabrics.fabric(racks=1, trays=3)
    line = f"NodeName=r01t01 State={flags} Partitions=all Reason={reason} [root@2026-11-21T11:16:27]"
    texts = node_states.of_scontrol([line, "NodeName=cpu1 State=DOWN", "NodeName=r01t02 State=DOWN"], fabric)
    assert texts.keys() == {"r01t01", "r01t02"}
    found = node_states.applied(fabrics.state(fabric, r01t02={"state": "stale"}), fabric, texts).trays
    assert (found["r01t01"]["state"], found["r01t01"].get("reason", "")) == (word, shown)
    # What discovery found is the cause; and a tray of which nothing is known may be drained, too.
    assert (found["r01t02"]["state"], found["r01t03"]["state"]) == ("stale", "present")
    assert ("r01t01" in node_states.applied(State(), fabric, texts).trays) is (word != "present")


@pytest.mark.parametrize(
    ("flags", "before", "after"),
    [
        ("DOWN+NOT_RESPONDING", "healthy", "unknown"),
        ("DOWN+DRAIN+NOT_RESPONDING", "healthy", "unknown"),
        ("DOWN+NOT_RESPONDING", "unhealthy", "unhealthy"),
        ("IDLE+DRAIN", "healthy", "healthy"),
    ],
)
def test_a_tray_that_does_not_respond_is_not_healthy(flags: str, before: str, after: str) -> None:
    fabric = fabrics.fabric(racks=1, trays=1)
    texts = node_states.of_scontrol([f"NodeName=r01t01 State={flags}"], fabric)
    state = fabrics.state(fabric, r01t01={"health": before})
    assert node_states.applied(state, fabric, texts).trays["r01t01"]["health"] == after
