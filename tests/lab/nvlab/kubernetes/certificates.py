# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Certificates and kubeconfig files of a real CA by openssl."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import yaml

from .. import tools
from ..state import write_atomically

DAYS = "30"
ISSUER = "https://kubernetes.default.svc.cluster.local"
# Client certificates: file -> subject.
CLIENTS = {
    "admin": "/O=system:masters/CN=lab-admin",
    "controller-manager": "/CN=system:kube-controller-manager",
    "scheduler": "/CN=system:kube-scheduler",
}


def make(directory: Path, address: str, service: str) -> None:
    """The authority `ca`, the server's certificate, the clients', and the key of tokens."""
    directory.mkdir(mode=0o700)
    _openssl(directory, "ca", "/CN=nvlink-lab-ca", ["-addext", "keyUsage=critical,keyCertSign,cRLSign"])
    names = f"subjectAltName=IP:{address},IP:{service},IP:127.0.0.1"
    _signed(directory, "apiserver", "/CN=kube-apiserver", "serverAuth", ["-addext", names])
    for name, subject in CLIENTS.items():
        _signed(directory, name, subject, "clientAuth", [])
    tools.call(["openssl", "genrsa", "-out", str(directory / "tokens.key"), "2048"], "the key of tokens")


def _openssl(directory: Path, name: str, subject: str, more: list[str]) -> None:
    key, certificate = directory / f"{name}.key", directory / f"{name}.crt"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    tools.call([*command, "-days", DAYS, "-subj", subject, *files, *more], f"the certificate of {name}")


def _signed(directory: Path, name: str, subject: str, use: str, more: list[str]) -> None:
    authority = ["-CA", str(directory / "ca.crt"), "-CAkey", str(directory / "ca.key")]
    uses = ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", f"extendedKeyUsage={use}"]
    _openssl(directory, name, subject, [*authority, *uses, *more])


def write_kubeconfig(target: Path, directory: Path, server: str, user: dict[str, Any]) -> None:
    """A self-contained kubeconfig file; `user` is that of client(), {"token": ...} or {"exec": ...}."""
    trusted = _base64(directory / "ca.crt")
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "clusters": [{"name": "lab", "cluster": {"server": server, "certificate-authority-data": trusted}}],
        "users": [{"name": "lab", "user": user}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
    }
    write_atomically(target, yaml.safe_dump(document, sort_keys=False), 0o600)


def client(directory: Path, name: str) -> dict[str, str]:
    """The user entry of a kubeconfig file with a certificate of CLIENTS."""
    return {
        "client-certificate-data": _base64(directory / f"{name}.crt"),
        "client-key-data": _base64(directory / f"{name}.key"),
    }


def _base64(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()
