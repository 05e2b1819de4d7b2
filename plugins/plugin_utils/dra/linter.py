# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check the values of the DRA driver's chart.

The chart has no schema, so Helm accepts every misspelt key, and values that the driver's processes reject at their
start pass Helm and end in a crash loop. Keys, kinds and rules are those of the chart 0.5.0 (values.yaml,
templates/validation.yaml, templates/_helpers.tpl), of the driver's feature gates (pkg/featuregates) and of the checks
with which its processes start (cmd/*/main.go, pkg/metrics, leaderelection of client-go) of that release.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import yaml
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.values import API_GROUP, API_VERSIONS, Values, value
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.versions import HOST_MANAGED, Version
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import mapped, shown

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

QUOTED, PLAIN = '"{}"', "{}"
"""How templates write a text into YAML: between quotes without escaping it, or as it is."""


def _survives(text: str, forms: Iterable[str]) -> bool:
    """Whether YAML in which templates write a text in these forms has that text."""
    for form in forms:
        if form == PLAIN and text in ("y", "Y", "n", "N"):
            # Booleans for Kubernetes' reader of YAML, and strings for PyYAML.
            return False
        # str() removes the tags of Ansible's own strings, which PyYAML rejects.
        document = f"key: {form.replace('{}', str(text))}"
        try:
            read = yaml.load(document, Loader=_Loader)
        except (yaml.YAMLError, ValueError, RecursionError):
            return False
        if read != {"key": form.strip('"').replace("{}", str(text))}:
            return False
    return True


def _number(item: Any) -> str:
    return str(item) if isinstance(item, str) or _is_whole(item) else ""


def _is_whole(item: Any) -> bool:
    return isinstance(item, int) and not isinstance(item, bool)


def _is_list(items: Any, is_valid: Callable[[Any], bool]) -> bool:
    return isinstance(items, list) and all(map(is_valid, items))


def _is_named(row: Any) -> bool:
    """Whether a row is an environment variable, or the reference to a Secret."""
    name, text = value(row, "name"), value(row, "value")
    return isinstance(name, str) and name != "" and _survives(name, (QUOTED,)) and isinstance(text, (str, type(None)))


def _is_share(item: Any) -> bool:
    # Helm writes numbers from a million on as 1e+06, which the plugin rejects.
    is_count = re.fullmatch(r"[1-9][0-9]{0,8}", _number(item)) is not None
    return item in ("", "disabled", "memory", "unlimited") or (is_count and not (_is_whole(item) and item >= 10**6))


_DURATION = re.compile(r"([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_ENDPOINT = re.compile(r"([^:\[\]]*|\[[0-9A-Fa-f:.]*\]):([0-9]{1,5})")


def _port(endpoint: Any) -> int | None:
    """The port of an address to listen on."""
    match = _ENDPOINT.fullmatch(endpoint) if isinstance(endpoint, str) else None
    return int(match.group(2)) if match and int(match.group(2)) < 2**16 else None


TEXT, FLAG, WHOLE, MAP, LEVEL, PATH, DURATION = "text", "flag", "whole", "map", "level", "path", "duration"
TEXTS, ENTRIES, NAMED, SHARES, ENDPOINT = "texts", "entries", "named", "shares", "endpoint"
_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    TEXT: ("a string", lambda value: isinstance(value, str)),
    PATH: (
        "an absolute path of printable characters",
        lambda value: isinstance(value, str) and value.startswith("/") and value.isprintable(),
    ),
    DURATION: ("a duration such as 15s", lambda value: _DURATION.fullmatch(str(value)) is not None),
    ENDPOINT: ("an address with a port, such as :8080", lambda value: value == "" or _port(value) is not None),
    FLAG: ("true or false", lambda value: isinstance(value, bool)),
    WHOLE: ("an integer", _is_whole),
    TEXTS: ("a list of strings", lambda value: _is_list(value, lambda row: isinstance(row, str))),
    ENTRIES: ("a list of mappings", lambda value: _is_list(value, lambda row: isinstance(row, Mapping))),
    NAMED: ("a list of mappings with a name", lambda value: _is_list(value, _is_named)),
    MAP: ("a mapping", lambda value: isinstance(value, Mapping)),
    LEVEL: ("an integer from 0 on", lambda value: re.fullmatch(r"[0-9]{1,2}", _number(value)) is not None),
    SHARES: ("disabled, memory, unlimited or an integer from 1 on", _is_share),
}


class Key(NamedTuple):
    """A key of the chart: the kind of its value, and the first version with it (None: 0.4.0).

    written: the forms in which templates write a text, none where they escape it.
    """

    kind: str
    since: Version | None = None
    choices: tuple[str, ...] = ()
    written: tuple[str, ...] = (QUOTED,)


def _keys(prefix: str, kind: str, *names: str, since: Version | None = None) -> dict[str, Key]:
    return {f"{prefix}{name}": Key(kind, since) for name in names}


def _written(forms: tuple[str, ...], *paths: str) -> dict[str, Key]:
    return {path: Key(TEXT, None, (), forms) for path in paths}


_REMOVABLE = (MAP, TEXTS, ENTRIES, NAMED)
"""Kinds whose default null removes, such as the chart's affinity."""
_CONTAINER = ("securityContext", "resources")

# Dotted path -> key. Keys below a map are free, except feature gates.
KEYS: dict[str, Key] = {
    "nvidiaDriverRoot": Key(PATH, None, (), (QUOTED, PLAIN)),
    **_keys("", TEXT, "nvidiaCDIHookPath"),
    **_written((PLAIN,), "altProcDevices"),
    **_written((QUOTED, PLAIN), "nameOverride", "namespaceOverride"),
    **_written(("{}-service-account",), "fullnameOverride"),
    **_keys("", FLAG, "gpuResourcesEnabledOverride", "allowDefaultNamespace"),
    "selectorLabelsOverride": Key(MAP),
    "consumableShares": Key(SHARES, HOST_MANAGED),
    "resourceApiVersion": Key(TEXT, None, ("", *(f"{API_GROUP}/{version}" for version in API_VERSIONS))),
    "imagePullSecrets": Key(NAMED),
    **_written(("{}:tag",), "image.repository"),
    **_written(("image:{}",), "image.tag"),
    "image.pullPolicy": Key(TEXT, None, ("", "Always", "IfNotPresent", "Never")),
    "serviceAccount.create": Key(FLAG),
    "serviceAccount.annotations": Key(MAP),
    **_written(("{}-kubeletplugin",), "serviceAccount.name"),
    "resources.gpus.enabled": Key(FLAG),
    "resources.computeDomains.enabled": Key(FLAG),
    "resources.computeDomains.imex.mode": Key(TEXT, HOST_MANAGED, ("driverManaged", "hostManaged")),
    "resources.computeDomains.imex.isolation": Key(TEXT, HOST_MANAGED, ("", "domain")),
    "resources.computeDomains.imex.hostSocketPath": Key(PATH, HOST_MANAGED),
    "featureGates": Key(MAP),
    "logVerbosity": Key(LEVEL),
    **_keys("webhook.", FLAG, "enabled"),
    **_keys("webhook.", WHOLE, "replicas", "servicePort", "containerPort"),
    **_written((PLAIN,), *(f"{part}.priorityClassName" for part in ("webhook", "controller", "kubeletPlugin"))),
    **_keys("webhook.", MAP, "strategy", "podAnnotations", "podSecurityContext", "nodeSelector", "affinity"),
    **_keys("webhook.", ENTRIES, "tolerations"),
    **_keys("webhook.containers.webhook.", MAP, *_CONTAINER),
    **_keys("webhook.serviceAccount.", FLAG, "create"),
    # Undocumented; a template reads it.
    **_keys("webhook.serviceAccount.", MAP, "annotations"),
    **_written(
        (PLAIN,), "webhook.serviceAccount.name", "webhook.tls.certManager.issuerName", "webhook.tls.secret.name"
    ),
    "webhook.failurePolicy": Key(TEXT, None, ("", "Fail", "Ignore")),
    "webhook.tls.mode": Key(TEXT, None, ("cert-manager", "secret")),
    "webhook.tls.certManager.issuerType": Key(TEXT, None, ("selfsigned", "clusterissuer", "issuer")),
    "webhook.tls.certManager.dnsNames": Key(TEXTS),
    "webhook.tls.secret.caBundle": Key(TEXT, None, (), ()),
    **_keys("controller.", WHOLE, "replicas"),
    "controller.leaderElection.enabled": Key(FLAG),
    **_keys("controller.leaderElection.", DURATION, "leaseDuration", "renewDeadline", "retryPeriod"),
    "controller.metrics.enabled": Key(FLAG),
    **_keys("controller.metrics.", ENDPOINT, "httpEndpoint"),
    **_keys("controller.metrics.", TEXT, "metricsPath", "profilePath"),
    **_keys("controller.", MAP, "podAnnotations", "podSecurityContext", "nodeSelector", "affinity"),
    **_keys("controller.", ENTRIES, "tolerations"),
    **_keys("controller.containers.computeDomain.", MAP, *_CONTAINER),
    **_keys("controller.containers.computeDomain.", NAMED, "env"),
    "controller.networkPolicy.enabled": Key(FLAG),
    "kubeletPlugin.metrics.enabled": Key(FLAG),
    **_keys("kubeletPlugin.metrics.", ENDPOINT, "gpuHttpEndpoint", "computeDomainHttpEndpoint"),
    **_keys("kubeletPlugin.metrics.", TEXT, "metricsPath"),
    **_keys(
        "kubeletPlugin.", MAP, "updateStrategy", "podAnnotations", "podSecurityContext", "nodeSelector", "affinity"
    ),
    **_keys("kubeletPlugin.", ENTRIES, "tolerations"),
    "kubeletPlugin.kubeletRegistrarDirectoryPath": Key(PATH, None, (), ()),
    "kubeletPlugin.kubeletPluginsDirectoryPath": Key(PATH, None, (), ()),
    **_keys("kubeletPlugin.containers.init.", MAP, *_CONTAINER),
    **_keys("kubeletPlugin.containers.computeDomains.", MAP, *_CONTAINER),
    **_keys("kubeletPlugin.containers.computeDomains.", NAMED, "env"),
    **_keys("kubeletPlugin.containers.computeDomains.", WHOLE, "healthcheckPort"),
    **_keys("kubeletPlugin.containers.computeDomains.", FLAG, "gpuCliqueLabelEnabled", since=HOST_MANAGED),
    **_keys("kubeletPlugin.containers.gpus.", MAP, *_CONTAINER),
    **_keys("kubeletPlugin.containers.gpus.", NAMED, "env"),
    **_keys("kubeletPlugin.containers.gpus.", WHOLE, "healthcheckPort"),
    "kubeletPlugin.networkPolicy.enabled": Key(FLAG),
    # Undocumented; templates read it for nvkind clusters.
    "maskNvidiaDriverParams": Key(FLAG),
}
_INNER = frozenset(path.rsplit(".", depth)[0] for path in KEYS for depth in range(1, path.count(".") + 1))


class Gate(NamedTuple):
    """A feature gate: its default, and the first version with it (None: 0.4.0).

    Every gate that is off by default is alpha, every other one beta.
    """

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
    # Logging gates of Kubernetes.
    "ContextualLogging": Gate(True),
    "LoggingAlphaOptions": Gate(False),
    "LoggingBetaOptions": Gate(True),
}
ALL_ALPHA, ALL_BETA = "AllAlpha", "AllBeta"
"""Set every gate of their stage that is not set itself."""
_SETTABLE = {**GATES, ALL_ALPHA: Gate(False), ALL_BETA: Gate(True)}
NEEDS = (("ComputeDomainCliques", "IMEXDaemonsWithDNSNames"), ("DeviceMetadata", "PassthroughSupport"))
"""The first gate needs the second."""
EXCLUDES = (
    ("DynamicMIG", "PassthroughSupport"),
    ("DynamicMIG", "NVMLDeviceHealthCheck"),
    ("DynamicMIG", "MPSSupport"),
    ("PassthroughSupport", "NVMLDeviceHealthCheck"),
)


def is_known(path: str) -> bool:
    """Whether the chart has this dotted path, or a free mapping above it."""
    above = (path.rsplit(".", depth)[0] for depth in range(1, path.count(".") + 1))
    return path in KEYS or any(KEYS[parent].kind == MAP for parent in above if parent in KEYS)


def check_values(values: Values, version: Version, namespace: str, extra_keys: Sequence[str] = ()) -> list[Finding]:
    """All faults of the values for this chart version and namespace, one finding each.

    extra_keys: further dotted paths of a site's chart, for example of a newer release.
    """
    extra = frozenset(extra_keys)
    started = (*_gates(values, version), *_ports(values), *_leader_election(values))
    found = [*_refused(values, namespace), *_unknown(values, version, extra), *started]
    return sorted(found, key=lambda row: (row["key"], row["code"]))


def _fault(code: str, key: str, what: str, remedy: str) -> Finding:
    return finding(code, f"values, {key}: {what}; {remedy}.", key=key)


def _unknown(values: Values, version: Version, extra: frozenset[str], prefix: str = "") -> Iterator[Finding]:
    for name, item in values.items():
        path = f"{prefix}{name}"
        if path in extra or path in _REJECTED_KEYS:
            continue
        if path in KEYS:
            yield from _check_key(path, item, version)
        elif path in _INNER or any(known.startswith(f"{path}.") for known in extra):
            if isinstance(item, Mapping):
                yield from _unknown(item, version, extra, f"{path}.")
            else:
                yield _fault("dra_value_refused", path, f"{shown(item)} is no mapping", "write keys under it")
        else:
            yield _fault("dra_value_refused", path, "the chart has no such key, and Helm would ignore it", _guess(path))


def _guess(path: str) -> str:
    """The remedy for an unknown key: the closest known one under the same parent, else anywhere."""
    paths = {*KEYS, *_INNER}
    parent, _dot, name = path.rpartition(".")
    siblings = [known for known in paths if known.rpartition(".")[0] == parent]
    nearest = difflib.get_close_matches(path, siblings, 1, 0.75)
    if not nearest:
        last_names = {known: known.rpartition(".")[2] for known in paths}
        same = sorted(known for known, last in last_names.items() if last == name)
        nearest = same[:1] if len(same) == 1 else difflib.get_close_matches(path, paths, 1, 0.75)
    if nearest:
        return f"write {nearest[0]}"
    return "remove it, or add it to extra_keys if your chart has it"


def _check_key(path: str, item: Any, version: Version) -> Iterator[Finding]:
    key = KEYS[path]
    if key.since and version < key.since:
        remedy = "remove it, or set chart_version to 0.5.0 or later"
        yield _fault("dra_value_refused", path, "charts before 0.5.0 have no such key", remedy)
        return
    if item is None and key.kind in _REMOVABLE:
        return
    if item is None:
        # For Helm null removes the chart's default, which the other keys need.
        yield _fault("dra_value_refused", path, "is null, which removes the chart's default", "remove it")
    elif not _KINDS[key.kind][1](item):
        yield _fault("dra_value_refused", path, f"{shown(item)} is not {_KINDS[key.kind][0]}", "correct it")
    elif key.choices and item not in key.choices:
        choices = [choice for choice in key.choices if choice]
        remedy = f"write {' or '.join(filter(None, [', '.join(choices[:-1]), choices[-1]]))}"
        yield _fault("dra_value_refused", path, f"{shown(item)} is not supported", remedy)
    elif isinstance(item, str) and item and not _survives(item, key.written):
        what = f"{shown(item)} is another value in the YAML that the chart's templates write, or breaks it"
        yield _fault("dra_value_refused", path, what, "remove its special characters, or write another name")


# Keys that the chart itself rejects, unless they are empty, with the reason and the remedy.
_REJECTED_KEYS = {
    "namespace": ("the chart rejects it", "set namespace instead and remove it"),
    "nvidiaCtkPath": ("the chart rejects it since 25.3", "remove it, it is no longer needed"),
}


def _refused(values: Values, namespace: str) -> Iterator[Finding]:
    """The rules of the chart's own templates (templates/validation.yaml and _helpers.tpl)."""
    for key, (what, remedy) in _REJECTED_KEYS.items():
        if values.get(key):
            yield _fault("dra_value_refused", key, what, remedy)
    # The chart allows the namespace default where namespaceOverride names it.
    overridden = value(values, "namespaceOverride")
    if namespace == "default" and not overridden and value(values, "allowDefaultNamespace") is not True:
        yield finding(
            "dra_value_refused",
            "namespace: the chart rejects the namespace default; use another one, or set allowDefaultNamespace: true in"
            " values.",
            key="namespace",
        )
    if value(values, "resources.gpus.enabled", True) is True:
        if value(values, "gpuResourcesEnabledOverride") is not True:
            yield _fault(
                "dra_value_refused",
                "resources.gpus.enabled",
                "is true, which is the default, and the chart rejects GPUs by DRA next to a device plugin",
                "set it to false, or set gpuResourcesEnabledOverride: true where no device plugin runs",
            )
    elif value(values, "resources.computeDomains.enabled", True) is False:
        remedy = "enable one of them"
        yield _fault("dra_value_refused", "resources", "neither gpus nor computeDomains is enabled", remedy)
    yield from _host_managed(values)
    if value(values, "webhook.enabled") is True:
        yield from _webhook(values)


def _host_managed(values: Values) -> Iterator[Finding]:
    imex = "resources.computeDomains.imex"
    if value(values, f"{imex}.mode") != "hostManaged":
        return
    if value(values, "featureGates.HostManagedIMEXDaemon") is not True:
        yield _fault(
            "dra_value_refused",
            f"{imex}.mode",
            "the chart rejects hostManaged without its feature gate",
            "set featureGates.HostManagedIMEXDaemon: true, or shape: host_managed",
        )
    if value(values, "resources.computeDomains.enabled", True) is False:
        yield _fault(
            "dra_value_refused",
            f"{imex}.mode",
            "is hostManaged without ComputeDomains",
            "enable them, or remove the mode",
        )


def _webhook(values: Values) -> Iterator[Finding]:
    tls = "webhook.tls"
    mode = value(values, f"{tls}.mode", "cert-manager")
    if mode == "secret" and not value(values, f"{tls}.secret.name"):
        yield _fault("dra_value_refused", f"{tls}.secret.name", "is empty while tls.mode is secret", "name the Secret")
    if mode == "secret" and not value(values, f"{tls}.secret.caBundle"):
        what = "is empty while tls.mode is secret"
        yield _fault("dra_value_refused", f"{tls}.secret.caBundle", what, "write the CA's certificate in base64")
    issuer = value(values, f"{tls}.certManager.issuerType", "selfsigned")
    key = f"{tls}.certManager.issuerName"
    if mode == "cert-manager" and issuer in ("clusterissuer", "issuer") and not value(values, key):
        yield _fault("dra_value_refused", key, f"is empty while issuerType is {issuer}", "name the issuer")


def _gates(values: Values, version: Version) -> Iterator[Finding]:
    """Unknown gates, and pairs with which the driver's processes exit at their start, after Helm has succeeded."""
    gates = mapped(values.get("featureGates"))
    for name, on in gates.items():
        key, known = f"featureGates.{name}", _SETTABLE.get(str(name))
        if known is None:
            nearest = difflib.get_close_matches(str(name), _SETTABLE, 1, 0.6)
            remedy = f"write {nearest[0]}" if nearest else "remove it"
            yield _fault("dra_value_refused", key, "the driver has no such gate and would exit at its start", remedy)
        elif known.since and version < known.since:
            remedy = "remove it, or set chart_version to 0.5.0 or later"
            yield _fault("dra_value_refused", key, "drivers before 0.5.0 have no such gate", remedy)
        elif not isinstance(on, bool):
            yield _fault("dra_value_refused", key, f"{shown(on)} is not true or false", "correct it")

    def is_on(name: str) -> bool:
        default = GATES[name].default
        on = gates.get(name, gates.get(ALL_BETA if default else ALL_ALPHA, default))
        return on if isinstance(on, bool) else default

    for name, other in NEEDS:
        if is_on(name) and not is_on(other):
            remedy = f"disable {name} too, or enable {other}"
            yield _fault(
                "dra_value_refused", f"featureGates.{name}", f"is enabled and needs {other}, which is disabled", remedy
            )
    for name, other in EXCLUDES:
        if is_on(name) and is_on(other):
            remedy = "disable one of them"
            yield _fault("dra_value_refused", f"featureGates.{name}", f"is enabled together with {other}", remedy)
    # The rest concerns the GPU plugin alone.
    if value(values, "resources.gpus.enabled", True) is not True:
        return
    if is_on("PassthroughSupport") and "PassthroughSupport" not in gates:
        what = f"is enabled by {ALL_ALPHA}, and the chart mounts the host's root only where the gate is set itself"
        yield _fault("dra_value_refused", "featureGates.PassthroughSupport", what, "set it to true or false")
    shares = values.get("consumableShares")
    used = _is_share(shares) and shares not in ("", "disabled")
    if used and version >= HOST_MANAGED and not is_on("ConsumableShares"):
        what = f"is {shown(shares)}, which needs the feature gate ConsumableShares"
        yield _fault("dra_value_refused", "consumableShares", what, "set featureGates.ConsumableShares: true")


# Where both plugins listen: the part of resources that has the plugin, the key, its default.
_LISTENERS: tuple[tuple[str, str, Any], ...] = (
    ("computeDomains", "kubeletPlugin.containers.computeDomains.healthcheckPort", 51515),
    ("computeDomains", "kubeletPlugin.metrics.computeDomainHttpEndpoint", ":8081"),
    ("gpus", "kubeletPlugin.containers.gpus.healthcheckPort", 51516),
    ("gpus", "kubeletPlugin.metrics.gpuHttpEndpoint", ":8080"),
)


def _ports(values: Values) -> Iterator[Finding]:
    """Both plugins are in one pod, where the one that is second to listen on a port exits."""
    metrics = "kubeletPlugin.metrics"
    has_metrics = value(values, f"{metrics}.enabled", True) is True and value(values, f"{metrics}.metricsPath") != ""
    used: dict[int, str] = {}
    for part, key, default in _LISTENERS:
        item = value(values, key, default)
        port = item if _is_whole(item) else _port(item) if has_metrics else None
        # 0 and less is no port for the chart.
        if port is None or port <= 0 or value(values, f"resources.{part}.enabled", True) is not True:
            continue
        if used.setdefault(port, key) != key:
            what = f"has the port {port} of {used[port]}, and both programs are in one pod"
            yield _fault("dra_value_refused", key, what, "set another port")


def _leader_election(values: Values) -> Iterator[Finding]:
    """With leader election the controller exits unless its durations descend."""
    prefix = "controller.leaderElection"
    defaults = {"leaseDuration": "15s", "renewDeadline": "10s", "retryPeriod": "2s"}
    texts = {name: str(value(values, f"{prefix}.{name}", default)) for name, default in defaults.items()}
    has_controller = value(values, "resources.computeDomains.enabled", True) is True
    if not has_controller or value(values, f"{prefix}.enabled") is not True:
        return
    if not all(map(_DURATION.fullmatch, texts.values())):
        return
    lease, renew, retry = map(_seconds, texts.values())
    if lease <= renew:
        what = f"is {texts['leaseDuration']}, and must be longer than renewDeadline ({texts['renewDeadline']})"
        yield _fault("dra_value_refused", f"{prefix}.leaseDuration", what, "set a longer one")
    if renew <= 1.2 * retry:
        what = f"is {texts['renewDeadline']}, and must be longer than 1.2 times retryPeriod ({texts['retryPeriod']})"
        yield _fault("dra_value_refused", f"{prefix}.renewDeadline", what, "set a longer one")
    if not retry:
        yield _fault("dra_value_refused", f"{prefix}.retryPeriod", "is 0", "set a longer one")


def _seconds(duration: str) -> float:
    rows = re.findall(r"([0-9.]+)([a-z]+)", duration)
    return sum(float(number) * _SECONDS[unit] for number, unit in rows)
