# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.fabric_file import FabricFileError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import run_store as imex_run_store
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics


def fabric(path: Path, trays: int = 3, **changes: Any) -> str:
    document = fabrics.fabric(racks=1, trays=trays, split=()).as_dict()
    for tray, change in changes.items():
        document["trays"][tray].update(change)
    path.write_text(json.dumps(document))
    return str(path)


def test_a_clique_without_a_list_is_an_error_of_its_trays_only(tmp_path: Path) -> None:
    path = fabric(tmp_path / "fabric.json", r01t02={"imex_address": None})
    with pytest.raises(FabricFileError, match="imex_address is missing for r01t02"):
        imex_run_store.clique_of(str(tmp_path), path, "r01t01")
    with pytest.raises(FabricFileError, match="cannot be read"):
        imex_run_store.clique_of(str(tmp_path), str(tmp_path / "none.json"), "r01t01")


def test_a_changed_fabric_file_is_read_again(tmp_path: Path) -> None:
    path = fabric(tmp_path / "fabric.json")
    before = imex_run_store.clique_of(str(tmp_path), path, "r01t01")
    os.utime(fabric(tmp_path / "fabric.json", trays=4), ns=(1, 1))
    after = imex_run_store.clique_of(str(tmp_path), path, "r01t01")
    assert before is not None
    assert after is not None
    assert (len(before.trays), len(after.trays)) == (3, 4)
