# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The preflight of the DRA driver: findings before it is installed, as a pure function of a snapshot and tray facts.

The checks are P1 to P16 of docs/dra-driver.md; each function names its own. A cause for which the driver, the chart or
Kubernetes would fail, or silently do nothing, is an error; what needs a review is a warning.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import node_names
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.parts import Facts
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.status import is_same_version
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import OLD_CHART, chart_rules, crds, node_selection
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.chart_values import (
    API_GROUP,
    LIMIT,
    MAX_DOMAIN_NODES,
    Values,
    value,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.snapshot import Snapshot, api_version
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.versions import MOVED, Version, parse
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import UNHEALTHY
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import ERROR
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import labels
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, as_list, mapped
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.tray_report import Gpus

CHART_FLOOR, RECOMMENDED = (1, 32), (1, 34, 2)
DRIVER_FLOOR = (570, 158, 1)
DRIVER_FLOOR_TEXT = "570.158.01"
RUNTIME_FLOORS = {"containerd": (2, 0), "cri-o": (1, 27)}
CLASSES = {
    "compute_domains": ("compute-domain-default-channel.nvidia.com",),
    "daemon": ("compute-domain-daemon.nvidia.com",),
    "gpus": ("gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com"),
}
DRIVER_CLASSES = frozenset(name for names in CLASSES.values() for name in names)
DAEMONS = "computedomain-daemon-"
"""The prefix of the DaemonSets that the driver's controller creates."""
PLUGIN_CONTAINER = "compute-domains"
"""The container of the kubelet plugin that handles IMEX, in every chart."""
INTERRUPTED = ("pending-install", "pending-upgrade", "pending-rollback", "uninstalling")


@dataclass(frozen=True)
class Tray:
    """One tray: the name of its node and what the tray reported of its GPUs and of IMEX (None: not gathered).

    root: whether nvidia-smi and libnvidia-ml.so.1 are below the driver root; None where it was not checked.
    """

    node: str
    gpu: Gpus | None = None
    imex: Facts | None = None
    root: bool | None = None


@dataclass(frozen=True)
class Plan:
    """The installation. values is None for GPU Operator's GPUCluster, which installs the driver itself.

    external_label_writer: whether another program, such as the role k8s_topology, writes the label
    nvidia.com/gpu.clique. chart_values: the chart's values.yaml, empty where it was not asked.
    imex_pending: whether the role imex will configure IMEX later in this run, so that its state is not checked.
    """

    values: Values | None
    version: Version
    namespace: str
    release: str
    cdi_enabled: bool = False
    external_label_writer: bool = False
    crd_managers: Sequence[str] = ()
    chart_crds: Mapping[str, Object] = field(default_factory=dict)
    chart_values: Values = field(default_factory=dict)
    imex_pending: bool = False

    def get(self, path: str, default: Any) -> Any:
        return value(self.values or {}, path, default)

    @property
    def host_managed(self) -> bool:
        return bool(self.get("resources.computeDomains.imex.mode", "driverManaged") == "hostManaged")

    @property
    def compute_domains(self) -> bool:
        return self.get("resources.computeDomains.enabled", True) is not False

    @property
    def stand_alone(self) -> bool:
        return self.values is not None


Trays = Mapping[str, Tray]


def preflight(snapshot: Snapshot, trays: Trays, plan: Plan) -> list[Finding]:
    """All findings: of the cluster, of each tray, of each clique, of the installation."""
    found = [row for check in CLUSTER_CHECKS for row in check(snapshot, trays, plan)]
    found += [row for name, tray in trays.items() for check in TRAY_CHECKS for row in check(name, tray, plan)]
    found += [row for check in INSTALLATION_CHECKS for row in check(snapshot, trays, plan)]
    if plan.compute_domains or not plan.stand_alone:
        # P13.
        found += crds.evaluate(snapshot["crds"], plan.chart_crds, plan.crd_managers, plan.stand_alone)
    if plan.values is not None:
        # P14.
        found += chart_rules.check_kinds(plan.values, plan.chart_values)
        found += chart_rules.check_start(plan.values, plan.version)
    return found


def missing_permissions(snapshot: Snapshot) -> list[Finding]:
    """An error for each list that is needed before a removal and that the account may not read."""
    needed = ("computedomains;", "resourceclaims;")
    return [
        finding("dra_insufficient_permissions", f"{sentence}, which is needed to know what is still in use.")
        for sentence in snapshot["not_readable"]
        if any(resource in sentence for resource in needed)
    ]


def expected_nodes(snapshot: Snapshot, trays: Trays) -> dict[str, Object | None]:
    """Name -> object of the nodes that need the driver: those of the trays, else those with a GPU label."""
    known = {str(mapped(node.get("metadata")).get("name")): node for node in snapshot["nodes"]}
    if trays:
        return {tray.node: known.get(tray.node) for tray in trays.values()}
    return {
        name: node for name, node in known.items() if any(key in node_selection.labels(node) for key in _GPU_LABELS)
    }


_GPU_LABELS = (*node_selection.DEFAULT_LABELS, "nvidia.com/gpu.clique", "nvidia.com/gpu.count")


def owner_of(item: Object) -> tuple[str, str] | None:
    """(namespace, name) of the Helm release of an object; None without one."""
    annotations = mapped(mapped(item.get("metadata")).get("annotations"))
    name, namespace = annotations.get("meta.helm.sh/release-name"), annotations.get("meta.helm.sh/release-namespace")
    return (str(namespace), str(name)) if name and namespace else None


def namespace_of(item: Object) -> Any:
    return mapped(item.get("metadata")).get("namespace")


def name_of(item: Object) -> str:
    """namespace/name, or the name of an object without a namespace."""
    metadata = mapped(item.get("metadata"))
    return "/".join(str(metadata[key]) for key in ("namespace", "name") if key in metadata)


def _installed_chart(snapshot: Snapshot, plan: Plan) -> tuple[str, bool]:
    """(name-version of the chart of the installed release, whether its objects have the names of a 25.x chart)."""
    for item in snapshot["daemon_sets"]:
        if owner_of(item) == (plan.namespace, plan.release):
            has = node_selection.labels(item)
            chart = str(has.get("helm.sh/chart", ""))
            return chart, chart.startswith(f"{OLD_CHART}-") or has.get("app.kubernetes.io/name") == OLD_CHART
    return "", False


def release_version(snapshot: Snapshot, plan: Plan) -> Version | None:
    """The chart version of the installed release, from the label of its DaemonSet; None without one."""
    chart, _is_old = _installed_chart(snapshot, plan)
    match = re.fullmatch(r".*?-(v?[0-9]+\.[0-9]+\.[0-9]+.*)", chart)
    return parse(match.group(1).replace("_", "+")) if match else None


def keeps_old_name(snapshot: Snapshot, plan: Plan) -> bool:
    """Whether the release began as a 25.x chart, so that its objects keep the names of that chart."""
    return _installed_chart(snapshot, plan)[1]


def refused(snapshot: Snapshot, trays: Trays, plan: Plan) -> list[Finding]:
    """What the preflight refuses, or may not read, of those checks that need no values of the chart."""
    # The label may have another writer than the two that run as a DaemonSet.
    own = replace(plan, external_label_writer=not labels.running_writers(snapshot["daemon_sets"]))
    found = [row for check in OF_LIVE for row in check(snapshot, trays, own)]
    there = {value(item, "spec.nodeName") for item in snapshot["slices"]}
    found += [row for name, tray in trays.items() if tray.node in there for row in _imex(name, tray, own)]
    return [row for row in found if row["severity"] == ERROR or row["code"] == "dra_not_readable"]


def live_plan(snapshot: Snapshot) -> Plan | None:
    """The installed driver as a plan, with the values that its plugin and DeviceClasses show; None without a driver."""
    rows = ((item, row) for item in snapshot["daemon_sets"] for row in containers(item))
    item, row = next((pair for pair in rows if pair[1].get("name") == PLUGIN_CONTAINER), ({}, {}))
    classes = {name_of(found): found for found in snapshot["device_classes"] if name_of(found) in DRIVER_CLASSES}
    if not row and not classes.keys() & {*CLASSES["compute_domains"]}:
        return None
    owner = next(filter(None, map(owner_of, (item, *classes.values()))), None)
    env = {mapped(pair).get("name"): mapped(pair).get("value") for pair in as_list(row.get("env"))}
    mode = "driverManaged" if row or CLASSES["daemon"][0] in classes else "hostManaged"
    imex = {"mode": env.get("IMEX_MODE", mode), "hostSocketPath": env.get("IMEX_HOST_SOCKET_PATH")}
    pod = mapped(value(item, "spec.template.spec"))
    writes = {"computeDomains": {"gpuCliqueLabelEnabled": labels.DRA in labels.running_writers([item])}}
    made = {
        "kubeletPlugin": {"affinity": None, "tolerations": [], **pod, "containers": writes},
        "resources": {"gpus": {"enabled": CLASSES["gpus"][0] in classes}, "computeDomains": {"imex": imex}},
    }
    namespace, release = owner or (str(namespace_of(item)), "")
    plan = Plan(made if owner else None, MOVED, namespace, release, cdi_enabled=True)
    return replace(plan, version=release_version(snapshot, plan) or MOVED)


# --- The cluster.


def _kubernetes(snapshot: Snapshot, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """P1: the chart's kubeVersion, and the version that its documentation recommends."""
    match = re.match(r"v?([0-9]+)\.([0-9]+)\.([0-9]+)", str(snapshot["version"]))
    version = tuple(int(part) for part in match.groups()) if match else RECOMMENDED
    if version < CHART_FLOOR:
        message = "and the chart needs 1.32; upgrade it, preferably to 1.34.2 or later."
        yield finding("dra_kubernetes_too_old", f"Kubernetes is {snapshot['version']} {message}")
    elif version < RECOMMENDED:
        message = "plan an upgrade to 1.34.2 or later, which the driver recommends."
        yield finding("release_old", f"Kubernetes is {snapshot['version']}; {message}")


def _api(snapshot: Snapshot, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """P2: resource.k8s.io is served."""
    best = api_version(snapshot["groups"])
    configured = str(plan.get("resourceApiVersion", "")).rpartition("/")[2]
    served = snapshot["groups"].get(API_GROUP, [])
    yield from kubelets(snapshot, trays)
    if best is None:
        message = "The API server does not serve resource.k8s.io; upgrade to 1.34, or enable DynamicResourceAllocation"
        yield finding("dra_kubernetes_too_old", f"{message} and its API version in --runtime-config.")
    elif configured and configured not in served:
        message = f"values, resourceApiVersion: the API server does not serve {configured}; remove it to use"
        yield finding("dra_kubernetes_too_old", f"{message} {best}.")


def kubelets(snapshot: Snapshot, trays: Trays) -> Iterator[Finding]:
    """Kubelets until 1.33 ask for claims in v1beta1 alone, and fail where it is not served (the driver's issue 766)."""
    served = snapshot["groups"].get(API_GROUP, [])
    old: dict[str, list[str]] = {}
    for name, node in expected_nodes(snapshot, trays).items() if served and "v1beta1" not in served else ():
        version = str(mapped(mapped(mapped(node).get("status")).get("nodeInfo")).get("kubeletVersion"))
        if re.match(r"v1\.([12]?[0-9]|3[0-3])\.", version):
            old.setdefault(version, []).append(name)
    for version, names in old.items():
        message = f"The kubelet {version} of {summarize(sorted(names))} cannot read the ResourceClaims of an API server"
        message = f"{message} {snapshot['version']}; upgrade it to 1.34 or later."
        yield finding("dra_kubernetes_too_old", message, nodes=sorted(names))


def _not_readable(snapshot: Snapshot, trays: Trays, plan: Plan) -> Iterator[Finding]:
    for sentence in snapshot["not_readable"]:
        yield finding("dra_not_readable", f"{sentence}.")
    silent = [name for name, tray in trays.items() if tray.gpu is None]
    if silent:
        message = f"There are no GPU facts of {summarize(sorted(silent))}; run fabric_facts on the trays first, or"
        yield finding("dra_not_readable", f"{message} repair them.")


def _runtime(snapshot: Snapshot, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """P3: without CDI no container gets the devices that the driver prepares."""
    for name, node in expected_nodes(snapshot, trays).items():
        text = str(mapped(mapped(mapped(node).get("status")).get("nodeInfo")).get("containerRuntimeVersion", ""))
        match = re.fullmatch(r"([a-z0-9.-]+)://v?([0-9]+)\.([0-9]+).*", text)
        if match is None:
            continue
        runtime, version = match.group(1), (int(match.group(2)), int(match.group(3)))
        by_option = runtime == "containerd" and (1, 7) <= version < (2, 0)
        if (by_option and plan.cdi_enabled) or version >= RUNTIME_FLOORS.get(runtime, (math.inf,)):
            continue
        problem = "has CDI only with enable_cdi; set it there and cdi_enabled: true, or use 2.0"
        without = "has no CDI; use containerd 2.0 or CRI-O 1.27, or later"
        message = f"Node {name} runs {text}, which {problem if by_option else without}."
        yield finding("dra_node_setup", message, node=name)


def _nodes(snapshot: Snapshot, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """P9: every tray is a node, and the plugin may run there."""
    known = expected_nodes(snapshot, {})
    every = {str(mapped(node.get("metadata")).get("name")) for node in snapshot["nodes"]}
    renamed = node_names.renamed((tray.node for tray in trays.values()), map(labels.names, snapshot["nodes"]))
    if renamed:
        yield finding("dra_node_not_selected", node_names.sentence("Kubernetes", renamed, "fabric_kubernetes_node"))
    for name, tray in trays.items():
        if tray.node not in every and tray.node not in renamed:
            message = f"Tray {name} should be node {tray.node}, which the cluster does not have; join it, or correct"
            yield finding("dra_node_not_selected", f"{message} its kubernetes_node in the fabric file.", tray=name)
    if not trays and not known:
        message = "No node has a GPU label; label the nodes nvidia.com/gpu.present=true, or set trays."
        yield finding("dra_node_not_selected", message)
    if not plan.stand_alone:
        return
    for name, node in expected_nodes(snapshot, trays).items():
        reason = node_selection.why_excluded(node, mapped(plan.get("kubeletPlugin", {}))) if node is not None else None
        if reason:
            yield finding("dra_node_not_selected", f"The driver would not run on node {name}: {reason}.", node=name)


def _label_writers(snapshot: Snapshot, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """P11: exactly one writer of nvidia.com/gpu.clique."""
    switch = "kubeletPlugin.containers.computeDomains.gpuCliqueLabelEnabled"
    writers = {
        "GPU Feature Discovery": labels.GFD in labels.running_writers(snapshot["daemon_sets"]),
        "the DRA driver": not plan.stand_alone or plan.get(switch, False) is True,
        "an external writer (external_label_writer)": plan.external_label_writer,
    }
    names = [name for name, writes in writers.items() if writes]
    message = f"The label nvidia.com/gpu.clique would be written by {' and '.join(names)}; keep one of them."
    if not names:
        remedy = f"set {switch}: true (chart 0.5.0 or later), or deploy GPU Feature Discovery."
        message = f"No program writes the label nvidia.com/gpu.clique; {remedy}"
    if len(names) != 1:
        yield finding("k8s_clique_label_writers", message)


def containers(item: Object) -> list[Object]:
    pod = mapped(mapped(mapped(item.get("spec")).get("template")).get("spec"))
    return [mapped(row) for row in as_list(pod.get("containers"))]


def _other_installs(snapshot: Snapshot, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """P12: DeviceClasses have fixed names, so only one installation is possible."""
    release = (plan.namespace, plan.release)
    for cluster in snapshot["gpu_clusters"] if plan.stand_alone else ():
        message = f"GPU Operator's GPUCluster {name_of(cluster)} installs the driver; set shape: gpu_cluster,"
        yield finding("dra_other_install", f"{message} or delete it.")
    if not plan.stand_alone and not snapshot["gpu_clusters"]:
        message = "shape is gpu_cluster, but the cluster has no GPUCluster; deploy GPU Operator with"
        yield finding("dra_other_install", f"{message} gpuCluster.deployCR=true.")
    own = release if plan.stand_alone else None
    owners: dict[tuple[str, str] | None, list[str]] = {}
    for item in snapshot["device_classes"]:
        if name_of(item) in DRIVER_CLASSES and owner_of(item) != own:
            owners.setdefault(owner_of(item), []).append(name_of(item))
    if snapshot["gpu_clusters"]:
        owners.pop(None, None)
    for owner, names in owners.items():
        who = f"The Helm release {owner[1]} in namespace {owner[0]}" if owner else "A program other than Helm"
        message = f"{who} owns the driver's DeviceClasses ({summarize(sorted(names))}); uninstall it,"
        yield finding("dra_other_install", f"{message} or set release and namespace to it.")


def _release(snapshot: Snapshot, trays: Trays, plan: Plan) -> Iterator[Finding]:
    own = [node_selection.labels(item) for item in snapshot["releases"] if namespace_of(item) == plan.namespace]
    revisions = [(str(has.get("version")), str(has.get("status"))) for has in own if has.get("name") == plan.release]
    number, status = max(((int(text), status) for text, status in revisions if text.isdecimal()), default=(0, ""))
    if status in INTERRUPTED:
        verb = "uninstall" if number <= 1 or status == "uninstalling" else "rollback"
        message = f"Revision {number} of release {plan.release} was interrupted ({status}); Helm rejects every change"
        remedy = f"until you run helm {verb} {plan.release} -n {plan.namespace}."
        yield finding("dra_release_failed", f"{message} {remedy}")
    live = release_version(snapshot, plan)
    if live is not None and plan.stand_alone:
        if live.is_old_chart:
            message = f"Release {plan.release} is of the chart {OLD_CHART}; its upgrade cannot be reverted and keeps"
            yield finding("dra_release_old", f"{message} the names of its objects by nameOverride.")
        elif live > plan.version:
            message = f"dra_driver_chart_version: release {plan.release} has a newer chart; an older driver cannot read"
            yield finding("dra_release_failed", f"{message} nodes' checkpoints; set the installed version or later.")


def _network(snapshot: Snapshot, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """P16: the daemons of one domain communicate on TCP 50000 and 50005."""
    if plan.host_managed or not plan.compute_domains:
        return
    release = (plan.namespace, plan.release)
    for item in snapshot["network_policies"]:
        if namespace_of(item) == plan.namespace and owner_of(item) != release:
            yield finding("dra_network_policy", f"The NetworkPolicy {name_of(item)} may block IMEX daemons")


def _domains_active(snapshot: Snapshot, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """The mode of IMEX cannot change while ComputeDomains exist."""
    live = live_plan(snapshot)
    if plan.stand_alone and live and live.host_managed != plan.host_managed and snapshot["compute_domains"]:
        names = summarize(sorted([name_of(item) for item in snapshot["compute_domains"]]))
        message = f"The owner of IMEX cannot change while ComputeDomains exist ({names}); delete them and their"
        yield finding("jobs_running", f"{message} workloads first.")


# --- Each tray.


def _drivers(name: str, tray: Tray, plan: Plan) -> Iterator[Finding]:
    """P4: versions of the NVIDIA driver and of IMEX. P5: IMEX channels of the kernel."""
    text, imex = tray.gpu and tray.gpu.driver_version, mapped(tray.imex)
    if text:
        numbers = tuple(int(part) for part in re.findall(r"[0-9]+", text)[:3])
        if numbers < DRIVER_FLOOR and plan.compute_domains and not plan.host_managed:
            message = f"Tray {name} has driver {text}, and ComputeDomains need {DRIVER_FLOOR_TEXT}"
            yield finding("dra_driver_unsuitable", message, tray=name)
        version = str(imex.get("version") or text)
        # With host_managed the role imex installs the package.
        is_pending = plan.imex_pending and plan.host_managed
        if imex.get("installed") and not is_pending and not is_same_version(version, text):
            message = f"Tray {name} has IMEX {version} and driver {text}"
            yield finding("imex_version_mismatch", message, tray=name)
    if plan.compute_domains and tray.imex is not None and mapped(imex.get("channels")).get("major") is None:
        message = f"Tray {name} has no nvidia-caps-imex-channels in /proc/devices, without which the driver exits; load"
        remedy = "the nvidia module of a driver with IMEX channels."
        yield finding("dra_driver_unsuitable", f"{message} {remedy}", tray=name)


def _fabric(name: str, tray: Tray, plan: Plan) -> Iterator[Finding]:
    """P6: the clique that the driver reads, and the fabric health that neither it nor GPU Feature Discovery reads."""
    if tray.gpu is None or not plan.compute_domains:
        return
    if not tray.gpu.attached:
        reason = next((row["message"] for row in tray.gpu.findings), "")
        message = f"The GPUs of tray {name} report no clique, so the driver exits there, or runs jobs without IMEX"
        yield finding("dra_clique_unknown", f"{message}: {reason or 'see fabric_facts.'}", tray=name)
    unhealthy = [str(gpu.index) for gpu in tray.gpu.gpus if gpu.health == UNHEALTHY]
    if unhealthy:
        message = f"The fabric health of GPU {', '.join(unhealthy)} of tray {name} is unhealthy, which the driver"
        yield finding("fabric_degraded", f"{message} does not check; drain the tray and repair it.", tray=name)


def _imex(name: str, tray: Tray, plan: Plan) -> Iterator[Finding]:
    """P7: the kernel has one IMEX session per node. P8: no other owner of it on the tray."""
    if tray.imex is None or not plan.compute_domains or plan.imex_pending:
        return
    unit = mapped(tray.imex.get("unit"))
    problem = _host_managed_problem(tray.imex, unit, plan) if plan.host_managed else _driver_managed_problem(unit)
    if problem:
        owner = "host_managed" if plan.host_managed else "driver_managed"
        message = f"On tray {name} {problem}; run the role imex with imex_owner: {owner}."
        yield finding("imex_unit_down", message, tray=name)
    # The check of the unit reports a running service where the driver is the owner.
    allowed = {"service"} if plan.host_managed else {"driver", "service"}
    for row in tray.imex.get("owners") or ():
        if row.get("owner") not in allowed:
            message = f"Tray {name} has another owner of IMEX ({row.get('why')}); run the role imex with another"
            yield finding("imex_two_owners", f"{message} imex_owner, or stop that owner.", tray=name)


def _driver_managed_problem(unit: Object) -> str | None:
    if unit.get("active") in ("active", "activating"):
        return "nvidia-imex.service runs, so the driver's daemons cannot get the session"
    if unit.get("load") not in (None, "masked", "not-found"):
        return "nvidia-imex.service is not masked, so a reboot or an upgrade may start it"
    return None


def _host_managed_problem(imex: Facts, unit: Object, plan: Plan) -> str | None:
    if unit.get("active") != "active":
        return f"nvidia-imex.service is {unit.get('active') or 'not installed'}, and the driver waits for it"
    settings = mapped(mapped(imex.get("config")).get("settings"))
    socket = plan.get("resources.computeDomains.imex.hostSocketPath", "/etc/nvidia-imex/imex_ctrl.sock")
    if str(settings.get("IMEX_CMD_ENABLED")) not in ("1", "true", "True"):
        return "config.cfg lacks IMEX_CMD_ENABLED=1"
    if settings.get("IMEX_CMD_UNIX_DOMAIN_PATH") != socket:
        return f"config.cfg lacks IMEX_CMD_UNIX_DOMAIN_PATH={socket}"
    return None if imex.get("ready") else "nvidia-imex is not READY"


def _driver_root(name: str, tray: Tray, plan: Plan) -> Iterator[Finding]:
    """P10: the driver's programs, for which the plugin's init container waits without a limit."""
    if tray.root is False and plan.stand_alone:
        root = plan.get("nvidiaDriverRoot", "/")
        message = f"Tray {name} has no nvidia-smi and libnvidia-ml.so.1 below {root}; correct nvidiaDriverRoot in"
        yield finding("dra_node_setup", f"{message} values, or install the driver there.", tray=name)


# --- Each clique.


def _cliques(snapshot: Snapshot, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """P4: one version of the driver in a clique. P15: the size of cliques."""
    limit = MAX_DOMAIN_NODES
    for row in map(mapped, as_list(plan.get("controller.containers.computeDomain.env", []))):
        if row.get("name") == LIMIT and str(row.get("value")).isdecimal():
            limit = int(str(row.get("value")))
    members: dict[str, dict[str, str]] = {}
    for name, tray in trays.items():
        if tray.gpu and tray.gpu.clique:
            members.setdefault(tray.gpu.clique, {})[name] = tray.gpu.driver_version or ""
    for clique, drivers in members.items():
        versions = sorted(set(drivers.values()) - {""})
        if len(versions) > 1:
            names = {text: summarize(sorted(name for name in drivers if drivers[name] == text)) for text in versions}
            listing = ", ".join(f"{text} on {trays}" for text, trays in names.items())
            message = f"The trays of clique {clique} have several driver versions ({listing})"
            yield finding("dra_driver_unsuitable", message, clique=clique)
        if len(drivers) > limit and plan.compute_domains and not plan.host_managed:
            message = f"Clique {clique} has {len(drivers)} trays and an IMEX domain at most {limit}"
            yield finding("dra_clique_size", message, clique=clique)


def _imex_daemon_sets(snapshot: Snapshot, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """P8: no other owner of IMEX as a pod."""
    for item in snapshot["daemon_sets"]:
        metadata = mapped(item.get("metadata"))
        if str(metadata.get("name")).startswith(DAEMONS) or owner_of(item) == (plan.namespace, plan.release):
            continue
        for row in containers(item):
            static = {mapped(pair).get("name"): mapped(pair).get("value") for pair in as_list(row.get("env"))}
            if static.get("IMEX_CHANNEL_IDS"):
                message = f"The device plugin {name_of(item)} injects IMEX channels (IMEX_CHANNEL_IDS); set"
                yield finding("imex_two_owners", f"{message} imex.channelIDs to [] there.")
            elif "nvidia-imex" in str(row.get("image")) or str(metadata.get("name")).endswith("imex"):
                yield finding("imex_two_owners", f"The DaemonSet {name_of(item)} runs its own IMEX; delete it.")


OfCluster = Callable[[Snapshot, Trays, Plan], Iterator[Finding]]
CLUSTER_CHECKS: tuple[OfCluster, ...] = (_kubernetes, _api, _not_readable, _runtime)
OF_LIVE: tuple[OfCluster, ...] = (*CLUSTER_CHECKS, _imex_daemon_sets, _label_writers, _other_installs, _release)
"""Those that need no values of the chart but what its plugin shows."""
TRAY_CHECKS = (_drivers, _fabric, _imex, _driver_root)
INSTALLATION_CHECKS: tuple[OfCluster, ...] = (
    _cliques,
    _imex_daemon_sets,
    _nodes,
    _label_writers,
    _other_installs,
    _release,
    _network,
    _domains_active,
)
