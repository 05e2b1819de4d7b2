# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Client of Run:ai's control plane: a network topology of the cluster and a node pool that uses it.

The published paths: GET and POST /api/v1/network-topologies, GET and POST /api/v1/node-pools, PATCH
/api/v1/node-pools/{id}. Objects there do not record who created them, so a topology of the same name with other levels
is not changed, of a pool only the topology's fields are set, and nothing is ever deleted.
"""

from __future__ import annotations

import urllib.parse
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import http
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import objects
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.cliques import Topology
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.plan import CREATE, UPDATE, Step
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, as_list, mapped

OPTIONS = ("url", "cluster_id", *http.OPTIONS)
SOURCE = "runai"
TOPOLOGIES, POOLS = "/api/v1/network-topologies", "/api/v1/node-pools"
PAGE = 100
MAX_PAGES = 100
_TOPOLOGY_FIELDS = ("networkTopologyId", "gpuNetworkAccelerationDetection", "gpuNetworkAccelerationLabelKey")
_PENDING_ID = "(the new topology's id)"


class RunAi:
    """One cluster of one control plane."""

    def __init__(self, options: Any) -> None:
        checked = Options(options, OPTIONS, SOURCE)
        self._cluster = checked.needed("cluster_id", "the UUID that Run:ai shows for the cluster")
        if "token" not in checked and "token_file" not in checked:
            raise checked.wrong("token_file", "is missing; name a file with an API token, or set token")
        self._client = http.Client(SOURCE, http.client_config(checked, "url", "as in https://runai.example.org"))
        self._url = self._client.url

    def apply(self, topology: Topology, dry_run: bool = False) -> tuple[list[Step], list[Finding]]:
        """(steps that create or change objects, findings that prevent them)."""
        desired, pool = (row["body"] for row in objects.made("runai", topology, self._cluster))
        steps: list[Step] = []
        live = self._named(TOPOLOGIES, topology.name)
        if live is None:
            steps.append(Step(CREATE, f"Run:ai network topology {topology.name}"))
            live = {"id": _PENDING_ID} if dry_run else self._send("POST", TOPOLOGIES, desired)
        elif live.get("levels") != desired["levels"]:
            levels = ", ".join(map(str, as_list(live.get("levels")))) or "none"
            message = (
                f"Run:ai's network topology {topology.name} has the levels {levels} instead of "
                f"{', '.join(desired['levels'])}: choose another name, or remove it there when no node pool needs it."
            )
            return [], [finding("object_unmanaged", message)]
        pool = {**pool, "networkTopologyId": live["id"]}
        method, path, changes, why = "POST", POOLS, pool, ""
        existing = self._named(POOLS, topology.name)
        if existing is not None:
            method, path = "PATCH", f"{POOLS}/{urllib.parse.quote(str(existing.get('id')), safe='')}"
            changes = {key: pool[key] for key in _TOPOLOGY_FIELDS if existing.get(key) != pool[key]}
            why = ", ".join(sorted(changes))
        if changes:
            steps.append(Step(UPDATE if existing else CREATE, f"Run:ai node pool {topology.name}", why))
            if not dry_run:
                self._send(method, path, changes)
        return steps, []

    def _named(self, path: str, name: str) -> Object | None:
        """The object of that name in this cluster; None without one."""
        for page in range(MAX_PAGES):
            query = urllib.parse.urlencode({"limit": PAGE, "offset": page * PAGE})
            answer = self._client.get(f"{self._url}{path}?{query}")
            document = self._client.json(answer)
            # A list, or a mapping with one: its key is nodepools for node pools and undocumented for topologies.
            rows = (
                document
                if isinstance(document, list)
                else next(filter(None, map(as_list, mapped(document).values())), [])
            )
            for row in rows:
                if mapped(row).get("name") == name and mapped(row).get("clusterId") == self._cluster:
                    return mapped(row)
            if len(rows) < PAGE:
                return None
        self._client.fail(
            f"{self._url}{path}", f"returns more than {MAX_PAGES * PAGE} rows", "check which server answers there"
        )

    def _send(self, method: str, path: str, body: Object) -> Object:
        url = f"{self._url}{path}"
        answer = self._client.act(method, url, body, allowed=(201, 202))
        document = mapped(self._client.json(answer))
        if not isinstance(document.get("id"), (str, int)):
            self._client.fail(url, "answers without an id", "check that it is Run:ai's control plane")
        return document
