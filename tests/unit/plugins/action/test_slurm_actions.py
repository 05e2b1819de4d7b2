# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of the actions of Slurm; the rest is in tests/integration."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible_collections.rackscale.nvlink.plugins.action.slurm_nodes import ActionModule as NodesAction
from ansible_collections.rackscale.nvlink.plugins.action.slurm_tiers import OVERRIDE
from ansible_collections.rackscale.nvlink.plugins.action.slurm_tiers import ActionModule as TiersAction
from ansible_collections.rackscale.nvlink.plugins.action.slurm_topology import ActionModule as TopologyAction
from ansible_collections.rackscale.nvlink.plugins.action.slurm_topology_info import ActionModule as InfoAction
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import HEADER, Block, Topology, documents
from ansible_collections.rackscale.nvlink.plugins.modules.slurm_nodes import ARGUMENTS, misplaced
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import ends, tiers, topology_files

from .conftest import SURVEY, clustered

SPARES = {"state": "spares_present", "active": 1}


@pytest.mark.parametrize(
    ("action", "options", "sentence"),
    [
        (TopologyAction, {"fabric_file": "f.json", "blocks": []}, "needs either fabric_file or blocks"),
        (TopologyAction, {}, "needs either fabric_file or blocks: name the fabric file"),
        (TopologyAction, {"fabric_file": "/nowhere/fabric.json"}, "/nowhere/fabric.json: does not exist"),
        (TiersAction, {}, "missing: fabric_file, tiers|missing: tiers, fabric_file"),
        (TiersAction, {"tiers": [{"name": "a", "groups": ["x"]}], "fabric_file": "f.json"}, "the unknown key 'groups'"),
        (TiersAction, {"tiers": [{"name": "a", "max_time": 14400}]}, r"max_time \(x\) is 14400, write it in quotes"),
        (TiersAction, {"tiers": [], "fabric_file": "/nowhere/fabric.json"}, "/nowhere/fabric.json: does not exist"),
        (NodesAction, SPARES, r"fabric.json: has several Slurm clusters \(alpha, beta\); set slurm_topology_cluster"),
        (NodesAction, {**SPARES, "cluster": "gamma"}, "fabric.json: has no Slurm cluster 'gamma'"),
        (NodesAction, {**SPARES, "blocks": []}, "blocks"),
    ],
)
def test_a_bad_option_is_one_sentence(
    run_action: Any, tmp_path: Path, action: Any, options: dict[str, Any], sentence: str
) -> None:
    path = {"fabric_file": clustered(tmp_path, "alpha", "beta")} if "active" in options else {}
    with pytest.raises(AnsibleError, match=sentence):
        run_action(action, **path, **options)


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
    result = run_action(TopologyAction, fabric_file=clustered(tmp_path, *names), cluster=wanted, rehearse="never")
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
    result = run_action(TopologyAction, fabric_file=clustered(tmp_path, "alpha", "gamma"))
    sentence = "slurmctld's ClusterName is beta, and the fabric file's Slurm clusters are alpha, gamma: set "
    assert result["msg"].startswith(sentence)
    assert (result["failed"], result["changed"], result["findings"], result["warnings"]) == (True, False, [], ["slow"])


@pytest.mark.parametrize("override", [[], ["live_changes_lost"]])
def test_live_changes_that_a_reconfigure_would_undo_stop_it(
    run_action: Any, answer: Any, tmp_path: Path, override: list[str]
) -> None:
    undone = {"undone": "A reconfigure would undo live changes (State of partition gpu)"}
    asked = answer(survey={"survey": SURVEY}, rehearse=undone, transact={"changed": True})
    result = run_action(TopologyAction, fabric_file=clustered(tmp_path), override=override)
    (found,) = [row for row in result["findings"] if undone["undone"] in row["message"]]
    assert found["code"] == ("slurm_gate_overridden" if override else "live_changes_lost")
    assert [row["step"] for row in asked] == ["survey", "rehearse", *(["transact"] if override else [])]
    assert (asked[1]["change"]["reloads"], asked[1]["change"]["rehearsal"]["despite_undone"]) == (True, bool(override))


def test_files_that_changed_meanwhile_are_surveyed_again(run_action: Any, answer: Any, tmp_path: Path) -> None:
    late = {"failed": True, "outdated": True, "msg": "Another program has changed it"}
    options = {"fabric_file": clustered(tmp_path), "rehearse": "never"}
    asked = answer(survey={"survey": SURVEY}, transact=[late, {"changed": True, "warnings": ["slow"]}])
    result = run_action(TopologyAction, **options)
    assert (result.get("failed", False), "slow" in result["warnings"]) == (False, True)
    assert [row["step"] for row in asked] == ["survey", "rehearse", "transact"] * 2
    answer(survey={"survey": SURVEY}, transact=late)
    result = run_action(TopologyAction, **options)
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
    asked = answer(survey={"survey": survey}, read={"survey": survey}, rehearse=rehearsal, transact={})
    options = {"fabric_file": clustered(tmp_path)} if state == "present" else {}
    result = run_action(TopologyAction, state=state, task_vars={"inventory_hostname": "ctl"}, **options)
    assert (result["failed"], result["changed"], len(asked)) == (True, False, steps)
    expected = "The host('s survey| returned no complete)|ctl returned more or other than .*; check the host|.*ogy.yaml"
    assert re.match(expected, result["msg"])


@pytest.mark.parametrize(("code", "stops"), [("slurm_rehearsal_refused", True), ("slurm_rehearsal_job", False)])
def test_an_error_of_the_host_stops_an_apply_and_a_warning_does_not(
    run_action: Any, answer: Any, tmp_path: Path, code: str, stops: bool
) -> None:
    found = {"code": code, "message": "x"}
    asked = answer(survey={"survey": SURVEY}, rehearse={"findings": [found]}, transact={"changed": True})
    result = run_action(TopologyAction, fabric_file=clustered(tmp_path))
    assert (bool(result.get("failed")), result.get("msg") == "x", len(asked)) == (stops, stops, 2 if stops else 3)
    assert ("x" in result.get("warnings", [])) is not stops


RED, CLEAN = "\x1b[31mbad", " [31mbad"


def test_a_terminal_shows_no_control_characters_of_a_host(run_action: Any, answer: Any, tmp_path: Path) -> None:
    job = {"id": RED, "user": RED, "partition": "all", "nodes": "r01t01,cpu1"}
    block = {"topology": "nvlink", "block": {"blocks": [{"block": RED, "nodes": "r01t[01-02]"}]}}
    answer(survey={"survey": {**SURVEY, "jobs": [job], "running": [block]}})
    result = run_action(TopologyAction, fabric_file=clustered(tmp_path), diff=True)
    assert (result["moves"][0]["from"], result["jobs"][0]["user"]) == (CLEAN, CLEAN)
    assert r"\x1b" not in repr(result)
    answer(survey={"survey": {**SURVEY, "acting": RED}})
    result = run_action(TopologyAction, fabric_file=clustered(tmp_path))
    assert f"the active controller {CLEAN} runs" in result["msg"]


def test_a_failed_step_returns_nothing_of_its_arguments(run_action: Any, answer: Any, tmp_path: Path) -> None:
    failed = {"failed": True, "msg": "restored", "invocation": {"module_args": {"change": {"files": [["x", "y"]]}}}}
    answer(survey={"survey": SURVEY}, transact=failed)
    result = run_action(TopologyAction, fabric_file=clustered(tmp_path), rehearse="never")
    assert (result["failed"], result["msg"], "invocation" in result) == (True, "restored", False)


def test_the_topology_is_removed_but_for_the_sites(run_action: Any, answer: Any) -> None:
    site = [Topology(name, "flat", False, body="true") for name in ("other", "site")]
    ours = topology_files.render([Topology("nvlink"), *site], "yaml", former="site")
    read = {"texts": {"topology.yaml": ours}, "checksums": {"topology.yaml": "1"}}
    asked = answer(read={"survey": read}, rehearse=REMOVED, transact={"changed": True})
    result = run_action(TopologyAction, state="absent")
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
    asked = answer(read={"survey": FILES}, rehearse={**REMOVED, "undone": undone}, transact={"changed": True})
    result = run_action(TopologyAction, state="absent", override=override)
    stopped = bool(undone) and not override
    assert (result["changed"], result.get("failed", False)) == (not stopped, stopped)
    assert [row["step"] for row in asked] == ["read", "rehearse", *([] if stopped else ["transact"])]


def test_nothing_to_remove_is_no_change(run_action: Any, answer: Any) -> None:
    asked = answer(read={"survey": FILES}, rehearse={"written": []})
    assert not run_action(TopologyAction, state="absent")["changed"]
    assert [row["step"] for row in asked] == ["read", "rehearse"]


def test_a_site_may_have_any_number_of_nodes_and_jobs(run_action: Any, answer: Any, tmp_path: Path) -> None:
    more = [{**SURVEY["nodes"][0], "NodeName": f"n{number}"} for number in range(20_001)]
    job = {"user": "alice", "partition": "all", "nodes": "n1"}
    jobs = [{**job, "id": str(number)} for number in range(20_001)]
    topologies = {row["NodeName"]: "other:a,other:b" for row in more}
    survey = {**SURVEY, "nodes": SURVEY["nodes"] + more, "jobs": jobs, "node_topologies": topologies}
    answer(survey={"survey": survey})
    result = run_action(TopologyAction, fabric_file=clustered(tmp_path), rehearse="never")
    assert "has no topology 'other' (nvlink)" in result["msg"]
    assert sum("has no topology" in row["message"] for row in result["findings"]) == 1


def test_a_topology_yaml_of_the_site_is_only_read_where_it_is_ours(run_action: Any, answer: Any) -> None:
    read = {**FILES, "texts": {"topology.yaml": "- topology: [\n"}}
    asked = answer(read={"survey": read}, rehearse=REMOVED, transact={"changed": True})
    assert (run_action(TopologyAction, state="absent")["changed"], asked[1]["change"]["files"]) == (True, [])
    answer(read={"survey": {**read, "texts": {"topology.yaml": f"{HEADER}\n- topology: [\n"}}})
    result = run_action(TopologyAction, state="absent", conf_dir="/opt/slurm")
    assert result["msg"].startswith("/opt/slurm/topology.yaml: ")


def test_a_finding_that_stops_the_change_fails_the_task(run_action: Any, answer: Any, tmp_path: Path) -> None:
    survey = {**SURVEY, "config": {**SURVEY["config"], "selecttype": "select/linear"}}
    asked = answer(survey={"survey": survey})
    result = run_action(TopologyAction, fabric_file=clustered(tmp_path))
    assert (result["failed"], result["changed"]) == (True, False)
    assert ([row["step"] for row in asked], asked[1]["change"]["rehearsal"]) == (["survey", "rehearse"], None)
    (error,) = [row for row in result["findings"] if row["severity"] == "error"]
    assert (error["code"], result["msg"]) == ("slurm_select_type", error["message"])


def test_all_findings_that_stop_the_change_are_printed(run_action: Any, answer: Any, tmp_path: Path) -> None:
    answer(survey={"survey": SURVEY})
    tiers = [{"name": name, "all": True, "accounts": ["x"], "qos": {}, "topology": "x"} for name in ("a", "b")]
    result = run_action(TiersAction, fabric_file=clustered(tmp_path), tiers=tiers)
    errors = [row["message"] for row in result["findings"] if row["severity"] == "error"]
    assert (len(errors) > 1, result["msg"]) == (True, " ".join(errors))


def test_check_mode_of_a_new_site_needs_no_fabric_file(run_action: Any) -> None:
    result = run_action(TopologyAction, check=True, fabric_file="/nowhere/fabric.json")
    assert result["changed"] is False
    assert result["warnings"][0].startswith("/nowhere/fabric.json: does not exist yet")


# -------------------------------------------------------------------------------------------------- slurm_topology_info

RUNNING: dict[str, Any] = {
    "name": "nvlink",
    "block_sizes": [2],
    "blocks": [{"name": "r01", "nodes": ["r01t01", "r01t02"]}, {"name": "r02", "nodes": ["r02t01", "r02t02"]}],
}
BLOCKS = {"topology": "nvlink", "block": {"blocks": [{"block": "r01", "nodes": "r01t[01-02]"}]}}


def test_the_survey_reads_no_script_no_tiers_and_no_jobs(run_action: Any, answer: Any) -> None:
    """Which not every user may read."""
    asked = answer(survey={"survey": SURVEY})
    found = run_action(InfoAction, timeout=5)
    assert found["nodes"] == {"r01t01": "IDLE", "r01t02": "IDLE"}
    change = {"files": ("topology.yaml", "topology.conf"), "jobs": False, "columns": ""}
    assert asked == [{"conf_dir": "/etc/slurm", "bin_dir": None, "timeout": 5, "step": "survey", "change": change}]


def test_what_the_host_warns_of_is_in_the_result(run_action: Any, answer: Any) -> None:
    found = {"code": "gpu_missing", "message": "x"}
    tests = {"test_jobs": None, "warnings": ["late"], "findings": [found]}
    answer(survey={"survey": SURVEY, "warnings": ["slow"], "findings": [found]}, ask=tests)
    result = run_action(InfoAction, test_seconds=30)
    assert (result["warnings"], [row["message"] for row in result["findings"]].count("x")) == (["slow", "late"], 2)
    assert not result.get("failed")


@pytest.mark.parametrize(
    ("answers", "sentence"),
    [
        ({"survey": {"survey": {**SURVEY, "acting": 5}}}, "ctl returned more or other than "),
        ({"survey": {"survey": {**SURVEY, "style": "\x1b"}}}, "The host returned no complete survey"),
        ({"survey": {"failed": True, "msg": "no \x1b", "findings": []}}, "no  "),
        ({"survey": {"survey": SURVEY}, "ask": {"test_jobs": {"rows": [{"kind": 5}]}}}, "ctl returned more or other "),
        (
            {"survey": {"survey": {**SURVEY, "running": [BLOCKS]}}, "ask": {"test_jobs": {"rows": [{}], "why": None}}},
            "The host returned no complete survey",
        ),
    ],
)
def test_a_failure_is_one_sentence_with_findings(
    run_action: Any, answer: Any, answers: dict[str, Any], sentence: str
) -> None:
    answer(**answers)
    result = run_action(InfoAction, test_seconds=30, task_vars={"inventory_hostname": "ctl"})
    assert (result["failed"], result["changed"], type(result["findings"])) == (True, False, list)
    assert result["msg"].startswith(sentence)


@pytest.mark.parametrize(("counts", "predicted"), [([2, 2], True), ([2, 1, 1], False), ([], True)])
def test_a_refused_job_of_all_trays_is_predicted(
    run_action: Any, answer: Any, counts: list[int], predicted: bool
) -> None:
    rows = [{"kind": "all", "nodes": 4, "outcome": "refused"}, {"kind": "block", "nodes": 2, "outcome": "refused"}]
    shown = [{"name": row["name"], "nodes": ",".join(row["nodes"]), "size": 2} for row in RUNNING["blocks"]]
    shown = [{**row, "aggregated": False} for row in shown]
    survey = {**SURVEY, "version": "24.11.5", "style": "conf", "shown": shown}
    answer(survey={"survey": survey}, ask={"test_jobs": {"counts": counts, "rows": rows}})
    found = run_action(InfoAction, test_seconds=30)["test_jobs"]["rows"]
    assert [row["predicted"] for row in found] == [predicted, True]


# ---------------------------------------------------------------------------------------------------------- slurm_tiers

TIERS = [{"name": "gold", "all": True, "segment": {"max": 1}, "allow_groups": ["wheel"]}]
RUNS = Topology("nvlink", blocks=(Block("r01", ("r01t01", "r01t02")),), block_sizes=(2,))
PRESENT = {**SURVEY, "includes_tiers": True, "running": documents([RUNS])}


@pytest.mark.core
@pytest.mark.parametrize(("cluster", "node"), [(None, "r01t02"), ("alpha", "r01t01")])
def test_the_partitions_are_of_the_given_or_the_running_cluster(
    run_action: Any, answer: Any, tmp_path: Path, cluster: str | None, node: str
) -> None:
    asked = answer(survey={"survey": PRESENT}, tiers={"changed": True})
    options = {"fabric_file": clustered(tmp_path, "alpha", "Beta"), "cluster": cluster, "conf_dir": "~/slurm"}
    result = run_action(TiersAction, tiers=TIERS, **options)
    assert (result["changed"], result["partitions"]) == (True, {"gold": [node]})
    assert [row["step"] for row in asked] == ["survey", "rehearse", "tiers"]
    assert asked[0]["conf_dir"] == "~/slurm", "expanded on the host"
    # A job of the tier's segment is rehearsed.
    assert [job["segment"] for job in asked[1]["change"]["rehearsal"]["jobs"]] == [1]
    change = asked[2]["change"]
    assert (change["partitions"][0][0], change["load"], change["override"]) == ("gold", True, OVERRIDE)
    assert dict(change["partitions"][0][1])["State"] == "UP", "defaults are filled in"


def test_live_changes_and_jobs_stop_it_in_check_mode(run_action: Any, answer: Any, tmp_path: Path) -> None:
    options = {"tiers": TIERS, "fabric_file": clustered(tmp_path), "check": True}
    undone = {"undone": "A reconfigure would undo live changes (State of partition gpu)"}
    asked = answer(survey={"survey": PRESENT}, rehearse=undone)
    result = run_action(TiersAction, **options)
    assert re.search(r"gpu\): write .*set override \(variable slurm_tiers_override\) to live", result["msg"])
    assert (result["failed"], result["changed"], type(result["findings"])) == (True, False, list)
    assert (asked[1]["change"]["reloads"], asked[1]["change"]["own"]) == (True, ["gold"])
    assert run_action(TiersAction, **options, override=["live_changes_lost"])["changed"]
    # A partition of an earlier run that goes while jobs are in it.
    texts = {"nvlink_partitions.conf": tiers.render([tiers.Partition("old", ())])}
    old = {**PRESENT, "texts": texts, "partitions": [{"PartitionName": "old", "Nodes": ""}]}
    asked = answer(survey={"survey": old}, rehearse={"busy": "job 17 of alice in old"})
    result = run_action(TiersAction, **options)
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
    result = run_action(TiersAction, state=state, **options)
    assert r"\x1b" not in repr(result)
    assert "\n" not in result.get("msg", "")


@pytest.mark.parametrize("busy", ["", "job 17 of alice in old"])
def test_state_absent_needs_no_fabric_file(run_action: Any, answer: Any, busy: str) -> None:
    removed = {"written": ["/etc/slurm/nvlink_partitions.conf"], "busy": busy}
    asked = answer(survey={"survey": PRESENT}, rehearse=removed, tiers={"changed": True})
    result = run_action(TiersAction, state="absent", timeout=5)
    steps = ["survey", "rehearse", *([] if busy else ["tiers"])]
    assert [(row["step"], row["timeout"]) for row in asked] == [(step, 5) for step in steps]
    assert (result["changed"], result["reconfigured"], result["written"]) == (
        (False, False, []) if busy else (True, True, removed["written"])
    )
    assert result["changes"] == ["/etc/slurm/nvlink_partitions.conf: removed"]
    assert result.get("failed", False) == bool(busy)
    answer(survey={"survey": PRESENT}, rehearse={**removed, "written": None})
    assert run_action(TiersAction, state="absent")["msg"].startswith("The host returned no complete answer to the step")


# ---------------------------------------------------------------------------------------------------------- slurm_nodes


@pytest.mark.parametrize(
    ("clusters", "cluster", "nodes"), [((), None, ["r01t01", "r01t02"]), (("alpha", "beta"), "beta", ["r01t02"])]
)
def test_the_blocks_are_those_of_the_cluster(
    run_action: Any, answer: Any, tmp_path: Path, clusters: tuple[str, ...], cluster: str | None, nodes: list[str]
) -> None:
    asked = answer(none={"changed": False})
    path = clustered(tmp_path, *clusters)
    run_action(NodesAction, state="spares_present", fabric_file=path, active=1, cluster=cluster)
    assert asked == [{"state": "spares_present", "active": 1, "blocks": [{"name": "r01", "nodes": nodes}]}]


def test_a_test_of_cliques_has_their_names(run_action: Any, answer: Any, tmp_path: Path) -> None:
    asked = answer(none={"changed": False, "untested": ["no idle tray in clique r01: not tested together"]})
    options = {"state": "resumed", "nodes": ["r01t01"], "reason": "resume", "clique_test": ["true"]}
    result = run_action(NodesAction, fabric_file=clustered(tmp_path), **options)
    assert asked == [{**options, "blocks": [{"name": "r01", "nodes": ["r01t01", "r01t02"]}]}]
    assert result["text"][-1] == "no idle tray in clique r01: not tested together"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"state": "drained", "active": 16}, "option active: has no meaning for state drained"),
        ({"state": "resumed", "fabric_file": "f.json"}, "option fabric_file: has a meaning for clique_test alone"),
        ({"state": "resumed", "clique_test": ["x"]}, "option fabric_file: is missing, clique_test needs it"),
        ({"state": "resumed", "clique_test": ["x"], "fabric_file": "f.json"}, ""),
        ({"state": "drained", "clique_test": ["x"]}, "option clique_test: has no meaning for state drained"),
        ({"state": "resumed", "unfit": ["n1"]}, "option unfit: has no meaning for state resumed"),
        ({"state": "spares_present", "active": 0}, "option active: is 0, use a number from 1"),
        (
            {"state": "resumed", "test": ["true"], "test_timeout": 0},
            "option test_timeout (rollout_test_timeout): is 0, use a number of seconds above 0",
        ),
        ({"state": "drained", "user": "root"}, ""),
    ],
)
def test_an_option_without_meaning_for_the_state_is_one_sentence(options: dict[str, Any], sentence: str) -> None:
    params = {name: argument.get("default") for name, argument in ARGUMENTS.items()}
    assert sentence in misplaced({**params, **options})
    assert bool(misplaced({**params, **options})) == bool(sentence)


@pytest.mark.parametrize("source", ["group", "file"])
def test_a_tray_runs_no_command_for_others(run_action: Any, answer: Any, tmp_path: Path, source: str) -> None:
    asked = answer(none={"changed": False})
    known: dict[str, Any] = {"groups": {"nvlink": ["r01t01"]}}
    if source == "file":
        known = {"hostvars": {"localhost": {"fabric_file": clustered(tmp_path)}}}
    with pytest.raises(AnsibleActionFail, match="slurm_controller: 'r01t01' is a tray of the fabric, and no tray may"):
        run_action(NodesAction, task_vars={**known, "inventory_hostname": "r01t01"}, state="spares_absent")
    assert asked == []


@pytest.mark.core
def test_facts_in_the_answer_of_the_controller_are_dropped(run_action: Any, answer: Any) -> None:
    jobs = {"n1": ["7"]}
    answer(none={"changed": True, "changes": ["x"], "running_jobs": jobs, "ansible_facts": {"rollout_test": ["x"]}})
    result = run_action(NodesAction, state="spares_absent")
    assert (result["running_jobs"], "ansible_facts" in result) == (jobs, False)
    assert [row["code"] for row in result["findings"]] == ["tray_answer_invalid"]


@pytest.mark.parametrize(
    ("arguments", "least"),
    [
        ({}, 2 * 120),
        ({"timeout": "7.5"}, 2 * 7.5),
    ],
)
def test_a_tray_may_start_its_units(arguments: dict[str, Any], least: float) -> None:
    assert least < ends.tray(arguments, 120) < 60 + 10 * 120


def test_a_controller_may_wait_for_its_jobs() -> None:
    assert ends.controller({"timeout": 60}, 120, 7200) > 7200 + 20 * 60


@pytest.mark.parametrize("given", ["soon", [], {}])
def test_a_timeout_that_is_no_number_is_one_sentence(given: Any) -> None:
    with pytest.raises(AnsibleActionFail, match=r"The option timeout is .*: use a number of seconds\."):
        ends.tray({"timeout": given}, 120)
