# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Kubernetes API server to read from and write to: lists page by page, writes by server-side apply.

Every rejection is one sentence with the object, the server's own reason and the remedy. Only idempotent requests are
repeated.
"""

from __future__ import annotations

import threading
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, NoReturn

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import http, login
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import as_list, mapped, sentence

PAGE = 500
MAX_PAGES = 10_000
DEADLINE = 1800
"""Default seconds for all requests together: one Node is one request."""
MAX_WORKERS = 8
"""Concurrent requests where many objects are written."""

# Only the metadata of an object, which is half of a Node; a server without that type sends the whole object.
_METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1,application/json"
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
# Statuses whose body is a message of the API server itself, rather than of any HTTP server.
_OWN_STATUSES = (201, 202, 400, 403, 404, 405, 409, 410, 415, 422)
# Rejections that concern one object alone.
_SINGLE_OBJECT_ERRORS = (404, 409, 422)


class KubernetesError(NvlinkError):
    """The API server rejects a request; the message names the object, the reason and the remedy.

    status: the HTTP status of the rejection, None for other errors.
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
        """The URL path of its objects."""
        return f"/{'apis' if '/' in self.api else 'api'}/{self.api}/{self.plural}"

    @property
    def group(self) -> str:
        """Its group, empty for the core one."""
        return self.api.rpartition("/")[0]


NODE = Kind("v1", "Node", "nodes")
DAEMON_SET = Kind("apps/v1", "DaemonSet", "daemonsets")


class Work(NamedTuple):
    """One call; calls with the same key run one after the other."""

    key: str
    run: Callable[[], Any]


def run_concurrently(works: Sequence[Work]) -> tuple[set[int], list[NvlinkError]]:
    """Run works, MAX_WORKERS at a time: (positions of the completed ones, errors of the failed ones).

    The works of one key end with their first error. Works of other keys still start only if that error concerns one
    object alone: an unreachable server or a missing right would fail all of them.
    """
    queues: dict[str, list[int]] = {}
    for position, work in enumerate(works):
        queues.setdefault(work.key, []).append(position)
    done: set[int] = set()
    errors: list[NvlinkError] = []
    stopped = threading.Event()

    def run_queue(positions: Sequence[int]) -> None:
        for position in positions:
            if stopped.is_set():
                return
            try:
                works[position].run()
            except NvlinkError as error:
                errors.append(error)
                if not (isinstance(error, KubernetesError) and error.status in _SINGLE_OBJECT_ERRORS):
                    stopped.set()
                return
            except BaseException:
                stopped.set()
                raise
            done.add(position)

    with ThreadPoolExecutor(max(1, min(MAX_WORKERS, len(queues)))) as pool:
        for _none in pool.map(run_queue, queues.values()):
            pass
    return done, errors


def connect(options: Any, source: str) -> Cluster:
    """The API server of the options of login.OPTIONS."""
    checked = Options(options, login.OPTIONS, source)
    if "deadline" not in checked:
        checked = Options({**(options or {}), "deadline": DEADLINE}, login.OPTIONS, source)
    return Cluster(source, *login.client_config(checked))


class Cluster:
    """One API server."""

    def __init__(self, source: str, server: str, config: http.ClientConfig) -> None:
        self._source, self._server = source, server.rstrip("/")
        self._client = http.Client(source, config)

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
        """The plural names of the resources of a group's version."""
        rows = as_list(self._get(f"/apis/{api}", f"the resources of {api}").get("resources"))
        return {str(mapped(row).get("name")) for row in rows}

    def items(self, kind: Kind, selector: str = "", metadata: bool = False, fields: str = "") -> list[Any]:
        """All objects of a kind, or those that a label and a field selector match; metadata: read it alone."""
        what = f"{kind.plural}{' of ' + kind.group if kind.group else ''}"
        for _attempt in (1, 2):
            rows: list[Any] = []
            selectors = {"labelSelector": selector, "fieldSelector": fields}
            query = {"limit": str(PAGE), **{key: text for key, text in selectors.items() if text}}
            for _page in range(MAX_PAGES):
                accept = _METADATA.format("List") if metadata else "application/json"
                answer = self._answer(f"{kind.path}?{urllib.parse.urlencode(query)}", accept)
                if answer.status == 410:
                    # The continue token has expired, so the list is read again from its start, once.
                    break
                page = self._body(answer, "list", what)
                rows += as_list(page.get("items"))
                token = mapped(page.get("metadata")).get("continue")
                if not token:
                    return rows
                query["continue"] = str(token)
        raise KubernetesError(
            f"{self._source}: the list of {what} expires on the API server while it is read; run again"
        )

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

        metadata: whether to return only the object's metadata.
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
        """Delete exactly the object that was read (by its UID), not a later one of the same name."""
        name, uid = str(live["metadata"]["name"]), live["metadata"]["uid"]
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        answer = self._client.send("DELETE", f"{self._server}{self._path(kind, name)}", body, _OWN_STATUSES)
        if answer.status != 404:
            self._body(answer, "delete", f"{kind.name} {name}")

    def _path(self, kind: Kind, name: str) -> str:
        return f"{kind.path}/{urllib.parse.quote(name, safe='')}"

    def _get(self, path: str, what: str) -> Mapping[str, Any]:
        return self._body(self._answer(path), "get", what)

    def _answer(self, path: str, accept: str = "application/json") -> http.Answer:
        return self._client.get(f"{self._server}{path}", _OWN_STATUSES, accept)

    def _patched(self, path: str, body: Any, kind: str, accept: str = "*/*") -> http.Answer:
        # Both kinds of patches are idempotent.
        url = f"{self._server}{path}"
        return self._client.send("PATCH", url, body, _OWN_STATUSES, kind, repeatable=True, accept=accept)

    def _body(self, answer: http.Answer, verb: str, what: str) -> Mapping[str, Any]:
        try:
            document = self._client.parse(answer)
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
            remedy = "resolve the conflict with the field manager that it names"
        elif status == 404:
            remedy = "check that its CustomResourceDefinition is installed"
        else:
            remedy = "correct the field that it names"
        raise KubernetesError(
            f"{self._source}: the API server refuses to {verb} {what} (HTTP {status}: {why}); {remedy}", status
        )
