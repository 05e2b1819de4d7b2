# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small API client in the lab's network that uses the administrator's certificate."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .. import network
from ..errors import LabError

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
PATIENCE = 20.0


class ApiError(LabError):
    """A rejection by the API server. status: the HTTP status, 0 without an answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"the API server returns {status or 'no answer'}: {message}")
        self.status = status


class Api:
    """Reads and writes objects; each thread has its own connection."""

    def __init__(self, netns: Path, address: str, port: int, certificates: Path, user: str = "admin") -> None:
        self._where = (str(netns), address, port)
        self._context = ssl.create_default_context(cafile=str(certificates / "ca.crt"))
        self._context.load_cert_chain(str(certificates / f"{user}.crt"), str(certificates / f"{user}.key"))
        self._local = threading.local()

    def request(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """The answer as JSON, else as text; ApiError for any rejection. Repeats after HTTP 429."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return self._request(method, path, body, kind)
            except ApiError as error:
                # 429 also while the storage of a new kind is initialised.
                if error.status != 429 or time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    def _request(self, method: str, path: str, body: Any, kind: str) -> Any:
        # In the API server's own form: it treats other bytes of opaque parameters as a change.
        payload = None if body is None else json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
        headers = {"Accept": "application/json", **({"Content-Type": kind} if body is not None else {})}
        for attempt in (1, 2):
            kept = getattr(self._local, "connection", None)
            try:
                connection = kept or self._connect()
                connection.request(method, f"/{path.lstrip('/')}", payload, headers)
                answer = connection.getresponse()
                content = answer.read()
                break
            except (OSError, http.client.HTTPException) as error:
                self._local.connection = None
                # A kept-alive connection may have been closed meanwhile.
                if kept is None or attempt == 2:
                    raise ApiError(0, str(error) or type(error).__name__) from error
        try:
            document = json.loads(content)
        except ValueError:
            document = content.decode(errors="replace")
        if answer.status >= 400:
            raise ApiError(answer.status, document.get("message", "") if isinstance(document, dict) else document)
        return document

    def _connect(self) -> http.client.HTTPSConnection:
        netns, address, port = self._where
        connection = http.client.HTTPSConnection(address, port, context=self._context)
        plain = network.connect(netns, address, port, 10.0)
        plain.settimeout(60.0)
        connection.sock = self._context.wrap_socket(plain, server_hostname=address)
        self._local.connection = connection
        return connection

    def get(self, path: str) -> Any:
        return self.request("GET", path)

    def find(self, path: str) -> Any:
        """The object, or None where there is none."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def items(self, path: str) -> list[dict[str, Any]]:
        """The objects of a list; none where the API has no such kind."""
        found = self.find(path)
        return found["items"] if found else []

    def create(self, path: str, body: dict[str, Any]) -> Any:
        return self.request("POST", path, body)

    def patch(self, path: str, body: Any) -> Any:
        """A merge patch: null removes."""
        return self.request("PATCH", path, body, MERGE)

    def apply(self, path: str, body: Any, manager: str = "nvlink-lab") -> Any:
        """Server-side apply."""
        return self.request("PATCH", f"{path}?fieldManager={manager}&force=true", body, APPLY)

    def delete(self, path: str) -> None:
        """Idempotent."""
        try:
            self.request("DELETE", path)
        except ApiError as error:
            if error.status != 404:
                raise

    def create_all(self, path: str, bodies: Iterable[dict[str, Any]], threads: int = 8) -> int:
        """Create many objects concurrently; returns their number."""
        with ThreadPoolExecutor(max_workers=threads) as pool:
            return sum(1 for _done in pool.map(lambda body: self.create(path, body), bodies))
