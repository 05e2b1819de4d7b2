# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits of the machine that labs change: recorded and changed by the first lab, restored by the last one."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from . import linux, paths

SYSCTL = Path("/proc/sys")
# There is no cost in a high limit.
WANTED = {
    # A booted host holds about four.
    "fs/inotify/max_user_instances": 4096,
    # Entries of ARP in all network namespaces together: each host of a lab may have one for each other host.
    "net/ipv4/neigh/default/gc_thresh1": 8192,
    "net/ipv4/neigh/default/gc_thresh2": 16384,
    "net/ipv4/neigh/default/gc_thresh3": 32768,
}
# iproute2 makes this directory a mount point when it makes the first namespace, and leaves it so.
NETNS = Path("/run/netns")


def _note() -> Path:
    return paths.STATE / "machine.json"


def _limits() -> dict[Path, int]:
    """The files of the limits that this machine has -> the wanted value. In a container there may be none of ARP."""
    return {SYSCTL / name: wanted for name, wanted in WANTED.items() if (SYSCTL / name).exists()}


def prepare_machine() -> None:
    """The caller holds the lock on the state directory."""
    if _note().exists():
        return
    before = {file.name: int(file.read_text()) for file in _limits()}
    _note().write_text(json.dumps({**before, "netns": NETNS.exists()}))
    for file, wanted in _limits().items():
        if before[file.name] < wanted:
            file.write_text(str(wanted))


def restore_machine() -> None:
    """The caller holds the lock and has checked that no lab is left."""
    if not _note().exists():
        return
    before = json.loads(_note().read_text())
    for file, wanted in _limits().items():
        # The lab of an older checkout noted fewer.
        if file.name in before and int(file.read_text()) == wanted:
            file.write_text(str(before[file.name]))
    if not before["netns"] and NETNS.is_dir() and not any(NETNS.iterdir()):
        with contextlib.suppress(OSError):
            if NETNS.is_mount() or str(NETNS) in linux.mounts_below("/run"):
                linux.umount(str(NETNS))
            NETNS.rmdir()
    _note().unlink()
