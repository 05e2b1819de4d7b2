#!/usr/bin/env python3
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answer steps of NVIDIA's conformance suite (isvctl) from what this collection has written, as JSON on stdout.

It reads fabric.json, fabric.state.json, verdict.json of the playbook verify and the facts of facts.yml. Only the
two maintenance steps change anything, and only with NVLINK_APPLY=1: they run the playbook drain. Needs Python 3.9.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

PLATFORM = "bare_metal"
LINKS = ["state", "speed", "recoveries", "recoveries_successful", "recoveries_failed"]


class Unanswerable(Exception):
    """A step that cannot be answered, with the reason."""


def read(path: str, remedy: str) -> Any:
    """The content of a JSON file."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Unanswerable(f"{path}: {error}; {remedy}") from None


def age(when: str | None) -> float:
    """Seconds since a time in UTC, such as 2026-11-21T05:00:00Z; infinite for none."""
    if not when:
        return float("inf")
    then = datetime.strptime(when, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    return (datetime.now(timezone.utc) - then).total_seconds()


def passed(**tests: bool) -> dict[str, dict[str, bool]]:
    return {name: {"passed": value} for name, value in tests.items()}


class Site:
    """The files of one site; each is read when a step needs it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.fabric = read(options.fabric, "name a fabric file that discover wrote")

    @property
    def trays(self) -> list[str]:
        """The trays that a step is about: the named one, or all."""
        return [self.options.node] if self.options.node else sorted(self.fabric["trays"])

    def domain(self, tray: str) -> dict[str, Any] | None:
        place = self.fabric["trays"].get(tray)
        return place and {
            "name": self.fabric["cliques"][place["clique"]]["domain"],
            **self.fabric["domains"][self.fabric["cliques"][place["clique"]]["domain"]],
            "clique_id": self.fabric["cliques"][place["clique"]]["clique_id"],
        }

    def facts(self, tray: str) -> dict[str, Any]:
        """What facts.yml has written of a tray; empty where it did not answer."""
        path = os.path.join(self.options.facts, f"{tray}.json")
        return read(path, "run facts.yml") if os.path.exists(path) else {}

    def is_attached(self, tray: str) -> bool:
        """Whether the GPUs report the clique of the fabric file."""
        domain, fabric = self.domain(tray), self.facts(tray).get("nvlink_fabric", {})
        return bool(domain) and fabric.get("clique") == f"{domain['cluster_uuid']}.{domain['clique_id']}"


def nvlink_domain(site: Site) -> dict[str, Any]:
    """NET02-02: the NVLink domain of a node, where its GPUs confirm it."""
    placed = [tray for tray in site.trays if site.domain(tray)]
    differ = [tray for tray in placed if not site.is_attached(tray)]
    uuids = sorted({site.domain(tray)["cluster_uuid"] for tray in placed})
    return {
        "success": len(placed) == len(site.trays) and not differ,
        "node_id": ",".join(site.trays),
        "nvlink_supported": True,
        "nvlink_domain_id": ",".join(uuids),
        "tests": passed(
            node_resolved=len(placed) == len(site.trays),
            nvlink_support_detected=bool(placed),
            nvlink_domain_id_present=bool(placed) and not differ,
        ),
        **({"error": f"the GPUs of {', '.join(differ)} do not report the clique of the fabric file"} if differ else {}),
    }


def query_topology(site: Site) -> dict[str, Any]:
    """STG05-01: the rack of each host, unplaced trays included."""
    state = site.options.fabric.replace(".json", ".state.json")
    observed = read(state, "run discover")["trays"] if os.path.exists(state) else {}
    hosts = []
    for tray in sorted({*site.fabric["trays"], *observed}):
        domain = site.domain(tray)
        serials = ",".join(domain["chassis_serials"]) if domain else ""
        hosts.append({"host_id": tray, "failure_domain": serials or (domain["name"] if domain else "")})
    return {"success": True, "site_id": site.options.fabric, "hosts_checked": len(hosts), "hosts": hosts}


def query_maintenance_events(site: Site) -> dict[str, Any]:
    """BFX02-01: what verify found on trays, each with its remediation."""
    verdict = read(site.options.verdict, "run verify with verdict_file")
    events = [
        {
            "machine_id": tray,
            "status": row["severity"],
            "message": f"{row['code']}: {row['message']}",
            "recommended_action": row["remediation"],
        }
        for row in verdict["failures"]
        for tray in row["trays"]
    ]
    recent = age(verdict["checked_at"]) < site.options.verdict_age
    return {
        "success": recent,
        "events_queryable": recent,
        "events": events,
        **({} if recent else {"error": f"{site.options.verdict} is of {verdict['checked_at']}; run verify again"}),
    }


def drain(site: Site, variable: str, names: str | None, **operation: Any) -> dict[str, Any]:
    """Drain trays in Slurm by the playbook drain."""
    if not names or os.environ.get("NVLINK_APPLY") != "1":
        return {
            "success": True,
            "skipped": True,
            "skip_reason": f"set {variable}, and NVLINK_APPLY=1 to drain its trays",
        }
    command = ["ansible-playbook", "rackscale.nvlink.drain", "-e", f"fabric_file={site.options.fabric}"]
    given = {"drain_trays": names, "drain_reason": "isvctl", "drain_wait": site.options.drain_wait}
    done = subprocess.run([*command, "-e", json.dumps(given)], capture_output=True, text=True, check=False)
    last = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()][-1:]
    operation.update(requested=True, accepted=not done.returncode, message="".join(last) if done.returncode else "")
    return {"success": True, "operation": operation}


def return_node_maintenance(site: Site) -> dict[str, Any]:
    """BFX01-02: drain one tray."""
    return drain(site, "NVLINK_NODE", site.options.node, machine_id=site.options.node, maintenance_mode="drained")


def return_rack_maintenance(site: Site) -> dict[str, Any]:
    """BFX01-03: drain the trays of one NVLink domain."""
    return drain(site, "NVLINK_DOMAIN", site.options.domain, rack_id=site.options.domain)


def gpu_nvlink_telemetry(site: Site) -> dict[str, Any]:
    """TELEM07-01: the NVLinks of all GPUs, as NVML reports them."""
    read_links = {tray: site.facts(tray).get("nvlink_links") or {} for tray in site.trays}
    silent = [tray for tray, links in read_links.items() if not links]
    rows = {tray: links.get("gpus") or [] for tray, links in read_links.items()}
    gpus = [gpu for tray in site.trays for gpu in rows[tray]]
    blind = [
        tray for tray in rows if tray not in silent and not (rows[tray] and all(g["link_count"] for g in rows[tray]))
    ]
    times = sorted(links["observed_at"] for links in read_links.values() if links)
    evidence = {
        "telemetry_source": "NVML, read by rackscale.nvlink.fabric_facts",
        "metric_names": LINKS,
        "links_checked": sum(gpu["link_count"] or 0 for gpu in gpus),
        "sample_count": len(gpus),
        "latest_timestamp": times[-1] if times else "",
    }
    tests: dict[str, dict[str, Any]] = passed(
        telemetry_endpoint_reachable=not silent,
        link_metrics_present=bool(gpus) and not blind,
        samples_recent=bool(times) and age(times[0]) < site.options.facts_age,
    )
    tests["link_metrics_present"]["probes"] = evidence
    wrong = silent + blind
    error = {"error": f"no NVLinks of {', '.join(wrong)}"} if wrong else {}
    return {"success": all(test["passed"] for test in tests.values()), "tests": tests, **error}


STEPS = {
    step.__name__: step
    for step in (
        nvlink_domain,
        query_topology,
        query_maintenance_events,
        return_node_maintenance,
        return_rack_maintenance,
        gpu_nvlink_telemetry,
    )
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=sorted(STEPS))
    parser.add_argument("--fabric", default=os.environ.get("NVLINK_FABRIC_FILE", "fabric.json"))
    parser.add_argument("--verdict", default=os.environ.get("NVLINK_VERDICT_FILE", "verdict.json"))
    parser.add_argument("--facts", default=os.environ.get("NVLINK_FACTS", "facts"), help="folder that facts.yml wrote")
    parser.add_argument("--node", default=os.environ.get("NVLINK_NODE"), help="one tray; all where a step allows it")
    parser.add_argument("--domain", default=os.environ.get("NVLINK_DOMAIN"))
    parser.add_argument("--facts-age", type=float, default=900, help="seconds")
    parser.add_argument("--verdict-age", type=float, default=86400, help="seconds")
    parser.add_argument("--drain-wait", type=float, default=480, help="seconds to wait for running jobs")
    options = parser.parse_args()
    try:
        answer = STEPS[options.step](Site(options))
    except Unanswerable as error:
        answer = {"success": False, "error": str(error)}
    print(json.dumps({"platform": PLATFORM, "test_name": options.step, **answer}, indent=1))
    return 0 if answer["success"] else 1


if __name__ == "__main__":
    sys.exit(main())
