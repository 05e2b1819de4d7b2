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


def test_an_empty_file_is_two_trays_in_one_clique_with_a_controller_and_slurm() -> None:
    parsed = scenario.parse(None)
    assert parsed.hosts == {"ctl": "198.51.100.2", "r01t01": "198.51.100.11", "r01t02": "198.51.100.12"}
    assert {tray.clique_id for tray in parsed.trays} == {32766}
    assert parsed.suite == "forky"
    assert parsed.slurm == scenario.Slurm()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"controler": True}, "S: controler is not a key of a scenario, remove or correct it."),
        ({"controller": False}, "S: slurm needs the controller host, set controller to true."),
        ({"kubernetes": 1.37}, "S: kubernetes is 1.37, use true, false or a version in quotes"),
        ({"backup": True}, "S: backup needs the controller host and slurm: packages, "),
        ({"slurm": {"files": {"../x": "a"}}}, "S: slurm.files.../x must be the text of a file like topology.conf."),
        ({"racks": [{"trays": True}]}, "S: racks[0].trays is True, it must be a number."),
        (
            {"racks": [{"trays": 200}, {"trays": 200}]},
            "S: racks hold 400 trays, the lab's network has room for 1 to 244.",
        ),
        ({"racks": [{"name": "R 1"}]}, "S: racks[0].name is 'R 1', use up to 8 of a-z and 0-9, a letter first."),
        ({"racks": [{"cliques": [{"id": 1, "trays": [1]}]}]}, "S: racks[0].cliques leaves out tray 2, "),
        (
            {"racks": [{"cliques": [{"id": 1}, {"id": 2, "trays": [2]}]}]},
            "S: racks[0].cliques[1].trays holds 2, use tray numbers from 1 to 2, each in one clique.",
        ),
        ({"racks": [{"cliques": [{"trays": [1, 2]}]}]}, "S: racks[0].cliques[0].id must be a number from 0 to "),
        ({"trays": {"r09t01": {}}}, "S: trays.r09t01 is not a tray of racks."),
        ({"trays": {"r01t01": {"health": "sick"}}}, "S: trays.r01t01.health: use one of healthy, unhealthy, "),
    ],
)
def test_a_wrong_scenario_is_one_sentence_with_the_field(data: object, sentence: str) -> None:
    with pytest.raises(LabError) as caught:
        scenario.parse(data, "S")
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "s.yml"
    file.write_text("a: [")
    with pytest.raises(LabError, match="not YAML") as caught:
        scenario.load(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert "\n" not in str(caught.value)


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
