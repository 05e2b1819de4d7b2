# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of open changes in their journals, and runs that meet or are killed."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import cast

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import nvue
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import storage
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions import PartitionError, switching
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_changes import Changes
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_journal import (
    STEPS,
    Journal,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_plan import Plan, turned
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics

from .memory_switch import NOW, SHA
from .partition_world import Rack

FABRIC = fabrics.fabric(racks=2, trays=4, split=())
OWN = os.getpid()


class Site:
    """A journal for each of two domains; each task of a run reads them again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.rack = folder, Rack(FABRIC)

    @property
    def changes(self) -> Changes:
        return self.by("nvue")

    def by(self, by: str) -> Changes:
        paths = {domain: str(self.folder / f"fabric.partition-{domain}.jsonl") for domain in ("r01", "r02")}
        return Changes(FABRIC, {domain: Journal(path, domain, lambda: NOW) for domain, path in paths.items()}, by)

    def plan(self, by: str = "nvue") -> Plan:
        plan, objections = self.rack.plan("2x2", by)
        assert objections == []
        return plan

    def both(self) -> tuple[Plan, Plan]:
        """The same plan of two domains."""
        plan = self.plan()
        return plan, cast(Plan, json.loads(json.dumps(plan).replace("r01", "r02")))

    def confirm(self, *plans: Plan, rollback: bool = False) -> None:
        changes = self.changes
        with changes.unmarked_by_failure(OWN, "confirmed", None):
            changes.confirm(plans, SHA, rollback, NOW, OWN)

    def due(self) -> list[str]:
        return [step for step in STEPS if self.changes.opened(step)]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def find(domain: str) -> nvue.Switch:
    raise AssertionError(f"no switch of {domain} is asked")


def test_each_step_is_due_until_it_has_ended_well(site: Site) -> None:
    site.confirm(site.plan())
    for step in STEPS:
        assert step in site.due()
        assert site.changes.affected(step) == ["r01t01", "r01t02", "r01t03", "r01t04"]
        assert site.changes.begin(step)
        with pytest.raises(PartitionError, match=r"it hangs; the trays stay drained: run partition again .*rollback"):
            site.changes.end(step, "it hangs")
        assert step in site.due()
        assert site.changes.begin(step)
        assert site.changes.end(step, "")
        # A tray may be resumed by somebody until its GPUs have moved.
        assert ("drain" in site.due()) == (step in ("drain", "imex", "switch"))
        assert (site.changes.affected(step) == []) == (step not in site.due())
    text, failure = site.changes.report(["r01t01", "r01t02", "r01t03"], {}, OWN)
    assert text == [
        "NVLink domain r01: 4 trays moved.",
        "No answer, so still drained: 1 tray (r01t04); return with the playbook resume.",
    ]
    assert (failure, site.changes.opened()) == ("", [])


def test_a_change_that_is_turned_back_waits_for_the_cliques_of_before(site: Site) -> None:
    plan = site.plan()
    site.confirm(plan)
    assert site.changes.due("gpus", {})["clique_ids"] == plan["clique_ids"]
    [line] = site.changes.going_on(["r01"], rollback=True)
    assert "steps left on the way back: drain, imex, switch" in line
    site.confirm(rollback=True)
    assert set(site.changes.due("gpus", {})["clique_ids"].values()) == {32766}
    [(journal, _plan)] = site.changes.opened()
    assert journal.is_back
    site.changes.require_agreed(FABRIC, site.changes.affected())


def test_a_fabric_file_with_other_places_is_not_accepted(site: Site) -> None:
    plan = site.plan()
    site.confirm(plan)
    site.changes.require_agreed(site.rack.planned(plan), site.changes.affected())
    with pytest.raises(PartitionError, match=r"would not be that of the plan \(r01t01 would be in clique r01 "):
        site.changes.require_agreed(FABRIC, site.changes.affected())


def test_a_person_changes_the_switch_by_hand(site: Site) -> None:
    site.confirm(site.plan("hand"))
    text = site.changes.switch(find, 1, print, NOW)
    assert text[0].startswith("Set the NVLink partitions of r01 on its switch now")
    assert "switch" not in site.due()
    # Until the GPUs report them, also for a run that goes on.
    assert site.changes.switch(find, 1, print, NOW) == text
    site.changes.begin("gpus")
    site.changes.end("gpus", "")
    assert site.changes.switch(find, 1, print, NOW) == []


def test_a_change_that_the_switch_does_not_end_goes_on_by_hand(site: Site) -> None:
    plan = site.plan()
    site.confirm(plan)
    site.confirm(rollback=True)
    text = site.by("hand").switch(find, 1, print, NOW)
    assert any(line.endswith(": r01t[01-04]") for line in text)
    assert "switch" not in site.due()
    # The plan is as it was, and a later run may ask the switch again.
    [(journal, found)] = site.changes.opened()
    assert (found, journal.change[-1]["detail"]) == (turned(plan), "by hand")


def test_a_domain_that_fails_on_its_switch_stops_no_other(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.confirm(*site.both())

    def converge(_switch: object, plan: Plan, *_rest: object) -> nvue.Outcome:
        refused = nvue.Outcome(nvue.UNKNOWN, f"{plan['domain']} does not answer")
        return refused if plan["domain"] == "r01" else nvue.Outcome(nvue.DONE)

    monkeypatch.setattr(switching, "converge", converge)
    said = list[str]()
    with pytest.raises(PartitionError, match=r"^r01 does not answer; each of r01 and r02 .* -e partition_domains$"):
        site.changes.switch(lambda _domain: nvue.switch("s", {"url": "https://192.0.2.1"}), 1, said.append, NOW)
    assert [journal.domain for journal, _plan in site.changes.opened("switch")] == ["r01"]
    assert said == ["The switch has the partitions of NVLink domain r02 now."]


def test_a_journal_that_cannot_be_written_stops_no_other_domain(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.confirm(*site.both())
    changes, asked = site.changes, list[str]()
    path = Path(changes.journals["r01"].path)
    path.unlink()
    path.mkdir()

    def converge(_switch: object, plan: Plan, *_rest: object) -> nvue.Outcome:
        asked.append(plan["domain"])
        return nvue.Outcome(nvue.DONE)

    monkeypatch.setattr(switching, "converge", converge)
    said = list[str]()
    with pytest.raises(PartitionError, match=re.escape(str(path))):
        changes.switch(lambda _domain: nvue.switch("s", {"url": "https://192.0.2.1"}), 1, said.append, NOW)
    assert asked == ["r02"], "nothing is sent that the journal does not have"
    assert said == ["The switch has the partitions of NVLink domain r02 now."]


def test_each_domain_waits_for_its_own_gpus(site: Site) -> None:
    plan, other = site.both()
    site.confirm(plan, other)
    found = {tray: ("u", number) for tray, number in other["clique_ids"].items()}
    with pytest.raises(PartitionError, match=r"^r01t\[01-04\] did not answer; the trays stay drained: "):
        site.changes.end("gpus", "", found)
    assert [journal.domain for journal, _plan in site.changes.opened("gpus")] == ["r01"]


def test_each_change_that_was_put_back_is_reported(site: Site) -> None:
    site.confirm(*site.both())
    for journal, plan in site.changes.opened():
        journal.turn_back(f"no {plan['domain']}")
    before = [f"The partitions of NVLink domain {domain} are as before: no {domain}." for domain in ("r01", "r02")]
    text, failure = site.changes.report([], {}, OWN)
    assert failure == " ".join([*text, *before])


def test_a_tray_that_fails_its_test_is_named_and_holds_no_change_open(site: Site) -> None:
    site.confirm(site.plan())
    nodes = {"r01t02": "DRAIN+IDLE: nvlink: test failed", "r01t04": "DRAIN+DOWN: nvlink: test failed", "r01t03": "IDLE"}
    text, failure = site.changes.report(["r01t01", "r01t02", "r01t03"], nodes, OWN)
    assert len(text) == 2
    what = "The tests of 1 tray (r01t02) have failed, and the change has ended without them"
    assert failure == f"{' '.join(text)} {what}: they stay drained; return them with the playbook repair or resume."
    assert site.changes.opened() == []


def test_of_two_runs_one_is_refused(site: Site) -> None:
    [path, _other] = [journal.path for journal in site.changes.journals.values()]
    assert site.changes.in_use([str(site.folder / "fabric.json")], OWN) == []
    # The parent of this process lives as long as it does.
    storage.mark(path, NOW, os.getppid())
    [sentence] = site.changes.in_use([], OWN)
    assert sentence.startswith(f"{path} is in use by pid {os.getppid()}")
    with pytest.raises(PartitionError, match="is in use by pid"):
        site.confirm(site.plan())
    assert site.changes.opened() == []


def test_a_plan_that_waited_for_its_yes_is_not_begun_twice_or_beside_another_run(site: Site) -> None:
    plan, other = site.plan(), str(site.folder / "fabric.json")
    storage.mark(other, NOW, os.getppid())
    with pytest.raises(PartitionError, match="is in use by pid"):
        site.changes.confirm([plan], SHA, False, NOW, OWN, [other])
    site.changes.unmark(OWN)
    assert site.changes.opened() == []
    site.confirm(plan)
    with pytest.raises(
        PartitionError, match="another run has begun a change of the partitions of r01; run partition again"
    ):
        site.confirm(plan)
    [(journal, _plan)] = site.changes.opened()
    assert [line["step"] for line in journal.lines] == ["plan"]
    # Whoever refuses leaves no mark.
    assert site.changes.in_use([], os.getppid()) == []


def test_a_process_whose_run_was_killed_sends_nothing_more(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.confirm(site.plan())
    path, seen = site.changes.journals["r01"].path, list[str]()

    def converge(_switch: object, _plan: object, _journal: object, _wait: float, say: switching.Say) -> nvue.Outcome:
        say("1 of 8")
        # Its mark refuses any other run meanwhile.
        storage.unmark(path, os.getppid())
        seen.append(storage.held(path, os.getppid()))
        monkeypatch.setattr(os, "getppid", lambda: 1)
        say("2 of 8")
        raise AssertionError("it goes on")

    monkeypatch.setattr(switching, "converge", converge)
    lines = list[str]()
    with pytest.raises(PartitionError, match="has been killed"):
        site.changes.switch(lambda _domain: nvue.switch("s", {"url": "https://192.0.2.1"}), 1, lines.append, NOW)
    assert lines == ["1 of 8"]
    assert f"pid {OWN}" in seen[0]
    assert site.due()[0] == "drain"


def test_a_run_that_ends_by_an_error_leaves_no_mark(site: Site) -> None:
    site.confirm(site.plan())
    path = site.changes.journals["r01"].path
    for state, step, is_held in (("begun", "imex", True), ("begun", "slurm", False), ("ended", "imex", False)):
        site.changes.confirm([], SHA, False, NOW, OWN)
        with pytest.raises(PartitionError), site.changes.unmarked_by_failure(OWN, state, step):
            site.changes.end("imex", "it hangs")
        # As another process sees it.
        assert bool(storage.held(path)) == is_held
    assert site.changes.opened()
