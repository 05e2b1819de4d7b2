# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Run:ai client, against the stand-in of runai_standin.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients.http import HttpError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import cliques, runai
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import SourceError
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.clients import http_servers

from .runai_standin import CLUSTER, Standin

TOPOLOGY = cliques.describe(fabrics.fabric(racks=1, trays=2, split=()))


@pytest.fixture
def standin() -> Iterator[Standin]:
    made = Standin()
    with http_servers.served(made.answer) as server:
        made.url = server.url
        yield made


def test_only_the_topology_fields_of_an_existing_pool_are_set(standin: Standin) -> None:
    mine = {"id": 5, "name": "nvlink", "clusterId": CLUSTER, "labelKey": "a", "labelValue": "b"}
    standin.rows[runai.POOLS] = [{**mine, "id": 4, "clusterId": "another"}, mine]
    client = standin.client()
    assert [row.action for row in client.apply(TOPOLOGY, dry_run=True)[0]] == ["create", "update"]
    client.apply(TOPOLOGY)
    method, path, body = standin.changes[1]
    assert (method, path) == ("PATCH", f"{runai.POOLS}/5")
    assert body == {
        "networkTopologyId": "id-1",
        "gpuNetworkAccelerationDetection": "Auto",
        "gpuNetworkAccelerationLabelKey": "nvidia.com/gpu.clique",
    }
    assert client.apply(TOPOLOGY, dry_run=True) == ([], [])


def test_a_topology_with_other_levels_is_not_changed(standin: Standin) -> None:
    standin.rows[runai.TOPOLOGIES] = [{"id": "1", "name": "nvlink", "clusterId": CLUSTER, "levels": ["a", "b"]}]
    steps, (found,) = standin.client().apply(TOPOLOGY, dry_run=True)
    assert (steps, found["code"]) == ([], "object_unmanaged")
    assert "a, b" in found["message"]


@pytest.mark.parametrize("bare", [False, True])
def test_all_pages_and_bare_lists_are_read(standin: Standin, bare: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runai, "PAGE", 2)
    standin.bare = bare
    others = [{"id": str(n), "name": f"x{n}", "clusterId": CLUSTER, "levels": []} for n in range(4)]
    standin.rows[runai.TOPOLOGIES] = [
        *others,
        {"id": "9", "name": "nvlink", "clusterId": CLUSTER, "levels": [level.label for level in TOPOLOGY.levels]},
    ]
    assert [row.what for row in standin.client().apply(TOPOLOGY, dry_run=True)[0]] == ["Run:ai node pool nvlink"]


@pytest.mark.parametrize(("more", "words"), [({}, "cluster_id is missing"), ({"cluster_id": CLUSTER}, "token_file is")])
def test_a_missing_option_is_one_sentence(more: dict[str, Any], words: str) -> None:
    with pytest.raises(SourceError, match=words):
        runai.RunAi({"url": "https://runai.example.org", **more})


def test_an_answer_without_an_id_is_an_error(standin: Standin) -> None:
    def forgetful(path: str, body: dict[str, Any], reply: http_servers.Reply) -> None:
        reply.json({}, 201)

    standin.create = forgetful  # type: ignore[method-assign]
    with pytest.raises(HttpError, match="without an id"):
        standin.client().apply(TOPOLOGY)
