# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of the DRA driver's chart: those of the usual shapes, and how Helm merges them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import OLD_CHART, DraError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.cliques import Topology
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import shown

Values = Mapping[str, Any]
"""Values of the chart, by the keys of its values.yaml; a site's own may have any other key and type."""

API_GROUP = "resource.k8s.io"
API_VERSIONS = ("v1", "v1beta2", "v1beta1")
"""Preferred first."""
HOST_SOCKET = "/etc/nvidia-imex/imex_ctrl.sock"
KUBELET_ROOT = "/var/lib/kubelet"
"""The kubelet's folder in the chart's values."""
KUBELET_FOLDERS = {"kubeletRegistrarDirectoryPath": "plugins_registry", "kubeletPluginsDirectoryPath": "plugins"}
"""Key below kubeletPlugin -> the folder in the kubelet's."""

MAX_DOMAIN_NODES = 18
"""Nodes in one IMEX domain, unless the controller has LIMIT."""
LIMIT = "MAX_NODES_PER_IMEX_DOMAIN"

# Shape of a cluster -> its values; gpu_cluster has none, since GPU Operator installs the driver.
SHAPES: dict[str, Values] = {
    "compute_domains": {"resources": {"gpus": {"enabled": False}, "computeDomains": {"enabled": True}}},
    "all_dra": {
        "resources": {"gpus": {"enabled": True}, "computeDomains": {"enabled": True}},
        "gpuResourcesEnabledOverride": True,
    },
    "host_managed": {
        "featureGates": {"HostManagedIMEXDaemon": True},
        "resources": {
            "gpus": {"enabled": False},
            "computeDomains": {"enabled": True, "imex": {"mode": "hostManaged", "hostSocketPath": HOST_SOCKET}},
        },
    },
    "gpu_cluster": {},
}


def merged(base: Values, over: Values) -> dict[str, Any]:
    """Both mappings merged as Helm merges values: mappings key by key, everything else replaced by `over`."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        result[key] = merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return result


def build(
    shape: str, own: Any, api_version: str | None = None, keep_name: bool = False, kubelet_root: str = KUBELET_ROOT
) -> dict[str, Any]:
    """The values of a shape, overridden by a site's own.

    api_version: the version of resource.k8s.io to set (v1), since the chart would derive it from Helm's build when
    rendered offline. keep_name: whether the release began as a 25.x chart, whose objects keep their names only with
    nameOverride. kubelet_root: the kubelet's folder on the trays. DraError if the shape is unknown or the values are no
    mapping.
    """
    if shape not in SHAPES:
        raise DraError(f"shape: {shown(shape)} is none of {', '.join(SHAPES)}; choose one of them")
    own = {} if own is None else own
    if not isinstance(own, Mapping):
        raise DraError(f"values: {shown(own)} is not a mapping; write the chart's keys under it")
    if own and shape == "gpu_cluster":
        raise DraError("values: with the shape gpu_cluster GPU Operator has them; write them into its GPUCluster")
    result = merged(
        copy.deepcopy(SHAPES[shape]), {"resourceApiVersion": f"{API_GROUP}/{api_version}"} if api_version else {}
    )
    if keep_name:
        result["nameOverride"] = OLD_CHART
    if kubelet_root.rstrip("/") != KUBELET_ROOT:
        folders = {key: f"{kubelet_root.rstrip('/')}/{below}" for key, below in KUBELET_FOLDERS.items()}
        result["kubeletPlugin"] = folders
    return merged(result, own)


def of_cliques(topology: Topology, gpus_by_dra: bool = False) -> dict[str, Any]:
    """The values that follow from the fabric alone; gpus_by_dra: whether the driver allocates GPUs, too."""
    largest = max((len(clique.nodes) for clique in topology.cliques), default=0)
    limit = {"containers": {"computeDomain": {"env": [{"name": LIMIT, "value": str(largest)}]}}}
    own = {"controller": limit} if largest > MAX_DOMAIN_NODES else {}
    return {"nvidiaDriverRoot": "/", **build("all_dra" if gpus_by_dra else "compute_domains", own)}


def value(values: Any, path: str, default: Any = None) -> Any:
    """The value at a dotted path; the default where the path does not exist."""
    for part in path.split("."):
        if not isinstance(values, Mapping) or part not in values:
            return default
        values = values[part]
    return values
