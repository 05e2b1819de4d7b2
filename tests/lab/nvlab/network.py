# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab's network: a namespace of its own with one bridge, no way out of it."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from . import linux, paths, tools
from .addresses import BRIDGE_ADDRESS, PREFIX
from .errors import LabError

BRIDGE = "lab0"


def file_of(name: str) -> Path:
    return Path("/run/netns") / paths.netns_of(name)


def create(name: str) -> None:
    netns = paths.netns_of(name)
    tools.call(["ip", "netns", "add", netns], "making the network namespace")
    ip = ["ip", "-n", netns]
    tools.call([*ip, "link", "set", "lo", "up"], "starting the network")
    tools.call([*ip, "link", "add", BRIDGE, "type", "bridge", "stp_state", "0", "forward_delay", "0"], "the bridge")
    tools.call([*ip, "addr", "add", f"{BRIDGE_ADDRESS}/{PREFIX}", "dev", BRIDGE], "the bridge's address")
    tools.call([*ip, "link", "set", BRIDGE, "up"], "the bridge")


def has_link_to(name: str, host: str) -> bool:
    """Whether the bridge still has its end of a host's cable; the kernel takes it away some time after the host."""
    return f" vb-{host}@" in tools.call(["ip", "-n", paths.netns_of(name), "-o", "link"], "looking at the network")


def remove(name: str) -> None:
    """Idempotent. A process that still has a socket in the namespace keeps its memory, but nothing that has a name."""
    target = file_of(name)
    if target.exists():
        netns = paths.netns_of(name)
        # An ssh connection of another process keeps the namespace alive without its name: leave it no bridge.
        with contextlib.suppress(LabError):
            tools.call(["ip", "-n", netns, "link", "del", BRIDGE], "removing the bridge")
        # A crash between making the file and mounting on it leaves a file that is not mounted.
        with contextlib.suppress(OSError):
            linux.umount(str(target))
        target.unlink(missing_ok=True)


def connect(netns_file: str, address: str, port: int, timeout: float) -> socket.socket:
    """A TCP connection made inside the namespace; only this thread is in it, and only for the time of the call."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        inside = os.open(netns_file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.setns(inside, os.CLONE_NEWNET)
        finally:
            os.close(inside)
        try:
            return socket.create_connection((address, port), timeout)
        finally:
            os.setns(home, os.CLONE_NEWNET)
    finally:
        os.close(home)
