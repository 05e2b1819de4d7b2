# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory plugin as users meet it: through ansible-inventory and a play.

`UPDATE_EXPECTED=1 pytest tests/integration/test_inventory.py` writes expected/inventory anew.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from .commands import ansible

HERE = Path(__file__).resolve().parent
CONFIGS = HERE / "fixtures" / "inventory"
EXPECTED = HERE / "expected" / "inventory"
CHECKOUT = HERE.parents[1]


@pytest.mark.core
def test_the_inventory_is_the_expected_one() -> None:
    """With groups and variables of the site's own; the unit tests of the plugin have the other sources."""
    done = ansible("ansible-inventory", "-i", CONFIGS / "constructed.nvlink.yml", "--list", "--export")
    assert not done.stderr
    found: dict[str, Any] = json.loads(done.stdout.replace(str(CONFIGS), "DIRECTORY"))
    expected = EXPECTED / "constructed.json"
    if os.environ.get("UPDATE_EXPECTED"):
        expected.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    assert found == json.loads(expected.read_text())


@pytest.mark.core
def test_a_play_sees_flat_variables_and_templates_nothing(tmp_path: Path) -> None:
    play = [
        {
            "hosts": "nvlink_unplaced:nvlink_clique_r02b",
            "gather_facts": False,
            "tasks": [{"debug": {"msg": "{{ inventory_hostname }}|{{ nvlink_clique }}|{{ nvlink_slurm_node }}"}}],
        }
    ]
    (tmp_path / "play.yml").write_text(json.dumps(play))
    done = ansible("ansible-playbook", "-i", CONFIGS / "accepted.nvlink.yml", tmp_path / "play.yml")
    reported = {line.split('"')[3] for line in done.stdout.splitlines() if '"msg"' in line}
    assert reported == {
        "spare01||spare01",
        "r02t03|00000002-1111-4222-8333-444444444444.2|gb2-3",
        "r02t04|00000002-1111-4222-8333-444444444444.2|r02t04",
    }


BAD = {
    "broken YAML": ("sources: [fabric_file\n", "YAML parsing failed"),
    "unknown version": ("sources: [fabric_file]\nfabric_file: new.json\n", "new.json: schema_version is 2"),
}


@pytest.mark.core
@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence_and_fails(tmp_path: Path, case: str) -> None:
    text, sentence = BAD[case]
    (tmp_path / "bad.nvlink.yml").write_text(f"plugin: rackscale.nvlink.fabric\n{text}")
    (tmp_path / "new.json").write_text('{"schema_version": 2}')
    before = sorted(tmp_path.iterdir())
    done = ansible("ansible-inventory", "-i", tmp_path / "bad.nvlink.yml", "--list", check=False, COLUMNS="1000")
    assert done.returncode != 0
    result = [line for line in done.stderr.splitlines() if sentence in line]
    assert result, done.stderr
    if case != "broken YAML":
        assert str(tmp_path) in result[0]
    assert "Traceback" not in done.stderr
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.long
@pytest.mark.parametrize("example", sorted(path.name for path in (CHECKOUT / "inventory").glob("*.nvlink.yml")))
def test_the_examples_can_be_listed(tmp_path: Path, example: str) -> None:
    shutil.copytree(CHECKOUT / "inventory", tmp_path, dirs_exist_ok=True)
    shutil.copy(CONFIGS / "alone.json", tmp_path / "fabric.json")
    done = ansible("ansible-inventory", "-i", tmp_path / example, "--graph", "nvlink")
    assert "r01t01" in done.stdout
