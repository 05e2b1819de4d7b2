# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks at a cluster for the role dra_driver, on the controller; the module of the same name documents it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import ERROR
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import (
    arguments,
    checks,
    crds,
    domains,
    preflight,
    probe,
    upgrade,
    values,
    versions,
    waves,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.snapshot import Reader, api_version
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import kubeconfig

PHASES = ("preflight", "imex", "upgrade", "crds", "checks", "probe", "probe_left", "uninstall")
PAUSE = 2.0
"""Seconds between two looks while the phase checks waits."""


class ActionModule(ActionBase):
    """One snapshot of the cluster in, findings out. Changes nothing."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        _spec, options = self.validate_argument_spec(
            argument_spec={
                "phase": {"type": "str", "choices": list(PHASES), "required": True},
                **arguments.SPEC,
                "kubelet_root": {"type": "path", "default": "/var/lib/kubelet"},
                "cdi_enabled": {"type": "bool", "default": False},
                "extra_keys": {"type": "list", "elements": "str", "default": []},
                "crd_managers": {"type": "list", "elements": "str", "default": []},
                "wanted_crds": {"type": "list", "elements": "dict", "default": []},
                "imex_follows": {"type": "bool", "default": False},
                "claims_before": {"type": "list", "elements": "dict", "default": []},
                "old_values": {"type": "dict", "default": {}},
                "old_manifest": {"type": "str", "default": ""},
                "new_manifest": {"type": "str", "default": ""},
                "probe_namespace": {"type": "str", "default": "default"},
                "probe_image": {"type": "str", "default": "docker.io/library/busybox:1.37"},
                "probe_across": {"type": "bool", "default": False},
                "probe_objects": {"type": "list", "elements": "dict", "default": []},
                "probe_domains": {"type": "list", "elements": "str", "default": []},
                "fail": {"type": "bool", "default": True},
            }
        )
        try:
            result.update(self._look(options, task_vars or {}))
        except NvlinkError as error:
            raise AnsibleActionFail(str(error)) from None
        return result

    def _look(self, options: Mapping[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        version = versions.pinned(options["chart_version"])
        # A wrong shape fails before anything is asked.
        values.build(options["shape"], options["values"])
        reader = Reader(*kubeconfig.client_config(arguments.connection(options)))
        trays = arguments.trays(options["trays"], task_vars.get("hostvars") or {})
        ends = time.monotonic() + options["wait"]
        while True:
            seen = reader.snapshot()
            plan = self._plan(options, version, seen)
            looked_at = _of_waves(options, seen, trays, plan)
            found = _findings(options, *looked_at, plan)
            errors = [row for row in found if row["severity"] == ERROR]
            if not errors or time.monotonic() + PAUSE > ends:
                break
            time.sleep(PAUSE)
            # Each look has the whole deadline of a client.
            reader = Reader(*kubeconfig.client_config(arguments.connection(options)))
        if plan.waves and options["phase"] == "checks":
            found += waves.to_come(seen, trays, plan)
        live = preflight.release_version(seen, plan)
        result: dict[str, Any] = {
            "changed": False,
            "ok": not errors,
            "findings": found,
            "release_values": plan.values or {},
            "stand_alone": plan.stand_alone,
            "api_version": api_version(seen),
            "kubernetes_version": seen["version"],
            "nodes": sorted(preflight.expected_nodes(seen, trays)),
            "upgrades_old_chart": bool(live and live.is_old_chart),
            "claims": [claim._asdict() for claim in checks.claims(seen)],
            "waiting": waves.waiting(seen, trays) if plan.waves else [],
            "probe_objects": probe.objects(
                *looked_at, options["probe_namespace"], options["probe_image"], options["probe_across"]
            ),
            "probe_domains": _uids(seen, options["probe_objects"]),
            "crds": sorted(name for name, crd in seen["crds"].items() if crd is not None),
            "crds_shared": bool(seen["gpu_clusters"])
            or any(
                crds.owners(crd) - crds.PASSERS_BY - set(options["crd_managers"])
                for crd in seen["crds"].values()
                if crd is not None
            ),
        }
        told = [f"{row['code']}: {row['message']}" for row in found]
        if errors and options["fail"]:
            more = f" ({len(errors) - 1} more errors, see the warnings)" if len(errors) > 1 else ""
            result.update(failed=True, msg=errors[0]["message"] + more)
            told.remove(f"{errors[0]['code']}: {errors[0]['message']}")
        if told:
            result["warnings"] = told
        return result

    def _plan(self, options: Mapping[str, Any], version: versions.Version, seen: Mapping[str, Any]) -> preflight.Plan:
        return arguments.plan(
            options,
            version,
            seen,
            kubelet_root=options["kubelet_root"],
            cdi_enabled=options["cdi_enabled"],
            extra_keys=options["extra_keys"],
            crd_managers=options["crd_managers"],
            wanted_crds={str(row.get("metadata", {}).get("name")): row for row in options["wanted_crds"]},
            imex_follows=options["imex_follows"],
        )


def _of_waves(
    options: Mapping[str, Any], seen: Mapping[str, Any], trays: Mapping[str, preflight.Tray], plan: preflight.Plan
) -> tuple[Mapping[str, Any], Mapping[str, preflight.Tray]]:
    """What a phase is to look at: of a driver in waves the nodes that it is on, but before its install all of them."""
    if not plan.waves:
        return seen, trays
    return (waves.all_let_in(seen), trays) if options["phase"] == "preflight" else waves.let_in(seen, trays)


def _findings(
    options: Mapping[str, Any], seen: Mapping[str, Any], trays: Mapping[str, preflight.Tray], plan: preflight.Plan
) -> list[dict[str, Any]]:
    phase = options["phase"]
    if phase == "preflight":
        return preflight.preflight(seen, trays, plan)
    if phase == "imex":
        return preflight.imex_change(seen, trays, plan)
    if phase == "crds":
        return _crds(seen, plan)
    if phase == "upgrade":
        manifests = (options["old_manifest"], options["new_manifest"])
        return upgrade.drops(options["old_values"], plan.values or {}, *manifests)
    if phase == "probe":
        return probe.judge(seen, options["probe_objects"], plan)
    if phase == "probe_left":
        return probe.left(seen, options["probe_domains"])
    if phase == "uninstall":
        return [*preflight.unseen(seen), *checks.in_the_way(seen)]
    before = [checks.Claim(**{name: row[name] for name in checks.Claim._fields}) for row in options["claims_before"]]
    return [*checks.check(seen, trays, plan), *checks.lost(before, seen), *_crds(seen, plan)]


def _crds(seen: Mapping[str, Any], plan: preflight.Plan) -> list[dict[str, Any]]:
    return crds.judge(seen["crds"], plan.wanted_crds, plan.crd_managers, plan.stand_alone)


def _uids(seen: Mapping[str, Any], made: list[dict[str, Any]]) -> list[str]:
    """The UIDs of the ComputeDomains among what was made for a trial."""
    names = {preflight.name_of(row) for row in made}
    return [domains.uid_of(item) for item in seen["compute_domains"] if preflight.name_of(item) in names]
