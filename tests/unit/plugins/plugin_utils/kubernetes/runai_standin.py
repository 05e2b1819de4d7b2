# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stand-in of Run:ai's control plane: a small server with the published paths, fields and status codes.

It rejects what the published descriptions call wrong: another path or method, a missing field, a missing token. What
a real one does beyond that (validation of labels, the phases of a pool) is not simulated.
"""

from __future__ import annotations

import json
import urllib.parse
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import runai
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.clients import http_servers

SECRET = "runai-token-that-nobody-may-see"
CLUSTER = "d73a738f-fab3-430a-8fa3-5241493d7128"
NEEDED = {
    runai.TOPOLOGIES: ("name", "clusterId", "levels"),
    runai.POOLS: ("name", "clusterId", "labelKey", "labelValue"),
}


class Standin:
    """The objects of the server, and the requests that changed them."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {runai.TOPOLOGIES: [], runai.POOLS: []}
        self.changes: list[tuple[str, str, Any]] = []
        self.url = ""
        self.bare = False

    def answer(self, request: http_servers.Request, reply: http_servers.Reply) -> None:
        path = urllib.parse.urlsplit(request.target).path
        if request.headers.get("authorization") != f"Bearer {SECRET}":
            reply.json({"code": 401, "message": f"bad token {request.headers.get('authorization')}"}, 401)
        elif request.method == "GET" and path in self.rows:
            query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(request.target).query))
            start, limit = int(query.get("offset", 0)), int(query.get("limit", 50))
            rows = self.rows[path][start : start + limit]
            reply.json(rows if self.bare else {"nodepools" if path == runai.POOLS else "networkTopologies": rows})
        elif request.method == "POST" and path in self.rows:
            self.create(path, json.loads(request.body), reply)
        elif request.method == "PATCH" and path.startswith(f"{runai.POOLS}/"):
            self.changes.append(("PATCH", path, json.loads(request.body)))
            (row,) = [row for row in self.rows[runai.POOLS] if str(row["id"]) == path.rpartition("/")[2]]
            row.update(json.loads(request.body))
            reply.json(row)
        else:
            reply.json({"code": 404, "message": "no such path"}, 404)

    def create(self, path: str, body: dict[str, Any], reply: http_servers.Reply) -> None:
        if any(not body.get(key) for key in NEEDED[path]):
            reply.json({"code": 400, "message": "a field is missing"}, 400)
            return
        self.changes.append(("POST", path, body))
        row = {**body, "id": f"id-{len(self.changes)}", "tenantId": 1}
        self.rows[path].append(row)
        reply.json(row, 201)

    def client(self, **more: Any) -> runai.RunAi:
        return runai.RunAi({"url": self.url, "cluster_id": CLUSTER, "token": SECRET, **more})
