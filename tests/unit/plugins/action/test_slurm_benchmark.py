# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The blocks that slurm_benchmark returns, and how the output of their jobs becomes failures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.rackscale.nvlink.plugins.action.slurm_benchmark import ActionModule
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

BUSY = {"rc": 1, "stderr": "Requested nodes are busy"}
PROGRAM = {"name": "bw", "kind": "nvbandwidth", "command": "nvbandwidth \\\n\t-t x"}


@pytest.fixture
def fabric(tmp_path: Path) -> str:
    path = tmp_path / "fabric.json"
    path.write_text(json.dumps(fabrics.fabric(racks=2, trays=2, split=()).as_dict()))
    return str(path)


def test_the_blocks_of_the_named_cliques_are_benchmarked(run_action: Any, fabric: str) -> None:
    plan = run_action(ActionModule, fabric_file=fabric, check=True, programs=[PROGRAM])
    assert [row["name"] for row in plan["blocks"]] == ["r01", "r02"]
    assert plan["text"] == ["2 blocks would be benchmarked: r01, r02."]
    assert plan["programs"] == [{**PROGRAM, "seconds": 600, "min_bandwidth": None}]
    # As -e benchmark_cliques=r02 gives it.
    plan = run_action(ActionModule, fabric_file=fabric, cliques="r02")
    assert plan["blocks"] == [{"name": "r02", "nodes": ["r02t01", "r02t02"]}]


def test_what_the_jobs_printed_is_evaluated(run_action: Any, fabric: str) -> None:
    def place(node: str) -> dict[str, Any]:
        return {"rc": 0, "stdout": f"0: node={node} address=r01.{node} channels=channel0,", "stderr": ""}

    ran = {
        "block": "r01",
        "reserved": {"rc": 0},
        "halves": [place("r01t01"), place("r01t02")],
        "programs": [{"rc": 124, "stdout": "", "stderr": "srun: Force Terminated job 7\n"}],
    }
    refused = {"block": "r02", "reserved": BUSY, "halves": [], "programs": []}
    given = {"fabric_file": fabric, "programs": [PROGRAM], "results": [ran, refused]}
    result = run_action(ActionModule, **given)
    assert [(row["code"], row["clique"], row["trays"]) for row in result["failures"]] == [
        ("benchmark_failed", "r01", []),
        ("slurm_jobs_unanswered", "r02", ["r02t01", "r02t02"]),
    ]
    assert result["failures"][0]["message"] == "bw on clique r01 did not end in time."
    assert [row["code"] for row in result["findings"]] == ["benchmark_failed", "slurm_jobs_unanswered"]
    assert (result["ok"], result["text"][0]) == (False, "2 blocks were benchmarked: r01, r02.")
    assert run_action(ActionModule, **{**given, "results": [refused]})["ok"], "a refused reservation is a warning"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"fabric_file": None}, "fabric_file"),
        ({"cliques": ["r03"]}, "has no clique 'r03'; did you mean r0"),
        ({"cluster": "alpha"}, "has no Slurm clusters; leave the option cluster out"),
        ({"blocks": []}, "blocks"),
        ({"channel_isolation": "mine"}, "is 'mine'; use one of own, any, none"),
    ],
)
def test_a_bad_option_is_one_sentence(run_action: Any, fabric: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AnsibleError, match=sentence):
        run_action(ActionModule, **{"fabric_file": fabric, **options})


@pytest.mark.parametrize(
    ("shown", "accepted"),
    [("slurm-wlm 24.11.5", True), ("slurm 24.05.0", True), ("slurm-wlm 23.11.4", False), ("", False)],
)
def test_no_job_runs_where_slurm_is_too_old_for_blocks(shown: str, accepted: bool) -> None:
    plays = DataLoader().load_from_file(str(Path(__file__).parents[4] / "playbooks/verify.yml"))
    tasks = next(task["block"] for task in plays[2]["tasks"] if "block" in task)
    condition = next(task for task in tasks if "too old" in task["name"])["ansible.builtin.assert"]["that"]
    given = {"benchmark_version": {"stdout": shown}}
    assert Templar(DataLoader(), variables=given).evaluate_conditional(trust_as_template(condition)) is accepted
