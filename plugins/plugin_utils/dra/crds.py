# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver's CRDs: whether the live ones equal the chart's, and which field managers own them.

Helm never upgrades CRDs, and GPU Operator 26.7.0 ships the ComputeDomains of 25.12 (numNodes required), so the CRD that
is installed first stays; where GPU Operator owns it, the API server names what a ComputeDomain lacks. The role applies
the driver's by server-side apply after a check of the field managers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import GROUP
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding, finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, as_list, mapped

DOMAINS = f"computedomains.{GROUP}"
NAMES = (DOMAINS, f"computedomaincliques.{GROUP}")
FIELD_MANAGER = "rackscale.nvlink"
# Managers that write the CRDs once and do not reconcile them: Helm at an install, kubectl, the API server.
NEUTRAL_MANAGERS = frozenset(
    (
        FIELD_MANAGER,
        "before-first-apply",
        "helm",
        "Helm",
        "kube-apiserver",
        "kubectl",
        "kubectl-client-side-apply",
        "kubectl-create",
        "kubectl-replace",
    )
)


def evaluate(
    live: Mapping[str, Object | None],
    wanted: Mapping[str, Object],
    managers: Collection[str] = (),
) -> list[Finding]:
    """Findings on the live CRDs (None: not installed, which is no fault).

    wanted: the chart's, by name; empty where GPU Operator installs them. managers: field managers from which the CRDs
    may be taken over, in addition to NEUTRAL_MANAGERS.
    """
    found: list[Finding] = []
    for name, crd in live.items():
        if crd is None:
            continue
        others = sorted(owners(crd) - NEUTRAL_MANAGERS - set(managers))
        if others:
            message = f"The CRD {name} is managed by {' and '.join(others)}, which would revert the change; remove it"
            message = f"{message} there, or add the manager to dra_driver_crd_managers to take the CRD over."
            found.append(finding("dra_other_install", message, crd=name))
        difference = _stale(crd, wanted[name]) if name in wanted else None
        if difference:
            remedy = "run the role with its tag crds, which applies the chart's"
            message = f"The CRD {name} differs from the chart's in {difference}; {remedy}."
            found.append(finding("dra_crd_stale", message, crd=name))
    return found


def owners(crd: Object) -> set[str]:
    """The field managers that hold fields of a CRD's spec."""
    rows = map(mapped, as_list(mapped(crd.get("metadata")).get("managedFields")))
    return {str(row.get("manager")) for row in rows if "f:spec" in mapped(row.get("fieldsV1"))}


def schema(crd: Object) -> Object | None:
    """The OpenAPI schema of v1beta1; None if there is no such version."""
    for row in map(mapped, as_list(mapped(crd.get("spec")).get("versions"))):
        if row.get("name") == "v1beta1":
            return mapped(mapped(row.get("schema")).get("openAPIV3Schema"))
    return None


def _stale(live: Object, wanted: Object) -> str | None:
    """The first field in which a live CRD's schema is wrong; None if it is right."""
    has = schema(live)
    return "its version v1beta1, which is missing" if has is None else difference(has, schema(wanted) or {})


def difference(one: Any, other: Any, path: str = "") -> str | None:
    """The first path at which two schemas differ; descriptions and the order of `required` are ignored."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in sorted({*one, *other}):
            # A property named description has a schema, not a text.
            if key == "description" and all(isinstance(side.get(key, ""), str) for side in (one, other)):
                continue
            if key not in one or key not in other:
                return f"{path}.{key}".lstrip(".")
            below = difference(one[key], other[key], f"{path}.{key}")
            if below:
                return below
        return None
    if path.endswith(".required") and isinstance(one, list) and isinstance(other, list):
        one, other = sorted(map(str, one)), sorted(map(str, other))
    return None if one == other else path.lstrip(".")
