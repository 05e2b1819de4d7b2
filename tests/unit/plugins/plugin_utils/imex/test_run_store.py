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


def fabric(path: Path, trays: int = 3, **changes: Any) -> str:
    document = {
        "schema_version": 1,
        "domains": {
            "r01": {
                "cluster_uuid": "9f3c0000-0000-4000-8000-000000000001",
                "chassis_serials": ["1"],
                "expected_trays": trays,
            }
        },
        "cliques": {"r01": {"domain": "r01", "clique_id": 32766, "block": {"name": "r01", "position": 0}}},
        "trays": {
            f"r01t{number}": {
                "clique": "r01",
                "tray_index": number,
                "gpu_uuids": [],
                "imex_address": f"198.51.100.{number}",
                "slurm_node": f"node{number}",
                "kubernetes_node": f"k{number}",
                "why": "placed for a test",
                **changes.get(f"r01t{number}", {}),
            }
            for number in range(1, trays + 1)
        },
        "overrides": [],
    }
    path.write_text(json.dumps(document))
    return str(path)


def test_a_tray_finds_its_clique_in_the_lists_order(tmp_path: Path) -> None:
    path = fabric(tmp_path / "fabric.json", trays=11)
    found = imex_run_store.clique_of(str(tmp_path), path, "r01t2")
    assert found is not None
    assert found.trays[:3] == ("r01t1", "r01t2", "r01t3")
    assert found.trays[-1] == "r01t11"
    assert (found.entry_of("r01t11"), found.slurm_nodes[-1]) == ("198.51.100.11", "node11")
    assert imex_run_store.clique_of(str(tmp_path), path, "r09t1") is None


def test_a_clique_without_a_list_is_an_error_of_its_trays_only(tmp_path: Path) -> None:
    path = fabric(tmp_path / "fabric.json", r01t2={"imex_address": None})
    with pytest.raises(FabricFileError, match="imex_address is missing for r01t2"):
        imex_run_store.clique_of(str(tmp_path), path, "r01t1")
    with pytest.raises(FabricFileError, match="cannot be read"):
        imex_run_store.clique_of(str(tmp_path), str(tmp_path / "none.json"), "r01t1")


def test_a_changed_fabric_file_is_read_again(tmp_path: Path) -> None:
    path = fabric(tmp_path / "fabric.json")
    assert len(imex_run_store.clique_of(str(tmp_path), path, "r01t1").trays) == 3  # type: ignore[union-attr]
    os.utime(fabric(tmp_path / "fabric.json", trays=4), ns=(1, 1))
    assert len(imex_run_store.clique_of(str(tmp_path), path, "r01t1").trays) == 4  # type: ignore[union-attr]


def test_rows_are_stored_by_play_and_phase(tmp_path: Path) -> None:
    folder = str(tmp_path)
    imex_run_store.write_row(folder, "play 1", "inspect", "r01/../t1", {"running": True})
    imex_run_store.write_row(folder, "play 2", "inspect", "r01/../t1", {"running": False})
    assert imex_run_store.read_rows(folder, "play 1", "inspect", ["r01/../t1", "t2"]) == {
        "r01/../t1": {"running": True}
    }
    assert imex_run_store.read_rows(folder, "play 1", "start", ["r01/../t1"]) == {}
    imex_run_store.delete_rows(folder, "play 1", ["inspect", "start"], "r01/../t1")
    assert imex_run_store.read_rows(folder, "play 1", "inspect", ["r01/../t1"]) == {}
    assert len(imex_run_store.read_rows(folder, "play 2", "inspect", ["r01/../t1"])) == 1
