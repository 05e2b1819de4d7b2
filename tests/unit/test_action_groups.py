# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`module_defaults` of an action group apply to every public module of its place.

Internal modules are in no group: their roles and action plugins set all of their options.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "tests" / "tools"))
import reference  # noqa: E402

GROUPS = yaml.load((CHECKOUT / "meta" / "runtime.yml").read_text(), Loader=yaml.CSafeLoader)["action_groups"]
INTERNAL = reference.internal_modules()
PUBLIC = {name: documented for name, documented in reference.plugins("modules") if name not in INTERNAL}


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_lists_public_modules_sorted_and_once(group: str) -> None:
    assert sorted(set(GROUPS[group])) == GROUPS[group]
    assert set(GROUPS[group]) <= set(PUBLIC)


def test_modules_with_a_fabric_file_are_in_the_group_fabric() -> None:
    assert set(GROUPS["fabric"]) == {
        name for name, documented in PUBLIC.items() if "fabric_file" in documented["options"]
    }


def test_modules_of_the_slurm_controller_are_in_the_group_slurm() -> None:
    assert set(GROUPS["slurm"]) == {name for name in PUBLIC if name.startswith("slurm_")}
