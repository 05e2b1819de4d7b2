# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import base64
import itertools
import logging
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils import actions
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import http
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options, SourceError

from .http_servers import Authority, Reply, Request, served

SECRET = "s3cr3t-t0ken-of-the-cmdb"


def client(url: str, **options: Any) -> http.Client:
    return http.Client("rest", config(url, **options))


def config(url: str = "http://example.org", **options: Any) -> http.ClientConfig:
    return http.client_config(
        Options({"url": url, "timeout": 60, **options}, ("url", *http.OPTIONS), "rest"), "url", ""
    )


def refused(url: str, **options: Any) -> str:
    """The sentence with which a GET fails; checked for form and for secrets."""
    http_client = client(url, **options)
    with pytest.raises(http.HttpError) as caught:
        http_client.json(http_client.get(url))
    message = str(caught.value)
    assert re.fullmatch(r"rest: [^\n]*; [^\n]*[^.]", message), message
    assert SECRET not in message
    assert "Bearer" not in message
    return message


def test_an_answer_is_read_with_the_token_of_a_file_and_as_json(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f" {SECRET}\n")
    with served(lambda _request, reply: reply.json({"a": [1]})) as server:
        assert SECRET not in repr(config(server.url, token_file=str(tmp_path / "token")))
        http_client = client(server.url, token_file=str(tmp_path / "token"))
        assert http_client.json(http_client.get(f"{server.url}/x?y=1")) == {"a": [1]}
    (request,) = server.requests
    assert (request.method, request.target, request.headers["authorization"]) == ("GET", "/x?y=1", f"Bearer {SECRET}")


def test_basic_authentication_takes_its_password_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(f"{SECRET}\n")
    with served(lambda _request, reply: reply.json({})) as server:
        client(server.url, username="ro-user", password_file=str(tmp_path / "password")).get(server.url)
    reported = server.requests[0].headers["authorization"].removeprefix("Basic ")
    assert base64.b64decode(reported).decode() == f"ro-user:{SECRET}"


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


def test_the_deadline_holds_for_all_requests_together() -> None:
    def slow(_request: Request, reply: Reply) -> None:
        reply.pause(0.3)
        reply.json({})

    with served(slow) as server:
        http_client = client(server.url, deadline=0.8)
        # Several statements on purpose: which of the requests meets the deadline is the machine's business.
        with pytest.raises(http.HttpError, match=r"gave no complete answer in 0\.8 seconds; .*deadline"):  # noqa: PT012
            for _number in range(10):
                http_client.get(server.url)


def test_a_refused_connection_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    assert "cannot be reached (Connection refused), 3 times; check the address, the network" in refused(
        f"http://127.0.0.1:{port}/api", token=SECRET
    )


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
        http_client = client(server.url, deadline=60)
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
        pytest.raises(http.HttpError, match=r"fails \(HTTP 503\); "),
    ):
        client(server.url).send("POST", server.url, {"a": 1})
    assert [(request.method, request.body) for request in server.requests] == [("POST", b'{"a": 1}')]


def test_a_request_that_changes_something_is_an_action_without_query_and_token() -> None:
    actions.begin()
    statuses = iter((200, 409))
    with served(lambda _request, reply: reply.json({}, next(statuses))) as server:
        http_client = client(server.url, token=SECRET)
        http_client.act("PATCH", f"{server.url}/nodes/{SECRET}?key={SECRET}", {"a": SECRET})
        with pytest.raises(http.HttpError):
            http_client.act("DELETE", f"{server.url}/nodes/b", None)
    with pytest.raises(http.HttpError):
        http_client.act("POST", f"{server.url}/c", {})
    asked = [("PATCH", "nodes/***", "HTTP 200"), ("DELETE", "nodes/b", "HTTP 409"), ("POST", "c", "no answer")]
    assert actions.done() == [f"{method} {server.url}/{path} ({end})" for method, path, end in asked]


def patched(http_client: http.Client, url: str) -> http.Answer:
    return http_client.send("PATCH", url, {"a": 1})


def test_nothing_is_changed_after_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is resolved only when the caller waits no longer; then the server gets no complete request."""
    resolve, resolved, asked = socket.getaddrinfo, threading.Event(), threading.Event()

    def slow(*address: Any, **more: Any) -> Any:
        asked.set()
        resolved.wait(60)
        return resolve(*address, **more)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        http_client = client(url, timeout=0.3)
        monkeypatch.setattr(socket, "getaddrinfo", slow)
        with pytest.raises(http.HttpError, match=r"gave no complete answer in 0\.3 seconds"):
            patched(http_client, url)
        assert asked.is_set()
        resolved.set()
        listening.settimeout(60)
        connection, _address = listening.accept()
        with connection:
            received = b"".join(iter(lambda: connection.recv(65536), b""))
    assert b"PATCH / HTTP/1.1" in received
    assert b'{"a": 1}' not in received


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(lambda _request, reply: reply.json({})) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "")
        patched(client("http://nowhere.invalid"), "http://nowhere.invalid/x")
    assert proxy.requests[0].target == "http://nowhere.invalid/x"


@pytest.mark.parametrize(
    ("statuses", "token", "reported"),
    [
        ([401], SECRET, "rejects the credentials (HTTP 401); check the token or password"),
        ([401], None, "rejects the credentials (HTTP 401)"),
        ([403], SECRET, "refuses access (HTTP 403); give the account that permission"),
        ([404], SECRET, "does not exist (HTTP 404); correct the address"),
        ([418], SECRET, "fails (HTTP 418); see its reason, or the server's log"),
        ([429, 429, 429], SECRET, "fails (HTTP 429), 3 times"),
        ([503, 503, 503], SECRET, "fails (HTTP 503), 3 times"),
        # Only a failure that was repeated is counted.
        ([503, 404], SECRET, "does not exist (HTTP 404); correct the address"),
    ],
)
def test_only_a_transient_failure_is_retried(statuses: list[int], token: str | None, reported: str) -> None:
    answers = iter(statuses)

    def respond(_request: Request, reply: Reply) -> None:
        reply.send(next(answers), SECRET.encode(), WWW_Authenticate=SECRET)

    with served(respond) as server:
        assert reported in refused(f"{server.url}/{token}?key={SECRET}", token=token)
    assert len(server.requests) == len(statuses)


Send = Callable[[Reply], Any]


@pytest.mark.parametrize(
    ("send", "reported"),
    [
        (lambda reply: reply.send(200, b'{"items": ['), "returned 11 bytes that are not a JSON document"),
        (lambda reply: reply.send(200, b"\xff\xfe\x00"), "not a JSON document"),
        (lambda reply: reply.send(200, b"[" * 100_000), "JSON"),
        # As objects they would take 30 times the memory of their text.
        (
            lambda reply: reply.send(200, b"[" + b"0," * 2_097_153),
            "more than 2097152 values; request smaller pages, or raise max_bytes",
        ),
        (lambda reply: reply.send(302, Location=""), "redirects to"),
        (lambda reply: reply.send(302, Location="http://[bad/"), "cannot be reached"),
        (lambda reply: reply.raw.write(b"SSH-2.0-x\r\n"), "(no complete HTTP answer), 3 times; check the address"),
        (
            lambda reply: reply.raw.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"),
            "cannot be reached (no complete HTTP answer), 3 times",
        ),
    ],
)
def test_an_unusable_answer_is_an_error(send: Send, reported: str) -> None:
    with served(lambda _request, reply: send(reply)) as server:
        assert reported in refused(server.url, token=SECRET)


def test_half_of_a_surrogate_pair_becomes_a_character_that_can_be_written() -> None:
    """As in a label of Kubernetes, which ends in the state file."""
    body = rb'{"half \ud800": ["\uDFFF", "whole \ud83d\ude00"]}'
    with served(lambda _request, reply: reply.send(200, body)) as server:
        asked = client(server.url)
        found = asked.json(asked.get(server.url))
    assert found == {"half ?": ["?", "whole \U0001f600"]}


@pytest.mark.parametrize(
    ("method", "status"),
    [*(("GET", status) for status in (301, 302, 303, 307, 308)), ("POST", 307), ("PATCH", 302)],
)
def test_no_credentials_go_to_the_target_of_a_redirect(method: str, status: int) -> None:
    """Not even a request; also not to another path of the same server, whose address the options should have."""
    given = {"url": "http://example.org", "token": SECRET, "timeout": 5}
    options = Options(given, ("url", *http.OPTIONS), "rest")
    made = http.client_config(options, "url", "", "X-Auth-Token", "")
    document = None if method == "GET" else {}
    with served(lambda _request, reply: reply.json({})) as elsewhere:
        for target, shown in ((f"{elsewhere.url}/new?key={SECRET}", f"{elsewhere.url}/new"), ("/new", "{}/new")):

            def respond(_request: Request, reply: Reply, target: str = target) -> None:
                reply.send(status, Location=target)

            with served(respond) as server, pytest.raises(http.HttpError) as caught:
                http.Client("rest", replace(made, url=server.url)).send(method, f"{server.url}/old", document)
            where = shown.format(server.url)
            assert str(caught.value) == f"rest: {server.url}/old redirects to {where}; set the address of the target"
            assert len(server.requests) == 1
    assert elsewhere.requests == []


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_a_ca_of_the_site_is_trusted(authority: Authority) -> None:
    with served(lambda _request, reply: reply.json({}), authority.server_context()) as server:
        assert client(server.url, ca_file=str(authority.ca_file)).get(server.url).status == 200
        assert client(server.url, validate_certs=False).get(server.url).status == 200


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
    certificate, key = authority.client
    with served(lambda _request, reply: reply.json({}), authority.server_context(client_certificate=True)) as server:
        options = {"ca_file": str(authority.ca_file)}
        given = {"client_cert": str(certificate), "client_key": str(key), **options}
        assert client(server.url, **given).get(server.url).status == 200
        refused(server.url, **options)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"ca_file": "/nowhere/ca.pem"}, "No such file or directory"),
        ({"ca_file": __file__}, "no certificate or crl found"),
        ({"validate_certs": False, "client_cert": "/nowhere/c.pem"}, "No such file or directory"),
        ({"validate_certs": False, "client_cert": __file__}, "PEM lib"),
        ({"validate_certs": False, "client_key": __file__}, "PEM lib"),
    ],
)
def test_unusable_certificate_files_are_errors(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(SourceError) as caught:
        config(**options)
    assert str(caught.value).startswith(
        "rest: ca_file, client_cert, client_key or the proxy of the environment cannot be used ("
    )
    assert reason.lower() in str(caught.value).lower()


def test_a_key_with_a_pass_phrase_is_an_error_and_no_question(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.client
    locked = tmp_path / "locked.key"
    subprocess.run(["openssl", "ec", "-aes128", "-passout", "pass:x", "-in", key, "-out", locked], check=True)
    with pytest.raises(SourceError, match="client_key or the proxy of the environment cannot be used"):
        config(client_cert=str(certificate), client_key=str(locked))


def logged_in(url: str, token: str, renew: Any = None) -> http.ClientConfig:
    return replace(config(url), headers={"Authorization": token}, secrets=(token,), renew=renew)


def renewing(url: str, tokens: list[str]) -> http.ClientConfig:
    """The config with the first token, whose login gives the further ones and then the last one again."""
    fresh = itertools.chain(tokens[1:], itertools.repeat(tokens[-1]))
    return logged_in(url, tokens[0], lambda: logged_in(url, next(fresh)))


def only(token: str) -> Any:
    """A responder that accepts one token."""

    def respond(request: Request, reply: Reply) -> None:
        reply.json({}, 200 if request.headers["authorization"] == token else 401)

    return respond


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH"])
def test_an_expired_login_is_read_again(method: str) -> None:
    with served(only("new"), keep=True) as server:
        http_client = http.Client("rest", renewing(server.url, ["old", "new"]))
        for _number in (1, 2):
            assert http_client.send(method, server.url, {}).status == 200
        del http_client
    assert [request.headers["authorization"] for request in server.requests] == ["old", "new", "new"]


@pytest.mark.parametrize(("tokens", "requests"), [(["old"], 1), (["old", "older"], 2), (list("abcdef"), 3)])
def test_a_login_that_stays_rejected_is_an_error(tokens: list[str], requests: int) -> None:
    with (
        served(only("new")) as server,
        pytest.raises(http.HttpError, match=r"rejects the credentials \(HTTP 401\)"),
    ):
        http.Client("rest", renewing(server.url, tokens)).get(server.url)
    assert len(server.requests) == requests


def test_concurrent_requests_read_an_expired_login_once() -> None:
    renewed = []
    together = threading.Barrier(8)

    def renew() -> http.ClientConfig:
        renewed.append(1)
        return logged_in(server.url, "new")

    def respond(request: Request, reply: Reply) -> None:
        if request.headers["authorization"] == "old":
            together.wait(60)
        only("new")(request, reply)

    with served(respond) as server:
        http_client = http.Client("rest", logged_in(server.url, "old", renew))
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(http_client.get, [server.url] * 8))
    assert ({answer.status for answer in answers}, len(renewed)) == ({200}, 1)


def test_the_name_in_the_servers_certificate_may_be_another(authority: Authority) -> None:
    with served(lambda _request, reply: reply.json({}), authority.server_context()) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        for name, accepted in (("127.0.0.1", True), ("other.example", False)):
            pool = http.connections(url, str(authority.ca_file), None, None, True, name)
            http_client = http.Client("rest", replace(config(url), pool=pool))
            if accepted:
                assert http_client.get(url).status == 200
            else:
                with pytest.raises(http.HttpError, match="certificate that is not accepted"):
                    http_client.get(url)


def test_no_query_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Ansible logs from INFO on, also what libraries write."""
    caplog.set_level(logging.INFO)
    refused(f"http://127.0.0.1:1/?key={SECRET}")
    with served(lambda _request, reply: reply.send(302, Location=f"/?key={SECRET}")) as server:
        refused(f"{server.url}/?key={SECRET}")
    assert caplog.text == ""


@pytest.mark.parametrize("honest", [True, False])
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


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({"token": SECRET, "token_file": "/x"}, "token and token_file are both set"),
        ({"token": SECRET, "username": "u", "password": SECRET}, "username needs a password or password_file, and no"),
        ({"username": "u"}, "username needs a password or password_file, and no token; set one login"),
        ({"password": SECRET}, "username needs a password or password_file, and no token; set one login"),
        ({"token": f"{SECRET}\nX-Evil: 1"}, "token is not valid in an HTTP header"),
        ({"token": [SECRET]}, "token is not a text"),
        ({"token_file": "token"}, "token_file is 'token', write an absolute path"),
        ({"token_file": "/nowhere/token"}, "token_file /nowhere/token cannot be read (No such file"),
        ({"token_file": "/dev/zero"}, "token_file /dev/zero cannot be read (it is not a regular file)"),
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
    [7, "example.org", "file:///etc/passwd", "https://", "https://a b/", "http://[::1/", "https://exämple.org/",
     "https://h:0/", f"https://u:{SECRET}@h/", "https://h\n/"],
)  # fmt: skip
def test_an_invalid_address_is_an_error(url: Any) -> None:
    with pytest.raises(SourceError, match=r"^rest: url .*; write an|^rest: url .*, write a") as caught:
        http.endpoint(Options({"url": url}, ("url",), "rest"), "url", "an address")
    assert SECRET not in str(caught.value)


def test_messages_show_an_address_without_its_query() -> None:
    assert http.address("https://u:p@example.org:8443/a/b?token=x#y") == "https://example.org:8443/a/b"
    assert len(http.address("https://example.org/" + "a" * 1000)) <= 120


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "urllib3", None)
    with pytest.raises(SourceError, match="url cannot be read without the Python library urllib3; pip install urllib3"):
        config()
