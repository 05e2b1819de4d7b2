# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The provider of examples/isvctl: what is broken fails exactly the tests that it is about.

The suite's own code is not here; `result` says when a check of it passes, as its public documentation does.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import CHECKOUT

EXAMPLE = CHECKOUT / "examples" / "isvctl"


def every(out: dict[str, Any]) -> bool:
    return all(test["passed"] for test in out["tests"].values())


def has_evidence(out: dict[str, Any]) -> bool:
    probes = out["tests"]["link_metrics_present"]["probes"]
    return all(probes[key] for key in ("telemetry_source", "metric_names", "links_checked", "sample_count"))


def has_imex(node: dict[str, Any]) -> bool:
    parts = [node[key] for key in ("in_nvlink_allocation", "service_present", "control_tooling_present")]
    return parts == [True] * 3 and node["service_registration"] == "loaded"


def is_connected(out: dict[str, Any]) -> bool:
    peers = {node["node_id"]: node["peers_reachable"] for node in out["nodes"] if node["domain_member"]}
    pairs = list(itertools.permutations(out["domain"]["expected_members"], 2))
    return out["domain"]["state"] == "up" and bool(pairs) and all(two in peers.get(one, ()) for one, two in pairs)


def has_identifiers(machine: dict[str, Any]) -> bool:
    return all(part["identifiers"] for part in machine["components"].values())


NEEDED = {
    "NET02-02": ("nvlink_domain", lambda out: bool(out["nvlink_domain_id"]) and every(out)),
    "SDN17-01": ("imex_service", lambda out: all(map(has_imex, out["nodes"]))),
    "SDN21-01": ("imex_domain", is_connected),
    "STG05-01": ("query_topology", lambda out: all(host["failure_domain"] for host in out["hosts"])),
    "TELEM07-01": ("gpu_nvlink_telemetry", lambda out: every(out) and has_evidence(out)),
    "BFX03-01": ("query_serial_numbers", lambda out: all(map(has_identifiers, out["machines"]))),
    "BFX02-01": ("query_maintenance_events", lambda out: out["events_queryable"] and bool(out["events"])),
    "BFX01-02": ("return_node_maintenance", lambda out: out["operation"]["accepted"]),
    "BFX01-03": ("return_rack_maintenance", lambda out: out["operation"]["accepted"]),
}
"""Test -> (its step, whether an answer passes)."""
SKIPPED = ["BFX01-02", "BFX01-03"]
"""They change something, so without NVLINK_APPLY they are skipped."""


def at(seconds: int) -> str:
    """The time so many seconds ago, as the files have it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - seconds))


class Files:
    """The files of the example site, as verify and facts.yml write them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fabric = json.loads((CHECKOUT / "examples" / "site" / "fabric.json").read_text())
        self.state: dict[str, Any] = {"trays": dict.fromkeys(self.fabric["trays"])}
        self.verdict: dict[str, Any] = {
            "checked_at": at(60),
            "failures": [
                {"code": "gpu_lost", "severity": "error", "message": "x", "remediation": "y", "trays": ["r01t01"]}
            ],
        }
        self.facts: dict[str, Any] = {tray: self.healthy(tray) for tray in self.fabric["trays"]}

    def healthy(self, tray: str) -> dict[str, Any]:
        places = self.fabric["trays"]
        domain = self.fabric["domains"][places[tray]["clique"]]
        peers = [place for name, place in places.items() if name != tray and place["clique"] == places[tray]["clique"]]
        return {
            "nvlink_fabric": {
                "observed_at": at(60),
                "clique": f"{domain['cluster_uuid']}.32766",
                "chassis_serial": "1820925000123",
                "gpus": [{"uuid": "GPU-1"}],
            },
            "nvlink_links": {"observed_at": "2026-11-21T05:00:00Z", "gpus": [{"link_count": 18}]},
            "nvlink_imex": {
                "installed": True,
                "control_tool": True,
                "ready": True,
                "domain_state": "up",
                "unit": {"load": "loaded", "enabled": "enabled"},
                "peers": [{"host": place["imex_address"], "connection": "connected"} for place in peers],
            },
            "nvlink_serials": {"baseboard": "1", "cpus": ["2"], "nics": [{"interface": "ib0", "serial": "3"}]},
        }

    def results(self, **more: str) -> dict[str, str]:
        """Test -> passed, failed or skipped."""
        (self.folder / "facts").mkdir()
        for name, document in (("fabric", self.fabric), ("fabric.state", self.state), ("verdict", self.verdict)):
            (self.folder / f"{name}.json").write_text(json.dumps(document))
        for tray in filter(self.facts.get, self.facts):
            (self.folder / "facts" / f"{tray}.json").write_text(json.dumps(self.facts[tray]))
        return {test: result(self.folder, test, more) for test in NEEDED}


def result(folder: Path, test: str, settings: dict[str, str]) -> str:
    """passed, failed or skipped, by the files in a folder."""
    step, passes = NEEDED[test]
    command = [sys.executable, str(EXAMPLE / "scripts" / "nvlink.py"), step]
    done = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, check=False)
    out = json.loads(done.stdout)
    assert done.returncode == (0 if out["success"] else 1)
    if out.get("skipped"):
        return "skipped"
    if not out["success"]:
        assert out.get("error") or not every(out)
        return "failed"
    return "passed" if passes(out) else "failed"


OF_FACTS = ["NET02-02", "SDN17-01", "SDN21-01", "TELEM07-01", "BFX03-01"]
IMEX = ("facts", "r01t03", "nvlink_imex")
OTHER_RACK, LONG_AGO = "a0c7d71d-cdd4-40b4-0440-8f5e8fd1db30.32766", "2026-01-01T00:00:00Z"
STOPPED = {"ready": False, "domain_state": None, "peers": []}


@pytest.mark.parametrize(
    ("path", "value", "failed"),
    [
        ((), {}, []),
        (("state", "trays"), {"r09t01": {"state": "unplaced"}}, ["STG05-01"]),
        (("facts", "r01t03", "nvlink_fabric", "clique"), "", ["NET02-02"]),
        (("facts", "r01t03", "nvlink_fabric", "clique"), OTHER_RACK, ["NET02-02"]),
        (("facts", "r02t18", "nvlink_links", "gpus", 0, "link_count"), None, ["TELEM07-01"]),
        ((*IMEX, "peers", 0, "connection"), "disconnected", ["SDN21-01"]),
        (IMEX, STOPPED, ["SDN21-01"]),
        ((*IMEX, "unit", "load"), "masked", ["SDN17-01"]),
        ((*IMEX, "control_tool"), False, ["SDN17-01"]),
        (("facts", "r01t03", "nvlink_serials", "nics", 0, "serial"), None, ["BFX03-01"]),
        # Nothing that the tray reports is known: its facts are old, or it did not answer.
        (("facts", "r01t03", "nvlink_fabric", "observed_at"), LONG_AGO, OF_FACTS),
        (("facts", "r01t03"), None, OF_FACTS),
        (("verdict", "checked_at"), LONG_AGO, ["BFX02-01"]),
    ],
    ids=str,
)
def test_what_is_broken_fails_exactly_its_tests(
    tmp_path: Path, path: tuple[Any, ...], value: Any, failed: list[str]
) -> None:
    files = Files(tmp_path)
    holder: Any = vars(files)
    for step in path[:-1]:
        holder = holder[step]
    for key in path[-1:]:
        holder[key] = {**holder[key], **value} if isinstance(value, dict) else value
    results = files.results(NVLINK_DOMAIN="r01")
    assert [test for test, result in results.items() if result == "failed"] == failed
    assert [test for test, result in results.items() if result == "skipped"] == SKIPPED


@pytest.mark.parametrize(("status", "result"), [(0, "passed"), (2, "failed")])
def test_a_node_and_a_rack_are_returned_by_draining_them(tmp_path: Path, status: int, result: str) -> None:
    playbook = tmp_path / "ansible-playbook"
    playbook.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\nexit {status}\n')
    playbook.chmod(0o755)
    settings = {
        "NVLINK_APPLY": "1",
        "NVLINK_NODE": "r01t01",
        "NVLINK_DOMAIN": "r02",
        "PATH": f"{tmp_path}:/bin:/usr/bin",
    }
    results = Files(tmp_path).results(**settings)
    assert [results[test] for test in SKIPPED] == [result, result]
    asked = (tmp_path / "asked").read_text().splitlines()
    assert ['"drain_trays": "r01t01"' in asked[0], '"drain_trays": "r02"' in asked[1]] == [True, True]


def test_a_clique_that_is_not_in_the_fabric_file_is_an_error(tmp_path: Path) -> None:
    assert Files(tmp_path).results(NVLINK_DOMAIN="r09")["SDN21-01"] == "failed"


def test_every_step_has_its_place_in_a_suite() -> None:
    steps = [
        step["args"]
        for path in (EXAMPLE / "config").glob("*.yaml")
        for rows in yaml.safe_load(path.read_text())["commands"].values()
        for step in rows["steps"]
    ]
    assert sorted(steps) == sorted([step] for step, _passes in NEEDED.values())
    assert sum(len(path.read_text().splitlines()) for path in EXAMPLE.rglob("*") if path.is_file()) <= 350
