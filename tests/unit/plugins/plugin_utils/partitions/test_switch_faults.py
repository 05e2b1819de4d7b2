# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Partition changes against the lab's switches over HTTPS with each of their faults, and against hostile switches."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import http, nvue
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions import switching
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_journal import Journal
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.partitions.partition_plan import Plan
from ansible_collections.rackscale.nvlink.tests.lab.nvlab import switch as standin
from ansible_collections.rackscale.nvlink.tests.lab.nvml import fleets

from ..clients.http_servers import Authority, Reply, Request, Responder, served
from ..clients.switch_domain import ONE, TWO, Switches
from .memory_switch import DEFAULT, NOW, SHA, TRAYS, Killed, Stopped, plan_of

HALF = {**dict.fromkeys(TRAYS[:2], 1), **dict.fromkeys(TRAYS[2:], DEFAULT)}
FACTS = fleets.fleet(racks=1, trays_per_rack=4, gpus_per_tray=1)
PLACES = {
    tray: (gpu["location"], nvue.uid(gpu["uuid"])) for tray in TRAYS for gpu in standin.gpus_of(tray, FACTS[tray])
}
BEFORE = {DEFAULT: set(TRAYS)}
AFTER = {1: set(TRAYS[:2]), DEFAULT: set(TRAYS[2:])}


def plan() -> Plan:
    """r01t[01-02] into the new partition 1: two removals, a creation and an addition."""
    made = plan_of(dict.fromkeys(TRAYS, DEFAULT), HALF)
    return {**made, "gpus": {tray: [list(PLACES[tray])] for tray in made["moved"]}}


class Domain:
    """The switches of a rack with one GPU a tray, and the journal of a change."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.switches = Switches(folder / "r01", FACTS, **more)
        self.path, self.said = folder / "fabric.partition-r01.jsonl", list[str]()
        self.journal.open(SHA, plan())

    @property
    def journal(self) -> Journal:
        return Journal(str(self.path), "r01", lambda: NOW)

    def run(self, wait: float = 20, name: str = ONE, **more: Any) -> nvue.Outcome:
        return switching.converge(
            self.switches.client(name, **more), self.journal.plan or plan(), self.journal, wait, self.said.append
        )

    @property
    def members(self) -> dict[int, set[str]]:
        """Partition -> the trays of its GPUs, as they are and not as they are listed."""
        rows = json.loads((self.switches.folder / "state.json").read_text())["partitions"]
        trays = {location: tray for tray, (location, _uid) in PLACES.items()}
        return {int(key): {trays[location] for location in row["locations"]} for key, row in rows.items()}


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvue, "POLL", 0.05)
    monkeypatch.setattr(http, "PAUSE", 0.01)


@pytest.fixture
def rack(tmp_path: Path) -> Iterator[Domain]:
    made = Domain(tmp_path)
    yield made
    made.switches.stop()


def test_gpus_move_and_report_their_new_clique(rack: Domain) -> None:
    assert rack.run() == (nvue.DONE, "")
    assert rack.members == AFTER
    reported = [dict(rows).get("gpu0.clique") for tray, rows in rack.switches.driven if tray == TRAYS[0]]
    assert reported == [None, "1"]
    listed = {row.id: row for row in rack.switches.report().partitions}
    assert (listed[1].name, listed[1].mode, listed[1].multicast_limit) == ("p1", "full_bandwidth", 16)
    rack.journal.turn_back()
    assert rack.run() == (nvue.DONE, "")
    assert rack.members == BEFORE


@pytest.mark.parametrize("line", range(8))
def test_a_run_that_is_killed_is_continued(rack: Domain, line: int) -> None:
    """After the line that begins an operation it was not sent; before the line that ends it, it was done."""
    journal = Stopped(rack.path, line, is_written=line % 2 == 0)
    with pytest.raises(Killed):
        switching.converge(rack.switches.client(), plan(), journal, 20, rack.said.append)
    end = rack.run(wait=1)
    if line == 4:
        # It may have been sent: only a person may create it once more.
        assert end.state == nvue.UNKNOWN
        end = rack.run(wait=1)
    assert (end, rack.members) == ((nvue.DONE, ""), AFTER)


def test_the_refusal_of_a_gpu_is_put_back(rack: Domain) -> None:
    rack.switches.fault(refuse="1")
    end = rack.run()
    location = PLACES[TRAYS[1]][0]
    assert end == (
        nvue.DONE,
        f"Switch r01sw1 of NVLink domain r01 refuses the addition of the GPU {location} of r01t02 to NVLink partition 1"
        f" (failed to update partition 1 location {location}); remove the cause, then run partition again. All GPUs are"
        " in the partitions of before",
    )
    assert rack.members == BEFORE
    assert rack.journal.is_back


def test_what_completes_and_is_listed_later_is_waited_for(rack: Domain) -> None:
    rack.switches.fault(lag="0.4")
    assert rack.run() == (nvue.DONE, "")
    assert rack.members == AFTER


def test_what_is_not_listed_in_time_is_unknown_and_continued(rack: Domain) -> None:
    rack.switches.fault(lag="3600")
    end = rack.run(wait=0.3)
    assert end.state == nvue.UNKNOWN
    assert "Switch r01sw1 of NVLink domain r01 may or may not have done the removal of the GPU " in end.reason
    assert sum(line["state"] == "begin" for line in rack.journal.lines) == 1
    # It is sent again, and refused, since the switch has done it.
    rack.switches.fault(lag="")
    assert rack.run(wait=2) == (nvue.DONE, "")
    assert rack.members == AFTER


def test_what_times_out_and_completes_later_is_sent_once(rack: Domain) -> None:
    rack.switches.fault(delay="0.6")
    assert rack.run(timeout=0.3) == (nvue.DONE, "")
    assert rack.members == AFTER
    actions = json.loads((rack.switches.folder / "state.json").read_text())["actions"]
    assert [row["verb"] for row in actions.values()] == ["@restore", "@restore", "@create", "@update"]


@pytest.mark.parametrize("verb", ["@restore", "@create", "@update"])
def test_an_action_that_a_reboot_loses_is_unknown_and_done_by_the_next_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    rack = Domain(tmp_path, seconds=0.3)
    original, rebooted = rack.switches.domain.answer, []

    def reboot_then(*given: Any) -> Any:
        answer = original(*given)
        if given[1] == "POST" and verb.encode() in given[4] and not rebooted:
            rebooted.append(1)
            rack.switches.fault(reboot="0.2")
        return answer

    monkeypatch.setattr(rack.switches.domain, "answer", reboot_then)
    try:
        end = rack.run(wait=0.8)
        assert end.state == nvue.UNKNOWN
        assert "In no NVLink partition" in end.reason or verb == "@restore"
        assert rack.run(wait=0.8) == (nvue.DONE, "")
        assert rack.members == AFTER
    finally:
        rack.switches.stop()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"login": "wrong"}, "rejects the credentials (HTTP 401)"),
        ({"answer": "null"}, "answers null"),
        ({"answer": "other"}, f"in a form that this collection does not know (no mapping, NVOS {standin.RELEASE})"),
        ({"answer": "none"}, "cannot be reached"),
        ({"answer": "configuration"}, "its controller is not ok (no controller)"),
        ({"certificate": "expired"}, "certificate has expired); renew it"),
        ({"reason": "DB_CORRUPTED"}, "its controller is not ok (CONFIGURED, status not ok, DB_CORRUPTED)"),
        ({"controller": "STANDBY"}, "its controller is not ok (STANDBY, status ok)"),
        ({"reboot": "60"}, "cannot be reached"),
    ],
    ids=["login", "null", "other", "silent", "configuration", "expired", "corrupted", "standby", "reboot"],
)
def test_a_switch_that_cannot_be_read_gets_no_action(rack: Domain, fault: dict[str, str], words: str) -> None:
    rack.switches.fault(**fault)
    end = rack.run(wait=0.2)
    assert end.state == nvue.UNKNOWN
    assert words in end.reason
    assert end.reason.endswith(". Nothing was sent")
    assert standin.PASSWORD not in end.reason
    assert rack.members == BEFORE
    rack.switches.fault(**dict.fromkeys(fault, ""))
    assert rack.run() == (nvue.DONE, "")


def test_a_switch_that_does_not_run_the_controller_gets_no_action(rack: Domain) -> None:
    assert "its controller is not ok (no controller)" in rack.run(wait=0.2, name=TWO).reason
    assert rack.members == BEFORE


def test_swapped_uuids_of_two_gpus_stop_the_change(rack: Domain) -> None:
    rack.switches.fault(swap=f"{PLACES[TRAYS[0]][0]},{PLACES[TRAYS[3]][0]}")
    end = rack.run()
    assert end.state == switching.FOREIGN
    first, other = (PLACES[tray] for tray in (TRAYS[0], TRAYS[3]))
    assert f"lists GPUs otherwise than the plan: r01t01: {first[1]} at {other[0]}, its driver has" in end.reason
    assert rack.members == BEFORE


def test_a_gpu_that_fell_out_of_its_partition_is_moved_without_a_removal(rack: Domain) -> None:
    rack.switches.fault(out=PLACES[TRAYS[0]][0])
    rack.switches.domain.tick()
    rack.switches.fault(out="")
    assert rack.run() == (nvue.DONE, "")
    assert rack.members == AFTER


def test_a_degraded_partition_is_no_reason_to_stop(rack: Domain) -> None:
    rack.switches.fault(health="DEGRADED", mode="adaptive_bandwidth")
    assert rack.run() == (nvue.DONE, "")


def test_a_password_that_is_changed_in_the_middle_stops_and_is_continued(rack: Domain) -> None:
    def change_password(text: str) -> None:
        if text.startswith("3 of 4"):
            rack.switches.fault(login="changed")

    end = switching.converge(rack.switches.client(), rack.journal.plan or plan(), rack.journal, 5, change_password)
    assert end.state == nvue.UNKNOWN
    assert "rejects the credentials" in end.reason
    assert end.reason.endswith(
        f"Not sent: the creation of NVLink partition 1 with the GPU {PLACES[TRAYS[0]][0]} of r01t01. In no NVLink"
        " partition: 2 GPUs of 2 trays (r01t[01-02]), which must stay drained"
    )
    rack.switches.fault(login="")
    assert rack.run() == (nvue.DONE, "")


# --------------------------------------------------------------------------------------------------- hostile switches


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def hostile(kind: str) -> Callable[[Reply], object]:
    kinds: dict[str, Callable[[Reply], object]] = {
        "refusal": lambda reply: reply.json({"detail": "{{ lookup('pipe', 'id') }}\n" + "x" * 9999}, 409),
        "redirect": lambda reply: reply.send(307, Location="https://other.example.com/nvue_v1"),
        "text": lambda reply: reply.send(200, b"<html>"),
        "huge": lambda reply: reply.send(200, b"[" + b"0," * 3_000_000 + b"0]"),
        "number": lambda reply: reply.json("../../system"),
        "closed": lambda reply: reply.raw.close(),
    }
    return kinds[kind]


@pytest.mark.parametrize("kind", ["refusal", "redirect", "text", "huge", "number", "closed"])
def test_a_hostile_answer_to_an_action_ends_in_one_sentence(kind: str, tmp_path: Path, authority: Authority) -> None:
    """It lists the partitions well, and answers the first action with something else."""
    listed = {location: {"uuid": number} for location, number in PLACES.values()}
    row = {"name": "Default", "health": "healthy", "resiliency-mode": "x", "mcast-limit": 0, "locations": listed}

    def respond(request: Request, reply: Reply) -> None:
        path = request.target.partition("?")[0].removeprefix("/nvue_v1")
        documents: dict[str, Any] = {
            "/cluster/apps": {"a": {"addition-info": "CONTROL_PLANE_STATE_CONFIGURED", "status": "ok"}},
            "/sdn/partition": {str(DEFAULT): {}},
            f"/sdn/partition/{DEFAULT}": row,
        }
        if request.method == "POST":
            hostile(kind)(reply)
        else:
            reply.json(documents[path])

    end, requests = against(respond, tmp_path, authority)
    assert end.state == (nvue.DONE if kind == "refusal" else nvue.UNKNOWN)
    assert ("All GPUs are in the partitions of before" in end.reason) == (kind == "refusal")
    posts = [request.target for request in requests if request.method == "POST"]
    assert posts == [f"/nvue_v1/sdn/partition/{DEFAULT}/location/{PLACES[TRAYS[0]][0]}"]


def test_a_switch_that_refuses_everything_gets_each_action_once(tmp_path: Path, authority: Authority) -> None:
    """It lists each GPU in no partition, so that nothing but additions is due, also to put back."""

    def respond(request: Request, reply: Reply) -> None:
        path = request.target.partition("?")[0]
        row = {"name": "Default", "health": "healthy", "resiliency-mode": "x", "mcast-limit": 0}
        apps = {"a": {"addition-info": "CONTROL_PLANE_STATE_CONFIGURED", "status": "ok"}}
        if request.method == "POST":
            reply.json({"detail": "no"}, 409)
        elif path.endswith("/cluster/apps"):
            reply.json(apps)
        else:
            reply.json({str(DEFAULT): {}} if path.endswith("/sdn/partition") else row)

    end, requests = against(respond, tmp_path, authority)
    assert end.state == nvue.REFUSED
    assert "In no NVLink partition: 2 GPUs of 2 trays" in end.reason
    assert [request.target.split("/")[4] for request in requests if request.method == "POST"] == ["1", str(DEFAULT)]


def against(respond: Responder, folder: Path, authority: Authority) -> tuple[nvue.Outcome, list[Request]]:
    """The end of a change on a server, and the requests that it received."""
    journal = Journal(str(folder / "journal.jsonl"), "r01", lambda: NOW)
    journal.open(SHA, plan())
    with served(respond, authority.server_context()) as server:
        options = {"url": server.url, "username": "u", "password": "secret-word", "ca_file": str(authority.ca_file)}
        end = switching.converge(
            nvue.switch("sw1", {**options, "timeout": 1}), plan(), journal, 0.2, lambda _text: None
        )
    text = end.reason + (folder / "journal.jsonl").read_text()
    assert "{{" not in text
    assert "secret-word" not in text
    assert "\n" not in end.reason
    assert len(end.reason) < 1000
    return end, server.requests
