# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What render reads of other programs: verdict.json, a rehearsal and squeue."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.rehearsal.rehearse import Outcome, Rehearsal
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import rehearsal
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.errors import RenderError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.running_jobs import running_jobs
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render.verdict import MAX_FAILURES, verdict
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics


def test_a_layer_is_ok_where_it_was_checked_and_has_no_error() -> None:
    warned = {**fabrics.FAILURE, "severity": "warning", "layer": "imex"}
    layers = {"hardware": "checked", "slurm": "checked", "imex": "checked", "tiers": "skipped: no tiers"}
    parsed = verdict(fabrics.verdict(fabrics.FAILURE, warned, layers=layers), "verdict.json")
    assert [(layer.name, layer.checked, layer.ok, layer.why_not) for layer in parsed.layers] == [
        ("hardware", True, True, ""),
        ("slurm", True, False, ""),
        ("imex", True, True, ""),
        ("tiers", False, False, "no tiers"),
    ]
    assert parsed.layers[1].failures == {"error": 1}


def test_failures_are_sorted_worst_first_counted_and_limited() -> None:
    rows = [
        {**fabrics.FAILURE, "severity": "info", "tray": None},
        *[{**fabrics.FAILURE, "tray": "r01t10"}] * 9_998,
        fabrics.FAILURE,
    ]
    parsed = verdict(fabrics.verdict(*rows, layers={}), "verdict.json")
    assert [row["tray"] for row in parsed.failures] == ["r01t02", *["r01t10"] * (MAX_FAILURES - 1)]
    assert parsed.more == 10_000 - MAX_FAILURES
    # Every layer with a failure is listed.
    assert [(layer.name, layer.failures) for layer in parsed.layers] == [("slurm", {"error": 9_999, "info": 1})]


@pytest.mark.parametrize(
    "document",
    [[], {}, {"ok": 1, "failures": []}, {"ok": True, "failures": {}}, {"ok": True, "failures": [1]},
     {"ok": True, "failures": [], "layers": []},
     {"ok": True, "failures": [], "compute_domains": []},
     {"ok": True, "failures": [], "compute_domains": {"unknown": [], "cliques": {"a": {"nodes": 1}}}},
     {"ok": True, "failures": [], "compute_domains": {"unknown": 1, "cliques": {}}}],
)  # fmt: skip
def test_any_other_verdict_is_rejected_with_one_sentence(document: Any) -> None:
    with pytest.raises(RenderError, match=r"^verdict\.json: "):
        verdict(document, "verdict.json")


def document_of(*outcomes: Outcome, **more: Any) -> dict[str, Any]:
    """A rehearsal as the module returns it."""
    made = Rehearsal(**{"ran": True, "loaded": True, "version": "26.05.5", "outcomes": list(outcomes), **more})
    document: dict[str, Any] = json.loads(json.dumps(made.result()))
    return document


BLOCKS = [Outcome("block", size, "p", 0, "r01", "placed", "x", ["r01"]) for size in (1, 9, 18)]


def test_the_summary_counts_all_jobs_and_rows_show_the_notable_ones() -> None:
    refused = Outcome("partition", 19, "gold", 0, "", "refused", reason="too many nodes")
    shown = rehearsal.rehearsed(document_of(*BLOCKS, refused), "f")
    assert shown.good
    assert "Jobs were placed in 1 of 1 block, and 3 of 4 test jobs would run" in shown.summary
    assert [job["partition"] for job in shown.jobs] == ["gold"]
    bad = rehearsal.rehearsed(document_of(Outcome("block", 18, "p", 0, "r02", "refused"), *BLOCKS), "f")
    assert not bad.good
    assert [job["block"] for job in bad.jobs] == ["r02"]
    assert rehearsal.rehearsed(document_of(*[refused] * 300), "f").more == 100


@pytest.mark.parametrize(
    ("more", "summary"),
    [
        ({"ran": False, "why": "it needs root"}, "The rehearsal was not possible: it needs root."),
        ({"loaded": False, "fatal": "no"}, "slurmctld 26.05.5 refuses the files: no."),
    ],
)
def test_the_summary_of_a_missing_or_refused_rehearsal(more: dict[str, Any], summary: str) -> None:
    shown = rehearsal.rehearsed(document_of(**more), "f")
    assert shown.summary == summary
    assert not shown.good


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"outcomes": 1},
        document_of() | {"outcomes": [1]},
        document_of() | {"outcomes": [{"nodes": "x", "segment": 0}]},
    ],
)
def test_any_other_rehearsal_is_rejected_with_one_sentence(document: Any) -> None:
    with pytest.raises(RenderError, match=r"^/x/f.json: .*rehears"):
        rehearsal.rehearsed(document, "/x/f.json")


def test_each_node_has_its_jobs_in_order() -> None:
    lines = ["4711 r01t[01-02],r02t01", "", "4712_3 r01t02"]
    assert running_jobs(lines) == {"r01t01": ("4711",), "r01t02": ("4711", "4712_3"), "r02t01": ("4711",)}
    assert running_jobs([]) == {}


@pytest.mark.parametrize("line", ["4711", "4711 r01t[01-", "squeue: error: x[", "1 r[1-999999]"])
def test_a_line_in_another_format_is_quoted_in_the_error(line: str) -> None:
    with pytest.raises(RenderError, match="squeue: the line"):
        running_jobs([line])
