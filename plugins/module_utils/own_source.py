# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The source of this collection's own modules, of which programs that stay on a tray are made."""

from __future__ import annotations

import importlib


def read(name: str) -> str | None:
    """The source text of the module of that full name; None where it cannot be had, as from compiled files alone."""
    spec = importlib.import_module(name).__spec__
    get_source = getattr(spec.loader, "get_source", None) if spec is not None else None
    source = get_source(name) if get_source is not None else None
    # Python's loaders give text, Ansible's own gives bytes.
    return source.decode("utf-8") if isinstance(source, bytes) else source
