# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The blocks that slurm_nodes receives from the fabric file, and the options that it rejects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible_collections.rackscale.nvlink.plugins.action.slurm_nodes import ActionModule
from ansible_collections.rackscale.nvlink.plugins.modules import slurm_nodes

from .conftest import clustered


@pytest.mark.parametrize(
    ("clusters", "cluster", "nodes"), [((), None, ["r01t01", "r01t02"]), (("alpha", "beta"), "beta", ["r01t02"])]
)
def test_the_blocks_are_those_of_the_cluster(
    run_action: Any, answer: Any, tmp_path: Path, clusters: tuple[str, ...], cluster: str | None, nodes: list[str]
) -> None:
    asked = answer(none={"changed": False})
    path = clustered(tmp_path, *clusters)
    run_action(ActionModule, state="spares_present", fabric_file=path, active=1, cluster=cluster)
    assert asked == [{"state": "spares_present", "active": 1, "blocks": [{"name": "r01", "nodes": nodes}]}]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, r"fabric.json: has several Slurm clusters \(alpha, beta\); set the option cluster"),
        ({"cluster": "gamma"}, "fabric.json: has no Slurm cluster 'gamma'"),
        ({"blocks": []}, "blocks"),
    ],
)
def test_a_bad_option_is_one_sentence(run_action: Any, tmp_path: Path, options: dict[str, Any], sentence: str) -> None:
    path = clustered(tmp_path, "alpha", "beta")
    with pytest.raises(AnsibleError, match=sentence):
        run_action(ActionModule, state="spares_present", fabric_file=path, active=1, **options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"state": "drained", "active": 16}, "option active: has no meaning for state drained"),
        ({"state": "resumed", "fabric_file": "f.json"}, "option fabric_file: has no meaning for state resumed"),
        ({"state": "spares_present", "active": 0}, "option active: is 0, use a number from 1"),
        ({"state": "drained", "user": "root"}, ""),
    ],
)
def test_an_option_without_meaning_for_the_state_is_one_sentence(options: dict[str, Any], sentence: str) -> None:
    params = {name: argument.get("default") for name, argument in slurm_nodes.ARGUMENTS.items()}
    assert sentence in slurm_nodes.misplaced({**params, **options})
    assert bool(slurm_nodes.misplaced({**params, **options})) == bool(sentence)


@pytest.mark.parametrize("source", ["group", "file"])
def test_a_tray_runs_no_command_for_others(run_action: Any, answer: Any, tmp_path: Path, source: str) -> None:
    asked = answer(none={"changed": False})
    known: dict[str, Any] = {"groups": {"nvlink": ["r01t01"]}}
    if source == "file":
        known = {"hostvars": {"localhost": {"fabric_file": clustered(tmp_path)}}}
    with pytest.raises(AnsibleActionFail, match="slurm_controller: 'r01t01' is a tray of the fabric, and no tray may"):
        run_action(ActionModule, task_vars={**known, "inventory_hostname": "r01t01"}, state="spares_absent")
    assert asked == []


@pytest.mark.core
def test_facts_in_the_answer_of_the_controller_are_dropped(run_action: Any, answer: Any) -> None:
    jobs = {"n1": ["7"]}
    answer(none={"changed": True, "changes": ["x"], "running_jobs": jobs, "ansible_facts": {"rollout_test": ["x"]}})
    result = run_action(ActionModule, state="spares_absent")
    assert (result["running_jobs"], "ansible_facts" in result) == (jobs, False)
    assert [row["code"] for row in result["findings"]] == ["tray_answer_invalid"]
