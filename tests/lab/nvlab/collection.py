# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection's own code that the lab uses: the simulated hardware. Works in a plain checkout without Ansible."""

from __future__ import annotations

import functools
import importlib
import sys
import types
from typing import Any

from .paths import REPOSITORY

PACKAGE = "ansible_collections.rackscale.nvlink"


def simulation() -> Any:
    """plugins/plugin_utils/simulation.py of this checkout."""
    return _module("plugins.plugin_utils.simulation")


def standin_text() -> Any:
    """tests/lab/nvml/standin_text.py of this checkout: the file that the NVML stand-in reads."""
    return _module("tests.lab.nvml.standin_text")


def constants() -> Any:
    """plugins/module_utils/gpu/constants.py of this checkout: NVML's values."""
    return _module("plugins.module_utils.gpu.constants")


def links() -> Any:
    """plugins/module_utils/gpu/links.py of this checkout: NVML's fields of NVLinks."""
    return _module("plugins.module_utils.gpu.links")


@functools.cache
def _module(module: str) -> Any:
    full_name = f"{PACKAGE}.{module}"
    try:
        return importlib.import_module(full_name)
    except ModuleNotFoundError:
        # This Python has no collection on its path, as before the first `make venv`.
        for name, where in (
            ("ansible_collections", []),
            ("ansible_collections.rackscale", []),
            (PACKAGE, [REPOSITORY]),
        ):
            if name not in sys.modules:
                package = types.ModuleType(name)
                package.__path__ = [str(path) for path in where]
                sys.modules[name] = package
        return importlib.import_module(full_name)
