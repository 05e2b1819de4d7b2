# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of seeded faults fits to the product, so that each of them can be tried."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
_spec = importlib.util.spec_from_file_location("seeded_faults", TOOLS / "faults.py")
assert _spec is not None
assert _spec.loader is not None
faults = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = faults
_spec.loader.exec_module(faults)


def test_each_fault_changes_one_place_of_the_product() -> None:
    assert [text for fault in faults.FAULTS if (text := faults.problem(fault, faults.CHECKOUT))] == []
    assert [fault.name for fault in faults.FAULTS if fault.old == fault.new or not fault.old] == []
    assert {fault.room for fault in faults.FAULTS} == faults.ROOMS.keys()


def test_the_tests_of_each_room_exist() -> None:
    for folders, globs in faults.ROOMS.values():
        assert [folder for folder in folders if not (faults.CHECKOUT / faults.UNIT / folder).is_dir()] == []
        assert [glob for glob in globs if not list((faults.CHECKOUT / faults.STORIES).glob(glob))] == []
