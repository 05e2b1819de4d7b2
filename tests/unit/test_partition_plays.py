# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plays of the playbook partition ask before they go on; tests/integration runs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from ansible.plugins.filter.core import FilterModule as CoreFilters
from ansible.plugins.test.core import TestModule as CoreTests

PLAYS = yaml.safe_load((Path(__file__).resolve().parents[2] / "playbooks/partition.yml").read_text("utf-8"))


def play(name: str) -> dict[str, Any]:
    return next(row for row in PLAYS if row["name"] == name)


def tasks(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All tasks in their order, those of blocks too."""
    parts = ("block", "rescue", "always")
    return [one for row in rows for one in (row, *(task for part in parts for task in tasks(row.get(part, []))))]


def task(of_play: str, name: str) -> dict[str, Any]:
    return next(row for row in tasks(play(of_play)["tasks"]) if row["name"] == name)


def is_true(condition: str, **variables: Any) -> bool:
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=True)
    environment.tests.update(CoreTests().tests())
    return bool(environment.compile_expression(condition, undefined_to_none=False)(**variables))


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
    assert task("Report the change", "Read what the tests have found")["when"] == "partition_answered.trays is truthy"


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


@pytest.mark.parametrize(
    ("given", "domains"), [("r01, r02", ["r01", "r02"]), (["r01", "r02"], ["r01", "r02"]), ("", [])]
)
def test_the_domains_of_a_run_are_a_list_or_a_text(given: Any, domains: list[str]) -> None:
    named = task("Find the NVLink domains whose partitions change", "Compare the wish with the fabric file")
    only = named["rackscale.nvlink.partition"]["only"]
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=True)
    environment.filters.update(CoreFilters().filters())
    made = environment.compile_expression(only.strip("{} "))(partition_domains=given)
    assert [*made] == domains
