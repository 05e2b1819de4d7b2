# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster and its trays without any fault, which tests then change."""

from __future__ import annotations

import copy
import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import tray_report
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import chart_values, versions
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.preflight import Plan, Tray

Change = Callable[[dict[str, Any]], Any]
UUID = "9f3c1f52-0a57-4e70-8f3e-3a1c3f2d9b01"
CLIQUE = f"{UUID}.32766"
NAMESPACE = RELEASE = "dra-driver-nvidia-gpu"
HELM = {"meta.helm.sh/release-name": RELEASE, "meta.helm.sh/release-namespace": NAMESPACE}
NOW = datetime.datetime(2026, 11, 21, 12, 0, tzinfo=datetime.timezone.utc)
KEY = "resource.nvidia.com/computeDomain"
SOCKET = "/etc/nvidia-imex/imex_ctrl.sock"
# The tests' chart, whose values and definitions are those of the real one (test_kubernetes_chart.py).
FOLDER = Path(__file__).resolve().parents[4] / "lab" / "kubernetes" / "chart"
CHART = yaml.safe_load((FOLDER / "values.yaml").read_text())
LABELLED = chart_values.merged(
    chart_values.build("compute_domains", {}, "v1"),
    {"kubeletPlugin": {"containers": {"computeDomains": {"gpuCliqueLabelEnabled": True}}}},
)


def names(count: int = 2) -> list[str]:
    return [f"r01t{number:02d}" for number in range(1, count + 1)]


def node(name: str, **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.present": "true", **more.pop("labels", {})}},
        "spec": {"taints": more.pop("taints", [])},
        "status": {
            "nodeInfo": {
                "containerRuntimeVersion": more.pop("runtime", "containerd://2.1.4"),
                "kubeletVersion": more.pop("kubelet", "v1.34.4"),
            },
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def crd(name: str, managers: tuple[str, ...] = ("helm",)) -> dict[str, Any]:
    spec: dict[str, Any] = {"properties": {"numNodes": {"type": "integer", "default": 0, "minimum": 0}}}
    return {
        "metadata": {"name": name, "managedFields": [{"manager": who, "fieldsV1": {"f:spec": {}}} for who in managers]},
        "spec": {"versions": [{"name": "v1beta1", "schema": {"openAPIV3Schema": {"properties": {"spec": spec}}}}]},
    }


def device_class(name: str, annotations: Any = None) -> dict[str, Any]:
    return {"metadata": {"name": name, "annotations": HELM if annotations is None else annotations}}


def daemon_set(name: str = f"{RELEASE}-kubelet-plugin", chart: str = "dra-driver-nvidia-gpu-0.5.0", **more: Any) -> Any:
    count = more.pop("count", 2)
    return {
        "metadata": {
            "name": name,
            "namespace": more.pop("namespace", NAMESPACE),
            "generation": 1,
            "annotations": more.pop("annotations", HELM),
            "labels": {"helm.sh/chart": chart},
        },
        "spec": {"template": {"spec": {"containers": more.pop("containers", [{"name": "compute-domains"}])}}},
        "status": {
            "observedGeneration": 1,
            "desiredNumberScheduled": count,
            "numberReady": more.pop("ready", count),
            "updatedNumberScheduled": count,
        },
    }


def controller(available: int = 1) -> dict[str, Any]:
    containers = [{"name": "compute-domain"}]
    made: dict[str, Any] = daemon_set(f"{RELEASE}-controller", containers=containers)
    return {**made, "status": {"availableReplicas": available}}


def gfd() -> Any:
    containers = [{"name": "gpu-feature-discovery-ctr", "image": "nvcr.io/nvidia/k8s-device-plugin:v0.19.0"}]
    return daemon_set("gpu-feature-discovery", "", namespace="gpu-operator", annotations={}, containers=containers)


def device_plugin(name: str = "nvidia-device-plugin-daemonset", **more: Any) -> Any:
    """A DaemonSet of the device plugin; pod: more of its pod spec."""
    image = more.pop("image", "nvcr.io/nvidia/k8s-device-plugin:v0.19.0")
    rows = more.pop("containers", [{"name": "nvidia-device-plugin-ctr", "image": image}])
    made = daemon_set(name, "", namespace="gpu-operator", annotations={}, containers=rows)
    made["spec"]["template"]["spec"].update(more.pop("pod", {}))
    made["metadata"].update(more)
    return made


def cluster_policy(enabled: Any = None) -> dict[str, Any]:
    """GPU Operator's ClusterPolicy, whose devicePlugin.enabled is unset or this."""
    spec = {} if enabled is None else {"devicePlugin": {"enabled": enabled}}
    return {"metadata": {"name": "cluster-policy", "uid": "uid-policy"}, "spec": spec}


def slices(name: str, *devices: str, driver: str = "compute-domain.nvidia.com") -> dict[str, Any]:
    rows = [{"name": device} for device in devices or ("channel-0", "daemon-0")]
    return {"metadata": {"name": f"{name}-{driver}"}, "spec": {"driver": driver, "nodeName": name, "devices": rows}}


def claim(
    name: str, reserved: bool = True, driver: str = "compute-domain.nvidia.com", node: str = "r01t01", of: str = "cd"
) -> dict[str, Any]:
    """A claim of a workload for the channel of the domain `of` on a node."""
    parameters = {"kind": "ComputeDomainChannelConfig", "domainID": f"uid-{of}"}
    status = {
        "allocation": {"devices": {"results": [{"driver": driver, "device": "channel-0", "pool": node}]}},
        "reservedFor": [{"name": "pod", "uid": "1"}] if reserved else [],
    }
    return {
        "metadata": {"name": name, "namespace": "jobs", "uid": f"uid-{name}"},
        "spec": {"devices": {"config": [{"opaque": {"driver": driver, "parameters": parameters}}]}},
        "status": status,
    }


def changed(item: dict[str, Any], minutes: int) -> dict[str, Any]:
    """An object that was last changed so long before NOW."""
    time = NOW - datetime.timedelta(minutes=minutes)
    return {**item, "metadata": {**item["metadata"], "changedAt": f"{time:%Y-%m-%dT%H:%M:%SZ}"}}


def domain(name: str = "cd", deleted: str | None = None) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "jobs", "uid": f"uid-{name}"}
    return {"metadata": {**metadata, **({"deletionTimestamp": deleted} if deleted else {})}}


def members(of: str = "cd", clique: str = CLIQUE, **statuses: str) -> dict[str, Any]:
    """The ComputeDomainClique of a domain, with the status of each node's daemon."""
    rows = [{"nodeName": name, "cliqueID": clique, "status": status} for name, status in statuses.items()]
    metadata = {"name": f"uid-{of}.{clique}", "namespace": NAMESPACE, "labels": {KEY: f"uid-{of}"}}
    return {"metadata": metadata, "daemons": rows}


def working() -> dict[str, Any]:
    """A cluster with a ComputeDomain over both nodes whose daemons are ready."""
    cluster = installed()
    for row in cluster["nodes"]:
        row["metadata"]["labels"][KEY] = "uid-cd"
    claims = [claim(f"work-{name}", node=name) for name in names()]
    cliques = [members(**dict.fromkeys(names(), "Ready"))]
    return {**cluster, "compute_domains": [domain()], "compute_domain_cliques": cliques, "claims": claims}


def changed_by(change: Change, base: dict[str, Any] | None = None) -> dict[str, Any]:
    """A cluster, without the driver if not given, after a change."""
    cluster = copy.deepcopy(base or empty())
    change(cluster)
    return cluster


def put(**lists: Any) -> Change:
    return lambda cluster: cluster.update(lists)


def secret(revision: int, status: str) -> dict[str, Any]:
    labels = {"name": RELEASE, "owner": "helm", "status": status, "version": str(revision)}
    return {"metadata": {"name": f"sh.helm.release.v1.{RELEASE}.v{revision}", "namespace": NAMESPACE, "labels": labels}}


def empty() -> dict[str, Any]:
    """A cluster without the driver."""
    lists = ("device_classes", "slices", "claims", "claim_templates", "compute_domains", "compute_domain_cliques")
    return {
        "version": "v1.34.4",
        "groups": {"resource.k8s.io": ["v1"], "apps": ["v1"]},
        "nodes": [node(name) for name in names()],
        "crds": {f"{kind}.resource.nvidia.com": None for kind in ("computedomains", "computedomaincliques")},
        "read_at": NOW,
        **{key: [] for key in (*lists, "gpu_clusters", "cluster_policies", "daemon_sets", "deployments")},
        **{key: [] for key in ("network_policies", "releases", "not_readable")},
    }


def installed() -> dict[str, Any]:
    """A cluster with the release of LABELLED, completely ready."""
    return {
        **empty(),
        "nodes": [node(name, labels={"nvidia.com/gpu.clique": CLIQUE}) for name in names()],
        "crds": {f"{kind}.resource.nvidia.com": crd(kind) for kind in ("computedomains", "computedomaincliques")},
        "device_classes": [
            device_class("compute-domain-default-channel.nvidia.com"),
            device_class("compute-domain-daemon.nvidia.com"),
        ],
        "daemon_sets": [daemon_set()],
        "deployments": [controller()],
        "slices": [slices(name) for name in names()],
        "releases": [secret(1, "deployed")],
    }


def root_files() -> dict[str, Any]:
    """The registered result of the role's search for the driver's programs."""
    return {"stdout": "/usr/bin/nvidia-smi\n/usr/lib64/libnvidia-ml.so.1"}


def fabric(**more: Any) -> dict[str, Any]:
    healthy = {"summary": "healthy", "route_unhealthy": False}
    return {
        "attached": True,
        "clique": CLIQUE,
        "driver_version": "580.173.02",
        "gpus": [{"index": index, "fabric": {"health": dict(healthy)}} for index in range(4)],
        "findings": [],
        **more,
    }


def imex(**more: Any) -> dict[str, Any]:
    """IMEX facts of a tray on which the driver runs IMEX."""
    return {
        "installed": True,
        "version": "580.173.02",
        "ready": False,
        "running": False,
        "state": None,
        "domain_state": None,
        "nodes": {"entries": [], "sha256": None},
        "peers": [],
        "findings": [],
        "unit": {"load": "masked", "active": "inactive"},
        "config": {"settings": {}},
        "channels": {"major": 235},
        "owners": [],
        **more,
    }


def hosts_imex(**more: Any) -> dict[str, Any]:
    """IMEX facts of a tray that runs IMEX itself, as host_managed needs it."""
    return imex(
        **{
            "ready": True,
            "unit": {"load": "loaded", "active": "active"},
            "config": {"settings": {"IMEX_CMD_ENABLED": "1", "IMEX_CMD_UNIX_DOMAIN_PATH": SOCKET}},
            "owners": [{"owner": "service", "why": "nvidia-imex.service runs"}],
            **more,
        }
    )


def trays(count: int = 2, **more: Any) -> dict[str, Tray]:
    facts = more.get("fabric", fabric()), more.get("imex", imex()), more.get("root", True)
    return {name: tray(name, *facts) for name in names(count)}


def tray(name: str, gpu: Any, own_imex: Any, root: bool = True) -> Tray:
    """A tray that reported these facts (None: not gathered)."""
    report = tray_report.read(name, {"ansible_facts": {"nvlink_fabric": gpu, "nvlink_imex": own_imex}})
    return Tray(name, report.gpu, report.imex, root)


def plan(own: Any = None, shape: str = "compute_domains", **more: Any) -> Plan:
    made = chart_values.merged(chart_values.build(shape, {}, "v1"), own or {})
    if own is None and shape == "compute_domains":
        made = copy.deepcopy(LABELLED)
    version = versions.pinned(more.pop("version", "0.5.0"))
    return Plan(None if shape == "gpu_cluster" else made, version, NAMESPACE, RELEASE, **more)
