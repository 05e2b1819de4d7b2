# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real HTTP and HTTPS servers on 127.0.0.1 with correct and faulty behaviour, and certificates for them."""

from __future__ import annotations

import datetime
import ipaddress
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import http
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def without_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset all proxies, and shorten the pause between attempts."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(http, "PAUSE", 0.02)


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
    """A CA and what it signs, as PEM files in a folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder, self._name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"test {name}")])
        built = self._builder(self._subject, self._key).add_extension(x509.BasicConstraints(True, None), critical=True)
        self.ca_file = self._write(f"{name}.pem", built.sign(self._key, hashes.SHA256()))

    def issue(self, name: str) -> tuple[Path, Path]:
        """(certificate, key) of a server on 127.0.0.1, or of a client."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        certificate = self._builder(subject, key).add_extension(names, critical=False)
        text = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        key_file = self._folder / f"{self._name}-{name}.key"
        key_file.write_bytes(text)
        return self._write(f"{self._name}-{name}.pem", certificate.sign(self._key, hashes.SHA256())), key_file

    def server_context(self, client_certificate: bool = False) -> ssl.SSLContext:
        """The TLS context of a server with a certificate of this CA."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.issue("server"))
        if client_certificate:
            # Under TLS 1.3 a client learns of its refusal only when it reads the answer.
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.ca_file)
        return context

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.timezone.utc)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )

    def _write(self, name: str, certificate: x509.Certificate) -> Path:
        path = self._folder / name
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return path
