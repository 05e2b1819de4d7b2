# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The provider of examples/isvctl: what is broken fails exactly the tests that it is about.

The suite's own code is not here; `result` says when a check of it passes, as its public documentation does.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import CHECKOUT

EXAMPLE = CHECKOUT / "examples" / "isvctl"
NEEDED = {
    "NET02-02": ("nvlink_domain", lambda out: bool(out["nvlink_domain_id"]) and every(out)),
    "STG05-01": ("query_topology", lambda out: all(host["failure_domain"] for host in out["hosts"])),
    "TELEM07-01": ("gpu_nvlink_telemetry", lambda out: every(out) and has_evidence(out)),
    "BFX02-01": ("query_maintenance_events", lambda out: out["events_queryable"] and bool(out["events"])),
    "BFX01-02": ("return_node_maintenance", lambda out: out["operation"]["accepted"]),
    "BFX01-03": ("return_rack_maintenance", lambda out: out["operation"]["accepted"]),
}
"""Test -> (its step, whether an answer passes)."""
SKIPPED = ["BFX01-02", "BFX01-03"]
"""They change something, so without NVLINK_APPLY they are skipped."""


def every(out: dict[str, Any]) -> bool:
    return all(test["passed"] for test in out["tests"].values())


def has_evidence(out: dict[str, Any]) -> bool:
    probes = out["tests"]["link_metrics_present"]["probes"]
    return all(probes[key] for key in ("telemetry_source", "metric_names", "links_checked", "sample_count"))


def utc(**ago: float) -> str:
    return (datetime.now(timezone.utc) - timedelta(**ago)).strftime("%Y-%m-%dT%H:%M:%SZ")


class Files:
    """The files of the example site, as verify and facts.yml write them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fabric = json.loads((CHECKOUT / "examples" / "site" / "fabric.json").read_text())
        self.state: dict[str, Any] = {"trays": dict.fromkeys(self.fabric["trays"])}
        self.verdict: dict[str, Any] = {
            "checked_at": utc(hours=1),
            "failures": [
                {"code": "gpu_lost", "severity": "error", "message": "x", "remediation": "y", "trays": ["r01t01"]}
            ],
        }
        self.facts = {
            tray: {
                "nvlink_fabric": {"clique": f"{domain['cluster_uuid']}.32766"},
                "nvlink_links": {"observed_at": utc(minutes=1), "gpus": [{"link_count": 18}]},
            }
            for tray, place in self.fabric["trays"].items()
            for domain in [self.fabric["domains"][place["clique"]]]
        }

    def results(self, **more: str) -> dict[str, str]:
        """Test -> passed, failed or skipped."""
        (self.folder / "facts").mkdir()
        for name, document in (("fabric", self.fabric), ("fabric.state", self.state), ("verdict", self.verdict)):
            (self.folder / f"{name}.json").write_text(json.dumps(document))
        for tray, facts in self.facts.items():
            (self.folder / "facts" / f"{tray}.json").write_text(json.dumps(facts))
        return {test: self.result(*NEEDED[test], more) for test in NEEDED}

    def result(self, step: str, passes: Callable[[dict[str, Any]], bool], more: dict[str, str]) -> str:
        command = [sys.executable, str(EXAMPLE / "scripts" / "nvlink.py"), step]
        done = subprocess.run(command, cwd=self.folder, env=more, capture_output=True, text=True, check=False)
        out = json.loads(done.stdout)
        assert done.returncode == (0 if out["success"] else 1)
        if out.get("skipped"):
            return "skipped"
        if not out["success"]:
            assert out.get("error") or not every(out)
            return "failed"
        return "passed" if passes(out) else "failed"


def unplaced(files: Files) -> None:
    files.state["trays"]["r09t01"] = {"state": "unplaced"}


def detached(files: Files) -> None:
    files.facts["r01t03"]["nvlink_fabric"]["clique"] = ""


def moved(files: Files) -> None:
    files.facts["r01t03"]["nvlink_fabric"] = files.facts["r02t03"]["nvlink_fabric"]


def without_links(files: Files) -> None:
    files.facts["r02t18"]["nvlink_links"]["gpus"][0]["link_count"] = None


def old_facts(files: Files) -> None:
    files.facts["r02t18"]["nvlink_links"]["observed_at"] = utc(hours=1)


def silent(files: Files) -> None:
    del files.facts["r01t01"]


def old_verdict(files: Files) -> None:
    files.verdict["checked_at"] = utc(days=3)


BREAKS: dict[Callable[[Files], object], list[str]] = {
    (lambda _files: None): [],
    unplaced: ["STG05-01"],
    detached: ["NET02-02"],
    moved: ["NET02-02"],
    without_links: ["TELEM07-01"],
    old_facts: ["TELEM07-01"],
    # Neither its clique nor its links are known.
    silent: ["NET02-02", "TELEM07-01"],
    old_verdict: ["BFX02-01"],
}


@pytest.mark.parametrize("change", BREAKS)
def test_what_is_broken_fails_exactly_its_tests(tmp_path: Path, change: Callable[[Files], object]) -> None:
    files = Files(tmp_path)
    change(files)
    results = files.results()
    assert [test for test, result in results.items() if result == "failed"] == BREAKS[change]
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


def test_every_step_has_its_place_in_a_suite() -> None:
    steps = [
        step["args"]
        for path in (EXAMPLE / "config").glob("*.yaml")
        for rows in yaml.safe_load(path.read_text())["commands"].values()
        for step in rows["steps"]
    ]
    assert sorted(steps) == sorted([step] for step, _passes in NEEDED.values())
    sizes = [len(path.read_text().splitlines()) for path in (*EXAMPLE.rglob("*.py"), *EXAMPLE.glob("config/*"))]
    assert sum(sizes) <= 350
