# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Works side by side, and requests to a server that is slow or refuses; integration tests have a real API server."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import api
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.api import (
    NODE,
    Cluster,
    K8sError,
    Work,
    run_concurrently,
)
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import http_servers
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.http_servers import Asked, Reply
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["", "", "", "object", "server"])), max_size=40))
def test_each_lane_keeps_its_order_and_ends_with_its_first_error(rows: list[tuple[str, str]]) -> None:
    begun: dict[str, list[int]] = defaultdict(list)
    lock = threading.Lock()

    def work(position: int, lane: str, trouble: str) -> None:
        with lock:
            begun[lane].append(position)
        if trouble:
            raise K8sError("no", 409) if trouble == "object" else NvlinkError("gone")

    works = [
        Work(lane, lambda position=position, lane=lane, trouble=trouble: work(position, lane, trouble))  # type: ignore[misc]
        for position, (lane, trouble) in enumerate(rows)
    ]
    done, errors = run_concurrently(works)
    failed = {position for positions in begun.values() for position in positions} - done
    assert len(failed) == len(errors)
    assert all(rows[position][1] == "" for position in done)
    for lane, positions in begun.items():
        of_lane = [position for position, (name, _trouble) in enumerate(rows) if name == lane]
        assert positions == of_lane[: len(positions)]
        assert all(position in done for position in positions[:-1])
        if not any(trouble == "server" for _lane, trouble in rows):
            # Nothing ends a lane but its own first error.
            first = next((n for n, position in enumerate(of_lane) if rows[position][1]), len(of_lane))
            assert len(positions) == min(first + 1, len(of_lane))
    if not errors:
        assert done == set(range(len(rows)))


def test_an_error_of_the_server_keeps_further_lanes_from_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "LANES", 1)

    def gone() -> None:
        raise K8sError("no right", 403)

    done, errors = run_concurrently([Work("a", str), Work("b", gone), Work("c", str)])
    assert (done, [str(error) for error in errors]) == ({0}, ["no right"])


def test_what_is_no_error_of_ours_is_not_swallowed() -> None:
    with pytest.raises(ZeroDivisionError):
        run_concurrently([Work("a", lambda: 1 // 0)])


def patch_all(cluster: Cluster, names: list[str]) -> tuple[set[int], list[NvlinkError]]:
    bodies: list[dict[str, Any]] = [{"metadata": {"name": name}} for name in names]
    return run_concurrently(
        [Work(body["metadata"]["name"], lambda body=body: cluster.apply(NODE, body, "x")) for body in bodies]  # type: ignore[misc]
    )


def test_a_server_that_takes_its_time_is_asked_by_a_bounded_number_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    http_servers.ask_directly(monkeypatch)
    lock, now, most, ports = threading.Lock(), [0], [0], set()

    def slow(_asked: Asked, reply: Reply) -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
            ports.add(reply.port)
        time.sleep(0.05)
        with lock:
            now[0] -= 1
        reply.json({})

    names = [f"n{number}" for number in range(48)]
    with http_servers.served(slow, keep=True) as server:
        cluster = Cluster({"api_url": server.url}, "k8s_topology")
        started = time.monotonic()
        done, errors = patch_all(cluster, names)
        took = time.monotonic() - started
        del cluster
    assert (done, errors) == (set(range(48)), [])
    assert 1 < most[0] <= api.LANES
    assert len(ports) <= api.LANES
    # One after the other they would take 2.4 seconds.
    assert took < 1.8
    assert sorted(asked.target.partition("?")[0].rpartition("/")[2] for asked in server.asked) == sorted(names)


def test_the_refusals_of_single_objects_are_all_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    http_servers.ask_directly(monkeypatch)

    def refuse_some(asked: Asked, reply: Reply) -> None:
        gone = asked.target.partition("?")[0].endswith(("n1", "n3"))
        reply.json({"message": "uid differs"} if gone else {}, 409 if gone else 200)

    with http_servers.served(refuse_some, keep=True) as server:
        cluster = Cluster({"api_url": server.url}, "k8s_topology")
        done, errors = patch_all(cluster, [f"n{number}" for number in range(5)])
        del cluster
    assert done == {0, 2, 4}
    assert sorted(str(error).partition(" patch ")[2].partition(" (")[0] for error in errors) == ["Node n1", "Node n3"]


def test_where_the_metadata_will_do_nothing_else_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a Node need then neither be written by the server nor read; who does not know it may send it all."""
    http_servers.ask_directly(monkeypatch)
    node = {"metadata": {"name": "n1"}}

    def answer(asked: Asked, reply: Reply) -> None:
        reply.json({"items": [node]} if asked.method == "GET" else node)

    with http_servers.served(answer, keep=True) as server:
        cluster = Cluster({"api_url": server.url}, "k8s_topology")
        assert cluster.items(NODE) == cluster.items(NODE, metadata=True) == [node]
        assert cluster.apply(NODE, node, "x") == cluster.apply(NODE, node, "x", metadata=True) == node
        del cluster
    accepted = [asked.headers["accept"].split(",") for asked in server.asked]
    part = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
    whole = "application/json"
    assert accepted == [[whole], [part.format("List"), whole], ["*/*"], [part.format(""), whole]]
