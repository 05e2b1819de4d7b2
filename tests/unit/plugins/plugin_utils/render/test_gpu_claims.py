# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Examples and chart values of a cluster whose GPUs the DRA driver allocates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import linter, versions
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import model
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import dra, schedulers, workloads
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import RenderContext
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.workloads import WORKLOADS

from .. import fabrics

GPU, CLAIM = "nvidia.com/gpu", "gpus"
FABRIC = fabrics.fabric(racks=3, split=())
BY_DRA = RenderContext(gpus_by_dra=True)


def rendered(name: str, context: RenderContext) -> list[dict[str, Any]]:
    texts = workloads.render(FABRIC, model.State(), context)
    return list(yaml.safe_load_all(texts[f"kubernetes/example-{name}.yaml"]))


def pod_specs(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if "containers" in value:
            yield value
        for below in value.values():
            yield from pod_specs(below)
    elif isinstance(value, list):
        for below in value:
            yield from pod_specs(below)


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_container_claims_the_gpus_that_it_would_request(name: str) -> None:
    by_plugin, by_dra = rendered(name, RenderContext()), rendered(name, BY_DRA)
    templates = {
        row["metadata"]["name"]: row["spec"]["spec"]["devices"]["requests"][0]["exactly"]
        for row in by_dra
        if row["kind"] == "ResourceClaimTemplate"
    }
    requested = 0
    for before, after in zip(pod_specs(by_plugin), pod_specs(by_dra), strict=True):
        claims = {row["name"]: row["resourceClaimTemplateName"] for row in after.get("resourceClaims", [])}
        for old, new in zip(before["containers"], after["containers"], strict=True):
            number = old.get("resources", {}).get("limits", {}).get(GPU)
            assert GPU not in new.get("resources", {}).get("limits", {})
            if number is not None:
                requested += 1
                assert {"name": CLAIM} in new["resources"]["claims"]
                assert templates[claims[CLAIM]] == {"deviceClassName": "gpu.nvidia.com", "count": number}
                # The channel of the ComputeDomain stays.
                assert {"name": "channel"} in new["resources"]["claims"]
    assert requested > 0
    others = [row for row in by_dra if row["kind"] != "ResourceClaimTemplate"]
    assert [row["kind"] for row in others] == [row["kind"] for row in by_plugin]


def test_the_chart_values_enable_the_plugin_that_the_examples_need() -> None:
    topology = schedulers.describe(FABRIC, None)
    for by_dra in (False, True):
        made = dra.values(topology, by_dra)
        assert made["resources"]["gpus"]["enabled"] is by_dra
        assert linter.check_start(made, versions.pinned("0.5.0")) == []
