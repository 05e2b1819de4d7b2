#!/usr/bin/env python3
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answer steps of NVIDIA's conformance suite (isvctl) from what this collection has written, as JSON on stdout.

Usage: nvlink.py STEP. It reads the fabric file, verdict.json of the playbook verify and the facts of facts.yml. Only
the two maintenance steps change anything, and only with NVLINK_APPLY=1: they run the playbook drain. Python 3.9.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FABRIC = os.environ.get("NVLINK_FABRIC_FILE", "fabric.json")
VERDICT = os.environ.get("NVLINK_VERDICT_FILE", "verdict.json")
FACTS = os.environ.get("NVLINK_FACTS", "facts")
NODE = os.environ.get("NVLINK_NODE")
DOMAIN = os.environ.get("NVLINK_DOMAIN")
FACTS_AGE, VERDICT_AGE, DRAIN_WAIT = 900, 86400, 480  # seconds
LINKS = ["state", "speed", "recoveries", "recoveries_successful", "recoveries_failed"]
REGISTRATIONS = {"loaded": "loaded", "masked": "masked", "not-found": "not_found"}
"""LoadState of systemd -> the suite's word."""


def read(path: str, remedy: str, max_age: float = 0) -> Any:
    """The content of a JSON file; that of a verdict or of facts must be of the last ``max_age`` seconds."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        time_of = content.get("checked_at") or (content.get("nvlink_fabric") or {}).get("observed_at") or ""
        if max_age and time_of < time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - max_age)):
            raise ValueError(f"it is of {time_of}, which is too old")
        return content
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}; {remedy}") from None


def passed(error: str, **tests: bool) -> dict[str, Any]:
    """The tests of an answer, of which all must pass; the error where one does not."""
    results = {name: {"passed": value} for name, value in tests.items()}
    success = all(tests.values())
    return {"success": success, "tests": results, **({} if success else {"error": error})}


class Site:
    """The fabric file, and the facts of its trays, or of NVLINK_NODE alone."""

    def __init__(self) -> None:
        self.fabric = read(FABRIC, "name a fabric file that discover wrote")
        self.trays = [NODE] if NODE else sorted(self.fabric["trays"])

    def clique(self, tray: str) -> dict[str, Any] | None:
        """The clique of a tray with the fields of its domain; None for a tray without a place."""
        place = self.fabric["trays"].get(tray)
        clique = place and self.fabric["cliques"][place["clique"]]
        return clique and {"name": place["clique"], **self.fabric["domains"][clique["domain"]], **clique}

    def facts(self, tray: str, subset: str) -> dict[str, Any]:
        """The facts of a tray that facts.yml has written; empty where it did not answer in time."""
        try:
            return read(os.path.join(FACTS, f"{tray}.json"), "run facts.yml", FACTS_AGE).get(f"nvlink_{subset}") or {}
        except ValueError:
            return {}


def nvlink_domain(site: Site) -> dict[str, Any]:
    """NET02-02: the NVLink domain of a node, where its GPUs confirm it."""
    placed = {tray: clique for tray in site.trays if (clique := site.clique(tray))}
    named = {tray: f"{clique['cluster_uuid']}.{clique['clique_id']}" for tray, clique in placed.items()}
    differ = [tray for tray in site.trays if site.facts(tray, "fabric").get("clique") != named.get(tray, "none")]
    return {
        "node_id": ",".join(site.trays),
        "nvlink_supported": True,
        "nvlink_domain_id": ",".join(sorted({clique["cluster_uuid"] for clique in placed.values()})),
        **passed(
            f"the GPUs of {', '.join(differ)} do not report the clique of the fabric file",
            node_resolved=len(placed) == len(site.trays),
            nvlink_support_detected=bool(placed),
            nvlink_domain_id_present=bool(placed) and not differ,
        ),
    }


def imex_service(site: Site) -> dict[str, Any]:
    """SDN17-01: the daemon, its control tool and its unit on each tray."""
    nodes = []
    for tray in site.trays:
        imex = site.facts(tray, "imex")
        unit = imex.get("unit") or {}
        nodes.append(
            {
                "node_id": tray,
                "in_nvlink_allocation": site.clique(tray) is not None,
                "service_present": imex.get("installed", False),
                "control_tooling_present": imex.get("control_tool", False),
                "service_registration": REGISTRATIONS.get(unit.get("load"), "error"),
                "boot_disposition": unit.get("enabled") or "unknown",
            }
        )
    return {"success": True, "nodes": nodes, "nodes_checked": len(nodes), "nodes_validated": len(nodes)}


def imex_domain(site: Site) -> dict[str, Any]:
    """SDN21-01: the IMEX domain of one clique, as each of its trays reports it."""
    names = {DOMAIN} if DOMAIN else {(site.clique(tray) or {}).get("name") for tray in site.trays}
    if len(names) > 1:
        return {"success": True, "skipped": True, "skip_reason": "set NVLINK_DOMAIN to a clique"}
    places = {tray: place for tray, place in site.fabric["trays"].items() if place["clique"] in names}
    if not places:
        raise ValueError(f"{FABRIC} has no such clique or tray; correct NVLINK_DOMAIN or NVLINK_NODE")
    imex = {tray: site.facts(tray, "imex") for tray in places}
    tray_of = {place["imex_address"]: tray for tray, place in places.items()}
    states = {facts.get("domain_state") or "unknown" for facts in imex.values()}
    return {
        "success": True,
        "domain": {
            "domain_id": "".join(map(str, names)),
            "state": "up" if states == {"up"} else ",".join(sorted(states - {"up"})),
            "expected_members": sorted(places),
        },
        "nodes": [
            {
                "node_id": tray,
                "service_state": facts.get("state"),
                "domain_member": facts.get("ready", False),
                "peers_reachable": [
                    tray_of.get(peer["host"], peer["host"])
                    for peer in facts.get("peers", ())
                    if peer["connection"] == "connected"
                ],
            }
            for tray, facts in imex.items()
        ],
    }


def query_topology(site: Site) -> dict[str, Any]:
    """STG05-01: the rack of each host, unplaced trays included."""
    state = FABRIC.replace(".json", ".state.json")
    observed = read(state, "run discover")["trays"] if os.path.exists(state) else {}
    hosts = []
    for tray in sorted({*site.fabric["trays"], *observed}):
        clique = site.clique(tray) or {"chassis_serials": [], "domain": ""}
        hosts.append({"host_id": tray, "failure_domain": ",".join(clique["chassis_serials"]) or clique["domain"]})
    return {"success": True, "site_id": FABRIC, "hosts_checked": len(hosts), "hosts": hosts}


def query_serial_numbers(site: Site) -> dict[str, Any]:
    """BFX03-01: the parts of each tray."""
    machines = []
    for tray in site.trays:
        fabric, serials = site.facts(tray, "fabric"), site.facts(tray, "serials")
        found = {
            "chassis": [fabric.get("chassis_serial")],
            "baseboard": [serials.get("baseboard")],
            "cpu": serials.get("cpus") or [],
            "gpu": [gpu["uuid"] for gpu in fabric.get("gpus", ())],
            "nic": [nic["serial"] for nic in serials.get("nics", ())],
        }
        parts = {name: {"present": True, "identifiers": list(filter(None, ids))} for name, ids in found.items()}
        machines.append({"machine_id": tray, "components": parts})
    return {"success": True, "site_id": FABRIC, "machines_checked": len(machines), "machines": machines}


def query_maintenance_events(site: Site) -> dict[str, Any]:
    """BFX02-01: what verify found on trays, each with its remediation."""
    verdict = read(VERDICT, "run verify with verdict_file", VERDICT_AGE)
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
    return {"success": True, "events_queryable": True, "events": events}


def drain(variable: str, names: str | None, **operation: Any) -> dict[str, Any]:
    """Drain trays in Slurm by the playbook drain."""
    if not names or os.environ.get("NVLINK_APPLY") != "1":
        reason = f"set {variable}, and NVLINK_APPLY=1 to drain its trays"
        return {"success": True, "skipped": True, "skip_reason": reason}
    given = {"fabric_file": FABRIC, "drain_trays": names, "drain_reason": "isvctl", "drain_wait": DRAIN_WAIT}
    command = ["ansible-playbook", "rackscale.nvlink.drain", "-e", json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    last = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()][-1:]
    operation.update(requested=True, accepted=not done.returncode, message="".join(last) if done.returncode else "")
    return {"success": True, "operation": operation}


def return_node_maintenance(_site: Site) -> dict[str, Any]:
    """BFX01-02: drain one tray."""
    return drain("NVLINK_NODE", NODE, machine_id=NODE, maintenance_mode="drained")


def return_rack_maintenance(_site: Site) -> dict[str, Any]:
    """BFX01-03: drain the trays of one NVLink domain."""
    return drain("NVLINK_DOMAIN", DOMAIN, rack_id=DOMAIN)


def gpu_nvlink_telemetry(site: Site) -> dict[str, Any]:
    """TELEM07-01: the NVLinks of all GPUs, as NVML reports them."""
    links = {tray: site.facts(tray, "links") for tray in site.trays}
    counts = {tray: [gpu["link_count"] or 0 for gpu in found.get("gpus") or ()] for tray, found in links.items()}
    wrong = [tray for tray, of_gpus in counts.items() if not of_gpus or not all(of_gpus)]
    answer = passed(
        f"no NVLinks of {', '.join(wrong)}; run facts.yml",
        telemetry_endpoint_reachable=all(links.values()),
        link_metrics_present=not [tray for tray in wrong if links[tray]] and any(counts.values()),
        samples_recent=all(links.values()),
    )
    answer["tests"]["link_metrics_present"]["probes"] = {
        "telemetry_source": "NVML, read by rackscale.nvlink.fabric_facts",
        "metric_names": LINKS,
        "links_checked": sum(map(sum, counts.values())),
        "sample_count": sum(map(len, counts.values())),
        "latest_timestamp": max((found["observed_at"] for found in links.values() if found), default=""),
    }
    return answer


def main(step: str) -> int:
    try:
        answer = globals()[step](Site())
    except ValueError as error:
        answer = {"success": False, "error": str(error)}
    print(json.dumps({"platform": "bare_metal", "test_name": step, **answer}, indent=1))
    return 0 if answer["success"] else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
