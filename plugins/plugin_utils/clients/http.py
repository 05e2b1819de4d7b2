# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests over urllib3 with one time limit, one limit on the size of an answer, and error messages without secrets.

urllib3 limits each wait, so a server that sends a byte now and then never meets its timeouts. Here the caller waits for
a request only until its time limit, whichever step takes the time: name resolution, proxy, TLS, headers or body.

Requests are repeated here, since urllib3 would repeat one after its caller has given up, and log the query of its URL.
Ansible's make_context adds the CA certificates that Ansible trusts on each platform; proxies come from the environment,
as for Ansible. ~/.netrc is not read.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import ssl
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn, TypeVar
from weakref import WeakKeyDictionary

from ansible.module_utils.urls import make_context
from ansible_collections.rackscale.nvlink.plugins.module_utils import actions
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import TooManyValuesError, json_document
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options, OutageError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.redaction import hidden, redacted
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import mapped
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import sentence

# Plugins are also loaded where no library is, and a site without such a source needs none.
try:
    import urllib3
except ImportError:
    urllib3 = None  # type: ignore[assignment] # for mypy it is a module

LIMITS = ("timeout", "deadline", "max_bytes")
_LOGIN = ("token", "token_file", "username", "password", "password_file")
OPTIONS = (*_LOGIN, "ca_file", "client_cert", "client_key", "validate_certs", *LIMITS)
"""Options of every HTTP source; see the documentation fragments."""
MAX_BYTES = 64 * 1024 * 1024
MAX_CONNECTIONS = 8
"""Idle connections that are kept for later requests."""
MAX_ATTEMPTS = 3
PAUSE = 0.5
"""Seconds before the second attempt; twice as many before the third."""
MAX_PAUSE = 30
"""Seconds for which a server may put off the next attempt."""
MAX_REASON = 16 * 1024
"""Bytes of a service's error text that are searched for secrets, before it is cut to a sentence."""

_CHUNK = 256 * 1024
# As JSON writes it; of a whole pair too.
_HALF_OF_A_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")
# The answer as it is sent, in pieces, and nothing that urllib3 does by itself.
_RAW: dict[str, Any] = {"preload_content": False, "decode_content": False, "redirect": False, "retries": False}
# OpenSSL's X509_V_ERR_CERT_HAS_EXPIRED, HOSTNAME_MISMATCH and IP_ADDRESS_MISMATCH.
_OTHER_NAME = "use a name that is in it; of an NVLink switch, set nvue_server_name"
_REMEDIES = {10: "renew it", 62: _OTHER_NAME, 64: _OTHER_NAME}
_TRANSIENT = frozenset((429, 500, 502, 503, 504))
# An API server answers so, with 500, to a server-side apply with a field that the CRD of an old release lacks.
_PERMANENT = "field not declared in schema"
_REFUSALS = {
    401: ("rejects the credentials", "check the token or password in the options"),
    403: ("refuses access", "give the account that permission"),
    404: ("does not exist", "correct the address"),
    409: ("has a conflict", "resolve the conflict with the other writer"),
    410: ("expires its list while it is read", "run it again, or use larger pages"),
}
_URL = re.compile(r"https?://(\[[0-9a-f:.]+\]|[0-9a-z._-]+)(:[1-9][0-9]{0,4})?([/?#][!-~]*)?", re.IGNORECASE)
_HEADER_VALUE = re.compile(r"[ -~]*")

JSON = "application/json"
NONE: Mapping[str, str] = MappingProxyType({})
Result = TypeVar("Result")


class HttpError(OutageError):
    """A request failed: one sentence with the endpoint, the problem and the remedy, without secrets.

    status: the HTTP status of a refusal; None for other errors.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class ClientConfig:
    """A service with its credentials and limits.

    secrets: texts that no message shows. timeout: seconds for one request. deadline: seconds for all requests together,
    from the creation of the client. max_bytes: limit of one answer. renew: logs in again. shows_reason: whether the
    reason that a failed answer gives is part of the message, for services whose reasons are known to help.
    """

    url: str
    pool: urllib3.PoolManager = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    timeout: float
    deadline: float
    max_bytes: int
    renew: Callable[[], ClientConfig] | None = field(default=None, repr=False)
    shows_reason: bool = False


class Answer(NamedTuple):
    """One answer to a request for a URL: status, headers, complete body, and the server's certificate if it has one."""

    url: str
    status: int
    headers: Any
    body: bytearray
    certificate: Mapping[str, Any] = NONE


def client_config(
    options: Options, key: str, meaning: str, header: str = "Authorization", prefix: str = "Bearer"
) -> ClientConfig:
    """The service at the URL in the option `key`, with the options of OPTIONS; SourceError for an invalid one."""
    renew = partial(client_config, options, key, meaning, header, prefix)
    if urllib3 is None:
        raise options.wrong(key, "cannot be read without the Python library urllib3; pip install urllib3")
    url, token = endpoint(options, key, meaning), options.secret_or_file("token")
    username, password = options.text("username"), options.secret_or_file("password")
    if (username is None) != (password is None) or (token and username):
        raise options.wrong("username", "needs a password or password_file, and no token; set one login")
    value = f"{prefix} {token}".strip() if token else ""
    if username:
        header, value = "Authorization", "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()
    ca, cert, key_file = (options.path(name) for name in ("ca_file", "client_cert", "client_key"))
    try:
        verify, name = options.flag("validate_certs", True), options.text("server_name") or ""
        pool = connections(url, ca, cert, key_file, verify, name)
    except (OSError, ValueError) as error:
        remedy = "set PEM files, the key without a pass phrase, and an http proxy"
        what = f"cannot be used ({reason_of(error) or type(error).__name__}); {remedy}"
        raise options.wrong("ca_file, client_cert, client_key or the proxy of the environment", what) from None
    secrets = credentials(options, header, value, token or password or "")
    return ClientConfig(url, pool, **secrets, **limits(options), renew=renew)


def endpoint(options: Options, key: str, meaning: str) -> str:
    """The URL in an option; SourceError if it is invalid or contains a password, which errors would show."""
    url = options.needed(key, meaning).strip()
    if not _URL.fullmatch(url):
        what = "is not a valid http or https address, or holds a password, which belongs into password_file"
        raise options.wrong(key, f"{what}; write {meaning}")
    return url


def credentials(options: Options, header: str, value: str, secret: str) -> dict[str, Any]:
    """headers and secrets for ClientConfig, from a header that may be empty and the secret in it."""
    if not _HEADER_VALUE.fullmatch(value):
        raise options.wrong("token", "is not valid in an HTTP header; write it on one line, in printable ASCII")
    return {"headers": {header: value} if value else {}, "secrets": (secret, value.rpartition(" ")[2])}


def limits(options: Options) -> dict[str, Any]:
    """timeout, deadline and max_bytes for ClientConfig."""
    return {
        "timeout": options.number("timeout", 30, 0.1, 3600),
        "deadline": options.number("deadline", 120, 0.1, 86400),
        "max_bytes": options.whole("max_bytes", MAX_BYTES, 1024, 2**31),
    }


def connections(
    url: str, ca: str | None, cert: str | None, key: str | None, verify: bool, name: str = "", proxy: str = ""
) -> urllib3.PoolManager:
    """The connections to a service; OSError or ValueError for unusable files and for a proxy of an unknown kind.

    ca, cert, key: files, which are read here. name: the name in the server's certificate, where the URL has another.
    proxy: an http or https one instead of the environment's.
    """
    # Of each request without verification, which is an option here.
    urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    context = make_context(cafile=ca, validate_certs=verify)
    context.sslsocket_class = _Socket
    if ca:
        # A site's own CA: only Python 3.13 rejects certificates that kubectl and curl accept.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if cert or key:
        # Without the function OpenSSL would ask for a pass phrase on the terminal.
        context.load_cert_chain(cert or key or "", key, password=lambda: "")
    settings: dict[str, Any] = {"ssl_context": context, "maxsize": MAX_CONNECTIONS, "server_hostname": name or None}
    parts = urllib.parse.urlsplit(url)
    if not proxy and not urllib.request.proxy_bypass(parts.netloc):
        proxy = urllib.request.getproxies().get(parts.scheme, "")
    if not proxy:
        return urllib3.PoolManager(**settings)
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    account = urllib.parse.unquote(urllib3.util.parse_url(proxy).auth or "")
    headers = urllib3.make_headers(proxy_basic_auth=account or None)
    return urllib3.ProxyManager(proxy, proxy_headers=headers, **settings)


_CERTIFICATES: WeakKeyDictionary[ssl.SSLContext, Mapping[str, Any] | None] = WeakKeyDictionary()


class _Socket(ssl.SSLSocket):
    """Keeps the certificate of the server: where that closes the connection, urllib3 has no socket after the answer."""

    def do_handshake(self, block: bool = False) -> None:
        super().do_handshake(block)
        _CERTIFICATES[self.context] = self.getpeercert()


class Client:
    """A client of one service; every error is an HttpError that starts with the name of the source."""

    def __init__(self, source: str, config: ClientConfig) -> None:
        self._source, self._config, self.url = source, config, config.url.rstrip("/")
        self._ends = time.monotonic() + config.deadline
        self._renewing = threading.Lock()

    def get(self, url: str, allowed: Collection[int] = (), accept: str = JSON) -> Answer:
        """Send a GET; any status but 200 and those in `allowed` is an error."""
        return self.send("GET", url, None, allowed, {"Accept": accept})

    def send(
        self, method: str, url: str, document: Any, allowed: Collection[int] = (), headers: Mapping[str, str] = NONE
    ) -> Answer:
        """Send a request with a document as JSON, a text as it is, or None; headers: those that are not for any JSON.

        It is sent again after a transient failure, unless it is a POST: what else is sent here is idempotent.
        """
        text = document if isinstance(document, str) else "" if document is None else json.dumps(document)
        body = text.encode(errors="surrogatepass")
        length = {"Content-Type": JSON, "Content-Length": str(len(body))} if body else {}
        headers = {"User-Agent": "rackscale.nvlink", "Accept": "*/*", **length, **headers}
        attempt = 0
        while True:
            used, status, pause, attempt = self._config, None, PAUSE * 2**attempt, attempt + 1
            try:
                answer = self._exchange(used, method, url, headers, body)
                status = answer.status
                if status == 200 or status in allowed:
                    return answer
                if status == 401 and attempt < MAX_ATTEMPTS and self._renewed(used):
                    continue
                what, remedy = self._refusal(answer)
                transient = status in _TRANSIENT and _PERMANENT not in what
                asked = answer.headers.get("Retry-After", "")
                pause = max(pause, min(int(asked), MAX_PAUSE)) if asked.isdecimal() else pause
            except (OSError, ValueError, urllib3.exceptions.HTTPError) as error:
                transient, what, remedy = self._problem(error)
            if not transient or method == "POST" or attempt == MAX_ATTEMPTS or self.left() <= pause:
                # An earlier attempt may have failed otherwise; only transient failures are repeated.
                self.fail(url, what + (f", {attempt} times" if transient and attempt > 1 else ""), remedy, status)
            time.sleep(pause)

    def act(
        self, method: str, url: str, document: Any, allowed: Collection[int] = (), headers: Mapping[str, str] = NONE
    ) -> Answer:
        """As send(), of a request that changes something: it is one of the actions of the result."""
        status = None
        try:
            answer = self.send(method, url, document, allowed, headers)
            status = answer.status
            return answer
        except HttpError as error:
            status = error.status
            raise
        finally:
            end = f"HTTP {status}" if status else "no answer"
            actions.record(hidden(f"{method} {address(url, actions.MAX_LENGTH)} ({end})", self._config.secrets))

    def json(self, answer: Answer) -> Any:
        """The JSON document in an answer."""
        try:
            document = json_document(answer.body, self._config.max_bytes)
            if not _HALF_OF_A_PAIR.search(answer.body):
                return document
            # A text that is no Unicode could neither be written nor printed.
            return json.loads(json.dumps(document, ensure_ascii=False).encode(errors="replace"))
        except TooManyValuesError as error:
            self.fail(answer.url, f"returned a document that {error}", "request smaller pages, or raise max_bytes")
        except (ValueError, RecursionError):
            what = f"returned {count(len(answer.body), 'byte')} that are not a JSON document"
            self.fail(answer.url, what, "check which service answers there")

    def left(self) -> float:
        """Seconds until the deadline, negative after it."""
        return self._ends - time.monotonic()

    def fail(self, url: str, what: str, remedy: str, status: int | None = None) -> NoReturn:
        """Raise an HttpError about an endpoint, without the query of its URL (it may hold keys) and known secrets."""
        message = hidden(f"{self._source}: {address(url)} {what}; {remedy}", self._config.secrets)
        raise HttpError(message, status) from None

    def reason(self, answer: Answer) -> str:
        """The plain text of an answer, or the message in its JSON, as a part of a sentence and without secrets."""
        text = answer.body[:MAX_REASON].decode("utf-8", "replace")
        try:
            text = str(mapped(json.loads(text))["message"])
        except (ValueError, LookupError, RecursionError):
            text = text if answer.headers.get("Content-Type", "text/plain").startswith("text/plain") else ""
        # Secrets first: of one that is cut off, the rest would stay.
        return sentence(redacted(hidden(text, self._config.secrets)).replace(";", ","), 300)

    def _exchange(self, config: ClientConfig, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Send one request and read its complete answer, within the timeout and the deadline."""
        ends = min(time.monotonic() + config.timeout, self._ends)

        def pieces() -> Iterator[bytes]:
            # Name resolution may take longer than the caller waits, and nothing must change after its error.
            _left(ends)
            yield body

        def read() -> Answer:
            own = {**headers, **config.headers}
            content = pieces() if body else None
            response = config.pool.request(method, url, body=content, headers=own, timeout=_left(ends), **_RAW)
            with contextlib.closing(response):
                received = bytearray()
                while piece := response.read1(_CHUNK):
                    received += piece
                    _left(ends)
                    if len(received) > config.max_bytes:
                        what = f"returns more than {config.max_bytes} bytes"
                        self.fail(url, what, "request smaller pages, or raise max_bytes")
            certificate = _CERTIFICATES.get(config.pool.connection_pool_kw["ssl_context"]) or NONE
            return Answer(url, response.status, response.headers, received, certificate)

        return within(_left(ends), read)

    def _renewed(self, used: ClientConfig) -> bool:
        """Whether there is another login than the one that the server rejected; concurrent requests log in once."""
        with self._renewing:
            if self._config is used and used.renew:
                fresh = used.renew()
                if fresh.headers != used.headers:
                    secrets = (*used.secrets, *fresh.secrets)
                    self._config = replace(used, pool=fresh.pool, headers=fresh.headers, secrets=secrets)
            return self._config is not used

    def _refusal(self, answer: Answer) -> tuple[str, str]:
        """(what, remedy) of an answer with another status than 200."""
        if 300 <= answer.status < 400:
            # Not followed: the target would get the credentials.
            target = urllib.parse.urljoin(answer.url, answer.headers.get("Location", ""))
            return f"redirects to {address(target)}", "set the address of the target"
        what, remedy = _REFUSALS.get(answer.status, ("fails", "see its reason, or the server's log"))
        reason = self.reason(answer) if self._config.shows_reason else ""
        return f"{what} (HTTP {answer.status}{reason and f': {reason}'})", remedy

    def _problem(self, error: BaseException) -> tuple[bool, str, str]:
        """(transient, what, remedy) of an exception, without any text from the server or the request."""
        causes = [error]
        while cause := causes[-1].__cause__ or causes[-1].__context__:
            causes.append(cause)
        if any(isinstance(cause, TimeoutError) for cause in causes):
            option = "timeout" if self.left() > 0 else "deadline"
            what = f"gave no complete answer in {getattr(self._config, option):g} seconds"
            return False, what, f"check the server, or raise {option}"
        for cause in causes:
            if isinstance(cause, ssl.SSLCertVerificationError):
                what = f"has a certificate that is not accepted ({cause.verify_message})"
                return False, what, _REMEDIES.get(cause.verify_code, "set ca_file to its CA's certificate")
        through = " through its proxy" if isinstance(error, urllib3.exceptions.ProxyError) else ""
        reason = next(filter(None, map(reason_of, causes)), "no complete HTTP answer")
        what = f"cannot be reached{through} ({reason})"
        return True, what, "check the address, the network and the server's log"


def within(seconds: float, call: Callable[[], Result]) -> Result:
    """The result of a call; TimeoutError after so many seconds, when its thread is left behind."""
    done: Future[Result] = Future()

    def run() -> None:
        try:
            done.set_result(call())
        except BaseException as error:
            done.set_exception(error)

    # A daemon, so that the process can end before it.
    threading.Thread(target=run, daemon=True).start()
    return done.result(seconds)


def address(url: str, limit: int = 120) -> str:
    """A URL for a message: without query and password, on one line of so many characters."""
    parts = urllib.parse.urlsplit(url)
    return sentence(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}", limit)


def reason_of(error: BaseException) -> str:
    """The reason of the operating system or of OpenSSL for an error; empty for other errors."""
    return (error.strerror or "") if isinstance(error, OSError) else ""


def _left(ends: float) -> float:
    """Seconds until a time; TimeoutError after it."""
    left = ends - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
