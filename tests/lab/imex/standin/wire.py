# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One event loop for sockets, timers and signals, and connections that carry JSON lines, over TLS where configured."""

from __future__ import annotations

import heapq
import itertools
import json
import selectors
import socket
import time

MAX_LINE = 1 << 20


class Loop:
    """Sleeps in the kernel until a socket, a timer or a signal is ready."""

    def __init__(self):
        self._selector = selectors.DefaultSelector()
        self._timers = []
        self._numbers = itertools.count()
        self.running = True

    def watch(self, sock, events, callback):
        """Call back with the ready events; without events stop watching."""
        known = sock in self._selector.get_map()
        if not events:
            if known:
                self._selector.unregister(sock)
        elif known:
            self._selector.modify(sock, events, callback)
        else:
            self._selector.register(sock, events, callback)

    def later(self, seconds, callback):
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._numbers), callback))

    def run(self):
        while self.running:
            pause = None
            while self._timers and self._timers[0][0] <= time.monotonic():
                heapq.heappop(self._timers)[2]()
            if not self.running:
                return
            if self._timers:
                pause = max(0.0, self._timers[0][0] - time.monotonic())
            for key, events in self._selector.select(pause):
                key.data(events)


def keep_alive(sock):
    """A peer that lost power sends nothing: the kernel probes it every few seconds."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 4)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


class Line:
    """One connection; on_open(line), on_message(line, dict), on_close(line) are its events."""

    def __init__(self, loop, sock, on_message, on_close, on_open=None, tls=None, connecting=False):
        self.loop, self.sock, self.on_message, self.on_close, self.on_open = loop, sock, on_message, on_close, on_open
        self._tls, self._shaking, self._connecting = tls, tls is not None, connecting
        self._out, self._in, self._want = b"", b"", 0
        self.is_open, self.peer = True, None
        sock.setblocking(False)
        if not connecting:
            self._connected()
        self._watch()

    def send(self, message):
        self._out += json.dumps(message).encode() + b"\n"
        self._flush()

    def close(self, notify=False):
        if self.is_open:
            self.is_open = False
            self.loop.watch(self.sock, 0, None)
            self.sock.close()
            if notify:
                self.on_close(self)

    def _connected(self):
        self._connecting = False
        if self.sock.family != socket.AF_UNIX:
            keep_alive(self.sock)
        if self._tls:
            self.sock = self._tls(self.sock)
        elif self.on_open:
            self.on_open(self)

    def _watch(self):
        if not self.is_open:
            return
        events = selectors.EVENT_READ
        if self._connecting or (self._out and not self._shaking) or self._want == selectors.EVENT_WRITE:
            events |= selectors.EVENT_WRITE
        self.loop.watch(self.sock, events, self._ready)

    def _ready(self, events):
        try:
            if self._connecting:
                error = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if error:
                    raise OSError(error, "connect")
                self.loop.watch(self.sock, 0, None)  # TLS puts another socket in its place
                self._connected()
            if self._shaking:
                self._handshake()
            elif events & selectors.EVENT_READ:
                self._receive()
        except (OSError, ValueError):  # TLS errors are OSErrors
            self.close(notify=True)
            return
        self._flush()

    def _handshake(self):
        import ssl

        self._want = 0
        try:
            self.sock.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLWantWriteError:
            self._want = selectors.EVENT_WRITE
            return
        self._shaking = False
        if self.on_open:
            self.on_open(self)
        self._receive()

    def _receive(self):
        while self.is_open:
            try:
                data = self.sock.recv(65536)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                if type(error).__name__ in ("SSLWantReadError", "SSLWantWriteError"):
                    break
                raise
            if not data:
                self.close(notify=True)
                return
            self._in += data
            if len(self._in) > MAX_LINE:
                raise ValueError("line too long")
            while b"\n" in self._in and self.is_open:
                line, _newline, self._in = self._in.partition(b"\n")
                message = json.loads(line)
                if not isinstance(message, dict):
                    raise ValueError("no object")
                self.on_message(self, message)

    def _flush(self):
        if self.is_open and self._out and not self._connecting and not self._shaking:
            try:
                self._out = self._out[self.sock.send(self._out) :]
            except (BlockingIOError, InterruptedError):
                pass
            except OSError as error:
                if type(error).__name__ not in ("SSLWantReadError", "SSLWantWriteError"):
                    self.close(notify=True)
        self._watch()


def listen(loop, address, port, accepted):
    """A listening socket that hands each connection to accepted(socket, address of the other side)."""
    server = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((address, port))
    return _serve(loop, server, accepted)


def listen_unix(loop, path, accepted):
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(path)
    return _serve(loop, server, accepted)


def _serve(loop, server, accepted):
    server.listen(128)
    server.setblocking(False)

    def ready(_events):
        while True:
            try:
                sock, other = server.accept()
            except OSError:
                return
            accepted(sock, other[0] if other else "")

    loop.watch(server, selectors.EVENT_READ, ready)
    return server


def dial(address, port, source=""):
    """A socket on its way to the address; None when that cannot even be tried."""
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        if source:
            sock.bind((source, 0))
        sock.connect((address, port))
    except BlockingIOError:
        pass
    except OSError:
        sock.close()
        return None
    return sock
