# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The end that a module of Slurm gets lies above what the module itself may wait for."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import ends


@pytest.mark.parametrize(
    ("arguments", "least"),
    [
        ({}, 2 * 120),
        ({"timeout": "7.5"}, 2 * 7.5),
    ],
)
def test_a_tray_may_start_its_units(arguments: dict[str, Any], least: float) -> None:
    assert least < ends.tray(arguments, 120) < 60 + 10 * 120


def test_a_controller_may_wait_for_its_jobs() -> None:
    assert ends.controller({"timeout": 60}, 120, 7200) > 7200 + 20 * 60


@pytest.mark.parametrize("given", ["soon", [], {}])
def test_a_timeout_that_is_no_number_is_one_sentence(given: Any) -> None:
    with pytest.raises(AnsibleActionFail, match=r"The option timeout is .*: use a number of seconds\."):
        ends.tray({"timeout": given}, 120)
