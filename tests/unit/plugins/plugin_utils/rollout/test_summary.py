# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last lines of a run: what was done in all, and each change."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.rollout import summary

NODES = ["r01t01", "r01t02", "r01t03"]


@pytest.mark.parametrize(
    ("arguments", "result", "check", "expected"),
    [
        (
            {"state": "drained", "nodes": NODES},
            {
                "changes": ["r01t02: drained (nvlink: drain)"],
                "drained_by_others": {"r01t03": "broken fan"},
                "running_jobs": {"r01t02": ["17", "18"], "r01t03": ["18"]},
                "unknown_nodes": ["r01t01"],
            },
            False,
            [
                "2 trays are drained: r01t[02-03]; jobs still run on 2 trays: r01t[02-03]; slurmctld does not know"
                " r01t01.",
                "r01t02: drained (nvlink: drain)",
                "r01t03: was drained before (broken fan)",
                "r01t02: still runs job 17, job 18",
                "r01t03: still runs job 18",
            ],
        ),
        (
            {"state": "resumed"},
            {"changes": ["r01t01: resumed"], "drained_by_others": {"r01t03": "nvlink: broken"}},
            False,
            ["1 tray resumed.", "r01t01: resumed", "r01t03: stays drained (nvlink: broken)"],
        ),
        (
            {
                "state": "spares_present",
                "active": "16",
                "blocks": [{"nodes": ["r01t01"]}, {"nodes": ["r02t01"]}, {"nodes": []}],
            },
            {"changes": ["nvlink_spare_r01: r01t18 becomes a spare"]},
            False,
            [
                "Up to 16 trays of each of 2 blocks run jobs, the others are spares: 1 reservation changed.",
                "nvlink_spare_r01: r01t18 becomes a spare",
            ],
        ),
        ({"state": "spares_absent"}, {}, True, ["No block has spare trays: no reservation changes."]),
    ],
)
def test_the_result_of_slurm_nodes(
    arguments: dict[str, Any], result: dict[str, Any], check: bool, expected: list[str]
) -> None:
    assert summary.of_nodes(arguments, result, check) == expected


def test_the_result_of_a_rollout_in_check_mode() -> None:
    assert summary.of_rollout("imex", {}, ["r03"], True) == ["Rollout imex: 1 clique unfinished: r03."]
    # A new tray has no place in the fabric file before a run without --check.
    assert summary.of_rollout("resume", {}, [], True) == [
        "Rollout resume: no clique yet, since check mode places no tray."
    ]
    assert summary.of_rollout("resume", {}, [], False) == ["Rollout resume: no clique."]


PLAN = {"msg": "2 trays; phases: verify."}
LAST = "Site: 2 trays; phases: verify."


def test_the_result_of_site_is_its_last_line() -> None:
    verified = {
        "text": ["all layers agree.", "slurm: skipped"],
        "summary": "all layers agree.",
        "verdict": {"ok": True},
    }
    rendered = {"domain_map": ["r01"], "render_dir": "/srv"}
    rollout = {"text": ["Rollout imex."], "unfinished": [], "msg": "The rollout imex is complete."}
    expected = ["slurm: skipped", "all layers agree.", "r01", "Report: /srv/report/index.html.", "Rollout imex.", LAST]
    assert summary.of_site(PLAN, verified, rendered, rollout, False) == (expected, "")
    assert summary.of_site(PLAN, {}, {}, {}, False) == ([LAST], "")


def test_site_fails_by_an_unfinished_rollout_or_the_verdict() -> None:
    verified = {"text": ["Disagree."], "summary": "Disagree. First: r01t01.", "verdict": {"ok": False}}
    unfinished = {"text": ["Rollout imex."], "unfinished": ["r01"], "msg": "1 clique unfinished."}
    assert summary.of_site(PLAN, verified, {}, {}, False)[1] == "Disagree. First: r01t01. See the verdict above."
    assert summary.of_site(PLAN, verified, {}, unfinished, False) == (
        ["Disagree.", "Rollout imex."],
        "1 clique unfinished.",
    )
    # In check mode nothing has changed.
    assert summary.of_site(PLAN, verified, {}, {}, True) == ([summary.BEFORE, "Disagree.", LAST], "")
    agree = {"text": ["Agree."], "summary": "Agree.", "verdict": {"ok": True}}
    assert summary.of_site(PLAN, agree, {}, {}, True) == (["Agree.", LAST], "")
    assert summary.of_site(PLAN, verified, {}, unfinished, True)[1] == "1 clique unfinished."
