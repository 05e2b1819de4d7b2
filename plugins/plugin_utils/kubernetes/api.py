# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Kubernetes API server to write to: by server-side apply, and concurrently."""

from __future__ import annotations

import threading
import urllib.parse
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import http, login
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients.api_server import ApiServer
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import Options
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, as_list, mapped

DEADLINE = 1800
"""Default seconds for all requests together: one Node is one request."""
MAX_WORKERS = 8
"""Concurrent requests where many objects are written."""

# Only the metadata of an object, which is half of a Node; a server without that type sends the whole object.
METADATA = f"application/json;as=PartialObjectMetadata{{}};g=meta.k8s.io;v=v1,{http.JSON}"
# Rejections that concern one object alone.
_SINGLE_OBJECT_ERRORS = (404, 409, 422)

Item = TypeVar("Item")


def root(api: str) -> str:
    """The URL path of a group's version, which is "v1" or "group/version"."""
    return f"/{'apis' if '/' in api else 'api'}/{urllib.parse.quote(api)}"


class Kind(NamedTuple):
    """A kind of cluster-scoped objects: api is "v1" or "group/version"."""

    api: str
    name: str
    plural: str

    @property
    def path(self) -> str:
        """The URL path of its objects."""
        return f"{root(self.api)}/{self.plural}"

    @property
    def group(self) -> str:
        """Its group, empty for the core one."""
        return self.api.rpartition("/")[0]


NODE = Kind("v1", "Node", "nodes")
DAEMON_SET = Kind("apps/v1", "DaemonSet", "daemonsets")


def run_concurrently(
    queues: Iterable[Sequence[Item]], call: Callable[[Item], Any]
) -> tuple[list[Item], list[NvlinkError]]:
    """Call a function with each item, for MAX_WORKERS queues at a time: (items that are done, errors of others).

    A queue ends with its first error. Others continue only if that error concerns one object alone: an unreachable
    server or a missing right would fail all of them.
    """
    errors: list[NvlinkError] = []
    stopped = threading.Event()

    def run_queue(queue: Sequence[Item]) -> Sequence[Item]:
        for number, item in enumerate(queue):
            if stopped.is_set():
                return queue[:number]
            try:
                call(item)
            except NvlinkError as error:
                errors.append(error)
                if getattr(error, "status", None) not in _SINGLE_OBJECT_ERRORS:
                    stopped.set()
                return queue[:number]
        return queue

    with ThreadPoolExecutor(MAX_WORKERS) as pool:
        done = [item for queue in pool.map(run_queue, queues) for item in queue]
    return done, errors


def connect(options: Arguments, source: str) -> Cluster:
    """The API server of the options of login.OPTIONS."""
    return Cluster(source, login.client_config(Options({"deadline": DEADLINE, **options}, login.OPTIONS, source)))


def _fields(schema: Object) -> Iterator[str]:
    """The names of the fields of an OpenAPI schema, at any depth."""
    for name, below in mapped(schema.get("properties")).items():
        yield name
        yield from _fields(mapped(below))
    yield from _fields(mapped(schema["items"])) if "items" in schema else ()


class Cluster(ApiServer):
    """One API server."""

    def served(self) -> dict[str, list[str]]:
        """Group -> its versions, the preferred one first; the groups of CustomResourceDefinitions are among them."""
        found = {}
        for group in map(mapped, as_list(mapped(self.json(self.get(f"{self.url}/apis"))).get("groups"))):
            versions = [str(mapped(row).get("version")) for row in as_list(group.get("versions"))]
            preferred = mapped(group.get("preferredVersion")).get("version")
            found[str(group.get("name"))] = sorted(versions, key=lambda version: version != preferred)
        return found

    def resources(self, api: str) -> dict[str, tuple[str, bool]]:
        """Kind -> (plural name, whether it has a namespace) of a group's version; empty where it is not served."""
        rows = [mapped(row) for row in as_list(self.found(root(api), empty=(404,))[1].get("resources"))]
        return {
            str(row.get("kind")): (str(row.get("name")), row.get("namespaced") is True)
            for row in rows
            if "/" not in str(row.get("name"))
        }

    def undeclared(self, kind: Kind, names: Collection[str]) -> set[str]:
        """The names that no field has, at any depth, in the schema that the API server publishes for a kind."""
        # A definition is served some moments before its schema is published.
        found = self.found(f"/openapi/v3/apis/{kind.api}", empty=(404,))[1]
        schemas = mapped(mapped(found.get("components")).get("schemas"))
        for schema in map(mapped, schemas.values()):
            if any(
                mapped(row).get("kind") == kind.name for row in as_list(schema.get("x-kubernetes-group-version-kind"))
            ):
                return set(names).difference(_fields(schema))
        # Not published: the API server itself refuses an unknown field.
        return set()

    def items(self, kind: Kind, metadata: bool = False) -> list[Any]:
        """All objects of a kind; metadata: read it alone."""
        return self.listed(kind.path, {}, METADATA.format("List") if metadata else http.JSON)

    def apply(
        self,
        kind: Kind,
        body: Object,
        manager: str,
        force: bool = False,
        dry_run: bool = False,
        metadata: bool = False,
    ) -> Object:
        """The object after a server-side apply of `body`, which holds every field that `manager` is to own.

        metadata: whether to return only the object's metadata.
        """
        query = {"fieldManager": manager, "force": str(force).lower(), **({"dryRun": "All"} if dry_run else {})}
        accept = METADATA.format("") if metadata else "*/*"
        headers = {"Content-Type": "application/apply-patch+yaml", "Accept": accept}
        url = f"{self._url(kind, body['metadata']['name'])}?{urllib.parse.urlencode(query)}"
        send = self.send if dry_run else self.act
        return mapped(self.json(send("PATCH", url, body, (201,), headers)))

    def delete(self, kind: Kind, live: Object) -> None:
        """Delete exactly the object that was read (by its UID), not a later one of the same name."""
        metadata = live["metadata"]
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": metadata["uid"]}}
        self.act("DELETE", self._url(kind, metadata["name"]), body, (202, 404))

    def _url(self, kind: Kind, name: str) -> str:
        return f"{self.url}{kind.path}/{urllib.parse.quote(name, safe='')}"
