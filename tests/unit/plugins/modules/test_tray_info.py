# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module as Ansible calls it, on a host without GPUs: options in, one JSON document out."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible_collections.rackscale.nvlink.plugins.doc_fragments import tray
from ansible_collections.rackscale.nvlink.plugins.module_utils import tray_info as parts
from ansible_collections.rackscale.nvlink.plugins.modules import tray_info

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run_module(**options: Any) -> dict[str, Any]:
        with patch_module_args(options), pytest.raises(SystemExit):
            tray_info.main()
        result: dict[str, Any] = json.loads(capsys.readouterr().out)
        return result

    return run_module


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("mode", [{}, {"_ansible_check_mode": True}])
def test_a_host_with_nothing_says_so_in_findings(run: Run, tmp_path: Path, mode: dict[str, Any]) -> None:
    result = run(nvidia_smi=str(tmp_path / "none"), imex_config=str(tmp_path / "none"), prolog_files=[], **mode)
    assert result["changed"] is False
    told = result["ansible_facts"]["nvlink_tray"]
    assert set(told) == {"observed_at", "fabric", "imex", "channels", "versions", "findings"}
    assert told["fabric"]["attached"] is False
    assert told["imex"]["ready"] is False
    assert {note["part"] for note in told["findings"]} <= {"fabric", "imex"}
    assert any(note["part"] == "fabric" and note["severity"] == "error" for note in told["findings"])


def test_versions_and_channels_stand_beside_the_facts(run: Run, tmp_path: Path) -> None:
    devices = tmp_path / "devices"
    devices.write_text("Character devices:\n  1 mem\n234 nvidia-caps-imex-channels\n")
    slurmd = script(tmp_path / "slurmd", "echo slurm 25.11.2")
    told = run(proc_devices=str(devices), slurmd=slurmd)["ansible_facts"]["nvlink_tray"]
    assert told["channels"]["major"] == 234
    assert set(told["channels"]["parameters"]) == set(parts.CHANNEL_PARAMETERS)
    assert told["versions"]["slurmd"] == "25.11.2"


def test_a_slurmd_that_hangs_or_says_nonsense_is_of_unknown_version(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "_VERSION_TIMEOUT", 0.2)
    began = time.monotonic()
    for text in ("sleep 60", "echo 'slurm {{ 7 }}'", "exit 1"):
        told = run(slurmd=script(tmp_path / "slurmd", text))["ansible_facts"]["nvlink_tray"]
        assert told["versions"]["slurmd"] is None
    assert time.monotonic() - began < 30


def test_a_part_that_fails_is_a_finding_and_the_others_are_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: Any, **_options: Any) -> Any:
        raise RuntimeError("no /proc\n{{ here }}")

    monkeypatch.setattr(parts.survey, "survey", broken)
    told = run()["ansible_facts"]["nvlink_tray"]
    assert told["imex"] is None
    assert told["fabric"] is not None
    assert told["versions"]["kernel"]
    [note] = [note for note in told["findings"] if note["code"] == "tray_part_failed"]
    assert (note["part"], note["severity"]) == ("imex", "error")
    assert "\n" not in note["message"]
    assert "{{" not in note["message"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"timeout": 0}, "timeout is 0"),
        ({"imex_timeout": 601}, "up to 600"),
        ({"backend": "magic"}, "backend"),
        ({"imex_ctl": ""}, "ctl"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_wrong_option_fails_with_one_sentence(run: Run, options: dict[str, Any], said: str) -> None:
    result = run(**options)
    assert result["failed"] is True
    assert said in result["msg"]
    assert "\n" not in result["msg"]


def test_every_option_of_the_documentation_is_one_of_the_module(run: Run) -> None:
    texts = (tray_info.DOCUMENTATION, tray.ModuleDocFragment.GPUS, tray.ModuleDocFragment.IMEX)
    documented = {name: option for text in texts for name, option in yaml.safe_load(text)["options"].items()}
    assert set(documented) == set(parts.Options._fields)
    for name, default in parts.Options()._asdict().items():
        wanted = list(default) if isinstance(default, tuple) else default
        assert documented[name].get("default") == wanted, name
