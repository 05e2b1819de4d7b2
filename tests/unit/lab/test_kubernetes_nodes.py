# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The label of a tray's clique, as the two programs that can write it decide it."""

from __future__ import annotations

from typing import Any

import pytest
from nvlab import scenario
from nvlab.kubernetes import nodes

UUID = "9f3c1111-2222-4333-8444-555566667777"


def gpu(index: int, state: str = "completed", uuid: str | None = UUID, clique: int = 1) -> dict[str, Any]:
    return {"index": index, "fabric": {"state": state, "status": "success", "cluster_uuid": uuid, "clique_id": clique}}


FIRST = gpu(0)
CASES = [
    ("all agree", [FIRST, gpu(1)], f"{UUID}.1", (f"{UUID}.1", None)),
    ("one not attached", [FIRST, gpu(1, "in_progress")], f"{UUID}.1", (None, "GPU 1: fabric state in_progress")),
    ("two cliques", [FIRST, gpu(1, clique=2)], None, (None, "GPUs are in 2 cliques")),
    ("no fabric", [gpu(0, "not_supported", None)], None, ("", None)),
    ("no cluster", [gpu(0, uuid=None)], None, ("", None)),
]


@pytest.mark.parametrize(
    ("gpus", "discovered", "plugin"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_feature_discovery_skips_gpus_at_which_the_plugin_stops(
    gpus: list[dict[str, Any]], discovered: str | None, plugin: tuple[str | None, str | None]
) -> None:
    assert nodes.gfd_clique(gpus) == discovered
    clique, reason = nodes.driver_clique(gpus)
    assert clique == plugin[0]
    assert (reason or "").startswith(plugin[1] or "")
    assert (reason is None) == (plugin[1] is None)


def test_nodes_of_a_scenario_have_the_labels_that_its_gpus_give() -> None:
    parsed = scenario.parse({"racks": [{"trays": 2, "cliques": [{"id": 1, "trays": [1]}, {"id": 2, "trays": [2]}]}]})
    found = {row["metadata"]["name"]: row for row in nodes.of_scenario(parsed, "1.34.4")}
    cliques = [row["metadata"]["labels"][nodes.CLIQUE].rpartition(".") for row in found.values()]
    assert [clique[2] for clique in cliques] == ["1", "2"]
    assert cliques[0][0] == cliques[1][0]
    assert found["r01t02"]["status"]["addresses"][0] == {"type": "InternalIP", "address": "198.51.100.12"}
