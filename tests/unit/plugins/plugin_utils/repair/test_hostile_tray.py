# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever a hostile tray answers, verify and repair take no other tray out of service."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import CATALOGUE
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair import plan
from hypothesis import given
from hypothesis import strategies as st

from ..fabrics import LINKS, replace_one
from ..verify.verify_world import NOW, World
from .world import acts_on, settings

HOME = World()
HOSTILE, VICTIM, OTHERS = "r02t01", "r02t02", ["r02t02", "r02t03", "r02t04"]


def acted_on(world: World) -> set[str]:
    """The trays on which repair acts after a run of verify."""
    verdict = world.verdict()
    return set(acts_on(plan.make(verdict, world.fabric, None, [], settings(rack_share=1.0), [], NOW)))


def claims_gpus(world: World) -> None:
    world.trays[HOSTILE]["gpu"]["gpus"] = copy.deepcopy(world.gpus(VICTIM))


def claims_to_be(world: World) -> None:
    world.trays[HOSTILE] = copy.deepcopy(world.trays[VICTIM])


def claims_another_rack(world: World) -> None:
    world.attach([HOSTILE], *world.identity("r01"))


def disconnects_all(world: World) -> None:
    world.connect(HOSTILE, OTHERS, "never_connected", both=True)


def reports_more_gpus_and_links(world: World) -> None:
    facts = world.trays[HOSTILE]["gpu"]
    facts["gpus"] = [{**copy.deepcopy(facts["gpus"][0]), "index": at, "uuid": f"GPU-{at}"} for at in range(16)]
    world.trays[HOSTILE]["links"] = copy.deepcopy(LINKS)


def reports_xids_of_all(world: World) -> None:
    links: Any = copy.deepcopy(LINKS)
    links["xids"] = [{**links["xids"][0], "xid": xid, "gpu": gpu} for xid in (79, 145, 149) for gpu in range(64)]
    world.trays[HOSTILE]["links"] = links


LIES = (
    claims_gpus,
    claims_to_be,
    claims_another_rack,
    disconnects_all,
    reports_more_gpus_and_links,
    reports_xids_of_all,
)


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_a_lie_gets_no_other_tray_out_of_service(lie: Callable[[World], None]) -> None:
    world = copy.deepcopy(HOME)
    assert acted_on(world) == set()
    lie(world)
    assert acted_on(world) <= {HOSTILE}
    world.report(VICTIM, "gpu", "gpu_lost")
    assert VICTIM in acted_on(world), "nor does it keep another one in service"


@pytest.mark.parametrize("code", sorted(CATALOGUE))
def test_a_finding_that_names_another_tray_is_one_of_the_tray_that_reports_it(code: str) -> None:
    world = copy.deepcopy(HOME)
    notes: Any = [finding(code, f"{VICTIM} is broken.", tray=VICTIM, gpu=0, trays=[VICTIM], domain="r02", node=VICTIM)]
    world.trays[HOSTILE]["findings"] = [{**note, "part": part} for note in notes for part in ("gpu", "imex", "links")]
    world.trays[HOSTILE]["imex"]["findings"] = notes
    assert acted_on(world) <= {HOSTILE}


GARBAGE = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from([VICTIM, "r02", [], {}])


@given(data=st.data())
def test_no_garbage_in_an_answer_gets_another_tray_out_of_service(data: st.DataObject) -> None:
    world = copy.deepcopy(HOME)
    data.draw(st.sampled_from((*LIES, lambda world: None)))(world)
    replace_one(data, world.trays[HOSTILE], data.draw(GARBAGE))
    assert acted_on(world) <= {HOSTILE}
