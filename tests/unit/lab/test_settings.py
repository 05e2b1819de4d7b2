# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
from typing import Any

import pytest
from nvlab.errors import LabError
from nvlab.settings import apply_setting, new_hardware

UUID = "11111111-2222-3333-4444-555555555555"


def hardware(gpus: int = 2) -> dict[str, Any]:
    """The part of a tray's facts that settings change."""
    health = {"summary": "healthy", "route_unhealthy": False, "incorrect_configuration": "none"}
    fabric = {"state": "completed", "status": "success", "cluster_uuid": UUID, "clique_id": 7, "cliques": None}
    fabric["health"] = health
    facts = {
        "attached": True,
        "cluster_uuid": UUID,
        "clique_id": 7,
        "clique": f"{UUID}.7",
        "gpus": [
            {"index": i, "recovery_action": "none", "mig_enabled": False, "fabric": copy.deepcopy(fabric)}
            for i in range(gpus)
        ],
    }
    return new_hardware(facts)


def test_a_setting_without_a_gpu_is_for_all_of_them_and_the_tray_follows() -> None:
    facts = apply_setting(hardware(), "clique", "9")["facts"]
    assert [gpu["fabric"]["clique_id"] for gpu in facts["gpus"]] == [9, 9]
    assert (facts["attached"], facts["clique_id"], facts["clique"]) == (True, 9, f"{UUID}.9")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("gpu1.clique", "9"),
        ("gpu0.status", "insufficient_resources"),
        ("uuid", "00000000-0000-0000-0000-000000000000"),
    ],
)
def test_a_tray_whose_gpus_disagree_or_are_not_attached_has_no_clique(key: str, value: str) -> None:
    facts = apply_setting(hardware(), key, value)["facts"]
    assert (facts["attached"], facts["cluster_uuid"], facts["clique_id"], facts["clique"]) == (False, None, None, None)


def test_the_cliques_for_unicast_follow_the_clique() -> None:
    changed = hardware()
    for key, value in (("multicast_clique", "1,2"), ("clique", "9"), ("gpu1.multicast_clique", "3")):
        changed = apply_setting(changed, key, value)
    rows = [gpu["fabric"]["cliques"] for gpu in changed["facts"]["gpus"]]
    kinds = ("multicast_pointer", "unicast_pointer", "multicast_logical_endpoint", "unicast_logical_endpoint")
    assert [[row[kind] for kind in kinds] for row in rows] == [[[1, 2], [9]] * 2, [[3], [9]] * 2]
    with pytest.raises(LabError, match="use numbers from 0 to 4294967295"):
        apply_setting(changed, "multicast_clique", "1,x")


def test_a_setting_does_not_change_its_argument() -> None:
    before = hardware()
    after = apply_setting(before, "gpu0.lost", "true")
    assert after["lost"] == [0]
    assert before == hardware()
    assert apply_setting(after, "gpu0.lost", "false") == before


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("state", "done", "state=done: use one of not_supported, not_started, in_progress, completed."),
        ("clique", "-1", "clique=-1: use a number from 0 to 4294967295."),
        ("gpu2.clique", "1", "gpu2.clique=1: there is no GPU 2, the tray has 2."),
        ("name", "a\nb", "name=a\nb: use one line of at most 900 characters."),
        ("gpu0.link18.state", "active", "gpu0.link18.state=active: there is no such link, the tray has 2 GPUs with 18"),
        ("colour", "red", "colour=red: not a setting, use nvml, smi, driver_version, "),
    ],
)
def test_a_wrong_setting_is_one_sentence(key: str, value: str, sentence: str) -> None:
    with pytest.raises(LabError) as caught:
        apply_setting(hardware(), key, value)
    assert str(caught.value).startswith(sentence)


def test_a_link_has_the_value_that_was_set_last() -> None:
    changed = hardware()
    for key, value in (("recoveries", "505"), ("state", "inactive"), ("recoveries", "508")):
        changed = apply_setting(changed, f"gpu0.link14.{key}", value)
    # Fields of NVML: the state and the recovery events.
    assert changed["links"] == [[0, 14, 165, 0], [0, 14, 215, 508]]
