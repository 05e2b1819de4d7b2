# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An HTTP client that comes back: in time, with a bounded answer, with one sentence and without a secret in it.

Every byte that is read, also of the status line, the headers and a proxy's answer, is waited for no longer than what is
left of the request's time, so a server that drips gains nothing. Only the resolver keeps time of its own (resolv.conf).

Ansible's own Request can do neither that nor a limit on the answer's size, so only its make_context is used, for the
CA certificates that Ansible trusts on each platform; proxies come from the environment as they do there. Nothing is
read from ~/.netrc.
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
import time
import urllib.error
import urllib.parse
import urllib.request
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from email.message import Message
from typing import Any, NoReturn

from ansible.module_utils.urls import make_context
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options

# The keys that every source of HTTP has; see the documentation fragments.
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
TRIES = 3
PAUSE = 0.5
"""Seconds before the second try; twice as many before the third."""

_CHUNK = 256 * 1024
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_PASSING = frozenset((429, 500, 502, 503, 504))
_URL = re.compile(r"https?://[!-~]+", re.IGNORECASE)
_HEADER_VALUE = re.compile(r"[ -~]+")


class HttpError(NvlinkError):
    """An endpoint cannot be used: one sentence with the endpoint, what happened and the remedy, no secret in it."""


@dataclass(frozen=True)
class Access:
    """How an endpoint is reached.

    headers are secret (they hold the credentials) and go to that endpoint alone. ca_data is PEM text, client_pem too: a
    certificate and its key. client_cert and client_key are PEM files. timeout is seconds for a request with its
    redirects, deadline seconds for all requests together, from the making of the client on; max_bytes bounds one
    answer.
    """

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    ca_file: str | None = None
    ca_data: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    client_pem: str | None = field(default=None, repr=False)
    validate_certs: bool = True
    timeout: float = 30
    deadline: float = 120
    max_bytes: int = MAX_BYTES


@dataclass(frozen=True)
class Answer:
    """One answer: its status, headers, whole body, and the URL that it came from after redirects."""

    status: int
    headers: Message
    body: bytes | bytearray
    url: str


def access(options: Options, header: str = "Authorization", prefix: str = "Bearer") -> Access:
    """The way to the endpoint that a source's options describe (the keys of OPTIONS); SourceError for a wrong one."""
    token = options.secret_or_file("token")
    username, password = options.text("username"), options.secret_or_file("password")
    if token and username:
        raise options.wrong("username", "and a token are both set; keep one")
    if (username is None) != (password is None):
        raise options.wrong("username", "needs a password or password_file, and neither goes without it")
    if "client_key" in options and "client_cert" not in options:
        raise options.wrong("client_key", "is set without client_cert; name the certificate too")
    return Access(
        **credentials(options, token, username, password, header, prefix),
        ca_file=options.path("ca_file"),
        client_cert=options.path("client_cert"),
        client_key=options.path("client_key"),
        validate_certs=options.flag("validate_certs", True),
        **limits(options),
    )


def limits(options: Options) -> dict[str, Any]:
    """timeout, deadline and max_bytes, as Access has them."""
    return {
        "timeout": options.number("timeout", Access.timeout, 0.1, 3600),
        "deadline": options.number("deadline", Access.deadline, 0.1, 86400),
        "max_bytes": options.whole("max_bytes", MAX_BYTES, 1024, 2**31),
    }


def credentials(
    options: Options, token: str | None, username: str | None, password: str | None, header: str, prefix: str
) -> dict[str, Any]:
    """headers and secrets, as Access has them."""
    if token:
        value, secret = f"{prefix} {token}".strip(), token
    elif username:
        if ":" in username:
            raise options.wrong("username", "holds a colon, which Basic authentication cannot carry; use another")
        secret = password or ""
        header, value = "Authorization", "Basic " + base64.b64encode(f"{username}:{secret}".encode()).decode()
    else:
        return {}
    if not _HEADER_VALUE.fullmatch(value):
        raise options.wrong("token", "cannot stand in an HTTP header; write it on one line, without other characters")
    return {"headers": {header: value}, "secrets": tuple({secret, value, value.rpartition(" ")[2]})}


def endpoint(options: Options, key: str, meaning: str) -> str:
    """The URL in an option; SourceError if it is none, or holds a password, which every error would show."""
    url = options.needed(key, meaning).strip()
    try:
        parts = urllib.parse.urlsplit(url)
        holds_password, usable = "@" in parts.netloc, bool(parts.hostname) and parts.port != 0
    except ValueError:
        holds_password, usable = False, False
    if holds_password:
        raise options.wrong(key, "holds a user name or password; use username with password_file, or token_file")
    if not (usable and _URL.fullmatch(url)):
        raise options.wrong(key, f"is no usable http or https address; write {meaning}")
    return url


class Client:
    """Asks one endpoint; every error is an HttpError that starts with the source's name."""

    def __init__(self, source: str, way: Access) -> None:
        self._source, self._way = source, way
        self._ends = time.monotonic() + way.deadline
        self._context: ssl.SSLContext | None = None
        # Host and port -> the connections that are open and wait for a request.
        self._idle: dict[str, deque[http.client.HTTPConnection]] = defaultdict(deque)
        weakref.finalize(self, _close, self._idle)

    def get(self, url: str, passed: Collection[int] = (), accept: str = "application/json") -> Answer:
        """The answer to a GET, asked again where the failure may pass; any status but 200 and `passed` is an error."""
        return self._tried(lambda: self._follow(url, accept), url, passed, TRIES)

    def post(self, url: str, document: Any, passed: Collection[int] = ()) -> Answer:
        """The answer to a POST of a JSON document; asked once, since nobody knows what a second one would do."""
        return self.send("POST", url, document, passed)

    def send(
        self,
        method: str,
        url: str,
        document: Any,
        passed: Collection[int] = (),
        kind: str = "application/json",
        repeatable: bool = False,
        accept: str = "*/*",
    ) -> Answer:
        """The answer to a request that changes something; kind is the Content-Type of the document.

        It is asked once, but for one that is repeatable, which does no more when it is done twice: that is asked again
        as a GET is, and goes over a connection that stays open for the next.
        """
        body = None if document is None else json.dumps(document).encode()
        headers = {} if body is None else {"Content-Type": kind}

        def ask() -> Answer:
            ends = time.monotonic() + self._way.timeout
            answer = self._exchange(method, url, ends, accept, body, headers, keep=repeatable)
            if answer.status in _REDIRECTS:
                raise _Trouble(f"redirects a {method}", "write the address that it leads to")
            return answer

        return self._tried(ask, url, passed, TRIES if repeatable else 1)

    def json(self, answer: Answer) -> Any:
        """The JSON document in an answer."""
        try:
            return json.loads(answer.body)
        except RecursionError:
            self.fail(answer.url, "nests its JSON too deeply to be read", "check what answers there")
        except ValueError:
            whole = len(answer.body)
            self.fail(answer.url, f"gave {whole} bytes that are no whole JSON document", "check what answers there")

    def left(self) -> float:
        """Seconds until the deadline, negative after it."""
        return self._ends - time.monotonic()

    def wait(self, seconds: float, url: str, doing: str) -> None:
        """Sleep; an error at once if the deadline lies before the end of it. doing: what it is that takes so long."""
        if self.left() <= seconds:
            remedy = "raise deadline, or look at the server's log"
            self.fail(url, f"{doing} after {self._way.deadline:g} seconds", remedy)
        time.sleep(seconds)

    def fail(self, url: str, what: str, remedy: str) -> NoReturn:
        """Raise the sentence about an endpoint, less its query (keys stand there) and every known secret."""
        message = f"{self._source}: {address(url)} {what}; {remedy}"
        for secret in self._way.secrets:
            if len(secret) >= 4:
                message = message.replace(secret, "***").replace(urllib.parse.quote(secret, safe=""), "***")
        raise HttpError(message) from None

    def _fail(self, url: str, trouble: _Trouble, attempts: int = 1) -> NoReturn:
        again = f", {attempts} times" if attempts > 1 else ""
        self.fail(trouble.url or url, f"{trouble.what}{again}", trouble.remedy)

    def _tried(self, ask: Callable[[], Answer], url: str, passed: Collection[int], tries: int) -> Answer:
        """The answer, asked for at most so many times while the failure may pass."""
        for attempt in range(1, tries + 1):
            try:
                return self._judged(ask(), passed)
            except _Trouble as trouble:
                pause = max(PAUSE * 2 ** (attempt - 1), trouble.pause)
                if not trouble.passing or attempt == tries or self.left() <= pause:
                    self._fail(url, trouble, attempt)
                time.sleep(pause)
        raise AssertionError("unreachable")

    def _follow(self, url: str, accept: str) -> Answer:
        """The answer to a GET after its redirects, all within one request's time."""
        ends = time.monotonic() + self._way.timeout
        been = {url}
        while True:
            answer = self._exchange("GET", url, ends, accept)
            if answer.status not in _REDIRECTS:
                return answer
            target = urllib.parse.urljoin(url, str(answer.headers.get("Location") or ""))
            if not same_endpoint(url, target):
                raise _Trouble("redirects to another endpoint", "write the address that it leads to", url=url)
            if target in been:
                raise _Trouble("redirects in a loop", "correct the address, or the server's redirects", url=url)
            if len(been) > MAX_REDIRECTS:
                raise _Trouble(f"redirects more than {MAX_REDIRECTS} times", "write the final address", url=url)
            been.add(target)
            url = target

    def _judged(self, answer: Answer, passed: Collection[int]) -> Answer:
        """The answer, if its status is one that was hoped for."""
        status = answer.status
        if status == 200 or status in passed:
            return answer
        if status == 401:
            known = "does not accept the credentials" if self._way.headers else "wants credentials"
            raise _Trouble(f"{known} (HTTP 401)", "check the token or password that the options name", url=answer.url)
        if status == 403:
            raise _Trouble("refuses access (HTTP 403)", "give the account the right to read it", url=answer.url)
        if status == 404:
            raise _Trouble("does not exist (HTTP 404)", "correct the address", url=answer.url)
        if status in _PASSING:
            what, pause = f"failed with HTTP {status}", _seconds(answer.headers.get("Retry-After"))
            raise _Trouble(what, "look at the server's log", passing=True, pause=pause, url=answer.url)
        raise _Trouble(f"answered HTTP {status}", "check the address and the server's log", url=answer.url)

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
        """One request and its whole answer; _Trouble for all that can go wrong on the way."""
        ends = min(ends, self._ends)
        said = {"User-Agent": "rackscale.nvlink", "Accept": accept, **(headers or {})}
        try:
            if keep and not _proxied(url):
                return self._kept(method, url, ends, body, said)
            request = urllib.request.Request(url, data=body, method=method, headers=said)
            for name, value in self._way.headers.items():
                request.add_unredirected_header(name, value)
            with self._opener(ends, url).open(request, timeout=_left(ends)) as response:
                return Answer(response.status, response.headers, self._body(response), url)
        except urllib.error.URLError as error:
            raise self._trouble(error.reason, url) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._trouble(error, url) from None

    def _kept(self, method: str, url: str, ends: float, body: bytes | None, said: Mapping[str, str]) -> Answer:
        """_exchange() over a connection that waits for a request, or a new one; it stays open if all goes well."""
        parts = urllib.parse.urlsplit(url)
        try:
            connection = self._idle[parts.netloc].pop()
        except IndexError:
            connection = self._connection(parts)
        target = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
        try:
            _bound(connection, ends)
            connection.request(method, target, body, {**said, **self._way.headers})
            with connection.getresponse() as response:
                answer = Answer(response.status, response.headers, self._body(response), url)
        except BaseException:
            connection.close()
            raise
        self._idle[parts.netloc].append(connection)
        return answer

    def _connection(self, parts: urllib.parse.SplitResult) -> http.client.HTTPConnection:
        if parts.scheme.lower() == "https":
            self._context = self._context or self._tls()
            return http.client.HTTPSConnection(parts.netloc, context=self._context)
        return http.client.HTTPConnection(parts.netloc)

    def _body(self, response: http.client.HTTPResponse) -> bytearray:
        limit, body = self._way.max_bytes, bytearray()
        too_large = _Trouble(f"answers with more than {limit} bytes", "ask for smaller pages, or raise max_bytes")
        if (response.length or 0) > limit:
            raise too_large
        while chunk := response.read(min(_CHUNK, limit + 1 - len(body))):
            body += chunk
            if len(body) > limit:
                raise too_large
        if response.length:
            raise http.client.IncompleteRead(b"")
        return body

    def _opener(self, ends: float, url: str) -> urllib.request.OpenerDirector:
        """Speaks HTTP and HTTPS alone, follows no redirect and takes every status for an answer."""
        opener = urllib.request.OpenerDirector()
        opener.add_handler(urllib.request.ProxyHandler())
        opener.add_handler(_Http(ends))
        if url.lower().startswith("https:"):
            self._context = self._context or self._tls()
            opener.add_handler(_Https(ends, self._context))
        return opener

    def _tls(self) -> ssl.SSLContext:
        way = self._way
        try:
            if way.ca_data and way.validate_certs:
                context = ssl.create_default_context(cadata=way.ca_data)
            else:
                context = make_context(cafile=way.ca_file, validate_certs=way.validate_certs)
        except (OSError, ValueError) as error:
            raise HttpError(
                f"{self._source}: ca_file {_why(error)}; name a PEM file with the CA's certificate"
            ) from None
        if way.ca_file or way.ca_data:
            # A site's own CA: Python 3.13 alone would refuse certificates that kubectl and curl accept.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if way.client_cert or way.client_pem:
            try:
                _load_client_cert(context, way)
            except (OSError, ValueError) as error:
                where = "client_cert or client_key"
                remedy = "name PEM files of a certificate and its key, without a pass phrase"
                raise HttpError(f"{self._source}: {where} {_why(error)}; {remedy}") from None
        return context

    def _trouble(self, error: Any, url: str) -> _Trouble:
        """What an exception says, in words that hold nothing that came from the server or the request."""
        make: Callable[..., _Trouble] = functools.partial(_Trouble, url=url)
        if isinstance(error, _Trouble):
            return error
        if isinstance(error, TimeoutError):
            seconds = self._way.timeout if self.left() > 0 else self._way.deadline
            option = "timeout" if self.left() > 0 else "deadline"
            return make(f"gave no whole answer in {seconds:g} seconds", f"check the server, or raise {option}")
        if isinstance(error, ssl.SSLCertVerificationError):
            reason = error.verify_message or "it is not trusted"
            return make(
                f"shows a certificate that cannot be accepted ({reason})", "set ca_file to its CA's certificate"
            )
        if isinstance(error, ConnectionRefusedError):
            return make("refuses the connection", "start the server, or correct the address", passing=True)
        if isinstance(error, (ConnectionError, ssl.SSLEOFError, http.client.IncompleteRead)):
            return make("broke off before the end of its answer", "look at the server's log", passing=True)
        if isinstance(error, ssl.SSLError):
            remedy = "check that it speaks TLS, and whether it wants client_cert"
            return make(f"broke off TLS ({(error.reason or 'no reason').lower()})", remedy)
        if isinstance(error, socket.gaierror):
            return make("has a name that cannot be resolved", "correct the address", passing=True)
        if isinstance(error, OSError):
            return make(f"cannot be reached ({_why(error)})", "check the network and the address", passing=True)
        return make("does not answer in HTTP", "correct the address")


class _Trouble(Exception):
    """One failed attempt. passing: a GET may do better next time, pause: but not before so many seconds."""

    def __init__(self, what: str, remedy: str, passing: bool = False, pause: float = 0, url: str = "") -> None:
        super().__init__(what)
        self.what, self.remedy, self.passing, self.pause, self.url = what, remedy, passing, pause, url


def address(url: str) -> str:
    """A URL fit for a sentence: no query, no password, printable, not endless."""
    parts = urllib.parse.urlsplit(url)
    text = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    text = "".join(char if "!" <= char <= "~" else "?" for char in text)
    return text if len(text) <= 120 else f"{text[:117]}..."


def same_endpoint(url: str, target: str) -> bool:
    """Whether credentials for one URL may go to another: the same host, scheme and port, or the step up to https."""
    try:
        one, other = urllib.parse.urlsplit(url), urllib.parse.urlsplit(target)
        if one.hostname != other.hostname or "@" in other.netloc or not _URL.fullmatch(target):
            return False
        step_up = (one.scheme, other.scheme) == ("http", "https") and not other.port
        return step_up or (one.scheme == other.scheme and _port(one) == _port(other))
    except ValueError:
        return False


def _load_client_cert(context: ssl.SSLContext, way: Access) -> None:
    if way.client_cert:
        context.load_cert_chain(way.client_cert, way.client_key, password=_no_password)
        return
    # OpenSSL reads keys from files only; this one is readable by its owner alone and gone after the call.
    with tempfile.NamedTemporaryFile("w", prefix="nvlink-", suffix=".pem", encoding="utf-8") as file:
        file.write(way.client_pem or "")
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
    """Retry-After in seconds, at most 30; its form as a date counts as none."""
    return min(float(header), 30.0) if header and re.fullmatch(r"[0-9]{1,6}", header.strip()) else 0.0


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"cannot be used ({(error.reason or 'no PEM').lower()})"
    if isinstance(error, OSError) and error.errno and error.strerror:
        return error.strerror
    return "cannot be used"


def _no_password() -> str:
    """Without this OpenSSL would ask at the terminal."""
    return ""


class _TimedStream(io.RawIOBase):
    """What a socket receives, each wait bounded by the time that is left until `ends`."""

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


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, ends: float, **more: Any) -> None:
        super().__init__(sock, *args, **more)
        self.fp.close()
        self.fp = io.BufferedReader(_TimedStream(sock, ends))


def _connect(ends: float, where: tuple[str, int], *_timeout_and_source: Any) -> socket.socket:
    """A connection to the first of a name's addresses that takes it; the time left is for all of them together."""
    trouble: OSError | None = None
    for family, kind, protocol, _name, target in socket.getaddrinfo(*where, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(_left(ends))
            sock.connect(target)
            sock.settimeout(_left(ends))
            return sock
        except OSError as error:
            sock.close()
            trouble = error
    raise trouble or OSError("the name has no address")


class _Http(urllib.request.HTTPHandler):
    def __init__(self, ends: float) -> None:
        super().__init__()
        self._ends = ends

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(functools.partial(_timed, http.client.HTTPConnection, self._ends), req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, ends: float, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._ends, self._tls = ends, context

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        connection = functools.partial(_timed, http.client.HTTPSConnection, self._ends)
        return self.do_open(connection, req, context=self._tls)


def _timed(kind: Callable[..., Any], ends: float, *args: Any, **more: Any) -> Any:
    """A connection of http.client whose every wait ends at `ends`."""
    connection = kind(*args, **more)
    _bound(connection, ends)
    return connection


def _bound(connection: Any, ends: float) -> None:
    """Let every further wait of a connection of http.client end at `ends`."""
    connection.response_class = functools.partial(_Response, ends=ends)
    connection._create_connection = functools.partial(_connect, ends)
    if connection.sock is not None:
        connection.sock.settimeout(_left(ends))


def _close(idle: Mapping[str, deque[http.client.HTTPConnection]]) -> None:
    for connections in idle.values():
        for connection in connections:
            connection.close()


def _proxied(url: str) -> bool:
    """Whether the environment sends requests for a URL to a proxy, as urllib has it."""
    parts = urllib.parse.urlsplit(url)
    return parts.scheme.lower() in urllib.request.getproxies() and not urllib.request.proxy_bypass(parts.netloc)
