# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each kind of login, read by the official client: kubeconfig files, with plugins that are programs, and a pod."""

from __future__ import annotations

import base64
import io
import json
import logging
import re
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import http, login
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import api
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options, SourceError
from kubernetes import config as official

from .http_servers import Authority, Reply, Request, served

SECRET = "s3cr3t-service-account-token"
SERVER = "https://127.0.0.1:1"


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files, in which nothing is left after a test."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    assert list(folder.rglob("*")) == []


def kubeconfig(folder: Path, user: Any, server: Any = SERVER, **cluster: Any) -> Path:
    path = folder / "config"
    document = {
        "current-context": "prod",
        "contexts": [{"name": "prod", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(json.dumps(document))
    return path


def read(path: Path | str, **options: Any) -> http.ClientConfig:
    return login.client_config(Options({"kubeconfig": str(path), **options}, login.OPTIONS, "kubernetes"))


def refused(path: Path | str, **options: Any) -> str:
    """The sentence with which a login fails; checked for form and for secrets."""
    with pytest.raises(SourceError) as caught:
        read(path, **options)
    message = str(caught.value)
    assert re.fullmatch(rf"kubernetes: kubeconfig {re.escape(str(path))} [^\n]*; [^\n]*[^.]", message), message
    assert SECRET not in message
    return message


def plugin(folder: Path, script: str, **more: Any) -> dict[str, Any]:
    """A user with a login plugin, a shell script."""
    path = folder / "plugin"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path), **more}}


def web_token(seconds: float) -> str:
    """A JSON web token that ends in so many seconds."""
    claims = base64.urlsafe_b64encode(json.dumps({"exp": int(time.time() + seconds)}).encode()).decode().rstrip("=")
    return f"eyJhbGciOiJub25lIn0.{claims}.c2lnbmF0dXJl"


VALID = web_token(3600)


def credential(**status: Any) -> str:
    document = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    return f"cat <<'END'\n{json.dumps(document)}\nEND"


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


@pytest.mark.parametrize(
    ("user", "header"),
    [
        ({"token": SECRET}, f"Bearer {SECRET}"),
        ({"tokenFile": "sa.token"}, "Bearer of-the-file"),
        ({"username": "me", "password": SECRET}, f"Basic {base64.b64encode(f'me:{SECRET}'.encode()).decode()}"),
        ({"auth-provider": {"name": "gcp", "config": {"access-token": SECRET}}}, f"Bearer {SECRET}"),
        ({"auth-provider": {"name": "oidc", "config": {"id-token": VALID}}}, f"Bearer {VALID}"),
    ],
    # The token of oidc is of the time of its import, which differs between pytest-xdist's workers.
    ids=["token", "tokenFile", "password", "gcp", "oidc"],
)
def test_a_token_or_password(tmp_path: Path, user: dict[str, Any], header: str) -> None:
    (tmp_path / "sa.token").write_text("of-the-file\n")
    made = read(kubeconfig(tmp_path, user))
    assert made.headers == {"Authorization": header}
    assert header.split()[1] in made.secrets
    assert SECRET not in repr(made)


def expired(issuer: str) -> dict[str, Any]:
    """A user of OIDC whose token has expired."""
    config = {"id-token": web_token(-60), "refresh-token": "r", "client-id": "c", "client-secret": SECRET}
    return {"auth-provider": {"name": "oidc", "config": {**config, "idp-issuer-url": issuer}}}


def test_an_expired_token_of_oidc_is_refreshed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")
    fresh = web_token(3600)

    def respond(request: Request, reply: Reply) -> None:
        if request.target == "/.well-known/openid-configuration":
            reply.json({"token_endpoint": f"{server.url}/token"})
        else:
            reply.json({"id_token": fresh, "access_token": "x", "refresh_token": "y", "token_type": "bearer"})

    with served(respond) as server:
        path = kubeconfig(tmp_path, expired(server.url))
        before = path.read_bytes()
        assert read(path).headers == {"Authorization": f"Bearer {fresh}"}
    assert path.read_bytes() == before


@pytest.mark.parametrize("as_data", [True, False], ids=["data", "relative paths"])
def test_certificates(tmp_path: Path, as_data: bool) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.client
    files = {"client-certificate": certificate, "client-key": key}
    if as_data:
        user = {f"{name}-data": encoded(file) for name, file in files.items()}
        cluster = {"certificate-authority-data": encoded(authority.ca_file)}
    else:
        user = {name: str(file.relative_to(tmp_path)) for name, file in files.items()}
        cluster = {"certificate-authority": str(authority.ca_file.relative_to(tmp_path))}
    with served(version, authority.server_context(client_certificate=True)) as server:
        assert answers(kubeconfig(tmp_path, user, server.url, **cluster))


def version(_request: Request, reply: Reply) -> None:
    reply.json({"groups": [{"name": "apps", "versions": [{"version": "v1"}]}]})


def answers(path: Path) -> bool:
    return api.connect({"kubeconfig": str(path)}, "kubernetes").served() == {"apps": ["v1"]}


def test_settings_of_the_cluster(tmp_path: Path) -> None:
    settings = {"tls-server-name": "api.example", "proxy-url": "http://me:s%40t@proxy:3128"}
    pool = read(kubeconfig(tmp_path, {}, **settings, **{"insecure-skip-tls-verify": True})).pool
    assert isinstance(pool, urllib3.ProxyManager)
    assert (pool.proxy.host, pool.proxy.port) == ("proxy", 3128)
    assert pool.proxy_headers == {"proxy-authorization": f"Basic {base64.b64encode(b'me:s@t').decode()}"}
    kept = pool.connection_pool_kw
    assert (kept["server_hostname"], kept["ssl_context"].verify_mode) == ("api.example", ssl.CERT_NONE)
    made = read(kubeconfig(tmp_path, {"token": SECRET}), context="prod")
    kept = made.pool.connection_pool_kw
    assert (kept["server_hostname"], kept["ssl_context"].verify_mode) == (None, ssl.CERT_REQUIRED)
    assert not isinstance(made.pool, urllib3.ProxyManager)
    # A text does not turn verification off. For the client it would: not "false" is False.
    made = read(kubeconfig(tmp_path, {}, **{"insecure-skip-tls-verify": "false"}))
    assert made.pool.connection_pool_kw["ssl_context"].verify_mode == ssl.CERT_REQUIRED


def test_several_files_are_merged_as_by_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one wins; paths in a file start at its folder; one that is missing is skipped."""
    folders = [tmp_path / name for name in ("one", "two")]
    for number, folder in enumerate(folders):
        folder.mkdir()
        (folder / "token").write_text(f"of-{folder.name}")
        path = kubeconfig(folder, {"tokenFile": "token"}, f"https://127.0.0.1:{number + 1}")
        path.write_text(path.read_text().replace('"u"', f'"{folder.name}"').replace('"prod"', f'"{folder.name}"'))
    monkeypatch.setenv("HOME", str(tmp_path))
    several = f"~/one/config:{tmp_path}/missing:{tmp_path}/two/config"
    made = read(several, context="two")
    # Both clusters have the name c.
    assert (made.url, made.headers) == ("https://127.0.0.1:1", {"Authorization": "Bearer of-two"})
    assert "has no context 'three'" in refused(several, context="three")


def test_a_plugin_gives_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs in the kubeconfig's folder, gets its variables and the cluster, and may not ask questions."""
    script = (
        f'test "$PWD" = "{tmp_path}" && test "$A" = b && test "$2" = get-token '
        f'&& echo "$KUBERNETES_EXEC_INFO" >info || exit 3\n{credential(token=SECRET)}'
    )
    user = plugin(tmp_path, script, args=["eks", "get-token"], env=[{"name": "A", "value": "b"}])
    user["exec"] |= {"command": "./plugin", "provideClusterInfo": True, "interactiveMode": "IfAvailable"}
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert read(kubeconfig(tmp_path, user)).headers == {"Authorization": f"Bearer {SECRET}"}
    spec = json.loads((tmp_path / "info").read_text())["spec"]
    assert (spec["interactive"], spec["cluster"]["server"]) == (False, SERVER)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_plugin_is_asked_again_when_its_token_expires(tmp_path: Path) -> None:
    count = f"n=$(cat {tmp_path}/n 2>/dev/null || echo 0); echo $((n + 1)) >{tmp_path}/n\n"
    user = plugin(tmp_path, count + credential(token="token-N").replace("'END'", "END").replace("token-N", "token-$n"))

    def respond(request: Request, reply: Reply) -> None:
        if request.headers["authorization"] == "Bearer token-1":
            version(request, reply)
        else:
            reply.json({}, 401)

    with served(respond) as server:
        assert answers(kubeconfig(tmp_path, user, server.url))
    assert (tmp_path / "n").read_text() == "2\n"


@pytest.mark.parametrize(
    ("script", "reported"),
    [
        ("echo Unable to locate credentials >&2; exit 255", "process returned 255. Unable to locate credentials"),
        ("yes text | head -c 100000 >&2; echo the last words >&2; exit 1", "the last words"),
        (f"echo password={SECRET} >&2; echo $MY_TOKEN >&2; exit 1", "password=***"),
        ("", "[Errno 2] No such file or directory"),
        ("echo not JSON", "failed to decode process output"),
        ("echo '{}'", "missing key 'apiVersion'"),
        (credential(token=SECRET).replace("k8s.io/v1", "k8s.io/v1beta1"), "does not match"),
    ],
)
def test_a_plugin_that_fails_is_named(tmp_path: Path, script: str, reported: str) -> None:
    user = plugin(tmp_path, script, env=[{"name": "MY_TOKEN", "value": SECRET}])
    if not script:
        (tmp_path / "plugin").unlink()
    message = refused(kubeconfig(tmp_path, user))
    assert f"logs in as user u by {tmp_path}/plugin, which failed (" in message
    assert reported in message
    assert len(message) < 700
    assert "; run kubectl with it as the same user" in message


def test_what_a_plugin_prints_reaches_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """The official client logs it by the root logger, and Python would add a handler that prints."""
    handlers = list(logging.getLogger().handlers)
    refused(kubeconfig(tmp_path, plugin(tmp_path, "echo the words of the plugin >&2; exit 1")))
    assert (caplog.text, capfd.readouterr()) == ("", ("", ""))
    assert logging.getLogger().handlers == handlers
    logging.getLogger().error("another message")
    assert "another message" in caplog.text


def test_no_part_of_a_file_is_quoted(tmp_path: Path) -> None:
    """The client's own error would hold the whole user."""
    user = {"auth-provider": {"name": "oidc", "config": {"client-secret": SECRET, "x": "another-secret"}}}
    assert "another-secret" not in refused(kubeconfig(tmp_path, user))
    variables = [{"name": "A", "value": "a-third-secret"}, {"nam": "B"}]
    assert "a-third-secret" not in refused(kubeconfig(tmp_path, plugin(tmp_path, "exit", env=variables)))
    (tmp_path / "config").write_text(f"users: [{{token: {SECRET}")
    refused(tmp_path / "config")


def test_a_plugin_that_hangs_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    script = f"sleep 600 & echo $! >>{tmp_path}/pids; setsid sleep 600 & echo $! >>{tmp_path}/pids; sleep 600"
    message = refused(kubeconfig(tmp_path, plugin(tmp_path, script)), timeout=3)
    assert f"logs in as user u by {tmp_path}/plugin, which did not end in 3 seconds and was killed; try it" in message
    pids = (tmp_path / "pids").read_text().split()
    assert len(pids) == 2
    until(lambda: not any(alive(int(pid)) for pid in pids))


def test_a_provider_that_hangs_ends_with_the_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No program is started for it, so there is nothing to kill."""
    monkeypatch.setattr(login, "GRACE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        user = expired(f"http://127.0.0.1:{listening.getsockname()[1]}")
        message = refused(kubeconfig(tmp_path, user), timeout=0.5)
    assert "logs in as user u by auth-provider, which did not end in 0.5 seconds" in message


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(done: Any) -> None:
    ends = time.monotonic() + 60
    while not done():
        assert time.monotonic() < ends, "a file or the end of a process did not appear in 60 seconds"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("user", "cluster", "reported"),
    [
        ({"token": SECRET, "as": "admin"}, {}, "lets user u impersonate another one, which is not supported; use"),
        ({"token": SECRET, "as-groups": ["admin"]}, {}, "lets user u impersonate another one"),
        ({"token": SECRET, "exec": {"command": "x"}}, {}, "gives user u several logins (token, exec); keep one"),
        ({"token": SECRET, "tokenFile": "x"}, {}, "gives user u several logins (token, tokenFile); keep one"),
        (
            {"auth-provider": {"name": "azure"}},
            {},
            "as user u by auth-provider, which gave no token and no certificate",
        ),
        ({"auth-provider": {"name": "gcp"}}, {}, "logs in as user u by auth-provider, which failed ("),
        ({"auth-provider": {"name": "oidc", "config": {"id-token": "a+b"}}}, {}, "which gave no token and no cert"),
        ({"exec": "x"}, {}, "logs in as user u by exec, which failed ("),
        ({"exec": {"command": "x"}}, {}, "as user u by x, which failed (exec: malformed request"),
        ({"username": "me"}, {}, "as user u by username, which gave no token and no certificate"),
        ({"client-certificate-data": "LS0="}, {}, "has a certificate, key or proxy-url that cannot be used ("),
        ({"client-key-data": base64.b64encode(b"-----BEGIN X").decode()}, {}, "key or proxy-url that cannot be used"),
        ({"client-certificate": "missing.pem"}, {}, "logs in as user u, which failed (File does not exist: "),
        ({}, {"proxy-url": "socks5://proxy"}, "or proxy-url that cannot be used (ProxySchemeUnknown)"),
        ({}, {"proxy-url": f"http://me:{SECRET}@pro xy:x"}, "or proxy-url that cannot be used (LocationParseError)"),
        ({}, {"certificate-authority-data": "*"}, "has a certificate, key or proxy-url that cannot be used ("),
    ],
)
def test_an_unusable_login(tmp_path: Path, user: Any, cluster: dict[str, Any], reported: str) -> None:
    assert reported in refused(kubeconfig(tmp_path, user, **cluster))


@pytest.mark.parametrize("text", ["", "a: [", "{}", "contexts: 7\ncurrent-context: [1]"])
def test_an_invalid_kubeconfig(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    refused(tmp_path / "config")


@pytest.mark.parametrize(
    ("user", "server", "reported"),
    [
        ({"token": f"{SECRET}\nX: y"}, SERVER, "kubernetes: token is not valid in an HTTP header"),
        ({}, f"https://u:{SECRET}@example.org", "server is not a valid http or https address, or holds a password"),
        ({}, 7, "server is 7, write a text"),
        ({}, None, "server is missing; write an address"),
    ],
)
def test_an_unusable_token_or_address(tmp_path: Path, user: Any, server: str, reported: str) -> None:
    with pytest.raises(SourceError, match=reported) as caught:
        read(kubeconfig(tmp_path, user, server))
    assert SECRET not in str(caught.value)


def test_a_missing_file(tmp_path: Path) -> None:
    for path in (tmp_path / "a", f"{tmp_path}/a:{tmp_path}/b"):
        assert "cannot be read (No such file or directory)" in refused(path)


def test_names_that_a_kubeconfig_lacks(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"token": SECRET})
    assert "has no context 'other'; correct it, or set context to one of its contexts" in refused(path, context="other")
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "users": []}))
    assert "has no user 'u'" in refused(path)
    path.write_text(json.dumps({**document, "clusters": []}))
    assert "has no cluster 'c'" in refused(path)


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    message = refused(kubeconfig(tmp_path, {"token": SECRET}))
    assert "cannot be read without the Python library kubernetes; pip install kubernetes" in message


def test_outside_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    message = refused("in-cluster")
    assert "logs in as the service account of a pod, which failed (Service host/port is not set)" in message
    with pytest.raises(SourceError, match="context belongs to a kubeconfig file; leave it out with api_url and in-clu"):
        read("in-cluster", context="prod")


def test_the_service_account_of_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The paths are fixed; a lab test has a real service account."""
    authority = Authority(tmp_path)
    (tmp_path / "token").write_text(f"{SECRET}\n")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(official.incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(official.incluster_config, "SERVICE_CERT_FILENAME", str(authority.ca_file))
    made = read("in-cluster")
    assert made.url == "https://[fd00::1]:443"
    assert made.headers["Authorization"].lower() == f"bearer {SECRET}"
    assert len(made.pool.connection_pool_kw["ssl_context"].get_ca_certs()) == 1
