# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the API server would refuse of a rendered chart.

Helm's own dry run does not send the objects to the API server. Here each is created, or replaces the live one, with
dryRun=All: the API server validates, defaults and admits it as it would, and stores nothing.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterable, Sequence
from typing import Any

import yaml
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import http
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import DraError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import Object, as_list, mapped, redacted, sentence

SUBSTITUTE = "default"
"""The namespace of the dry run where an object's own does not exist yet; it exists in every cluster."""
MAX_REASON = 300
"""Characters of a reason."""

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Statuses with a message of the API server itself; 400 also of a webhook that does not support dry runs, 500 of one
# that does not answer.
_WRITE_STATUSES = (201, 400, 403, 404, 405, 409, 422, 500)
_MISSING_RIGHT = re.compile(r"User \S+ cannot ")


def objects(manifest: str) -> list[Object]:
    """The objects of Helm's YAML; DraError for invalid YAML."""
    try:
        # PyYAML's C loader rejects the strings with tags of which Ansible makes arguments.
        rows: Iterable[Any] = list(yaml.load_all(str(manifest), Loader=_Loader))
    except yaml.YAMLError:
        remedy = "correct values, or see helm template and helm get manifest"
        raise DraError(f"The manifest of a release is not valid YAML; {remedy}") from None
    return [row for row in map(mapped, rows) if row.get("kind")]


class DryRun:
    """Sends objects to one API server with dryRun=All."""

    def __init__(self, config: http.ClientConfig) -> None:
        self._client = http.Client("dra_driver", config)
        self._served: dict[str, dict[str, tuple[str, bool]]] = {}

    def refused(self, rows: Sequence[Object], namespace: str, chart_crds: Iterable[Object]) -> list[Finding]:
        """One finding for each refused object, and one for all that the account may not send.

        namespace: of objects that name none. chart_crds: CRDs that are applied before the release, whose kinds the
        API server need not serve yet.
        """
        specs = [mapped(crd.get("spec")) for crd in chart_crds]
        pending = {(spec.get("group"), mapped(spec.get("names")).get("kind")) for spec in specs}
        found, forbidden = [], []
        for row in rows:
            api, kind = str(row.get("apiVersion")), str(row.get("kind"))
            name = str(mapped(row.get("metadata")).get("name"))
            served = self._resources(api).get(kind)
            if served is None:
                if (api.rpartition("/")[0], kind) not in pending:
                    remedy = "install its CustomResourceDefinition, or correct values"
                    found.append(_refusal(kind, name, f"it serves no kind {kind} of {api}", remedy))
                continue
            status, reason = self._send(row, name, *served, namespace)
            if status == 403 and _MISSING_RIGHT.search(reason):
                forbidden.append((reason, f"{kind} {name}"))
            elif status >= 400 and "does not support dry run" not in reason:
                found.append(_refusal(kind, name, reason, "correct values"))
        if forbidden:
            what = f"{count(len(forbidden), 'object')} of the chart, first {forbidden[0][1]} ({forbidden[0][0]})"
            message = f"The API server did not check {what}; run --check with the account that installs the driver."
            found.append(finding("dra_not_readable", message))
        return found

    def _send(self, row: Object, name: str, plural: str, namespaced: bool, namespace: str) -> tuple[int, str]:
        """(status, the API server's reason) of one object."""
        metadata = dict(mapped(row.get("metadata")))
        where = str(metadata.get("namespace") or namespace) if namespaced else ""
        status, answer = self._answer("GET", self._path(row, plural, where, name))
        if status == 200:
            metadata["resourceVersion"] = mapped(answer.get("metadata")).get("resourceVersion")
            status, answer = self._answer("PUT", self._path(row, plural, where, name), {**row, "metadata": metadata})
        elif status == 404:
            status, answer = self._answer("POST", self._path(row, plural, where), {**row, "metadata": metadata})
            if status == 404 and mapped(answer.get("details")).get("kind") == "namespaces":
                moved = {**row, "metadata": {**metadata, "namespace": SUBSTITUTE}}
                status, answer = self._answer("POST", self._path(row, plural, SUBSTITUTE), moved)
        return status, sentence(redacted(str(answer.get("message"))), MAX_REASON)

    def _answer(self, method: str, path: str, body: Any = None) -> tuple[int, Object]:
        url = self._client.url + path
        if method == "GET":
            answer = self._client.get(url, (403, 404))
        else:
            answer = self._client.send(method, f"{url}?dryRun=All", body, _WRITE_STATUSES)
        return answer.status, mapped(self._client.json(answer))

    def _resources(self, api: str) -> dict[str, tuple[str, bool]]:
        """Kind -> (plural name, whether it has a namespace) of a group's version; empty where it is not served."""
        if api not in self._served:
            status, answer = self._answer("GET", _root(api))
            rows = [mapped(row) for row in as_list(answer.get("resources"))] if status == 200 else []
            self._served[api] = {
                str(row.get("kind")): (str(row.get("name")), row.get("namespaced") is True)
                for row in rows
                if "/" not in str(row.get("name"))
            }
        return self._served[api]

    def _path(self, row: Object, plural: str, namespace: str, name: str = "") -> str:
        parts = [*(("namespaces", namespace) if namespace else ()), plural, *((name,) if name else ())]
        return "/".join([_root(str(row["apiVersion"])), *(urllib.parse.quote(part, safe="") for part in parts)])


def _root(api: str) -> str:
    return f"/{'apis' if '/' in api else 'api'}/{urllib.parse.quote(api)}"


def _refusal(kind: str, name: str, reason: str, remedy: str) -> Finding:
    message = f"The API server would refuse {sentence(f'{kind} {name}')} ({reason}); {remedy}."
    return finding("dra_value_refused", message)
