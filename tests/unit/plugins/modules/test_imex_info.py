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
from ansible_collections.rackscale.nvlink.plugins.doc_fragments import tray
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import survey
from ansible_collections.rackscale.nvlink.plugins.modules import imex_info
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils import imex_fleet

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run_module(**options: Any) -> dict[str, Any]:
        with patch_module_args(options), pytest.raises(SystemExit):
            imex_info.main()
        result: dict[str, Any] = json.loads(capsys.readouterr().out)
        return result

    return run_module


@pytest.mark.parametrize("mode", [{}, {"_ansible_check_mode": True}])
def test_a_host_without_imex_is_no_failed_task(run: Run, tmp_path: Path, mode: dict[str, Any]) -> None:
    result = run(config=str(tmp_path / "config.cfg"), ctl=str(tmp_path / "ctl"), prolog_files=[], **mode)
    assert result["changed"] is False
    facts = result["ansible_facts"]["nvlink_imex"]
    assert facts["config"]["sha256"] is None
    assert facts["ready"] is False


def test_files_that_are_no_text_are_no_failed_task(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.cfg").write_bytes(
        b"\xff\xfe=\x00\nA=\xff\nIMEX_NODE_CONFIG_FILE=" + str(tmp_path).encode() + b"/nodes\n"
    )
    (tmp_path / "nodes").write_bytes(b"\xff{{ 7 * 7 }}\n")
    (tmp_path / "record").write_bytes(b"\x80")
    result = run(config=str(tmp_path / "config.cfg"), record=str(tmp_path / "record"), ctl=str(tmp_path / "ctl"))
    facts = result["ansible_facts"]["nvlink_imex"]
    json.dumps(facts, ensure_ascii=False).encode()
    assert facts["config"]["settings"]["A"] is None
    assert "{{" not in str(facts)
    nodes = facts["nodes"]
    assert nodes["path"] == f"{tmp_path}/nodes"
    assert (nodes["own_id"], nodes["generation"]) == (None, None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"timeout": 0}, "timeout is 0"),
        ({"timeout": "soon"}, "timeout"),
        ({"timeout": "nan"}, "timeout"),
        ({"timeout": 601}, "up to 600"),
        ({"ctl": ""}, "ctl"),
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
            described = documented["contains"][key]
            if "contains" in described:
                compare(described, inner)

    facts = imex_fleet.tray(0, processes=[imex_fleet.process(9, cgroup="/user.slice")])
    assert facts["findings"]
    documented = yaml.safe_load(imex_info.RETURN)["ansible_facts"]["contains"]
    assert set(documented) == {"nvlink_imex"}
    compare(documented["nvlink_imex"], facts)


def test_the_documented_defaults_are_the_real_ones() -> None:
    documented = yaml.safe_load(tray.ModuleDocFragment.IMEX)["options"]
    assert tuple(documented["prolog_files"]["default"]) == survey.PROLOG_FILES
    assert documented["proc_devices"]["default"] == survey.PROC_DEVICES
