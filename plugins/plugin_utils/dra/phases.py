# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run one phase of checks for the DRA driver: read a snapshot, compute findings, repeat while errors may disappear."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result, Specification
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import ERROR, Finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import http, login
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import (
    arguments,
    checks,
    crds,
    device_plugins,
    dry_run,
    preflight,
    stranded,
    upgrade,
    values,
    versions,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.snapshot import Reader, api_version
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.values import mapped

PHASES = ("imex", "preflight", "manifest", "checks", "uninstall")
PAUSE = 2.0
"""Seconds between two snapshots while errors may disappear."""
SPEC: dict[str, Specification] = {
    **arguments.SPEC,
    "kubelet_root": {"type": "path", "default": "/var/lib/kubelet"},
    "cdi_enabled": {"type": "bool", "default": False},
    "extra_keys": {"type": "list", "elements": "str", "default": []},
    "crd_managers": {"type": "list", "elements": "str", "default": []},
    "fail": {"type": "bool", "default": True},
    "phase": {"type": "str", "choices": list(PHASES), "required": True},
    "chart_crds": {"type": "list", "elements": "dict", "default": []},
    "chart_values": {"type": "dict", "default": {}},
    "imex_pending": {"type": "bool", "default": False},
    "manifest": {"type": "str", "default": ""},
    "old_values": {"type": "dict", "default": {}},
    "old_manifest": {"type": "str", "default": ""},
    "claims_before": {"type": "list", "elements": "dict", "default": []},
}
"""Arguments of the module."""


def run(options: Arguments, hostvars: Any) -> Result:
    """The result of the module; NvlinkError for wrong options and an API server that cannot be read."""
    version = versions.pinned(options["chart_version"])
    # A wrong shape fails before any request.
    values.build(options["shape"], options["values"])
    trays, missing = arguments.trays(options["trays"], hostvars)
    ends = time.monotonic() + options["wait"]
    access = login.of_kubeconfig(options, "dra_driver")
    while True:
        # A new client for each snapshot, since a client has one deadline.
        snapshot = Reader(access).snapshot()
        plan = _plan(options, version, snapshot)
        found = _findings(options, access, snapshot, trays, plan)
        if not _errors(found) or time.monotonic() + PAUSE > ends:
            break
        time.sleep(PAUSE)
    if options["phase"] in ("preflight", "checks"):
        found = [*missing, *found]
    result: Result = {"changed": False, "changes": [], "ok": not _errors(found), "findings": found}
    return {**result, **_facts(snapshot, trays, plan), **_messages(found, options["fail"])}


def _errors(found: Sequence[Finding]) -> list[Finding]:
    return [row for row in found if row["severity"] == ERROR]


def _plan(options: Arguments, version: versions.Version, snapshot: preflight.Snapshot) -> preflight.Plan:
    return arguments.plan(
        options,
        version,
        snapshot,
        kubelet_root=options["kubelet_root"],
        cdi_enabled=options["cdi_enabled"],
        extra_keys=options["extra_keys"],
        crd_managers=options["crd_managers"],
        chart_crds={str(mapped(row.get("metadata")).get("name")): row for row in options["chart_crds"]},
        chart_values=options["chart_values"],
        # The owner of IMEX changes after this phase.
        imex_pending=options["imex_pending"] or options["phase"] == "imex",
    )


def _findings(
    options: Arguments,
    access: http.ClientConfig,
    snapshot: preflight.Snapshot,
    trays: preflight.Trays,
    plan: preflight.Plan,
) -> list[Finding]:
    phase = options["phase"]
    if phase in ("preflight", "imex"):
        all_found = [*preflight.preflight(snapshot, trays, plan), *device_plugins.check(snapshot, trays, plan)]
        # The preflight itself reports the warnings, when the trays have been read too.
        missing = preflight.missing_permissions(snapshot)
        return all_found if phase == "preflight" else [*missing, *_errors(all_found)]
    if phase == "manifest":
        new, old = (dry_run.objects(options[key]) for key in ("manifest", "old_manifest"))
        refused = dry_run.DryRun(access).refused(new, options["namespace"], options["chart_crds"])
        if not old:
            return refused
        return [*refused, *upgrade.compare(options["old_values"], plan.values or {}, old, new, plan.chart_values)]
    if phase == "uninstall":
        return [*preflight.missing_permissions(snapshot), *checks.blockers(snapshot)]
    before = [checks.Claim(**{name: row[name] for name in checks.Claim._fields}) for row in options["claims_before"]]
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
        "free_nodes": stranded.free_nodes(snapshot, trays),
        "upgrades_old_chart": bool(installed and installed.is_old_chart),
        "claims": [claim._asdict() for claim in checks.claims(snapshot)],
        "crds": sorted(live_crds),
        "crds_shared": bool(snapshot["gpu_clusters"] or managers - crds.NEUTRAL_MANAGERS - set(plan.crd_managers)),
    }


def _messages(found: Sequence[Finding], fail: bool) -> Result:
    """The failure with the first error, and all other findings as warnings."""
    errors = _errors(found) if fail else []
    rows = [row for row in found if row not in errors[:1]]
    result: Result = {"warnings": [f"{row['code']}: {row['message']}" for row in rows]} if rows else {}
    if errors:
        more = f" (and {count(len(errors) - 1, 'more error')}, see the warnings)" if len(errors) > 1 else ""
        result.update(failed=True, msg=errors[0]["message"] + more)
    return result
