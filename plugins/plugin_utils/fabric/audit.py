# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The audit log of a fabric file: one JSON line for each time that it is replaced, who, when, from what to what.

A line is on the disk before the fabric file changes, so that no change lacks one. A line whose sha256_after is no later
line's sha256_before, and not the file's, belongs to a run that ended in between.
"""

from __future__ import annotations

import json
import os
import pwd
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, storage

_MAX_TEXT = 256


def who(awx_user: Any, awx_job: Any) -> dict[str, str]:
    """The user of this process and its host; where they are known, the user of sudo and the user and job of AWX."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    found = {
        "user": user,
        "host": socket.gethostname(),
        "sudo_user": os.environ.get("SUDO_USER"),
        "awx_user": awx_user,
        "awx_job": awx_job,
    }
    return {key: str(value)[:_MAX_TEXT] for key, value in found.items() if value}


def record(
    path: str,
    by: Mapping[str, str],
    now: str,
    what: str,
    before: str | None,
    after: str,
    overrides: Sequence[Mapping[str, Any]],
) -> None:
    """Append a line and wait until it is on the disk; FabricFileError if it cannot be written.

    what: accepted, gates or edited. before, after: sha256 of the fabric file. overrides: the gates that this change
    overrides, as in the fabric file.
    """
    row = {
        **by,
        "when": now,
        "what": what,
        "sha256_before": before,
        "sha256_after": after,
        "overrides": [dict(override) for override in overrides],
    }
    storage.append_line(fabric_file.companion(path, "audit.jsonl"), json.dumps(row, sort_keys=True).encode())
