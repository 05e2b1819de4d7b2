# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import datetime
import itertools
import json
import os
import pwd
import re
import shlex
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from ansible import context
from ansible.errors import AnsibleActionFail
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.splitter import parse_kv
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.plugins.connection.local import Connection
from ansible.plugins.shell.sh import ShellModule
from ansible.template import Templar, trust_as_template
from ansible.utils.context_objects import CLIArgs
from ansible_collections.rackscale.nvlink.plugins.action import fabric_file as action_fabric_file
from ansible_collections.rackscale.nvlink.plugins.action.fabric_file import ActionModule
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, signature, storage
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_journal import journals
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_plan import Plan
from ansible_collections.rackscale.nvlink.tests.lab.nvlab import switch
from ansible_collections.rackscale.nvlink.tests.lab.nvml.fleets import fleet
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import faults
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.clients.switch_domain import ONE, Switches

Result = dict[str, Any]

NO_GPU = {"ansible_facts": {"nvlink_fabric": {"observed_at": "2026-11-21T05:00:00Z"}}}
REBUILT = "12345678-1234-4234-8234-123456789abc"


class HostVars(dict[str, Result]):
    """The part of Ansible's hostvars that the action uses: raw, untemplated variables."""

    def raw_get(self, name: str) -> Result:
        return self[name]


class Site:
    """Two racks of two trays, their registered results and a directory for the fabric file."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "fabric.json"
        self.results: dict[str, Any] = {
            name: {"changed": False, "ansible_facts": {"nvlink_fabric": facts}}
            for name, facts in fleet(racks=2, trays_per_rack=2).items()
        }
        self.variables: dict[str, Result] = defaultdict(dict)
        self.groups: dict[str, list[str]] = {}

    def run(self, *, check: bool = False, diff: bool = False, hosts: list[str] | None = None, **options: Any) -> Result:
        loader = DataLoader()
        task = Task.load({"action": "rackscale.nvlink.fabric_file", "check_mode": check, "diff": diff})
        trays = {"trays": [*self.results] if hosts is None else hosts} if "observations" in options else {}
        task.args = {"fabric_file": str(self.path), **trays, **options}
        connection = Connection(PlayContext(), shell=ShellModule())
        action = ActionModule(task, connection, PlayContext(), loader, Templar(loader), None)
        variables = {name: {**self.variables[name], "seen": result} for name, result in self.results.items()}
        site = {**self.variables, **variables, "localhost": self.variables["localhost"]}
        return action.run(task_vars={"hostvars": HostVars(site), "groups": self.groups})

    def discover(self, **options: Any) -> Result:
        return self.run(observations="seen", **options)

    def accept(self, sha256: str, **options: Any) -> Result:
        return self.run(state="accepted", proposal=sha256, **options)

    def facts(self, name: str) -> Result:
        return self.results[name]["ansible_facts"]["nvlink_fabric"]

    def attach(self, *names: str, **fabric: Any) -> None:
        """The GPUs of these trays report these values of their fabric."""
        for gpu in (gpu for name in names for gpu in self.facts(name)["gpus"]):
            gpu["fabric"].update(fabric)

    def move(self, *names: str, clique_id: int = 7) -> None:
        self.attach(*names, clique_id=clique_id)

    def move_apart(self) -> None:
        """Move the trays of r01: one to a new clique, the other one to r02."""
        self.move("r01t01")
        self.attach("r01t02", cluster_uuid=self.facts("r02t01")["cluster_uuid"])

    def sibling(self, suffix: str) -> Path:
        return self.path.with_name(f"fabric.{suffix}")

    def written(self) -> Result:
        """The content of the fabric file."""
        return json.loads(self.path.read_text())

    def proposed(self) -> Result:
        """The fabric of the pending proposal."""
        return json.loads(self.sibling("proposed.json").read_text())["fabric"]

    def files(self) -> dict[str, bytes]:
        return {child.name: child.read_bytes() for child in self.path.parent.iterdir() if child.is_file()}

    def state(self, name: str) -> Result:
        return json.loads(self.sibling("state.json").read_text())["trays"][name]


def codes(result: Result) -> list[str]:
    """The gates that object."""
    return [row["code"] for row in result["objections"]]


def trays(result: Result) -> list[str]:
    """The trays that change."""
    return [row["tray"] for row in result["changes"]]


@pytest.fixture
def new_site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture
def site(new_site: Site) -> Site:
    """A site with an accepted fabric file."""
    new_site.discover(accept="gates")
    return new_site


def test_a_switch_is_evidence_beside_the_gpus_and_places_no_tray(site: Site, tmp_path: Path) -> None:
    running = Switches(tmp_path / "switches", {name: site.facts(name) for name in ("r01t01", "r01t02")})
    try:
        site.groups["nvlink_switches"] = [ONE]
        login = {
            "nvue_user": switch.USER,
            "nvue_password": switch.PASSWORD,
            "nvue_port": running.servers[0].server_port,
        }
        own = {"ansible_host": "127.0.0.1", "nvue_ca_file": str(tmp_path / "switches" / "ca.crt")}
        site.variables[ONE] = {**login, **own, "nvlink_switch_domain": "r01"}
        sources = ["ansible_facts", "nvue"]
        agreed = site.discover(sources=sources)
        assert (agreed["warnings"], agreed["changes"]) == ([], [])
        site.move("r01t02")
        [text] = site.discover(sources=sources)["warnings"]
        assert "r01sw1 lists GPUs of r01t02 of NVLink domain r01 in NVLink partition 32766" in text
        assert "the GPUs report clique ID 7" in text
        # Neither the switch nor the order of the sources decides.
        assert site.proposed()["cliques"]["r01a"]["clique_id"] == 7
        findings = json.loads(site.sibling("state.json").read_text())["findings"]
        assert [row["message"] for row in findings if row["code"] == "sources_disagree"] == [text]
        for gpu in site.facts("r01t02")["gpus"]:
            gpu["fabric"].update(state="in_progress", cluster_uuid=None, clique_id=None)
        site.facts("r01t02").update(attached=False, cluster_uuid=None, clique_id=None, clique=None)
        assert site.discover(sources=["nvue", "ansible_facts"])["changes"] == []
        assert site.state("r01t02")["state"] == "stale"
    finally:
        running.stop()


@pytest.mark.parametrize(
    ("sources", "sentence"),
    [
        (["nvue"], "sources: has no live source; add ansible_facts, ssh or another live source"),
        ([{"nvue": {"url": "https://r01sw1"}}, "ansible_facts"], "sources: nvue has no options here; write its name"),
        (["ansible_facts", "nvue"], "sources: nvue finds no switch of these trays; add them to the group"),
    ],
)
def test_a_switch_is_no_source_alone(site: Site, sources: list[Any], sentence: str) -> None:
    with pytest.raises(AnsibleActionFail, match=re.escape(sentence)):
        site.discover(sources=sources)


def planned(site: Site, moves: Result, **options: Any) -> Result:
    return site.discover(state="planned", moves=moves, **options)


@pytest.fixture
def rack(tmp_path: Path) -> Site:
    """A rack of six trays in its default partition, and another one, with an accepted fabric file."""
    site = Site(tmp_path)
    facts = fleet(racks=2, trays_per_rack=6)
    site.results = {name: {"ansible_facts": {"nvlink_fabric": row}} for name, row in facts.items()}
    site.discover(accept="gates")
    return site


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("sizes", [(3, 3), (4, 2), (2, 1, 3), (6,)])
def test_planned_places_are_those_that_discover_proposes_after_the_change(
    rack: Site, sizes: tuple[int, ...], check: bool
) -> None:
    ids = [number for number, size in enumerate(sizes, 1) for _tray in range(size)]
    moves = {f"r01t{index:02d}": number for index, number in enumerate(ids, 1)}
    files = rack.files()
    made = planned(rack, moves, check=check, diff=True)
    assert rack.files() == files
    assert not made["changed"]
    fabric = json.loads(Path(made["planned"]).read_bytes())
    # The default partition keeps its ID, its name and its block, and the new ones are named in the order of the trays.
    assert fabric["cliques"]["r01"] == rack.written()["cliques"]["r01"]
    assert {name: row["clique_id"] for name, row in fabric["cliques"].items() if row["domain"] == "r01"} == {
        "r01": 32766,
        **{f"r01{'abc'[number - 1]}": number for number in range(1, len(sizes) + 1)},
    }
    assert made["gates"] == ["moved_percent"]
    assert made["proposal_file"] is None
    assert "clique r01a" in made["diff"]["prepared"]

    for tray, clique_id in moves.items():
        rack.move(tray, clique_id=clique_id)
    # Each discovery meanwhile gives the cliques the same names, whoever runs it.
    change = journals(str(rack.path), ["r01"], None, lambda: "2026-11-29T23:00:00Z")["r01"]
    after = [
        {"id": number, "default": False, "trays": [tray for tray in moves if moves[tray] == number]}
        for number in {*ids}
    ]
    change.open(
        "0" * 64,
        {**{key: [] for key in Plan.__required_keys__}, "after": after, "moved": [*moves], "clique_ids": moves},
    )
    proposed = rack.discover(override=made["gates"])
    assert {**rack.proposed(), "overrides": []} == fabric
    assert planned(rack, moves)["proposal_file"] == proposed["proposal_file"]
    rack.accept(proposed["sha256"])
    change.write("end", "done")
    assert rack.discover()["sha256"] == proposed["sha256"]
    # All trays back in the default partition, which has its first name again.
    back = planned(rack, dict.fromkeys(moves, 32766))
    assert {row["to"] for row in back["changes"]} == {"r01"}


def test_a_planned_change_without_a_move_is_what_discover_would_propose(site: Site) -> None:
    unchanged = planned(site, {})
    assert (unchanged["changes"], unchanged["sha256"]) == ([], site.discover()["sha256"])
    site.move("r02t02")
    assert trays(planned(site, {"r01t01": 1})) == ["r01t01", "r02t02"]


@pytest.mark.parametrize(
    ("moves", "wrong"),
    [
        ({"r01t01": "1"}, "r01t01"),
        ({"r01t01": 0}, "r01t01"),
        ({"r01t01": True}, "r01t01"),
        ({"r01t01": 1, "r01t02": 1, "r09t01": 1}, "r01t02,r09t01"),
    ],
)
def test_a_move_that_cannot_be_planned_is_one_sentence(site: Site, moves: Result, wrong: str) -> None:
    site.results["r01t02"] = {"unreachable": True}
    with pytest.raises(AnsibleActionFail) as error:
        planned(site, moves)
    what = "gave no answer, or has no place or no clique ID above 0; leave it out, or correct it, and plan again"
    assert str(error.value) == f"moves: {wrong} {what}"


def test_no_plan_without_a_fabric_file_and_without_an_answer(new_site: Site) -> None:
    with pytest.raises(AnsibleActionFail, match=r"does not exist yet; run discover and accept first"):
        planned(new_site, {"r01t01": 1})
    new_site.discover(accept="gates")
    new_site.results = {name: {"unreachable": True} for name in new_site.results}
    with pytest.raises(AnsibleActionFail, match=r"no tray answered.*; correct this, and plan again"):
        planned(new_site, {"r01t01": 1})


@pytest.mark.parametrize("by", ["gates", "a person"])
def test_a_replaced_tray_is_reported_until_it_is_accepted(site: Site, by: str) -> None:
    for number, gpu in enumerate(site.facts("r01t01")["gpus"]):
        gpu["uuid"] = f"GPU-0000000{number}-1111-4222-8333-444444444444"
    replaced = site.discover(**({"accept": "gates"} if by == "gates" else {}))
    assert "tray_replaced" in [row["code"] for row in replaced["findings"]]
    if by != "gates":
        assert "tray_replaced" in [row["code"] for row in site.state("r01t01")["findings"]]
        site.accept(replaced["sha256"])
    assert site.state("r01t01")["findings"] == []
    assert site.discover(accept="gates")["changed"] is False


def test_a_split_is_proposed_accepted_and_taken_back(site: Site) -> None:
    before = site.path.read_bytes()
    split = {"r01": [1, 1]}
    with pytest.raises(
        AnsibleActionFail, match=r"^slurm_topology_split: the sizes \[1\] of r01 are 1 tray in all, and"
    ):
        site.discover(slurm_topology_split={"r01": [1]})
    assert site.path.read_bytes() == before
    proposed = site.discover(slurm_topology_split=split)
    assert (proposed["changed"], codes(proposed), trays(proposed)) == (True, [], ["r01t02"])
    # Another run on some of the trays keeps it.
    assert site.discover(slurm_topology_split=split, hosts=["r02t01"])["sha256"] == proposed["sha256"]
    assert site.discover(hosts=["r02t01"])["sha256"] == proposed["sha256"]
    site.accept(proposed["sha256"])
    assert site.written()["trays"]["r01t02"]["block"] == "r01-2"
    for options in ({}, {"slurm_topology_split": split}):
        assert site.discover(accept="gates", **options)["changed"] is False
    site.discover(accept="gates", slurm_topology_split={})
    assert site.written()["cliques"]["r01"]["split_blocks"] == {"r01-2": 2}
    assert "block" not in site.written()["trays"]["r01t02"]
    assert site.discover(accept="gates", slurm_topology_split={})["changed"] is False


def test_an_objection_fails_the_task_and_the_proposal_can_be_accepted(site: Site) -> None:
    before = site.path.read_bytes()
    site.move_apart()
    proposed = site.discover()
    assert (proposed["failed"], codes(proposed)) == (False, ["moved_percent"])
    refused = site.discover(accept="gates")
    assert refused["failed"] is True
    assert codes(refused) == ["moved_percent"]
    assert "not accepted: gate moved_percent (" in refused["msg"]
    assert f"-e fabric_proposal={refused['sha256']}" in refused["msg"]
    assert site.path.read_bytes() == before
    assert site.accept(refused["sha256"])["changed"] is True
    assert site.written()["trays"]["r01t01"]["clique"] == "r01a"


def test_slices_add_to_one_proposal(new_site: Site) -> None:
    for name in new_site.results:
        proposed = new_site.discover(hosts=[name])
    assert trays(proposed) == ["r01t01", "r01t02", "r02t01", "r02t02"]
    assert new_site.discover(hosts=["r01t02"])["changed"] is False
    new_site.accept(proposed["sha256"])
    fabric = new_site.written()
    assert [block["block"]["position"] for block in fabric["cliques"].values()] == [0, 1]
    assert sorted(fabric["trays"]) == list(new_site.results)
    assert {new_site.state(name)["state"] for name in new_site.results} == {"present"}
    assert new_site.discover()["changed"] is False


def test_a_slice_withdraws_its_own_changes_only(site: Site) -> None:
    site.move("r01t01", "r02t01")
    both = site.discover()
    site.move("r01t01", clique_id=32766)
    one = site.discover(hosts=["r01t01"])
    assert trays(both) == ["r01t01", "r02t01"]
    assert trays(one) == ["r02t01"]
    assert (codes(both), codes(one)) == (["moved_percent"], [])
    assert "r01a" not in site.proposed()["cliques"]


def test_gates_accept_no_change_that_another_run_left_for_review(site: Site) -> None:
    site.move("r02t01")
    waits = site.discover()["sha256"]
    assert site.discover(hosts=["r01t01"], accept="gates")["sha256"] == waits
    assert site.written()["trays"]["r02t01"]["clique"] == "r02"
    site.move_apart()
    refused = site.discover(hosts=["r01t01", "r01t02"], accept="gates")
    assert refused["failed"] is True
    assert sorted(trays(refused)) == ["r01t01", "r01t02", "r02t01"]


def test_slices_that_claim_the_same_gpus_are_not_merged(site: Site) -> None:
    one, other = site.facts("r01t01"), site.facts("r01t02")
    one["gpus"], other["gpus"] = other["gpus"], one["gpus"]
    assert site.discover()["summary"]["conflict"] == 0
    site.results["r01t02"] = {"unreachable": True, "msg": "down"}
    alone = site.discover(hosts=["r01t01"])
    assert (alone["summary"]["conflict"], alone["changes"]) == (1, [])


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        ({"unreachable": True, "msg": "Failed to connect\n to the host"}, "Failed to connect to the host"),
        ({"skipped": True}, "the task that reads its facts was skipped"),
        ({"changed": False}, "the task that reads its facts returned none"),
        ({"ansible_facts": {"nvlink_fabric": "{{ x }}"}}, "the task that reads its facts returned none"),
        ("text", "no result in this run"),
    ],
)
def test_a_result_without_facts_keeps_the_place(site: Site, result: Any, problem: str) -> None:
    before = site.path.read_bytes()
    site.results["r01t02"] = result
    stale = site.discover()
    assert (stale["changed"], stale["summary"]["stale"], site.path.read_bytes()) == (True, 1, before)
    assert problem in site.state("r01t02")["findings"][0]["message"]
    assert site.discover()["changed"] is False


def test_cached_facts_are_never_read(new_site: Site) -> None:
    for name, result in new_site.results.items():
        new_site.variables[name] = {"ansible_facts": result["ansible_facts"], **result["ansible_facts"]}
        new_site.results[name] = {"unreachable": True, "msg": "down"}
    with pytest.raises(AnsibleActionFail) as error:
        new_site.discover()
    assert str(error.value) == (
        "no tray answered: 4 trays (r[01-02]t[01-02]): down; correct this and discover again: no place has changed"
    )
    assert new_site.files() == {}


def test_only_a_change_of_health_is_a_change(site: Site) -> None:
    written = json.loads(site.sibling("state.json").read_text())["written_at"]
    for result in site.results.values():
        result["ansible_facts"]["nvlink_fabric"]["observed_at"] = "2026-12-01T00:00:00Z"
    assert site.discover()["changed"] is False
    assert site.state("r01t01")["observed_at"] == "2026-12-01T00:00:00Z"
    site.facts("r01t01")["gpus"][1]["fabric"]["health"]["summary"] = "unhealthy"
    outcome = site.discover(diff=True)
    assert (outcome["changed"], outcome["diff"]) == (True, {"prepared": "r01t01: health healthy -> unhealthy\n"})
    assert written


def test_check_mode_writes_nothing_and_reports_all(new_site: Site) -> None:
    would = new_site.discover(check=True, diff=True, accept="gates")
    assert (would["changed"], would["actions"]) == (True, [])
    assert new_site.files() == {}
    did = new_site.discover(diff=True, accept="gates")
    assert would["diff"] == did["diff"]
    assert [row.split()[:2] for row in did["actions"] if row.split()[0] == "write"] == [
        ["write", str(new_site.path)],
        ["write", str(new_site.sibling("state.json"))],
    ]
    path = f"accepted into {new_site.path} with sha256 {did['sha256']}"
    assert ("would be " + path in would["msg"], "would be" in did["msg"]) == (True, False)
    before = new_site.files()
    new_site.move("r01t01")
    sha256 = new_site.discover()["sha256"]
    between = new_site.files()
    assert new_site.accept(sha256, check=True)["changed"] is True
    assert new_site.files() == between
    assert between["fabric.json"] == before["fabric.json"]


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (trust_as_template("{{ nowhere }}"), r"^fabric_slurm_node: cannot be evaluated for r01t01 \("),
        ("two words", r"^fabric_slurm_node: is 'two words' for r01t01, which is not a host name; correct it"),
        # What no template was meant to be stays what it is.
        ("{{ inventory_hostname }}", r"^fabric_slurm_node: (is '\{\{|cannot be evaluated)"),
        (["a"], r"^fabric_slurm_node: is "),
        ("../etc", r"^fabric_slurm_cluster: is '\.\./etc' for r01t01, which is not a cluster name; correct it$"),
    ],
)
def test_an_invalid_host_variable_fails_with_variable_and_host(new_site: Site, value: Any, sentence: str) -> None:
    new_site.variables["r01t01"][sentence[1:].partition(":")[0]] = value
    with pytest.raises(AnsibleActionFail, match=sentence):
        new_site.discover()
    assert new_site.files() == {}


def test_facts_give_no_name_to_a_tray(new_site: Site) -> None:
    """Neither by an expression over facts, nor by a fact that has the name of a variable of the site."""
    for name in new_site.results:
        variables = new_site.variables[name]
        variables.update(ansible_facts={"hostname": "h", "host": "h"}, ansible_hostname="h", ansible_host="10.9.9.9")
        variables.update(
            position=name[1:], fabric_slurm_node=trust_as_template("gpu-{{ position }}-{{ ansible_host }}")
        )
    new_site.variables["r01t01"]["ansible_facts"] = {"position": "01t02"}
    new_site.variables["r01t01"]["position"] = "01t02"
    found = new_site.discover(accept="gates")
    trays = new_site.written()["trays"]
    assert {name: tray["slurm_node"] for name, tray in trays.items()} == {
        name: f"gpu-{name[1:]}-10.9.9.9" for name in ("r01t02", "r02t01", "r02t02")
    }
    assert [row["code"] for row in new_site.state("r01t01")["findings"]] == ["tray_facts_foreign", "tray_unreachable"]
    assert "The facts of r01t01 set position, which only" in str(new_site.state("r01t01"))
    assert found["summary"]["unplaced"] == 1
    new_site.variables["r02t01"]["fabric_slurm_node"] = trust_as_template("{{ ansible_facts.hostname }}")
    with pytest.raises(AnsibleActionFail, match=r"use variables of the inventory, no facts$"):
        new_site.discover()


def test_hostile_text_of_a_tray_reaches_no_file(new_site: Site) -> None:
    evil = "{{ lookup('pipe', 'id') }}\n[1-9]" * 500
    facts = new_site.facts("r01t01")
    facts.update(hostname=evil, driver_version=evil, chassis_serial=evil, tray_index=evil)
    facts["addresses"] = [{"interface": evil, "address": evil, "prefix": evil}]
    facts["findings"] = [{"code": evil, "severity": "error", "message": evil, "gpu": None}]
    facts["findings"].append({"code": "gpu_lost", "severity": "error", "message": evil, "gpu": 1})
    new_site.facts("r01t02")["gpus"][0]["uuid"] = evil
    new_site.facts("r02t01")["gpus"][0]["fabric"]["cluster_uuid"] = evil
    new_site.results["r02t02"] = {"failed": True, "msg": evil}
    result = new_site.discover(accept="gates")
    text = "".join(data.decode() for data in new_site.files().values()) + json.dumps(result)
    assert "{{" not in text
    assert "unusable_value" in {row["code"] for row in new_site.state("r01t01")["findings"]}
    assert all(len(row["message"]) < 300 for row in result["findings"])
    assert sorted(new_site.written()["trays"]) == ["r01t01", "r01t02"]


SIMULATED = {"simulation": {"racks": 2, "trays_per_rack": 2}}
DEAD = {"rest": {"url": "http://127.0.0.1:9/", "trays": "@", "fields": {"name": "name"}, "timeout": 1, "deadline": 2}}


@pytest.mark.parametrize("first", ["ansible_facts", "simulation"])
def test_two_sources_that_disagree_are_shown_and_the_order_of_trust_decides(site: Site, first: str) -> None:
    site.move("r01t01")
    order = ["ansible_facts", SIMULATED] if first == "ansible_facts" else [SIMULATED, "ansible_facts"]
    found = site.discover(sources=order)
    assert [row["tray"] for row in found["findings"] if row["code"] == "sources_disagree"] == ["r01t01"]
    assert trays(found) == (["r01t01"] if first == "ansible_facts" else [])


def test_a_discovery_without_any_answer_fails_and_changes_no_place(site: Site) -> None:
    site.move("r01t01")
    pending = site.discover()
    before = site.files()
    with pytest.raises(AnsibleActionFail, match=r"^no tray answered: rest: http://127\.0\.0\.1:9/ "):
        site.run(sources=[DEAD])
    ssh, denied = "Failed to connect to the host via ssh: ", "root@10.0.0.2: Permission denied.\n"
    site.results = {
        "r01t01": {"unreachable": True, "msg": ssh + denied},
        "r01t02": {"unreachable": True, "msg": f"Task failed: {ssh}{'** Banner **' * 50}\n{denied}"},
        "r02t01": {"failed": True, "msg": "MODULE FAILURE", "module_stderr": "Traceback\nSyntaxError: bad\n"},
        "login": NO_GPU,
    }
    with pytest.raises(AnsibleActionFail) as error:
        site.discover()
    assert str(error.value).split("; ") == [
        "no tray answered: 2 trays (r01t[01-02]): Permission denied",
        "1 tray (r02t01): its Python interpreter returned no result (SyntaxError: bad)",
        "1 host (login): no GPU found",
        "correct this and discover again: no place has changed",
    ]
    after = site.files()
    assert {name for name in after if after[name] != before.get(name)} == {"fabric.state.json"}
    assert site.state("r01t02")["state"] == "stale"
    assert site.accept(pending["sha256"])["changed"]


def test_min_answer_counts_trays_and_no_host_without_a_gpu(new_site: Site) -> None:
    for number in range(96):
        new_site.results[f"login{number}"] = NO_GPU
    new_site.results |= {name: {"unreachable": True, "msg": "down"} for name in ("r01t01", "r01t02", "r02t01")}
    reason = r"^1 of 4 trays answered, and min_answer is 80 percent: 3 trays \(.*\): down; 96 hosts .*; correct this "
    with pytest.raises(AnsibleActionFail, match=reason):
        new_site.discover(min_answer=80)
    assert new_site.files() == {}
    assert new_site.discover(min_answer=25)["summary"]["placed"] == 1


def test_a_proposal_that_is_void_marks_no_tray_as_pending(site: Site) -> None:
    site.move("r01t01")
    site.discover()
    site.path.write_bytes(site.path.read_bytes().replace(b'"why": "placed ', b'"why": "by hand '))
    site.results = {name: {"unreachable": True, "msg": "down"} for name in site.results}
    with pytest.raises(AnsibleActionFail, match=r"^no tray answered: "):
        site.discover()
    assert "acceptance_pending" not in site.sibling("state.json").read_text()


def test_a_finding_about_a_source_is_kept_and_reported(new_site: Site, tmp_path: Path) -> None:
    listed = tmp_path / "cmdb.json"
    listed.write_text(json.dumps([{"name": "r01t01"}, {"name": "{{ evil }}"}]))
    named = {"rest": {"file": str(listed), "trays": "@", "fields": {"name": "name"}}}
    found = new_site.run(sources=[SIMULATED, named], accept="gates")
    kept = json.loads(new_site.sibling("state.json").read_text())["findings"]
    assert [row["code"] for row in kept] == ["source_list_invalid"]
    assert found["warnings"] == [row["message"] for row in kept]
    assert kept[0] in found["findings"]
    assert new_site.state("r01t01")["findings"] == []
    assert new_site.run(sources=[SIMULATED], accept="gates")["warnings"] == []
    assert json.loads(new_site.sibling("state.json").read_text())["findings"] == []


def test_an_override_is_proposed_with_its_objection_and_kept_on_another_day(site: Site) -> None:
    site.move_apart()
    proposed = site.discover(override="moved_percent")
    assert (proposed["objections"], site.discover(override="moved_percent")["changed"]) == ([], False)
    accepted = site.discover(override="moved_percent", accept="gates", expected={"r01": "r01t[01-02]", "r02": []})
    assert accepted["failed"] is True
    assert codes(accepted) == ["clique_shrank"]
    assert site.discover(override="moved_percent", accept="gates")["changed"] is True
    assert [row["gate"] for row in site.written()["overrides"]] == ["moved_percent"]


def test_a_slice_keeps_the_overrides_of_the_pending_proposal(site: Site) -> None:
    site.move_apart()
    site.discover(hosts=["r01t01", "r01t02"], override=["moved_percent"])
    rows = site.proposed()["overrides"]
    site.results["r02t03"] = {"ansible_facts": {"nvlink_fabric": fleet(racks=2, trays_per_rack=3)["r02t03"]}}
    added = site.discover(hosts=["r02t03"])
    assert (added["objections"], trays(added)) == ([], ["r01t01", "r01t02", "r02t03"])
    assert site.proposed()["overrides"] == rows != []
    # More than what was overridden is another matter.
    site.move("r02t01")
    assert codes(site.discover(hosts=["r02t01"])) == ["moved_percent"]


def test_a_run_on_other_trays_keeps_a_proposed_cluster_uuid_and_one_on_its_own_observes_it_again(site: Site) -> None:
    site.attach("r01t01", "r01t02", cluster_uuid=REBUILT)
    site.discover(hosts=["r01t01", "r01t02"])
    site.move("r02t01")
    both = site.discover(hosts=["r02t01", "r02t02"])
    assert codes(both) == ["domain_uuid_changed"]
    assert site.proposed()["domains"]["r01"]["cluster_uuid"] == REBUILT
    # The fabric manager has restored the old one.
    site.attach("r01t01", "r01t02", cluster_uuid=site.written()["domains"]["r01"]["cluster_uuid"])
    restored = site.discover(hosts=["r01t01", "r01t02"])
    assert (restored["objections"], trays(restored)) == ([], ["r02t01"])


def test_a_slice_does_not_take_the_rest_of_a_pending_clique_for_the_whole(site: Site) -> None:
    site.move("r01t01")
    site.discover(hosts=["r01t01"])
    site.move("r01t02", clique_id=8)
    site.discover(hosts=["r01t02"])
    ids = {name: row["clique_id"] for name, row in site.proposed()["cliques"].items()}
    assert ids == {"r01": 32766, "r01a": 7, "r01b": 8, "r02": 32766}


def test_a_decision_about_tray_partitions_stays_in_the_proposal_of_a_run_on_other_trays(site: Site) -> None:
    site.move("r01t01")
    site.move("r01t02", clique_id=8)
    refused = site.discover(accept="gates", moved_percent=100)
    assert codes(refused) == ["tray_partitions"]
    kept = site.discover(hosts=["r01t01", "r01t02"], tray_partitions="keep_block")
    assert (kept["changes"], kept["objections"]) == ([], [])
    site.move("r02t01")
    both = site.discover(hosts=["r02t01", "r02t02"])
    site.accept(both["sha256"])
    assert site.written()["domains"]["r01"]["tray_partitions"] == "keep_block"
    assert site.written()["trays"]["r01t01"]["clique"] == "r01"
    assert site.discover(accept="gates")["changed"] is False


def test_job_slices_that_each_observe_half_of_a_domain_rename_nothing(site: Site) -> None:
    """A gate objects, also to a run that proposes nothing; a run on all its trays recognises the domain."""
    before = site.written()
    site.attach("r01t01", "r01t02", cluster_uuid=REBUILT)
    for hosts, accept in ((["r01t01", "r02t01"], {}), (["r01t02", "r02t02"], {"accept": "gates"})):
        found = site.discover(hosts=hosts, on_objection="report", **accept)
        assert codes(found) == ["rotation_in_progress"]
        assert (found["changes"], found["proposal_file"], found["is_refused"]) == ([], None, bool(accept))
        assert f"stopped by gate rotation_in_progress: {found['objections'][0]['message']}" in found["lines"]
    assert "not accepted: gate rotation_in_progress (" in found["msg"]
    assert site.written() == before
    site.accept(site.discover()["sha256"])
    assert site.written()["cliques"] == before["cliques"]


def test_a_slice_keeps_the_objection_to_an_old_observation_of_another_slice(site: Site) -> None:
    site.move("r01t01", "r02t01")
    assert codes(site.discover(hosts=["r01t01"], max_age=600)) == ["source_too_old"]
    site.facts("r02t01")["observed_at"] = "9999-01-01T00:00:00Z"
    (objection,) = site.discover(hosts=["r02t01"], max_age=600, moved_percent=100)["objections"]
    assert objection["message"].startswith("The observations that change the places of r01t01, r02t01 are ")
    site.facts("r02t01")["observed_at"] = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    both = site.discover(hosts=["r02t01"], max_age=600, moved_percent=100)
    (objection,) = both["objections"]
    assert objection["message"].startswith("The observations that change the places of r01t01 are ")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"state": "accepted"}, r"^state is accepted but all of the following are missing: proposal"),
        ({"state": "accepted", "proposal": "f00"}, r"^proposal: 'f00' is not a sha256; "),
        ({"observations": None}, r"^observations: no tray has a result registered as None; "),
        ({"observations": "sene"}, r"^observations: no tray has a result registered as 'sene'; "),
        ({"min_answer": "abc"}, r"^min_answer \(\w+\) is 'abc', write a number"),
        ({"max_age": "nan"}, r"^max_age: nan must be seconds from 1 to 1000000000; "),
        ({"expected": ["r01"]}, r"^expected \(\w+\) is not a dictionary, write "),
        ({"state_dir": "here"}, r"^state_dir: .*here' is not an absolute path|^state_dir: .*/here is not a directory"),
        ({"state_dir": "/nowhere"}, r"^state_dir: /nowhere is not a directory; create it"),
        ({"sources": [{"rest": {}, "token": "s3cret"}]}, r"^sources: \['rest', 'token'\] is neither a name nor "),
        ({"sources": ["shh"]}, r"^sources: 'shh' is not a known source; did you mean ssh\?"),
        ({"sources": []}, r"^sources: has no live source; "),
        ({"sources": ["ssh", {"ssh": {}}]}, r"^sources: ssh is listed twice; "),
        ({"sources": [{"ansible_facts": {}}]}, r"^sources: ansible_facts has no options here; "),
        ({"sources": [{"ssh": {}, "rest": {}}]}, r"^sources: .* is neither a name nor a name with its options; "),
        ({"expected": {"r01": "r01t[01-"}}, r"^expected: r01 is not a hostlist \("),
        ({"tray_partitions": "drop"}, r"^tray_partitions \(\w+\) is 'drop'; use one of ask, own_block, leave_out"),
        ({"gates": []}, r"Unsupported parameters .*: gates"),
    ],
)
def test_an_invalid_option_is_one_sentence_and_writes_nothing(new_site: Site, options: Result, sentence: str) -> None:
    with pytest.raises(AnsibleActionFail, match=sentence):
        new_site.run(**{"observations": "seen", **options})
    assert new_site.files() == {}


def test_an_invalid_fabric_file_is_one_sentence_and_unchanged(new_site: Site) -> None:
    new_site.path.write_text('{"schema_version": 7}')
    for options in ({"observations": "seen"}, {"state": "checked"}, {"state": "accepted", "proposal": "0" * 64}):
        with pytest.raises(AnsibleActionFail, match=rf"^{new_site.path}: schema_version is 7, and this release "):
            new_site.run(**options)
    assert new_site.files() == {"fabric.json": b'{"schema_version": 7}'}


def test_null_options_are_options_not_set(new_site: Site) -> None:
    nulls = dict.fromkeys(["imex_network", "domain_names", "expected_trays", "moved_percent", "accept", "proposal"])
    assert new_site.discover(**nulls)["summary"]["placed"] == 4


def test_a_renamed_and_a_removed_tray_change_file_state_and_proposal(site: Site) -> None:
    before = site.path.read_bytes()
    site.move("r02t01")
    site.discover()
    options: Result = {"state": "edited", "rename": {"r01t01": "left"}, "remove": ["r02t02"]}
    dry = site.run(check=True, diff=True, **options)
    assert (dry["changed"], site.path.read_bytes(), site.sibling("proposed.json").exists()) == (True, before, True)
    assert [line.split(":")[0] for line in dry["diff"]["prepared"].splitlines()] == ["left", "r02t02"]
    assert dry["msg"].startswith(f"2 trays would change in {site.path}; the pending proposal")

    edited = site.run(**options)
    assert [(row["tray"], row["kind"], row["to"]) for row in edited["changes"]] == [
        ("left", "name", "r01"),
        ("r02t02", "removed", None),
    ]
    assert (edited["sha256"], edited["findings"]) == (fabric_file.digest(site.path.read_bytes()), [])
    assert edited["msg"].startswith(f"2 trays changed in {site.path}; the pending proposal")
    placed = site.written()["trays"]
    assert sorted(placed) == ["left", "r01t02", "r02t01"]
    why = edited["changes"][0]["why"]
    assert re.fullmatch(r"renamed [0-9-]{10} from r01t01", why)
    assert placed["left"] == {**json.loads(before)["trays"]["r01t01"], "why": why}
    assert site.state("left")["state"] == "present"
    assert site.sibling("json.previous").read_bytes() == before
    assert not site.sibling("proposed.json").exists()
    again = site.run(**options)
    assert (again["changed"], again["changes"]) == (False, [])
    site.path.unlink()
    with pytest.raises(AnsibleActionFail, match=r"fabric\.json: does not exist yet; "):
        site.run(**options)


def test_a_renamed_tray_with_an_address_is_one_change(site: Site) -> None:
    document = site.written()
    document["trays"]["r01t01"]["ansible_host"] = "192.0.2.1"
    site.path.write_bytes(fabric_file.encode(document))
    edited = site.run(state="edited", rename={"r01t01": "left"})
    assert (edited["lines"], edited["msg"]) == ([], f"1 tray changed in {site.path}")


@pytest.mark.parametrize(("names", "left"), [("r01t[01-02]", ["r02t01", "r02t02"]), ("r01,r02t01", ["r02t02"])])
def test_a_hostlist_and_the_name_of_a_rack_remove_their_trays(site: Site, names: str, left: list[str]) -> None:
    before = site.written()
    site.run(state="edited", remove=[names])
    assert sorted(site.written()["trays"]) == left
    assert site.written()["cliques"] == before["cliques"], "names and blocks stay"


def test_groups_of_cliques_are_edited_and_discovery_keeps_them(site: Site) -> None:
    site.move("r01t01")
    site.discover(accept="gates")
    before = site.path.read_bytes()
    edited = site.run(diff=True, state="edited", groups={"pod1": "r[01-02]"})
    assert edited["diff"]["prepared"].splitlines() == edited["lines"]
    # The name of a domain stands for all its cliques.
    assert edited["lines"] == [f"clique {name}: group none -> pod1" for name in ("r01", "r01a", "r02")]
    assert edited["changes"] == []
    assert edited["msg"] == f"3 cliques changed in {site.path}"
    assert {row["group"] for row in site.written()["cliques"].values()} == {"pod1"}
    assert site.run(state="edited", groups={"pod1": ["r01", "r02"]})["changed"] is False
    grouped = site.path.read_bytes()
    site.discover(accept="gates")
    assert site.path.read_bytes() == grouped
    site.run(state="edited", groups={"": "r[01-02]"})
    assert site.path.read_bytes() == before


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rename": {"r01t1": "a"}}, "^rename: 'r01t1' is not a tray of the fabric file; did you mean r01t01"),
        ({"rename": {"r01t01": "r01t02"}}, "^rename: 'r01t02' is already a tray of the fabric file; "),
        ({"rename": {"r01t01": "a b"}}, "^rename: 'a b' is not valid in a Slurm hostlist; "),
        ({"remove": ["r01t[01"]}, r"r01t\[01"),
        ({"groups": {"pod1": "r[01"}}, r"^groups: pod1 is not a hostlist .*; write it as r\[01-04\]"),
        ({"groups": {"pod1": "r1"}}, "^groups: 'r1' is no clique of the fabric file; did you mean r01"),
        ({"groups": {"a": "r01", "b": "r01"}}, "^groups: r01 is in a and b; list it once"),
        ({"groups": {"a b": "r01"}}, r"cliques\.r01\.group must be the name of a level above the clique"),
        ({}, "state is edited but any of the following are missing: rename, remove, groups"),
    ],
)
def test_an_invalid_edit_is_one_sentence_and_changes_nothing(site: Site, options: Result, sentence: str) -> None:
    before = site.files()
    with pytest.raises(AnsibleActionFail, match=sentence):
        site.run(state="edited", **options)
    assert site.files() == before


def test_a_symbolic_link_names_the_files_next_to_its_target(site: Site, tmp_path: Path) -> None:
    target, site.path = site.path, tmp_path / "link" / "fabric.json"
    site.path.parent.mkdir()
    site.path.symlink_to(target)
    with storage.locked(str(target), "now"), pytest.raises(AnsibleActionFail, match="another run is writing it"):
        site.discover()
    site.move("r01t01")
    site.accept(site.discover()["sha256"])
    assert [child.name for child in site.path.parent.iterdir()] == ["fabric.json"]
    assert site.path.is_symlink()
    names = ["fabric.audit.jsonl", "fabric.json", "fabric.json.previous", "fabric.state.json"]
    assert sorted(child.name for child in target.parent.iterdir() if child.is_file()) == names
    assert fabric_file.load_state(str(site.path)) == fabric_file.load_state(str(target))


@pytest.mark.parametrize("suffix", ["state.json", "proposed.json", "proposed.md", "json.previous"])
def test_no_file_next_to_the_fabric_file_is_written_through_a_symbolic_link(site: Site, suffix: str) -> None:
    precious = site.sibling("state.json").rename(site.path.with_name("precious"))
    before = precious.read_bytes()
    site.sibling(suffix).symlink_to(precious)
    site.move("r01t01")
    site.discover(**({"accept": "gates"} if suffix == "json.previous" else {}))
    assert (site.sibling(suffix).exists(), site.sibling(suffix).is_symlink()) == (True, False)
    assert precious.read_bytes() == before


def test_no_tray_gets_the_name_of_a_group_of_the_inventory(new_site: Site) -> None:
    new_site.results["head_nodes"] = new_site.results.pop("r01t01")
    waits = new_site.discover()["sha256"]
    new_site.groups = {"head_nodes": ["ctl"]}
    refused = r"fabric\.json: tray head_nodes has the name of a group of the inventory; rename it there$"
    with pytest.raises(AnsibleActionFail, match=refused):
        new_site.accept(waits)
    assert not new_site.path.exists()
    discovered = new_site.discover(accept="gates")
    assert "illegal_tray_name" in [row["code"] for row in discovered["findings"]]
    assert "head_nodes" not in new_site.written()["trays"]
    new_site.groups = {"r01t02": []}
    with pytest.raises(AnsibleActionFail, match="tray r01t02 has the name of a group"):
        new_site.run(state="checked")
    new_site.groups = {"r02t01": []}
    with pytest.raises(AnsibleActionFail, match="tray r02t01 has the name of a group"):
        new_site.run(state="edited", rename={"r01t02": "r01t09"})
    new_site.groups = {"r01t02": []}
    assert new_site.run(state="edited", rename={"r01t02": "r01t09"})["changed"]


def test_a_tray_whose_facts_set_variables_is_refused_alone(site: Site) -> None:
    facts = {"fabric_slurm_node": "stolen", "imex_network": ["10.0.0.0/8"]}
    site.variables["r01t01"] = {"ansible_facts": facts, **facts}
    refused = site.discover(accept="gates")
    assert (refused["changes"], refused["summary"]["stale"]) == ([], 1)
    assert [row["code"] for row in site.state("r01t01")["findings"]] == ["tray_facts_foreign", "tray_unreachable"]
    live = site.run(accept="gates", sources=[{"simulation": {"racks": 1, "trays_per_rack": 2}}])
    assert (live["changes"], site.state("r01t01")["state"]) == ([], "stale")


def test_the_trays_of_a_run_are_its_targets_with_or_without_a_result(site: Site) -> None:
    site.results["r01t01"] = None
    site.discover(accept="gates", trays=["r01t01", "r01t02"])
    states = {name: site.state(name)["state"] for name in site.results}
    assert states == {**dict.fromkeys(site.results, "present"), "r01t01": "stale"}
    for trays, sentence in (([], "trays: is empty, so no tray"), (["r09t01"], "trays: 'r09t01' is not a host of")):
        with pytest.raises(AnsibleActionFail, match=sentence):
            site.discover(trays=trays)


def test_a_missing_directory_is_named(new_site: Site) -> None:
    new_site.path = new_site.path.parent / "none" / "fabric.json"
    refused = r"none/fabric\.json\.lock: cannot be locked \(No such file or directory\)"
    sentence = f"{refused}; create its folder, or make it writable"
    with pytest.raises(AnsibleActionFail, match=f"{sentence}, or set fabric_state_dir to a folder that is$"):
        new_site.discover()
    # Gates write the fabric file itself.
    with pytest.raises(AnsibleActionFail, match=f"{sentence}$"):
        new_site.discover(accept="gates")


def audited(site: Site) -> list[Result]:
    return [json.loads(line) for line in site.sibling("audit.jsonl").read_text().splitlines()]


def test_each_change_of_the_file_is_one_line_of_the_audit_log(new_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "ada")
    new_site.discover(accept="gates")
    first = fabric_file.digest(new_site.path.read_bytes())
    new_site.move_apart()
    sha256 = new_site.discover(override=["moved_percent", "domain_split"])["sha256"]
    assert len(audited(new_site)) == 1
    new_site.accept(sha256, check=True)
    assert len(audited(new_site)) == 1
    new_site.accept(sha256)
    new_site.accept(sha256)
    edited = new_site.run(state="edited", rename={"r02t01": "r02t09"})["sha256"]
    rows = audited(new_site)
    assert [(row["what"], row["sha256_before"], row["sha256_after"]) for row in rows] == [
        ("gates", None, first),
        ("accepted", first, sha256),
        ("edited", sha256, edited),
    ]
    assert [[row["gate"] for row in line["overrides"]] for line in rows] == [[], ["moved_percent"], []]
    assert {(row["user"], row["sudo_user"]) for row in rows} == {(pwd.getpwuid(os.getuid()).pw_name, "ada")}
    assert all(re.fullmatch(r"20[0-9-]{8}T[0-9:]{8}Z", row["when"]) for row in rows)


def test_the_audit_log_has_the_user_and_the_job_of_awx_and_never_a_trays_word_for_them(new_site: Site) -> None:
    new_site.variables["r01t01"] = {"awx_user_name": "mallory"}
    new_site.variables["localhost"] = {"awx_user_name": "grace", "awx_job_id": 42}
    new_site.discover(accept="gates")
    assert [(row["awx_user"], row["awx_job"]) for row in audited(new_site)] == [("grace", "42")]


def test_without_an_audit_log_nothing_is_accepted(site: Site) -> None:
    site.move("r01t01")
    sha256 = site.discover()["sha256"]
    site.sibling("audit.jsonl").unlink()
    site.sibling("audit.jsonl").mkdir()
    before = site.files()
    with pytest.raises(AnsibleActionFail, match=r"fabric\.audit\.jsonl: cannot be written \(Is a directory\); "):
        site.accept(sha256)
    assert site.files() == before


def test_a_line_that_was_cut_off_spoils_no_later_line(new_site: Site) -> None:
    new_site.sibling("audit.jsonl").write_text('{"who')
    new_site.discover(accept="gates")
    half, line = new_site.sibling("audit.jsonl").read_text().splitlines()
    assert (half, json.loads(line)["what"]) == ('{"who', "gates")


def test_where_a_signature_is_required_each_change_must_be_signed_before_the_next_run(
    new_site: Site, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("keys")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"], check=True)
    (folder / "signers").write_text(f"ada@example.org {(folder / 'key.pub').read_text()}")
    monkeypatch.setenv(signature.VARIABLE, str(folder / "signers"))
    for change in (lambda: new_site.accept(new_site.discover()["sha256"]), lambda: new_site.discover(accept="gates")):
        done = change()
        command = done["msg"].rpartition("; sign it before the next run: ")[2]
        assert command == f"ssh-keygen -Y sign -f KEY -n nvlink-fabric {new_site.path}"
        assert not new_site.sibling("json.sig").exists()
        with pytest.raises(AnsibleActionFail, match=r"fabric\.json: is not signed, and NVLINK_FABRIC_ALLOWED_SIGNERS"):
            new_site.discover()
        subprocess.run([str(folder / "key") if word == "KEY" else word for word in command.split()], check=True)
        assert new_site.discover()["changed"] is False
        new_site.move("r01t01")


@pytest.mark.parametrize("by_gates", [True, False])
def test_a_kill_at_any_system_call_leaves_complete_files_and_the_next_run_finishes(site: Site, by_gates: bool) -> None:
    before = site.path.read_bytes()
    site.move("r01t01")
    sha256 = "" if by_gates else site.discover()["sha256"]
    start = site.files()

    def work() -> Result:
        return site.discover(accept="gates") if by_gates else site.accept(sha256)

    work()
    after = site.path.read_bytes()
    assert after != before
    for step in range(100):
        for name in site.files():
            (site.path.parent / name).unlink()
        for name, data in start.items():
            (site.path.parent / name).write_bytes(data)
        died = faults.run(work, step, faults.CHANGING).killed
        assert site.path.read_bytes() in (before, after)
        if site.path.read_bytes() == after:
            assert site.sibling("json.previous").read_bytes() == before
        # Every file is complete, and running the command again gives the result of an uninterrupted run.
        fabric_file.load_state(str(site.path))
        work()
        assert site.path.read_bytes() == after
        unchanged = site.discover(accept="gates")
        assert (unchanged["changes"], site.path.read_bytes()) == ([], after)
        # A hidden temporary file may stay; a write that is an hour younger removes it.
        assert not [name for name in site.files() if name.endswith((".new", ".lock")) and not name.startswith(".")]
        assert not site.sibling("proposed.json").exists()
        if not died:
            assert step >= 20
            return
    pytest.fail("the work never ends")


def test_state_proposal_and_lock_lie_in_a_folder_of_their_own(new_site: Site, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    given = {"state_dir": str(folder)}
    with storage.locked(str(folder / "fabric.json"), "now"), pytest.raises(AnsibleActionFail, match="another run is "):
        new_site.discover(**given)
    # A run that only proposes writes no file there, and needs no lock.
    with storage.locked(str(new_site.path), "now"):
        proposed = new_site.discover(**given)
    names = sorted(child.name for child in folder.iterdir())
    assert names == ["fabric.proposed.json", "fabric.proposed.md", "fabric.state.json"]
    assert proposed["proposal_file"] == str(folder / "fabric.proposed.json")
    assert f"fabric_state_dir={folder} -e fabric_proposal={proposed['sha256']}" in proposed["msg"]
    assert [child.name for child in tmp_path.iterdir()] == ["run"]
    with storage.locked(str(new_site.path), "now"), pytest.raises(AnsibleActionFail, match="another run is writing it"):
        new_site.accept(proposed["sha256"], **given)
    new_site.accept(proposed["sha256"], **given)
    assert sorted(child.name for child in folder.iterdir()) == ["fabric.state.json"]
    assert sorted(child.name for child in tmp_path.iterdir()) == ["fabric.audit.jsonl", "fabric.json", "run"]
    assert not new_site.discover(**given)["changed"]


def test_the_review_is_written_again_where_it_is_missing_and_goes_with_its_proposal(new_site: Site) -> None:
    proposed = new_site.discover()
    text = new_site.sibling("proposed.md").read_bytes()
    new_site.sibling("proposed.md").unlink()
    assert not new_site.discover()["changed"]
    assert new_site.sibling("proposed.md").read_bytes() == text
    new_site.accept(proposed["sha256"])
    assert not new_site.sibling("proposed.md").exists()
    new_site.move("r01t01")
    new_site.discover()
    new_site.move("r01t01", clique_id=32766)
    assert new_site.discover()["changed"] is True
    assert not new_site.sibling("proposed.json").exists()


def test_an_option_has_the_name_of_the_variable_that_set_it(new_site: Site) -> None:
    new_site.variables["localhost"] = {"fabric_min_answer": 101}
    with pytest.raises(AnsibleActionFail, match=r"^fabric_min_answer: 101.0 must be a number from 0 to 100"):
        new_site.discover(min_answer=101)
    with pytest.raises(AnsibleActionFail, match=r"^moved_percent: 101.0 must be a number from 0 to 100"):
        new_site.discover(moved_percent=101)


def test_an_edited_proposal_is_shown_as_it_is_and_not_as_it_says(site: Site) -> None:
    """Whoever can write the proposal can write a summary, empty objections and the checksum too."""
    site.results["r03t01"] = {"ansible_facts": {"nvlink_fabric": fleet(racks=3, trays_per_rack=2)["r03t01"]}}
    site.discover()
    file = site.sibling("proposed.json")
    document = json.loads(file.read_text())
    moved = document["fabric"]["trays"]
    moved["r01t01"].update(clique="r02", ansible_host="192.0.2.66")
    moved["r01t02"].update(clique="r02")
    document["fabric"]["overrides"] = [{"gate": "unknown_trays", "when": "2026-11-21", "what": "nothing"}]
    document["changes"] = []
    del document["contents_sha256"]
    document["contents_sha256"] = fabric_file.digest(fabric_file.encode(document))
    file.write_bytes(fabric_file.encode(document))
    shown = site.run(state="pending", diff=True)
    sha256 = fabric_file.digest(file.read_bytes())
    dry, done = site.accept(sha256, check=True, diff=True), site.accept(sha256, diff=True)
    assert codes(shown) == ["moved_percent", "domain_merged"]
    for lines in (shown["lines"], dry["lines"], done["lines"], dry["diff"]["prepared"], done["diff"]["prepared"]):
        text = lines if isinstance(lines, str) else "\n".join(lines)
        assert re.search(r"^r01t\S+ +r01 .*r02", text, re.MULTILINE), text
        assert "ansible_host none -> 192.0.2.66" in text
        assert "override unknown_trays, nothing: new, gate unknown_trays, what nothing, when 2026-11-21" in text
    assert trays(done) == ["r01t01", "r01t01", "r01t02", "r03t01"]


def test_what_cannot_be_accepted_is_not_shown_as_pending(new_site: Site) -> None:
    with pytest.raises(AnsibleActionFail, match=r"fabric\.proposed\.json: there is no proposal"):
        new_site.run(state="pending")
    new_site.discover(accept="gates")
    new_site.move("r01t01")
    new_site.discover()
    new_site.path.write_bytes(new_site.path.read_bytes() + b"\n")
    with pytest.raises(AnsibleActionFail, match="has changed since the proposal was made"):
        new_site.run(state="pending")


def test_the_printed_command_is_taken_as_it_stands_where_a_path_has_spaces(tmp_path: Path) -> None:
    folder = tmp_path / 'a site\'s "rack" {x}'
    folder.mkdir()
    site = Site(folder)
    command = site.discover()["msg"].partition("accept it with: ")[2]
    words = shlex.split(command)
    given: dict[str, Any] = {}
    for flag, word in itertools.pairwise(words):
        if flag == "-e":
            given |= json.loads(word) if word.startswith("{") else parse_kv(word)
    assert given["fabric_file"] == str(site.path)


@pytest.mark.parametrize("is_extra", [False, True])
def test_the_printed_command_names_only_a_fabric_file_that_the_next_run_would_not_find(
    new_site: Site, monkeypatch: pytest.MonkeyPatch, is_extra: bool
) -> None:
    inventory = new_site.path.with_name("hosts.yml")
    inventory.touch()
    extra = {"fabric_file": str(new_site.path)} if is_extra else {}
    monkeypatch.setattr(context, "CLIARGS", CLIArgs({"inventory": (str(inventory),)}))
    monkeypatch.setattr(action_fabric_file, "load_extra_vars", lambda _loader: extra)
    monkeypatch.chdir(new_site.path.parent)
    monkeypatch.delenv("AWX_ISOLATED_DATA_DIR", raising=False)
    new_site.variables["localhost"] = {"ansible_inventory_sources": [str(inventory)]}
    proposed = new_site.discover()
    named = f"accept -e fabric_file={new_site.path}"
    words = f"rackscale.nvlink.{named}" if is_extra else "-i hosts.yml rackscale.nvlink.accept"
    assert f"accept it with: ansible-playbook {words} -e fabric_proposal={proposed['sha256']}" in proposed["msg"]
