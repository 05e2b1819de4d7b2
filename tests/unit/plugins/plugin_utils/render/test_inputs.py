# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What render reads of other programs: verdict.json and squeue."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import RenderError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.running_jobs import running_jobs
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.verdict import layers, verdict
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics


def test_a_layer_is_ok_where_it_was_checked_and_has_no_error() -> None:
    warned = {**fabrics.FAILURE, "severity": "warning", "layer": "imex"}
    words = {"hardware": "checked", "slurm": "checked", "imex": "checked", "tiers": "skipped: no tiers"}
    parsed = verdict(fabrics.verdict(fabrics.FAILURE, warned, layers=words), "verdict.json")
    assert [(layer.name, layer.checked, layer.ok, layer.why_not) for layer in layers(parsed)] == [
        ("hardware", True, True, ""),
        ("slurm", True, False, ""),
        ("imex", True, True, ""),
        ("tiers", False, False, "no tiers"),
    ]
    assert layers(parsed)[1].failures == {"error": 1}


def test_failures_are_sorted_worst_first_and_counted() -> None:
    rows = [
        {**fabrics.FAILURE, "severity": "info", "tray": None},
        *[{**fabrics.FAILURE, "tray": "r01t10"}] * 9_998,
        fabrics.FAILURE,
    ]
    parsed = verdict(fabrics.verdict(*rows, layers={}), "verdict.json")
    assert [row["tray"] for row in parsed["failures"]] == ["r01t02", *["r01t10"] * 9_998, ""]
    # Every layer with a failure is listed.
    assert [(layer.name, layer.failures) for layer in layers(parsed)] == [("slurm", {"error": 9_999, "info": 1})]


USE = {"nodes": 18, "free_nodes": 17, "stranded_gpus": 2, "blocked_by": {"jobs/train": ["r01t01"]}}


@pytest.mark.parametrize(
    "document",
    [[], {}, {"ok": 1, "failures": []}, {"ok": True, "failures": {}}, {"ok": True, "failures": [1]},
     {"ok": True, "failures": [], "layers": []},
      {"ok": True, "failures": [], "slurm_nodes": ["r01t01"]},
     {"ok": True, "failures": [], "compute_domains": []},
     {"ok": True, "failures": [], "compute_domains": {"unknown": [], "cliques": {"a": {"nodes": 1}}}},
     {"ok": True, "failures": [], "compute_domains": {"unknown": 1, "cliques": {}}},
     {"ok": True, "failures": [], "compute_domains": {"unknown": [], "cliques": {"a": {**USE, "nodes": "x"}}}},
     {"ok": True, "failures": [], "compute_domains": {"unknown": [], "cliques": {"a": {**USE, "blocked_by": []}}}}],
)  # fmt: skip
def test_any_other_verdict_is_rejected_with_one_sentence(document: Any) -> None:
    with pytest.raises(RenderError, match=r"^verdict\.json: "):
        verdict(document, "verdict.json")


def test_each_node_has_its_jobs_in_order() -> None:
    lines = ["4711 r01t[01-02],r02t01", "", "4712_3 r01t02"]
    assert running_jobs(lines) == {"r01t01": ("4711",), "r01t02": ("4711", "4712_3"), "r02t01": ("4711",)}
    assert running_jobs([]) == {}


@pytest.mark.parametrize("line", ["4711", "4711 r01t[01-", "squeue: error: x[", "1 r[1-999999]"])
def test_a_line_in_another_format_is_quoted_in_the_error(line: str) -> None:
    with pytest.raises(RenderError, match="squeue: the line"):
        running_jobs([line])
