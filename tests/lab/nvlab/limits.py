# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel limits that many systemds on one kernel need, raised with the first lab and restored with the last one."""
from __future__ import annotations

import json
from pathlib import Path

from . import paths

INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
# A booted host holds about four; there is no cost in a high limit.
WANTED = 4096


def _note() -> Path:
    return paths.STATE / "limits.json"


def raise_limits() -> None:
    """The caller holds the lock on the state directory."""
    before = int(INOTIFY.read_text())
    if before < WANTED:
        _note().write_text(json.dumps({"max_user_instances": before}))
        INOTIFY.write_text(str(WANTED))


def restore_limits() -> None:
    """The caller holds the lock and has seen that no lab is left."""
    if _note().exists():
        INOTIFY.write_text(str(json.loads(_note().read_text())["max_user_instances"]))
        _note().unlink()
