# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An HTTP client with a total timeout, a limit on the size of an answer, and error messages without secrets.

The timeout of a request covers all waits for data, also of the status line, the headers and a proxy, so a server that
sends one byte at a time cannot extend it. Only name resolution has its own timeout (resolv.conf).
A login that the server no longer accepts (HTTP 401) is read again once for each request, where its config can.

Ansible's own Request offers neither such a timeout nor a limit on the size, so only its make_context is used, for the
CA certificates that Ansible trusts on each platform; proxies come from the environment as there. ~/.netrc is not read.
"""

from __future__ import annotations

import base64
import functools
import http.client
import io
import json
import re
import socket
import ssl
import tempfile
import threading
import time
import urllib.parse
import urllib.request
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from email.message import Message
from typing import Any, NoReturn

from ansible.module_utils.urls import make_context
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients.login_child import redacted
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options, OutageError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import (
    TooManyValuesError,
    json_document,
    sentence,
)

# Options of every HTTP source; see the documentation fragments.
OPTIONS = (
    "token",
    "token_file",
    "username",
    "password",
    "password_file",
    "ca_file",
    "client_cert",
    "client_key",
    "validate_certs",
    "timeout",
    "deadline",
    "max_bytes",
)
MAX_BYTES = 64 * 1024 * 1024
MAX_REDIRECTS = 5
MAX_ATTEMPTS = 3
MAX_REASON = 16 * 1024
"""Bytes of a service's error text that are searched for secrets, before it is cut to a sentence."""
PAUSE = 0.5
"""Seconds before the second attempt; twice as many before the third."""

_CHUNK = 256 * 1024
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_TRANSIENT = frozenset((429, 500, 502, 503, 504))
_URL = re.compile(r"https?://[!-~]+", re.IGNORECASE)
_HEADER_VALUE = re.compile(r"[ -~]+")


class HttpError(OutageError):
    """A request failed: one sentence with the endpoint, the problem and the remedy, without secrets."""


@dataclass(frozen=True)
class ClientConfig:
    """Credentials, certificates and limits of a client.

    headers: credentials, sent to this endpoint only. ca_data: PEM text; client_pem: PEM text of a certificate and its
    key. client_cert, client_key: PEM files. server_name: the name in the server's certificate, where the URL has
    another. proxy: an http proxy instead of the environment's. timeout: seconds for one request with its redirects.
    deadline: seconds for all requests together, from the creation of the client. max_bytes: limit of one answer.
    renew: reads the login again in so many seconds. shows_reason: whether the plain text of a failed request is part of
    the message, for services that report their errors so.
    """

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False, compare=False)
    ca_file: str | None = None
    ca_data: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    client_pem: str | None = field(default=None, repr=False)
    validate_certs: bool = True
    server_name: str | None = None
    proxy: str | None = field(default=None, repr=False)
    timeout: float = 30
    deadline: float = 120
    max_bytes: int = MAX_BYTES
    renew: Callable[[float], ClientConfig] | None = field(default=None, repr=False, compare=False)
    shows_reason: bool = False


@dataclass(frozen=True)
class Answer:
    """One answer: status, headers, complete body, and its URL after redirects."""

    status: int
    headers: Message
    body: bytes | bytearray
    url: str


def client_config(options: Options, header: str = "Authorization", prefix: str = "Bearer") -> ClientConfig:
    """The client config from the options of a source (the keys of OPTIONS); SourceError for an invalid one."""
    token = options.secret_or_file("token")
    username, password = options.text("username"), options.secret_or_file("password")
    if token and username:
        raise options.wrong("username", "and a token are both set; keep one")
    if (username is None) != (password is None):
        raise options.wrong("username", "and a password or password_file must be set together")
    if "client_key" in options and "client_cert" not in options:
        raise options.wrong("client_key", "is set without client_cert; set the certificate too")
    return ClientConfig(
        **credentials(options, token, username, password, header, prefix),
        ca_file=options.path("ca_file"),
        client_cert=options.path("client_cert"),
        client_key=options.path("client_key"),
        validate_certs=options.flag("validate_certs", True),
        **limits(options),
    )


def limits(options: Options) -> dict[str, Any]:
    """timeout, deadline and max_bytes for ClientConfig."""
    return {
        "timeout": options.number("timeout", ClientConfig.timeout, 0.1, 3600),
        "deadline": options.number("deadline", ClientConfig.deadline, 0.1, 86400),
        "max_bytes": options.whole("max_bytes", MAX_BYTES, 1024, 2**31),
    }


def credentials(
    options: Options, token: str | None, username: str | None, password: str | None, header: str, prefix: str
) -> dict[str, Any]:
    """headers and secrets for ClientConfig."""
    if token:
        value, secret = f"{prefix} {token}".strip(), token
    elif username:
        if ":" in username:
            raise options.wrong(
                "username", "contains a colon, which is not allowed in Basic authentication; use another"
            )
        secret = password or ""
        header, value = "Authorization", "Basic " + base64.b64encode(f"{username}:{secret}".encode()).decode()
    else:
        return {}
    if not _HEADER_VALUE.fullmatch(value):
        raise options.wrong("token", "is not valid in an HTTP header; write it on one line, in printable ASCII")
    return {"headers": {header: value}, "secrets": tuple({secret, value, value.rpartition(" ")[2]})}


def endpoint(options: Options, key: str, meaning: str) -> str:
    """The URL in an option; SourceError if it is invalid or contains a password, which errors would show."""
    url = options.needed(key, meaning).strip()
    try:
        parts = urllib.parse.urlsplit(url)
        holds_password, usable = "@" in parts.netloc, bool(parts.hostname) and parts.port != 0
    except ValueError:
        holds_password, usable = False, False
    if holds_password:
        raise options.wrong(key, "contains a user name or password; use username with password_file, or token_file")
    if not (usable and _URL.fullmatch(url)):
        raise options.wrong(key, f"is not a valid http or https address; write {meaning}")
    return url


class Client:
    """A client of one endpoint; every error is an HttpError that starts with the name of the source."""

    def __init__(self, source: str, config: ClientConfig) -> None:
        self._source, self._session = source, _Session(source, config)
        self._ends = time.monotonic() + config.deadline
        self._renewing = threading.Lock()

    def get(self, url: str, allowed: Collection[int] = (), accept: str = "application/json") -> Answer:
        """Send a GET, again after a transient failure; any status but 200 and those in `allowed` is an error."""
        return self._with_retries(lambda: self._follow(url, accept), url, allowed, MAX_ATTEMPTS)

    def post(self, url: str, document: Any, allowed: Collection[int] = ()) -> Answer:
        """Send a POST with a JSON document; once, since a POST may not be idempotent."""
        return self.send("POST", url, document, allowed)

    def send(
        self,
        method: str,
        url: str,
        document: Any,
        allowed: Collection[int] = (),
        kind: str = "application/json",
        repeatable: bool = False,
        accept: str = "*/*",
    ) -> Answer:
        """Send a request that changes something; kind: the Content-Type of the document.

        It is sent once, unless it is repeatable (idempotent): then it is retried as a GET is, over a connection that
        stays open for the next request.
        """
        body = None if document is None else json.dumps(document).encode()
        headers = {} if body is None else {"Content-Type": kind}

        def attempt() -> Answer:
            ends = time.monotonic() + self._session.config.timeout
            answer = self._exchange(method, url, ends, accept, body, headers, keep=repeatable)
            if answer.status in _REDIRECTS:
                raise RequestError(f"redirects a {method}", "set the address of the target")
            return answer

        return self._with_retries(attempt, url, allowed, MAX_ATTEMPTS if repeatable else 1)

    def json(self, answer: Answer) -> Any:
        """The JSON document in an answer."""
        try:
            return self.parse(answer)
        except RecursionError:
            self.fail(answer.url, "returned JSON that is nested too deeply", "check which service answers there")
        except ValueError:
            size = count(len(answer.body), "byte")
            self.fail(answer.url, f"returned {size} that are not a JSON document", "check which service answers there")

    def parse(self, answer: Answer) -> Any:
        """As json(), but ValueError or RecursionError for an answer that is no JSON document."""
        try:
            return json_document(answer.body, self._session.config.max_bytes)
        except TooManyValuesError as error:
            self.fail(answer.url, f"returned a document that {error}", "request smaller pages, or raise max_bytes")

    def left(self) -> float:
        """Seconds until the deadline, negative after it."""
        return self._ends - time.monotonic()

    def wait(self, seconds: float, url: str, doing: str) -> None:
        """Sleep; an error at once if the deadline is earlier. doing: what is still not done, for the message."""
        if self.left() <= seconds:
            remedy = "raise deadline, or check the server's log"
            self.fail(url, f"{doing} after {self._session.config.deadline:g} seconds", remedy)
        time.sleep(seconds)

    def fail(self, url: str, what: str, remedy: str) -> NoReturn:
        """Raise an HttpError about an endpoint, without the query of its URL (it may hold keys) and known secrets."""
        raise HttpError(self._without_secrets(f"{self._source}: {address(url)} {what}; {remedy}")) from None

    def reason(self, answer: Answer) -> str:
        """The plain text of an answer as the end of a sentence, without secrets; empty where it has none."""
        if answer.headers.get_content_type() != "text/plain":
            return ""
        # Secrets first: of one that is cut off, the rest would stay.
        text = self._without_secrets(answer.body[:MAX_REASON].decode("utf-8", "replace"))
        return sentence(redacted(text).replace(";", ","), 300)

    def _without_secrets(self, text: str) -> str:
        for secret in self._session.config.secrets:
            if len(secret) >= 4:
                text = text.replace(secret, "***").replace(urllib.parse.quote(secret, safe=""), "***")
        return text

    def _fail(self, url: str, error: RequestError, attempts: int = 1) -> NoReturn:
        again = f", {attempts} times" if attempts > 1 else ""
        self.fail(error.url or url, f"{error.what}{again}", error.remedy)

    def _with_retries(self, send: Callable[[], Answer], url: str, allowed: Collection[int], attempts: int) -> Answer:
        """Send a request, at most so many times while the failure is transient."""
        for attempt in range(1, attempts + 1):
            try:
                return self._check_status(send(), allowed)
            except RequestError as error:
                pause = max(PAUSE * 2 ** (attempt - 1), error.pause)
                if not error.transient or attempt == attempts or self.left() <= pause:
                    self._fail(url, error, attempt)
                time.sleep(pause)
        raise AssertionError("unreachable")

    def _follow(self, url: str, accept: str) -> Answer:
        """Send a GET and follow its redirects, all within one timeout."""
        ends = time.monotonic() + self._session.config.timeout
        visited = {url}
        while True:
            answer = self._exchange("GET", url, ends, accept)
            if answer.status not in _REDIRECTS:
                return answer
            target = urllib.parse.urljoin(url, str(answer.headers.get("Location") or ""))
            if not same_endpoint(url, target):
                raise RequestError("redirects to another endpoint", "set the address of the target", url=url)
            if target in visited:
                raise RequestError(
                    "redirects in a loop", "correct the address, or the redirects of the server", url=url
                )
            if len(visited) > MAX_REDIRECTS:
                raise RequestError(f"redirects more than {MAX_REDIRECTS} times", "set the final address", url=url)
            visited.add(target)
            url = target

    def _check_status(self, answer: Answer, allowed: Collection[int]) -> Answer:
        """The answer, if its status is 200 or allowed."""
        status = answer.status
        if status == 200 or status in allowed:
            return answer
        if status == 401:
            problem = "rejects the credentials" if self._session.config.headers else "requires credentials"
            raise RequestError(f"{problem} (HTTP 401)", "check the token or password in the options", url=answer.url)
        if status == 403:
            raise RequestError("refuses access (HTTP 403)", "give the account read permission", url=answer.url)
        if status == 404:
            raise RequestError("does not exist (HTTP 404)", "correct the address", url=answer.url)
        reason = self.reason(answer) if self._session.config.shows_reason else ""
        why = f" ({reason})" if reason else ""
        if status in _TRANSIENT:
            what, pause = f"failed with HTTP {status}{why}", _seconds(answer.headers.get("Retry-After"))
            raise RequestError(what, "check the server's log", transient=True, pause=pause, url=answer.url)
        raise RequestError(f"answered HTTP {status}{why}", "check the address and the server's log", url=answer.url)

    def _exchange(
        self,
        method: str,
        url: str,
        ends: float,
        accept: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        keep: bool = False,
    ) -> Answer:
        """Send one request and read its complete answer; RequestError for any failure."""
        request_headers = {"User-Agent": "rackscale.nvlink", "Accept": accept, **(headers or {})}
        for last in (False, True):
            session = self._session
            try:
                answer = session.exchange(method, url, min(ends, self._ends), body, request_headers, keep)
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise self._request_error(error, url) from None
            if answer.status != 401 or last or not self._renewed(session):
                break
        return answer

    def _renewed(self, rejected: _Session) -> bool:
        """Whether there is another login than the one that the server rejected."""
        with self._renewing:
            used = rejected.config
            if self._session is rejected and used.renew and not rejected.final:
                fresh = used.renew(max(0.1, min(used.timeout, self.left())))
                rejected.final = fresh == used
                if rejected.final:
                    return False
                secrets = (*used.secrets, *fresh.secrets)
                self._session = _Session(self._source, replace(fresh, secrets=secrets))
            return self._session is not rejected

    def _request_error(self, error: Any, url: str) -> RequestError:
        """Describe an exception without any text from the server or the request."""
        make: Callable[..., RequestError] = functools.partial(RequestError, url=url)
        if isinstance(error, RequestError):
            return error
        if isinstance(error, TimeoutError):
            seconds = self._session.config.timeout if self.left() > 0 else self._session.config.deadline
            option = "timeout" if self.left() > 0 else "deadline"
            return make(f"gave no complete answer in {seconds:g} seconds", f"check the server, or raise {option}")
        if isinstance(error, ssl.SSLCertVerificationError):
            reason = error.verify_message or "it is not trusted"
            return make(f"has a certificate that is not accepted ({reason})", "set ca_file to its CA's certificate")
        if isinstance(error, ConnectionRefusedError):
            return make("refuses the connection", "start the server, or correct the address", transient=True)
        if isinstance(error, (ConnectionError, ssl.SSLEOFError, http.client.IncompleteRead)):
            return make("closed the connection before the end of its answer", "check the server's log", transient=True)
        if isinstance(error, ssl.SSLError):
            remedy = "check that it supports TLS, and whether it requires client_cert"
            return make(f"closed the TLS connection ({(error.reason or 'no reason').lower()})", remedy)
        if isinstance(error, socket.gaierror):
            return make("has a host name that cannot be resolved", "correct the address", transient=True)
        if isinstance(error, OSError):
            return make(f"cannot be reached ({_reason(error)})", "check the network and the address", transient=True)
        return make("does not return a valid HTTP answer", "correct the address")


class _Session:
    """One login at an endpoint: its TLS context, and its open, idle connections."""

    def __init__(self, source: str, config: ClientConfig) -> None:
        self._source, self.config = source, config
        self.final = False
        """Whether another login would be the same."""
        self._context: ssl.SSLContext | None = None
        # Scheme, host and port -> connections.
        self._idle: dict[tuple[str, str], deque[_Connection]] = defaultdict(deque)
        weakref.finalize(self, _close, self._idle)

    def exchange(
        self, method: str, url: str, ends: float, body: bytes | None, headers: Mapping[str, str], keep: bool
    ) -> Answer:
        """Send one request and read its complete answer; keep: over a connection that stays open after success."""
        parts = urllib.parse.urlsplit(url)
        idle = self._idle[parts.scheme, parts.netloc]
        try:
            connection = idle.pop() if keep else self._connection(parts)
        except IndexError:
            connection = self._connection(parts)
        connection.ends = ends
        closing = {} if keep else {"Connection": "close"}
        try:
            connection.send_request(method, parts, body, {**headers, **closing, **self.config.headers})
            with connection.getresponse() as response:
                answer = Answer(response.status, response.headers, self._body(response), url)
        except BaseException:
            connection.close()
            raise
        if keep:
            idle.append(connection)
        else:
            connection.close()
        return answer

    def _connection(self, parts: urllib.parse.SplitResult) -> _Connection:
        context = None
        if parts.scheme.lower() == "https":
            context = self._context = self._context or self._tls()
        proxy = self.config.proxy or _environment_proxy(parts)
        return _Connection(parts, context, self.config.server_name, proxy)

    def _body(self, response: http.client.HTTPResponse) -> bytearray:
        limit, body = self.config.max_bytes, bytearray()
        too_large = RequestError(f"returns more than {limit} bytes", "request smaller pages, or raise max_bytes")
        if (response.length or 0) > limit:
            raise too_large
        while chunk := response.read(min(_CHUNK, limit + 1 - len(body))):
            body += chunk
            if len(body) > limit:
                raise too_large
        if response.length:
            raise http.client.IncompleteRead(b"")
        return body

    def _tls(self) -> ssl.SSLContext:
        config = self.config
        try:
            if config.ca_data and config.validate_certs:
                context = ssl.create_default_context(cadata=config.ca_data)
            else:
                context = make_context(cafile=config.ca_file, validate_certs=config.validate_certs)
        except (OSError, ValueError) as error:
            raise HttpError(
                f"{self._source}: ca_file {_reason(error)}; set a PEM file with the CA's certificate"
            ) from None
        if config.ca_file or config.ca_data:
            # A site's own CA: only Python 3.13 rejects certificates that kubectl and curl accept.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if config.client_cert or config.client_pem:
            try:
                _load_client_cert(context, config)
            except (OSError, ValueError) as error:
                where = "client_cert or client_key"
                remedy = "set PEM files of a certificate and its key, without a pass phrase"
                raise HttpError(f"{self._source}: {where} {_reason(error)}; {remedy}") from None
        return context


class RequestError(Exception):
    """One failed attempt. transient: whether a retry may succeed; pause: seconds to wait before it."""

    def __init__(self, what: str, remedy: str, transient: bool = False, pause: float = 0, url: str = "") -> None:
        super().__init__(what)
        self.what, self.remedy, self.transient, self.pause, self.url = what, remedy, transient, pause, url


def address(url: str) -> str:
    """Format a URL for a message: no query, no password, printable, at most 120 characters."""
    parts = urllib.parse.urlsplit(url)
    text = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    text = "".join(char if "!" <= char <= "~" else "?" for char in text)
    return text if len(text) <= 120 else f"{text[:117]}..."


def same_endpoint(url: str, target: str) -> bool:
    """Whether credentials may be sent to a target: the same host, scheme and port, or an upgrade to https."""
    try:
        one, other = urllib.parse.urlsplit(url), urllib.parse.urlsplit(target)
        if one.hostname != other.hostname or "@" in other.netloc or not _URL.fullmatch(target):
            return False
        upgrade = (one.scheme, other.scheme) == ("http", "https") and not other.port
        return upgrade or (one.scheme == other.scheme and _port(one) == _port(other))
    except ValueError:
        return False


def _load_client_cert(context: ssl.SSLContext, config: ClientConfig) -> None:
    if config.client_cert:
        context.load_cert_chain(config.client_cert, config.client_key, password=_no_password)
        return
    # OpenSSL reads keys from files only; this one is readable by its owner only and removed after the call.
    with tempfile.NamedTemporaryFile("w", prefix="nvlink-", suffix=".pem", encoding="utf-8") as file:
        file.write(config.client_pem or "")
        file.flush()
        context.load_cert_chain(file.name, password=_no_password)


def _port(parts: urllib.parse.SplitResult) -> int:
    return parts.port or (443 if parts.scheme == "https" else 80)


def _left(ends: float) -> float:
    left = ends - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _seconds(header: str | None) -> float:
    """Retry-After in seconds, at most 30; 0 for a date."""
    return min(float(header), 30.0) if header and re.fullmatch(r"[0-9]{1,6}", header.strip()) else 0.0


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"cannot be used ({(error.reason or 'no PEM').lower()})"
    if isinstance(error, OSError) and error.errno and error.strerror:
        return error.strerror
    return "cannot be used"


def _no_password() -> str:
    """No pass phrase; without this function OpenSSL would prompt on the terminal."""
    return ""


class _TimedStream(io.RawIOBase):
    """The data from a socket; every wait ends at the time `ends`."""

    def __init__(self, sock: socket.socket, ends: float) -> None:
        self._sock, self._ends = sock, ends
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(_left(self._ends))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _TimedSocket:
    """What http.client uses of a socket; every wait ends at the time `ends`."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self.ends = sock, 0.0
        self.close = sock.close

    def sendall(self, data: Any) -> None:
        self._sock.settimeout(_left(self.ends))
        self._sock.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedStream(self._sock, self.ends))


def _connect(ends: float, where: tuple[str, int]) -> socket.socket:
    """Connect to the first address of a name that accepts; the remaining time is for all addresses together."""
    failure: OSError | None = None
    for family, kind, protocol, _name, target in socket.getaddrinfo(*where, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(_left(ends))
            # http.client sends the body after the headers; without this it waits until the server acknowledges them.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.connect(target)
            sock.settimeout(_left(ends))
            return sock
        except OSError as error:
            sock.close()
            failure = error
    raise failure or OSError("the name has no address")


class _Connection(http.client.HTTPConnection):
    """A connection to an endpoint, or to its http proxy; every wait of a request ends at the time `ends`."""

    def __init__(
        self, parts: urllib.parse.SplitResult, context: ssl.SSLContext | None, name: str | None, proxy: str | None
    ) -> None:
        self._endpoint = parts.hostname or "", _port(parts)
        super().__init__(*self._endpoint)
        self.ends = 0.0
        self._context, self._name = context, name or self._endpoint[0]
        self._proxy, self._proxy_headers = _proxy(proxy)

    def connect(self) -> None:
        """Connect, if need be through the proxy, with TLS for https."""
        sock = _connect(self.ends, self._proxy or self._endpoint)
        try:
            if self._context:
                if self._proxy:
                    self._open_tunnel(sock)
                sock.settimeout(_left(self.ends))
                sock = self._context.wrap_socket(sock, server_hostname=self._name)
        except BaseException:
            sock.close()
            raise
        self.sock: Any = _TimedSocket(sock)

    def send_request(
        self, method: str, parts: urllib.parse.SplitResult, body: bytes | None, headers: Mapping[str, str]
    ) -> None:
        """Send a request for a URL, whose credentials are in `headers`."""
        own = {"Host": parts.netloc}
        scheme, netloc = "", ""
        if self._proxy and not self._context:
            scheme, netloc = parts.scheme, parts.netloc
            own |= self._proxy_headers
        target = urllib.parse.urlunsplit((scheme, netloc, parts.path or "/", parts.query, ""))
        if self.sock is None:
            self.connect()
        self.sock.ends = self.ends
        self.request(method, target, body, {**own, **headers})

    def _open_tunnel(self, sock: socket.socket) -> None:
        """Let the proxy connect to the endpoint."""
        host, port = self._endpoint
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        lines = [f"CONNECT {where} HTTP/1.1", f"Host: {where}", *map(": ".join, self._proxy_headers.items())]
        timed: Any = _TimedSocket(sock)
        timed.ends = self.ends
        timed.sendall("".join(f"{line}\r\n" for line in (*lines, "")).encode())
        answer = http.client.HTTPResponse(timed, method="CONNECT")
        answer.begin()
        if answer.status != 200:
            raise RequestError(f"is refused by the proxy (HTTP {answer.status})", "correct the proxy or its rules")


def _proxy(url: str | None) -> tuple[tuple[str, int] | None, dict[str, str]]:
    """(host and port of an http proxy, its headers); one without a scheme is http."""
    if not url:
        return None, {}
    parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
    headers = {}
    if parts.username:
        account = ":".join(map(urllib.parse.unquote, (parts.username, parts.password or "")))
        headers["Proxy-Authorization"] = "Basic " + base64.b64encode(account.encode()).decode()
    return (parts.hostname or "", parts.port or 80), headers


def _environment_proxy(parts: urllib.parse.SplitResult) -> str | None:
    """The proxy of the environment for a URL."""
    return None if urllib.request.proxy_bypass(parts.netloc) else urllib.request.getproxies().get(parts.scheme.lower())


def _close(idle: Mapping[Any, deque[_Connection]]) -> None:
    for connections in idle.values():
        for connection in connections:
            connection.close()
