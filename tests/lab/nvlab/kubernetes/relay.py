# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A relay into a lab's network for programs outside it: loopback ports that forward to ports of the lab.

Ansible, Molecule and helm then reach the API server and the registry without a network namespace of their own; the
server's certificate is good for 127.0.0.1 too. Run as a file: ``relay.py DIRECTORY NETNS_FILE ADDRESS NAME=PORT ...``;
it writes {NAME: its port} to DIRECTORY/relay.json.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from nvlab import network, state

FILE = "relay.json"
CHUNK = 1 << 16


def ports(directory: Path) -> dict[str, int]:
    """NAME -> port of this machine's loopback; empty while the relay starts."""
    try:
        found: dict[str, int] = json.loads((directory / FILE).read_text())
    except FileNotFoundError:
        return {}
    return found


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await source.read(CHUNK):
            target.write(chunk)
            await target.drain()
    with contextlib.suppress(OSError, RuntimeError):
        target.write_eof()


async def _lead(
    netns: str, address: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    try:
        # The thread of the pool is inside the namespace for the time of this call alone.
        inside = await asyncio.to_thread(network.connect, netns, address, port, 10.0)
    except OSError:
        writer.transport.abort()
        return
    inside.settimeout(None)
    inner_reader, inner_writer = await asyncio.open_connection(sock=inside)
    await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))
    for stream in (writer, inner_writer):
        stream.close()


async def _serve(directory: Path, netns: str, address: str, wanted: dict[str, int]) -> None:
    servers = {
        name: await asyncio.start_server(partial(_lead, netns, address, port), "127.0.0.1", 0)
        for name, port in wanted.items()
    }
    found = {name: server.sockets[0].getsockname()[1] for name, server in servers.items()}
    state.write_atomically(directory / FILE, json.dumps(found) + "\n")
    await asyncio.gather(*(server.serve_forever() for server in servers.values()))


if __name__ == "__main__":
    names = dict(word.split("=") for word in sys.argv[4:])
    ways = {name: int(port) for name, port in names.items()}
    asyncio.run(_serve(Path(sys.argv[1]), sys.argv[2], sys.argv[3], ways))
