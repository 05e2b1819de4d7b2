# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inventory sources of rackscale.nvlink.fabric: which files are one, and why one does not parse.

Ansible prints the error of an inventory source as one of many warnings and goes on without its hosts. A playbook that
misses them prints the reason with problems().
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

PLUGIN = "rackscale.nvlink.fabric"
SUFFIXES = (".nvlink.yml", ".nvlink.yaml")

_YAML = (".yml", ".yaml")
_NAMES_PLUGIN = re.compile(rf"^plugin:[ \t]*(['\"]?){re.escape(PLUGIN)}\1[ \t]*(#.*)?$", re.MULTILINE)
# The key stands in the first lines of a file; an inventory of 100,000 hosts is not read for it.
_HEAD = 64 * 1024


def is_source(path: str) -> bool:
    """Whether a file is an inventory source of this plugin: by its name, or any YAML file that names the plugin."""
    if path.endswith(SUFFIXES):
        return True
    # Ansible asks for each file of a folder, a FIFO too.
    if not path.endswith(_YAML) or not os.path.isfile(path):
        return False
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return _NAMES_PLUGIN.search(file.read(_HEAD)) is not None
    except OSError:
        return False


def problems(given: Iterable[str], loader: Any) -> Iterator[str]:
    """Why inventory sources do not parse, a sentence each: those that do not exist, and those of this plugin.

    given: the variable ansible_inventory_sources, files, folders and host lists. loader: Ansible's DataLoader, which
    has the vault passwords. Each source of this plugin is parsed again, so its live sources are queried again.
    """
    # Imported here, since only a playbook that fails needs them.
    from ansible.errors import AnsibleError
    from ansible.inventory.data import InventoryData
    from ansible.plugins.loader import inventory_loader

    for path in _files(given):
        if not os.path.exists(path):
            yield f"{path}: does not exist; name an inventory that does with -i"
        elif is_source(path):
            try:
                inventory_loader.get(PLUGIN).parse(InventoryData(), loader, path, cache=True)
            except AnsibleError as error:
                # Ansible adds lines with the place in the file to some.
                yield " ".join(str(error).split())


def _files(given: Iterable[str]) -> Iterator[str]:
    for source in map(str, given):
        if os.path.isdir(source):
            yield from filter(is_source, (os.path.join(source, name) for name in sorted(os.listdir(source))))
        elif "," not in source:
            yield source
