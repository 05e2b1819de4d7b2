# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits of the machine that labs change: recorded and changed by the first lab, restored by the last one."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from . import linux, paths

INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
# A booted host holds about four; there is no cost in a high limit.
WANTED = 4096
# iproute2 makes this directory a mount point when it makes the first namespace, and leaves it so.
NETNS = Path("/run/netns")


def _note() -> Path:
    return paths.STATE / "machine.json"


def prepare_machine() -> None:
    """The caller holds the lock on the state directory."""
    if _note().exists():
        return
    before = int(INOTIFY.read_text())
    _note().write_text(json.dumps({"max_user_instances": before, "netns": NETNS.exists()}))
    if before < WANTED:
        INOTIFY.write_text(str(WANTED))


def restore_machine() -> None:
    """The caller holds the lock and has checked that no lab is left."""
    if not _note().exists():
        return
    before = json.loads(_note().read_text())
    if int(INOTIFY.read_text()) == WANTED:
        INOTIFY.write_text(str(before["max_user_instances"]))
    if not before["netns"] and NETNS.is_dir() and not any(NETNS.iterdir()):
        with contextlib.suppress(OSError):
            if NETNS.is_mount() or str(NETNS) in linux.mounts_below("/run"):
                linux.umount(str(NETNS))
            NETNS.rmdir()
    _note().unlink()
