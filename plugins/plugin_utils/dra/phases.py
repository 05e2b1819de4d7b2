# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run one phase of checks for the DRA driver: read a snapshot, compute findings, repeat while errors may disappear."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result, Specification
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import ERROR, Finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import login
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import (
    arguments,
    checks,
    crds,
    device_plugins,
    domain_probe,
    domains,
    dry_run,
    preflight,
    upgrade,
    values,
    versions,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.snapshot import Reader, api_version
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import Object, mapped

PUBLIC = ("preflight", "checks", "uninstall")
"""Phases of the module dra_driver_info."""
INTERNAL = (*PUBLIC, "imex", "upgrade", "dry_run", "release_failure", "probe", "probe_leftovers")
"""Phases of the module dra_driver_phase."""
PAUSE = 2.0
"""Seconds between two snapshots while errors may disappear."""
SPEC: dict[str, Specification] = {
    **arguments.SPEC,
    "kubelet_root": {"type": "path", "default": "/var/lib/kubelet"},
    "cdi_enabled": {"type": "bool", "default": False},
    "extra_keys": {"type": "list", "elements": "str", "default": []},
    "crd_managers": {"type": "list", "elements": "str", "default": []},
    "fail": {"type": "bool", "default": True},
}
"""Arguments of both modules, without phase."""


@dataclass(frozen=True)
class Inputs:
    """Results of earlier steps of the role, which a later step needs. Each is empty where its phase does not need it.

    chart_crds, chart_values: the chart's CRDs and values.yaml. imex_pending: see preflight.Plan.
    claims_before: rows of checks.Claim. old_values, old_manifest, new_manifest: see upgrade.compare(). helm_error: what
    a failed Helm printed. probe_*: see domain_probe.objects(); probe_objects and probe_domains are those of an earlier
    call.
    """

    chart_crds: Sequence[Object] = ()
    chart_values: values.Values = field(default_factory=dict)
    imex_pending: bool = False
    claims_before: Sequence[Object] = ()
    old_values: values.Values = field(default_factory=dict)
    old_manifest: str = ""
    new_manifest: str = ""
    helm_error: str = ""
    probe_namespace: str = "default"
    probe_image: str = ""
    probe_objects: Sequence[Object] = ()
    probe_domains: Sequence[str] = ()


def run(options: Arguments, inputs: Inputs, hostvars: Any) -> Result:
    """The result of a module; NvlinkError for wrong options and an API server that cannot be read."""
    version = versions.pinned(options["chart_version"])
    # A wrong shape fails before any request.
    values.build(options["shape"], options["values"])
    trays, missing = arguments.trays(options["trays"], hostvars)
    ends = time.monotonic() + options["wait"]
    if options["phase"] == "release_failure":
        # Without a request: the API server may be what failed.
        return _outcome([dry_run.release_failure(inputs.helm_error, options["release"], options["namespace"])], options)
    access = login.of_kubeconfig(options, "dra_driver")
    if options["phase"] == "dry_run":
        rows = dry_run.objects(inputs.new_manifest)
        return _outcome(dry_run.DryRun(access).refused(rows, options["namespace"], inputs.chart_crds), options)
    while True:
        # A new client for each snapshot, since a client has one deadline.
        snapshot = Reader(access).snapshot()
        plan = _plan(options, inputs, version, snapshot)
        found = _findings(options["phase"], inputs, snapshot, trays, plan)
        errors = [row for row in found if row["severity"] == ERROR]
        if not errors or time.monotonic() + PAUSE > ends:
            break
        time.sleep(PAUSE)
    if options["phase"] in ("preflight", "checks"):
        found = [*missing, *found]
        errors = [row for row in found if row["severity"] == ERROR]
    result: Result = {
        "changed": False,
        "changes": [],
        "ok": not errors,
        "findings": found,
        **_facts(snapshot, trays, plan),
    }
    if options["phase"] == "probe":
        result["probe_objects"] = domain_probe.objects(snapshot, trays, inputs.probe_namespace, inputs.probe_image)
        result["probe_domains"] = _uids(snapshot, inputs.probe_objects)
    return {**result, **_messages(found, errors, options["fail"])}


def _outcome(found: Sequence[Finding], options: Arguments) -> Result:
    """The result of a phase that needs no snapshot."""
    errors = [row for row in found if row["severity"] == ERROR]
    result: Result = {"changed": False, "changes": [], "ok": not errors, "findings": list(found)}
    return {**result, **_messages(found, errors, options["fail"])}


def _plan(
    options: Arguments, inputs: Inputs, version: versions.Version, snapshot: preflight.Snapshot
) -> preflight.Plan:
    return arguments.plan(
        options,
        version,
        snapshot,
        kubelet_root=options["kubelet_root"],
        cdi_enabled=options["cdi_enabled"],
        extra_keys=options["extra_keys"],
        crd_managers=options["crd_managers"],
        chart_crds={str(mapped(row.get("metadata")).get("name")): row for row in inputs.chart_crds},
        chart_values=inputs.chart_values,
        # The owner of IMEX changes after this phase.
        imex_pending=inputs.imex_pending or options["phase"] == "imex",
    )


def _findings(
    phase: str, inputs: Inputs, snapshot: preflight.Snapshot, trays: preflight.Trays, plan: preflight.Plan
) -> list[Finding]:
    if phase in ("preflight", "imex"):
        all_found = [*preflight.preflight(snapshot, trays, plan), *device_plugins.check(snapshot, trays, plan)]
        if phase == "preflight":
            return all_found
        # The preflight itself reports the warnings, when the trays have been read too.
        errors = [row for row in all_found if row["severity"] == ERROR]
        return [*preflight.missing_permissions(snapshot), *errors]
    if phase == "upgrade":
        manifests = (inputs.old_manifest, inputs.new_manifest)
        return upgrade.compare(inputs.old_values, plan.values or {}, *manifests, plan.chart_values)
    if phase == "probe":
        return domain_probe.evaluate(snapshot, inputs.probe_objects, plan)
    if phase == "probe_leftovers":
        return domain_probe.find_leftovers(snapshot, inputs.probe_domains)
    if phase == "uninstall":
        return [*preflight.missing_permissions(snapshot), *checks.blockers(snapshot)]
    before = [checks.Claim(**{name: row[name] for name in checks.Claim._fields}) for row in inputs.claims_before]
    live = crds.evaluate(snapshot["crds"], plan.chart_crds, plan.crd_managers, plan.stand_alone)
    twice = device_plugins.check(snapshot, trays, plan)
    return [*checks.check(snapshot, trays, plan), *twice, *checks.lost_claims(before, snapshot), *live]


def _facts(snapshot: preflight.Snapshot, trays: preflight.Trays, plan: preflight.Plan) -> Result:
    """The results that do not depend on the phase."""
    installed = preflight.release_version(snapshot, plan)
    live_crds = {name: crd for name, crd in snapshot["crds"].items() if crd is not None}
    managers = {manager for crd in live_crds.values() for manager in crds.owners(crd)}
    return {
        "release_values": plan.values or {},
        "stand_alone": plan.stand_alone,
        "api_version": api_version(snapshot),
        "kubernetes_version": snapshot["version"],
        "nodes": sorted(preflight.expected_nodes(snapshot, trays)),
        "upgrades_old_chart": bool(installed and installed.is_old_chart),
        "claims": [claim._asdict() for claim in checks.claims(snapshot)],
        "crds": sorted(live_crds),
        "crds_shared": bool(snapshot["gpu_clusters"] or managers - crds.NEUTRAL_MANAGERS - set(plan.crd_managers)),
    }


def _messages(found: Sequence[Finding], errors: Sequence[Finding], fail: bool) -> Result:
    """The failure with the first error, and all other findings as warnings."""
    failed = bool(errors) and fail
    rows = [row for row in found if not (failed and row is errors[0])]
    result: Result = {"warnings": [f"{row['code']}: {row['message']}" for row in rows]} if rows else {}
    if failed:
        more = f" (and {count(len(errors) - 1, 'more error')}, see the warnings)" if len(errors) > 1 else ""
        result.update(failed=True, msg=errors[0]["message"] + more)
    return result


def _uids(snapshot: preflight.Snapshot, objects: Sequence[Object]) -> list[str]:
    """The UIDs of the existing ComputeDomains among the objects of a probe."""
    names = {preflight.name_of(row) for row in objects}
    return [domains.uid_of(item) for item in snapshot["compute_domains"] if preflight.name_of(item) in names]
