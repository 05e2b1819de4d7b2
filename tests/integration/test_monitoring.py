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
RULES = {rule["alert"]: rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]}
DASHBOARD = json.loads((MONITORING / "grafana-dashboard.json").read_text())
USE = {"nodes": 18, "free_nodes": 17, "stranded_gpus": 3, "blocked_by": {"jobs/train": ["r01t01"]}}
VERDICT = fabrics.verdict(fabrics.FAILURE, compute_domains={"unknown": [], "cliques": {"r01": USE}})
R01 = 'clique="r01",domain="r01"'
UNHEALTHY = f'nvlink_clique_trays_by_health{{{R01},health="unhealthy"}}'
SPARES = f'nvlink_block_spare_trays{{block="r01",{R01},state='
ERRORS = 'nvlink_layer_failures{instance="head",layer="slurm",severity="error"}'
WELL = {
    "nvlink_fabric_info": "1x1600",
    UNHEALTHY: "0x1600",
    f'nvlink_clique_trays_by_state{{{R01},state="conflict"}}': "0x1600",
    f'nvlink_clique_trays_by_state{{{R01},state="stale"}}': "0x1600",
    f"nvlink_clique_working_trays{{{R01}}}": "16x1600",
    f"nvlink_clique_gpus{{{R01}}}": "72x1600",
    # Half a rack never held 16 trays.
    'nvlink_clique_working_trays{clique="r03a",domain="r03"}': "9x1600",
    'nvlink_clique_gpus{clique="r03a",domain="r03"}': "36x1600",
    'nvlink_domain_trays{domain="r01"}': "18x1600",
    'nvlink_domain_expected_trays{domain="r01"}': "18x1600",
    "nvlink_unplaced_trays": "0x1600",
    'nvlink_clique_stranded_gpus{clique="r01"}': "0x1600",
    # No longer than a job needs to start or end.
    'nvlink_clique_stranded_gpus{clique="r02"}': "0x9 8x30 0x1600",
    f'{SPARES}"reserved"}}': "2x1600",
    f'{SPARES}"free"}}': "2x1600",
    # A spare may run jobs in place of a broken tray.
    f'{SPARES}"promoted"}}': "1x1600",
    f'{SPARES}"missing"}}': "0x1600",
    # Not free, but reserved again within the hour.
    'nvlink_block_spare_trays{block="r02",clique="r02",domain="r02",state="free"}': "0x30 1x1600",
    'nvlink_block_spare_trays{block="r02",clique="r02",domain="r02",state="missing"}': "1x30 0x1600",
    "nvlink_repair_stopped": "0x1600",
    # As if no incident lasted longer.
    "nvlink_repair_oldest_incident_timestamp_seconds": "0+60x1600",
    ERRORS: "0x1600",
    'nvlink_layer_failures{instance="head",layer="slurm",severity="warning"}': "3x1600",
    # As if discover and verify ran every minute: the clock of these tests starts at 0.
    "nvlink_state_written_timestamp_seconds": "0+60x1600",
    "nvlink_verify_timestamp_seconds": "0+60x1600",
}
"""Series of a fabric in which all is well -> its values, one a minute."""
CAUSES = {
    "NvlinkTraysUnhealthy": ("critical", 10, "0x9 2x1600", UNHEALTHY),
    "NvlinkTraysInConflict": ("critical", 10, "0x9 1x1600", f'nvlink_clique_trays_by_state{{{R01},state="conflict"}}'),
    "NvlinkTraysStale": ("warning", 10, "0x9 3x1600", f'nvlink_clique_trays_by_state{{{R01},state="stale"}}'),
    "NvlinkCliqueHoldsNoSegment": ("warning", 10, "18x9 12x1600", f"nvlink_clique_working_trays{{{R01}}}"),
    "NvlinkDomainShort": ("warning", 10, "18x9 17x1600", 'nvlink_domain_trays{domain="r01"}'),
    "NvlinkTraysUnplaced": ("warning", 10, "0x9 1x1600", "nvlink_unplaced_trays"),
    "NvlinkGpusStranded": ("warning", 10, "0x9 3x1600", 'nvlink_clique_stranded_gpus{clique="r01"}'),
    "NvlinkSparesUsed": ("warning", 10, "2x9 0x1600", f'{SPARES}"free"}}'),
    "NvlinkSparesMissing": ("warning", 10, "0x9 1x1600", f'{SPARES}"missing"}}'),
    "NvlinkRepairStopped": ("critical", 10, "0x9 1x1600", "nvlink_repair_stopped"),
    "NvlinkIncidentOpen": ("warning", 1440, "0x1600", "nvlink_repair_oldest_incident_timestamp_seconds"),
    "NvlinkLayersDisagree": ("critical", 10, "0x9 4x1600", ERRORS),
    "NvlinkStateOld": ("warning", 1440, "0x1600", "nvlink_state_written_timestamp_seconds"),
    "NvlinkVerifyOld": ("warning", 1440, "0x1600", "nvlink_verify_timestamp_seconds"),
    "NvlinkMetricsMissing": ("warning", 0, "_x1600", "nvlink_fabric_info"),
}
"""Alert -> its severity, the minute of its cause, the values with the cause, and their series."""


def promtool(directory: Path, *arguments: str, stdin: str = "") -> str:
    """Run promtool in a directory of the test and return its output; an error fails the test."""
    command = VIEWERS.command(["sh", "-c", f'cd {SHARED} && exec promtool "$@"', "sh", *arguments], directory)
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def numbers(fabric: Fabric, state: State) -> str:
    context = RenderContext(
        verdict=verdict(VERDICT, "verdict.json"),
        nodes=dict.fromkeys(fabric.trays, "IDLE"),
        nodes_at="2026-11-21T05:00:00Z",
        repairs=fabrics.REPAIRS,
        spares_active=16,
    )
    return metrics.render(fabric, state, context)["metrics/nvlink_fabric.prom"]


@pytest.mark.lab
@pytest.mark.long
def test_promtool_accepts_metrics_and_queries_and_each_alert_fires_for_its_cause_alone(tmp_path: Path) -> None:
    fabric = fabrics.fabric()
    fabric.cliques["r01"]["block"]["name"] = 'a "block"\\ of\nmine'
    assert promtool(tmp_path, "check", "metrics", stdin=numbers(fabric, fabrics.state(fabric, spare={}))) == ""
    shutil.copy(ALERTS, tmp_path)
    assert set(CAUSES) == set(RULES)
    (tmp_path / "alerts_test.yml").write_text(yaml.safe_dump(_alert_tests()))
    assert "15 rules found" in promtool(tmp_path, "check", "rules", "--lint-fatal", "alerts.yml")
    assert "SUCCESS" in promtool(tmp_path, "test", "rules", "alerts_test.yml")
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(_queries())]
    (tmp_path / "queries.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool(tmp_path, "check", "rules", "queries.yml")


def test_alerts_and_dashboard_query_only_metrics_that_are_written() -> None:
    fabric = fabrics.fabric()
    text = numbers(
        fabric, fabrics.state(fabric, r01t01={"findings": [{"code": "x", "severity": "error", "message": ""}]})
    )
    written = {
        name: set(re.findall(r'([a-z_]+)="', labels or ""))
        for name, labels in re.findall(r"(?m)^(nvlink_[a-z_]+)(\{.*\})? \d+$", text)
    }
    for query in (*(rule["expr"] for rule in RULES.values()), *_queries()):
        for name, selector in re.findall(r"\b(nvlink_[a-z_]+)(\{[^}]*\})?", query):
            assert name in written, query
            assert set(re.findall(r"([a-z_]+)=", selector)) <= written[name], query


def _alert_tests() -> dict[str, Any]:
    """promtool's tests: each alert fires alone, for its cause and once that has lasted; without one none does."""
    tests: list[dict[str, Any]] = [{"input_series": WELL, "promql_expr_test": [{"expr": "ALERTS", "eval_time": "26h"}]}]
    firing = 'ALERTS{alertstate="firing"}'
    for name, (severity, begins, values, series) in CAUSES.items():
        lasts = str(RULES[name]["for"])
        fires = begins + int(lasts[:-1]) * (60 if lasts[-1] == "h" else 1)
        labels = {**dict(re.findall(r'(\w+)="(\w+)"', series)), "alertname": name, "severity": severity}
        braced = ", ".join(f'{key}="{text}"' for key, text in {**labels, "alertstate": "firing"}.items())
        fired = [{"labels": f"ALERTS{{{braced}}}", "value": 1}]
        expected = [
            {"expr": firing, "eval_time": f"{fires - 2}m"},
            {"expr": firing, "eval_time": f"{fires + 2}m", "exp_samples": fired},
        ]
        tests.append({"input_series": {**WELL, series: values}, "promql_expr_test": expected})
    for test in tests:
        test["input_series"] = [{"series": series, "values": values} for series, values in test["input_series"].items()]
    return {
        "rule_files": ["alerts.yml"],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", **t} for t in tests],
    }


def test_grafanas_model_returns_every_field_of_the_dashboard() -> None:
    plugins.register_default_plugins()
    # An import sets the id, so the file has none; the model omits fields that are null.
    mine = {key: value for key, value in DASHBOARD.items() if key != "id"}
    again = json.loads(JSONEncoder().encode(Dashboard.from_json(copy.deepcopy(mine))))
    assert list(_lost(mine, again)) == []


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
