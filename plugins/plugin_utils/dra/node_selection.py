# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a pod's affinity, selector and tolerations let it run on a node, and the reason if not.

A DaemonSet whose affinity no node satisfies is no error for Helm or Kubernetes: it is scheduled on 0 nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.chart_values import value
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.labels import labels
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, as_list, mapped

# The labels of the chart's default affinity; a node needs any one of them (values.yaml, kubeletPlugin.affinity).
DEFAULT_LABELS: dict[str, str] = {
    "feature.node.kubernetes.io/pci-10de.present": "true",
    "feature.node.kubernetes.io/pci-0302_10de.present": "true",
    "feature.node.kubernetes.io/pci-0300_10de.present": "true",
    "feature.node.kubernetes.io/cpu-model.vendor_id": "NVIDIA",
    "nvidia.com/gpu.present": "true",
}
DEFAULT_TERMS = [
    {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]} for key, value in DEFAULT_LABELS.items()
]
DEFAULT_TOLERATIONS = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
# Kubernetes adds these tolerations to every pod of a DaemonSet.
_ALWAYS_TOLERATED = frozenset(
    f"node.kubernetes.io/{word}"
    for word in ("not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
)
_REQUIRED = ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")


def why_excluded(node: Object, plugin: Object) -> str | None:
    """The reason why the kubelet plugin would not run on a node, with the remedy; None if it would.

    plugin: the values below kubeletPlugin.
    """
    has = labels(node)
    for key, wanted in mapped(plugin.get("nodeSelector")).items():
        if has.get(key) != wanted:
            return f"it lacks the label {key}={wanted} of kubeletPlugin.nodeSelector; set that label"
    terms = _terms(plugin)
    if terms is not None and not _any_matches(has, terms):
        if terms is DEFAULT_TERMS:
            names = "nvidia.com/gpu.present=true, or let node-feature-discovery set one of the others"
            return f"it has none of the labels of the chart's affinity; label it {names}"
        return "its labels satisfy no term of kubeletPlugin.affinity; correct one of the two"
    taint = untolerated(node, as_list(plugin.get("tolerations", DEFAULT_TOLERATIONS)))
    return f"its taint {taint} is not tolerated; add it to kubeletPlugin.tolerations" if taint else None


def _terms(plugin: Object) -> Sequence[Any] | None:
    """The terms of the plugin's node affinity; None without one.

    Helm merges mappings: the chart's own terms stay unless the list of terms itself is replaced. null removes them.
    """
    below: Any = plugin
    for part in ("affinity", *_REQUIRED):
        if part not in mapped(below):
            return DEFAULT_TERMS
        below = below[part]
        if below is None:
            return None
    return as_list(below)


def selects(pod: Object, node: Object) -> bool:
    """Whether a DaemonSet with this pod spec runs on a node."""
    return fits(pod, labels(node)) and untolerated(node, as_list(pod.get("tolerations"))) is None


def fits(pod: Object, has: Object) -> bool:
    """Whether the labels of a node satisfy the selector and the required affinity of a pod spec."""
    terms = value(pod.get("affinity"), ".".join(_REQUIRED))
    selected = mapped(pod.get("nodeSelector")).items() <= has.items()
    return selected and (terms is None or _any_matches(has, as_list(terms)))


def untolerated(node: Object, tolerations: Sequence[Any], always: frozenset[str] = _ALWAYS_TOLERATED) -> str | None:
    """The first taint of a node that keeps a pod off, as key:effect. always: the keys that need no toleration."""
    for taint in map(mapped, as_list(mapped(node.get("spec")).get("taints"))):
        blocks = taint.get("effect") in ("NoSchedule", "NoExecute") and str(taint.get("key")) not in always
        if blocks and not any(_tolerates(mapped(row), taint) for row in tolerations):
            return f"{taint.get('key')}:{taint.get('effect')}"
    return None


def _any_matches(has: Object, terms: Sequence[Any]) -> bool:
    return any(_matches(has, mapped(term)) for term in terms)


def _matches(has: Object, term: Object) -> bool:
    """Whether labels satisfy all expressions of one term; an empty term matches no node."""
    rows = as_list(term.get("matchExpressions"))
    return bool(rows) and all(_satisfies(has, mapped(row)) for row in rows)


def _satisfies(has: Object, row: Object) -> bool:
    value, wanted = has.get(str(row.get("key"))), as_list(row.get("values"))
    operator = row.get("operator")
    if operator == "In":
        return value in wanted
    if operator == "NotIn":
        return value not in wanted
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    try:
        number, limit = int(str(value)), int(str(wanted[0]))
    except (IndexError, ValueError):
        return False
    return number > limit if operator == "Gt" else number < limit if operator == "Lt" else False


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint.get("key"))
    same_key = toleration.get("key") == taint.get("key")
    return same_key and (toleration.get("value") or "") == (taint.get("value") or "")
