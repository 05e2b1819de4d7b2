# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module as Ansible calls it: options in, one JSON document out, of which the controller words the findings."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible_collections.rackscale.nvlink.plugins.module_utils import driver, subsets
from ansible_collections.rackscale.nvlink.plugins.module_utils.gpu import nvml
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import survey
from ansible_collections.rackscale.nvlink.plugins.modules import fabric_facts
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas, trust
from ansible_collections.rackscale.nvlink.tests.lab.nvml import standin_text
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils import trays

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run_module(**options: Any) -> dict[str, Any]:
        with patch_module_args(options), pytest.raises(SystemExit):
            fabric_facts.main()
        return trust.accepted("r01t01", json.loads(capsys.readouterr().out), schemas.of_return(fabric_facts.RETURN))

    return run_module


def test_the_facts_of_a_healthy_tray(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "LIBRARY", str(trays.library()))
    monkeypatch.setenv("NVLINK_STANDIN_GPUS", str(tmp_path / "gpus"))
    expected = trays.tray()
    (tmp_path / "gpus").write_text(standin_text.standin_text(expected))
    result = run()
    assert (result["changed"], result["changes"], result["findings"]) == (False, [], [])
    assert set(result["ansible_facts"]) == {"nvlink_fabric"}
    facts = result["ansible_facts"]["nvlink_fabric"]
    own = ("observed_at", "hostname", "addresses")
    assert {key: value for key, value in facts.items() if key not in own} == {
        key: value for key, value in expected.items() if key not in own
    }


def test_a_tray_in_trouble_is_no_failed_task(run: Run, tmp_path: Path) -> None:
    result = run(backend="nvidia_smi", nvidia_smi=str(tmp_path / "none"))
    assert "failed" not in result
    assert trays.codes(result["ansible_facts"]["nvlink_fabric"]) == ["driver_missing"]
    assert [(row["code"], row["part"], row["gpu"]) for row in result["findings"]] == [("driver_missing", "gpu", None)]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["gpu"], ["gpu"]),
        (["versions", "gpu"], ["gpu", "versions"]),
        ([], ["gpu", "imex", "channels", "versions", "links", "serials"]),
        (["all", "!imex"], ["gpu", "channels", "versions", "links", "serials"]),
        (["!gpu", "!imex", "!links", "!serials"], ["channels", "versions"]),
        (["imex", "channels", "!imex"], ["channels"]),
    ],
)
def test_names_of_gather_subset_include_and_exclude(names: list[str], expected: list[str]) -> None:
    assert subsets.selected(names) == expected


@pytest.mark.parametrize("mode", [{}, {"_ansible_check_mode": True}])
def test_all_subsets_of_a_host_without_gpus_are_returned_with_findings(
    run: Run, tmp_path: Path, mode: dict[str, Any]
) -> None:
    none = str(tmp_path / "none")
    result = run(gather_subset="all", nvidia_smi=none, imex_config_file=none, prolog_files=[], **mode)
    facts = result["ansible_facts"]
    assert (result["changed"], list(facts)) == (False, list(subsets.FACTS.values()))
    assert facts["nvlink_fabric"]["attached"] is False
    assert facts["nvlink_imex"]["ready"] is False
    assert facts["nvlink_imex"]["config"]["sha256"] is None
    assert {note["part"] for note in result["findings"]} <= {"gpu", "imex", "links"}
    assert any(note["part"] == "gpu" and note["severity"] == "error" for note in result["findings"])


def test_the_default_subset_imports_nothing_of_imex() -> None:
    code = (
        "import sys\n"
        "from ansible_collections.rackscale.nvlink.plugins.module_utils import subsets\n"
        "subsets.gather(subsets.Options(backend='nvidia_smi', nvidia_smi='/none'))\n"
        "print([name for name in sys.modules if '.imex' in name])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_versions_and_channels_of_a_tray(run: Run, tmp_path: Path) -> None:
    devices = tmp_path / "devices"
    devices.write_text("Character devices:\n  1 mem\n234 nvidia-caps-imex-channels\n")
    slurmd = trays.script(tmp_path / "slurmd", "echo slurm 25.11.2")
    for names in (["channels", "versions"], ["all"]):
        facts = run(gather_subset=names, proc_devices=str(devices), slurmd=slurmd)["ansible_facts"]
        assert facts["nvlink_channels"]["major"] == 234
        assert set(facts["nvlink_channels"]["parameters"]) == set(driver.CHANNEL_PARAMETERS)
        assert facts["nvlink_versions"]["slurmd"] == "25.11.2"


def test_a_slurmd_that_hangs_is_of_unknown_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subsets, "_VERSION_TIMEOUT", 0.2)
    assert subsets.slurmd_version(trays.script(tmp_path / "slurmd", "sleep 2; echo slurm 25.11.2")) is None


@pytest.mark.parametrize("names", [["all"], ["versions"]])
def test_a_subset_that_cannot_be_read_is_a_finding_and_the_others_are_returned(
    run: Run, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    def broken(*_arguments: Any, **_options: Any) -> Any:
        raise RuntimeError("no /proc\n{{ here }}")

    monkeypatch.setattr(survey, "survey", broken)
    result = run(gather_subset=names)
    facts = result["ansible_facts"]
    assert facts.get("nvlink_imex") is None
    assert ("nvlink_fabric" in facts) == (names == ["all"])
    assert facts["nvlink_versions"]["kernel"]
    [note] = [note for note in result["findings"] if note["code"] == "tray_subset_failed"]
    assert (note["part"], note["severity"]) == ("imex" if names == ["all"] else "versions", "error")
    assert "\n" not in note["message"]
    assert "{{" not in note["message"]


def test_imex_files_that_are_not_text_do_not_fail_the_task(run: Run, tmp_path: Path) -> None:
    config, record = tmp_path / "config.cfg", tmp_path / "record"
    config.write_bytes(b"\xff\xfe=\x00\nA=\xff\nIMEX_NODE_CONFIG_FILE=" + str(tmp_path).encode() + b"/nodes\n")
    (tmp_path / "nodes").write_bytes(b"\xff{{ 7 * 7 }}\n")
    record.write_bytes(b"\x80")
    result = run(
        gather_subset=["imex"],
        imex_config_file=str(config),
        imex_record_file=str(record),
        imex_ctl=str(tmp_path / "ctl"),
    )
    facts = result["ansible_facts"]["nvlink_imex"]
    json.dumps(facts, ensure_ascii=False).encode()
    assert facts["config"]["settings"]["A"] is None
    assert "{{" not in str(facts)
    nodes = facts["nodes"]
    assert nodes["path"] == f"{tmp_path}/nodes"
    assert (nodes["own_id"], nodes["generation"]) == (None, None)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"timeout": 0}, "timeout is 0"),
        ({"timeout": "soon"}, "timeout"),
        ({"timeout": "nan"}, "timeout"),
        ({"timeout": 1e6}, "timeout is 1e+06"),
        ({"backend": "best"}, "backend"),
        ({"imex_timeout": 0}, "imex_timeout is 0"),
        ({"imex_timeout": 601}, "up to 600"),
        ({"imex_ctl": ""}, "imex_ctl"),
        ({"gather_subset": ["gpus"]}, "one or more of: all, gpu, imex, channels, versions, links,"),
        ({"gather_subset": ["gpu", "!gpu"]}, "gather_subset excludes every subset"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_wrong_option_fails_with_one_sentence(run: Run, options: dict[str, Any], expected: str) -> None:
    result = run(**options)
    assert result["failed"] is True
    assert expected in result["msg"]
    assert "\n" not in result["msg"]


def test_every_option_and_default_is_documented() -> None:
    documented = yaml.safe_load(fabric_facts.DOCUMENTATION)["options"]
    assert set(documented) == set(subsets.Options._fields)
    assert documented["gather_subset"]["choices"] == list(subsets.CHOICES)
    for name, default in subsets.Options()._asdict().items():
        expected = list(default) if isinstance(default, tuple) else default
        assert documented[name].get("default") == expected, name
