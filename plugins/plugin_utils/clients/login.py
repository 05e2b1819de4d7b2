# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The login at a Kubernetes API server: of kubeconfig files or a pod by the official client, or an address and options.

The official client merges the files, reads keys, tokens and certificates, and runs the login plugins. It gives a plugin
no time limit and only logs its failure; both are added here. It also uses one of several logins of a user and ignores
what it does not know, so such files are refused.
"""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import http
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.deadline import deadline
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.redaction import hidden, redacted, texts
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, as_list, mapped
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import sentence, shown

OPTIONS = ("kubeconfig", "context", "api_url", *http.OPTIONS)
IN_CLUSTER = "in-cluster"
"""In the option kubeconfig: the service account of the pod."""
GRACE = 2.0
"""Seconds in which the client notices that its plugin was killed."""
REMEDY = "run kubectl with it as the same user, and correct what kubectl reports"

# Kinds of logins of a user, of which the client would use one and ignore the others.
_KINDS = ("auth-provider", "token", "tokenFile", "exec", "username")
# Values of a user that no message shows, with the variables of its plugin.
_SECRET = ("token", "password", "client-key-data", "auth-provider")


class LoginError(Exception):
    """A login cannot be read: what is wrong, and the remedy."""


def of_kubeconfig(options: Arguments, source: str) -> http.ClientConfig:
    """The login by the options kubeconfig, context (may be empty) and timeout of a module."""
    given = {key: options[key] for key in ("kubeconfig", "context", "timeout") if options[key]}
    return client_config(Options(given, OPTIONS, source))


def client_config(options: Options) -> http.ClientConfig:
    """The login by the options of OPTIONS; SourceError for wrong ones and a login that fails."""
    path = options.text("kubeconfig") or ""
    if bool(path) == ("api_url" in options):
        raise options.wrong("kubeconfig", "or api_url must be set, exactly one of them")
    if "context" in options and path in ("", IN_CLUSTER):
        raise options.wrong("context", f"belongs to a kubeconfig file; leave it out with api_url and {IN_CLUSTER}")
    if not path:
        made = http.client_config(options, "api_url", "as in https://api.example.org:6443")
        return replace(made, shows_reason=True)
    of_url = (key for key in http.OPTIONS if key not in http.LIMITS)
    options.refuse(of_url, "belongs to api_url; a kubeconfig file holds its own")
    try:
        # The client writes keys to files, which are read before the folder is removed.
        with tempfile.TemporaryDirectory(prefix="nvlink-login-") as scratch:
            return _read(options, path, scratch)
    except LoginError as error:
        raise options.wrong("kubeconfig", f"{path} {error}") from None


def chosen(document: Object, context: str | None) -> tuple[Object, Object, str]:
    """(cluster, user, who that is for a message) of a context; LoginError for what the client would ignore."""

    def entry(kind: str, name: Any) -> Object:
        rows = {str(mapped(row).get("name")): mapped(row).get(kind) for row in as_list(document.get(f"{kind}s"))}
        if not isinstance(found := rows.get(str(name)), Mapping):
            raise LoginError(f"has no {kind} {shown(name)}; correct it, or set context to one of its contexts")
        return found

    names = entry("context", context or document.get("current-context"))
    cluster = entry("cluster", names.get("cluster"))
    user = entry("user", names["user"]) if names.get("user") else {}
    who = f"user {names.get('user')}"
    if any(str(key).partition("-")[0] == "as" for key in user):
        remedy = "use an account that has the permissions itself"
        raise LoginError(f"lets {who} impersonate another one, which is not supported; {remedy}")
    kinds = [kind for kind in _KINDS if user.get(kind)]
    if len(kinds) > 1:
        raise LoginError(f"gives {who} several logins ({', '.join(kinds)}); keep one")
    plugin = mapped(user.get("exec")).get("command")
    return cluster, user, sentence(f"{who} by {plugin or kinds[0]}" if kinds else who)


def _read(options: Options, path: str, scratch: str) -> http.ClientConfig:
    """The login by the official client, which has its files in the folder `scratch`."""
    try:
        from kubernetes import config
        from kubernetes.client import Configuration
    except ImportError as error:
        raise LoginError(f"cannot be read without the Python library {error.name}; pip install kubernetes") from None
    login, limits, context = Configuration(), http.limits(options), options.text("context")
    cluster: Object = {}
    user: Object = {}
    if path == IN_CLUSTER:
        _load(partial(config.load_incluster_config, login), "the service account of a pod", {}, limits["timeout"])
        url = login.host
    else:
        cluster, user, who = chosen(_document(path), context)
        found = Options({"server": cluster.get("server")}, ("server",), f"{options.name}: kubeconfig {path}")
        url = http.endpoint(found, "server", "an address")
        load = partial(config.load_kube_config, path, context, login, persist_config=False, temp_file_path=scratch)
        _load(load, who, user, limits["timeout"])
    authorization = "".join(login.api_key.values()).strip()
    if not authorization and not login.cert_file and any(user.get(kind) for kind in _KINDS):
        raise LoginError(f"logs in as {who}, which gave no token and no certificate; {REMEDY}")
    verify = cluster.get("insecure-skip-tls-verify") is not True
    name, proxy = (str(cluster.get(key) or "") for key in ("tls-server-name", "proxy-url"))
    try:
        pool = http.connections(url, login.ssl_ca_cert, login.cert_file, login.key_file, verify, name, proxy)
    except (OSError, ValueError) as error:
        # An error about a proxy's address would show its password.
        reason = http.reason_of(error) or type(error).__name__
        raise LoginError(f"has a certificate, key or proxy-url that cannot be used ({reason}); correct it") from None
    secrets = http.credentials(options, "Authorization", authorization, authorization)
    return http.ClientConfig(url, pool, **secrets, **limits, renew=partial(client_config, options), shows_reason=True)


def _document(path: str) -> Object:
    """The content of kubeconfig files as the client merges them, in plain lists and mappings."""
    from kubernetes.config.kube_config import KubeConfigMerger

    try:
        merged = KubeConfigMerger(path).config
        if merged is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        lists = {key: [row.value for row in merged.value[key]] for key in ("clusters", "contexts", "users")}
        return {**merged.value, **lists}
    except Exception as error:
        # The client expects a valid file, and ends in any exception otherwise, which may quote it.
        reason = http.reason_of(error) or "it is no kubeconfig"
        raise LoginError(f"cannot be read ({reason}); name the file that kubectl uses") from None


def _load(load: Callable[[], None], who: str, user: Object, seconds: float) -> None:
    """Let the client read a login; LoginError if it fails, or does not end in time.

    What the client logs, which may hold a plugin's secrets, reaches neither the log of Ansible nor the terminal.
    """
    messages: list[str] = []
    root, silent = logging.getLogger(), logging.NullHandler()

    def take(record: logging.LogRecord) -> bool:
        messages.append(record.getMessage())
        return False

    # Without any handler Python would add one that prints.
    root.addHandler(silent)
    root.addFilter(take)
    try:
        # Without a terminal for the standard output, the client asks the plugin not to prompt.
        with deadline(seconds) as expired, contextlib.redirect_stdout(io.StringIO()):
            http.within(seconds + GRACE, load)
    except Exception as error:
        messages.append(str(error))
    finally:
        root.removeFilter(take)
        root.removeHandler(silent)
    if expired.is_set():
        what = f"did not end in {seconds:g} seconds and was killed; try it by hand, or raise timeout"
        raise LoginError(f"logs in as {who}, which {what}")
    if messages:
        secrets = texts([*map(user.get, _SECRET), mapped(user.get("exec")).get("env")])
        reason = sentence(redacted(hidden(messages[-1], secrets))[-300:], 300)
        raise LoginError(f"logs in as {who}, which failed ({reason}); {REMEDY}")
