# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps the rehearsal that a module has returned in a file on the Ansible controller, for the report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import storage


def keep(path: str, result: Mapping[str, Any]) -> list[str]:
    """Write the result's rehearsal, where there was one; what went wrong, as sentences.

    Also in check mode, where it is what was asked for. A failure is none of the run: the files may be applied by now.
    """
    held = result.get("rehearsal")
    if not isinstance(held, Mapping):
        return []
    try:
        storage.write_atomic(path, json.dumps(held, indent=1, sort_keys=True).encode() + b"\n")
    except NvlinkError as error:
        return [str(error)]
    return []
