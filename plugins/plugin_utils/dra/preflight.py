# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything that can be told before the DRA driver is installed, as findings: a pure function of what was seen.

The checks are P1 to P17 of the collection's list; each function names its own. What the driver, the chart or Kubernetes
would fail on, or silently do nothing for, is an error; what somebody should look at is a warning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import OLD_CHART, crds, placing, snapshot
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.values import API_GROUP, lint, value
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.versions import Version, parse
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import as_list, mapped

CHART_FLOOR, RECOMMENDED = (1, 32), (1, 34, 2)
DRIVER_FLOOR = (570, 158, 1)
DRIVER_FLOOR_TEXT = "570.158.01"
RUNTIME_FLOORS = {"containerd": (2, 0), "cri-o": (1, 27)}
LARGEST_DOMAIN = 18
"""Nodes in one IMEX domain, unless the controller is told MAX_NODES_PER_IMEX_DOMAIN."""
CLASSES = {
    "compute_domains": ("compute-domain-default-channel.nvidia.com",),
    "daemon": ("compute-domain-daemon.nvidia.com",),
    "gpus": ("gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com"),
}
OUR_CLASSES = frozenset(name for names in CLASSES.values() for name in names)
DAEMONS = "computedomain-daemon-"
"""How the names of the DaemonSets begin that the driver's own controller makes."""
PLUGIN_CONTAINER = "compute-domains"
"""The container of the kubelet plugin that has to do with IMEX, in every chart."""
HELD = ("pending-install", "pending-upgrade", "pending-rollback", "uninstalling")


@dataclass(frozen=True)
class Tray:
    """What one tray's own modules said: the node that it is, nvlink_fabric and nvlink_imex (None: not asked).

    root: whether nvidia-smi and libnvidia-ml.so.1 are below the driver root; None where nobody looked.
    """

    node: str
    fabric: Mapping[str, Any] | None = None
    imex: Mapping[str, Any] | None = None
    root: bool | None = None


@dataclass(frozen=True)
class Plan:
    """What is to be installed. values is None for GPU Operator's GPUCluster, which brings the driver by itself.

    label_writer: who else is to write the label nvidia.com/gpu.clique, as site (the role k8s_topology), or nobody.
    imex_follows: whether the imex role is still to give IMEX to its owner, so that nobody need say it is not there yet.
    waves: whether the plugin comes onto nodes in waves, so that some may still be without it, or have an old one.
    """

    values: Mapping[str, Any] | None
    version: Version
    namespace: str
    release: str
    kubelet_root: str = "/var/lib/kubelet"
    cdi_enabled: bool = False
    label_writer: str = ""
    extra_keys: Sequence[str] = ()
    crd_managers: Sequence[str] = ()
    wanted_crds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    imex_follows: bool = False
    waves: bool = False

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


Seen = Mapping[str, Any]
"""A snapshot, as snapshot.py describes it."""
Trays = Mapping[str, Tray]


def preflight(seen: Seen, trays: Trays, plan: Plan) -> list[Finding]:
    """All findings, in the order of the checks."""
    return [row for check in CHECKS for row in check(seen, trays, plan)]


def imex_change(seen: Seen, trays: Trays, plan: Plan) -> list[Finding]:
    """What stands against giving IMEX to the plan's owner; what could not be seen stands against it too."""
    return [*unseen(seen), *_domains_live(seen, trays, plan)]


def unseen(seen: Seen) -> list[Finding]:
    """An error for each thing that must be known before something is taken away, and that the account may not see."""
    needed = ("computedomains;", "resourceclaims;")
    return [
        finding("dra_insufficient_permissions", f"{sentence}, for without it nobody knows what still lives.")
        for sentence in seen["not_seen"]
        if any(word in sentence for word in needed)
    ]


def expected_nodes(seen: Seen, trays: Trays) -> dict[str, Mapping[str, Any] | None]:
    """Name -> object of the nodes that the driver is to run on: the trays', else those that a label says GPUs of."""
    known = {str(mapped(node.get("metadata")).get("name")): node for node in seen["nodes"]}
    if trays:
        return {tray.node: known.get(tray.node) for tray in trays.values()}
    return {name: node for name, node in known.items() if any(key in placing.labels(node) for key in _GPU_LABELS)}


_GPU_LABELS = (*placing.DEFAULT_LABELS, "nvidia.com/gpu.clique", "nvidia.com/gpu.count")


def owner_of(item: Mapping[str, Any]) -> tuple[str, str] | None:
    """(namespace, name) of the Helm release that an object belongs to."""
    notes = mapped(mapped(item.get("metadata")).get("annotations"))
    name, namespace = notes.get("meta.helm.sh/release-name"), notes.get("meta.helm.sh/release-namespace")
    return (str(namespace), str(name)) if name and namespace else None


def name_of(item: Mapping[str, Any]) -> str:
    """namespace/name, or the name alone of what has no namespace."""
    metadata = mapped(item.get("metadata"))
    return "/".join(str(metadata[key]) for key in ("namespace", "name") if key in metadata)


def release_version(seen: Seen, plan: Plan) -> Version | None:
    """The version of the chart that our release is of now, by the label of its DaemonSet; None if there is none."""
    for item in seen["daemon_sets"]:
        if owner_of(item) == (plan.namespace, plan.release):
            chart = str(placing.labels(item).get("helm.sh/chart", ""))
            match = re.fullmatch(r".*?-(v?[0-9]+\.[0-9]+\.[0-9]+.*)", chart)
            if match:
                return parse(match.group(1).replace("_", "+"))
    return None


def keeps_old_name(seen: Seen, plan: Plan) -> bool:
    """Whether our release began as a 25.x chart: its objects are named after that chart, and stay so."""
    for item in seen["daemon_sets"]:
        if owner_of(item) == (plan.namespace, plan.release):
            chart = str(placing.labels(item).get("helm.sh/chart", ""))
            return chart.startswith(f"{OLD_CHART}-") or placing.labels(item).get("app.kubernetes.io/name") == OLD_CHART
    return False


def live_host_managed(seen: Seen) -> bool | None:
    """Whether the installed driver leaves IMEX to the host; None if none is installed.

    Its plugin says so itself; where that is gone, the DeviceClasses do.
    """
    for row in (row for item in seen["daemon_sets"] for row in containers(item)):
        if row.get("name") == PLUGIN_CONTAINER:
            env = {mapped(pair).get("name"): mapped(pair).get("value") for pair in as_list(row.get("env"))}
            return env.get("IMEX_MODE") == "hostManaged"
    names = {str(mapped(item.get("metadata")).get("name")) for item in seen["device_classes"]}
    if not names.intersection(CLASSES["compute_domains"]):
        return None
    return not names.intersection(CLASSES["daemon"])


# --- The cluster.


def _kubernetes(seen: Seen, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """P1: the chart's kubeVersion, and what its documents recommend."""
    match = re.match(r"v?([0-9]+)\.([0-9]+)\.([0-9]+)", str(seen["version"]))
    if match is None:
        return
    version = tuple(int(part) for part in match.groups())
    if version < CHART_FLOOR:
        message = f"Kubernetes is {seen['version']} and the chart needs 1.32; upgrade it, best to 1.34.2 or later."
        yield finding("dra_kubernetes_too_old", message)
    elif version < RECOMMENDED:
        message = f"Kubernetes is {seen['version']}; plan an upgrade to 1.34.2 or later, which the driver recommends."
        yield finding("dra_kubernetes_old", message)


def _api(seen: Seen, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """P2."""
    best = snapshot.api_version(seen)
    wanted = str(plan.get("resourceApiVersion", "")).rpartition("/")[2]
    served = seen["groups"].get(API_GROUP, [])
    if best is None:
        message = "The API server serves no resource.k8s.io; upgrade to 1.34, or switch DynamicResourceAllocation on"
        yield finding("dra_api_missing", f"{message} and its version in --runtime-config.")
    elif wanted and wanted not in served:
        message = f"dra_driver_values, resourceApiVersion: the API server does not serve {wanted}; leave it out to use"
        yield finding("dra_api_missing", f"{message} {best}.")


def _not_seen(seen: Seen, trays: Trays, plan: Plan) -> Iterator[Finding]:
    for sentence in seen["not_seen"]:
        yield finding("dra_not_readable", f"{sentence}.")
    silent = [name for name, tray in trays.items() if tray.fabric is None]
    if silent:
        message = (
            f"{summarize(sorted(silent))} did not say what its GPUs are; run the play on the trays too, or repair them."
        )
        yield finding("dra_not_readable", message)


def _runtime(seen: Seen, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """P3: without CDI the driver prepares devices that no container gets."""
    for name, node in expected_nodes(seen, trays).items():
        text = str(mapped(mapped(mapped(node).get("status")).get("nodeInfo")).get("containerRuntimeVersion", ""))
        match = re.fullmatch(r"([a-z0-9.-]+)://v?([0-9]+)\.([0-9]+).*", text)
        if node is None or match is None:
            continue
        runtime, version = match.group(1), (int(match.group(2)), int(match.group(3)))
        floor = RUNTIME_FLOORS.get(runtime)
        if floor and version >= floor:
            continue
        if runtime == "containerd" and version >= (1, 7):
            if not plan.cdi_enabled:
                message = f"Node {name} runs {text}, which has CDI only by enable_cdi; set it there and"
                yield finding("dra_runtime_cdi", f"{message} dra_driver_cdi_enabled: true, or use 2.0.", node=name)
            continue
        message = f"Node {name} runs {text}, which has no CDI; use containerd 2.0 or CRI-O 1.27, or later ones."
        yield finding("dra_runtime_cdi", message, node=name)


def _nodes(seen: Seen, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """P9, and that every tray is a node."""
    known = expected_nodes(seen, {})
    every = {str(mapped(node.get("metadata")).get("name")) for node in seen["nodes"]}
    for name, tray in trays.items():
        if tray.node not in every:
            message = f"Tray {name} should be node {tray.node}, which the cluster lacks; join it, or correct"
            yield finding("dra_node_missing", f"{message} its kubernetes_node in the fabric file.", tray=name)
    if not trays and not known:
        message = "No node has a label that says GPUs; label them nvidia.com/gpu.present=true, or name the trays."
        yield finding("dra_node_not_selected", message)
    if not plan.stand_alone:
        return
    for name, node in expected_nodes(seen, trays).items():
        reason = placing.why_not(node, mapped(plan.get("kubeletPlugin", {}))) if node is not None else None
        if reason:
            yield finding("dra_node_not_selected", f"The driver would not run on node {name}: {reason}.", node=name)


def _label_writers(seen: Seen, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """P11: exactly one writer of nvidia.com/gpu.clique."""
    writers = [f"GPU Feature Discovery ({name_of(item)})" for item in seen["daemon_sets"] if _is_gfd(item)]
    label = "kubeletPlugin.containers.computeDomains.gpuCliqueLabelEnabled"
    if not plan.stand_alone or plan.get(label, False) is True:
        writers.append("the DRA driver")
    if plan.label_writer:
        writers.append(f"dra_driver_label_writer ({plan.label_writer})")
    if len(writers) > 1:
        message = f"The label nvidia.com/gpu.clique would be written by {' and '.join(writers)}; leave it to one."
        yield finding("dra_label_multiple_writers", message)
    elif not writers:
        message = f"Nobody writes the label nvidia.com/gpu.clique; set {label}: true (chart 0.5.0 or later), or deploy"
        yield finding("dra_label_no_writer", f"{message} GPU Feature Discovery.")


def _is_gfd(item: Mapping[str, Any]) -> bool:
    if mapped(item.get("status")).get("desiredNumberScheduled") == 0:
        return False
    return any("gpu-feature-discovery" in f"{row.get('name')} {row.get('image')}" for row in containers(item))


def containers(item: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    pod = mapped(mapped(mapped(item.get("spec")).get("template")).get("spec"))
    return [mapped(row) for row in as_list(pod.get("containers"))]


def _other_installs(seen: Seen, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """P12: DeviceClasses have fixed names, so there can be one install."""
    ours = (plan.namespace, plan.release)
    for cluster in seen["gpu_clusters"]:
        if plan.stand_alone:
            message = (
                f"GPU Operator's GPUCluster {name_of(cluster)} brings the driver; set dra_driver_shape: gpu_cluster,"
            )
            yield finding("dra_other_install", f"{message} or delete it.")
    if not plan.stand_alone and not seen["gpu_clusters"]:
        message = "dra_driver_shape is gpu_cluster, and there is no GPUCluster; deploy GPU Operator with"
        yield finding("dra_other_install", f"{message} gpuCluster.deployCR=true.")
    others: dict[str, list[str]] = {}
    for item in seen["device_classes"]:
        if name_of(item) not in OUR_CLASSES:
            continue
        owner = owner_of(item)
        if owner is not None and (owner != ours or not plan.stand_alone):
            others.setdefault(f"the Helm release {owner[1]} in namespace {owner[0]}", []).append(name_of(item))
        elif owner is None and plan.stand_alone and not seen["gpu_clusters"]:
            others.setdefault("something other than Helm", []).append(name_of(item))
    for owner_text, names in others.items():
        message = f"{owner_text[0].upper()}{owner_text[1:]} has the driver's DeviceClasses ({summarize(sorted(names))}); uninstall it,"
        yield finding("dra_other_install", f"{message} or name it in dra_driver_release and dra_driver_namespace.")


def _release(seen: Seen, trays: Trays, plan: Plan) -> Iterator[Finding]:
    newest: dict[str, tuple[int, str]] = {}
    for item in seen["releases"]:
        has = placing.labels(item)
        if mapped(item.get("metadata")).get("namespace") == plan.namespace and has.get("name") == plan.release:
            number = int(has.get("version", 0)) if str(has.get("version", 0)).isdecimal() else 0
            newest[plan.release] = max(newest.get(plan.release, (0, "")), (number, str(has.get("status"))))
    number, status = newest.get(plan.release, (0, ""))
    if status in HELD:
        remedy = (
            f"helm uninstall {plan.release}"
            if number <= 1 or status == "uninstalling"
            else f"helm rollback {plan.release}"
        )
        message = (
            f"Revision {number} of release {plan.release} was cut off ({status}), and Helm does nothing more until"
        )
        yield finding("dra_release_pending", f"{message} you run {remedy} -n {plan.namespace}.")
    live = release_version(seen, plan)
    if live is not None and plan.stand_alone:
        if live.is_old_chart:
            message = f"Release {plan.release} is of the chart {OLD_CHART}; it is upgraded for good, keeps its objects'"
            yield finding("dra_release_old", f"{message} names by nameOverride, and cannot go back.")
        elif live > plan.version:
            message = (
                f"dra_driver_chart_version: release {plan.release} is of a newer chart, and its nodes' checkpoints"
            )
            yield finding("dra_downgrade", f"{message} cannot be read by an older one; write that version or a later.")


def _crds(seen: Seen, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """P13."""
    if plan.compute_domains or not plan.stand_alone:
        yield from crds.judge(seen["crds"], plan.wanted_crds, plan.crd_managers, plan.stand_alone)


def _values(seen: Seen, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """P14."""
    if plan.values is not None:
        yield from lint(plan.values, plan.version, plan.namespace, plan.extra_keys)


def _kubelet_root(seen: Seen, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """P16."""
    root = plan.kubelet_root.rstrip("/")
    for key, below in (
        ("kubeletRegistrarDirectoryPath", "plugins_registry"),
        ("kubeletPluginsDirectoryPath", "plugins"),
    ):
        path = plan.get(f"kubeletPlugin.{key}", f"/var/lib/kubelet/{below}")
        if plan.stand_alone and isinstance(path, str) and path.rstrip("/") != f"{root}/{below}":
            message = f"dra_driver_values, kubeletPlugin.{key}: is {path}, and the kubelet's folder is"
            yield finding("dra_kubelet_root", f"{message} {root}; write {root}/{below}.")


def _network(seen: Seen, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """P17: daemons of one domain talk to each other on TCP 50000 and 50005."""
    if plan.host_managed or not plan.compute_domains:
        return
    ours = (plan.namespace, plan.release)
    for item in seen["network_policies"]:
        if mapped(item.get("metadata")).get("namespace") == plan.namespace and owner_of(item) != ours:
            message = (
                f"The NetworkPolicy {name_of(item)} may keep IMEX daemons apart; see that it lets pods of its namespace"
            )
            yield finding("dra_network_policy", f"{message} reach each other on TCP 50000 and 50005.")


def _domains_live(seen: Seen, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """A change of the mode of IMEX is not supported while ComputeDomains live."""
    live = live_host_managed(seen)
    if plan.stand_alone and live is not None and live != plan.host_managed and seen["compute_domains"]:
        names = summarize(sorted([name_of(item) for item in seen["compute_domains"]]))
        message = (
            f"IMEX cannot change hands while ComputeDomains live ({names}); delete them and their workloads first."
        )
        yield finding("dra_domains_active", message)


# --- The trays.


def _drivers(seen: Seen, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """P4."""
    cliques: dict[str, dict[str, list[str]]] = {}
    for name, tray in trays.items():
        text = mapped(tray.fabric).get("driver_version")
        if not isinstance(text, str):
            continue
        numbers = tuple(int(part) for part in re.findall(r"[0-9]+", text)[:3])
        if numbers < DRIVER_FLOOR and plan.compute_domains and not plan.host_managed:
            message = f"Tray {name} has driver {text}, and ComputeDomains need {DRIVER_FLOOR_TEXT}; upgrade it."
            yield finding("dra_driver_too_old", message, tray=name)
        clique = mapped(tray.fabric).get("clique")
        if clique:
            cliques.setdefault(str(clique), {}).setdefault(text, []).append(name)
        imex = mapped(tray.imex).get("version")
        if imex and imex != text and mapped(tray.imex).get("installed"):
            message = f"Tray {name} has IMEX {imex} and driver {text}; install the IMEX of the driver's version."
            yield finding("dra_imex_version", message, tray=name)
    for clique, versions in cliques.items():
        if len(versions) > 1:
            told = ", ".join(f"{text} on {summarize(sorted(names))}" for text, names in sorted(versions.items()))
            message = f"The trays of clique {clique} have several drivers ({told}); bring them to one."
            yield finding("dra_driver_versions", message, clique=clique)


def _channels(seen: Seen, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """P5."""
    for name, tray in trays.items():
        if plan.compute_domains and tray.imex is not None and mapped(tray.imex.get("channels")).get("major") is None:
            message = f"Tray {name} has no nvidia-caps-imex-channels in /proc/devices, without which the driver ends;"
            yield finding(
                "dra_channels_missing", f"{message} load the nvidia module of a driver that has them.", tray=name
            )


def _fabric(seen: Seen, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """P6: what the driver reads of each GPU, and the health that neither it nor GPU Feature Discovery reads."""
    for name, tray in trays.items():
        if tray.fabric is None or not plan.compute_domains:
            continue
        if not tray.fabric.get("attached"):
            why = next((str(row.get("message")) for row in map(mapped, as_list(tray.fabric.get("findings")))), "")
            message = f"Tray {name} has no clique by its GPUs, so the driver ends there, or runs jobs without IMEX"
            yield finding("dra_clique_unknown", f"{message}: {why or 'see fabric_facts.'}", tray=name)
        bad = []
        for gpu in map(mapped, as_list(tray.fabric.get("gpus"))):
            health = mapped(mapped(gpu.get("fabric")).get("health"))
            if health.get("summary") == "unhealthy" or health.get("route_unhealthy") is True:
                bad.append(str(gpu.get("index")))
        if bad:
            message = (
                f"The fabric health of GPU {', '.join(bad)} of tray {name} is unhealthy, which the driver does not"
            )
            yield finding("dra_fabric_unhealthy", f"{message} look at; drain the tray and repair it.", tray=name)


def _unit(seen: Seen, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """P7: the kernel has one IMEX session a node."""
    for name, tray in trays.items():
        if tray.imex is None or not plan.compute_domains or plan.imex_follows:
            continue
        unit = mapped(tray.imex.get("unit"))
        trouble = _host_trouble(tray.imex, unit, plan) if plan.host_managed else _driver_trouble(unit)
        if trouble:
            owner = "host_managed" if plan.host_managed else "driver_managed"
            message = f"On tray {name} {trouble}; run the imex role with imex_owner: {owner}."
            yield finding("dra_imex_unit", message, tray=name)


def _driver_trouble(unit: Mapping[str, Any]) -> str | None:
    if unit.get("active") in ("active", "activating"):
        return "nvidia-imex.service runs, and the driver's daemons would never get the session"
    if unit.get("load") not in (None, "masked", "not-found"):
        return "nvidia-imex.service is not masked, so a reboot or an upgrade may start it"
    return None


def _host_trouble(imex: Mapping[str, Any], unit: Mapping[str, Any], plan: Plan) -> str | None:
    if unit.get("active") != "active":
        return f"nvidia-imex.service is {unit.get('active') or 'not there'}, and the driver waits for it"
    settings = mapped(mapped(imex.get("config")).get("settings"))
    socket = plan.get("resources.computeDomains.imex.hostSocketPath", "/etc/nvidia-imex/imex_ctrl.sock")
    if str(settings.get("IMEX_CMD_ENABLED")) not in ("1", "true", "True"):
        return "config.cfg has no IMEX_CMD_ENABLED=1"
    if settings.get("IMEX_CMD_UNIX_DOMAIN_PATH") != socket:
        return f"config.cfg has not IMEX_CMD_UNIX_DOMAIN_PATH={socket}"
    return None if imex.get("ready") else "nvidia-imex is not READY"


def _imex_owners(seen: Seen, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """P8: no other owner of IMEX, on the trays or as a pod."""
    allowed = {"service"} if plan.host_managed else {"driver", "service"}
    for name, tray in trays.items():
        # A running service where the driver is the owner is told by the check of the unit.
        for row in map(mapped, as_list(mapped(tray.imex).get("owners"))):
            if plan.compute_domains and not plan.imex_follows and str(row.get("owner")) not in allowed:
                message = f"Tray {name} has another owner of IMEX ({row.get('why')}); run the imex role with another"
                yield finding("dra_imex_owner", f"{message} imex_owner, or end it.", tray=name)
    for item in seen["daemon_sets"]:
        metadata = mapped(item.get("metadata"))
        if str(metadata.get("name")).startswith(DAEMONS) or owner_of(item) == (plan.namespace, plan.release):
            continue
        for row in containers(item):
            static = {mapped(pair).get("name"): mapped(pair).get("value") for pair in as_list(row.get("env"))}
            if static.get("IMEX_CHANNEL_IDS"):
                message = f"The device plugin {name_of(item)} gives out IMEX channels (IMEX_CHANNEL_IDS); set"
                yield finding("dra_imex_owner", f"{message} imex.channelIDs to [] there.")
            elif "nvidia-imex" in str(row.get("image")) or str(metadata.get("name")).endswith("imex"):
                message = f"The DaemonSet {name_of(item)} runs IMEX of its own; delete it."
                yield finding("dra_imex_owner", message)


def _driver_root(seen: Seen, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """P10: the plugin's first container waits for them for ever."""
    for name, tray in trays.items():
        if tray.root is False and plan.stand_alone:
            root = plan.get("nvidiaDriverRoot", "/")
            message = f"Tray {name} has no nvidia-smi and libnvidia-ml.so.1 below {root}; correct nvidiaDriverRoot in"
            yield finding("dra_driver_root", f"{message} dra_driver_values, or install the driver there.", tray=name)


def _clique_sizes(seen: Seen, trays: Trays, plan: Plan) -> Iterator[Finding]:
    """P15."""
    limit = LARGEST_DOMAIN
    for row in map(mapped, as_list(plan.get("controller.containers.computeDomain.env", []))):
        if row.get("name") == "MAX_NODES_PER_IMEX_DOMAIN" and str(row.get("value")).isdecimal():
            limit = int(str(row.get("value")))
    cliques: dict[str, int] = {}
    for tray in trays.values():
        clique = mapped(tray.fabric).get("clique")
        if clique:
            cliques[str(clique)] = cliques.get(str(clique), 0) + 1
    for clique, count in cliques.items():
        if count > limit and plan.compute_domains and not plan.host_managed:
            message = f"Clique {clique} has {count} trays and an IMEX domain at most {limit}; set"
            more = "MAX_NODES_PER_IMEX_DOMAIN in controller.containers.computeDomain.env."
            yield finding("dra_clique_size", f"{message} {more}", clique=clique)


CHECKS: tuple[Callable[[Seen, Trays, Plan], Iterator[Finding]], ...] = (
    _kubernetes,
    _api,
    _not_seen,
    _runtime,
    _drivers,
    _channels,
    _fabric,
    _unit,
    _imex_owners,
    _nodes,
    _driver_root,
    _label_writers,
    _other_installs,
    _release,
    _crds,
    _values,
    _clique_sizes,
    _kubelet_root,
    _network,
    _domains_live,
)
