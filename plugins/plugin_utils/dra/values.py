# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of the DRA driver's chart: the usual shapes, and a linter.

The chart has no schema, so Helm takes every misspelt key without a word, and rules that the driver's processes check at
their start pass Helm and end in a crash loop. What is known of keys, kinds and rules is from the chart 0.5.0
(values.yaml, templates/validation.yaml) and the driver's feature gates (pkg/featuregates) of that release.
"""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import OLD_CHART, DraError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.versions import HOST_MANAGED, Version
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import shown

API_GROUP = "resource.k8s.io"
API_VERSIONS = ("v1", "v1beta2", "v1beta1")
"""Best first."""
HOST_SOCKET = "/etc/nvidia-imex/imex_ctrl.sock"

TEXT, FLAG, WHOLE, LIST, MAP, LEVEL, PATH = "text", "flag", "whole", "list", "map", "level", "path"
_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    TEXT: ("a text", lambda value: isinstance(value, str)),
    PATH: ("an absolute path", lambda value: isinstance(value, str) and value.startswith("/")),
    FLAG: ("true or false", lambda value: isinstance(value, bool)),
    WHOLE: ("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    LIST: ("a list", lambda value: isinstance(value, list)),
    MAP: ("a mapping", lambda value: isinstance(value, Mapping)),
    LEVEL: ("a whole number from 0 on", lambda value: re.fullmatch(r"[0-9]{1,2}", _number(value)) is not None),
}


class Key(NamedTuple):
    """A key of the chart: what its value must be, and the first version that has it (None: 0.4.0 has it)."""

    kind: str
    since: Version | None = None
    choices: tuple[str, ...] = ()


def _keys(prefix: str, kind: str, *names: str, since: Version | None = None) -> dict[str, Key]:
    return {f"{prefix}{name}": Key(kind, since) for name in names}


_CONTAINER = ("securityContext", "resources")

# Dotted path -> key. What lies below a map is free, but for the feature gates.
KEYS: dict[str, Key] = {
    **_keys("", PATH, "nvidiaDriverRoot"),
    **_keys("", TEXT, "nvidiaCDIHookPath", "altProcDevices", "nameOverride", "fullnameOverride", "namespaceOverride"),
    **_keys("", FLAG, "gpuResourcesEnabledOverride", "allowDefaultNamespace"),
    "selectorLabelsOverride": Key(MAP),
    "consumableShares": Key("shares", HOST_MANAGED),
    "resourceApiVersion": Key(TEXT, None, ("", *(f"{API_GROUP}/{version}" for version in API_VERSIONS))),
    "imagePullSecrets": Key(LIST),
    **_keys("image.", TEXT, "repository", "tag"),
    "image.pullPolicy": Key(TEXT, None, ("Always", "IfNotPresent", "Never")),
    "serviceAccount.create": Key(FLAG),
    "serviceAccount.annotations": Key(MAP),
    "serviceAccount.name": Key(TEXT),
    "resources.gpus.enabled": Key(FLAG),
    "resources.computeDomains.enabled": Key(FLAG),
    "resources.computeDomains.imex.mode": Key(TEXT, HOST_MANAGED, ("driverManaged", "hostManaged")),
    "resources.computeDomains.imex.isolation": Key(TEXT, HOST_MANAGED, ("domain",)),
    "resources.computeDomains.imex.hostSocketPath": Key(PATH, HOST_MANAGED),
    "featureGates": Key(MAP),
    "logVerbosity": Key(LEVEL),
    **_keys("webhook.", FLAG, "enabled"),
    **_keys("webhook.", WHOLE, "replicas", "servicePort", "containerPort"),
    **_keys("webhook.", TEXT, "priorityClassName"),
    **_keys("webhook.", MAP, "strategy", "podAnnotations", "podSecurityContext", "nodeSelector", "affinity"),
    **_keys("webhook.", LIST, "tolerations"),
    **_keys("webhook.containers.webhook.", MAP, *_CONTAINER),
    **_keys("webhook.serviceAccount.", FLAG, "create"),
    **_keys("webhook.serviceAccount.", TEXT, "name"),
    "webhook.failurePolicy": Key(TEXT, None, ("Fail", "Ignore")),
    "webhook.tls.mode": Key(TEXT, None, ("cert-manager", "secret")),
    "webhook.tls.certManager.issuerType": Key(TEXT, None, ("selfsigned", "clusterissuer", "issuer")),
    "webhook.tls.certManager.issuerName": Key(TEXT),
    "webhook.tls.certManager.dnsNames": Key(LIST),
    **_keys("webhook.tls.secret.", TEXT, "name", "caBundle"),
    **_keys("controller.", WHOLE, "replicas"),
    "controller.leaderElection.enabled": Key(FLAG),
    **_keys("controller.leaderElection.", TEXT, "leaseDuration", "renewDeadline", "retryPeriod"),
    "controller.metrics.enabled": Key(FLAG),
    **_keys("controller.metrics.", TEXT, "httpEndpoint", "metricsPath", "profilePath"),
    **_keys("controller.", TEXT, "priorityClassName"),
    **_keys("controller.", MAP, "podAnnotations", "podSecurityContext", "nodeSelector", "affinity"),
    **_keys("controller.", LIST, "tolerations"),
    **_keys("controller.containers.computeDomain.", MAP, *_CONTAINER),
    **_keys("controller.containers.computeDomain.", LIST, "env"),
    "controller.networkPolicy.enabled": Key(FLAG),
    "kubeletPlugin.metrics.enabled": Key(FLAG),
    **_keys("kubeletPlugin.metrics.", TEXT, "gpuHttpEndpoint", "computeDomainHttpEndpoint", "metricsPath"),
    **_keys("kubeletPlugin.", TEXT, "priorityClassName"),
    **_keys(
        "kubeletPlugin.", MAP, "updateStrategy", "podAnnotations", "podSecurityContext", "nodeSelector", "affinity"
    ),
    **_keys("kubeletPlugin.", LIST, "tolerations"),
    **_keys("kubeletPlugin.", PATH, "kubeletRegistrarDirectoryPath", "kubeletPluginsDirectoryPath"),
    **_keys("kubeletPlugin.containers.init.", MAP, *_CONTAINER),
    **_keys("kubeletPlugin.containers.computeDomains.", MAP, *_CONTAINER),
    **_keys("kubeletPlugin.containers.computeDomains.", LIST, "env"),
    **_keys("kubeletPlugin.containers.computeDomains.", WHOLE, "healthcheckPort"),
    **_keys("kubeletPlugin.containers.computeDomains.", FLAG, "gpuCliqueLabelEnabled", since=HOST_MANAGED),
    **_keys("kubeletPlugin.containers.gpus.", MAP, *_CONTAINER),
    **_keys("kubeletPlugin.containers.gpus.", LIST, "env"),
    **_keys("kubeletPlugin.containers.gpus.", WHOLE, "healthcheckPort"),
    "kubeletPlugin.networkPolicy.enabled": Key(FLAG),
    # No document has it; templates read it, for clusters of nvkind.
    "maskNvidiaDriverParams": Key(FLAG),
}
_INNER = frozenset(path.rsplit(".", depth)[0] for path in KEYS for depth in range(1, path.count(".") + 1))


class Gate(NamedTuple):
    """A feature gate: whether it is on by itself, and the first version that has it."""

    default: bool
    since: Version | None = None


GATES: dict[str, Gate] = {
    "IMEXDaemonsWithDNSNames": Gate(True),
    "ComputeDomainCliques": Gate(True),
    "CrashOnNVLinkFabricErrors": Gate(True),
    "TimeSlicingSettings": Gate(False),
    "MPSSupport": Gate(False),
    "PassthroughSupport": Gate(False),
    "DynamicMIG": Gate(False),
    "NVMLDeviceHealthCheck": Gate(False),
    "DeviceMetadata": Gate(False),
    "FabricManagerPartitioning": Gate(False, HOST_MANAGED),
    "HostManagedIMEXDaemon": Gate(False, HOST_MANAGED),
    "ConsumableShares": Gate(False, HOST_MANAGED),
    "DRAListTypeAttributes": Gate(False, HOST_MANAGED),
    # Of Kubernetes' logging.
    "ContextualLogging": Gate(True),
    "LoggingAlphaOptions": Gate(False),
    "LoggingBetaOptions": Gate(True),
}
NEEDS = (("ComputeDomainCliques", "IMEXDaemonsWithDNSNames"), ("DeviceMetadata", "PassthroughSupport"))
"""The first gate needs the second."""
EXCLUDES = (
    ("DynamicMIG", "PassthroughSupport"),
    ("DynamicMIG", "NVMLDeviceHealthCheck"),
    ("DynamicMIG", "MPSSupport"),
    ("PassthroughSupport", "NVMLDeviceHealthCheck"),
)

_BESIDE_DEVICE_PLUGIN = {"resources": {"gpus": {"enabled": False}, "computeDomains": {"enabled": True}}}
_MOCK = "/var/lib/nvml-mock"
# The shapes of a cluster -> the values that make it; gpu_cluster has none, for there GPU Operator installs the driver.
SHAPES: dict[str, dict[str, Any]] = {
    "compute_domains": _BESIDE_DEVICE_PLUGIN,
    "all_dra": {
        "gpuResourcesEnabledOverride": True,
        "resources": {"gpus": {"enabled": True}, "computeDomains": {"enabled": True}},
    },
    "host_managed": {
        "featureGates": {"HostManagedIMEXDaemon": True},
        "resources": {
            "gpus": {"enabled": False},
            "computeDomains": {"enabled": True, "imex": {"mode": "hostManaged", "hostSocketPath": HOST_SOCKET}},
        },
    },
    "gpu_cluster": {},
    "upgrade": {**_BESIDE_DEVICE_PLUGIN, "nameOverride": OLD_CHART},
    "mock": {
        **_BESIDE_DEVICE_PLUGIN,
        "nvidiaDriverRoot": f"{_MOCK}/driver",
        "altProcDevices": f"{_MOCK}/imex/proc-devices",
    },
}


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Both mappings, of which the second wins, as Helm merges values: mappings key by key, all else whole."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        result[key] = merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return result


def build(shape: str, own: Any, api_version: str | None = None, keep_name: bool = False) -> dict[str, Any]:
    """The values of a shape, with a person's own over them.

    api_version: the version of resource.k8s.io to write down, as v1, because the chart would guess it from Helm's
    build where it is rendered offline. keep_name: whether the release began as a 25.x chart, whose objects keep their
    names only by nameOverride. DraError if the shape is unknown or the values are no mapping.
    """
    if shape not in SHAPES:
        raise DraError(f"dra_driver_shape: {shown(shape)} is none of {', '.join(SHAPES)}; choose one of them")
    if own is None:
        own = {}
    if not isinstance(own, Mapping):
        raise DraError(f"dra_driver_values: {shown(own)} is no mapping; write the chart's keys under it")
    result = merged(
        copy.deepcopy(SHAPES[shape]), {"resourceApiVersion": f"{API_GROUP}/{api_version}"} if api_version else {}
    )
    if keep_name:
        result["nameOverride"] = OLD_CHART
    return merged(result, own)


def is_known(path: str) -> bool:
    """Whether the chart has a key at this dotted path, or a free mapping above it."""
    above = (path.rsplit(".", depth)[0] for depth in range(1, path.count(".") + 1))
    return path in KEYS or any(KEYS[place].kind == MAP for place in above if place in KEYS)


def value(values: Any, path: str, default: Any = None) -> Any:
    """What stands at a dotted path; the default where there is nothing, or no mapping on the way."""
    for part in path.split("."):
        if not isinstance(values, Mapping) or part not in values:
            return default
        values = values[part]
    return values


def lint(values: Mapping[str, Any], version: Version, namespace: str, extra_keys: Sequence[str] = ()) -> list[Finding]:
    """Every fault of values for a chart of this version in this namespace: one finding, one sentence each.

    extra_keys: dotted paths that a site's chart has besides, as a newer release may.
    """
    extra = frozenset(extra_keys)
    found = [*_refused(values, namespace), *_unknown(values, version, extra), *_gates(values, version)]
    return sorted(found, key=lambda row: (row["key"], row["code"]))


def _fault(code: str, key: str, what: str, remedy: str) -> Finding:
    return finding(code, f"dra_driver_values, {key}: {what}; {remedy}.", key=key)


def _unknown(values: Mapping[str, Any], version: Version, extra: frozenset[str], prefix: str = "") -> Iterator[Finding]:
    for name, item in values.items():
        path = f"{prefix}{name}"
        if path in extra or path in _TOLD_APART:
            continue
        if path in KEYS:
            yield from _judged(path, item, version)
        elif path in _INNER or any(known.startswith(f"{path}.") for known in extra):
            if isinstance(item, Mapping):
                yield from _unknown(item, version, extra, f"{path}.")
            else:
                yield _fault("dra_value_wrong", path, f"{shown(item)} is no mapping", "write keys under it")
        else:
            yield _fault(
                "dra_value_unknown", path, "the chart has no such key, and Helm would not say so", _guess(path)
            )


def _guess(path: str) -> str:
    """The remedy for an unknown key: the nearest known one at its place, or else anywhere."""
    places = {*KEYS, *_INNER}
    parent, _dot, name = path.rpartition(".")
    beside = [known for known in places if known.rpartition(".")[0] == parent]
    nearest = difflib.get_close_matches(path, beside, 1, 0.75)
    if not nearest:
        elsewhere = {known: known.rpartition(".")[2] for known in places}
        same = sorted(known for known, last in elsewhere.items() if last == name)
        nearest = same[:1] if len(same) == 1 else difflib.get_close_matches(path, places, 1, 0.75)
    if nearest:
        return f"write {nearest[0]}"
    return "take it out, or name it in dra_driver_extra_keys if your chart has it"


def _judged(path: str, item: Any, version: Version) -> Iterator[Finding]:
    key = KEYS[path]
    if key.since and version < key.since:
        remedy = "take it out, or set dra_driver_chart_version to 0.5.0 or later"
        yield _fault("dra_value_unknown", path, "charts before 0.5.0 have no such key", remedy)
        return
    if item is None:
        # Helm takes a null for "without the chart's default", which no key of this chart can be without.
        yield _fault("dra_value_wrong", path, "is null, which takes the chart's default away", "leave it out")
    elif key.kind == "shares":
        if not (item in ("", "disabled", "memory", "unlimited") or re.fullmatch(r"[1-9][0-9]*", _number(item))):
            remedy = "write disabled, memory, unlimited or a whole number from 1 on"
            yield _fault("dra_value_wrong", path, f"{shown(item)} is no such share", remedy)
    elif not _KINDS[key.kind][1](item):
        yield _fault("dra_value_wrong", path, f"{shown(item)} is not {_KINDS[key.kind][0]}", "correct it")
    elif key.choices and item not in key.choices:
        words = [choice for choice in key.choices if choice]
        remedy = f"write {words[0]}" if len(words) == 1 else f"write {', '.join(words[:-1])} or {words[-1]}"
        yield _fault("dra_value_wrong", path, f"{shown(item)} is not supported", remedy)


def _number(item: Any) -> str:
    return str(item) if isinstance(item, (str, int)) and not isinstance(item, bool) else ""


# Keys that the chart itself refuses, with its reason and the remedy.
_TOLD_APART = {
    "namespace": ("the chart refuses it", "set dra_driver_namespace and take it out"),
    "nvidiaCtkPath": ("the chart refuses it since 25.3", "take it out, nothing needs it any more"),
}


def _refused(values: Mapping[str, Any], namespace: str) -> Iterator[Finding]:
    """What the chart's own templates fail on (templates/validation.yaml and _helpers.tpl)."""
    for key, (what, remedy) in _TOLD_APART.items():
        if key in values:
            yield _fault("dra_value_refused", key, what, remedy)
    place = value(values, "namespaceOverride") or namespace
    if place == "default" and value(values, "allowDefaultNamespace") is not True:
        yield finding(
            "dra_value_refused",
            "dra_driver_namespace: the chart refuses the namespace default; use another, or set"
            " allowDefaultNamespace: true in dra_driver_values.",
            key="namespace",
        )
    if value(values, "resources.gpus.enabled", True) is True:
        if value(values, "gpuResourcesEnabledOverride") is not True:
            yield _fault(
                "dra_value_refused",
                "resources.gpus.enabled",
                "is true, as by default, and the chart refuses GPUs by DRA beside a device plugin",
                "set it to false, or gpuResourcesEnabledOverride: true where no device plugin runs",
            )
    elif value(values, "resources.computeDomains.enabled", True) is False:
        remedy = "switch one of the two on"
        yield _fault("dra_value_wrong", "resources", "neither gpus nor computeDomains is enabled", remedy)
    yield from _host_managed(values)
    if value(values, "webhook.enabled") is True:
        yield from _webhook(values)


def _host_managed(values: Mapping[str, Any]) -> Iterator[Finding]:
    imex = "resources.computeDomains.imex"
    if value(values, f"{imex}.mode") != "hostManaged":
        return
    if value(values, "featureGates.HostManagedIMEXDaemon") is not True:
        yield _fault(
            "dra_value_refused",
            f"{imex}.mode",
            "the chart refuses hostManaged without its gate",
            "set featureGates.HostManagedIMEXDaemon: true, or dra_driver_shape: host_managed",
        )
    if value(values, "resources.computeDomains.enabled", True) is False:
        yield _fault(
            "dra_value_wrong", f"{imex}.mode", "is hostManaged without ComputeDomains", "enable them, or leave it out"
        )


def _webhook(values: Mapping[str, Any]) -> Iterator[Finding]:
    tls = "webhook.tls"
    mode = value(values, f"{tls}.mode", "cert-manager")
    if mode == "secret" and not value(values, f"{tls}.secret.name"):
        yield _fault("dra_value_refused", f"{tls}.secret.name", "is empty while tls.mode is secret", "name the Secret")
    if mode == "secret" and not value(values, f"{tls}.secret.caBundle"):
        what = "is empty while tls.mode is secret"
        yield _fault("dra_value_wrong", f"{tls}.secret.caBundle", what, "write the CA's certificate in base64")
    issuer = value(values, f"{tls}.certManager.issuerType", "selfsigned")
    key = f"{tls}.certManager.issuerName"
    if mode == "cert-manager" and issuer in ("clusterissuer", "issuer") and not value(values, key):
        yield _fault("dra_value_refused", key, f"is empty while issuerType is {issuer}", "name the issuer")


def _gates(values: Mapping[str, Any], version: Version) -> Iterator[Finding]:
    """Unknown gates, and pairs on which the driver's processes end at their start, long after Helm was content."""
    gates = values.get("featureGates")
    if not isinstance(gates, Mapping):
        return
    for name, on in gates.items():
        key, known = f"featureGates.{name}", GATES.get(str(name))
        if known is None:
            nearest = difflib.get_close_matches(str(name), GATES, 1, 0.6)
            remedy = f"write {nearest[0]}" if nearest else "take it out"
            yield _fault("dra_value_unknown", key, "the driver has no such gate and would end at its start", remedy)
        elif known.since and version < known.since:
            remedy = "take it out, or set dra_driver_chart_version to 0.5.0 or later"
            yield _fault("dra_value_unknown", key, "drivers before 0.5.0 have no such gate", remedy)
        elif not isinstance(on, bool):
            yield _fault("dra_value_wrong", key, f"{shown(on)} is not true or false", "correct it")

    def is_on(name: str) -> bool:
        on = gates.get(name, GATES[name].default)
        return on if isinstance(on, bool) else GATES[name].default

    for name, other in NEEDS:
        if is_on(name) and not is_on(other):
            remedy = f"switch {name} off too, or {other} on"
            yield _fault("dra_gate_conflict", f"featureGates.{name}", f"is on and needs {other}, which is off", remedy)
    for name, other in EXCLUDES:
        if is_on(name) and is_on(other):
            remedy = "switch one of the two off"
            yield _fault("dra_gate_conflict", f"featureGates.{name}", f"is on together with {other}", remedy)
