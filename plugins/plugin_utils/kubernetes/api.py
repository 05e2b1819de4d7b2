# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Kubernetes API server to read from and write to: lists page by page, writes by server-side apply.

Every refusal is one sentence with the object, the server's own reason and the remedy. Nothing is asked twice that would
do more the second time.
"""

from __future__ import annotations

import json
import threading
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, NoReturn

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import http
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import kubeconfig
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import as_list, mapped, sentence

OPTIONS = ("kubeconfig", "context", "api_url", *http.OPTIONS)
PAGE = 500
MAX_PAGES = 10_000
DEADLINE = 1800
"""Seconds for all requests together unless the site says otherwise: one Node is one request."""
LANES = 8
"""Requests that are under way at one time where many objects are written."""

# Of an object the metadata alone, which is half of a Node; who does not know it answers with the whole object.
_METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1,application/json"
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
# What the server says in words of its own, rather than what any HTTP server could say.
_SPOKEN = (201, 202, 400, 403, 404, 405, 409, 410, 415, 422)
# Refusals of one object that say nothing of the next.
_OF_ONE_OBJECT = (404, 409, 422)


class K8sError(NvlinkError):
    """The API server refuses something; its sentence names the object, the reason and the remedy.

    status: the HTTP status of the refusal, None where it is none.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Kind(NamedTuple):
    """A kind of cluster-scoped objects: api is "v1" or "group/version"."""

    api: str
    name: str
    plural: str

    @property
    def path(self) -> str:
        """Where its objects are."""
        return f"/{'apis' if '/' in self.api else 'api'}/{self.api}/{self.plural}"

    @property
    def group(self) -> str:
        """Its group, empty for the core one."""
        return self.api.rpartition("/")[0]


NODE = Kind("v1", "Node", "nodes")
DAEMON_SET = Kind("apps/v1", "DaemonSet", "daemonsets")


class Work(NamedTuple):
    """One piece of work; works of the same lane are done one after the other."""

    lane: str
    do: Callable[[], Any]


def run_concurrently(works: Sequence[Work]) -> tuple[set[int], list[NvlinkError]]:
    """Do works, LANES of them at one time: the positions of those that are done, and the errors of those that failed.

    A lane ends with its first error. Lanes that have not begun go on only where that error is of one object alone: a
    server that is gone, or a right that is missing, would meet them all.
    """
    lanes: dict[str, list[int]] = {}
    for position, work in enumerate(works):
        lanes.setdefault(work.lane, []).append(position)
    done: set[int] = set()
    errors: list[NvlinkError] = []
    over = threading.Event()

    def go(positions: Sequence[int]) -> None:
        for position in positions:
            if over.is_set():
                return
            try:
                works[position].do()
            except NvlinkError as error:
                errors.append(error)
                if not (isinstance(error, K8sError) and error.status in _OF_ONE_OBJECT):
                    over.set()
                return
            except BaseException:
                over.set()
                raise
            done.add(position)

    with ThreadPoolExecutor(max(1, min(LANES, len(lanes)))) as pool:
        for _none in pool.map(go, lanes.values()):
            pass
    return done, errors


class Cluster:
    """One API server."""

    def __init__(self, options: Any, source: str) -> None:
        checked = Options(options, OPTIONS, source)
        if "deadline" not in checked:
            checked = Options({**(options or {}), "deadline": DEADLINE}, OPTIONS, source)
        server, way = kubeconfig.way(checked)
        self._source, self._server = source, server.rstrip("/")
        self._client = http.Client(source, way)

    def served(self) -> dict[str, list[str]]:
        """Group -> its versions, the preferred one first; the groups of CustomResourceDefinitions are among them."""
        found = {}
        for group in as_list(self._get("/apis", "the list of API groups").get("groups")):
            versions = [str(mapped(row).get("version")) for row in as_list(mapped(group).get("versions"))]
            preferred = mapped(mapped(group).get("preferredVersion")).get("version")
            versions.sort(key=lambda version: version != preferred)
            found[str(mapped(group).get("name"))] = versions
        return found

    def plurals(self, api: str) -> set[str]:
        """The resources that a group's version has."""
        rows = as_list(self._get(f"/apis/{api}", f"the resources of {api}").get("resources"))
        return {str(mapped(row).get("name")) for row in rows}

    def items(self, kind: Kind, selector: str = "", metadata: bool = False) -> list[Any]:
        """All objects of a kind, or those that a label selector selects; of each its metadata alone if that will do."""
        what = f"{kind.plural}{' of ' + kind.group if kind.group else ''}"
        for _attempt in (1, 2):
            rows: list[Any] = []
            query = {"limit": str(PAGE), **({"labelSelector": selector} if selector else {})}
            for _page in range(MAX_PAGES):
                accept = _METADATA.format("List") if metadata else "application/json"
                answer = self._answer(f"{kind.path}?{urllib.parse.urlencode(query)}", accept)
                if answer.status == 410:
                    # The list that the token belongs to is forgotten, so it is read anew, once.
                    break
                page = self._body(answer, "list", what)
                rows += as_list(page.get("items"))
                token = mapped(page.get("metadata")).get("continue")
                if not token:
                    return rows
                query["continue"] = str(token)
        raise K8sError(f"{self._source}: the API server forgets the list of {what} while it is read; try again later")

    def find(self, kind: Kind, name: str) -> dict[str, Any] | None:
        """An object, or None."""
        answer = self._answer(self._path(kind, name))
        return None if answer.status == 404 else dict(self._body(answer, "get", f"{kind.name} {name}"))

    def apply(
        self,
        kind: Kind,
        body: Mapping[str, Any],
        manager: str,
        force: bool = False,
        dry_run: bool = False,
        metadata: bool = False,
    ) -> dict[str, Any]:
        """The object after a server-side apply of `body`, which holds every field that `manager` is to own.

        metadata: whether the object's metadata alone will do for an answer.
        """
        name = str(body["metadata"]["name"])
        query = {"fieldManager": manager, "force": str(force).lower(), **({"dryRun": "All"} if dry_run else {})}
        path = f"{self._path(kind, name)}?{urllib.parse.urlencode(query)}"
        accept = _METADATA.format("") if metadata else "*/*"
        return dict(self._body(self._patched(path, body, _APPLY, accept), "patch", f"{kind.name} {name}"))

    def merge(self, kind: Kind, name: str, patch: Mapping[str, Any], manager: str) -> dict[str, Any]:
        """The object after a merge patch, in which null removes a field."""
        path = f"{self._path(kind, name)}?{urllib.parse.urlencode({'fieldManager': manager})}"
        return dict(self._body(self._patched(path, patch, _MERGE), "patch", f"{kind.name} {name}"))

    def delete(self, kind: Kind, live: Mapping[str, Any]) -> None:
        """Delete exactly the object that was read: not one that came after it under the same name."""
        name, uid = str(live["metadata"]["name"]), live["metadata"]["uid"]
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        answer = self._client.send("DELETE", f"{self._server}{self._path(kind, name)}", body, _SPOKEN)
        if answer.status != 404:
            self._body(answer, "delete", f"{kind.name} {name}")

    def _path(self, kind: Kind, name: str) -> str:
        return f"{kind.path}/{urllib.parse.quote(name, safe='')}"

    def _get(self, path: str, what: str) -> Mapping[str, Any]:
        return self._body(self._answer(path), "get", what)

    def _answer(self, path: str, accept: str = "application/json") -> http.Answer:
        return self._client.get(f"{self._server}{path}", _SPOKEN, accept)

    def _patched(self, path: str, body: Any, kind: str, accept: str = "*/*") -> http.Answer:
        # Either patch, done twice, leaves what it leaves done once.
        url = f"{self._server}{path}"
        return self._client.send("PATCH", url, body, _SPOKEN, kind, repeatable=True, accept=accept)

    def _body(self, answer: http.Answer, verb: str, what: str) -> Mapping[str, Any]:
        try:
            document = json.loads(answer.body)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, Mapping):
            url = f"{self._server}/"
            self._client.fail(url, "does not answer as a Kubernetes API server", "write the address of one")
        if answer.status >= 400:
            self._refused(answer.status, sentence(document.get("message")) or "without a reason", verb, what)
        return document

    def _refused(self, status: int, why: str, verb: str, what: str) -> NoReturn:
        if status == 403:
            remedy = f"give the account the verb {verb} there"
        elif status == 409:
            remedy = "let the one that it names go of these fields"
        elif status == 404:
            remedy = "check that its CustomResourceDefinition is installed"
        else:
            remedy = "correct what it names"
        raise K8sError(
            f"{self._source}: the API server refuses to {verb} {what} (HTTP {status}: {why}); {remedy}", status
        )
