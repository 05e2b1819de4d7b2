# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of repair as the tasks of its playbook call them; the story of the lab has real hosts."""

from __future__ import annotations

import datetime
import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.action.repair import ActionModule
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import storage
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.journal import Line, append
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.repair.ledger import STEPS
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.repair import world

TRAY = "r01t02"


class Hosts(dict[str, Any]):
    raw_get = dict.__getitem__


class Site:
    """A fabric file, a verdict, the states in Slurm, and what the tasks of trays registered."""

    def __init__(self, folder: Path, run_action: Any) -> None:
        self.folder, self.run_action = folder, run_action
        self.fabric = fabrics.fabric(racks=2, trays=4, split=())
        (folder / "fabric.json").write_text(json.dumps(self.fabric.as_dict()))
        self.nodes = dict.fromkeys(self.fabric.trays, ("IDLE", ""))
        self.hosts = Hosts({"localhost": {}, TRAY: {}})
        self.jobs: list[str] = []
        self.verify(world.failed("recovery_action", TRAY, action="reset_gpu", gpu=1))

    def verify(self, *failures: Any, **more: Any) -> None:
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        verdict = {**world.verdict(failures, of=self.fabric), "checked_at": now, **more}
        (self.folder / "verdict.json").write_text(json.dumps(verdict))

    def __call__(self, state: str, step: str = "drain", **options: Any) -> dict[str, Any]:
        lines = [
            f"NodeName={name} Arch=x State={state} Reason={why} [root@2026]"
            for name, (state, why) in self.nodes.items()
        ]
        if state in ("begun", "ended"):
            options["step"] = step
        fixed = {"fabric_file": str(self.folder / "fabric.json"), "scontrol": lines, "squeue": self.jobs}
        found: dict[str, Any] = self.run_action(
            ActionModule, task_vars={"hostvars": self.hosts}, state=state, **{**fixed, **options}
        )
        return found

    def plan(self, **options: Any) -> dict[str, Any]:
        given = {"actions": ["reset_gpu"], "verdict_file": str(self.folder / "verdict.json"), "apply": True}
        return self("planned", **{**given, **options})

    def step(self, plan: list[Any], step: str, **options: Any) -> list[Any]:
        rows: list[Any] = self("begun", step, plan=plan)["rows"]
        self("ended", step, incidents=[row["incident"] for row in rows], **options)
        return rows

    @property
    def ledger(self) -> Path:
        return self.folder / "fabric.repairs.jsonl"

    def lines(self, *keys: str) -> list[tuple[str, ...]]:
        read = map(json.loads, self.ledger.read_text().splitlines())
        return [tuple(line[key] for key in keys or ("step", "state")) for line in read]


@pytest.fixture
def site(tmp_path: Path, run_action: Any) -> Site:
    return Site(tmp_path, run_action)


def test_without_apply_and_in_check_mode_nothing_is_written(site: Site, tmp_path: Path) -> None:
    shown = site.plan(apply=False, path=str(tmp_path / "plan.json"))
    assert [(row["tray"], row["action"], row["steps"]) for row in shown["plan"]] == [(TRAY, "reset_gpu", [])]
    assert not shown["changed"]
    assert shown["trays"] == []
    assert json.loads((tmp_path / "plan.json").read_text())[0]["allowed"] is True
    (tmp_path / "plan.json").write_text("[]\n")
    site.plan(apply=False, path=str(tmp_path / "plan.json"))
    assert "brake" in (tmp_path / "plan.json").read_text(), "an empty plan is replaced too"
    checked = site.plan(check=True, path=str(tmp_path / "check.json"))
    assert (checked["trays"], checked["actions"]) == ([], [])
    assert not (tmp_path / "check.json").exists()
    assert not site.ledger.exists()


def test_an_incident_is_closed_after_all_its_steps_and_not_opened_again(site: Site, tmp_path: Path) -> None:
    plan = site.plan()
    assert plan["trays"] == [TRAY]
    assert plan["actions"] == [f"append {site.ledger.stat().st_size - 1} bytes to {site.ledger}"]
    (incident,) = {row["incident"] for row in plan["plan"]}
    (row,) = site.step(plan["plan"], "drain", results=[])
    assert (row["node"], row["reason"]) == (TRAY, f"repair {incident}")
    site.nodes[TRAY] = ("IDLE+DRAIN", f"nvlink: repair {incident}")
    site.hosts[TRAY]["repair_capture"] = {"unreachable": True}
    site.step(plan["plan"], "evidence", registered=["repair_capture"])
    site.step(plan["plan"], "spare", results={"changes": []})
    (row,) = site.step(plan["plan"], "ticket")
    assert (row["ticket"]["state"], row["ticket"]["ticket_id"]) == ("open", incident)
    site.jobs = [f"17 {TRAY}"]
    assert site("begun", "action", plan=plan["plan"])["rows"] == []
    site.jobs = []
    drained = site.nodes[TRAY]
    # squeue hides a job from a user who may not see it.
    site.nodes[TRAY] = ("MIXED+DRAIN", drained[1])
    assert site("begun", "action", plan=plan["plan"])["rows"] == []
    site.nodes[TRAY] = drained
    site.hosts[TRAY]["repair_was_reset"] = {"rc": 0}
    assert site.step(plan["plan"], "action", registered=["repair_was_reset"])
    site.step(plan["plan"], "return", detail="its test failed")
    assert site.lines()[-1] == ("return", "failed")
    report = site("reported", plan=plan["plan"])
    assert (report["unfinished"], report["rows"][0]["ticket"]["state"]) == (1, "update")
    site.nodes[TRAY] = ("IDLE", "")
    assert site.step(plan["plan"], "return")
    site.step(plan["plan"], "resume", results={"failed": True, "msg": "The reservation cannot be changed"})
    assert site.lines("step", "detail")[-1] == ("resume", "The reservation cannot be changed")
    for step in ("resume", "close"):
        assert site.step(plan["plan"], step)
    assert {step for step, state in site.lines() if state == "done"} == set(STEPS)
    assert site("reported", plan=plan["plan"])["unfinished"] == 0
    assert json.loads((tmp_path / "repairs" / incident / "index.json").read_text())["tray"] == TRAY
    # NVSentinel 1347: the verdict of that time.
    assert site.plan()["trays"] == []


def test_a_ticket_is_updated_where_the_action_changes(site: Site) -> None:
    sent = []
    for code, action in (("recovery_action", "reset_gpu"), ("gpu_lost", "replace")):
        site.verify(world.failed(code, TRAY, action=action, gpu=1))
        plan = site.plan()["plan"]
        for results in ([{"item": {"tray": TRAY}, "failed": True, "msg": "status 500"}], []):
            (row,) = site.step(plan, "ticket", results=results)
            sent.append((row["ticket"]["state"], row["ticket"]["action"]))
    assert sent[:2] == [("open", "reset_gpu"), ("open", "reset_gpu")], "the first one failed"
    assert sent[2] == ("update", "replace")
    assert site.plan()["plan"][0]["steps"] == ["drain", "evidence", "spare"]


def test_a_run_that_was_killed_is_continued(site: Site) -> None:
    plan = site.plan()
    site("begun", "drain", plan=plan["plan"])
    again = site.plan()
    assert again["plan"][0]["incident"] == plan["plan"][0]["incident"]
    assert "drain" in again["plan"][0]["steps"]
    site.step(again["plan"], "drain")
    assert site.lines()[-3:] == [("drain", "begin"), ("drain", "begin"), ("drain", "done")]
    site.nodes[TRAY] = ("IDLE+DRAIN", f"nvlink: repair {plan['plan'][0]['incident']}")
    assert "drain" not in site.plan()["plan"][0]["steps"]
    # Somebody returns it: its ticket is closed, and nothing more is done.
    site.nodes[TRAY] = ("IDLE", "")
    for failed in ("the ticket system does not answer", ""):
        plan = site.plan()
        assert plan["plan"][0]["steps"] == ["close"]
        (row,) = site.step(plan["plan"], "close", results=[{"item": {"tray": TRAY}, "failed": failed, "msg": failed}])
        assert (row["tray"], row["ticket"]["state"]) == (TRAY, "close")
    assert site.lines()[-1] == ("close", "done")
    assert site.plan()["plan"] == []


def test_a_failed_drain_changes_nothing_more(site: Site) -> None:
    plan = site.plan()["plan"]
    failed = {"item": {"tray": TRAY}, "failed": True, "msg": "slurmctld does not answer"}
    site.step(plan, "drain", results=[failed])
    for step in ("evidence", "spare", "action", "return", "resume", "close"):
        assert site("begun", step, plan=plan)["rows"] == [], step
    assert "drain failed: slurmctld does not answer" in site("reported", plan=plan)["text"][0]


def test_a_stop_file_ends_a_run_before_its_next_step(site: Site, tmp_path: Path) -> None:
    plan = site.plan()["plan"]
    site.step(plan, "drain")
    (tmp_path / "stop").touch()
    with pytest.raises(AnsibleActionFail, match=r"stop exists, which stops repair; remove it to go on\.$"):
        site("begun", "evidence", plan=plan, stop_file=str(tmp_path / "stop"))
    assert site.lines()[-1] == ("drain", "done")


def test_a_stop_file_and_another_run_stop_all(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stop").touch()
    stopped = site.plan(stop_file=str(tmp_path / "stop"))
    assert (stopped["trays"], stopped["plan"][0]["allowed"]) == ([], False)
    assert site.lines() == [("open", "refused")]
    storage.unmark(str(site.ledger), os.getppid())
    # A process that lives, as that of a rollout.
    storage.mark(str(tmp_path / "fabric.json"), "2026-11-29T19:15:00Z", 1)
    assert "is in use by pid 1" in site.plan()["plan"][0]["brake"]


def test_nothing_is_repaired_while_partitions_are_changed(site: Site, tmp_path: Path) -> None:
    steps = [("plan", "done"), ("drain", "done"), ("end", "done")]
    for step, state in steps:
        row = {"step": step, "state": state, "incident": "0" * 12, "at": "2026-11-29T19:15:00Z", "subject": "r01"}
        append(str(tmp_path / "fabric.partition-r01.jsonl"), [Line(**row, code="", detail="{}")])
        made = site.plan(apply=False)
        assert made["plan"][0]["allowed"] is (step == "end")
        assert ("partitions of NVLink domain r01 are being changed" in made["plan"][0]["brake"]) is (step != "end")


def test_of_two_runs_that_begin_at_the_same_time_none_acts_with_the_other(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = storage.mark

    def both(path: str, now: str, pid: int) -> None:
        mark(path, now, 1)
        mark(path, now, pid)

    monkeypatch.setattr(storage, "mark", both)
    with pytest.raises(AnsibleActionFail, match=r"is in use by pid 1 .*; run this again after it\.$"):
        site.plan()
    assert not site.ledger.exists()
    storage.unmark(str(site.ledger), 1)
    assert not storage.held(str(site.ledger)), "its own mark is gone"


def test_a_missing_verdict_is_one_sentence(site: Site, tmp_path: Path) -> None:
    for path in (tmp_path / "no.json", tmp_path / "fabric.repairs.jsonl"):
        with pytest.raises(
            AnsibleActionFail, match=r"is no verdict; run the playbook verify with this verdict_file\.$"
        ):
            site.plan(verdict_file=str(path))


def test_a_plan_without_slurm_says_that_no_tray_is_drained(tmp_path: Path, run_action: Any) -> None:
    site = Site(tmp_path, run_action)
    words = "The inventory has no Slurm controller"
    assert words in site.plan(apply=False, scontrol=None)["text"][-1]
    assert words not in site.plan(apply=False)["text"][-1]
