# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Connections of ssh to gateways, one to each, over which the connections to the trays behind it are forwarded.

sshd counts a forwarded connection neither as a start of a connection (MaxStartups) nor as a session (MaxSessions). What
passes through it is encrypted between this controller and the tray.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import ExitStack, asynccontextmanager

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import fanout

# As in ssh's ProxyJump; neither part can begin with a dash, which would make it an option of ssh.
_GATEWAY = re.compile(
    r"(?:([A-Za-z0-9_][A-Za-z0-9._-]{0,63})@)?([A-Za-z0-9][A-Za-z0-9._-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\])(?::([0-9]{1,5}))?"
)
# For what ssh to a gateway still prints after its end.
_LAST_WORDS_SECONDS = 0.2
# In ssh's standard error where a gateway does not connect to a tray; the gateway's reason is not in it.
_NOT_FORWARDED = "session open refused by peer"


def is_gateway(text: object) -> bool:
    """Whether a text is a gateway, as in admin@gw1:22."""
    match = _GATEWAY.fullmatch(text) if isinstance(text, str) else None
    return match is not None and 0 < int(match[3] or 22) < 65536


@asynccontextmanager
async def connected(
    gateways: Iterable[str], ssh: Sequence[str], limit: int, seconds: float
) -> AsyncIterator[dict[str, Gateway]]:
    """Gateway -> the connection to it, open or without use. The connections end with the context.

    gateways: as is_gateway() accepts them. ssh: the program with its options. limit, seconds: how many connect at a
    time, and how long each may take.
    """
    names = dict.fromkeys(gateways)
    with ExitStack() as stack:
        # Not in TMPDIR, since the path of a socket has at most 108 bytes. Only this user can enter it.
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="nvlink-ssh-", dir="/tmp")) if names else ""
        found = {name: Gateway(name, ssh, f"{folder}/{number}") for number, name in enumerate(names)}
        try:
            await fanout.each(found.values(), limit, lambda gateway: gateway.open(seconds))
            yield found
        finally:
            await asyncio.gather(*(gateway.close() for gateway in found.values()))


class Gateway:
    """The connection to one gateway. failed: how ssh ended where there is none; None for an open one."""

    def __init__(self, name: str, ssh: Sequence[str], socket: str) -> None:
        self.name, self._ssh, self._socket = name, ssh, socket
        self._master: fanout.Program | None = None
        self.failed: fanout.Ended | None = None

    async def open(self, seconds: float) -> None:
        """Connect; afterwards it can be used, or has failed."""
        user, host, port = _GATEWAY.fullmatch(self.name).groups()  # type: ignore[union-attr]
        own = ["-N", "-oControlMaster=yes", "-oControlPersist=no", "-oClearAllForwardings=yes", "-S", self._socket]
        to = [*(["-l", user] if user else []), *(["-p", port] if port else []), "--", host.strip("[]")]
        # The shell in the background ends ssh when this process is killed: its standard input ends then.
        watch = 'exec 3<&0; (read -r _ <&3; kill $$) & exec "$@" 3<&- </dev/null'
        # The first value of an option counts.
        self._master = await fanout.start(["/bin/sh", "-c", watch, "sh", self._ssh[0], *own, *self._ssh[1:], *to])
        ends = time.monotonic() + seconds
        # ssh makes its socket once it has logged in, complete under this name.
        while not os.path.exists(self._socket):
            if self._master.rc is not None or time.monotonic() > ends:
                await self._master.wait(_LAST_WORDS_SECONDS)
                self.failed = self._master.ended()
                return
            await asyncio.sleep(0.02)

    async def close(self) -> None:
        """End the connection."""
        if self._master is not None:
            await self._master.end()

    def problem(self, errors: str) -> str:
        """Why the gateway forwards no connection to a tray whose ssh failed with these errors; empty if it does."""
        if self._master is None or self._master.rc is not None:
            return f"its gateway {self.name} closed the connection"
        return f"its gateway {self.name} cannot connect to it" if _NOT_FORWARDED in errors.lower() else ""

    def client_options(self) -> list[str]:
        """Options of ssh to a tray behind this gateway: as ProxyJump, through this connection and no other."""
        # Without its socket it must fail, not connect once more for each tray.
        words = [self._ssh[0], "-F/dev/null", "-S", self._socket, "-oProxyCommand=false"]
        forward = f"{shlex.join(words).replace('%', '%%')} -W '[%h]:%p' -- gateway"
        return [f"-oProxyCommand={forward}", "-oProxyUseFdpass=no"]
