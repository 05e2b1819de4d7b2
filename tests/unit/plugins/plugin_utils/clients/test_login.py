# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each kind of login, read by the official client: kubeconfig files, with plugins that are programs, and a pod.

The client is called in the test's own process, where importing it takes no time; tests with `child` start the child.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import http, login, login_child
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import api
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options, SourceError
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.clients.http_servers import (
    Authority,
    Reply,
    Request,
    served,
    without_proxy,
)
from kubernetes import config as official
from kubernetes.config import kube_config

SECRET = "s3cr3t-service-account-token"
SERVER = "https://127.0.0.1:1"


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files, in which nothing is left after a test."""
    without_proxy(monkeypatch)
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    assert list(folder.rglob("*")) == []


RUN_CHILD = login._run_child


def read_here(request: Mapping[str, Any], _seconds: float) -> dict[str, Any]:
    """The answer of login_child.py's main function, without its process."""
    here, folder = Path.cwd(), tempfile.mkdtemp()
    try:
        os.chdir(request["folder"])
        return login_child.read(request["text"], request["context"], folder, lambda _plugin: None)
    except (login_child.LoginError, OSError) as error:
        return {"error": str(error)}
    finally:
        os.chdir(here)
        # It remembers its files by their content.
        kube_config._cleanup_temp_files()
        shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def without_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "_run_child", read_here)


@pytest.fixture
def child(without_child: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "_run_child", RUN_CHILD)


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
    return login.client_config(Options({"kubeconfig": str(path), **options}, login.OPTIONS, "kubernetes"))[1]


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


# ------------------------------------------------------------------------------------------------- kinds of a login


@pytest.mark.parametrize(
    ("user", "header"),
    [
        ({"token": SECRET}, f"Bearer {SECRET}"),
        ({"token": SECRET, "tokenFile": "sa.token"}, "Bearer of-the-file"),
        ({"username": "me", "password": SECRET}, f"Basic {base64.b64encode(f'me:{SECRET}'.encode()).decode()}"),
        ({"auth-provider": {"name": "gcp", "config": {"access-token": SECRET}}}, f"Bearer {SECRET}"),
        ({"auth-provider": {"name": "oidc", "config": {"id-token": VALID}}}, f"Bearer {VALID}"),
    ],
)
def test_a_token_or_password(tmp_path: Path, user: dict[str, Any], header: str) -> None:
    (tmp_path / "sa.token").write_text("of-the-file\n")
    made = read(kubeconfig(tmp_path, user))
    assert made.headers == {"Authorization": header}
    assert header.split()[1] in made.secrets
    assert SECRET not in repr(made)


def test_an_expired_token_of_oidc_is_refreshed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")
    fresh = web_token(3600)

    def respond(request: Request, reply: Reply) -> None:
        if request.target == "/.well-known/openid-configuration":
            reply.json({"token_endpoint": f"{server.url}/token"})
        else:
            reply.json({"id_token": fresh, "access_token": "x", "refresh_token": "y", "token_type": "bearer"})

    with served(respond) as server:
        config = {
            "id-token": web_token(-60), "refresh-token": "r", "client-id": "c", "client-secret": SECRET,
            "idp-issuer-url": server.url,
        }  # fmt: skip
        path = kubeconfig(tmp_path, {"auth-provider": {"name": "oidc", "config": config}})
        before = path.read_bytes()
        assert read(path).headers == {"Authorization": f"Bearer {fresh}"}
    assert path.read_bytes() == before


@pytest.mark.parametrize("as_data", [True, False], ids=["data", "relative paths"])
def test_certificates(tmp_path: Path, as_data: bool) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("admin")
    files = {"client-certificate": certificate, "client-key": key}
    if as_data:
        user = {f"{name}-data": encoded(file) for name, file in files.items()}
        cluster = {"certificate-authority-data": encoded(authority.ca_file)}
    else:
        user = {name: file.name for name, file in files.items()}
        cluster = {"certificate-authority": authority.ca_file.name}
    with served(version, authority.server_context(client_certificate=True)) as server:
        assert answers(kubeconfig(tmp_path, user, server.url, **cluster))


def version(_request: Request, reply: Reply) -> None:
    reply.json({"groups": [{"name": "apps", "versions": [{"version": "v1"}]}]})


def answers(path: Path) -> bool:
    return api.connect({"kubeconfig": str(path)}, "kubernetes").served() == {"apps": ["v1"]}


def test_settings_of_the_cluster(tmp_path: Path) -> None:
    settings = {"tls-server-name": "api.example", "proxy-url": "http://me:x@proxy:3128"}
    made = read(kubeconfig(tmp_path, {}, **settings, **{"insecure-skip-tls-verify": True}))
    assert (made.server_name, made.proxy, made.validate_certs) == ("api.example", "http://me:x@proxy:3128", False)
    assert (made.headers, made.client_pem) == ({}, None)
    made = read(kubeconfig(tmp_path, {"token": SECRET}), context="prod")
    assert (made.server_name, made.proxy, made.validate_certs) == (None, None, True)


# ---------------------------------------------------------------------------------------------------------- plugins


def test_a_plugin_gives_a_token(tmp_path: Path, child: None) -> None:
    """It runs in the kubeconfig's folder, gets its variables and the cluster, and has no terminal."""
    script = (
        f'test "$PWD" = "{tmp_path}" && test "$A" = b && test "$2" = get-token && ! test -t 0 '
        f'&& ! (: </dev/tty) 2>/dev/null && echo "$KUBERNETES_EXEC_INFO" >info || exit 3\n{credential(token=SECRET)}'
    )
    user = plugin(tmp_path, script, args=["eks", "get-token"], env=[{"name": "A", "value": "b"}])
    user["exec"] |= {"command": "./plugin", "provideClusterInfo": True, "interactiveMode": "IfAvailable"}
    assert read(kubeconfig(tmp_path, user)).headers == {"Authorization": f"Bearer {SECRET}"}
    spec = json.loads((tmp_path / "info").read_text())["spec"]
    assert (spec["interactive"], spec["cluster"]["server"]) == (False, SERVER)


def test_a_plugin_gives_a_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = (file.read_text() for file in authority.issue("admin"))
    user = plugin(tmp_path, credential(clientCertificateData=certificate, clientKeyData=key))
    cluster = {"certificate-authority-data": encoded(authority.ca_file)}
    with served(version, authority.server_context(client_certificate=True)) as server:
        assert answers(kubeconfig(tmp_path, user, server.url, **cluster))


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
        ("echo not JSON", "failed to decode process output"),
        (r"printf '\377\376'", "can't decode byte"),
        ("echo '{}'", "missing key 'apiVersion'"),
        (credential(), "missing token or clientCertificateData"),
        (credential(clientCertificateData="x"), "missing clientKeyData"),
        (credential(token=SECRET).replace("k8s.io/v1", "k8s.io/v1beta1"), "does not match"),
    ],
)
def test_a_plugin_that_fails_is_named(tmp_path: Path, script: str, reported: str) -> None:
    user = plugin(tmp_path, script, env=[{"name": "MY_TOKEN", "value": SECRET}])
    check_failure(tmp_path, user, reported)


def test_the_child_names_a_plugin_that_is_missing(tmp_path: Path, child: None) -> None:
    user = plugin(tmp_path, "exit")
    (tmp_path / "plugin").unlink()
    check_failure(tmp_path, user, "[Errno 2] No such file or directory")


def check_failure(tmp_path: Path, user: dict[str, Any], reported: str) -> None:
    message = refused(kubeconfig(tmp_path, user))
    assert f"logs in by the command {tmp_path}/plugin of user u, which failed (" in message
    assert reported in message
    assert len(message) < 700
    assert "; run kubectl with it as the same user" in message


def test_a_plugin_that_hangs_is_killed_with_all_that_it_started(
    tmp_path: Path, child: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = f"sleep 600 & echo $! >>{tmp_path}/pids; setsid sleep 600 & echo $! >>{tmp_path}/pids; sleep 600"
    limits = []

    class Started(subprocess.Popen[bytes]):
        """Its time limit passes when the plugin has started its programs, on however busy a machine."""

        def communicate(self, input: bytes | None = None, timeout: float | None = None) -> tuple[bytes, bytes]:
            if timeout is None:
                return super().communicate(input)
            limits.append(timeout)
            while True:
                try:
                    return super().communicate(input, 0.1)
                except subprocess.TimeoutExpired:
                    if (tmp_path / "pids").exists() and (tmp_path / "pids").read_text().count("\n") == 2:
                        raise
                    input = None

    monkeypatch.setattr(subprocess, "Popen", Started)
    message = refused(kubeconfig(tmp_path, plugin(tmp_path, script)), timeout=3)
    assert limits == [10]
    assert "plugin of user u, which did not end in 10 seconds and was killed; try it by hand, or raise" in message
    pids = (tmp_path / "pids").read_text().split()
    until(lambda: not any(alive(int(pid)) for pid in pids))


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_plugin_that_prints_without_end_is_killed(tmp_path: Path, child: None) -> None:
    message = refused(kubeconfig(tmp_path, plugin(tmp_path, f"echo $$ >{tmp_path}/pid; exec yes")), timeout=60)
    assert "plugin of user u, which prints more than 256 MiB of memory hold" in message
    until(lambda: not alive(int((tmp_path / "pid").read_text())))


PARENT = """
import sys
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import login
login.of_kubeconfig({"kubeconfig": sys.argv[1], "context": "", "timeout": 600}, "kubernetes")
"""


def test_nothing_is_left_of_a_login_whose_parent_is_killed(tmp_path: Path) -> None:
    """As an Ansible worker that is terminated."""
    path = kubeconfig(tmp_path, plugin(tmp_path, f"touch $TMPDIR/key; echo $$ >{tmp_path}/pid; sleep 600"))
    with subprocess.Popen([sys.executable, "-c", PARENT, str(path)]) as parent:
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
        parent.send_signal(signal.SIGKILL)
    until(lambda: not alive(int((tmp_path / "pid").read_text())))


def until(done: Any) -> None:
    ends = time.monotonic() + 60
    while not done():
        assert time.monotonic() < ends, "a file or the end of a process did not appear in 60 seconds"
        time.sleep(0.05)


# -------------------------------------------------------------------------------------------- what cannot be used


@pytest.mark.parametrize(
    ("user", "cluster", "reported"),
    [
        ({"token": SECRET, "as": "admin"}, {}, "lets user u impersonate another one (as)"),
        ({"token": SECRET, "exec": {"command": "x"}}, {}, "gives user u several logins (token, exec); keep one"),
        ({"auth-provider": {"name": "azure"}}, {}, "has an auth-provider azure of user u, which is not supported; use"),
        ({"auth-provider": {"name": "gcp"}}, {}, "the auth-provider gcp of user u, which failed"),
        ({"auth-provider": {"name": "oidc", "config": {"id-token": "a+b"}}}, {}, "which gave no token and no cert"),
        ({"exec": {"command": "x", "interactiveMode": "Always"}}, {}, "a command x of user u that needs a terminal;"),
        ({"exec": "x"}, {}, "has an exec that is no mapping"),
        ({"exec": {"command": "x"}}, {}, "the command x of user u, which failed (exec: malformed request"),
        ({"token": [SECRET]}, {}, "has a token that is no string"),
        ({"client-certificate-data": "LS0="}, {}, "has a certificate or key that is no PEM"),
        ({"client-key-data": base64.b64encode(b"-----BEGIN X").decode()}, {}, "without its key, or the reverse"),
        ({"client-certificate": "missing.pem"}, {}, "File does not exist: missing.pem"),
        ({}, {"proxy-url": "socks5://proxy"}, "has a proxy-url of socks5, which is not supported"),
        ({}, {"insecure-skip-tls-verify": "false"}, "that is neither true nor false"),
        ({}, {"certificate-authority-data": "*"}, "has a certificate or key that is no PEM"),
        ({}, {"server": 7}, "has a server that is no string"),
        ({}, {"server": ""}, "has a cluster without a server"),
    ],
)
def test_an_unusable_login(tmp_path: Path, user: Any, cluster: dict[str, Any], reported: str) -> None:
    server = cluster.pop("server", SERVER)
    assert reported in refused(kubeconfig(tmp_path, user, server, **cluster))


@pytest.mark.parametrize("text", ["", "a: [", "{}", "contexts: 7\ncurrent-context: [1]"])
def test_an_invalid_kubeconfig(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    refused(tmp_path / "config")


@pytest.mark.parametrize(
    ("user", "server", "reported"),
    [
        ({"token": f"{SECRET}\nX: y"}, SERVER, "kubernetes: token is not valid in an HTTP header"),
        ({}, f"https://u:{SECRET}@example.org", "server contains a user name or password"),
    ],
)
def test_an_unusable_token_or_address(tmp_path: Path, user: Any, server: str, reported: str) -> None:
    with pytest.raises(SourceError, match=reported) as caught:
        read(kubeconfig(tmp_path, user, server))
    assert SECRET not in str(caught.value)
    with pytest.raises(SourceError, match=r"kubeconfig .* names several files, as KUBECONFIG may; name one of them"):
        read(Path(f"{tmp_path}/a:{tmp_path}/b"))


def test_names_that_a_kubeconfig_lacks(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"token": SECRET})
    assert "Expected object with name other in kube-config/contexts list" in refused(path, context="other")
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "users": []}))
    assert "has no user u" in refused(path)
    path.write_text(json.dumps({**document, "clusters": []}))
    assert "Expected object with name c in kube-config/clusters list" in refused(path)


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    message = refused(kubeconfig(tmp_path, {"token": SECRET}))
    assert "cannot be read without the Python library kubernetes; pip install kubernetes" in message


# ------------------------------------------------------------------------------------------------------------- a pod


def test_outside_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    message = refused("in-cluster")
    assert "cannot be used (Service host/port is not set); run in a pod with a service account" in message
    with pytest.raises(SourceError, match="context belongs to a kubeconfig file; leave it out with in-cluster"):
        read("in-cluster", context="prod")


def test_the_service_account_of_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The paths are fixed, so the child's function is called here; a lab test has a real service account."""
    authority = Authority(tmp_path)
    (tmp_path / "token").write_text(f"{SECRET}\n")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(official.incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(official.incluster_config, "SERVICE_CERT_FILENAME", str(authority.ca_file))
    made = login_child.read(None, None, os.devnull, lambda _plugin: None)
    assert made["server"] == "https://[fd00::1]:443"
    assert made["authorization"].lower() == f"bearer {SECRET}"
    assert made["authority"] == authority.ca_file.read_text()
