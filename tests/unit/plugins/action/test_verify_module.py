# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action of verify where no fabric file exists yet; the verdicts themselves are in plugin_utils/test_verify.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.action.verify import ActionModule


def test_a_check_of_a_site_that_has_no_fabric_file_yet_says_so_and_a_run_fails(
    tmp_path: Path, run_action: Callable[..., dict[str, Any]]
) -> None:
    given = {"fabric_file": str(tmp_path / "fabric.json"), "verdict_file": str(tmp_path / "verdict.json")}
    looked = run_action(ActionModule, check=True, **given)
    assert (looked["changed"], looked["verdict"]["ok"]) == (False, True)
    assert looked["text"] == looked["warnings"]
    assert "discover and accept it first" in looked["text"][0]
    with pytest.raises(AnsibleActionFail, match="cannot be read"):
        run_action(ActionModule, **given)
    assert list(tmp_path.iterdir()) == []
