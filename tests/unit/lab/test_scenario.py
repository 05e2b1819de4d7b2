# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import facts as fabric_facts
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import nvidia_smi
from ansible_collections.rackscale.nvlink.tests.lab.nvml import standin_text
from nvlab import gpus as gpus_module
from nvlab import scenario
from nvlab.errors import LabError

SCENARIOS = Path(__file__).resolve().parents[2] / "lab" / "scenarios"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "cannot be read"),
        ("controler: true", "unexpected keyword argument 'controler'"),
        ("racks: [{cliques: [{id: 1, trays: [1]}]}]", "KeyError: 2"),
        ("suite: sid", "suite is 'sid', use one of forky, trixie"),
    ],
)
def test_a_wrong_scenario_is_one_sentence_with_the_file(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "s.yml"
    file.write_text(text)
    with pytest.raises(LabError, match=f"{file}: .*{words}"):
        scenario.load(file)


def test_the_shipped_scenarios_are_valid() -> None:
    parsed = {file.stem: scenario.load(file) for file in SCENARIOS.glob("*.yml")}
    assert {one.suite for one in parsed.values()} == set(scenario.SUITES)


@pytest.mark.parametrize(("file", "gpus", "attached"), [("vr200-nvl72", 72, True), ("rubin-nvl8", 16, False)])
def test_rubin_systems_have_the_facts_of_their_kind(file: str, gpus: int, attached: bool) -> None:
    hardware = list(gpus_module.hardware_of(scenario.load(SCENARIOS / f"{file}.yml")).values())
    assert sum(len(tray["facts"]["gpus"]) for tray in hardware) == gpus
    assert {tray["facts"]["attached"] for tray in hardware} == {attached}
    by_smi = nvidia_smi.parse_xml(standin_text.smi_text(hardware[0]["facts"]))
    facts = fabric_facts.assemble(by_smi, backend=None, observed_at="", hostname="r01t01", addresses=[])
    assert (facts["attached"], facts["driver_version"]) == (attached, "615.23")
    assert [row["code"] for row in facts["findings"]] == ([] if attached else ["fabric_not_supported"])
