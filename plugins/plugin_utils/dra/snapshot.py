# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A snapshot of a cluster for the checks of the DRA driver: plain lists and mappings, read by GET.

Objects are those of the API server without the fields that no check needs and that are most of the data in large
clusters: managedFields, of which metadata.changedAt has the last time and metadata.cliqueManagers the writers of a
node's clique label, and all of a node's status except nodeInfo, the condition Ready and the extended resources. Of
Helm's Secrets only the metadata is requested, so no secret is read. Pods that have not ended are read only where a
caller needs them, with what they request: those with a node, or all with the schedulers' queues. A list that the
account may not read is empty and adds a row to not_readable; nodes that cannot be listed are an error.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, TypedDict, cast

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import http
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import GROUP, crds
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.chart_values import API_GROUP, API_VERSIONS
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import labels
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.api import METADATA, Cluster
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.cliques import CLIQUE
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, as_list, mapped

# Key of the snapshot -> API group, version (None: the best that is served) and resource.
LISTS: dict[str, tuple[str, str | None, str]] = {
    "device_classes": (API_GROUP, None, "deviceclasses"),
    "slices": (API_GROUP, None, "resourceslices"),
    "compute_domain_cliques": (GROUP, "v1beta1", "computedomaincliques"),
    # A daemon leaves after the claim of its node, so a claim that is still there is of one that was read.
    "claims": (API_GROUP, None, "resourceclaims"),
    "claim_templates": (API_GROUP, None, "resourceclaimtemplates"),
    "gpu_clusters": ("nvidia.com", "v1alpha1", "gpuclusters"),
    "cluster_policies": ("nvidia.com", "v1", "clusterpolicies"),
    "daemon_sets": ("apps", "v1", "daemonsets"),
    "deployments": ("apps", "v1", "deployments"),
    "network_policies": ("networking.k8s.io", "v1", "networkpolicies"),
    "compute_domains": (GROUP, "v1beta1", "computedomains"),
}
# What waits at a scheduler with a queue of its own: Kueue and KAI.
QUEUES: dict[str, tuple[str, str | None, str]] = {
    "workloads": ("kueue.x-k8s.io", None, "workloads"),
    "pod_groups": ("scheduling.run.ai", "v2alpha2", "podgroups"),
}


class Snapshot(TypedDict):
    """A cluster, as the module's text says; a key of LISTS has the objects of that list."""

    version: str
    read_at: datetime.datetime
    """When the reading began."""
    groups: dict[str, list[str]]
    """API group -> the versions that are served."""
    crds: dict[str, Object | None]
    """Name -> CRD; None for one that is not installed."""
    nodes: list[Object]
    pods: list[Object]
    releases: list[Object]
    device_classes: list[Object]
    slices: list[Object]
    claims: list[Object]
    claim_templates: list[Object]
    compute_domains: list[Object]
    compute_domain_cliques: list[Object]
    gpu_clusters: list[Object]
    cluster_policies: list[Object]
    daemon_sets: list[Object]
    deployments: list[Object]
    network_policies: list[Object]
    workloads: list[Object]
    pod_groups: list[Object]
    not_readable: list[str]
    """Sentences without a full stop."""


def api_version(groups: Mapping[str, list[str]]) -> str | None:
    """The best version of resource.k8s.io of those that are served, as v1; None if none is."""
    served = groups.get(API_GROUP, [])
    return next((version for version in API_VERSIONS if version in served), None)


def _slim(item: Object) -> Object:
    """An object of a list with changedAt in place of managedFields and, for a node, without most of its status."""
    metadata = dict(mapped(item.get("metadata")))
    times = [str(mapped(row).get("time")) for row in as_list(metadata.pop("managedFields", []))]
    metadata |= {"changedAt": max(times)} if times else {}
    by = labels.managers(item, ("metadata", "labels", CLIQUE))
    metadata |= {"cliqueManagers": list(by)} if by else {}
    slim = {**item, "metadata": metadata}
    status = mapped(item.get("status"))
    if "nodeInfo" in status:
        slim["status"] = _slim_status(status)
    return slim


def _slim_status(status: Object) -> dict[str, Any]:
    """The status of a node; the kubelet's own resources have no domain in their names."""
    kept: dict[str, Any] = {"nodeInfo": status["nodeInfo"]}
    for key in ("capacity", "allocatable"):
        if key in status:
            kept[key] = {name: amount for name, amount in mapped(status[key]).items() if "/" in name}
    if "conditions" in status:
        kept["conditions"] = [row for row in as_list(status["conditions"]) if mapped(row).get("type") == "Ready"]
    return kept


POD_GROUP = "pod-group-name"
"""The annotation by which KAI knows a pod's PodGroup."""
_LIVING = "status.phase!=Succeeded,status.phase!=Failed"
# Of a pod, what it asks for and what the scheduler said; most of a large cluster are pods.
_POD = {
    "metadata": ("name", "namespace", "uid"),
    "spec": ("schedulerName", "nodeSelector", "affinity", "tolerations", "schedulingGates", "resourceClaims"),
    "status": ("phase", "conditions", "extendedResourceClaimStatus"),
}


def _has_device_plugin(node: Object) -> bool:
    return any(str(name).startswith("nvidia.com/") for name in mapped(mapped(node.get("status")).get("capacity")))


def _slim_pod(pod: Object) -> Object:
    """What a pod requests, and where."""
    spec, notes = mapped(pod.get("spec")), mapped(mapped(pod.get("metadata")).get("annotations"))
    slim = {
        part: {key: row[key] for key in keys if key in (row := mapped(pod.get(part)))} for part, keys in _POD.items()
    }
    requests = {
        key: [{"resources": mapped(mapped(row).get("resources"))} for row in as_list(spec.get(key))]
        for key in ("containers", "initContainers")
    }
    group = {"annotations": {POD_GROUP: notes[POD_GROUP]}} if POD_GROUP in notes else {}
    slim["metadata"] |= group
    return {**slim, "spec": {**slim["spec"], "nodeName": spec.get("nodeName"), **requests}}


class Reader:
    """Reads snapshots of one API server."""

    def __init__(self, config: http.ClientConfig) -> None:
        self._client = Cluster("dra_driver", config)
        self._not_readable: list[str] = []

    def snapshot(self, pods: bool = False, queues: bool = False) -> Snapshot:
        """A snapshot, see the module; HttpError if the server is no API server or nodes cannot be listed.

        pods: whether to read pods where they may have GPUs that a ComputeDomain cannot use: with a device plugin.
        queues: whether to read all pods, those that wait for a node too, and QUEUES.
        """
        read_at = datetime.datetime.now(datetime.timezone.utc)
        version = self._object("/version").get("gitVersion")
        groups = self._client.served()
        if not isinstance(version, str) or not groups:
            self._client.fail(self._client.url, "is no Kubernetes API server", "write the address of one")
        # Other lists may have objects of a domain that ends meanwhile, or begins: they are read last, too.
        before = self._list("compute_domains", groups)
        self._not_readable = []
        found = {
            "version": version,
            "read_at": read_at,
            "groups": groups,
            "nodes": self._listed("/api/v1/nodes", needed=True),
            "crds": {name: self._crd(name) for name in crds.NAMES},
            **{key: self._list(key, groups) for key in LISTS},
            "releases": self._listed("/api/v1/secrets", {"labelSelector": "owner=helm"}, METADATA.format("List")),
            "pods": [],
            **{key: self._list(key, groups) if queues else [] for key in QUEUES},
            "not_readable": self._not_readable,
        }
        rows = [*before, *as_list(found["compute_domains"])]
        found["compute_domains"] = list({str(row["metadata"].get("uid")): row for row in rows}.values())
        plugin = found["compute_domains"] and any(map(_has_device_plugin, as_list(found["nodes"])))
        if queues or (pods and plugin):
            selector = _LIVING if queues else f"spec.nodeName!=,{_LIVING}"
            found["pods"] = [_slim_pod(pod) for pod in self._listed("/api/v1/pods", {"fieldSelector": selector})]
        return cast(Snapshot, found)

    def _list(self, key: str, groups: Mapping[str, list[str]]) -> list[Object]:
        """A list of LISTS or QUEUES; empty where its API group is not served."""
        group, fixed, resource = {**LISTS, **QUEUES}[key]
        served = groups.get(group, [])
        wanted = fixed or (api_version(groups) if group == API_GROUP else next(iter(served), None))
        return self._listed(f"/apis/{group}/{wanted}/{resource}") if wanted in served else []

    def _object(self, path: str) -> Object:
        return mapped(self._client.json(self._client.get(self._client.url + path)))

    def _crd(self, name: str) -> Object | None:
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
        status, found = self._client.found(path)
        if status == 403:
            right = f"get customresourcedefinitions; give it the verb get on {name}"
            self._not_readable.append(f"The account may not {right}")
        return found or None

    def _listed(
        self, path: str, query: Mapping[str, str] = http.NONE, accept: str = http.JSON, needed: bool = False
    ) -> list[Object]:
        """All objects of a list; none of one that the account may not read, or of an API group that was removed."""
        try:
            return self._client.listed(path, query, accept, keep=lambda item: [_slim(mapped(item))])
        except http.HttpError as error:
            if needed or error.status not in (403, 404):
                raise
            if error.status == 403:
                right = f"list {path.rpartition('/')[2]}; give it the verb list in all namespaces"
                self._not_readable.append(f"The account may not {right}")
        return []
