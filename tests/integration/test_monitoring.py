# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metrics, the alert rules and the dashboard's queries, checked with Prometheus' promtool."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric, State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import metrics
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.context import RenderContext
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.verdict import verdict
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from nvlab.trees import SHARED, VIEWERS

from .conftest import CHECKOUT

MONITORING = CHECKOUT / "docs" / "monitoring"
ALERTS = MONITORING / "alerts.yml"
DASHBOARD = json.loads((MONITORING / "grafana-dashboard.json").read_text())
USE = {"nodes": 18, "free_nodes": 17, "stranded_gpus": 3, "blocked_by": {"jobs/train": ["r01t01"]}}
VERDICT = fabrics.verdict(fabrics.FAILURE, compute_domains={"unknown": [], "cliques": {"r01": USE}})


def promtool(directory: Path, *arguments: str, stdin: str = "") -> str:
    """Run promtool in a directory of the test and return its output; an error fails the test."""
    command = VIEWERS.command(["sh", "-c", f'cd {SHARED} && exec promtool "$@"', "sh", *arguments], directory)
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def numbers(fabric: Fabric, state: State) -> str:
    context = RenderContext(verdict=verdict(VERDICT, "verdict.json"))
    return metrics.render(fabric, state, context)["metrics/nvlink_fabric.prom"]


@pytest.mark.lab
@pytest.mark.long
def test_promtool_accepts_metrics_and_queries_and_each_alert_fires_for_its_cause_alone(tmp_path: Path) -> None:
    fabric = fabrics.fabric()
    fabric.cliques["r01"]["block"]["name"] = 'a "block"\\ of\nmine'
    assert promtool(tmp_path, "check", "metrics", stdin=numbers(fabric, fabrics.state(fabric, spare={}))) == ""
    shutil.copy(ALERTS, tmp_path)
    shutil.copy(Path(__file__).parent / "fixtures" / "alerts_test.yml", tmp_path)
    assert "11 rules found" in promtool(tmp_path, "check", "rules", "--lint-fatal", "alerts.yml")
    assert "SUCCESS" in promtool(tmp_path, "test", "rules", "alerts_test.yml")
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(_queries())]
    (tmp_path / "queries.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool(tmp_path, "check", "rules", "queries.yml")


def test_every_alert_is_tested() -> None:
    named = {rule["alert"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]}
    tests = (Path(__file__).parent / "fixtures" / "alerts_test.yml").read_text()
    assert {name for name in named if name not in tests} == set()


def test_alerts_and_dashboard_query_only_metrics_that_are_written() -> None:
    fabric = fabrics.fabric()
    text = numbers(
        fabric, fabrics.state(fabric, r01t01={"findings": [{"code": "x", "severity": "error", "message": ""}]})
    )
    written = {
        name: set(re.findall(r'([a-z_]+)="', labels or ""))
        for name, labels in re.findall(r"(?m)^(nvlink_[a-z_]+)(\{.*\})? \d+$", text)
    }
    expressions = [rule["expr"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    for query in (*expressions, *_queries()):
        for name, selector in re.findall(r"\b(nvlink_[a-z_]+)(\{[^}]*\})?", query):
            assert name in written, query
            assert set(re.findall(r"([a-z_]+)=", selector)) <= written[name], query


def test_grafanas_model_returns_every_field_of_the_dashboard() -> None:
    plugins.register_default_plugins()
    # An import sets the id, so the file has none; the model omits fields that are null.
    mine = {key: value for key, value in DASHBOARD.items() if key != "id"}
    assert list(_lost(mine, _through_grafana(mine))) == []


def _through_grafana(dashboard: dict[str, Any]) -> dict[str, Any]:
    """The dashboard after reading it into Grafana's types and writing it again."""
    again: dict[str, Any] = json.loads(JSONEncoder().encode(Dashboard.from_json(copy.deepcopy(dashboard))))
    return again


def _lost(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """The paths of lost or changed values; defaults that Grafana adds do not count."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before):
            yield from _lost(before[key], after[key], f"{path}/{key}") if key in after else [f"{path}/{key}"]
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after)):
            yield from _lost(one, other, f"{path}/{number}")
    elif before != after:
        yield path


def _queries() -> list[Any]:
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
