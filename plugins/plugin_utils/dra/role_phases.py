# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run one phase of checks for the DRA driver: read a snapshot, compute findings, repeat while errors may disappear."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import tray_report
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import http, login
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import (
    chart_rules,
    chart_values,
    checks,
    crds,
    device_plugins,
    domains,
    dry_run,
    preflight,
    stranded,
    upgrade,
    versions,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.snapshot import Reader, api_version
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import alike, joined
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.model import Finding
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.table import ERROR
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import mapped

PAUSE = 2.0
"""Seconds between two snapshots while errors may disappear."""


def run(options: Arguments, hostvars: Any, check: bool) -> Result:
    """The result of the module; NvlinkError for wrong options and an API server that cannot be read.

    check: whether in check mode.
    """
    version = versions.pinned(options["chart_version"])
    # A wrong shape fails before any request.
    chart_values.build(options["shape"], options["values"])
    trays, missing = read_trays(options["trays"], hostvars)
    ends = time.monotonic() + options["wait"]
    access = login.of_kubeconfig(options, "dra_driver")
    while True:
        # A new client for each snapshot, since a client has one deadline.
        snapshot = Reader(access).snapshot()
        plan = _plan(options, version, snapshot)
        found = _findings(options, access, snapshot, trays, plan, check)
        if not _errors(found) or time.monotonic() + PAUSE > ends:
            break
        time.sleep(PAUSE)
    if options["phase"] in ("preflight", "checks"):
        found = [*missing, *found]
    result: Result = {"ok": not _errors(found), "findings": found}
    return {**result, **_facts(snapshot, trays, plan), **messages(found, options["fail"])}


def _errors(found: Sequence[Finding]) -> list[Finding]:
    return [row for row in found if row["severity"] == ERROR]


def read_trays(names: Sequence[str], hostvars: Any) -> tuple[dict[str, preflight.Tray], list[Finding]]:
    """(the trays with their facts, from an earlier task of this run or a fact cache; why facts are missing)."""
    found: dict[str, preflight.Tray] = {}
    findings: list[Finding] = []
    for name, (report, variables) in tray_report.cached(hostvars, names).items():
        node = variables.get("nvlink_kubernetes_node") or name
        if "{" in str(node):
            node = hostvars[name]["nvlink_kubernetes_node"]
        found[name] = preflight.Tray(
            node=str(node),
            gpu=report.gpu,
            imex=report.imex,
            root=_root(variables.get("dra_driver_root_files")),
        )
        findings += report.refused
    return found, findings


def _root(result: Any) -> bool | None:
    """Whether the role's search below the driver root found both programs; None for a tray without a result."""
    if not isinstance(result, Mapping) or not isinstance(result.get("stdout"), str):
        return None
    return {line.rpartition("/")[2] for line in result["stdout"].splitlines()} == {"nvidia-smi", "libnvidia-ml.so.1"}


def _plan(options: Arguments, version: versions.Version, snapshot: preflight.Snapshot) -> preflight.Plan:
    blank = preflight.Plan({}, version, options["namespace"], options["release"])
    old_name = preflight.keeps_old_name(snapshot, blank)
    best = api_version(snapshot["groups"])
    made = chart_values.build(options["shape"], options["values"], best, old_name, options["kubelet_root"])
    same = ("external_label_writer", "cdi_enabled", "crd_managers", "chart_values")
    return replace(
        blank,
        values=None if options["shape"] == "gpu_cluster" else made,
        chart_crds={str(mapped(row.get("metadata")).get("name")): row for row in options["chart_crds"]},
        # The owner of IMEX changes after this phase.
        imex_pending=options["imex_pending"] or options["phase"] == "imex",
        **{name: options[name] for name in same},
    )


def _findings(
    options: Arguments,
    access: http.ClientConfig,
    snapshot: preflight.Snapshot,
    trays: preflight.Trays,
    plan: preflight.Plan,
    check: bool,
) -> list[Finding]:
    phase = options["phase"]
    if phase in ("preflight", "imex"):
        all_found = [*preflight.preflight(snapshot, trays, plan), *device_plugins.check(snapshot, trays, plan)]
        # The preflight itself reports the warnings, when the trays have been read too.
        missing = preflight.missing_permissions(snapshot)
        return all_found if phase == "preflight" else [*missing, *_errors(all_found)]
    if phase == "manifest":
        unread = options["unread_keys"]
        (new, _unread), (old, _unread) = (dry_run.documents(options[key]) for key in ("manifest", "old_manifest"))
        release = (options["namespace"], options["release"])
        refused = [
            *chart_rules.check_unread(
                unread, plan.chart_values, chart_rules.templates(options["chart"]) if unread else ""
            ),
            *dry_run.DryRun(access, release).refused(options["manifest"], options["chart_crds"], check),
        ]
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
        "variants": chart_rules.variants(plan.values or {}, plan.chart_values),
        "stand_alone": plan.stand_alone,
        "api_version": api_version(snapshot["groups"]),
        "kubernetes_version": snapshot["version"],
        "nodes": sorted(preflight.expected_nodes(snapshot, trays)),
        "free_nodes": stranded.free_nodes(snapshot, trays),
        "compute_domains": stranded.beside(snapshot, trays),
        "probe_namespaces": sorted({str(preflight.namespace_of(row)) for row in domains.probes(snapshot)}),
        "upgrades_old_chart": bool(installed and installed.is_old_chart),
        "claims": [claim._asdict() for claim in checks.claims(snapshot)],
        "crds": sorted(live_crds),
        "crds_shared": bool(snapshot["gpu_clusters"] or managers - crds.NEUTRAL_MANAGERS - set(plan.crd_managers)),
    }


def messages(found: Sequence[Finding], fail: bool) -> Result:
    """The failure with the first error, and all other findings as warnings, those of several trays or nodes as one."""
    rows = [cast("Finding", joined(same)) for same in alike(found, ("code",))]
    errors = _errors(rows) if fail else []
    texts = [f"{row['code']}: {row['message']}" for row in rows if row not in errors[:1]]
    result: Result = {"warnings": texts} if texts else {}
    if errors:
        more = f" (and {count(len(errors) - 1, 'more error')}, see the warnings)" if len(errors) > 1 else ""
        result.update(failed=True, msg=errors[0]["message"] + more)
    return result
