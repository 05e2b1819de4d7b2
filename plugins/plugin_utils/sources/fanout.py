# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run programs concurrently: the output of each is bounded, each has a deadline, and none outlives the run.

Every program has a session of its own, so it cannot prompt on the controller's terminal or receive its signals, and one
killpg ends it with its children.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar, cast

# Bytes that are kept of one program: the first of its output, the last of its errors.
MAX_OUTPUT = 1024 * 1024
MAX_ERRORS = 8 * 1024
# Seconds for a killed program to disappear.
GRACE = 2.0

Item = TypeVar("Item")


class Ended(NamedTuple):
    """How a program ended: rc None if it did not end in time, negative for a signal."""

    rc: int | None
    output: bytes
    errors: str


class Program(asyncio.SubprocessProtocol):
    """A running program; one that prints more than MAX_OUTPUT is killed."""

    def __init__(self) -> None:
        self._output, self._errors = bytearray(), bytearray()
        self._finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def rc(self) -> int | None:
        """The exit status, None while it runs."""
        return self._transport.get_returncode()

    def ended(self) -> Ended:
        """How it ended, or what it has printed so far."""
        return Ended(self.rc, bytes(self._output), self._errors.decode("utf-8", "replace"))

    def send(self, data: bytes) -> None:
        """Write its whole standard input."""
        stdin = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))
        stdin.write(data)
        stdin.write_eof()

    async def wait(self, seconds: float) -> None:
        """Wait until it has ended and its output is read, or for these seconds."""
        await asyncio.wait([self._finished], timeout=seconds)

    async def end(self) -> None:
        """Kill what still runs of it."""
        if not self._finished.done():
            self._kill()
            await self.wait(GRACE)
        self._transport.close()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._transport.get_pid(), signal.SIGKILL)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._errors += data
            del self._errors[:-MAX_ERRORS]
        elif len(self._output) <= MAX_OUTPUT:
            self._output += data
            if len(self._output) > MAX_OUTPUT:
                self._kill()

    def connection_lost(self, exc: Exception | None) -> None:
        self._finished.set_result(None)


async def start(argv: Sequence[str]) -> Program:
    """Start a program with a pipe as its standard input; OSError if it cannot be started. The caller ends it."""
    loop = asyncio.get_running_loop()
    _transport, program = await loop.subprocess_exec(Program, *argv, start_new_session=True)
    return program


async def run(argv: Sequence[str], sent: bytes, seconds: float) -> Ended:
    """Run a program for at most these seconds; sent: its standard input."""
    program = await start(argv)
    try:
        program.send(sent)
        await program.wait(seconds)
        return program.ended()
    finally:
        await program.end()


async def each(items: Iterable[Item], limit: int, function: Callable[[Item], Awaitable[None]]) -> None:
    """Call a function for each item, at most `limit` at a time; the first exception ends the others."""
    waiting = iter(items)

    async def work(waiting: Iterator[Item]) -> None:
        for item in waiting:
            await function(item)

    workers = [asyncio.ensure_future(work(waiting)) for _worker in range(limit)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)
