# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check the values of the DRA driver's chart for what neither the chart nor the API server refuses.

The chart has no schema, so Helm accepts every misspelt key: kinds of values are compared with the chart's values.yaml,
and keys that it lacks with what the chart renders. Values that the driver's processes reject at their start pass Helm
too and end in a crash loop: these rules are those of the driver's feature gates (pkg/featuregates) and of the checks
with which its processes start (cmd/*/main.go, pkg/metrics) in 0.5.0. An upgrade restarts the plugin on all nodes at
once; of the controller the old pod stays until the new one is ready, which Helm waits for, so its durations and its
listener have no rule. What the templates and the API server refuse, the role finds before any change: it renders the
chart and dry-runs its objects.
"""

from __future__ import annotations

import difflib
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import DraError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.chart_values import Values, value
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.versions import HOST_MANAGED, Version
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import WARNING
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import as_list, mapped
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import shown

_OBJECTS = frozenset({"affinity", "securityContext", "strategy", "updateStrategy"})
"""Names of values that templates copy into objects of Kubernetes, whose fields are not the chart's."""


def _fault(key: str, what: str, remedy: str) -> Finding:
    return finding("dra_value_refused", f"values, {key}: {what}; {remedy}.", key=key)


# --- Keys and kinds, by the chart's values.yaml.


def _is_free(name: str, default: Any) -> bool:
    """Whether any key may be below this one: its default is a mapping without keys, or a part of an object."""
    return isinstance(default, Mapping) and (not default or name in _OBJECTS)


Leaf = tuple[tuple[Any, ...], Any, Values]
"""The path of a value, the value, and the mapping of the chart's values.yaml in which its key is, or is not.

A key that YAML reads as no text (1:, on:) is one that the chart lacks.
"""


def leaves(values: Values, chart: Values, above: tuple[Any, ...] = ()) -> Iterator[Leaf]:
    """The values that no mapping of the chart has further keys for."""
    for name, item in values.items():
        default = chart.get(name)
        if isinstance(item, Mapping) and isinstance(default, Mapping) and not _is_free(name, default):
            yield from leaves(item, default, (*above, name))
        else:
            yield (*above, name), item, chart


def check_kinds(values: Values, chart: Values) -> Iterator[Finding]:
    """A finding for each value of another kind than the chart's default; chart: its values.yaml."""
    for path, item, where in leaves(values, chart):
        name = path[-1]
        if name in where and not _is_of_kind(item, name, where[name]):
            what = "is null, which removes the chart's default"
            what = what if item is None else f"{shown(item)} is not {_kind(where[name])}"
            yield _fault(".".join(map(str, path)), what, "remove it" if item is None else "correct it")


def variants(values: Values, chart: Values) -> list[dict[str, Any]]:
    """The values, and the values without each key that the chart's values.yaml lacks: rows of key (dotted) and values.

    Templates read keys that values.yaml lacks. The chart knows a key if it renders anything else without it.
    """
    unknown = [path for path, _item, where in leaves(values, chart) if path[-1] not in where]
    rows = [{"key": ".".join(map(str, path)), "values": _without(values, path)} for path in unknown]
    return [{"key": "", "values": values}, *rows]


def _without(values: Values, path: Sequence[Any]) -> Values:
    name, *below = path
    rest = {key: item for key, item in values.items() if key != name}
    return {**rest, name: _without(values[name], below)} if below else rest


def templates(chart: str) -> str:
    """The text of the templates of a chart, a folder or an archive; DraError if it cannot be read."""
    try:
        if Path(chart).is_dir():
            files = [path.read_bytes() for path in Path(chart).glob("**/templates/**/*") if path.is_file()]
        else:
            with tarfile.open(chart) as archive:
                rows = [archive.extractfile(row) for row in archive if "/templates/" in row.name]
                files = [row.read() for row in rows if row is not None]
    except (OSError, tarfile.TarError):
        raise DraError(f"chart: {chart} cannot be read; write its absolute path") from None
    return b"\n".join(files).decode(errors="replace")


def check_unread(keys: Sequence[str], chart: Values, text: str) -> Iterator[Finding]:
    """A finding for each of these dotted keys, which change nothing that the chart renders.

    text: that of the templates. They may read a key that it names behind an option that is off, so it is a warning.
    """
    for key in keys:
        above, dot, name = key.rpartition(".")
        nearest = difflib.get_close_matches(name, mapped(value(chart, above) if above else chart), 1, 0.75)
        remedy = f"write {above}{dot}{nearest[0]}" if nearest else "remove it"
        row = _fault(key, "changes nothing that the chart renders", remedy)
        yield {**row, "severity": WARNING} if re.search(rf"\b{re.escape(name)}\b", text) else row


def _kind(default: Any) -> str:
    if isinstance(default, bool):
        return "true or false"
    if isinstance(default, int):
        return "an integer"
    if isinstance(default, str):
        return "a string"
    return "a list" if isinstance(default, list) else "a mapping"


def _is_of_kind(item: Any, name: str, default: Any) -> bool:
    """Whether a value is of the kind of the chart's default; null removes a list or a free mapping."""
    if item is None:
        return isinstance(default, (list, type(None))) or _is_free(name, default)
    if item in ("~", "null", "Null", "NULL"):
        # Templates write a text without quotes, which is null then.
        return False
    # They write a number where the default is a string.
    return default is None or _kind(item) == _kind(default) or (isinstance(default, str) and _is_whole(item))


# --- What the driver's processes reject at their start.


def _is_whole(item: Any) -> bool:
    return isinstance(item, int) and not isinstance(item, bool)


def _is_share(item: Any) -> bool:
    # Helm writes numbers from a million on as 1e+06, which the plugin rejects.
    is_count = re.fullmatch(r"[1-9][0-9]{0,8}", str(item)) is not None
    return item in ("", "disabled", "memory", "unlimited") or (is_count and not (_is_whole(item) and item >= 10**6))


_ENDPOINT = re.compile(r"([^:\[\]]*|\[[0-9A-Fa-f:.]*\]):([0-9]{1,5})")


def _port(endpoint: Any) -> int | None:
    """The port of an address to listen on."""
    match = _ENDPOINT.fullmatch(endpoint) if isinstance(endpoint, str) else None
    return int(match.group(2)) if match and int(match.group(2)) < 2**16 else None


Form = tuple[str, Callable[[Any], bool]]
_PATH: Form = (
    "an absolute path of printable characters",
    lambda item: str(item).startswith("/") and str(item).isprintable(),
)
_LISTENER: Form = ("an address with a port, such as :8080", lambda item: item == "" or _port(item) is not None)
_NUMBER: Form = ("an integer from 1 on", lambda item: re.fullmatch(r"[1-9][0-9]{0,8}", item) is not None)
FORMS: dict[str, Form] = {
    "nvidiaDriverRoot": _PATH,
    "resources.computeDomains.imex.hostSocketPath": _PATH,
    "kubeletPlugin.kubeletRegistrarDirectoryPath": _PATH,
    "kubeletPlugin.kubeletPluginsDirectoryPath": _PATH,
    "logVerbosity": ("an integer from 0 on", lambda item: re.fullmatch(r"[0-9]{1,2}", str(item)) is not None),
    "kubeletPlugin.metrics.gpuHttpEndpoint": _LISTENER,
    "kubeletPlugin.metrics.computeDomainHttpEndpoint": _LISTENER,
    "consumableShares": ("disabled, memory, unlimited or an integer from 1 on", _is_share),
}
"""Dotted path -> what its text or number must be, and whether one is."""


ALPHA, BETA = False, True
"""Stages of a gate: an alpha one is off by default, a beta one on."""
GATES: dict[str, bool] = {
    "IMEXDaemonsWithDNSNames": BETA,
    "ComputeDomainCliques": BETA,
    "CrashOnNVLinkFabricErrors": BETA,
    "TimeSlicingSettings": ALPHA,
    "MPSSupport": ALPHA,
    "PassthroughSupport": ALPHA,
    "DynamicMIG": ALPHA,
    "NVMLDeviceHealthCheck": ALPHA,
    "DeviceMetadata": ALPHA,
    "FabricManagerPartitioning": ALPHA,
    "HostManagedIMEXDaemon": ALPHA,
    "ConsumableShares": ALPHA,
    "DRAListTypeAttributes": ALPHA,
    # Logging gates of Kubernetes.
    "ContextualLogging": BETA,
    "LoggingAlphaOptions": ALPHA,
    "LoggingBetaOptions": BETA,
}
_SINCE_0_5 = {"FabricManagerPartitioning", "HostManagedIMEXDaemon", "ConsumableShares", "DRAListTypeAttributes"}
_NEWEST = Version(1, 0, 5, 0)
"""The newest version whose gates were read; a later one, also a patch, may have more."""
ALL_ALPHA, ALL_BETA = "AllAlpha", "AllBeta"
"""Set every gate of their stage that is not set itself."""
NEEDS = (("ComputeDomainCliques", "IMEXDaemonsWithDNSNames"), ("DeviceMetadata", "PassthroughSupport"))
"""The first gate needs the second."""
EXCLUDES = (
    ("DynamicMIG", "PassthroughSupport"),
    ("DynamicMIG", "NVMLDeviceHealthCheck"),
    ("DynamicMIG", "MPSSupport"),
    ("PassthroughSupport", "NVMLDeviceHealthCheck"),
)


def check_start(values: Values, version: Version) -> list[Finding]:
    """A finding for each value with which a process of this chart version cannot start."""
    found = [
        *_forms(values),
        *_environment(values),
        *_gates(values, version),
        *_ports(values),
    ]
    return sorted(found, key=lambda row: row["key"])


def _forms(values: Values) -> Iterator[Finding]:
    for path, (what, is_valid) in FORMS.items():
        item = value(values, path)
        # A value of another kind is a finding already.
        if (isinstance(item, str) or _is_whole(item)) and not is_valid(item):
            yield _fault(path, f"{shown(item)} is not {what}", "correct it")


_VARIABLES: dict[str, Form] = {
    "MAX_NODES_PER_IMEX_DOMAIN": _NUMBER,
    "KUBE_API_BURST": _NUMBER,
    "KUBE_API_QPS": ("a number", lambda item: re.fullmatch(r"[0-9]+(\.[0-9]+)?(e[0-9]+)?", item) is not None),
}
"""Environment variables that the driver's programs parse, as flags of urfave/cli; empty ones are not read."""
_CONTAINERS = (
    "controller.containers.computeDomain",
    *(f"kubeletPlugin.containers.{name}" for name in ("computeDomains", "gpus")),
)


def _environment(values: Values) -> Iterator[Finding]:
    for path in _CONTAINERS:
        for row in map(mapped, as_list(value(values, f"{path}.env"))):
            item, form = row.get("value"), _VARIABLES.get(str(row.get("name")))
            if form and isinstance(item, str) and item and not form[1](item):
                yield _fault(f"{path}.env", f"{row['name']}: {shown(item)} is not {form[0]}", "correct it")


def _gates(values: Values, version: Version) -> Iterator[Finding]:
    """Unknown gates, and pairs with which the driver's processes exit at their start, after Helm has succeeded."""
    gates = mapped(values.get("featureGates"))
    known = {*GATES, ALL_ALPHA, ALL_BETA} - (_SINCE_0_5 if version < HOST_MANAGED else set())
    for name, on in gates.items():
        key = f"featureGates.{name}"
        if name not in known:
            nearest = difflib.get_close_matches(str(name), known, 1, 0.6)
            remedy = f"write {nearest[0]}" if nearest else "remove it, or set a dra_driver_chart_version that has it"
            row = _fault(key, "the driver has no such gate and would exit at its start", remedy)
            yield row if version <= _NEWEST else {**row, "severity": WARNING}
        elif not isinstance(on, bool):
            yield _fault(key, f"{shown(on)} is not true or false", "correct it")

    def is_on(name: str) -> bool:
        default = GATES[name]
        on = gates.get(name, gates.get(ALL_BETA if default else ALL_ALPHA, default))
        return on if isinstance(on, bool) else default

    for name, other in NEEDS:
        if is_on(name) and not is_on(other):
            remedy = f"disable {name} too, or enable {other}"
            yield _fault(f"featureGates.{name}", f"is enabled and needs {other}, which is disabled", remedy)
    for name, other in EXCLUDES:
        if is_on(name) and is_on(other):
            remedy = "disable one of them"
            yield _fault(f"featureGates.{name}", f"is enabled together with {other}", remedy)
    # The rest concerns the GPU plugin alone.
    if value(values, "resources.gpus.enabled", True) is not True:
        return
    if is_on("PassthroughSupport") and "PassthroughSupport" not in gates:
        what = f"is enabled by {ALL_ALPHA}, and the chart mounts the host's root only where the gate is set itself"
        yield _fault("featureGates.PassthroughSupport", what, "set it to true or false")
    shares = values.get("consumableShares")
    used = _is_share(shares) and shares not in ("", "disabled")
    if used and version >= HOST_MANAGED and not is_on("ConsumableShares"):
        what = f"is {shown(shares)}, which needs the feature gate ConsumableShares"
        yield _fault("consumableShares", what, "set featureGates.ConsumableShares: true")


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
            yield _fault(key, what, "set another port")
