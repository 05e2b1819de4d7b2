# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Concurrent requests, and a server that is slow or rejects them; integration tests have a real API server."""

from __future__ import annotations

import threading
from collections import defaultdict

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients.http import HttpError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import api
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.api import (
    NODE,
    Cluster,
    run_concurrently,
)
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.clients import http_servers
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.clients.http_servers import Reply, Request
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["", "", "", "object", "server"])), max_size=40))
def test_works_of_one_key_keep_their_order_and_end_with_the_first_error(rows: list[tuple[str, str]]) -> None:
    begun: dict[str, list[int]] = defaultdict(list)
    lock = threading.Lock()

    def work(position: int, key: str, problem: str) -> None:
        with lock:
            begun[key].append(position)
        if problem:
            raise HttpError("no", 409) if problem == "object" else NvlinkError("gone")

    queues: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
    for position, (key, problem) in enumerate(rows):
        queues[key].append((position, key, problem))
    items, errors = run_concurrently(queues.values(), lambda item: work(*item))
    done = {position for position, _key, _problem in items}
    failed = {position for positions in begun.values() for position in positions} - done
    assert len(failed) == len(errors)
    assert all(rows[position][1] == "" for position in done)
    for key, positions in begun.items():
        of_key = [position for position, (name, _problem) in enumerate(rows) if name == key]
        assert positions == of_key[: len(positions)]
        assert all(position in done for position in positions[:-1])
        if not any(problem == "server" for _key, problem in rows):
            # Only its own first error ends the works of a key.
            first = next((n for n, position in enumerate(of_key) if rows[position][1]), len(of_key))
            assert len(positions) == min(first + 1, len(of_key))
    if not errors:
        assert done == set(range(len(rows)))


def patch_all(cluster: Cluster, names: list[str]) -> tuple[list[str], list[NvlinkError]]:
    def patch(name: str) -> None:
        cluster.apply(NODE, {"metadata": {"name": name}}, "x")

    return run_concurrently(([name] for name in names), patch)


def test_all_rejections_of_single_objects_are_collected() -> None:
    def refuse_some(request: Request, reply: Reply) -> None:
        gone = request.target.partition("?")[0].endswith(("n1", "n3"))
        reply.json({"message": "uid differs"} if gone else {}, 409 if gone else 200)

    with http_servers.served(refuse_some, keep=True) as server:
        cluster = api.connect({"api_url": server.url}, "k8s_topology")
        done, errors = patch_all(cluster, [f"n{number}" for number in range(5)])
        del cluster
    assert done == ["n0", "n2", "n4"]
    assert [(type(error), getattr(error, "status", None)) for error in errors] == [(HttpError, 409)] * 2
    assert sorted(str(error) for error in errors) == [
        f"k8s_topology: {server.url}/api/v1/nodes/{name} has a conflict (HTTP 409: uid differs);"
        " resolve the conflict with the other writer"
        for name in ("n1", "n3")
    ]


def test_a_schema_that_is_not_published_yet_lacks_no_field() -> None:
    """The API server serves a new kind some moments before its schema."""
    with http_servers.served(lambda _request, reply: reply.send(404, b"404 page not found\n")) as server:
        cluster = api.connect({"api_url": server.url}, "k8s_topology")
        assert cluster.undeclared(api.Kind("kai.scheduler/v1alpha1", "Topology", "topologies"), {"alias"}) == set()
