# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook partition with faults of a switch, killed in each of its steps, and turned back.

Whatever happens, each GPU is in one NVLink partition at the end, or the sentence names those that are in none; the same
command goes on.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.tests.lab.nvlab import switch

from .partition_site import POST, TWO, Answer, PartitionSite

WISH = {"nvlink_partitions": {"r01": [1, 1]}}
DEFAULT = int(switch.DEFAULT)
BEFORE = {DEFAULT: ["r01t01", "r01t02"]}
AFTER = {DEFAULT: [], 1: ["r01t01"], 2: ["r01t02"]}
CREATE, REMOVE, ADD = "@create", "@restore", "@update"
# The first creation follows the removal of two trays with four GPUs each.
FIRST_CREATE = 9
# Seconds until a switch lists a change.
WAIT = 5


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> PartitionSite:
    made = PartitionSite(tmp_path_factory.mktemp("partition"))
    made.create()
    return made


@pytest.fixture
def site(template: PartitionSite, tmp_path: Path) -> Iterator[PartitionSite]:
    made = PartitionSite(tmp_path / "site").copy_of(template)
    made.variables = {**WISH, "partition_wait": WAIT}
    yield made
    made.stop()


def is_split(site: PartitionSite) -> None:
    """Two cliques of one tray, on the switch, by the GPUs and in the fabric file; the other rack as it was."""
    assert site.partitions == AFTER
    assert site.reported == {"r01t01": 1, "r01t02": 2, "r02t01": DEFAULT, "r02t02": DEFAULT}
    assert sorted(site.cliques.values()) == [["r01t01"], ["r01t02"], ["r02t01", "r02t02"]]
    assert site.journal[-1]["step"] == "end"


def is_as_before(site: PartitionSite) -> None:
    assert {number: trays for number, trays in site.partitions.items() if trays} == BEFORE
    assert set(site.reported.values()) == {DEFAULT}
    assert site.cliques == {"r01": ["r01t01", "r01t02"], "r02": ["r02t01", "r02t02"]}


def posts(site: PartitionSite) -> Counter[str]:
    return Counter(verb for verb, _path in site.domain.posts)


def test_a_rack_is_split_and_given_back(site: PartitionSite) -> None:
    before = site.everything
    sha = site.plan()
    assert sha in site.partition("--check", "--diff")
    assert site.everything == before, "a plan changes nothing"
    assert "partition_plan" in site.refused(partition_plan="0" * 64)
    assert site.everything == before
    site.partition(partition_plan=sha)
    is_split(site)
    assert posts(site) == {REMOVE: 8, CREATE: 2, ADD: 6}
    again = site.everything
    assert "changed=1" not in site.partition()
    assert site.everything == again
    back = {"nvlink_partitions": {"r01": "default"}}
    site.partition(**back, partition_plan=site.plan(**back))
    is_as_before(site)
    # What this collection has made and emptied is deleted; its name and ID come back.
    assert set(site.partitions) == {DEFAULT}
    site.partition(partition_plan=site.plan())
    is_split(site)


# ---------------------------------------------------------------------------------------------- faults before a change

# One of each kind of refusal: the unit tests of clients/nvue.py and of the plan have every answer.
FAULTS = {
    "password": ({"login": "wrong"}, "rejects the credentials (HTTP 401)"),
    "configuration": ({"answer": "configuration"}, "r01sw1: no controller"),
    "database": ({"controller": "ERROR", "reason": "DB_CORRUPTED"}, "DB_CORRUPTED"),
    "degraded": ({"health": "DEGRADED"}, "degraded"),
    "in_no_partition": ({"out": "1.10.1.2"}, "r01t01"),
    "swapped": ({"swap": "1.10.1.1,1.11.1.1"}, "r01t01"),
}


@pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=() if name in ("password", "swapped") else pytest.mark.long) for name in FAULTS]
)
def test_a_fault_before_the_change_is_named_and_nothing_is_changed(site: PartitionSite, fault: str) -> None:
    given, *words = FAULTS[fault]
    site.fault(**given)
    site.domain.tick()
    before = site.everything
    text = site.refused()
    for word in words:
        assert word in text, text[-3000:]
    assert site.everything == before
    assert not site.domain.posts


# ---------------------------------------------------------------------------------------------- faults in the middle


def test_the_refusal_of_the_third_gpu_puts_everything_back(site: PartitionSite) -> None:
    site.fault(refuse="2")
    text = site.refused(partition_plan=site.plan())
    assert "failed to update partition 1 location 1.10.1." in text
    is_as_before(site)
    assert set(site.partitions) == {DEFAULT}
    assert site.journal[-1]["step"] == "end"
    # It is over: the next plan is another one, whose IDs are new.
    site.fault(refuse="")
    site.partition(partition_plan=site.plan())
    assert [trays for number, trays in sorted(site.partitions.items()) if number != DEFAULT] == [["r01t01"], ["r01t02"]]


@pytest.mark.long
def test_a_switch_that_rejects_the_password_in_the_middle_leaves_gpus_out_and_names_them(site: PartitionSite) -> None:
    def refuse(number: int, _verb: str, _path: str) -> None:
        if number == FIRST_CREATE:
            site.fault(login="wrong")

    sha = site.plan()
    site.domain.before = refuse
    text = site.refused(partition_plan=sha)
    assert "rejects the credentials" in text
    assert "In no NVLink partition: 8 GPUs of 2 trays (r01t[01-02]), which must stay drained" in text
    assert site.domain.members == {DEFAULT: set()}
    site.fault(login="")
    site.partition()
    is_split(site)


@pytest.mark.long
def test_a_creation_that_is_not_known_to_be_done_is_not_sent_twice(site: PartitionSite) -> None:
    """The run ends as unknown; the next one finds it done."""

    def late(number: int, _verb: str, _path: str) -> None:
        site.domain.take(12 if number == FIRST_CREATE else 0.05)

    sha = site.plan()
    site.domain.before = late
    text = site.refused(partition_plan=sha)
    assert "may or may not have done the creation of NVLink partition 1 with the GPU 1.1" in text
    assert "partition_rollback=true" in text
    assert posts(site)[CREATE] == 1
    time.sleep(8)  # the switch completes it by its own clock
    site.partition()
    is_split(site)
    assert posts(site) == {REMOVE: 8, CREATE: 2, ADD: 6}


@pytest.mark.long
def test_a_change_that_stopped_is_turned_back(site: PartitionSite) -> None:
    def silent(number: int, _verb: str, _path: str) -> None:
        if number == FIRST_CREATE + 5:
            site.fault(answer="none")

    sha = site.plan()
    site.domain.before = silent
    site.refused(partition_plan=sha)
    assert site.domain.members[1], "half of it is done"
    site.domain.before = lambda _number, _verb, _path: None
    site.fault(answer="")
    site.partition(partition_rollback=True)
    is_as_before(site)
    assert set(site.partitions) == {DEFAULT}
    assert site.journal[-1]["step"] == "end"


@pytest.mark.long
def test_what_somebody_else_has_changed_is_not_changed_back(site: PartitionSite) -> None:
    def other(number: int, _verb: str, _path: str) -> None:
        if number == FIRST_CREATE:
            with site.domain._lock:
                site.domain._state["partitions"]["9"] = switch._partition("other", switch.MODES[0], 0, ["1.11.1.4"])

    sha = site.plan()
    site.domain.before = other
    text = site.refused(partition_plan=sha)
    assert "lists GPUs of r01t02 in NVLink partition 9, and the plan has 2 and 32766; somebody else" in text
    assert site.domain.members[9] == {"1.11.1.4"}


# ------------------------------------------------------------------------------------------------------------- killed


def steps(lines: list[dict[str, Any]]) -> set[str]:
    """The steps that a journal names; the unit tests of partitions/ continue after each of its lines."""
    return {line["step"] for line in lines}


def ended(site: PartitionSite) -> bool:
    return any(line["step"] == "end" and line["state"] == "done" for line in site.journal)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[PartitionSite]:
    """Two GPUs a tray, so that a journal has fewer lines."""
    made = PartitionSite(tmp_path / "small", racks=1, trays_per_rack=2, gpus_per_tray=2)
    made.create()
    made.start()
    made.variables = {**WISH, "partition_wait": WAIT}
    yield made
    made.stop()


@pytest.mark.long
def test_a_run_that_is_killed_in_each_step_goes_on(small: PartitionSite) -> None:
    """One change, of which each run is killed after the first line of a step that no run before has begun."""
    site, sha = small, small.plan()
    runs = 0
    while not ended(site):
        seen = steps(site.journal)
        runs += site.killed(lambda lines, seen=seen: not steps(lines) <= seen, partition_plan=sha)
        assert steps(site.journal) > seen or runs < 2, "each run gets further"
    print(runs, "runs were killed")
    assert runs > 6
    assert site.partitions == AFTER
    assert sorted(site.cliques.values()) == [["r01t01"], ["r01t02"]]
    assert site.journal[-1]["step"] == "end"
    assert posts(site)[CREATE] == 2
    assert "changed=1" not in site.partition()


@pytest.mark.long
def test_a_way_back_that_is_killed_goes_on(small: PartitionSite) -> None:
    site, sha = small, small.plan()
    assert site.killed(lambda lines: any(line["code"] == "update 1" for line in lines), partition_plan=sha)
    written = len(site.journal)
    has_sent = {"rollback", "switch"}.issubset
    assert site.killed(lambda lines: has_sent(line["step"] for line in lines[written:]), partition_rollback=True)
    assert not ended(site)
    site.partition(partition_rollback=True)
    assert site.partitions == BEFORE
    assert site.cliques == {"r01": ["r01t01", "r01t02"]}
    assert site.journal[-1]["step"] == "end"


# ------------------------------------------------------------------------------------------------------------ hostile

EVIL = "{{ lookup('pipe', 'touch {0}') }}\x1b[2J"


def _listed(answer: Answer, **more: Any) -> Answer:
    status, document = answer
    return status, {key: {**row, **more} for key, row in document.items()}


def hostile(kind: str, proof: Path) -> Any:
    """What a hostile switch answers in place of the true answer."""

    def answers(method: str, path: str, answer: Answer) -> Answer:
        is_one = path.startswith("/nvue_v1/sdn/partition/") and method != POST
        if kind == "words" and is_one:
            return answer[0], {**answer[1], "name": EVIL.replace("{0}", str(proof)), "health": EVIL}
        if kind == "other_rack" and is_one:
            locations = {f"1.{slot}.1.{module}": {"uuid": "0x1"} for slot in (10, 11) for module in (1, 2, 3, 4)}
            return answer[0], {**answer[1], "locations": locations, "uuids": {}}
        return answer

    return answers


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("words", "lookup('pipe', 'touch"),
        ("other_rack", "the switch lists GPUs of NVLink domain r01 otherwise than their drivers"),
    ],
)
@pytest.mark.long
def test_a_hostile_switch_changes_nothing_elsewhere(site: PartitionSite, tmp_path: Path, kind: str, words: str) -> None:
    proof, before = tmp_path / "proof", site.everything
    site.domain.answers = hostile(kind, proof)
    sentence = site.refused()
    assert words in sentence
    assert "\\u001b" not in sentence
    assert sentence.isprintable()
    assert not proof.exists()
    assert site.everything == before


@pytest.mark.long
def test_a_switch_that_lies_after_a_change_places_no_tray(site: PartitionSite) -> None:
    """It lists what was asked for and moves no GPU: the GPUs decide, so the fabric file stays."""
    sha = site.plan()
    site.domain._drive = lambda _tray, _rows: None
    before = site.fabric.read_bytes()
    text = site.refused(partition_plan=sha)
    assert "the GPUs of r01t[01-02] report clique ID 32766 instead of the clique of the plan" in text
    assert site.fabric.read_bytes() == before
    assert {line["step"] for line in site.journal if line["state"] == "failed"} == {"gpus"}


def test_the_second_switch_of_a_domain_may_be_silent(site: PartitionSite) -> None:
    site.fault(TWO, answer="none")
    assert len(site.plan()) == 64


def test_imex_of_another_owner_is_left_alone(site: PartitionSite) -> None:
    """As with Mission Control or a prolog of the site, for which imex_owner is left unset."""
    given = {"imex_owner": None, "dra_driver_shape": None}
    text = site.partition("--check", **given)
    assert "IMEX is left to whoever owns it, since imex_owner is not set." in text
    text = site.partition(**given, partition_plan=site.plan(**given))
    assert "Configure IMEX" not in text
    is_split(site)


def test_trays_that_change_together_have_one_owner_of_imex(site: PartitionSite) -> None:
    """It is decided with the plan: the IMEX that one owner has stopped would not start again for another one."""
    (site.folder / "host_vars").mkdir()
    (site.folder / "host_vars/r01t01.yml").write_text("imex_owner: domain\n")
    before = site.everything
    text = site.refused("--check", imex_owner=None)
    assert "imex_owner is 'domain' for 1 tray (r01t01) and 'driver_managed' for 1 tray (r01t02)" in text
    assert "set one for all of them in group_vars/all.yml" in text
    assert site.everything == before
