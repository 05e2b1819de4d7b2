# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A program that login.py starts: reads a login by the official Kubernetes client and prints it as JSON.

The client gives a login plugin no deadline, only logs its failure, and removes its key files when the process exits. In
a process of its own, with a folder of its own for temporary files, all of it can be ended and removed from outside.

On its standard input is a request: text (of the kubeconfig; null in a pod), context, folder (of the kubeconfig, where
relative paths start), scratch (the folder for key files) and parent (a process id). Each line of its output is a JSON
object: {"uses": which plugin is started}, and at the end {"error": sentence} or the login.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

MAX_BYTES = 1024 * 1024
"""Limit of each part of a login."""
MAX_SHOWN = 10_000
"""Characters of a message, from each end, of which a sentence is made."""
MAX_MEMORY = 256 * 1024 * 1024
"""Limit of this process: the client reads all that a plugin prints."""

# Kinds of logins of a user, of which the client would use one and ignore the others.
_LOGINS = {"auth-provider": ("auth-provider",), "token": ("token", "tokenFile"), "exec": ("exec",)}
_LOGINS |= {"username": ("username", "password")}
_PROVIDERS = ("gcp", "oidc")
_TEXTS = ("token", "tokenFile", "username", "password")
_SECRETS = (
    (re.compile(r"-----BEGIN .*?(-----END [A-Z ]+-----|$)", re.DOTALL), "***"),
    (re.compile(r"eyJ[\w.-]{8,}|[\w+/=.~-]{64,}"), "***"),
    (re.compile(r"((?:secret|token|password|passwd)[\w\"'-]*\s*[=:]\s*[\"']?)[^\s\"',}]+", re.IGNORECASE), r"\1***"),
)


class LoginError(Exception):
    """A login cannot be read: what is wrong, and the remedy."""


class _Log(logging.Handler):
    """Keeps what the client logs."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def read(text: str | None, context: str | None, scratch: str, starts: Callable[[str], None]) -> dict[str, Any]:
    """The login of a context of a kubeconfig, or of the pod; starts: called with the plugin that is started."""
    try:
        import yaml
        from kubernetes import config
        from kubernetes.client import Configuration
    except ImportError as error:
        raise LoginError(f"cannot be read without the Python library {error.name}; pip install kubernetes") from None
    login = Configuration()
    if text is None:
        try:
            config.load_incluster_config(client_configuration=login)
        except (config.ConfigException, OSError) as error:
            raise LoginError(f"cannot be used ({_clean(error)}); run in a pod with a service account") from None
        return _login(login, {}, "")
    try:
        document = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, RecursionError):
        raise LoginError("is not valid YAML; correct it") from None
    cluster, user, plugin = chosen(document, context)
    log = _Log()
    logging.getLogger().addHandler(log)
    try:
        if plugin:
            starts(plugin)
        config.load_kube_config_from_dict(document, context, login, persist_config=False, temp_file_path=scratch)
    except Exception as error:
        # A document with values of other types than the client expects ends there in any exception.
        if not plugin:
            raise LoginError(f"cannot be used ({_clean(error)}); correct it, or set context") from None
        log.messages.append(str(error))
    finally:
        logging.getLogger().removeHandler(log)
    if log.messages:
        raise LoginError(f"logs in by {plugin}, which failed ({_clean(log.messages[-1], user)})")
    return _login(login, cluster, plugin)


def chosen(document: Any, context: str | None) -> tuple[Mapping[str, Any], Mapping[str, Any], str]:
    """(cluster, user, the user's plugin or "") of a context; LoginError for what the client would ignore."""
    if not isinstance(document, Mapping):
        raise LoginError("is no kubeconfig; name the file that kubectl uses")
    names = _named(document, "context", context or document.get("current-context")) or {}
    cluster, user = (_named(document, kind, names.get(kind)) for kind in ("cluster", "user"))
    who = f"user {names.get('user')}"
    if user is None and names.get("user"):
        raise LoginError(f"has no {who}; correct it, or set context to one of its contexts")
    cluster, user = cluster or {}, user or {}
    for key in ("exec", "auth-provider"):
        if not isinstance(user.get(key) or {}, Mapping):
            raise LoginError(f"has an {key} that is no mapping; correct it")
    for holder, keys in ((user, _TEXTS), (cluster, ("server", "proxy-url", "tls-server-name"))):
        for key in keys:
            if not isinstance(holder.get(key, ""), (str, type(None))):
                raise LoginError(f"has a {key} that is no string; correct it")
    if cluster and not cluster.get("server"):
        raise LoginError("has a cluster without a server; write its address")
    if not isinstance(cluster.get("insecure-skip-tls-verify", False), bool):
        raise LoginError("has an insecure-skip-tls-verify that is neither true nor false; correct it")
    scheme = str(cluster.get("proxy-url") or "http").partition(":")[0].lower()
    if scheme != "http":
        raise LoginError(f"has a proxy-url of {scheme}, which is not supported; set an http proxy")
    for key in user:
        if str(key) == "as" or str(key).startswith("as-"):
            remedy = "use an account that has the permissions itself"
            raise LoginError(f"lets {who} impersonate another one ({key}), which is not supported; {remedy}")
    kinds = [name for name, keys in _LOGINS.items() if any(user.get(key) for key in keys)]
    if len(kinds) > 1:
        raise LoginError(f"gives {who} several logins ({', '.join(kinds)}); keep one")
    if user.get("tokenFile"):
        # As for kubectl; the client would prefer the token.
        user.pop("token", None)
    return cluster, user, _plugin(user, who)


def _named(document: Mapping[str, Any], kind: str, name: Any) -> dict[str, Any] | None:
    """An entry of contexts, clusters or users."""
    rows = document.get(f"{kind}s")
    found = (row for row in (rows if isinstance(rows, list) else []) if isinstance(row, Mapping))
    entry = next((row.get(kind) for row in found if row.get("name") == name), None)
    return entry if isinstance(entry, dict) else None


def _plugin(user: Mapping[str, Any], who: str) -> str:
    """The program, or the provider, by which a user logs in."""
    plugin, provider = user.get("exec"), user.get("auth-provider")
    if plugin:
        if plugin.get("interactiveMode") == "Always":
            remedy = "use a login without questions, as by a service account"
            raise LoginError(f"has a command {plugin.get('command')} of {who} that needs a terminal; {remedy}")
        return f"the command {plugin.get('command')} of {who}"
    if provider:
        if provider.get("name") not in _PROVIDERS:
            remedy = "use exec, for which each provider has a command"
            raise LoginError(f"has an auth-provider {provider.get('name')} of {who}, which is not supported; {remedy}")
        return f"the auth-provider {provider.get('name')} of {who}"
    return ""


def _login(login: Any, cluster: Mapping[str, Any], plugin: str) -> dict[str, Any]:
    """What the client has read, with the contents of all files."""
    for key, value in (("proxy-url", login.proxy), ("tls-server-name", getattr(login, "tls_server_name", None))):
        if cluster.get(key) and cluster[key] != value:
            raise LoginError(f"has a {key}, which the installed client ignores; install a newer kubernetes")
    # Its name was another one before the client's release 36.
    authorization = login.api_key.get("BearerToken") or login.api_key.get("authorization") or ""
    certificate, key, authority = map(_pem, (login.cert_file, login.key_file, login.ssl_ca_cert))
    if bool(certificate) != bool(key):
        raise LoginError("has a client certificate without its key, or the reverse; add the other")
    if plugin and not (authorization or certificate):
        raise LoginError(f"logs in by {plugin}, which gave no token and no certificate")
    if len(authorization) > MAX_BYTES:
        raise LoginError(f"gives a token of more than {MAX_BYTES} bytes; correct it")
    return {
        "server": login.host,
        "authorization": authorization.strip(),
        "client": f"{certificate}\n{key}\n" if certificate else "",
        "authority": authority,
        "verify": bool(login.verify_ssl),
        "proxy": cluster.get("proxy-url"),
        "server_name": cluster.get("tls-server-name"),
    }


def _pem(path: str | None) -> str:
    if not path:
        return ""
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES)
    except OSError as error:
        raise LoginError(f"names {path}, which cannot be read ({error.strerror}); correct it") from None
    if b"-----BEGIN" not in content or not content.isascii():
        raise LoginError("has a certificate or key that is no PEM; correct it")
    return content.decode("ascii")


def redacted(text: str) -> str:
    """A program's text without PEM blocks, tokens, and values that follow a word such as password."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def _clean(message: object, user: Mapping[str, Any] | None = None) -> str:
    """One line of at most 240 characters, its last ones above all, without secrets."""
    text = str(message)
    text = text if len(text) <= 2 * MAX_SHOWN else f"{text[:MAX_SHOWN]} {text[-MAX_SHOWN:]}"
    plugin = (user or {}).get("exec")
    variables = plugin.get("env") if isinstance(plugin, Mapping) else None
    for row in variables if isinstance(variables, list) else []:
        if isinstance(row, Mapping) and re.search(r"(?i)secret|token|pass|key|cred", str(row.get("name"))):
            text = text.replace(str(row.get("value")), "***")
    text = redacted(text)
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split()).rstrip(".")
    return line if len(line) <= 240 else f"{line[:40]} ... {line[-195:]}"


def _guard(parent: int, scratch: str, too_large: Callable[[], None]) -> None:
    """End this process and its plugin when the parent has ended, or when the plugin prints without end."""
    while os.getppid() == parent:
        try:
            with open("/proc/self/statm", encoding="ascii") as file:
                pages = int(file.read().split()[1])
        except OSError:
            # Without /proc (macOS) the deadline alone ends a plugin.
            pages = 0
        if pages * os.sysconf("SC_PAGE_SIZE") > MAX_MEMORY:
            too_large()
            break
        time.sleep(0.05)
    _end(scratch)


def _end(scratch: str) -> None:
    """Remove the temporary files and kill the process group, which login.py has made for this process."""
    shutil.rmtree(scratch, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Answer the request on the standard input."""
    request = json.load(sys.stdin)
    # What the client or a plugin prints goes elsewhere.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    used = "its content"

    def answer(row: Mapping[str, Any]) -> None:
        print(json.dumps(row), file=answers, flush=True)

    def starts(plugin: str) -> None:
        nonlocal used
        used = plugin
        answer({"uses": used})

    def too_large() -> None:
        answer({"error": f"logs in by {used}, which prints more than {MAX_MEMORY // 1024**2} MiB of memory hold"})

    guard = threading.Thread(target=_guard, args=(request["parent"], request["scratch"], too_large), daemon=True)
    guard.start()
    try:
        os.chdir(request["folder"])
        answer(read(request["text"], request["context"], request["scratch"], starts))
    except (LoginError, OSError) as error:
        answer({"error": str(error)})
    finally:
        _end(request["scratch"])


if __name__ == "__main__":
    main()
