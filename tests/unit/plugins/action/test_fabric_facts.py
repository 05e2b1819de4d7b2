# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What becomes of a tray's answer that has fewer facts than were asked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.action.fabric_facts import ActionModule
from ansible_collections.rackscale.nvlink.plugins.module_utils import subsets

WHOLE = json.loads(json.dumps(subsets.gather(subsets.Options(gather_subset=["gpu", "versions"]))))
GPU, VERSIONS = (WHOLE["ansible_facts"][name] for name in ("nvlink_fabric", "nvlink_versions"))


@pytest.mark.parametrize(
    ("facts", "named"),
    [
        (WHOLE["ansible_facts"], []),
        ({"nvlink_fabric": "x", "nvlink_versions": VERSIONS}, ["ansible_facts.nvlink_fabric"]),
        ({"nvlink_fabric": GPU}, ["no facts of versions"]),
        ({"nvlink_fabric": None, "nvlink_versions": None}, ["no facts of gpu, versions"]),
        ({}, ["no facts of gpu, versions"]),
    ],
)
@pytest.mark.parametrize("asked", [["gpu", "versions"], "gpu,versions"])
def test_a_subset_that_is_missing_is_a_finding(
    run_action: Any, monkeypatch: pytest.MonkeyPatch, asked: Any, facts: dict[str, Any], named: list[str]
) -> None:
    answer = {"changed": False, "changes": [], "findings": [], "ansible_facts": facts}
    monkeypatch.setattr(ActionModule, "_execute_module", lambda self, **options: dict(answer))
    found = run_action(ActionModule, gather_subset=asked)["findings"]
    assert [row["code"] for row in found] == ["tray_answer_invalid"] * len(named)
    assert all(text in row["message"] for text, row in zip(named, found, strict=True))


@pytest.mark.parametrize(
    "answer",
    [
        {"failed": True, "msg": "down", "ansible_facts": {"discovered_interpreter_python": "/usr/bin/python3"}},
        {"findings": [{"code": "tray_subset_failed", "severity": "error", "message": "x", "part": "gpu"}]},
    ],
)
def test_an_answer_that_gives_the_reason_has_no_second_finding(
    run_action: Any, monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any]
) -> None:
    monkeypatch.setattr(ActionModule, "_execute_module", lambda self, **options: dict(answer))
    assert run_action(ActionModule).get("findings", []) == answer.get("findings", [])
