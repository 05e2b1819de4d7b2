# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read what controller.py evaluates: the running Ansible, its settings, installed collections and libraries."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os

import yaml
from ansible import constants, context
from ansible.release import __version__ as core
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor import matrix
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor.controller import CONFIG, Controller


def read() -> Controller:
    """The controller as this run has it, with the options of its command line."""
    installed = {
        **{name: collection_version(name) for name in matrix.COLLECTIONS},
        **{name: _library(name) for name in matrix.LIBRARIES},
        # It is imported by another name.
        "ansible-core": core,
    }
    forks = context.CLIARGS.get("forks") or constants.DEFAULT_FORKS
    unset = [name for name in CONFIG if not constants.config.get_config_value(name)]
    return Controller(installed, unset, forks, os.cpu_count() or 1)


def collection_version(name: str) -> str | None:
    """Its version; None where it is not installed, "" where it has no version, as a checkout may."""
    try:
        spec = importlib.util.find_spec(f"ansible_collections.{name}")
    except ImportError:
        return None
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for file in ("MANIFEST.json", "galaxy.yml"):
            try:
                with open(os.path.join(folder, file), encoding="utf-8") as text:
                    document = json.load(text)["collection_info"] if file.endswith("json") else yaml.safe_load(text)
                return str(document["version"])
            except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
                continue
    return "" if spec else None


def has(library: str) -> bool:
    return importlib.util.find_spec(library) is not None


def _library(name: str) -> str | None:
    if not has(name):
        return None
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
