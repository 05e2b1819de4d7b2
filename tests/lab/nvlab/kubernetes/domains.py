# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ComputeDomains as the DRA driver's controller, kubelet plugin and daemons treat them; driver.py runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nvlab.kubernetes import nodes
from nvlab.kubernetes.api import ApiError

if TYPE_CHECKING:
    from nvlab.kubernetes.driver import Driver

GROUP = "resource.nvidia.com"
VERSION = f"{GROUP}/v1beta1"
KEY = f"{GROUP}/computeDomain"
DOMAIN_DRIVER, GPU_DRIVER = "compute-domain.nvidia.com", "gpu.nvidia.com"
RESOURCE = "apis/resource.k8s.io/v1"
SLICES = f"{RESOURCE}/resourceslices"
DOMAINS, CLIQUES = f"apis/{VERSION}/computedomains", f"apis/{VERSION}/computedomaincliques"
CHANNEL_CLASS, DAEMON_CLASS = "compute-domain-default-channel.nvidia.com", "compute-domain-daemon.nvidia.com"


def domain_slice(node: Mapping[str, Any], host_managed: bool) -> dict[str, Any]:
    """The plugin's ResourceSlice of a node: channel 0 and, if the driver runs the daemons, daemon 0. No clique."""
    kinds = ("channel",) if host_managed else ("channel", "daemon")
    devices = [{"name": f"{kind}-0", "attributes": {"type": {"string": kind}, "id": {"int": 0}}} for kind in kinds]
    return _slice(node, DOMAIN_DRIVER, devices)


def gpu_slice(node: Mapping[str, Any]) -> dict[str, Any]:
    # The capacity has GPUs only where a device plugin allocates them.
    capacity = node["status"]["capacity"].get("nvidia.com/gpu", "0")
    count = int(node["metadata"]["labels"].get("nvidia.com/gpu.count", capacity))
    return _slice(node, GPU_DRIVER, [{"name": f"gpu-{index}"} for index in range(count)])


def _slice(node: Mapping[str, Any], driver: str, devices: list[dict[str, Any]]) -> dict[str, Any]:
    name = node["metadata"]["name"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"], "controller": True}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{name}-{driver}", "ownerReferences": [owner]},
        "spec": {
            "driver": driver,
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def reconcile(driver: Driver, release: dict[str, Any], known: list[dict[str, Any]]) -> None:
    """One round for all ComputeDomains."""
    labelled = {node["metadata"]["name"]: node["metadata"]["labels"].get(KEY) for node in known}
    found = driver.api.items(DOMAINS)
    _remove(driver, {domain["metadata"]["uid"] for domain in found}, labelled)
    claims = driver.api.items(f"{RESOURCE}/resourceclaims") if found else []
    for domain in found:
        _provide(driver, release, domain)
        if release["host_managed"]:
            _set_status(driver, domain, "Ready", [])
            continue
        wanted = _nodes_of(claims, domain["metadata"]["uid"]) & release["nodes"]
        _label(driver, domain["metadata"]["uid"], labelled, wanted)
        _daemons(driver, release, domain, {node["metadata"]["name"]: node for node in known})


def _provide(driver: Driver, release: dict[str, Any], domain: dict[str, Any]) -> None:
    """DaemonSet and claim templates."""
    metadata, uid = domain["metadata"], domain["metadata"]["uid"]
    channel = domain["spec"]["channel"]
    parameters = {
        "apiVersion": VERSION,
        "kind": "ComputeDomainChannelConfig",
        "domainID": uid,
        "allocationMode": channel.get("allocationMode", "Single"),
    }
    name = channel["resourceClaimTemplate"]["name"]
    _template(driver, metadata["namespace"], name, uid, "Workload", "channel", CHANNEL_CLASS, parameters)
    if release["host_managed"]:
        return
    parameters = {"apiVersion": VERSION, "kind": "ComputeDomainDaemonConfig", "domainID": uid}
    name = f"computedomain-daemon-{uid}"
    _template(driver, release["namespace"], name, uid, "Daemon", "daemon", DAEMON_CLASS, parameters)
    folder = f"apis/apps/v1/namespaces/{release['namespace']}/daemonsets"
    _ensure(driver, folder, _daemon_set(release, name, uid))


def _template(
    driver: Driver,
    namespace: str,
    name: str,
    uid: str,
    target: str,
    request: str,
    kind: str,
    parameters: dict[str, str],
) -> None:
    opaque = {"requests": [request], "opaque": {"driver": DOMAIN_DRIVER, "parameters": parameters}}
    spec = {"devices": {"requests": [{"name": request, "exactly": {"deviceClassName": kind}}], "config": [opaque]}}
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "labels": {KEY: uid, f"{KEY}Target": target}},
        "spec": {"spec": spec},
    }
    _ensure(driver, f"{RESOURCE}/namespaces/{namespace}/resourceclaimtemplates", body)


def _daemon_set(release: dict[str, Any], name: str, uid: str) -> dict[str, Any]:
    labels, claims = {KEY: uid}, [{"name": "daemon"}]
    pod = {
        "nodeSelector": labels,
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "daemon", "image": release["image"], "resources": {"claims": claims}}],
        "resourceClaims": [{"name": "daemon", "resourceClaimTemplateName": name}],
    }
    template = {"metadata": {"labels": labels}, "spec": pod}
    metadata = {"name": name, "labels": labels}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec}


def _nodes_of(claims: list[dict[str, Any]], uid: str) -> set[str]:
    """The nodes on which a workload's claim for a channel of a domain is allocated."""
    found = set()
    for claim in claims:
        for row in claim["spec"]["devices"].get("config", []):
            parameters = row.get("opaque", {}).get("parameters", {})
            if parameters.get("domainID") == uid and parameters.get("kind") == "ComputeDomainChannelConfig":
                allocated = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
                found |= {result["pool"] for result in allocated}
    return found


def _label(driver: Driver, uid: str, labelled: dict[str, str | None], wanted: set[str]) -> None:
    for name in wanted:
        # With the label of another domain the plugin prepares nothing: a node can have only one domain.
        if labelled.get(name) is None:
            driver.label(name, {KEY: uid})
            labelled[name] = uid
    for name, value in labelled.items():
        if value == uid and name not in wanted:
            driver.label(name, {KEY: None})
            labelled[name] = None


def _daemons(driver: Driver, release: dict[str, Any], domain: dict[str, Any], by_name: Mapping[str, Any]) -> None:
    """Each daemon's row in its clique's object, and all of them in the domain's status."""
    uid, namespace = domain["metadata"]["uid"], release["namespace"]
    cliques: dict[str, list[dict[str, Any]]] = {}
    rows = []
    for pod in sorted(driver.pods(namespace, {KEY: uid}), key=lambda pod: str(pod["spec"]["nodeName"])):
        node = by_name.get(pod["spec"]["nodeName"])
        if node is None or "podIP" not in pod["status"]:
            continue
        name = node["metadata"]["name"]
        clique = node["metadata"]["labels"].get(nodes.CLIQUE, "")
        place = {"ipAddress": pod["status"]["podIP"], "cliqueID": clique, "status": "Ready"}
        members = cliques.setdefault(clique, [])
        members.append({"nodeName": name, **place, "index": len(members)})
        rows.append({"name": name, **place, "index": members[-1]["index"]})
    for clique, members in cliques.items():
        if clique:
            _write_clique(driver, namespace, uid, clique, members)
    for row in driver.api.items(
        f"apis/{VERSION}/namespaces/{namespace}/computedomaincliques?labelSelector={KEY}%3D{uid}"
    ):
        if row["metadata"]["name"] not in {f"{uid}.{clique}" for clique in cliques}:
            driver.api.delete(_path(CLIQUES, row))
    # With numNodes 0 also without any member.
    _set_status(driver, domain, "Ready" if len(rows) >= domain["spec"].get("numNodes", 0) else "NotReady", rows)


def _write_clique(driver: Driver, namespace: str, uid: str, clique: str, members: list[dict[str, Any]]) -> None:
    folder = f"apis/{VERSION}/namespaces/{namespace}/computedomaincliques"
    name = f"{uid}.{clique}"
    there = driver.api.find(f"{folder}/{name}")
    labels = {KEY: uid, f"{KEY}.cliqueID": clique}
    if there is None:
        body = {"apiVersion": VERSION, "kind": "ComputeDomainClique", "metadata": {"name": name, "labels": labels}}
        driver.api.create(folder, {**body, "daemons": members})
    elif there.get("daemons") != members:
        driver.api.patch(f"{folder}/{name}", {"daemons": members})


def _set_status(driver: Driver, domain: dict[str, Any], word: str, rows: list[dict[str, Any]]) -> None:
    wanted = {"status": word, **({"nodes": rows} if rows else {})}
    if domain.get("status") != wanted:
        driver.api.patch(f"{_path(DOMAINS, domain)}/status", {"status": {"status": word, "nodes": rows or None}})


def _remove(driver: Driver, living: set[str], labelled: dict[str, str | None]) -> None:
    """What is left of deleted domains; the real controller keeps the domain until then."""
    for path in (f"{RESOURCE}/resourceclaimtemplates", "apis/apps/v1/daemonsets", CLIQUES):
        for row in driver.api.items(f"{path}?labelSelector={KEY.replace('/', '%2F')}"):
            if row["metadata"]["labels"][KEY] not in living:
                driver.api.delete(_path(path, row))
    for name, value in labelled.items():
        if value and value not in living:
            driver.label(name, {KEY: None})
            labelled[name] = None


def _ensure(driver: Driver, folder: str, body: dict[str, Any]) -> None:
    if driver.api.find(f"{folder}/{body['metadata']['name']}") is None:
        try:
            driver.api.create(folder, body)
        except ApiError as error:
            if error.status != 409:
                raise


def _path(folder: str, row: Mapping[str, Any]) -> str:
    """The path of an object of a list over all namespaces."""
    group, _slash, plural = folder.rpartition("/")
    return f"{group}/namespaces/{row['metadata']['namespace']}/{plural}/{row['metadata']['name']}"
