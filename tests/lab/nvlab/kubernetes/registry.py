# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A registry of charts: the part of the OCI distribution API that helm reads, as files that put() writes.

Nothing can be pushed. Run as a file: ``registry.py DIRECTORY ADDRESS``, the control plane's.
"""

from __future__ import annotations

import hashlib
import json
import ssl
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PORT = 5443
FOLDER = "registry"
CONFIG = "application/vnd.cncf.helm.config.v1+json"
CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def put(directory: Path, packed: Path, described: dict[str, object]) -> str:
    """Serve a packed chart; its path. described: its Chart.yaml."""
    path = f"charts/{described['name']}"
    folder = directory / FOLDER / "v2" / path
    parts = [(CONFIG, json.dumps(described).encode()), (CONTENT, packed.read_bytes())]
    rows = [{"mediaType": kind, "digest": digest(part), "size": len(part)} for kind, part in parts]
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": rows[0], "layers": rows[1:]}
    text = json.dumps(manifest).encode()
    files = {f"blobs/{digest(part)}": part for _kind, part in parts}
    for name, content in {
        **files,
        f"manifests/{digest(text)}": text,
        f"manifests/{described['version']}": text,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return path


class _Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def guess_type(self, path: str) -> str:
        return MANIFEST if "/manifests/" in path else "application/octet-stream"

    def end_headers(self) -> None:
        file = Path(self.translate_path(self.path))
        if file.is_file():
            self.send_header("Docker-Content-Digest", digest(file.read_bytes()))
        super().end_headers()


def main(directory: Path, address: str) -> None:
    (directory / FOLDER / "v2").mkdir(parents=True, exist_ok=True)
    server = ThreadingHTTPServer((address, PORT), partial(_Handler, directory=str(directory / FOLDER)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "pki" / "apiserver.crt", directory / "pki" / "apiserver.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
