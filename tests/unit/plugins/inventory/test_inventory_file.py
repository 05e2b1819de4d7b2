# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import inventory_loader
from ansible_collections.rackscale.nvlink.plugins.inventory.fabric import InventoryModule
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import inventory_file

HEAD = "plugin: rackscale.nvlink.fabric\nsources: [fabric_file]\n"


@pytest.fixture(autouse=True)
def plugins(monkeypatch: pytest.MonkeyPatch, new_plugin: Callable[[], InventoryModule]) -> None:
    monkeypatch.setattr(inventory_loader, "get", lambda name: new_plugin())


def test_a_source_that_does_not_parse_is_explained_in_one_sentence(tmp_path: Path) -> None:
    sound, broken, other = (tmp_path / name for name in ("sim.nvlink.yml", "cluster.yml", "hosts.yml"))
    sound.write_text("plugin: rackscale.nvlink.fabric\nsources: [simulation]\nsimulation: {racks: 1}\n")
    broken.write_text(f"{HEAD}fabric_file: lost.json\n")
    other.write_text("all: {hosts: {a: {}}}\n")
    lost = tmp_path / "lost.nvlink.yml"
    given = map(str, (sound, broken, other, lost, "a,b,"))
    found = [*inventory_file.problems(given, DataLoader())]
    assert found == [
        f"{tmp_path}/lost.json: does not exist; run discover and accept first, with -i hosts.yml alone, or correct the"
        " path",
        f"{lost}: does not exist; name an inventory that does with -i",
    ]


def test_the_sources_in_a_folder_are_explained(tmp_path: Path) -> None:
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "cluster.nvlink.yml").write_text(HEAD + "fabric_fil: x.json\n")
    (tmp_path / "other.yml").write_text("plugin: rackscale.nvlink.fabric\n")
    (found, also) = inventory_file.problems([str(tmp_path)], DataLoader())
    assert found == f"{tmp_path}/cluster.nvlink.yml: 'fabric_fil' is not a known option; did you mean fabric_file?"
    assert also.startswith(f"{tmp_path}/other.yml: sources: is missing; ")
