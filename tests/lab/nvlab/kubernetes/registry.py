# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A registry of charts: the part of the OCI distribution API that helm reads.

It serves the packed charts (``NAME-VERSION.tgz``) of one folder that may change at any time, as
``oci://198.51.100.3:5443/charts/NAME``. Nothing can be pushed. Run as a file: ``registry.py DIRECTORY ADDRESS``, the
control plane's.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import ssl
import sys
import tarfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

PORT = 5443
FOLDER = "charts"
CONFIG = "application/vnd.cncf.helm.config.v1+json"
CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
PACKED = re.compile(r"([a-z0-9-]+?)-v?([0-9]+\.[0-9]+\.[0-9]+[A-Za-z0-9.+-]*)\.tgz")
OCI = re.compile(r"/v2/charts/([a-z0-9-]+)/(manifests|blobs|tags)/([A-Za-z0-9.:+_-]+)")


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def described(packed: bytes) -> dict[str, Any]:
    """Chart.yaml of a packed chart."""
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        name = next(name for name in archive.getnames() if name.count("/") == 1 and name.endswith("/Chart.yaml"))
        member = archive.extractfile(name)
        assert member is not None
        document: dict[str, Any] = yaml.safe_load(member.read())
        return document


def image(packed: bytes) -> dict[str, bytes]:
    """What a registry holds of a chart: {"manifest": ..., digest: content, ...}."""
    config = json.dumps(described(packed), sort_keys=True).encode()
    parts = [(CONFIG, config), (CONTENT, packed)]
    rows = [{"mediaType": kind, "digest": digest(part), "size": len(part)} for kind, part in parts]
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": rows[0], "layers": rows[1:]}
    text = json.dumps(manifest, sort_keys=True).encode()
    return {"manifest": text, digest(text): text, **{digest(part): part for _kind, part in parts}}


def charts(folder: Path) -> dict[str, dict[str, Path]]:
    """Name -> version -> file."""
    found: dict[str, dict[str, Path]] = {}
    for path in sorted(folder.glob("*.tgz")):
        match = PACKED.fullmatch(path.name)
        if match:
            found.setdefault(match[1], {})[match[2]] = path
    return found


def answer(folder: Path, path: str) -> tuple[int, str, bytes]:
    """(status, content type, body) of a GET."""
    if path in ("/v2/", "/v2"):
        return 200, "application/json", b"{}"
    match = OCI.fullmatch(path)
    versions = charts(folder).get(match[1], {}) if match else {}
    if not match or not versions:
        return 404, "application/json", b'{"errors": [{"code": "NAME_UNKNOWN"}]}'
    kind, reference = match[2], match[3]
    if kind == "tags":
        return 200, "application/json", json.dumps({"name": f"charts/{match[1]}", "tags": [*versions]}).encode()
    if kind == "manifests" and reference in versions:
        return 200, MANIFEST, image(versions[reference].read_bytes())["manifest"]
    for file in versions.values():
        held = image(file.read_bytes())
        if reference in held and reference != "manifest":
            return 200, MANIFEST if kind == "manifests" else "application/octet-stream", held[reference]
    return 404, "application/json", b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}'


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder: Path

    def do_GET(self) -> None:
        status, kind, body = answer(self.folder, self.path.partition("?")[0])
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Docker-Content-Digest", digest(body))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET


def main(directory: Path, address: str) -> None:
    _Handler.folder = directory / FOLDER
    server = ThreadingHTTPServer((address, PORT), _Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "pki" / "apiserver.crt", directory / "pki" / "apiserver.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
