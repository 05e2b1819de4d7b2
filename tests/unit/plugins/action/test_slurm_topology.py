# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of slurm_topology; the rest is in tests/integration."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.action.slurm_topology import ActionModule
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import HEADER, Topology
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import topology_files

from .conftest import SURVEY, clustered


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"fabric_file": "f.json", "blocks": []}, "needs either fabric_file or blocks"),
        ({}, "needs either fabric_file or blocks: name the fabric file"),
        ({"fabric_file": "/nowhere/fabric.json"}, "/nowhere/fabric.json: cannot be read"),
    ],
)
def test_a_bad_option_is_one_sentence(run_action: Any, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AnsibleActionFail, match=sentence):
        run_action(ActionModule, **options)


@pytest.mark.core
@pytest.mark.parametrize(
    ("names", "wanted", "nodes"),
    [
        ((), None, ["r01t01", "r01t02"]),
        (("alpha",), None, ["r01t01"]),
        (("alpha", "gamma"), "alpha", ["r01t01"]),
        (("alpha", "Beta"), "", ["r01t02"]),
    ],
)
def test_the_blocks_are_those_of_the_given_or_the_running_cluster(
    run_action: Any, answer: Any, tmp_path: Path, names: tuple[str, ...], wanted: Any, nodes: list[str]
) -> None:
    asked = answer(survey={"survey": SURVEY}, transact={"changed": True})
    result = run_action(ActionModule, fabric_file=clustered(tmp_path, *names), cluster=wanted, rehearse="never")
    assert [move["node"] for move in result["moves"]] == nodes
    assert (result["changed"], result["written"], [row["step"] for row in asked]) == (
        True,
        ["/etc/slurm/topology.yaml"],
        ["survey", "rehearse", "transact"],
    )
    change = asked[2]["change"]
    assert (change["checksums"], change["load"], change["moving"]) == (SURVEY["checksums"], True, [])


def test_a_cluster_that_is_not_in_the_fabric_file_changes_nothing(run_action: Any, answer: Any, tmp_path: Path) -> None:
    answer(survey={"survey": SURVEY, "warnings": ["slow"]})
    result = run_action(ActionModule, fabric_file=clustered(tmp_path, "alpha", "gamma"))
    sentence = "slurmctld's ClusterName is beta, and the fabric file's Slurm clusters are alpha, gamma: set the option "
    assert result["msg"].startswith(sentence)
    assert (result["failed"], result["changed"], result["findings"], result["warnings"]) == (True, False, [], ["slow"])


@pytest.mark.parametrize("override", [[], ["live_changes_lost"]])
def test_live_changes_that_a_reconfigure_would_undo_stop_it(
    run_action: Any, answer: Any, tmp_path: Path, override: list[str]
) -> None:
    undone = {"undone": "A reconfigure would undo live changes (State of partition gpu)"}
    asked = answer(survey={"survey": SURVEY}, rehearse=undone, transact={"changed": True})
    result = run_action(ActionModule, fabric_file=clustered(tmp_path), override=override)
    (found,) = [row for row in result["findings"] if undone["undone"] in row["message"]]
    assert found["code"] == ("slurm_gate_overridden" if override else "live_changes_lost")
    assert [row["step"] for row in asked] == ["survey", "rehearse", *(["transact"] if override else [])]
    assert (asked[1]["change"]["reloads"], asked[1]["change"]["rehearsed"]) == (True, True)


def test_files_that_changed_meanwhile_are_surveyed_again(run_action: Any, answer: Any, tmp_path: Path) -> None:
    late = {"failed": True, "outdated": True, "msg": "Another program has changed it"}
    options = {"fabric_file": clustered(tmp_path), "rehearse": "never"}
    asked = answer(survey={"survey": SURVEY}, transact=[late, {"changed": True, "warnings": ["slow"]}])
    result = run_action(ActionModule, **options)
    assert (result.get("failed", False), "slow" in result["warnings"]) == (False, True)
    assert [row["step"] for row in asked] == ["survey", "rehearse", "transact"] * 2
    answer(survey={"survey": SURVEY}, transact=late)
    result = run_action(ActionModule, **options)
    assert (result["failed"], result["msg"]) == (True, late["msg"])


FILES = {"texts": {}, "checksums": {"topology.yaml": "1"}}
REMOVED = {"written": ["/etc/slurm/topology.yaml", "/etc/slurm/topology.yaml.previous"]}
MANY = [{"PartitionName": "p", "Nodes": "n[1-65536]", "Topology": ""}] * 2000
NO_TEXT = {"topology.yaml": '- topology: "\\UFFFFFFFF"'}


@pytest.mark.parametrize(
    ("state", "survey", "rehearsal", "steps"),
    [
        *(
            ("present", survey, {}, 1)
            for survey in (
                {},
                None,
                {**SURVEY, "style": "x"},
                {**SURVEY, "nodes": [{}]},
                {**SURVEY, "nodes": 5},
                {**SURVEY, "jobs": [["12"]]},
                {**SURVEY, "running": [{}]},
                {**SURVEY, "texts": NO_TEXT},
                {**SURVEY, "partitions": MANY},
            )
        ),
        ("absent", None, REMOVED, 1),
        ("absent", {}, REMOVED, 1),
        ("absent", {**FILES, "texts": {"topology.yaml": None}}, REMOVED, 1),
        ("absent", {**FILES, "checksums": []}, REMOVED, 1),
        ("absent", FILES, {"written": None}, 2),
        *(("present", SURVEY, {part: None}, 2) for part in ("written", "findings", "undone", "busy", "rehearsal")),
        *((state, SURVEY, {**REMOVED, "undone": "x" * 20_000}, 2) for state in ("present", "absent")),
        # It does not say that it has changed anything.
        ("present", SURVEY, {}, 3),
    ],
)
def test_an_odd_answer_of_the_host_is_one_sentence(
    run_action: Any, answer: Any, tmp_path: Path, state: str, survey: Any, rehearsal: Any, steps: int
) -> None:
    asked = answer(survey={"survey": survey}, rehearse=rehearsal, transact={})
    options = {"fabric_file": clustered(tmp_path)} if state == "present" else {}
    result = run_action(ActionModule, state=state, task_vars={"inventory_hostname": "ctl"}, **options)
    assert (result["failed"], result["changed"], len(asked)) == (True, False, steps)
    expected = "The host('s survey| returned no complete)|ctl returned more or other than .*; check the host|.*ogy.yaml"
    assert re.match(expected, result["msg"])


def test_a_stop_fails_whatever_the_severity_of_its_finding_is(run_action: Any, answer: Any, tmp_path: Path) -> None:
    # A warning, and no harmless one.
    found = {"code": "gpu_missing", "message": "x"}
    asked = answer(survey={"survey": SURVEY}, rehearse={"findings": [found]})
    result = run_action(ActionModule, fabric_file=clustered(tmp_path))
    assert (result["failed"], result["msg"], len(asked)) == (True, "x", 2)


RED, CLEAN = "\x1b[31mbad", " [31mbad"


def test_a_terminal_shows_no_control_characters_of_a_host(run_action: Any, answer: Any, tmp_path: Path) -> None:
    job = {"id": RED, "user": RED, "partition": "all", "nodes": "r01t01,cpu1"}
    block = {"topology": "nvlink", "block": {"blocks": [{"block": RED, "nodes": "r01t[01-02]"}]}}
    answer(survey={"survey": {**SURVEY, "jobs": [job], "running": [block]}})
    result = run_action(ActionModule, fabric_file=clustered(tmp_path), diff=True)
    assert (result["moves"][0]["from"], result["jobs"][0]["user"]) == (CLEAN, CLEAN)
    assert r"\x1b" not in repr(result)
    answer(survey={"survey": {**SURVEY, "acting": RED}})
    result = run_action(ActionModule, fabric_file=clustered(tmp_path))
    assert f"the active controller {CLEAN} runs" in result["msg"]


def test_a_failed_step_returns_nothing_of_its_arguments(run_action: Any, answer: Any, tmp_path: Path) -> None:
    failed = {"failed": True, "msg": "restored", "invocation": {"module_args": {"change": {"files": [["x", "y"]]}}}}
    answer(survey={"survey": SURVEY}, transact=failed)
    result = run_action(ActionModule, fabric_file=clustered(tmp_path), rehearse="never")
    assert (result["failed"], result["msg"], "invocation" in result) == (True, "restored", False)


def test_the_topology_is_removed_but_for_the_sites(run_action: Any, answer: Any) -> None:
    site = [Topology(name, "flat", False, body="true") for name in ("other", "site")]
    ours = topology_files.render([Topology("nvlink"), *site], "yaml", former="site")
    read = {"texts": {"topology.yaml": ours}, "checksums": {"topology.yaml": "1"}}
    asked = answer(survey={"survey": read}, rehearse=REMOVED, transact={"changed": True})
    result = run_action(ActionModule, state="absent")
    assert (result["changed"], result["reconfigured"], result["written"]) == (True, True, REMOVED["written"])
    assert result["changes"] == [
        "/etc/slurm/topology.yaml: lines of rackscale.nvlink removed",
        "/etc/slurm/topology.yaml.previous: removed",
    ]
    change = asked[2]["change"]
    assert (change["checksums"], change["excludes"][0]) == ({"topology.yaml": "1"}, "nvlink_topology.conf")
    [(name, kept)] = change["files"]
    topologies = [(known.name, known.cluster_default) for known in topology_files.parse_yaml(kept)]
    assert (name, topologies) == ("topology.yaml", [("other", False), ("site", True)])
    assert not kept.startswith("#")


@pytest.mark.parametrize(("undone", "override"), [("x", []), ("x", ["live_changes_lost"]), ("", [])])
def test_a_removal_undoes_no_live_change(run_action: Any, answer: Any, undone: str, override: list[str]) -> None:
    asked = answer(survey={"survey": FILES}, rehearse={**REMOVED, "undone": undone}, transact={"changed": True})
    result = run_action(ActionModule, state="absent", override=override)
    stopped = bool(undone) and not override
    assert (result["changed"], result.get("failed", False)) == (not stopped, stopped)
    assert [row["step"] for row in asked] == ["survey", "rehearse", *([] if stopped else ["transact"])]


def test_nothing_to_remove_is_no_change(run_action: Any, answer: Any) -> None:
    asked = answer(survey={"survey": FILES}, rehearse={"written": []})
    assert not run_action(ActionModule, state="absent")["changed"]
    assert [row["step"] for row in asked] == ["survey", "rehearse"]


def test_a_site_may_have_any_number_of_nodes_and_jobs(run_action: Any, answer: Any, tmp_path: Path) -> None:
    more = [{**SURVEY["nodes"][0], "NodeName": f"n{number}"} for number in range(20_001)]
    job = {"user": "alice", "partition": "all", "nodes": "n1"}
    jobs = [{**job, "id": str(number)} for number in range(20_001)]
    topologies = {row["NodeName"]: "other:a,other:b" for row in more}
    survey = {**SURVEY, "nodes": SURVEY["nodes"] + more, "jobs": jobs, "node_topologies": topologies}
    answer(survey={"survey": survey})
    result = run_action(ActionModule, fabric_file=clustered(tmp_path), rehearse="never")
    assert "has no topology 'other' (nvlink)" in result["msg"]
    assert sum("has no topology" in row["message"] for row in result["findings"]) == 1


def test_a_topology_yaml_of_the_site_is_only_read_where_it_is_ours(run_action: Any, answer: Any) -> None:
    read = {**FILES, "texts": {"topology.yaml": "- topology: [\n"}}
    asked = answer(survey={"survey": read}, rehearse=REMOVED, transact={"changed": True})
    assert (run_action(ActionModule, state="absent")["changed"], asked[1]["change"]["files"]) == (True, [])
    answer(survey={"survey": {**read, "texts": {"topology.yaml": f"{HEADER}\n- topology: [\n"}}})
    result = run_action(ActionModule, state="absent", conf_dir="/opt/slurm")
    assert result["msg"].startswith("/opt/slurm/topology.yaml: ")


def test_a_finding_that_stops_the_change_fails_the_task(run_action: Any, answer: Any, tmp_path: Path) -> None:
    survey = {**SURVEY, "config": {**SURVEY["config"], "selecttype": "select/linear"}}
    asked = answer(survey={"survey": survey})
    result = run_action(ActionModule, fabric_file=clustered(tmp_path))
    assert (result["failed"], result["changed"]) == (True, False)
    assert ([row["step"] for row in asked], asked[1]["change"]["rehearsed"]) == (["survey", "rehearse"], False)
    (error,) = [row for row in result["findings"] if row["severity"] == "error"]
    assert (error["code"], result["msg"]) == ("slurm_select_type", error["message"])


def test_check_mode_of_a_new_site_needs_no_fabric_file(run_action: Any) -> None:
    result = run_action(ActionModule, check=True, fabric_file="/nowhere/fabric.json")
    assert result["changed"] is False
    assert result["warnings"][0].startswith("/nowhere/fabric.json: is not there yet")
