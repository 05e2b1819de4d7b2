# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Store the rehearsal that a module returned in a file on the Ansible controller, for the report."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Result
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import storage


def store(path: str, result: Result) -> list[str]:
    """Write the result's rehearsal as JSON, where there is one, also in check mode; returns warnings.

    A failure to write does not fail the task: the files may already be applied.
    """
    rehearsal = result.get("rehearsal")
    if not isinstance(rehearsal, Mapping):
        return []
    try:
        storage.write_atomic(path, json.dumps(rehearsal, indent=1, sort_keys=True).encode() + b"\n")
    except NvlinkError as error:
        return [str(error)]
    return []
