# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a person reviews, and which of it the SHA-256 covers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions import (
    partition_answers,
    partition_review,
    wish,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_changes import Changes
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_journal import Journal
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

from .partition_world import NOW, Rack

FABRIC = fabrics.fabric(racks=2, trays=4, split=())
WANTED = wish.parse({"r01": "2x2"}, FABRIC)
SLURM = {"changes": ["r01t01: r01 -> r01a"]}


@pytest.fixture
def rack() -> Rack:
    return Rack(FABRIC)


def review(
    rack: Rack, slurm: Any = SLURM, planned: Fabric | None = None, jobs: Any = None, gates: Any = (), **more: Any
) -> dict[str, Any]:
    plan, objections = rack.plan("2x2")
    assert objections == []
    options: dict[str, Any] = {"plans": [plan], "objections": [], "override": [], "plan": None, "scontrol": []}
    options |= {"kubeconfig": None, "simulated": False, "lines": []}
    options["planned"] = {
        "objections": [{"code": code, "message": f"{code} objects; look."} for code in gates],
        "proposal_file": more.pop("pending", None),
    }
    nodes = dict.fromkeys(rack.trays, "IDLE") if more.get("scontrol", []) is not None else {}
    seen = replace(rack.read(), jobs=jobs or {}, **{"nodes": nodes} | more.pop("seen", {}))
    after = planned or rack.planned(plan)
    return partition_review.review({**options, **more}, WANTED, FABRIC, after, seen, {"ctl": [slurm]})


def test_the_sha256_is_that_of_what_changes(rack: Rack) -> None:
    first = review(rack)
    assert (first["is_due"], first["objections"]) == (True, [])
    assert first["text"][-1] == f"SHA-256 of this plan: {first['sha256']}"
    assert SLURM["changes"][0] in first["text"]
    # Jobs are shown, and the plan is the same.
    with_job = review(rack, jobs={"r01t01": ("7",)})
    assert (with_job["sha256"], with_job["text"] != first["text"]) == (first["sha256"], True)
    others = (
        review(rack, {"changes": []}),
        review(rack, override=["jobs"]),
        review(rack, gates=["moved_percent"]),
        review(rack, lines=["IMEX."]),
    )
    assert first["sha256"] not in {other["sha256"] for other in others}


def test_the_sha256_is_that_of_what_trays_have_in_the_fabric_file(rack: Rack) -> None:
    planned = rack.planned(rack.plan("2x2")[0])

    def sha256(**changes: Any) -> str:
        trays = {**planned.trays, "r01t01": {**planned.trays["r01t01"], **changes}}
        return review(rack, planned=replace(planned, trays=trays))["sha256"]

    assert sha256(why="moved 2026-11-30 from r01") == sha256()
    assert len({sha256(), sha256(imex_address="192.0.2.66"), sha256(block="r01_2")}) == 3


def test_another_plan_than_the_reviewed_one_is_refused(rack: Rack) -> None:
    sha256 = review(rack)["sha256"]
    assert review(rack, plan=sha256)["objections"] == []
    [objection] = review(rack, plan="0" * 64)["objections"]
    assert objection == f"partition_plan: the SHA-256 of the plan is {sha256} now; review it again."


@pytest.mark.parametrize(("down", "is_said"), [(0, False), (3, False), (4, True)])
def test_trays_of_which_none_answers_do_not_change(rack: Rack, tmp_path: Path, down: int, is_said: bool) -> None:
    rack.down = {*rack.trays[:down]}
    journal = Journal(str(tmp_path / "journal.jsonl"), "r01", lambda: NOW)
    options: dict[str, Any] = {"override": []}
    changes = Changes(FABRIC, {"r01": journal})
    made = partition_review.plan(options, WANTED, changes, rack.read(), rack.known(), lambda _domain: rack.listed())
    assert ["none of them answers" in row for row in made["objections"]] == [True] * is_said


@pytest.mark.parametrize(
    ("owners", "owner", "said"),
    [
        ({}, "domain", ""),
        ({"r01t02": None, "r02t01": "job"}, "domain", ""),
        (
            {"r01t03": "driver_managed", "r01t04": ""},
            "domain",
            "imex_owner is 'domain' for 2 trays (r01t[01-02]) and 'driver_managed' for 1 tray (r01t03) and not set for"
            " 1 tray (r01t04), which change together; set one for all of them in group_vars/all.yml",
        ),
        (dict.fromkeys(FABRIC.trays), "", ""),
    ],
)
def test_one_owner_of_imex_is_planned_for_all_affected_trays(
    rack: Rack, owners: dict[str, str | None], owner: str, said: str
) -> None:
    plan, _objections = rack.plan("2x2")
    assert partition_review.set_owner([plan], lambda tray: owners.get(tray, "domain")) == ([said] if said else [])
    assert plan["imex_owner"] == owner


def test_slurm_and_the_fabric_file_may_object(rack: Rack) -> None:
    [refusal] = review(rack, {"failed": True, "msg": "The block is too small.\n"})["objections"]
    assert refusal == "Slurm on ctl refuses the planned blocks: The block is too small."
    [refusal] = review(rack, {})["objections"]
    assert refusal.startswith("Slurm on ctl has not compared the planned blocks")
    objections = review(rack, planned=FABRIC)["objections"]
    assert len(objections) == 4
    assert objections[0].startswith(
        "the next fabric file would not be that of the plan: r01t01 would be in clique r01 with ID 32766"
    )


def test_where_jobs_are_not_known_a_person_must_know_that_there_are_none(rack: Rack) -> None:
    [objection] = review(rack, scontrol=None)["objections"]
    what = "jobs are not known, since the run has no Slurm controller and no node in Kubernetes of "
    assert objection.startswith(f"{what}4 trays (r01t[01-04])")
    # Each tray is asked for.
    nodes = dict.fromkeys(rack.trays, ())
    in_cluster = {"kubeconfig": "in-cluster", "seen": {"compute_domains": nodes}}
    others = {"kubeconfig": "in-cluster", "seen": {"compute_domains": dict.fromkeys(rack.trays[1:], ())}}
    [objection] = review(rack, scontrol=None, **others)["objections"]
    assert objection.startswith(f"{what}1 tray (r01t01)")
    for more in ({"override": ["jobs"]}, in_cluster, {"simulated": True}):
        found = review(rack, scontrol=None, **more)
        assert found["objections"] == []
        assert "The inventory has no Slurm controller" in " ".join(found["text"])


def test_a_node_that_slurm_does_not_have_would_not_be_drained(rack: Rack) -> None:
    nodes = dict.fromkeys(rack.trays[:3], "IDLE")
    # The drain of the run would fail, whatever a person knows about jobs.
    for override in ([], ["jobs"]):
        [objection] = review(rack, override=override, seen={"nodes": nodes})["objections"]
        assert objection.startswith("Slurm has no node of 1 tray (r01t04); correct slurm_node in the fabric file")


def test_no_gpu_leaves_a_tray_that_has_come_back_into_service() -> None:
    trays = ["r01t01", "r01t02"]
    running = {"r01t01": ("7",), "r01t02": (), "r01t03": ("9",)}
    nodes = {"r01t01": "DRAIN+IDLE: nvlink: partition", "r01t02": "IDLE"}
    pod = partition_answers.Occupants("n2", [], ["pod a/b"])

    def found(running: Any, pods: Any = (), is_slurm: bool = True) -> str:
        return partition_answers.in_service(partition_answers.seen(nodes, running, dict(pods)), trays, is_slurm)

    assert found(running) == "jobs started after the drain, on r01t01: 7; wait for them, or cancel them"
    assert (
        found({}, {"r01t02": pod}) == "jobs started after the drain, on r01t02: pod a/b; wait for them, or cancel them"
    )
    assert found({}) == "no longer drained: r01t02; run partition again, which drains again"
    assert found({"n3": ("9",)}, is_slurm=False) == ""


def test_a_pending_proposal_would_be_merged_with_the_change(rack: Rack) -> None:
    [objection] = review(rack, pending="/srv/fabric.proposal.json")["objections"]
    assert objection.startswith("/srv/fabric.proposal.json is a proposal that this change would be merged with; accept")


def test_only_trays_that_this_change_has_drained_are_missed() -> None:
    nodes = {
        "r01t01": "DRAIN+IDLE: nvlink: partition",
        "r01t02": "IDLE",
        "r01t03": "DRAIN+IDLE: nvlink: drain",
        "r01t04": "DRAIN+IDLE: nvlink: partition",
        "r01t05": "DRAIN+IDLE: nvlink: test failed : Not responding",
        "r01t06": "DRAIN+IDLE: nvlink: repair 4711",
        "r01t07": "DRAIN+IDLE: nvlink: partition of somebody else",
    }
    found = partition_answers.still_out(nodes, nodes.keys() - {"r01t04"})
    assert found == "still drained, as the tests failed: r01t01; the report of the rollout has the reason"
    assert partition_answers.still_out(nodes, ["r01t02", "r01t03"]) == ""


def test_a_plan_says_where_its_run_ends_for_a_signature() -> None:
    assert partition_review.signing(False) == []
    [line] = partition_review.signing(True)
    assert line.startswith(
        "NVLINK_FABRIC_ALLOWED_SIGNERS is set: the run ends when it has accepted the next fabric file"
    )


def test_the_plan_takes_along_only_the_gates_that_follow_from_its_moves(rack: Rack) -> None:
    found = review(rack, gates=["chassis_changed", "moved_percent"])
    assert found["objections"] == ["the next fabric file: chassis_changed objects; look."]
    # Whoever joins them has sentences.
    assert review(rack, objections=["a", "b."])["objections"] == ["a.", "b."]
    assert "accepted: moved_percent (moved_percent objects)" in found["text"]
    assert not [line for line in found["text"] if line.startswith("accepted: chassis_changed")]
