# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action plugin of slurm_tiers: its options and its steps on the host; the rest is in tests/integration."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleError
from ansible_collections.rackscale.nvlink.plugins.action.slurm_tiers import OVERRIDE, ActionModule
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import Block, Topology, documents
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import tiers

from .conftest import SURVEY, clustered

TIERS = [{"name": "gold", "all": True, "segment": {"max": 1}, "allow_groups": ["wheel"]}]
BLOCKS = Topology("nvlink", blocks=(Block("r01", ("r01t01", "r01t02")),), block_sizes=(2,))
PRESENT = {**SURVEY, "includes_tiers": True, "running": documents([BLOCKS])}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "missing: fabric_file, tiers|missing: tiers, fabric_file"),
        (
            {"tiers": [{"name": "a", "groups": ["x"]}], "fabric_file": "f.json"},
            r"^tiers\[0\] \(\w+\) has the unknown key 'groups'",
        ),
        ({"tiers": [], "fabric_file": "/nowhere/fabric.json"}, "/nowhere/fabric.json: cannot be read"),
    ],
)
def test_a_wrong_option_is_named(run_action: Any, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AnsibleError, match=sentence):
        run_action(ActionModule, **options)


@pytest.mark.core
@pytest.mark.parametrize(("cluster", "node"), [(None, "r01t02"), ("alpha", "r01t01")])
def test_the_partitions_are_of_the_given_or_the_running_cluster(
    run_action: Any, answer: Any, tmp_path: Path, cluster: str | None, node: str
) -> None:
    asked = answer(survey={"survey": PRESENT}, tiers={"changed": True})
    options = {"fabric_file": clustered(tmp_path, "alpha", "Beta"), "cluster": cluster, "conf_dir": "~/slurm"}
    result = run_action(ActionModule, tiers=TIERS, **options)
    assert (result["changed"], result["partitions"]) == (True, {"gold": [node]})
    assert [row["step"] for row in asked] == ["survey", "rehearse", "tiers"]
    assert asked[0]["conf_dir"] == "~/slurm", "expanded on the host"
    # A job of the tier's segment is rehearsed.
    assert [job["segment"] for job in asked[1]["rehearse_jobs"]] == [1]
    change = asked[2]["change"]
    assert (change["partitions"][0][0], change["load"], change["override"]) == ("gold", True, OVERRIDE)
    assert dict(change["partitions"][0][1])["State"] == "UP", "defaults are filled in"


def test_live_changes_and_jobs_stop_it_in_check_mode(run_action: Any, answer: Any, tmp_path: Path) -> None:
    options = {"tiers": TIERS, "fabric_file": clustered(tmp_path), "check": True}
    undone = {"undone": "A reconfigure would undo live changes (State of partition gpu)"}
    asked = answer(survey={"survey": PRESENT}, rehearse=undone)
    result = run_action(ActionModule, **options)
    assert re.search(r"gpu\): write .*set override \(variable slurm_tiers_override\) to live", result["msg"])
    assert (result["failed"], result["changed"], type(result["findings"])) == (True, False, list)
    assert (asked[1]["change"]["reloads"], asked[1]["change"]["own"]) == (True, ["gold"])
    assert run_action(ActionModule, **options, override=["live_changes_lost"])["changed"]
    # A partition of an earlier run that goes while jobs are in it.
    texts = {"nvlink_partitions.conf": tiers.render([tiers.Partition("old", ())])}
    old = {**PRESENT, "texts": texts, "partitions": [{"PartitionName": "old", "Nodes": ""}]}
    asked = answer(survey={"survey": old}, rehearse={"busy": "job 17 of alice in old"})
    result = run_action(ActionModule, **options)
    assert (result["failed"], result["changed"], asked[1]["change"]["leaving"]) == (True, False, ["old"])
    assert "job 17 of alice in old" in result["msg"]


@pytest.mark.parametrize(
    "survey",
    [
        {**PRESENT, "partitions": [{"Nodes": "n1"}]},
        {**PRESENT, "texts": {"nvlink_partitions.conf": "# owns: " + "[" * 100_000}},
        {**PRESENT, "unanswered": "\x1b[31mbad", "config": {"accountingstoragetype": "accounting_storage/slurmdbd"}},
    ],
)
@pytest.mark.parametrize("state", ["present", "absent"])
def test_an_odd_survey_is_at_most_one_sentence(
    run_action: Any, answer: Any, tmp_path: Path, survey: Any, state: str
) -> None:
    answer(survey={"survey": survey}, tiers={"changed": True})
    options = {"tiers": TIERS, "fabric_file": clustered(tmp_path)} if state == "present" else {}
    result = run_action(ActionModule, state=state, **options)
    assert r"\x1b" not in repr(result)
    assert "\n" not in result.get("msg", "")


@pytest.mark.parametrize("busy", ["", "job 17 of alice in old"])
def test_state_absent_needs_no_fabric_file(run_action: Any, answer: Any, busy: str) -> None:
    removed = {"written": ["/etc/slurm/nvlink_partitions.conf"], "busy": busy}
    asked = answer(survey={"survey": PRESENT}, rehearse=removed, tiers={"changed": True})
    result = run_action(ActionModule, state="absent", timeout=5)
    steps = ["survey", "rehearse", *([] if busy else ["tiers"])]
    assert [(row["step"], row["timeout"]) for row in asked] == [(step, 5) for step in steps]
    assert (result["changed"], result["reconfigured"], result["written"]) == (
        (False, False, []) if busy else (True, True, removed["written"])
    )
    assert result["changes"] == ["/etc/slurm/nvlink_partitions.conf: removed"]
    assert result.get("failed", False) == bool(busy)
    answer(survey={"survey": PRESENT}, rehearse={**removed, "written": None})
    assert run_action(ActionModule, state="absent")["msg"].startswith(
        "The host returned no complete answer to the step"
    )
