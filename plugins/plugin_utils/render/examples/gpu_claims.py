# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Examples for a cluster whose GPUs the DRA driver allocates: claims instead of limits of the device plugin. Pure."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.examples import pods
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.schedulers import Manifest

GPU = "nvidia.com/gpu"
DEVICE_CLASS = "gpu.nvidia.com"
CLAIM = "gpus"


def by_claims(objects: Sequence[Manifest]) -> list[Manifest]:
    """The same objects with claims, after the claim templates that they need."""
    made = copy.deepcopy(list(objects))
    numbers = sorted({number for pod in _pod_specs(made) for number in _convert(pod)})
    return [*map(_claim_template, numbers), *made]


def _pod_specs(value: object) -> Iterator[Manifest]:
    """Every pod spec in an object, of any kind of workload."""
    if isinstance(value, dict):
        if "containers" in value:
            yield value
        for below in value.values():
            yield from _pod_specs(below)
    elif isinstance(value, list):
        for below in value:
            yield from _pod_specs(below)


def _convert(pod: Manifest) -> Iterator[int]:
    """Let the containers of a pod claim the GPUs that they request, and yield their number."""
    for container in pod["containers"]:
        limits = container.get("resources", {}).get("limits", {})
        if GPU in limits:
            number = limits.pop(GPU)
            container["resources"] = {key: value for key, value in container["resources"].items() if value}
            container["resources"].setdefault("claims", []).append({"name": CLAIM})
            pod.setdefault("resourceClaims", []).append({"name": CLAIM, "resourceClaimTemplateName": _name(number)})
            yield number


def _name(number: int) -> str:
    return f"gpus-{number}"


def _claim_template(number: int) -> Manifest:
    request = {"name": CLAIM, "exactly": {"deviceClassName": DEVICE_CLASS, "count": number}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": pods.metadata(_name(number)),
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
