# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re
from typing import Any

import pytest
from ansible.utils.display import Display
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import sources
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import SourceResult
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import OutageError, SourceError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import (
    ansible_facts,
    rest,
    simulation,
)
from ansible_collections.rackscale.nvlink.tests.lab.nvml import fleets
from hypothesis import given
from hypothesis import strategies as st

NOW = "2026-11-21T05:00:00Z"


@pytest.mark.parametrize("known", sources.LIVE)
def test_every_live_source_of_the_table_can_be_read(known: str) -> None:
    """Without options it returns a result, or reports which option it needs."""
    try:
        answer = sources.query(known, None, NOW, {}, Display())
        problem = answer.failure
    except NvlinkError as error:
        problem = str(error)
    assert not problem or re.fullmatch(rf"{known}: .*[^.]", problem)


@pytest.mark.parametrize(
    "names", [None, "simulation", [], ["simulatoin"], ["simulation"] * 2, [None], [["simulation"]]]
)
def test_a_wrong_list_of_sources_is_an_error(names: object) -> None:
    with pytest.raises(SourceError, match=r"^sources: .*[^.]$"):
        sources.check_names(names)


def test_only_an_outage_becomes_a_failed_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = iter([OutageError("rest: https://x is down; start it."), SourceError("rest: url is missing; write it")])

    def discover(*_arguments: object) -> SourceResult:
        raise next(errors)

    monkeypatch.setattr(rest, "discover", discover)
    assert sources.query("rest", {}, NOW, {}, Display()).failure == "rest: https://x is down; start it"
    with pytest.raises(SourceError):
        sources.query("rest", {}, NOW, {}, Display())


@given(
    shape=st.fixed_dictionaries(
        {
            "racks": st.integers(1, 3),
            "trays_per_rack": st.integers(1, 5),
            "gpus_per_tray": st.integers(1, 9),
            "seed": st.integers(-5, 5000),
        }
    )
)
def test_simulated_trays_are_observed_as_by_fabric_facts(shape: dict[str, int]) -> None:
    split = {1: 1 + shape["trays_per_rack"] // 2}
    text = {"01": split[1]}
    facts = fleets.fleet(**shape, split=split, observed_at=NOW)
    assert simulation.discover({**shape, "split": text}, NOW).observations == [
        ansible_facts.from_facts(tray, row, simulation.SOURCE) for tray, row in facts.items()
    ]


def test_named_faults_affect_their_trays_only() -> None:
    faults = {"down": ["r01t01"], "detached": ["r01t02"], "unhealthy": ["r01t03"], "degraded": ["r01t04", "r01t01"]}
    found = {row.tray: row for row in simulation.discover({"faults": faults}, NOW).observations}
    assert not found["r01t01"].reachable
    assert found["r01t02"].identity is None
    assert [row.tray for row in found.values() if row.health != "healthy" and row.reachable] == ["r01t03", "r01t04"]
    assert [row["code"] for name in ("r01t03", "r01t04") for row in found[name].findings] == [
        "fabric_unhealthy",
        "fabric_degraded",
    ]


@pytest.mark.parametrize(("rate", "least", "most"), [(0, 0, 0), (0.1, 60, 120), (1, 900, 900)])
def test_random_faults_occur_at_about_their_rate(rate: float, least: int, most: int) -> None:
    struck = simulation.discover({"racks": 50, "faults": {"unhealthy": rate}}, NOW).observations
    assert least <= sum(row.health == "unhealthy" for row in struck) <= most


def test_a_larger_fleet_keeps_the_faults_of_a_smaller_one() -> None:
    def unhealthy(racks: int) -> list[str]:
        fleet = simulation.discover({"racks": racks, "faults": {"unhealthy": 0.3}}, NOW).observations
        return [row.tray for row in fleet if row.health == "unhealthy"]

    assert unhealthy(20)[: len(unhealthy(10))] == unhealthy(10)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"racks": 0}, "racks is 0"),
        ({"racks": True}, "racks is True"),
        ({"trays_per_rack": 246}, "trays_per_rack is 246"),
        ({"seed": "x" * 10_000}, "seed is 'xxx"),
        ({"faults": {"down": True}}, "faults: down is True"),
        ({"faults": {"down": ["r01t19"]}}, "names 'r01t19', which is not a tray of this fleet; did you mean r01t1"),
        ({"racks": 60_000, "trays_per_rack": 200}, "12000000"),
        ({"cliques_per_rack": 19}, "cliques_per_rack is 19"),
        ({"split": [2]}, "split is not a mapping"),
        ({"split": {"9": 2}}, "split names rack '9'"),
        ({"split": {"\u0661": 2}}, "split names rack"),
        ({"split": {"1": 19}}, "split: 1 is 19"),
    ],
)
def test_a_wrong_option_of_the_simulation_raises_one_sentence(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(SourceError) as caught:
        simulation.discover(options, NOW)
    message = str(caught.value)
    assert expected in message
    assert message.startswith("simulation: ")
    assert "\n" not in message
    assert len(message) < 200
