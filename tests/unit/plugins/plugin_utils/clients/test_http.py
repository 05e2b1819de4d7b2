# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import base64
import contextlib
import importlib
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import http
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options, SourceError
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.clients.http_servers import (
    Authority,
    Reply,
    Request,
    served,
    without_proxy,
)

SECRET = "s3cr3t-t0ken-of-the-cmdb"


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    without_proxy(monkeypatch)


def client(**options: Any) -> http.Client:
    return http.Client("rest", config(**options))


def config(**options: Any) -> http.ClientConfig:
    return http.client_config(Options({"timeout": 60, **options}, http.OPTIONS, "rest"))


def refused(url: str, **options: Any) -> str:
    """The sentence with which a GET fails; checked for form and for secrets."""
    http_client = client(**options)
    with pytest.raises(http.HttpError) as caught:
        http_client.json(http_client.get(url))
    message = str(caught.value)
    assert re.fullmatch(r"rest: [^\n]*; [^\n]*[^.]", message), message
    assert SECRET not in message
    assert "Bearer" not in message
    return message


def test_an_answer_is_read_with_the_token_and_as_json() -> None:
    with served(lambda _request, reply: reply.json({"a": [1]})) as server:
        http_client = client(token=SECRET)
        assert http_client.json(http_client.get(f"{server.url}/x?y=1")) == {"a": [1]}
    (request,) = server.requests
    assert (request.method, request.target, request.headers["authorization"]) == ("GET", "/x?y=1", f"Bearer {SECRET}")


def test_basic_authentication_takes_its_password_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(f"{SECRET}\n")
    with served(lambda _request, reply: reply.json({})) as server:
        client(username="ro-user", password_file=str(tmp_path / "password")).get(server.url)
    reported = server.requests[0].headers["authorization"].removeprefix("Basic ")
    assert base64.b64decode(reported).decode() == f"ro-user:{SECRET}"


# ------------------------------------------------------------------------------------------------------- bad servers


# The servers below end after a minute, so that a client without a time limit fails rather than hangs.


def drip_body(_request: Request, reply: Reply) -> None:
    reply.send(200, b"", Content_Length="100000")
    for _number in range(1200):
        if not reply.pause(0.05):
            break
        reply.raw.write(b" ")


def drip_continues(_request: Request, reply: Reply) -> None:
    for _number in range(6000):
        if not reply.pause(0.01):
            break
        reply.raw.write(b"HTTP/1.1 100 Continue\r\n\r\n")


@pytest.mark.parametrize("respond", [drip_body, drip_continues])
def test_a_slow_server_ends_at_the_timeout(respond: Any) -> None:
    with served(respond) as server:
        message = refused(server.url, token=SECRET, timeout=0.5)
    assert "gave no complete answer in 0.5 seconds" in message
    assert len(server.requests) <= 1


def test_a_slow_tls_handshake_ends_at_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        message = refused(f"https://127.0.0.1:{listening.getsockname()[1]}/", timeout=0.5)
    assert "gave no complete answer in 0.5 seconds" in message


def test_a_request_is_retried_after_an_aborted_tls_handshake() -> None:
    """As one that is stopped just then; it may be back in a moment."""

    def take_and_leave(listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _address = listening.accept()
                connection.recv(65536)
                connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=take_and_leave, args=(listening,), daemon=True).start()
        message = refused(f"https://127.0.0.1:{listening.getsockname()[1]}/")
        listening.shutdown(socket.SHUT_RDWR)
    assert "closed the connection before the end of its answer, 3 times" in message


def test_the_deadline_holds_for_all_requests_together() -> None:
    def slow(_request: Request, reply: Reply) -> None:
        reply.pause(0.3)
        reply.json({})

    with served(slow) as server:
        http_client = client(deadline=0.8)
        # Several statements on purpose: which of the requests meets the deadline is the machine's business.
        with pytest.raises(http.HttpError, match=r"gave no complete answer in 0\.8 seconds; .*deadline"):  # noqa: PT012
            for _number in range(10):
                http_client.get(server.url)


def test_a_refused_connection_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    assert "refuses the connection, 3 times" in refused(f"http://127.0.0.1:{port}/api", token=SECRET)


@pytest.mark.parametrize("status", [429, 503])
def test_a_failing_request_is_sent_three_times(status: int) -> None:
    with served(lambda _request, reply: reply.send(status, SECRET.encode())) as server:
        assert f"failed with HTTP {status}, 3 times" in refused(server.url, token=SECRET)
    assert len(server.requests) == 3


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between attempts, which the client does not wait for."""
    made: list[float] = []
    monkeypatch.setattr(http, "time", SimpleNamespace(monotonic=time.monotonic, sleep=made.append))
    return made


def test_transient_failures_are_retried_after_the_requested_pause(pauses: list[float]) -> None:
    def second_time(_request: Request, reply: Reply) -> None:
        reply.json({}, status=503 if len(server.requests) % 2 else 200, Retry_After="7")

    with served(second_time, keep=True) as server:
        http_client = client(deadline=60)
        assert http_client.get(server.url).status == patched(http_client, server.url).status == 200
        del http_client
    assert [request.method for request in server.requests] == ["GET", "GET", "PATCH", "PATCH"]
    assert pauses == [7, 7]


def test_no_pause_exceeds_the_deadline(pauses: list[float]) -> None:
    with served(lambda _request, reply: reply.send(503, Retry_After="3600")) as server:
        refused(server.url, deadline=20)
    assert (len(server.requests), pauses) == (1, [])


def test_a_post_is_sent_once() -> None:
    with (
        served(lambda _request, reply: reply.send(503)) as server,
        pytest.raises(http.HttpError, match="failed with HTTP 503; "),
    ):
        client().post(server.url, {"a": 1})
    assert [(request.method, request.body) for request in server.requests] == [("POST", b'{"a": 1}')]


def patched(http_client: http.Client, url: str) -> http.Answer:
    return http_client.send("PATCH", url, {"a": 1}, repeatable=True)


def test_repeatable_requests_share_a_connection(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    ports = []

    def answer(_request: Request, reply: Reply) -> None:
        ports.append(reply.port)
        reply.json({"n": len(ports)})

    with served(answer, authority.server_context(), keep=True) as server:
        http_client = client(token=SECRET, ca_file=str(authority.ca_file))
        assert [http_client.json(patched(http_client, server.url))["n"] for _n in range(3)] == [1, 2, 3]
        http_client.send("PATCH", server.url, {"a": 1})
        # The server ends only with its connections.
        del http_client
    assert len(set(ports[:3])) == 1
    assert ports[3] != ports[0]


def test_a_body_is_sent_without_waiting_for_the_acknowledgement_of_the_headers() -> None:
    """That wait is 40 ms on Linux (delayed acknowledgement)."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        connected = http._connect(time.monotonic() + 60, listening.getsockname())
        with connected:
            assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_connection_that_the_server_closed_is_opened_again() -> None:
    ports = []

    def answer(_request: Request, reply: Reply) -> None:
        ports.append(reply.port)
        reply.json({})
        reply.close_after()

    with served(answer, keep=True) as server:
        http_client = client()
        patched(http_client, server.url)
        patched(http_client, server.url)
        del http_client
    assert len(set(ports)) == 2


def test_a_kept_connection_has_the_timeout_of_each_request() -> None:
    def answer(_request: Request, reply: Reply) -> None:
        if len(server.requests) == 1:
            reply.json({})
            return
        reply.raw.write(b"HTTP/1.1 200 OK\r\n")
        for _number in range(90):
            if not reply.pause(0.5):
                break
            reply.raw.write(b"X-A: b\r\n")

    with served(answer, keep=True) as server:
        http_client = client(deadline=120)
        patched(http_client, server.url)
        http_client._session.config = replace(http_client._session.config, timeout=1)
        with pytest.raises(http.HttpError, match="gave no complete answer"):
            patched(http_client, server.url)


def test_a_proxy_is_used_for_repeatable_requests_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(lambda _request, reply: reply.json({})) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "")
        patched(client(), "http://nowhere.invalid/x")
    assert proxy.requests[0].target == "http://nowhere.invalid/x"


@pytest.mark.parametrize(
    ("status", "token", "reported"),
    [
        (401, SECRET, "rejects the credentials (HTTP 401); check the token or password"),
        (401, None, "requires credentials (HTTP 401)"),
        (403, SECRET, "refuses access (HTTP 403); give the account read permission"),
        (404, SECRET, "does not exist (HTTP 404); correct the address"),
        (418, SECRET, "answered HTTP 418"),
    ],
)
def test_a_rejected_request_is_not_retried(status: int, token: str | None, reported: str) -> None:
    with served(lambda _request, reply: reply.send(status, SECRET.encode(), WWW_Authenticate=SECRET)) as server:
        assert reported in refused(f"{server.url}/{token}?key={SECRET}", token=token)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("body", "reported"),
    [
        (b'{"items": [', "returned 11 bytes that are not a JSON document"),
        (b"\xff\xfe\x00", "not a JSON document"),
        (b"[" * 100_000, "JSON"),
    ],
)
def test_broken_json_is_an_error(body: bytes, reported: str) -> None:
    with served(lambda _request, reply: reply.send(200, body)) as server:
        assert reported in refused(server.url)


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        (b"SSH-2.0-x\r\n", "does not return a valid HTTP answer; correct the address"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{",
            "closed the connection before the end of its answer, 3 times",
        ),
    ],
)
def test_an_incomplete_answer_or_another_protocol_is_an_error(text: bytes, reported: str) -> None:
    with served(lambda _request, reply: reply.raw.write(text)) as server:
        assert reported in refused(server.url)


# --------------------------------------------------------------------------------------------------------- redirects


def test_redirects_on_the_same_host_are_followed() -> None:
    def respond(request: Request, reply: Reply) -> None:
        if request.target == "/old":
            reply.send(301, Location="/new?x=1")
        else:
            reply.json({"at": request.target})

    with served(respond) as server:
        http_client = client(token=SECRET)
        assert http_client.json(http_client.get(f"{server.url}/old")) == {"at": "/new?x=1"}
    assert server.requests[1].headers["authorization"] == f"Bearer {SECRET}"


@pytest.mark.parametrize(
    ("target", "reported", "requests"), [("{}x", "redirects more than 5 times", 6), ("/a", "redirects in a loop", 1)]
)
def test_redirects_without_end_are_an_error(target: str, reported: str, requests: int) -> None:
    with served(lambda request, reply: reply.send(307, Location=target.format(request.target))) as server:
        assert reported in refused(f"{server.url}/a", token=SECRET)
    assert len(server.requests) == requests


def test_no_token_goes_to_another_endpoint() -> None:
    with (
        served(lambda _request, reply: reply.json({})) as elsewhere,
        served(lambda _request, reply: reply.send(302, Location=f"{elsewhere.url}/")) as server,
    ):
        assert "redirects to another endpoint" in refused(server.url, token=SECRET)
    assert elsewhere.requests == []


@pytest.mark.parametrize(
    ("url", "target", "same"),
    [
        ("https://a.example/x", "https://a.example:443/y", True),
        ("https://a.example/x", "https://A.example/y", True),
        ("http://a.example:8080/x", "https://a.example/x", True),
        ("https://a.example/x", "http://a.example/x", False),
        ("https://a.example/x", "https://a.example:8443/x", False),
        ("https://a.example/x", "https://b.example/x", False),
        ("https://a.example/x", "https://a.example@b.example/x", False),
        ("https://a.example/x", "file:///etc/passwd", False),
        ("https://a.example/x", "https://[a.example/x", False),
    ],
)
def test_the_same_endpoint_has_the_same_host_and_port_or_upgrades_to_https(url: str, target: str, same: bool) -> None:
    assert http.same_endpoint(url, target) is same


# --------------------------------------------------------------------------------------------------------------- TLS


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_a_ca_of_the_site_is_trusted(authority: Authority) -> None:
    with served(lambda _request, reply: reply.json({}), authority.server_context()) as server:
        assert client(ca_file=str(authority.ca_file)).get(server.url).status == 200
        assert client(validate_certs=False).get(server.url).status == 200


def test_the_wrong_ca_gets_no_token(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    with served(lambda _request, reply: reply.json({}), authority.server_context()) as server:
        for options in ({}, {"ca_file": str(other.ca_file)}):
            message = refused(server.url, token=SECRET, **options)
            assert "has a certificate that is not accepted" in message
            assert "set ca_file" in message
        assert "certificate that is not accepted" in refused(
            server.url.replace("127.0.0.1", "localhost"), ca_file=str(authority.ca_file)
        )
    assert server.requests == []


def test_a_client_certificate_is_sent(authority: Authority) -> None:
    certificate, key = authority.issue("client")
    with served(lambda _request, reply: reply.json({}), authority.server_context(client_certificate=True)) as server:
        options = {"ca_file": str(authority.ca_file)}
        assert client(client_cert=str(certificate), client_key=str(key), **options).get(server.url).status == 200
        refused(server.url, **options)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({"ca_file": "/nowhere/ca.pem"}, "rest: ca_file No such file"),
        ({"ca_file": __file__}, "rest: ca_file cannot be used"),
        ({"validate_certs": False, "client_cert": "/nowhere/c.pem"}, "rest: client_cert or client_key No such file"),
        ({"validate_certs": False, "client_cert": __file__}, "rest: client_cert or client_key cannot be used"),
    ],
)
def test_unusable_certificate_files_are_errors(options: dict[str, Any], reported: str) -> None:
    assert reported in refused("https://127.0.0.1:1/", **options)


# ------------------------------------------------------------------------------------------------------------- login


def renewing(tokens: list[str], **more: Any) -> http.ClientConfig:
    """The config with the first token, whose login gives the further ones and then the last one again."""
    rest = tokens[1:]

    def renew(_seconds: float) -> http.ClientConfig:
        return renewing(rest or tokens, **more)

    return http.ClientConfig(headers={"Authorization": tokens[0]}, secrets=(tokens[0],), renew=renew, **more)


def only(token: str) -> Any:
    """A responder that accepts one token."""

    def respond(request: Request, reply: Reply) -> None:
        reply.json({}, 200 if request.headers["authorization"] == token else 401)

    return respond


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH"])
def test_an_expired_login_is_read_again(method: str) -> None:
    with served(only("new"), keep=True) as server:
        http_client = http.Client("rest", renewing(["old", "new"]))
        for _number in (1, 2):
            assert _sent(http_client, method, server.url).status == 200
    assert [request.headers["authorization"] for request in server.requests] == ["old", "new", "new"]


def _sent(http_client: http.Client, method: str, url: str) -> http.Answer:
    return http_client.get(url) if method == "GET" else http_client.send(method, url, {}, repeatable=method == "PATCH")


@pytest.mark.parametrize(("tokens", "requests"), [(["old"], 1), (["old", "older"], 2)])
def test_a_login_that_stays_rejected_is_an_error(tokens: list[str], requests: int) -> None:
    with (
        served(only("new")) as server,
        pytest.raises(http.HttpError, match=r"rejects the credentials \(HTTP 401\); check"),
    ):
        http.Client("rest", renewing(tokens)).get(server.url)
    assert len(server.requests) == requests


def test_concurrent_requests_read_an_expired_login_once() -> None:
    renewed = []
    together = threading.Barrier(8)

    def renew(_seconds: float) -> http.ClientConfig:
        renewed.append(1)
        return http.ClientConfig(headers={"Authorization": "new"})

    def respond(request: Request, reply: Reply) -> None:
        if request.headers["authorization"] == "old":
            together.wait(60)
        only("new")(request, reply)

    with served(respond) as server:
        http_client = http.Client("rest", http.ClientConfig(headers={"Authorization": "old"}, renew=renew))
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(http_client.get, [server.url] * 8))
    assert ({answer.status for answer in answers}, len(renewed)) == ({200}, 1)


# ----------------------------------------------------------------------------------------------------------- proxies


@contextlib.contextmanager
def tunnel(status: str = "200 Connected") -> Iterator[tuple[str, list[bytes]]]:
    """(address of a proxy, which sends each connection on, the requests for them)."""
    requests: list[bytes] = []

    def relay(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def accept(listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client_side, _address = listening.accept()
                head = b""
                while b"\r\n\r\n" not in head:
                    head += client_side.recv(65536)
                requests.append(head)
                client_side.sendall(f"HTTP/1.1 {status}\r\n\r\n".encode())
                if not status.startswith("200"):
                    client_side.close()
                    continue
                host, _colon, port = head.split()[1].decode().rpartition(":")
                server_side = socket.create_connection((host, int(port)))
                for pair in ((client_side, server_side), (server_side, client_side)):
                    threading.Thread(target=relay, args=pair, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, args=(listening,), daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}", requests
        listening.shutdown(socket.SHUT_RDWR)


def test_https_goes_through_a_proxy_without_showing_it_the_token(authority: Authority) -> None:
    with (
        served(lambda _request, reply: reply.json({}), authority.server_context()) as server,
        tunnel() as (proxy, seen),
    ):
        made = config(ca_file=str(authority.ca_file), token=SECRET)
        http_client = http.Client("rest", replace(made, proxy=f"http://me:s%40t@{proxy}"))
        assert http_client.get(server.url).status == 200
        assert patched(http_client, server.url).status == 200
    assert {request.headers["authorization"] for request in server.requests} == {f"Bearer {SECRET}"}
    where = server.url.removeprefix("https://")
    credentials = base64.b64encode(b"me:s@t").decode()
    text = f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\nProxy-Authorization: Basic {credentials}\r\n\r\n"
    assert seen == [text.encode()] * 2


def test_a_proxy_that_refuses_is_named() -> None:
    with tunnel("407 Proxy Authentication Required") as (proxy, _seen):
        http_client = http.Client("rest", http.ClientConfig(proxy=proxy))
        with pytest.raises(http.HttpError, match=r"is refused by the proxy \(HTTP 407\); correct the proxy"):
            http_client.get("https://nowhere.invalid/")


def test_the_name_in_the_servers_certificate_may_be_another(authority: Authority) -> None:
    with served(lambda _request, reply: reply.json({}), authority.server_context()) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        made = config(ca_file=str(authority.ca_file))
        assert http.Client("rest", replace(made, server_name="127.0.0.1")).get(url).status == 200
        with pytest.raises(http.HttpError, match="certificate that is not accepted"):
            http.Client("rest", replace(made, server_name="other.example")).get(server.url)


# ------------------------------------------------------------------------------------------------------------ memory


HUGE = r"""
import resource, sys
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import http
http_client = http.Client("rest", http.ClientConfig(timeout=60))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    http_client.json(http_client.get(sys.argv[1]))
except http.HttpError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_60_mb_of_small_values_cost_no_more_than_their_text() -> None:
    value = b'{"":0},'
    body = b"[" + value * (60_000_000 // len(value)) + b"0]"
    with served(lambda _request, reply: reply.send(200, body)) as server:
        done = subprocess.run(
            [sys.executable, "-c", HUGE, server.url], capture_output=True, text=True, timeout=300, check=True
        )
    message, megabytes = done.stdout.splitlines()
    assert message.endswith(
        "returned a document that has more than 2097152 values; request smaller pages, or raise max_bytes"
    )
    assert int(megabytes) < 200


@pytest.mark.parametrize("honest", [True, False], ids=["with its length", "chunked"])
def test_no_more_of_an_answer_is_read_than_the_limit(honest: bool) -> None:
    chunk, left = b" " * 1_000_000, 100

    def huge(_request: Request, reply: Reply) -> None:
        nonlocal left
        if honest:
            reply.send(200, b"", Content_Length=str(left * len(chunk)))
        else:
            reply.raw.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while left:
            reply.raw.write(chunk if honest else b"%x\r\n%s\r\n" % (len(chunk), chunk))
            left -= 1

    with served(huge) as server:
        assert "returns more than 2000000 bytes; request smaller pages" in refused(server.url, max_bytes=2_000_000)
    # The rest of what was sent is in the buffers of the sockets.
    assert left > 50


# ----------------------------------------------------------------------------------------------------------- options


def test_the_token_is_read_from_a_file_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f" {SECRET}\n")
    made = config(token_file=str(tmp_path / "token"))
    assert made.headers == {"Authorization": f"Bearer {SECRET}"}
    assert SECRET not in repr(made)


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({"token": SECRET, "token_file": "/x"}, "token and token_file are both set"),
        ({"token": SECRET, "username": "u", "password": SECRET}, "username and a token are both set"),
        ({"username": "u"}, "username and a password or password_file must be set together"),
        ({"username": "u:v", "password": SECRET}, "username contains a colon"),
        ({"token": f"{SECRET}\nX-Evil: 1"}, "token is not valid in an HTTP header"),
        ({"token": [SECRET]}, "token is not a text"),
        ({"token_file": "token"}, "token_file is 'token', write an absolute path"),
        ({"token_file": "/nowhere/token"}, "token_file /nowhere/token cannot be read (No such file"),
        ({"token_file": "/dev/zero"}, "token_file /dev/zero cannot be read (it is not a regular file)"),
        ({"client_key": "/x"}, "client_key is set without client_cert"),
        ({"timeout": float("nan")}, "timeout is nan"),
        ({"max_bytes": 1.5}, "max_bytes is 1.5, use an integer"),
        ({"validate_certs": "no"}, "validate_certs is 'no', use true or false"),
        ({"tokn": SECRET}, "'tokn' is not a known option; did you mean token?"),
    ],
)
def test_wrong_options_are_errors(options: dict[str, Any], reported: str) -> None:
    with pytest.raises(SourceError) as caught:
        config(**options)
    assert str(caught.value).startswith(f"rest: {reported}")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [7, "example.org", "file:///etc/passwd", "https://", "https://a b/", "http://[::1/", "https://exämple.org/"],
)
def test_an_invalid_address_is_an_error(url: Any) -> None:
    with pytest.raises(SourceError, match=r"^rest: url .*; write an|^rest: url .*, write a"):
        http.endpoint(Options({"url": url}, ("url",), "rest"), "url", "an address")


def test_messages_show_an_address_without_its_query() -> None:
    assert http.address("https://u:p@example.org:8443/a/b?token=x#y") == "https://example.org:8443/a/b"
    assert len(http.address("https://example.org/" + "a" * 1000)) == 120


# ----------------------------------------------------------------------------------------------------- documentation


@pytest.mark.parametrize("name", ["kubernetes", "topograph", "rest"])
def test_every_option_is_documented_and_every_documented_option_known(name: str) -> None:
    package = "ansible_collections.rackscale.nvlink.plugins"
    source = importlib.import_module(f"{package}.plugin_utils.sources.{name}")
    fragment = importlib.import_module(f"{package}.doc_fragments.source_{name}").ModuleDocFragment
    assert set(yaml.safe_load(fragment.DOCUMENTATION)["options"][name]["suboptions"]) == set(source.OPTIONS)
