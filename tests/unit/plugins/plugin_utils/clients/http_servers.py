# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real HTTP and HTTPS servers on 127.0.0.1 with correct and faulty behaviour, and certificates for them."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.tests.lab.nvlab.kubernetes import certificates


class Request(NamedTuple):
    """One request that a server received; names of headers in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


class Reply:
    """Writes the response to a request; a responder may also write to `raw` and wait with `pause`."""

    def __init__(self, handler: BaseHTTPRequestHandler, stopped: threading.Event) -> None:
        self._handler, self._stopped, self.raw = handler, stopped, handler.wfile
        self._closes = handler.close_connection
        self.port: int = handler.client_address[1]
        """The client's port, the same for all requests of one connection."""

    def send(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Send a complete response; an underscore in a header's name becomes a dash."""
        self._handler.send_response(status)
        for name, value in headers.items():
            self._handler.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self._handler.send_header("Content-Length", str(len(body)))
        if self._closes:
            # Else a client may send its next request on a connection whose end it has not seen yet.
            self._handler.send_header("Connection", "close")
        self._handler.end_headers()
        self.raw.write(body)

    def json(self, document: Any, status: int = 200, **headers: str) -> None:
        self.send(status, json.dumps(document).encode(), Content_Type="application/json", **headers)

    def pause(self, seconds: float) -> bool:
        """Wait; False once the test is over."""
        return not self._stopped.wait(seconds)


Responder = Callable[[Request, Reply], None]


class Server(NamedTuple):
    """A running server: its address without a slash at the end, and the requests received so far."""

    url: str
    requests: list[Request]


@contextmanager
def served(respond: Responder, tls: ssl.SSLContext | None = None, keep: bool = False) -> Iterator[Server]:
    """Run a server on a free port of 127.0.0.1 during the with block; `keep`: connections stay open."""
    requests: list[Request] = []
    stopped = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.command, self.path, headers, body)
            requests.append(request)
            self.close_connection = not keep
            # Some tests close the connection as the client.
            with suppress(OSError):
                respond(request, Reply(self, stopped))

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass

        def get_request(self) -> Any:
            sock, where = super().get_request()
            if tls:
                sock.settimeout(5)
                sock = tls.wrap_socket(sock, server_side=True)
            return sock, where

    server = Quiet(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield Server(f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}", requests)
    finally:
        stopped.set()
        server.shutdown()
        server.server_close()
        thread.join()


class Authority:
    """A CA and what it signs, as PEM files in a folder below another."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._pki = folder / name
        certificates.make(self._pki, "127.0.0.1", "127.0.0.1")
        self.ca_file, self.client = self._pki / "ca.crt", (self._pki / "admin.crt", self._pki / "admin.key")

    def server_context(self, client_certificate: bool = False) -> ssl.SSLContext:
        """The TLS context of a server on 127.0.0.1 with a certificate of this CA."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._pki / "apiserver.crt", self._pki / "apiserver.key")
        if client_certificate:
            # Under TLS 1.3 a client learns of its refusal only when it reads the answer.
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.ca_file)
        return context
