# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module as Ansible calls it: options in, one JSON document out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible_collections.rackscale.nvlink.plugins.module_utils import nvml, simulation
from ansible_collections.rackscale.nvlink.plugins.modules import fabric_facts
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils import trays

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run_module(**options: Any) -> dict[str, Any]:
        with patch_module_args(options), pytest.raises(SystemExit):
            fabric_facts.main()
        result: dict[str, Any] = json.loads(capsys.readouterr().out)
        return result

    return run_module


def test_the_facts_of_a_healthy_tray(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "LIBRARY", str(trays.library()))
    monkeypatch.setenv("NVLINK_STANDIN_GPUS", str(tmp_path / "gpus"))
    expected = trays.tray()
    (tmp_path / "gpus").write_text(simulation.nvml_standin_text(expected))
    result = run()
    assert result["changed"] is False
    assert set(result["ansible_facts"]) == {"nvlink_fabric"}
    facts = result["ansible_facts"]["nvlink_fabric"]
    own = ("observed_at", "hostname", "addresses")
    assert {key: value for key, value in facts.items() if key not in own} == {
        key: value for key, value in expected.items() if key not in own
    }


def test_a_tray_in_trouble_is_no_failed_task(run: Run, tmp_path: Path) -> None:
    result = run(backend="nvidia_smi", nvidia_smi=str(tmp_path / "none"))
    assert "failed" not in result
    assert trays.codes(result["ansible_facts"]["nvlink_fabric"]) == ["smi_missing"]


def test_it_runs_in_check_mode(run: Run, tmp_path: Path) -> None:
    result = run(_ansible_check_mode=True, backend="nvidia_smi", nvidia_smi=str(tmp_path / "none"))
    assert "skipped" not in result
    assert "nvlink_fabric" in result["ansible_facts"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"timeout": 0}, "timeout is 0"),
        ({"timeout": "soon"}, "timeout"),
        ({"timeout": "nan"}, "timeout"),
        ({"backend": "best"}, "backend"),
        ({"nvidia_smi": ""}, "nvidia_smi"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_wrong_option_fails_with_one_sentence(run: Run, options: dict[str, Any], said: str) -> None:
    result = run(**options)
    assert result["failed"] is True
    assert said in result["msg"]
    assert "\n" not in result["msg"]


def test_every_key_of_the_facts_is_documented() -> None:
    def compare(documented: dict[str, Any], value: Any) -> None:
        if isinstance(value, list):
            value = value[0]
        assert set(documented["contains"]) == set(value)
        for key, inner in value.items():
            if isinstance(inner, dict) or (isinstance(inner, list) and inner):
                compare(documented["contains"][key], inner)

    facts = {**trays.tray(), "findings": [{"code": "", "severity": "", "message": "", "gpu": None}]}
    documented = yaml.safe_load(fabric_facts.RETURN)["ansible_facts"]["contains"]
    assert set(documented) == {"nvlink_fabric"}
    compare(documented["nvlink_fabric"], facts)
