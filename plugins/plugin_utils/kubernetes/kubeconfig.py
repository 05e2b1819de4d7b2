# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client config of a Kubernetes API server: from a kubeconfig file, or from an address and its options."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from typing import Any

import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import http
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import (
    MAX_SECRET_BYTES,
    Options,
    SourceError,
    read,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import shown

MAX_KUBECONFIG_BYTES = 4 * 1024 * 1024

_LIMITS = ("timeout", "deadline", "max_bytes")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Keys of a kubeconfig file that are not supported.
_UNSUPPORTED_USER = ("exec", "auth-provider", "as", "as-uid", "as-groups", "username", "password")
_UNSUPPORTED_CLUSTER = ("proxy-url", "tls-server-name")


def client_config(options: Options) -> tuple[str, http.ClientConfig]:
    """(address of the API server, access options of the HTTP client); SourceError for unsupported options."""
    if ("kubeconfig" in options) == ("api_url" in options):
        raise options.wrong("kubeconfig", "or api_url must be set, exactly one of them")
    if "api_url" in options:
        if "context" in options:
            raise options.wrong("context", "belongs to kubeconfig; leave it out with api_url")
        return http.endpoint(options, "api_url", "as in https://api.example.org:6443"), http.client_config(options)
    for key in http.OPTIONS:
        if key in options and key not in _LIMITS:
            raise options.wrong(key, "belongs to api_url; a kubeconfig file holds its own")
    return _Kubeconfig(options).client_config()


class _Kubeconfig:
    """One kubeconfig file, read at its chosen context."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._path = options.path("kubeconfig") or ""
        self._folder = os.path.dirname(self._path)
        content = options.content("kubeconfig", MAX_KUBECONFIG_BYTES) or b""
        try:
            document = yaml.load(content, Loader=_Loader)
        except (yaml.YAMLError, ValueError, RecursionError):
            raise self._wrong("is not valid YAML; correct it") from None
        if not isinstance(document, Mapping):
            raise self._wrong("is no kubeconfig; name the file that kubectl uses")
        self._document = document

    def client_config(self) -> tuple[str, http.ClientConfig]:
        """The result of client_config()."""
        context = self._named("context", self._options.text("context") or self._document.get("current-context"))
        cluster = self._named("cluster", context.get("cluster"))
        user = self._named("user", context["user"]) if context.get("user") else {}
        self._refuse(cluster, _UNSUPPORTED_CLUSTER, "cluster")
        self._refuse(user, _UNSUPPORTED_USER, "user")
        server = Options(
            {"server": cluster.get("server")}, ("server",), f"{self._options.name}: kubeconfig {self._path}"
        )
        token = self._token(user)
        authority = self._bytes(cluster, "certificate-authority")
        return http.endpoint(server, "server", "an address there"), http.ClientConfig(
            **http.credentials(self._options, token, None, None, "Authorization", "Bearer"),
            ca_data=self._pem(authority, "certificate-authority"),
            client_pem=self._client_pem(user),
            validate_certs=cluster.get("insecure-skip-tls-verify") is not True,
            **http.limits(self._options),
        )

    def _wrong(self, what: str) -> SourceError:
        return self._options.wrong("kubeconfig", f"{self._path} {what}")

    def _named(self, kind: str, name: Any) -> Mapping[str, Any]:
        """The entry of that name under contexts, clusters or users."""
        rows = self._document.get(f"{kind}s")
        for row in rows if isinstance(rows, list) else []:
            if isinstance(row, Mapping) and row.get("name") == name and isinstance(row.get(kind), Mapping):
                found: Mapping[str, Any] = row[kind]
                return found
        if name is None:
            raise self._wrong(f"names no {kind}; set context to one of its contexts")
        raise self._wrong(f"has no {kind} {shown(name)}; correct it, or set context to one of its contexts")

    def _refuse(self, holder: Mapping[str, Any], keys: tuple[str, ...], kind: str) -> None:
        for key in keys:
            if holder.get(key):
                remedy = "use api_url with a service account's token_file and ca_file"
                raise self._wrong(f"has a {kind} with {key}, which is not supported; {remedy}")

    def _token(self, user: Mapping[str, Any]) -> str | None:
        """The token; tokenFile wins over token, as in kubectl."""
        name = user.get("tokenFile")
        token = self._file(name, "tokenFile").decode("utf-8", "replace") if name else user.get("token")
        if token is not None and not isinstance(token, str):
            raise self._wrong("has a token that is no string; correct it")
        return token.strip() or None if token else None

    def _client_pem(self, user: Mapping[str, Any]) -> str | None:
        certificate = self._pem(self._bytes(user, "client-certificate"), "client-certificate")
        key = self._pem(self._bytes(user, "client-key"), "client-key")
        if (certificate is None) != (key is None):
            raise self._wrong("has a client certificate without its key, or the reverse; add the other")
        return f"{certificate}\n{key}\n" if certificate else None

    def _bytes(self, holder: Mapping[str, Any], key: str) -> bytes | None:
        """The content of KEY-data, else of the file that KEY names."""
        data = holder.get(f"{key}-data")
        if data:
            try:
                return base64.b64decode(data, validate=False)
            except (binascii.Error, TypeError, ValueError):
                raise self._wrong(f"has a {key}-data that is no base64; correct it") from None
        return self._file(holder[key], key) if holder.get(key) else None

    def _file(self, name: Any, key: str) -> bytes:
        """The content of a file; a relative path starts at the folder of the kubeconfig file."""
        if not isinstance(name, str):
            raise self._wrong(f"has a {key} that is no path; correct it")
        path = os.path.join(self._folder, name)
        try:
            return read(path, MAX_SECRET_BYTES * 16)
        except OSError as error:
            raise self._wrong(f"names as {key} {path}, which cannot be read ({error.strerror}); correct it") from None

    def _pem(self, content: bytes | None, key: str) -> str | None:
        if content is None:
            return None
        if b"-----BEGIN" not in content or not content.isascii():
            raise self._wrong(f"has a {key} that is no PEM; correct it")
        return content.decode("ascii")
