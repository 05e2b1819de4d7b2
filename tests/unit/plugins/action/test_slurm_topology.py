# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the controller's half of slurm_topology says before it goes to any host; the rest is in tests/integration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.action.slurm_topology import ActionModule


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "needs either fabric_file or blocks"),
        ({"fabric_file": "f.json", "blocks": []}, "needs either fabric_file or blocks"),
        ({"fabric_file": ["f.json"]}, "option fabric_file: .* is not a path"),
        ({"fabric_file": ""}, "option fabric_file: .* is not a path"),
        ({"fabric_file": "/nowhere/fabric.json"}, "/nowhere/fabric.json: cannot be read"),
    ],
)
def test_a_bad_option_is_one_sentence(run_action: Any, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AnsibleActionFail, match=sentence):
        run_action(ActionModule, **options)


def test_a_broken_fabric_file_is_named(run_action: Any, tmp_path: Path) -> None:
    file = tmp_path / "fabric.json"
    file.write_text('{"schema_version": 7}')
    with pytest.raises(AnsibleActionFail, match=f"{file}: .*schema_version"):
        run_action(ActionModule, fabric_file=str(file))


def test_check_of_a_new_site_goes_on_without_a_fabric_file(run_action: Any) -> None:
    result = run_action(ActionModule, check=True, fabric_file="/nowhere/fabric.json")
    assert result["changed"] is False
    assert result["warnings"][0].startswith("/nowhere/fabric.json: is not there yet")
