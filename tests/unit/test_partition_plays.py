# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plays of the playbook partition ask before they go on; tests/integration runs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import pytest
import yaml
from ansible.plugins.filter.core import FilterModule as CoreFilters
from ansible.plugins.filter.mathstuff import FilterModule as MathFilters
from ansible.plugins.test.core import TestModule as CoreTests
from ansible.plugins.test.mathstuff import TestModule as MathTests

PLAYBOOKS = Path(__file__).resolve().parents[2] / "playbooks"
PLAYS = yaml.safe_load((PLAYBOOKS / "partition.yml").read_text("utf-8"))


def play(name: str) -> dict[str, Any]:
    return next(row for row in PLAYS if row["name"] == name)


def tasks(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All tasks in their order, those of blocks too."""
    parts = ("block", "rescue", "always")
    return [one for row in rows for one in (row, *(task for part in parts for task in tasks(row.get(part, []))))]


def task(of_play: str, name: str) -> dict[str, Any]:
    return next(row for row in tasks(play(of_play)["tasks"]) if row["name"] == name)


def evaluated(expression: str, **variables: Any) -> Any:
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=True)
    # Jinja's own ones first: Ansible's default is for values that only Ansible makes.
    environment.filters = CoreFilters().filters() | MathFilters().filters() | environment.filters
    environment.tests.update(CoreTests().tests() | MathTests().tests())
    compiled = environment.compile_expression(expression.removeprefix("{{").removesuffix("}}"), undefined_to_none=False)
    return compiled(**variables)


def is_true(condition: str, **variables: Any) -> bool:
    return bool(evaluated(condition, **variables))


def test_a_rehearsal_that_fails_is_an_objection_of_the_plan() -> None:
    failed = task("Rehearse the blocks and tiers in Slurm", "Keep why Slurm could not compare it")
    [kept] = failed["ansible.builtin.set_fact"]
    reviewed = task("Review the plan", "Compute the plan")["rackscale.nvlink.partition"]
    assert kept in reviewed["registered"]


def test_the_tests_are_of_trays_that_answer_and_never_of_the_whole_site() -> None:
    tested = play("Test the trays and return them to service")
    assert "partition_answered.trays | default([]) is truthy" in tested["when"]
    # What the trays are drained for, even where the site gives its rollouts another reason.
    drained = task("Drain the trays", "Drain each tray and wait for its jobs")["rackscale.nvlink.slurm_nodes"]
    assert tested["vars"]["rollout_reason"] == drained["reason"]
    assert (tested["vars"]["rollout_any_reason"], tested["vars"]["rollout_resume"]) == (False, "")
    assert task("Report the change", "Read what the tests have found")["when"] == "partition_answered.trays is truthy"


def test_a_controller_on_which_a_later_task_failed_is_not_configured() -> None:
    ended = task("Begin the return to service", "End with Slurm")["rackscale.nvlink.partition"]
    names = [row["name"] for row in PLAYS]
    # Ansible leaves hosts that have failed out of it.
    last = PLAYS[names.index("Begin the return to service") - 1]
    assert last["hosts"] == play("Configure the blocks and tiers in Slurm")["hosts"]
    [kept] = last["tasks"][-1]["ansible.builtin.set_fact"]
    assert ended["registered"][-1] == kept


def test_a_failed_read_of_the_gpus_is_repeated() -> None:
    waits = task(
        "Wait until the GPUs report the new partitions", "Read the GPUs until they are in the clique of the plan"
    )

    def ends(expected: int | None, **answer: Any) -> bool:
        return is_true(waits["until"], partition_gpus=answer, partition_expected=expected)

    def of_clique(number: int) -> dict[str, Any]:
        return {"ansible_facts": {"nvlink_fabric": {"clique_id": number}}}

    assert ends(3, **of_clique(3))
    assert not ends(3, **of_clique(4))
    assert not ends(3, failed=True, msg="nvidia-smi timed out")
    assert ends(3, unreachable=True)
    assert ends(None, failed=True)


def test_a_wait_that_has_run_out_hides_no_clique() -> None:
    # Ansible fails a task whose until was never true, and the facts of a failed task do not count.
    waits, last = tasks(play("Wait until the GPUs report the new partitions")["tasks"])
    assert waits["register"] == last["register"]
    assert "until" not in last


def test_slurm_is_asked_at_the_moment_when_the_gpus_move() -> None:
    names = [row.get("name") for row in play("Change the partitions on the switches")["tasks"]]
    before = names[names.index("Move the GPUs") - 1]
    assert before == task("Plan the partitions", "Ask Slurm for the states of nodes and for running jobs")["name"]


def test_a_wait_for_pods_that_runs_out_ends_the_run() -> None:
    rows = play("Drain the trays")["tasks"]
    begin, end = rows[-2:]
    assert (begin["ignore_errors"], end["when"]) == (True, f"{begin['register']} is failed")
    given = end["rackscale.nvlink.partition"]
    assert (given["state"], given["step"], given["results"]) == ("ended", "imex", ["{{ partition_due }}"])


ANNOTATION = "rackscale.nvlink/partition"


def cordon(name: str, note: str = "", is_cordoned: bool = True) -> dict[str, Any]:
    """What the playbook has read of a node. note: the change of its annotation."""
    metadata = {"name": name, **({"annotations": {ANNOTATION: note}} if note else {})}
    row = {"kubernetes_node": name, "incident": "2" * 12}
    return {"item": row, "failed": False, "resources": [{"metadata": metadata, "spec": {"unschedulable": is_cordoned}}]}


@pytest.mark.parametrize(
    ("node", "is_cordoned", "is_released"),
    [
        (cordon("n1", is_cordoned=False), True, False),
        (cordon("n1", "2" * 12), True, True),
        # Left by an earlier change: this one ends it, once it is annotated for this one.
        (cordon("n1", "1" * 12), True, False),
        # By a person.
        (cordon("n1"), False, False),
    ],
)
def test_nodes_are_made_schedulable_again_that_a_change_has_cordoned(
    node: dict[str, Any], is_cordoned: bool, is_released: bool
) -> None:
    rows = yaml.safe_load((PLAYBOOKS / "tasks/cordon.yml").read_text("utf-8"))
    changes = next(row for row in rows if row["name"] == "Change whether new pods may start there")
    given = task("Drain the trays", "Cordon their nodes in Kubernetes")["vars"]
    assert given["cordon_annotation"] == ANNOTATION

    def is_changed(wanted: bool, kept: tuple[str, ...] = ()) -> bool:
        owner = evaluated(changes["vars"]["cordon_owner"], item=node, cordon_annotation=ANNOTATION)
        more = {"cordon_owner": owner, "cordon_wanted": wanted, "cordon_kept": kept}
        return all(is_true(row, item=node, cordon_inherits=given["cordon_inherits"], **more) for row in changes["when"])

    assert (is_changed(True), is_changed(False)) == (is_cordoned, is_released)
    assert not is_changed(False, ("n1",))


def test_nodes_that_stay_cordoned_are_named() -> None:
    report = play("Report the change")
    rows = [{"tray": f"t{number}", "kubernetes_node": f"n{number}"} for number in range(1, 5)]
    # t2 does not answer, t3 has failed its test, and a person has cordoned the node of t4.
    answered, tested = {"trays": ["t1", "t3"]}, {"trays": ["t3"]}
    given = {"partition_due": {"rows": rows}, "partition_answered": answered, "partition_tested": tested}
    left = evaluated(report["vars"]["cordon_left"], **given)
    assert sorted(left) == ["n2", "n3", "n4"]
    # The nodes were read before the change.
    read = {"results": [*(cordon(name, "2" * 12) for name in ("n1", "n2", "n3")), cordon("n4")]}
    named = task("Report the change", "Print which nodes stay cordoned")
    found = evaluated(named["vars"]["partition_cordoned"], cordon_nodes=read, cordon_left=left)
    assert found == ["n2", "n3"]
    assert "kubectl uncordon" in named["ansible.builtin.debug"]["msg"]


def test_one_time_limit_is_for_the_labels_of_all_nodes() -> None:
    [limit, waits] = yaml.safe_load((PLAYBOOKS / "tasks/labels.yml").read_text("utf-8"))

    class Clock(NamedTuple):
        at: float

        def timestamp(self) -> float:
            return self.at

    end = evaluated(limit["ansible.builtin.set_fact"]["label_end"], now=lambda: Clock(1000.5), partition_wait="60")
    found = [evaluated(waits["retries"], now=lambda at=at: Clock(at), label_end=str(end)) for at in (1000, 1042, 1100)]
    assert (found, waits["delay"]) == ([12, 4, 0], 5)


@pytest.mark.parametrize(
    ("owner", "is_stopped", "is_configured"),
    [
        ("domain", True, True),
        ("host_managed", True, True),
        ("job", False, True),
        ("none", False, True),
        ("driver_managed", False, False),
        ("", False, False),
    ],
)
def test_imex_is_stopped_and_configured_for_the_owner_of_the_plan(
    owner: str, is_stopped: bool, is_configured: bool
) -> None:
    stop = task("Stop IMEX on the trays", "Stop IMEX before its node list changes")
    tested = play("Test the trays and return them to service")["vars"]
    # What a tray has returned with another task, and what the inventory has for its new clique, say otherwise.
    mine = {"inventory_hostname": "r01t01", "imex_owner": "" if is_configured else "domain"}
    localhost = {"partition_due": {"trays": ["r01t01"]}, "partition_change": {"imex_owner": owner}}
    given = {**mine, "hostvars": {"localhost": localhost}}
    assert all(is_true(row, **given) for row in stop["when"]) == is_stopped
    assert ("imex" in evaluated(tested["rollout_steps"], **given)) == is_configured
    # Variables of a play rank above facts and the inventory.
    assert evaluated(tested["imex_owner"], **given) == owner


@pytest.mark.parametrize(
    ("given", "domains"), [("r01, r02", ["r01", "r02"]), (["r01", "r02"], ["r01", "r02"]), ("", [])]
)
def test_the_domains_of_a_run_are_a_list_or_a_text(given: Any, domains: list[str]) -> None:
    named = task("Find the NVLink domains whose partitions change", "Compare the wish with the fabric file")
    only = named["rackscale.nvlink.partition"]["only"]
    assert [*evaluated(only, partition_domains=given)] == domains
