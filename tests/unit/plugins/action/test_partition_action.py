# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the action partition asks before GPUs move, and what an error leaves; plugin_utils/partitions tests the rest."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.action.partition import ActionModule
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import occupants
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, storage
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_journal import journals
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.partitions.partition_world import Rack

FABRIC = fabrics.fabric(racks=1, trays=4, split=())
NOW = "2026-11-30T00:00:00Z"
NODE = "NodeName={} State={} Reason=nvlink: partition [root@2026-11-30T00:00:00]"


@pytest.fixture
def run(tmp_path: Path, run_action: Any) -> Any:
    """run(state=..., ...) as a task of the playbook, with an open change that a person makes on the switch."""
    path = tmp_path / "fabric.json"
    path.write_bytes(fabric_file.serialise(FABRIC))
    journal = journals(str(path), ["r01"], None, lambda: NOW)["r01"]
    plan, _objections = Rack(FABRIC).plan("2x2", "hand")
    journal.open("0" * 64, {**plan, "imex_owner": "domain"})
    # The parent of a task's process is that of the run.
    storage.mark(journal.path, NOW, os.getppid())

    def start(**options: Any) -> dict[str, Any]:
        options = {"fabric_file": str(path), "domains": ["r01"], "task_vars": {"hostvars": {}}, **options}
        return run_action(ActionModule, **options)

    start.journal = journal.path
    return start


def test_a_step_that_fails_ends_the_run_without_its_mark(run: Any) -> None:
    before = os.path.getsize(run.journal)
    with pytest.raises(AnsibleActionFail, match="it hangs; the trays stay drained") as caught:
        run(state="ended", step="drain", results=[{"failed": True, "msg": "it hangs"}])
    assert storage.held(run.journal) == ""
    added = os.path.getsize(run.journal) - before - 1
    assert caught.value.result["actions"] == [f"append {added} bytes to {run.journal}"]


def test_pods_that_never_end_leave_no_mark(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pods = {"r01t02": occupants.Occupants("n2", [], ["pod a/b"])}
    monkeypatch.setattr(occupants, "of_trays", lambda *_given: pods)
    with pytest.raises(AnsibleActionFail) as waits:
        run(state="begun", step="imex")
    # It tries again, as the next task does not.
    assert storage.held(run.journal)
    with pytest.raises(AnsibleActionFail, match="imex: pod a/b still on r01t02; wait for it"):
        run(state="ended", step="imex", results=[{"failed": True, "msg": str(waits.value)}])
    assert storage.held(run.journal) == ""


def test_no_other_step_begins_twice(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_given: object) -> None:
        raise NvlinkError("the API server does not answer")

    monkeypatch.setattr(occupants, "of_trays", refuse)
    with pytest.raises(AnsibleActionFail, match="does not answer"):
        run(state="begun", step="slurm")
    assert storage.held(run.journal) == ""


@pytest.mark.parametrize(
    ("states", "jobs", "sentence"),
    [
        (["IDLE+DRAIN"] * 3 + ["IDLE"], [], "no longer drained: r01t04"),
        (["IDLE+DRAIN"] * 4, ["7 r01t02"], "jobs started after the drain, on r01t02: 7"),
    ],
)
def test_no_gpu_moves_that_a_job_may_use(run: Any, states: list[str], jobs: list[str], sentence: str) -> None:
    scontrol = [NODE.format(FABRIC.trays[tray]["slurm_node"], state) for tray, state in zip(FABRIC.trays, states)]
    with pytest.raises(AnsibleActionFail, match=sentence):
        run(state="switched", scontrol=scontrol, squeue=jobs)
    # It is drained again, and then the switch is changed.
    drained = [line.replace("State=IDLE ", "State=IDLE+DRAIN ") for line in scontrol]
    assert run(state="begun", step="drain", scontrol=drained)["trays"] == [*FABRIC.trays]
    assert "on its switch now" in run(state="switched", scontrol=drained, squeue=[])["text"][0]
    # A person moves them after this run, too, so the next one drains and asks again.
    assert run(state="begun", step="drain")["trays"] == [*FABRIC.trays]
    with pytest.raises(AnsibleActionFail, match=sentence):
        run(state="switched", scontrol=scontrol, squeue=jobs)


def test_what_differs_and_is_not_asked_for_is_not_said_to_be_as_wanted(tmp_path: Path, run_action: Any) -> None:
    path = tmp_path / "fabric.json"
    path.write_bytes(fabric_file.serialise(fabrics.fabric(racks=2, trays=4, split=())))
    options = {"fabric_file": str(path), "state": "named", "wish": {"r01": "2x2", "r02": "default"}, "only": ["r02"]}
    named = run_action(ActionModule, task_vars={"hostvars": {}}, **options)
    assert named["domains"] == []
    assert named["text"][0].startswith("The trays of r02 are in the partitions of nvlink_partitions")


def test_a_wish_of_another_domain_that_fits_no_more_stops_no_change(tmp_path: Path, run_action: Any) -> None:
    path = tmp_path / "fabric.json"
    path.write_bytes(fabric_file.serialise(fabrics.fabric(racks=2, trays=4, split=())))
    options = {"fabric_file": str(path), "state": "named", "wish": {"r01": {"r01a": {"trays": "r01t09"}}, "r02": "2x2"}}
    assert run_action(ActionModule, task_vars={"hostvars": {}}, only=["r02"], **options)["domains"] == ["r02"]
    with pytest.raises(AnsibleActionFail, match=r"nvlink_partitions\.r01\.r01a\.trays: "):
        run_action(ActionModule, task_vars={"hostvars": {}}, **options)


def test_an_open_change_needs_no_wish_that_fits_the_trays(run: Any) -> None:
    wish = {"r01": "3x9"}
    for options in ({"wish": wish}, {"rollback": True}, {"only": ["r01"], "plan": "0" * 64}):
        named = run(state="named", **options)
        assert (named["domains"], named["is_new"], len(named["text"])) == (["r01"], False, 1)
    with pytest.raises(AnsibleActionFail, match="partition_plan: the unfinished change of r01 is 000000000000"):
        run(state="named", wish=wish, plan="1" * 64)


def test_the_owner_of_imex_is_of_the_inventory_and_stays_that_of_the_plan(run: Any) -> None:
    # A stand-in of a site without Slurm and switches; r01t02 has returned a fact with its answer to some task.
    site = {tray: {"imex_owner": "host_managed"} for tray in FABRIC.trays}
    site["r01t02"] = {"imex_owner": "", "ansible_facts": {"imex_owner": ""}}
    del site["r01t04"]["imex_owner"]
    options = {"wish": {"r01": "2x2"}, "by": "hand", "simulated": True, "registered": ["none"]}
    variables = {"hostvars": fabrics.HostVars(site)}

    def planned(owner: str) -> dict[str, Any]:
        return run(state="planned", imex_owner=owner, task_vars=variables, **options)

    made = planned("host_managed")
    assert [plan["imex_owner"] for plan in made["plans"]] == ["host_managed"]
    assert not [row for row in made["objections"] if "imex_owner" in row]
    [said] = [row for row in planned("")["objections"] if "imex_owner" in row]
    assert "'host_managed' for 2 trays (r01t[01,03]) and not set for 1 tray (r01t04)" in said
    # The change that is open here was planned by another owner.
    assert run(state="confirmed")["imex_owner"] == "domain"


def test_changes_that_were_planned_for_several_owners_of_imex_go_on_alone(tmp_path: Path, run_action: Any) -> None:
    fabric = fabrics.fabric(racks=2, trays=4, split=())
    path = tmp_path / "fabric.json"
    path.write_bytes(fabric_file.serialise(fabric))
    made = journals(str(path), ["r01", "r02"], None, lambda: NOW)
    plan, _objections = Rack(fabric).plan("2x2", "hand")
    for (domain, journal), owner in zip(made.items(), ("domain", "none"), strict=True):
        journal.open("0" * 64, {**plan, "domain": domain, "imex_owner": owner})
    options = {"fabric_file": str(path), "state": "confirmed", "task_vars": {"hostvars": {}}}
    with pytest.raises(AnsibleActionFail, match="end each of them alone, as -e partition_domains=r01"):
        run_action(ActionModule, domains=["r01", "r02"], **options)
    assert [storage.held(journal.path) for journal in made.values()] == ["", ""]
    assert run_action(ActionModule, domains=["r02"], **options)["imex_owner"] == "none"


def test_a_fabric_file_that_has_changed_since_its_plan_begins_no_change(run: Any, tmp_path: Path) -> None:
    with pytest.raises(AnsibleActionFail, match=r"fabric\.json has changed since the plan; plan again"):
        run(state="confirmed", base="0" * 64)
    digest = fabric_file.digest((tmp_path / "fabric.json").read_bytes())
    assert run(state="confirmed", base=digest)["trays"] == run(state="confirmed")["trays"] == [*FABRIC.trays]
