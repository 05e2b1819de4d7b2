# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What imex_domain rejects and decides on the controller; test_imex_role.py has the phases on trays of the lab."""

from __future__ import annotations

import functools
import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.block import Block
from ansible.playbook.play import Play
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.plugins.connection.local import Connection
from ansible.plugins.shell.sh import ShellModule
from ansible.template import Templar
from ansible_collections.rackscale.nvlink.plugins.action.imex_domain import ActionModule
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.host import Host
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import domain, formats, packages, reporting
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import tray as imex_tray
from ansible_collections.rackscale.nvlink.plugins.modules.imex_domain import ARGUMENT_SPEC, TRAY_SPEC
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import difference, phases
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import rows as imex_rows
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import run_store as imex_run_store
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex import variables as role_variables
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex.clique import Clique
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex.desired import desired_state
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import connections
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.imex import imex_fleet
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.imex.imex_fleet import tray as facts
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils import fabrics
from hypothesis import given
from hypothesis import strategies as st

TRAYS = ["r01t01", "r01t02"]


@pytest.fixture
def fabric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path / "run"))
    made = fabrics.fabric(racks=1, trays=2, split=()).as_dict()
    (tmp_path / "fabric.json").write_text(json.dumps(made))
    return str(tmp_path / "fabric.json")


def action_of(play: Play, check: bool, **options: Any) -> Any:
    task = Task.load({"action": "rackscale.nvlink.x", "check_mode": check}, block=Block(play=play))
    task.args, loader = options, DataLoader()
    connection = Connection(PlayContext(), shell=ShellModule())
    return ActionModule(task, connection, PlayContext(), loader, Templar(loader), None)


# Options of the task; all others of run() are variables of the role.
OPTIONS = ("phase", "nodes")


def variables_of(host: str, fabric: str, **given: Any) -> dict[str, Any]:
    """A tray in the role, without templates. given: variables without imex_."""
    role = {"owner": "domain", "fabric_file": fabric, "tray": host, "config_owned": {}, **given}
    role.setdefault("tls", "off")
    role.setdefault("pin_package", True)
    role.setdefault("tls_used", role["tls"] != "off")
    named = {f"imex_{name}": value for name, value in role.items() if value is not None}
    named = {**dict.fromkeys(domain.TEMPLATES, ""), **named}
    return {"inventory_hostname": host, "ansible_role_name": role_variables.ROLE, **named}


def clique_of(fabric: str, tray: str = "r01t01") -> Clique:
    clique = imex_run_store.clique_of(str(constants.DEFAULT_LOCAL_TMP), fabric, tray)
    assert clique is not None
    return clique


@pytest.fixture
def run(fabric: str) -> Any:
    """run(tray, phase=..., ...) as a task of one play; what runs on a tray is tested in the lab."""
    play = Play.load({"hosts": "all", "gather_facts": False})
    localhost: dict[str, Any] = {}

    def start(
        host: str, *, check: bool = False, strategy: str = "linear", left: list[str] | None = None, **options: Any
    ) -> dict[str, Any]:
        """left: the hosts of the play that have not failed, all by default. tray_reading: as only the tray has it."""
        play.strategy = strategy
        own = {"tray_reading": options.pop("tray_reading")} if "tray_reading" in options else {}
        action = action_of(play, check, **{name: options.pop(name) for name in OPTIONS if name in options})
        hosts = {"ansible_play_hosts_all": TRAYS, "ansible_play_hosts": left or TRAYS}
        variables = variables_of(host, **{"fabric": fabric, **options})
        return action.run(task_vars={**variables, **own, "hostvars": {"localhost": localhost}, **hosts})

    # What the tests read of the play that start() made; a function has no such attributes for mypy.
    start.play, start.of_play, start.localhost = play._uuid, play, localhost  # type: ignore[attr-defined]
    return start


@pytest.mark.core
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"phase": "begin"}, r"phase \(\w+\) is 'begin'; use one of inspect, read, pending"),
        ({"phase": "inspect", "nodes": ["198.51.100.1"]}, "Unsupported parameters.*nodes"),
        ({"phase": "inspect", "strategy": "free"}, "the play's strategy is free, under which trays do not wait"),
        ({"phase": "inspect", "fabric_file": ""}, "imex_owner domain needs imex_fabric_file"),
        ({"phase": "inspect", "tray": "r77t01"}, "does not place tray"),
        ({"phase": "inspect", "list_port": 65536}, "imex_list_port is 65536; use a number from 1 to 65535"),
        ({"phase": "inspect", "tls": "site", "tls_files": {"key": "/nowhere"}}, "files, key: /nowhere cannot be read"),
        ({"phase": "inspect", "tls": "site"}, "imex_tls_files: key is missing; set it to a file"),
        ({"phase": "inspect", "tls": "ca"}, "imex_tls ca needs imex_tls_ca_dir of localhost; set it in group"),
    ],
)
def test_a_wrong_option_fails_with_one_sentence(run: Any, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AnsibleActionFail, match=sentence):
        run("r01t01", **options)


def test_check_mode_before_anything_was_accepted_warns(run: Any) -> None:
    result = run("r01t01", phase="inspect", fabric_file="/nowhere/fabric.json", check=True)
    assert result["changed"] is False
    assert "does not exist yet" in result["warnings"][0]


UNCHANGED: dict[str, Any] = {"changed": False, "changes": [], "findings": [], "actions": []}
# What an unchanged tray returns in any phase but inspect, without facts of its own.
ROW: dict[str, Any] = {"facts": facts(0, 2), "running": True, "sha256": None, "reload": False, "started": False}
# What the controller makes of its report.
DIFFERENCE: dict[str, Any] = {
    **ROW,
    **{"approved": True, "pending": [], "restart_clique": [], "record": None, "peers": {}, "offer": None},
}


def healthy(clique: Clique, tray: str) -> dict[str, Any]:
    """What the controller makes of the report of a tray of the fabric file in the desired state."""
    number, sha256 = clique.trays.index(tray), formats.digest(formats.render_nodes(clique.entries))
    observed = facts(number, len(clique.trays))
    for peer in observed["peers"]:
        peer["host"] = clique.entries[peer["id"]]
    observed["nodes"].update(entries=list(clique.entries), sha256=sha256, read_sha256=sha256)
    record = {"clique": clique.name, "generation": 7, "sha256": sha256, "owner": "domain"}
    return {**DIFFERENCE, "facts": observed, "sha256": sha256, "record": record}


def inspected(run: Any, tray: str, phase: str = "inspect", **more: Any) -> None:
    row = {"failed": False, "running": True, "restart_clique": ["the list"], "record": None, "peers": {}, **more}
    row = {"host": tray, "owner": "domain", "allowed": [], **row}
    imex_run_store.write_row(str(constants.DEFAULT_LOCAL_TMP), run.play, phase, tray, row)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments of each run of the module on a tray, which returns nothing."""
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(
        ActionModule, "_execute_module", lambda *_args, module_args, **_more: made.append(module_args) or {}
    )
    return made


def recorded(fabric: str, *trays: str) -> dict[str, Any]:
    """The records that a tray reads from others: these are still in the IMEX domain."""
    clique = clique_of(fabric, trays[0])
    return {clique.entry_of(tray): {"clique": "r01", "generation": 3, "sha256": "0" * 64} for tray in trays}


def test_a_blocked_clique_is_reported_once_and_left_unchanged(run: Any) -> None:
    inspected(run, "r01t01")
    inspected(run, "r01t02", failed=True, msg="two owners")
    result = run("r01t01", phase="stop_and_write")
    assert (result["failed"], result["blocked"], result["changed"]) == (True, True, False)
    assert [entry["code"] for entry in result["findings"]] == ["imex_clique_partial"]
    assert "two owners" in result["msg"]
    assert run("r01t02", phase="stop_and_write")["failed"] is False
    # A tray that reaches the next phase is left unchanged too.
    assert run("r01t01", phase="start")["blocked"] is True
    # From a play of its own too.
    run.of_play._uuid, unchanged = "another", {"play": run.play}
    text = run(TRAYS[1], phase="report", left=["r01t02"], unchanged=unchanged)["text"]
    assert text == [
        "IMEX: 2 trays, none changed; 1 failed: r01t01; 1 not changed, as not all of the clique can: r01t02."
    ]


def test_trays_that_do_not_answer_share_a_warning_and_those_outside_the_run_have_none(
    run: Any, fabric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tray in TRAYS:
        inspected(run, tray, "start")
    inspected(run, "r01t01", "wait")
    (warning,) = run("r01t01", phase="verdict")["warnings"]
    assert warning.startswith("tray_unreachable: r01t[01-02] returned no state of its IMEX; bring it back")
    inspected(run, "r01t01", "wait", facts=healthy(clique_of(fabric), "r01t01")["facts"])
    assert len(run("r01t01", phase="verdict")["warnings"]) == 1
    monkeypatch.setattr(sys.modules[__name__], "TRAYS", ["r01t01"])
    assert run("r01t01", phase="verdict")["warnings"] == []


def connected(fabric: str, word: str) -> dict[str, Any]:
    """The facts of r01t01 with this connection to r01t02."""
    observed: dict[str, Any] = healthy(clique_of(fabric), "r01t01")["facts"]
    observed["peers"][0]["connection"] = word
    return observed


RECORD = {"clique": "r01", "generation": 3, "sha256": "0" * 64}


@pytest.mark.parametrize(
    ("owner", "row", "allowed", "refused"),
    [
        ("none", {}, [], True),
        ("job", {}, [], True),
        # Another list for a part of the clique.
        ("domain", {"facts": lambda _fabric: facts(0, 2)}, [], True),
        ("driver_managed", {"facts": lambda _fabric: facts(count=2)}, [], True),
        ("driver_managed", {"facts": lambda _fabric: {**facts(count=2), "owners": [{"owner": "prolog"}]}}, [], False),
        # The daemon of a new image.
        ("driver_managed", {"facts": lambda _fabric: facts(count=1)}, [], False),
        ("none", {}, ["r01t02"], False),
        # It is not in the domain any more, or has nothing to do.
        ("none", {"running": False}, [], False),
        ("none", {"pending": []}, [], False),
        # It missed the change of its clique, as on `resume`: the others offer no record and are not connected.
        ("none", {"record": RECORD, "peers": {}}, [], False),
        ("none", {"record": RECORD, "peers": {}, "facts": lambda fabric: connected(fabric, "connected")}, [], True),
        ("none", {"record": RECORD, "peers": {}, "facts": lambda fabric: connected(fabric, "lost")}, [], False),
    ],
)
def test_a_part_of_a_clique_does_not_leave_its_imex_domain(
    run: Any, fabric: str, monkeypatch: Any, calls: list[Any], owner: str, row: Any, allowed: list[str], refused: bool
) -> None:
    """Nor is it drained for that."""
    monkeypatch.setattr(sys.modules[__name__], "TRAYS", ["r01t01"])
    row = {key: value(fabric) if callable(value) else value for key, value in row.items()}
    given = {"pending": ["stop nvidia-imex.service"], "peers": recorded(fabric, "r01t02"), **row}
    given |= {"owner": owner, "allowed": allowed, "placed": fabric}
    given["fabric_file"] = fabric if owner in domain.LIST_OWNERS else None
    inspected(run, "r01t01", **given)
    change = run("r01t01", phase="stop_and_write", owner=owner, allow_outdated=allowed)
    preview = run("r01t01", phase="pending")["pending"]["r01t01"]
    assert ("refused" in preview, preview["pending"]) == (refused, bool(given["pending"]))
    assert bool(calls) is (not refused and bool(given["pending"]))
    if refused:
        assert (change["failed"], change["changed"]) == (True, False)
        assert [entry["code"] for entry in change["findings"]] == ["imex_clique_partial"]
        for message in (change["msg"], preview["refused"]):
            assert "this run leaves out r01t02; run it on the whole" in message


def test_a_tray_that_leaves_reads_the_records_of_those_outside_the_run(
    run: Any, fabric: str, monkeypatch: Any, calls: list[Any]
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "TRAYS", ["r01t02"])
    run("r01t02", phase="inspect", owner="none")
    assert calls[0]["asked"]["outside"] == list(recorded(fabric, "r01t01"))


def test_a_wrong_variable_ends_the_role_before_any_row_counts(run: Any) -> None:
    """Rows are of an earlier run of the role in this play."""
    inspected(run, "r01t01")
    with pytest.raises(AnsibleActionFail, match="imex_channels"):
        run("r01t01", phase="inspect", channels="none")
    assert imex_run_store.trays(str(constants.DEFAULT_LOCAL_TMP), run.play, "inspect") == []


def test_half_a_clique_that_would_leave_its_imex_domain_is_reported_once(run: Any, tmp_path: Path) -> None:
    made = fabrics.fabric(racks=1, trays=3, split=()).as_dict()
    (tmp_path / "more.json").write_text(json.dumps(made))
    given = {"phase": "stop_and_write", "owner": "none", "fabric_file": str(tmp_path / "more.json")}
    peers = recorded(given["fabric_file"], "r01t03")
    for tray in TRAYS:
        inspected(run, tray, owner="none", pending=["stop nvidia-imex.service"], peers=peers)
    assert [run(tray, **given)["failed"] for tray in TRAYS] == [True, False]
    # One that has left before reports nothing.
    inspected(run, "r01t01", owner="none", pending=[], running=False)
    assert run("r01t02", **given)["failed"] is True


def test_a_whole_clique_with_other_names_in_the_inventory_leaves_its_domain(
    run: Any, fabric: str, monkeypatch: Any, calls: list[Any]
) -> None:
    hosts = [f"{tray}.example.com" for tray in TRAYS]
    for tray, host in zip(TRAYS, hosts, strict=True):
        peers = recorded(fabric, *TRAYS)
        inspected(run, tray, host=host, owner="none", pending=["stop nvidia-imex.service"], peers=peers)
    monkeypatch.setattr(sys.modules[__name__], "TRAYS", hosts)
    run(hosts[0], phase="stop_and_write", owner="none", tray="r01t01")
    # Jobs may have begun since on any tray of the clique.
    assert [call["plan"]["slurm_nodes"] for call in calls] == [["r01t01", "r01t02"]]
    # Of the other one no row names the host, as after a run without it.
    imex_run_store.delete_rows(str(constants.DEFAULT_LOCAL_TMP), run.play, ["inspect"], "r01t02")
    result = run(hosts[0], phase="stop_and_write", owner="none", tray="r01t01")
    assert (result["failed"], len(calls)) == (True, 1)


def steady(run: Any, fabric: str, **more: Any) -> None:
    """Rows of `inspect` of a clique that is in the desired state; ``more``: of the last member."""
    for tray in TRAYS:
        row = {**healthy(clique_of(fabric), tray), "host": f"host-{tray}", "owner": "domain", "fabric_file": fabric}
        inspected(run, tray, **(row | more if tray == TRAYS[-1] else row))


def compare(run: Any) -> list[str]:
    return list(run(TRAYS[0], phase="compare")["unchanged_hosts"])


@pytest.mark.parametrize(
    ("other", "hosts"),
    [
        ({}, ["host-r01t01", "host-r01t02"]),
        ({"running": False}, []),
        ({"approved": False}, []),
        ({"pending": ["change config.cfg"]}, []),
        ({"facts": None}, []),
        ({"failed": True, "msg": "two owners"}, []),
        ({"fabric_file": "/another.json"}, []),
        ({"record": None}, []),
        # It was not reached.
        (None, []),
    ],
    ids=str,
)
def test_a_clique_is_unchanged_where_all_its_members_are(run: Any, fabric: str, other: Any, hosts: list[str]) -> None:
    assert compare(run) == []
    steady(run, fabric, **(other or {}))
    if other is None:
        imex_run_store.delete_rows(str(constants.DEFAULT_LOCAL_TMP), run.play, ["inspect"], TRAYS[-1])
    assert compare(run) == hosts


def test_a_wave_compares_its_own_cliques_alone(run: Any, fabric: str, monkeypatch: Any) -> None:
    """The rows of earlier waves are not read: with a wave for each rack that would be quadratic."""
    for tray in TRAYS:
        inspected(run, tray, host=tray, owner="none", pending=[])
    read: list[str] = []
    kept = imex_run_store.read_rows
    monkeypatch.setattr(imex_run_store, "read_rows", lambda *args: read.extend(args[3]) or kept(*args))
    run.of_play.serial = [1]
    given = {"phase": "compare"}
    assert [run(tray, **given)["unchanged_hosts"] for tray in TRAYS] == [{"r01t01": True}, {"r01t02": True}]
    assert read == TRAYS


@pytest.mark.parametrize(
    ("row", "hosts"),
    [
        ({"owner": "none", "pending": []}, ["host-r01t02"]),
        ({"owner": "driver_managed", "pending": ["mask nvidia-imex.service"]}, []),
        ({"owner": "none", "pending": [], "failed": True}, []),
    ],
)
def test_a_tray_without_a_node_list_is_unchanged_alone(run: Any, row: dict[str, Any], hosts: str) -> None:
    inspected(run, "r01t01", host="host-r01t01", owner="none", fabric_file=None, pending=["stop nvidia-imex.service"])
    inspected(run, "r01t02", host="host-r01t02", fabric_file=None, **row)
    assert compare(run) == hosts


def test_certificates_that_are_not_made_yet_are_pending_and_refuse_nothing(
    run: Any, on_trays: list[dict[str, Any]], fabric: str, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"owner": "none", "tls": "ca"}
    run.localhost.update(imex_tls_ca_dir=str(tmp_path), fabric_file=fabric)
    result = run("r01t01", phase="inspect", **given)
    assert result["certificate"]["subject_alt_name"] == ["IP:10.0.1.1", "DNS:r01t01"]
    assert run("r01t01", phase="pending")["pending"]["r01t01"]["reasons"] == ["the list", "certificates"]
    # Of a new tray alone.
    (tmp_path / "ca.key").write_text("a key\n")
    run("r01t01", phase="inspect", **given)
    assert run("r01t01", phase="pending")["pending"]["r01t01"]["reasons"] == ["the list"]
    run("r01t01", phase="prepare", check=True, **given)
    with pytest.raises(AnsibleActionFail, match=r"r01t01\.key cannot be read"):
        run("r01t01", phase="prepare", **given)


NO_START = facts(processes=[], answers={}, version="570.172.08")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"findings": [{"code": "driver_missing", "case": "imex"}]}, "The version of the loaded driver cannot be "),
        (
            {
                "failed": True,
                "msg": "jobs_running",
                "findings": [{"code": "jobs_running", "case": "imex", "values": {"jobs": ["7 (ada)"], "reason": "x"}}],
            },
            "Jobs run on this clique (7 (ada)) and would break, because IMEX must stop for x; wait",
        ),
        (
            {"failed": True, "msg": "nvidia-imex.service does not start", "findings": [], "row": {"facts": NO_START}},
            "nvidia-imex 570.172.08 does not start with driver 580.173.02;",
        ),
        ({"failed": True, "msg": "The disk is full.", "findings": [], "row": {"facts": None}}, "The disk is full."),
    ],
)
def test_the_controller_fails_a_tray_by_its_findings(
    run: Any, monkeypatch: Any, answer: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr(ActionModule, "_execute_module", lambda *_arguments, **_named: {"changes": [], **answer})
    result = run("r01t01", phase="prepare")
    assert result["failed"] is True
    assert result["msg"].startswith(message)
    # It is found, and fails the change.
    assert run("r01t01", phase="inspect")["failed"] is False
    assert compare(run) == []
    assert run("r01t01", phase="pending")["pending"]["r01t01"]["pending"] is True


@pytest.mark.parametrize(
    ("hosts", "other", "allowed", "codes"),
    [
        (TRAYS, {}, [], []),
        (TRAYS, {"failed": True, "msg": "a fault"}, [], ["imex_list_outdated"]),
        (TRAYS[:1], None, [], ["imex_clique_partial"]),
        (TRAYS[:1], None, TRAYS[1:], ["imex_list_outdated"]),
    ],
)
def test_imex_per_job_has_one_list_of_members_and_names_a_tray_that_misses_it(
    run: Any,
    fabric: str,
    monkeypatch: Any,
    calls: list[Any],
    hosts: Any,
    other: Any,
    allowed: list[str],
    codes: list[str],
) -> None:
    """One that the run leaves out is read, and blocks the change where it offers another list."""
    monkeypatch.setattr(sys.modules[__name__], "TRAYS", hosts)
    change = functools.partial(run, "r01t01", owner="job", allow_outdated=allowed)
    change(phase="inspect")
    clique = clique_of(fabric)
    asked = calls[0]["asked"]
    assert (asked["own"], asked["owner"]) == (clique.entries[0], "job")
    assert asked["outside"] == [clique.entry_of(tray) for tray in clique.trays if tray not in hosts]
    row = {"restart_clique": [], "pending": ["write the program"], "running": False}
    away = [tray for tray in clique.trays if tray not in hosts]
    inspected(run, "r01t01", **row, peers=recorded(fabric, *away) if away else {})
    if other is not None:
        inspected(run, "r01t02", **{**row, **other})
    result = change(phase="stop_and_write")
    assert [entry["code"] for entry in result["findings"]] == codes
    changes = codes != ["imex_clique_partial"]
    assert [entry["phase"] for entry in calls[1:]] == ["stop_and_write"] * changes
    desired = calls[-1].get("desired", {"nodes": clique.slurm_nodes, "entries": clique.entries})
    assert (desired["nodes"], desired["entries"]) == (clique.slurm_nodes, clique.entries)
    # It has no daemon to start.
    assert run("r01t01", phase="start", owner="job")["skipped"] is True


def test_an_unchanged_clique_of_imex_per_job_needs_no_other_task(run: Any, fabric: str) -> None:
    clique = clique_of(fabric)
    digest = domain.list_digest("job", clique.slurm_nodes, clique.entries)
    record = {"clique": "r01", "generation": 2, "sha256": digest, "owner": "job"}
    row = {"restart_clique": [], "pending": [], "running": False, "record": record, "fabric_file": fabric}
    row |= {"sha256": None, "approved": False}
    for tray in TRAYS:
        inspected(run, tray, host=tray, owner="job", **row)
    assert compare(run) == ["r01t01", "r01t02"]
    assert run("r01t01", phase="stop_and_write", owner="job") == UNCHANGED
    inspected(run, "r01t02", host="r01t02", owner="job", **{**row, "pending": ["write a file"]})
    assert compare(run) == []


@pytest.fixture
def on_trays(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments of each run of the module on a tray, which returns a tray whose list must change."""
    given: list[dict[str, Any]] = []
    report = imex_fleet.report(facts(0, 2))
    row = {**DIFFERENCE, "restart_clique": ["the list"]}
    row["pending"] = ["the list"]
    monkeypatch.setattr(difference, "difference", lambda *_: {**row, "findings": []})

    def execute(_self: Any, module_name: str, module_args: dict[str, Any], **_more: Any) -> dict[str, Any]:
        assert module_name == "rackscale.nvlink.imex_domain"
        checked = ArgumentSpecValidator({**ARGUMENT_SPEC, **TRAY_SPEC}).validate(module_args)
        assert not checked.error_messages
        given.append(checked.validated_parameters)
        is_read = module_args["phase"] in ("inspect", "prepare")
        return {"changed": False, "row": {"report": report} if is_read else dict(ROW), "findings": []}

    monkeypatch.setattr(ActionModule, "_execute_module", execute)
    return given


def test_a_tray_that_dies_while_it_is_drained_is_outdated(run: Any, on_trays: list[dict[str, Any]]) -> None:
    """What was read before that does not count as its part in the change."""
    for tray in TRAYS:
        assert run(tray, phase="inspect") == {**UNCHANGED, "failed": False}
    assert {(entry["phase"], entry["asked"]["nodes"], entry["asked"]["package"]) for entry in on_trays} == {
        ("inspect", (), None)
    }
    due = {"pending": True, "reasons": ["the list", "the list", "generation 1 of the list"]}
    assert run("r01t01", phase="pending")["pending"] == dict.fromkeys(TRAYS, due)
    run("r01t01", phase="inspect")
    run("r01t01", phase="prepare")
    assert (on_trays[-1]["asked"]["nodes"], on_trays[-1]["asked"]["package"]) == (TRAYS, "")
    result = run("r01t01", phase="stop_and_write")
    assert [(note["code"], note["tray"]) for note in result["findings"]] == [("imex_list_outdated", "r01t02")]
    assert on_trays[-1]["plan"]["restart_clique"] is True


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        # It has the list and fails, in either phase.
        ({"failed": True, "msg": "Jobs run on this clique."}, None, False),
        ({}, {"failed": True, "msg": "The disk is full.", "sha256": None}, False),
        ({"record": None}, {"failed": True, "msg": "The disk is full.", "sha256": None}, True),
    ],
)
def test_a_tray_that_has_the_list_is_not_named_as_one_that_did_not_get_it(
    run: Any, on_trays: list[dict[str, Any]], fabric: str, before: dict[str, Any], after: Any, named: bool
) -> None:
    rows = {tray: healthy(clique_of(fabric), tray) for tray in TRAYS}
    inspected(run, "r01t01", **rows["r01t01"])
    inspected(run, "r01t01", "stop_and_write", **rows["r01t01"], generation=7)
    inspected(run, "r01t02", **{**rows["r01t02"], **before})
    if after:
        inspected(run, "r01t02", "stop_and_write", **after)
    result = run("r01t01", phase="start")
    assert [(note["code"], note["tray"]) for note in result["findings"]] == [("imex_list_outdated", "r01t02")] * named


@pytest.mark.core
def test_a_tray_gets_checked_options_and_the_plan_of_its_clique(
    run: Any, on_trays: list[dict[str, Any]], fabric: str, tmp_path: Path
) -> None:
    paths = {name: str(tmp_path / name) for name in ("key", "certificate", "authority")}
    for name, path in paths.items():
        Path(path).write_text(f"text of {name}\n")
    config = tmp_path / "config.cfg.j2"
    config.write_text("SERVER_PORT={{ 50000 + 100 }}\n")
    given = {"ctl_timeout": "2", "tls": "site", "tls_files": paths, "config_template": str(config)}
    run("r01t01", phase="prepare", **given)
    run("r01t01", phase="stop_and_write", **given)
    asked, options = on_trays[0]["asked"], on_trays[1]
    desired, clique = options["desired"], clique_of(fabric)
    assert (asked["ctl_timeout"], asked["nodes"], on_trays[0]["desired"]) == (2.0, TRAYS, {})
    assert {formats.CONFIG_FILE, domain.PROGRAM, *domain.TLS_FILES.values()} <= set(asked["files"])
    assert (desired["list_port"], desired["files"][formats.CONFIG_FILE]) == (50006, "SERVER_PORT=50100\n")
    assert (desired["clique"], list(desired["entries"]), desired["own"]) == (
        "r01",
        list(clique.entries),
        clique.entries[0],
    )
    assert options["tls"] == {name: f"text of {name}\n" for name in paths}
    assert domain.DesiredState(**desired, tls=options["tls"]).ports == (50100, 50005, 50006)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"tls": "site", "tls_files": {"key": "/nowhere"}}, "imex_tls_files, key: /nowhere cannot be read"),
        ({"channels": [-1]}, "imex_channels: [-1] has a number out of range"),
    ],
)
def test_an_error_on_the_controller_is_a_refusal(run: Any, wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AnsibleActionFail, match=re.escape(sentence)):
        run("r01t01", phase="inspect", **wrong)
    result = run("r01t01", phase="pending")["pending"]["r01t01"]
    assert (result["pending"], result["reasons"]) == (True, [result["refused"]])
    assert result["refused"].startswith(sentence)


def test_the_verdict_fails_the_tray_at_fault(run: Any, fabric: str) -> None:
    for tray in TRAYS:
        observed = healthy(clique_of(fabric), tray)["facts"]
        observed.update({"ready": False, "state": "init_gpu"} if tray == TRAYS[1] else {})
        inspected(run, tray, "start")
        inspected(run, tray, "wait", facts=observed)
    results = [run(tray, phase="verdict") for tray in TRAYS]
    assert [bool(result.get("failed")) for result in results] == [False, True]
    assert "init_gpu" in results[1]["msg"]


# One member answers what it likes.

RACK = ["r01t01", "r01t02", "r01t03", "r01t04"]


class Written(Host):
    """The states of the files that a change would write on an empty tray."""

    def __init__(self) -> None:
        super().__init__(check=True)
        self.states: dict[str, Any] = {}

    def file(self, path: str, data: bytes | None, *_owner: Any, mode: int = 0o644, **_more: Any) -> bool:
        if data is not None:
            digest = hashlib.sha256(data).hexdigest()
            self.states[path] = {"sha256": digest, "mode": mode, "uid": 0, "gid": 0}
        return False


def report_of(clique: Clique, tray: str, fabric: str) -> dict[str, Any]:
    """The report of a tray of the fabric file in the desired state."""
    known, host = healthy(clique, tray), Written()
    record = {**known["record"], "nodes": formats.NODES_FILE, "channels": [], "since": 1.0}
    made = imex_fleet.report(known["facts"], record=record, approved=True, programs=[reporting.PYTHON])
    values = role_variables.values(variables_of(tray, fabric), dict)
    desired = desired_state(values, dict.fromkeys(domain.TEMPLATES.values(), ""), clique, tray, {})
    offer = packages.Offer("nvidia-imex", f"{imex_fleet.VERSION}-1")
    asked = reporting.Options("domain")
    imex_tray.Tray(desired, host, asked).stop_and_write(made, 7, False, offer)
    return {**made, "files": host.states}


def test_by_ssh_a_hostile_or_missing_answer_leaves_that_tray_alone_to_ansible(
    run: Any, fabric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def variables(_action: Any, name: str, _hostvars: Any) -> dict[str, Any]:
        return variables_of(name, fabric=fabric)

    def read(names: Any, question: Any, _hosts: Any, _becomes: bool, _reporter: Any, options_of: Any) -> dict[str, Any]:
        assert (question.module, options_of(TRAYS[1])["owner"]) == ("imex.reporting", "domain")
        return {name: question.accept(name, answers[name], 0.0) for name in names}

    monkeypatch.setattr(ActionModule, "_variables_of", variables)
    monkeypatch.setattr(connections, "read", read)
    made = {tray: report_of(clique_of(fabric), tray, fabric) for tray in TRAYS}
    answers: dict[str, Any] = {tray: {"row": {"report": report}} for tray, report in made.items()}
    found = run(TRAYS[0], phase="read")
    assert (found["read"], found["unchanged_hosts"]) == (dict.fromkeys(TRAYS, True), dict.fromkeys(TRAYS, True))
    for answer, why in (
        ({"row": {"pending": [], "facts": made["r01t02"]["facts"]}}, "gave no valid answer"),
        ({"row": {"report": {**made["r01t02"], "record": [1]}}}, "gave no valid answer"),
        ({"failed": True, "msg": "it was not read as root"}, "it was not read as root"),
    ):
        answers["r01t02"] = answer
        found = run(TRAYS[0], phase="read")
        # A clique is unchanged as a whole or not at all.
        assert (found["read"], found["unchanged_hosts"]) == ({"r01t01": True}, {})
        assert any(f"r01t02: {why}" in text or f"r01t02: it {why}" in text for text in found["warnings"])
        assert imex_run_store.trays(str(constants.DEFAULT_LOCAL_TMP), run.play, "inspect") == ["r01t01"]


def test_a_way_of_reading_that_only_a_tray_has_is_refused(run: Any) -> None:
    with pytest.raises(AnsibleActionFail, match="tray_reading: set for trays with another value than for localhost"):
        run(TRAYS[0], phase="inspect", tray_reading="ssh")


def test_by_ssh_no_file_is_read_that_facts_of_a_tray_name() -> None:
    """Before its variables are templated here, as GuardedAction refuses it in a task of its own."""
    known = fabrics.HostVars(r01t01={"ansible_facts": {"imex_tls_files": {"key": "/etc/shadow"}}})
    with pytest.raises(NvlinkError, match="imex_tls_files"):
        action_of(Play.load({"hosts": "all"}), False, phase="read")._variables_of("r01t01", known)


class Rack:
    """A clique in the desired state, whose phases run on the controller as in a play; ``answer``: of the module."""

    def __init__(self, folder: Path, answer: Callable[[str, str, dict[str, Any]], dict[str, Any]]) -> None:
        self.fabric = folder / "fabric.json"
        if not self.fabric.exists():
            self.fabric.write_text(json.dumps(fabrics.fabric(racks=1, trays=4, split=()).as_dict()))
        self.clique, self.answer = clique_of(str(self.fabric)), answer
        # (tray, phase) -> the plan that the tray got, and the task's result.
        self.plans: dict[tuple[str, str], dict[str, Any]] = {}
        self.results: dict[tuple[str, str], dict[str, Any]] = {}

    def play(self) -> None:
        play = Play.load({"hosts": "all", "gather_facts": False})
        reached, self.play_id = list(RACK), play._uuid
        for phase in ("inspect", "prepare", "stop_and_write", "start", "wait", "verdict"):
            for tray in list(reached):
                action = action_of(play, False, phase=phase)
                action._execute_module = functools.partial(self._execute, tray, phase)  # type: ignore[method-assign]
                result = action.run(task_vars={**variables_of(tray, str(self.fabric)), "ansible_play_hosts_all": RACK})
                self.results[tray, phase] = json.loads(json.dumps(result))
                if result.get("failed"):
                    reached.remove(tray)

    def _execute(self, tray: str, phase: str, module_args: dict[str, Any], **_more: Any) -> dict[str, Any]:
        self.plans[tray, phase] = module_args["plan"]
        if phase in ("inspect", "prepare"):
            return self.answer(tray, phase, {"report": report_of(self.clique, tray, str(self.fabric))})
        return self.answer(tray, phase, {**ROW, "facts": healthy(self.clique, tray)["facts"]})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "DEFAULT_LOCAL_TMP", str(folder / "run"))
        yield folder


def of_others(rack: Rack, liar: str) -> Any:
    kept = [{key: value for key, value in part.items() if key[0] != liar} for part in (rack.plans, rack.results)]
    text = json.dumps([list(part.items()) for part in kept])
    # Messages quote why the member failed.
    return json.loads(re.sub(r"\(no reason\)|\([^()]*no valid result[^()]*\)|\(A fault\)", "()", text))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def test_a_clique_in_the_desired_state_is_read_and_left_alone(store: Path) -> None:
    rack = Rack(store, lambda _tray, _phase, row: {"changed": False, "changes": [], "findings": [], "row": row})
    rack.play()
    rows = imex_run_store.read_rows(str(constants.DEFAULT_LOCAL_TMP), rack.play_id, "inspect", RACK)
    assert [row["pending"] for row in rows.values()] == [[]] * len(RACK)
    assert {phase for _tray, phase in rack.plans} == {"inspect", "prepare"}
    assert not [result for result in rack.results.values() if result.get("failed") or result["findings"]]


@given(st.data(), st.sampled_from(RACK), st.sampled_from(["inspect", "prepare", "stop_and_write", "start", "wait"]))
def test_an_answer_of_another_shape_is_a_failure_of_that_tray_alone(
    store: Path, data: st.DataObject, liar: str, lying: str
) -> None:
    """The others get and return what they do where that tray fails."""
    reads = lying in ("inspect", "prepare")
    lost = ["report"] if reads else [field for field in imex_rows._REQUIRED[lying] if field != "sha256"]
    wrong = data.draw(st.sampled_from(["answer", "row", *lost]))
    value = data.draw(JSON.filter(lambda value: value not in (True, False)) if wrong in ROW else JSON)

    def lie(tray: str, phase: str, row: dict[str, Any]) -> dict[str, Any]:
        if (tray, phase) != (liar, lying):
            return {"changed": False, "changes": [], "findings": [], "row": row}
        if wrong == "answer":
            return {"changed": False, "more": value}
        if wrong == "row":
            return {"changed": False, "row": value}
        del row[wrong]
        return {"changed": False, "row": {**row, f"{wrong}2": value}}

    def fail(tray: str, phase: str, row: dict[str, Any]) -> dict[str, Any]:
        if (tray, phase) != (liar, lying):
            return {"changed": False, "changes": [], "findings": [], "row": row}
        return {"failed": True, "msg": "A fault", "row": {}, "findings": []}

    lied, failed = Rack(store, lie), Rack(store, fail)
    for rack in (lied, failed):
        rack.play()
    assert of_others(lied, liar) == of_others(failed, liar)


RECORDS = st.fixed_dictionaries(
    {
        "clique": st.sampled_from(["r01", "r02"]),
        "generation": st.integers(0, 9) | st.integers(0, imex_rows.MAX_GENERATION),
        "sha256": st.sampled_from(["0" * 64, "f" * 64]),
    }
)
WORDS = st.sampled_from(["connected", "map_mismatch", "version_mismatch", "disconnected", None])


@given(st.data(), st.sampled_from(RACK))
def test_no_lie_of_a_member_stops_restarts_or_fails_another(store: Path, data: st.DataObject, liar: str) -> None:
    """In the documented shape, on a clique that needs no change."""

    def lie(tray: str, _phase: str, row: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = {"changed": False, "changes": [], "findings": [], "row": row}
        if tray != liar:
            return answer
        observed = row.get("report", row)["facts"]
        entries = list(observed["nodes"]["entries"])
        observed["running"] = data.draw(st.booleans())
        observed["nodes"]["entries"] = data.draw(st.permutations(entries) | st.just(entries))
        observed["nodes"]["sha256"] = data.draw(st.sampled_from([observed["nodes"]["sha256"], "0" * 64, None]))
        observed["nodes"]["read_sha256"] = data.draw(st.sampled_from([observed["nodes"]["sha256"], "0" * 64, None]))
        observed["version"] = data.draw(st.sampled_from([observed["version"], "1.2.3", None]))
        observed["state"] = data.draw(st.sampled_from(["ready", "init_gpu", "waiting_for_recovery", None]))
        observed["ready"] = data.draw(st.booleans())
        observed["peers"] = [{**peer, "connection": data.draw(WORDS)} for peer in observed["peers"]]
        names = st.sampled_from([*entries, "198.51.100.250"])
        if report := row.get("report"):
            report.update(
                approved=data.draw(st.booleans()),
                files=data.draw(st.sampled_from([{}, report["files"]])),
                record=data.draw(st.none() | RECORDS),
                peers=data.draw(st.dictionaries(names, RECORDS, max_size=4)),
                local=data.draw(st.booleans()),
            )
        else:
            row.update(
                running=data.draw(st.booleans()),
                sha256=data.draw(st.sampled_from([row["sha256"], "0" * 64, None])),
                started=data.draw(st.booleans()),
            )
        if data.draw(st.booleans()):
            answer.update(failed=True, msg="A fault")
        return answer

    rack = Rack(store, lie)
    rack.play()
    for (tray, phase), plan in rack.plans.items():
        if tray != liar:
            assert not plan.get("restart_clique"), phase
            # Another phase writes no record.
            assert plan["generation"] == (7 if phase == "stop_and_write" else 0), phase
    for (tray, phase), result in rack.results.items():
        if tray != liar:
            assert not result.get("failed"), (phase, result)
            assert not result.get("blocked"), (phase, result)
            assert {entry.get("tray") for entry in result["findings"]} <= {liar}, (phase, result)
    assert {phase for tray, phase in rack.results if tray != liar} >= {"inspect", "verdict"}


def test_the_end_of_each_phase_lies_above_its_waits() -> None:
    for wait, limit in (("ready_wait", 3600), ("start_wait", 3600), ("ctl_timeout", 600)):
        options = {"ctl_timeout": 10.0, "ready_wait": 60.0, "start_wait": 15.0, "manage_package": True, wait: limit}
        options = {f"imex_{name}": value for name, value in options.items()}
        ends = {phase: phases.seconds(phase, options) for phase in ("prepare", "stop_and_write", "start", "wait")}
        assert ends["wait"] >= options["imex_ready_wait"] + 2 * options["imex_ctl_timeout"] + 60
        assert ends["start"] >= options["imex_start_wait"] + 2 * options["imex_ctl_timeout"] + 60
        assert ends["prepare"] >= packages.INSTALL_SECONDS + 2 * options["imex_ctl_timeout"] + 60
        assert ends["stop_and_write"] >= 4 * packages.INSTALL_SECONDS + 3 * packages.STOP_SECONDS
