# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the inventory plugin on a real InventoryData with its documented options, without Ansible's plugin loader."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
from ansible import constants
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.plugin_docs import read_docstring
from ansible.plugins.loader import fragment_loader
from ansible.utils.plugin_docs import add_fragments
from ansible_collections.rackscale.nvlink.plugins.inventory import fabric

NAME = "rackscale.nvlink.fabric"


class Fragments:
    """Ansible's own documentation fragments and this collection's, for which Ansible's loader needs a full setup."""

    def get(self, name: str) -> Any:
        namespace, _dot, own = name.rpartition(".")
        if namespace != "rackscale.nvlink":
            return fragment_loader.get(name)
        found = importlib.import_module(f"ansible_collections.rackscale.nvlink.plugins.doc_fragments.{own}")
        found.ModuleDocFragment.ansible_name = name
        return found.ModuleDocFragment


@pytest.fixture(scope="session", autouse=True)
def options() -> dict[str, Any]:
    """The plugin's documented options, known to Ansible's configuration as its loader would make them known."""
    documentation = read_docstring(fabric.__file__)["doc"]
    add_fragments(documentation, fabric.__file__, fragment_loader=Fragments())
    constants.config.initialize_plugin_configuration_definitions("inventory", NAME, documentation["options"])
    found: dict[str, Any] = documentation["options"]
    return found


@pytest.fixture
def new_plugin() -> Callable[[], fabric.InventoryModule]:
    def make() -> fabric.InventoryModule:
        plugin = fabric.InventoryModule()
        plugin._load_name = plugin.ansible_name = NAME
        plugin._redirected_names = [NAME]
        return plugin

    return make


Parse = Callable[..., InventoryData]


@pytest.fixture
def parse(tmp_path: Path, new_plugin: Callable[[], fabric.InventoryModule]) -> Parse:
    """parse(text, cache=True, groups=()) -> the inventory of a file with this text next to the test's files.

    groups: those of an inventory file that Ansible has parsed before.
    """

    def run(text: str, cache: bool = True, groups: Collection[str] = ()) -> InventoryData:
        path = tmp_path / "test.nvlink.yml"
        path.write_text(text)
        inventory, plugin = InventoryData(), new_plugin()
        for group in groups:
            inventory.add_group(group)
        plugin.parse(inventory, DataLoader(), str(path), cache)
        if plugin.get_option("cache"):
            plugin.update_cache_if_changed()
        inventory.reconcile_inventory()
        return inventory

    return run
