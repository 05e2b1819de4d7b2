# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which domains a run changes, what became of its steps, and whether a fabric file is that of the plan."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions import (
    PartitionError,
    partition_answers,
    partition_steps,
    wish,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_plan import Plan, turned
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

from .partition_world import Rack

FABRIC = fabrics.fabric(racks=3, trays=4, split=())
WISHES = wish.parse({"r01": "2x2", "r02": [4], "r03": "default"}, FABRIC)


@pytest.fixture
def rack() -> Rack:
    return Rack(FABRIC)


def split(rack: Rack) -> tuple[Plan, Fabric]:
    plan, objections = rack.plan("2x2")
    assert objections == []
    return plan, rack.planned(plan)


def test_the_only_domain_that_differs_is_changed() -> None:
    assert partition_steps.chosen({"r01": WISHES["r01"], "r03": WISHES["r03"]}, FABRIC, []) == ["r01"]
    assert partition_steps.chosen({"r03": WISHES["r03"]}, FABRIC, []) == []


def test_of_several_domains_a_person_names_those_that_change() -> None:
    with pytest.raises(PartitionError, match=r"of r01 and r02 differ; name those .* -e partition_domains=r01,r02"):
        partition_steps.chosen(WISHES, FABRIC, [])
    assert partition_steps.chosen(WISHES, FABRIC, ["r02", "r03"]) == ["r02"]
    with pytest.raises(PartitionError, match="partition_domains: 'r04' is not in nvlink_partitions"):
        partition_steps.chosen(WISHES, FABRIC, ["r04"])


def begun(
    *opened: str, wanted: str = "r01 r02", only: str = "", rollback: bool = False, plan: str | None = None
) -> list[str]:
    changes = {domain: f"{domain}-change" for domain in opened}
    return partition_steps.begun(changes, wanted.split(), only.split(), rollback, plan)


def test_what_has_begun_goes_on_before_anything_is_planned() -> None:
    assert begun() == []
    assert begun("r02") == begun("r02", rollback=True) == ["r02"]
    assert begun("r02", plan="r02-change and the rest") == ["r02"]
    # The wish may have changed since; what is open is named, or turned back.
    assert begun("r02", wanted="r01", only="r02") == begun("r02", wanted="", rollback=True) == ["r02"]
    assert begun("r01", "r02", only="r01 r02") == ["r01", "r02"]
    # Of another domain than those that a person has named.
    assert begun("r02", only="r01") == []


@pytest.mark.parametrize(
    ("opened", "options", "said"),
    [
        ("", {"rollback": True}, "partition_rollback: no change of NVLink partitions is unfinished"),
        ("r02", {"rollback": True, "only": "r01"}, "partition_rollback: no change of NVLink partitions is unfinished"),
        ("r01", {"wanted": "r02"}, "lacks r01, whose change is unfinished; .*=r01$"),
        ("r01 r02", {}, "changes of the partitions of r01 and r02 are unfinished; .*=r01,r02$"),
        ("r01 r02", {"rollback": True}, "changes of the partitions of r01 and r02 are unfinished"),
        ("r01", {"only": "r01 r02"}, "partition_domains: the unfinished change is of r01, not of 'r02'; .*=r01$"),
        ("r01", {"plan": "0" * 64}, "partition_plan: the unfinished change of r01 is r01-change, not the plan of this"),
    ],
)
def test_an_open_change_that_a_person_may_not_mean_is_not_continued(
    opened: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(PartitionError, match=said):
        begun(*opened.split(), **options)


def test_the_next_fabric_file_is_that_of_the_plan_or_refused(rack: Rack) -> None:
    plan, planned = split(rack)

    def found(plan: Plan, trays: list[str], before: Fabric, after: Fabric) -> list[str]:
        return list(partition_steps.disagreements([plan], trays, before, after))

    moved = [*plan["clique_ids"]]
    assert found(plan, moved, FABRIC, planned) == []
    assert found(turned(plan), moved, FABRIC, FABRIC) == []
    assert len(found(plan, moved, FABRIC, FABRIC)) == len(moved)
    # A tray that does not answer keeps its place.
    assert found(plan, [], FABRIC, FABRIC) == []
    elsewhere = {**planned.trays, "r02t01": {**planned.trays["r02t01"], "clique": "r03"}}
    assert found(plan, moved, FABRIC, replace(planned, trays=elsewhere)) == ["r02t01 would move to clique r03"]
    fewer = {tray: row for tray, row in planned.trays.items() if tray != "r03t01"}
    assert found(plan, moved, FABRIC, replace(planned, trays=fewer)) == ["r03t01 would be removed"]
    more = {**planned.trays, "r09t01": planned.trays["r03t01"]}
    assert found(plan, moved, FABRIC, replace(planned, trays=more)) == ["r09t01 would be added"]


def test_two_domains_change_in_one_fabric_file(rack: Rack) -> None:
    plan, planned = split(rack)
    other = cast(Plan, json.loads(json.dumps(plan).replace("r01", "r02")))
    trays = {tray: {**row, "clique": row["clique"].replace("r01", "r02")} for tray, row in planned.trays.items()}
    names = [name for name in planned.cliques if name not in FABRIC.cliques]
    rows = {name.replace("r01", "r02"): {**planned.cliques[name], "domain": "r02"} for name in names}
    moved = {tray.replace("r01", "r02"): row for tray, row in trays.items() if tray in plan["moved"]}
    moved = {tray: {**FABRIC.trays[tray], "clique": row["clique"]} for tray, row in moved.items()}
    both = replace(planned, trays={**planned.trays, **moved}, cliques={**planned.cliques, **rows})
    answering = [*plan["clique_ids"], *other["clique_ids"]]
    assert list(partition_steps.disagreements([plan, other], answering, FABRIC, both)) == []
    alone = list(partition_steps.disagreements([plan], answering, FABRIC, both))
    assert len(alone) == len(other["moved"])


@pytest.mark.parametrize(
    ("key", "value"),
    [("imex_address", "192.0.2.66"), ("gpu_uuids", ["GPU-x"]), ("slurm_node", "n9"), ("ansible_host", "192.0.2.66")],
)
def test_a_tray_that_moves_brings_nothing_else_along(rack: Rack, key: str, value: Any) -> None:
    plan, planned = split(rack)
    rows = {**planned.trays, "r01t01": {**planned.trays["r01t01"], key: value, "why": "moved", "block": "r01_2"}}
    found = partition_steps.disagreements([plan], plan["moved"], FABRIC, replace(planned, trays=rows))
    assert list(found) == [f"r01t01 would have another {key}"]


def test_a_tray_that_was_silent_follows_its_gpus_when_it_answers(rack: Rack) -> None:
    rack.down = {"r01t03"}
    plan, planned = split(rack)
    assert "r01t03" in plan["moved"]
    assert "r01t03" not in plan["clique_ids"]

    def found(after: Fabric) -> list[str]:
        return list(partition_steps.disagreements([plan], FABRIC.trays, FABRIC, after))

    # It stays, or goes where the switch has moved it, and nowhere else.
    assert found(planned) == []
    for tray, problems in (("r01t04", []), ("r01t01", ["r01t03 would move to clique r01a"])):
        row = {**planned.trays["r01t03"], "clique": planned.trays[tray]["clique"]}
        assert found(replace(planned, trays={**planned.trays, "r01t03": row})) == problems
    # An earlier change has moved its GPUs, and in this one they stay.
    stays: Plan = {**plan, "moved": [tray for tray in plan["moved"] if tray != "r01t03"]}
    row = {**planned.trays["r01t03"], "clique": planned.trays["r01t04"]["clique"]}
    after = replace(planned, trays={**planned.trays, "r01t03": row})
    assert list(partition_steps.disagreements([stays], FABRIC.trays, FABRIC, after)) == []


def test_an_older_default_partition_has_the_clique_that_its_gpus_report(rack: Rack) -> None:
    rack.partitions[7] = rack.partitions.pop(32766)
    plan, _objections = rack.plan("2x2")
    assert set(turned(plan)["clique_ids"].values()) == {32766}
    assert turned(turned(plan)) == plan


def test_a_run_with_nothing_to_change_says_what_it_has_not_compared() -> None:
    assert partition_steps.met(["r01", "r02"]) == (
        "The trays of r[01-02] are in the partitions of nvlink_partitions; the layer switch of the playbook verify"
        " compares their resiliency and multicast_limit."
    )


def gpu_problem(wanted: dict[str, int], affected: Any, found: Any) -> str:
    plan: Any = {"clique_ids": wanted, "affected": [*affected]}
    return partition_answers.gpu_problem(plan, found)


def test_gpus_that_are_not_where_the_plan_has_them_are_named() -> None:
    wanted = {"r01t01": 1, "r01t02": 1, "r01t03": 2}
    assert gpu_problem(wanted, FABRIC.trays, {"r01t01": ("u", 1), "r01t02": ("u", 1), "r01t03": ("u", 2)}) == ""
    text = gpu_problem(wanted, FABRIC.trays, {"r01t01": ("u", 32766), "r01t02": None})
    what = "the GPUs of r01t[01-02] report clique ID 32766 and no clique instead of the clique of the plan"
    assert text == f"{what}; correct their partitions on the switch"


def test_a_tray_that_dies_meanwhile_holds_no_other_one_back() -> None:
    wanted = {"r01t01": 1, "r01t02": 1}
    assert gpu_problem(wanted, FABRIC.trays, {"r01t02": ("u", 1)}) == ""
    # Nobody shows that the switch has changed.
    assert gpu_problem(wanted, FABRIC.trays, {"r01t04": ("u", 1)}) == "r01t[01-02] did not answer"
    # None that answers moves.
    assert gpu_problem({}, ["r01t03", "r01t04"], {"r01t04": ("u", 7)}) == ""
    assert gpu_problem({}, ["r01t03", "r01t04"], {}) == "r01t[03-04] did not answer"


@pytest.mark.parametrize(
    ("step", "row", "said"),
    [
        ("imex", {"changed": True}, ""),
        ("imex", {"unreachable": True, "msg": "no route"}, ""),
        ("imex", {"failed": True, "msg": "it hangs {{ evil }}\n"}, "r01t01: it hangs { { evil }}"),
        ("drain", {"unreachable": True, "msg": "no route"}, "r01t01: no route"),
        ("drain", {"unknown_nodes": ["n1"]}, "slurmctld does not have n1; correct slurm_node in the fabric file"),
        (
            "drain",
            {"running_jobs": {"r01t01": ["7", "8"]}},
            "jobs still run on r01t01 (7, 8); wait for them, or cancel them",
        ),
    ],
)
def test_a_step_fails_by_what_its_tasks_registered(step: str, row: dict[str, Any], said: str) -> None:
    assert partition_answers.problem(step, {"": [], "r01t01": [{}, row]}) == said


def test_a_host_whose_tasks_did_not_run_has_not_done_the_step() -> None:
    variables: dict[str, dict[str, Any]] = {"ctl": {"inventory_hostname": "ctl"}, "gone": {}}
    answers = partition_answers.of_hosts(variables, variables.__getitem__, ["result"])
    # A tray that the inventory does not have is one that does not answer.
    assert answers == {"ctl": [{}]}
    for step in ("imex", "slurm"):
        assert partition_answers.problem(step, answers).startswith("ctl: some tasks of this step were skipped")
    assert partition_answers.problem("slurm", {"": [{}], "ctl": [{}, {"skipped": True}]}) == ""
    # An earlier task did; a failure of one says more.
    assert partition_answers.problem("slurm", {"ctl": [{"changed": True}, {}]}).startswith(
        "ctl: some tasks of this step"
    )
    assert partition_answers.problem("slurm", {"ctl": [{"failed": True, "msg": "it hangs"}, {}]}) == "ctl: it hangs"


def test_by_hand_each_partition_of_the_switch_is_listed(rack: Rack) -> None:
    plan, _planned = split(rack)
    lines = partition_steps.by_hand(plan)
    assert len(lines) == 1 + len(plan["after"])
    assert any(line.endswith(": r01t[01-02]") for line in lines)
    assert any(line.startswith("partition 32766 ") and line.endswith(": no GPU") for line in lines)
