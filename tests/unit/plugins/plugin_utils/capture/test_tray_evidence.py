# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The evidence of an incident: real names, bounded, in a folder of the owner, and what is missing is named."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils import capture
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.capture import tray_evidence
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.fabric_file import FabricFileError
from hypothesis import given
from hypothesis import strategies as st

NOW = "2026-11-29T19:15:00Z"


def outputs(**texts: str) -> dict[str, Any]:
    names = {name.replace("_", "-", 1): text for name, text in texts.items()}
    rows = [{"name": f"{name}.txt", "problem": None, "parts": [text[:3], text[3:]]} for name, text in names.items()]
    return {"versions": {"driver": "595.58.03"}, "findings": [], "outputs": rows}


def jobs(tray: str, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"item": [{"tray": tray}, []], "cmd": ["squeue"], **row} for row in rows]


def test_evidence_has_real_names_and_names_what_is_missing(tmp_path: Path) -> None:
    folder = tmp_path / "repairs" / "r01t04-1"
    of_slurm = jobs("r01t04", {"stdout_lines": ["17 alice"]}, {"failed": True, "stderr": "sacct: no accounting"})
    of_slurm += jobs("r01t05", {"stdout_lines": ["18 bob"]})
    missing = tray_evidence.write(str(folder), "r01t04", NOW, outputs(kernel="NVRM: Xid 79\x1b[2J\n"), of_slurm)
    assert (folder / "kernel.txt").read_text() == "NVRM: Xid 79 [2J\n"
    assert (folder / "jobs-1.txt").read_text() == "17 alice"
    assert "bob" not in "".join(path.read_text() for path in folder.iterdir())
    index = json.loads((folder / "index.json").read_text())
    assert index["missing"] == missing
    assert missing["jobs-2.txt"] == "sacct: no accounting"
    assert missing["nvidia-smi.xml"] == "not read"
    assert index["commands"]["kernel.txt"].startswith("journalctl --dmesg")
    assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    # Again, after a run that was killed.
    assert tray_evidence.write(str(folder), "r01t04", NOW, outputs(kernel="again"), of_slurm) == missing


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({}, "the tray is unreachable"),
        ({"unreachable": True}, "the tray is unreachable"),
        ({"failed": True, "msg": "No Python"}, "No Python"),
    ],
)
def test_of_a_dead_tray_all_is_named(tmp_path: Path, answer: dict[str, Any], why: str) -> None:
    missing = tray_evidence.write(str(tmp_path / "i"), "r01t04", NOW, answer, [])
    assert missing == dict.fromkeys(tray_evidence.COMMANDS, why)
    assert [path.name for path in (tmp_path / "i").iterdir()] == ["index.json"]


@given(st.text(max_size=40), st.text(max_size=40))
def test_a_tray_names_no_file(tmp_path_factory: pytest.TempPathFactory, name: str, text: str) -> None:
    root = tmp_path_factory.mktemp("evidence")
    rows = [{"name": name, "problem": None, "parts": [text]}, {"name": "../evil", "problem": None, "parts": [text]}]
    tray_evidence.write(str(root / "a" / "b"), "r01t04", NOW, {"outputs": rows, "findings": [text]}, [])
    known = {*tray_evidence.COMMANDS, "index.json", "facts.json"}
    assert {path.name for path in root.rglob("*") if path.is_file()} <= known


def test_a_disk_that_takes_nothing_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FabricFileError, match="cannot be written"):
        tray_evidence.write(str(tmp_path / "file" / "i"), "r01t04", NOW, {}, [])


def test_logs_are_read_for_evidence_alone() -> None:
    options = {"role": "tray", "timeout": 5, "nvidia_smi": "false", "imex_ctl": "false", "imex_config_file": "/x"}
    with_logs = {row["name"] for row in capture.read({**options, "logs": True})["outputs"]}
    without = {row["name"] for row in capture.read({**options, "logs": False})["outputs"]}
    assert with_logs - without == set(capture.LOGS)
