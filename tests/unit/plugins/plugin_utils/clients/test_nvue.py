# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client of NVLink switches against the lab's switches, and against servers that answer something else."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils import actions
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import http, nvue
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import SourceError
from ansible_collections.rackscale.nvlink.tests.lab.nvlab import switch as standin
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .http_servers import Authority, Reply, Request, Responder, served
from .switch_domain import ONE, TWO, Switches, switches

PARTITION = {
    "name": "Default Partition",
    "health": "healthy",
    "resiliency-mode": "full_bandwidth",
    "mcast-limit": 1024,
    "num-gpus": 1,
    "locations": {"1.10.1.1": {"uuid": "0x1"}},
}
APPS = {"nmx-controller": {"status": "ok", "addition-info": "CONTROL_PLANE_STATE_CONFIGURED", "reason": ""}}


@pytest.fixture
def rack(tmp_path: Path) -> Iterator[Switches]:
    with switches(tmp_path / "r01") as running:
        yield running


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvue, "POLL", 0.05)
    monkeypatch.setattr(http, "PAUSE", 0.01)


def act(rack: Switches, path: str, verb: str, seconds: float = 10, **parameters: Any) -> nvue.Outcome:
    return rack.client().act(path, verb, parameters, seconds)


def members(rack: Switches) -> dict[int, int]:
    """Partition -> its number of GPUs."""
    return {row.id: len(row.gpus) for row in rack.report().partitions}


def until(rack: Switches, expected: dict[int, int]) -> None:
    ends = time.monotonic() + 10
    while members(rack) != expected:
        assert time.monotonic() < ends, members(rack)
        time.sleep(0.05)


def test_the_primary_lists_partitions_and_the_others_run_no_controller(rack: Switches) -> None:
    first, second = rack.report(ONE), rack.report(TWO)
    assert (first.problem, second.problem) == ("", "")
    assert first.controller == nvue.Controller("CONFIGURED", "ok", "")
    assert first.controller.is_primary
    assert (second.controller, second.partitions) == (nvue.Controller(), ())
    [row] = first.partitions
    assert (row.id, row.health, row.mode, row.multicast_limit, len(row.gpus)) == (
        32766,
        "healthy",
        "full_bandwidth",
        1024,
        16,
    )
    assert first.days_left
    assert 364 < first.days_left < 365


def test_a_gpu_moves_from_one_partition_to_another_and_reports_it(rack: Switches) -> None:
    location = rack.report().partitions[0].gpus[0].location
    made = act(rack, "/sdn/partition/1", nvue.CREATE, name="r01a", **{"mcast-limit": 16})
    assert made == nvue.Outcome(nvue.DONE)
    gpu = f"/sdn/partition/1/location/{location}"
    # It is in the default partition.
    assert act(rack, gpu, nvue.UPDATE) == (nvue.REFUSED, f"failed to update partition 1 location {location}")
    assert act(rack, gpu.replace("/1/", "/32766/", 1), nvue.RESTORE).state == nvue.DONE
    assert act(rack, gpu, nvue.UPDATE).state == nvue.DONE
    until(rack, {1: 1, 32766: 15})
    until_joined = time.monotonic() + 5
    while len(rack.driven) < 2 and time.monotonic() < until_joined:
        time.sleep(0.05)
    assert [rows.get("gpu0.state") or rows.get("gpu1.state") for _tray, rows in rack.driven] == [
        "in_progress",
        "completed",
    ]
    assert "1" in rack.driven[1][1].values()
    assert act(rack, "/sdn/partition/7", nvue.DELETE) == (nvue.REFUSED, "failed to delete partition 7")


def test_the_state_survives_a_restart(rack: Switches) -> None:
    assert act(rack, "/sdn/partition/1", nvue.CREATE, name="r01a").state == nvue.DONE
    until(rack, {1: 0, 32766: 16})
    rack.stop()
    again = Switches(rack.folder, {})
    try:
        assert members(again) == {1: 0, 32766: 16}
    finally:
        again.stop()


def test_a_limit_that_is_not_allowed_is_refused_with_the_reason_of_the_switch(rack: Switches) -> None:
    outcome = act(rack, "/sdn/partition/1", nvue.CREATE, name="a", **{"mcast-limit": 7})
    assert outcome == (nvue.REFUSED, "Valid range for mcast-limit is 0 - 1024")


def test_the_third_gpu_is_refused(rack: Switches) -> None:
    rack.fault(refuse="3")
    locations = [gpu.location for gpu in rack.report().partitions[0].gpus[:3]]
    assert act(rack, "/sdn/partition/1", nvue.CREATE, name="a").state == nvue.DONE
    found = []
    for location in locations:
        act(rack, f"/sdn/partition/32766/location/{location}", nvue.RESTORE)
        found.append(act(rack, f"/sdn/partition/1/location/{location}", nvue.UPDATE).state)
    assert found == [nvue.DONE, nvue.DONE, nvue.REFUSED]


def test_an_action_that_completes_is_listed_later(rack: Switches) -> None:
    rack.fault(lag="0.6")
    assert act(rack, "/sdn/partition/1", nvue.CREATE, name="a").state == nvue.DONE
    assert members(rack) == {32766: 16}
    until(rack, {1: 0, 32766: 16})


def test_a_connection_lost_after_the_request_is_unknown_and_is_not_sent_again(rack: Switches) -> None:
    rack.fault(delay="1.5")
    client = rack.client(timeout=0.5)
    outcome = client.act("/sdn/partition/1", nvue.CREATE, {"name": "a"}, 10)
    assert outcome.state == nvue.UNKNOWN
    assert "gave no complete answer in 0.5 seconds" in outcome.reason
    assert re.fullmatch(r"POST https?://[^/]*/nvue_v1/sdn/partition/1 \(no answer\)", actions.done()[-1])
    # It completed all the same, once.
    until(rack, {1: 0, 32766: 16})


def test_a_reboot_during_an_action_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with switches(tmp_path / "r01", seconds=30) as rack:
        original = rack.domain.answer

        def reboot_then(*given: Any) -> Any:
            answer = original(*given)
            if given[1] == "POST":
                rack.fault(reboot="0.3")
            return answer

        monkeypatch.setattr(rack.domain, "answer", reboot_then)
        outcome = act(rack, "/sdn/partition/1", nvue.CREATE, 5, name="a")
        assert outcome.state == nvue.UNKNOWN
        assert "does not exist (HTTP 404)" in outcome.reason


def test_an_action_that_does_not_end_is_unknown(tmp_path: Path) -> None:
    with switches(tmp_path / "r01", seconds=30) as rack:
        outcome = act(rack, "/sdn/partition/1", nvue.CREATE, 0.5, name="a")
    assert outcome == (nvue.UNKNOWN, "r01sw1: action 1 has not ended in 0.5 seconds")


def test_a_switch_without_the_controller_refuses_a_change(rack: Switches) -> None:
    outcome = rack.client(TWO).act("/sdn/partition/1", nvue.CREATE, {"name": "a"}, 10)
    assert outcome == (nvue.REFUSED, "cluster is not enabled")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"login": "wrong"}, "rejects the credentials (HTTP 401)"),
        ({"answer": "null"}, "answers null"),
        ({"answer": "other"}, f"in a form that this collection does not know (no mapping, NVOS {standin.RELEASE})"),
        ({"answer": "none"}, "cannot be reached"),
        ({"certificate": "expired"}, "certificate has expired); renew it"),
    ],
    ids=["login", "null", "other_release", "silent", "expired"],
)
def test_a_switch_that_cannot_be_read_is_one_sentence(rack: Switches, fault: dict[str, str], words: str) -> None:
    rack.fault(**fault)
    report = rack.report()
    assert words in report.problem
    assert report.problem.startswith("r01sw1: https://127.0.0.1:")
    assert report.problem.count(";") == 1
    assert "\n" not in report.problem
    assert standin.PASSWORD not in report.problem
    assert report.partitions == ()


def test_an_answer_with_the_configuration_is_not_taken_for_no_partition(rack: Switches) -> None:
    rack.fault(answer="configuration")
    report = rack.report()
    # The applications are not there either: no controller, so nothing is said of partitions.
    assert (report.problem, report.controller, report.partitions) == ("", nvue.Controller(), ())


def test_a_certificate_with_another_name_needs_server_name(rack: Switches) -> None:
    assert rack.report(server_name="nvlink-switch").problem == ""
    assert "Hostname mismatch" in rack.report(server_name="sw9.example.com").problem


def test_a_change_with_a_wrong_password_is_an_error_and_not_unknown(rack: Switches) -> None:
    rack.fault(login="wrong")
    with pytest.raises(http.HttpError, match="rejects the credentials"):
        act(rack, "/sdn/partition/1", nvue.CREATE, name="a")


def test_options_that_a_person_wrote_fail_loudly() -> None:
    with pytest.raises(SourceError, match="sw1: url is not a valid http"):
        nvue.switch("sw1", {"url": "https://a:b@host"})
    with pytest.raises(SourceError, match="sw1: username needs a password"):
        nvue.switch("sw1", {"url": "https://host", "username": "x"})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("0x1F", "0x000000000000001f"),
        ("31", "0x000000000000001f"),
        (31, "0x000000000000001f"),
        ("GPU-3D1C0000-0000-0000-0000-000000000000", "gpu-3d1c0000-0000-0000-0000-000000000000"),
        (None, ""),
        (True, ""),
        ("x" * 99, ""),
        ("0031", "0x000000000000001f"),
    ],
)
def test_one_form_of_the_uid(given: Any, expected: str) -> None:
    assert nvue.uid(given) == expected


# --------------------------------------------------------------------------------------------------- hostile switches


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def read_of(respond: Responder, authority: Authority, **more: Any) -> nvue.Report:
    with served(respond, authority.server_context()) as server:
        options = {"url": server.url, "username": "u", "password": "secret-word", "ca_file": str(authority.ca_file)}
        report = nvue.switch("sw1", {**options, "timeout": 0.5, "deadline": 2, **more}).read()
    assert report.problem.startswith("sw1: https://127.0.0.1:")
    assert report.problem.count("\n") == 0
    assert len(report.problem) < 500
    assert "secret-word" not in report.problem
    return report


def of_partitions(value: Any) -> Responder:
    """A switch whose answers are well-formed but for one partition."""

    def respond(request: Request, reply: Reply) -> None:
        path = request.target.partition("?")[0]
        if path.endswith("/cluster/apps"):
            reply.json(APPS)
        elif path.endswith("/sdn/partition"):
            reply.json({"32766": {}})
        else:
            reply.json(value)

    return respond


def slow(_request: Request, reply: Reply) -> None:
    reply.raw.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n")
    while reply.pause(0.05):
        reply.raw.write(b" ")
        reply.raw.flush()


def hostile(kind: str) -> Responder:
    kinds: dict[str, Responder] = {
        "huge": lambda _request, reply: reply.send(200, b"[" + b"0," * 3_000_000 + b"0]"),
        "many_values": lambda _request, reply: reply.send(200, b"[" + b"0," * 1_000_000 + b"0]"),
        "slow": slow,
        "redirect": lambda _request, reply: reply.send(302, Location="https://other.example.com/nvue_v1"),
        "text": lambda _request, reply: reply.send(200, b"<html>"),
        "list": lambda _request, reply: reply.json([1]),
        "nothing": lambda _request, reply: reply.raw.write(b""),
        "deep": lambda _request, reply: reply.send(200, b"[" * 100_000),
        "error": lambda _request, reply: reply.json({"detail": "x" * 9999}, 500),
        "partitions": lambda request, reply: reply.json(
            APPS if request.target.startswith("/nvue_v1/cluster/apps") else {str(key): {} for key in range(2000)}
        ),
        "id": lambda request, reply: reply.json(
            APPS if request.target.startswith("/nvue_v1/cluster/apps") else {"../../../system": PARTITION}
        ),
        "members": of_partitions({**PARTITION, "locations": {"1.1.1.1\n": {}}}),
        "health": of_partitions({**PARTITION, "health": ["healthy"]}),
        "uuids": of_partitions({**PARTITION, "uuids": 7}),
        "gpus": of_partitions({**PARTITION, "locations": {f"1.1.1.{number}": {} for number in range(5000)}}),
        "unlisted": of_partitions({**PARTITION, "locations": {}}),
    }
    return kinds[kind]


KINDS = ["huge", "many_values", "slow", "redirect", "text", "list", "nothing", "deep", "error", "partitions", "id"]


@pytest.mark.parametrize("kind", [*KINDS, "members", "health", "uuids", "gpus", "unlisted"])
def test_a_hostile_switch_ends_in_one_sentence_within_its_time(kind: str, authority: Authority) -> None:
    began = time.monotonic()
    report = read_of(hostile(kind), authority)
    assert time.monotonic() - began < 4
    assert report.partitions == ()


def test_a_redirect_does_not_get_the_password(authority: Authority) -> None:
    requests: list[Request] = []

    def other(request: Request, reply: Reply) -> None:
        requests.append(request)
        reply.json({})

    with served(other) as target:
        report = read_of(lambda _request, reply: reply.send(307, Location=f"{target.url}/x"), authority)
    assert "redirects to http://127.0.0.1" in report.problem
    assert requests == []


@pytest.mark.parametrize(
    "answer",
    [
        lambda reply: reply.raw.close(),
        lambda reply: reply.json({"title": "x", "detail": "the worker has ended"}, 500),
        lambda reply: reply.json({"detail": "unavailable"}, 503),
        lambda reply: reply.send(200, b"<html>"),
        lambda reply: reply.json({"state": "accepted"}, 201),
        lambda reply: reply.send(204, b""),
        lambda reply: reply.json("7"),
        lambda reply: reply.json({"number": 7}),
    ],
    ids=["closed", "500", "503", "html", "201", "204", "text", "mapping"],
)
def test_a_change_whose_answer_is_unusable_is_unknown_and_sent_once(
    answer: Callable[[Reply], object], authority: Authority
) -> None:
    with served(lambda _request, reply: answer(reply), authority.server_context()) as server:
        options = {"url": server.url, "username": "u", "password": "secret-word", "ca_file": str(authority.ca_file)}
        outcome = nvue.switch("sw1", options).act("/sdn/partition/1", nvue.CREATE, {"name": "a"}, 1)
        assert (outcome.state, bool(outcome.reason)) == (nvue.UNKNOWN, True)
        assert [request.method for request in server.requests] == ["POST"]
        assert json.loads(server.requests[0].body) == {"@create": {"state": "start", "parameters": {"name": "a"}}}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    value=VALUES
    | st.dictionaries(st.sampled_from([*PARTITION, "uuids"]), VALUES, max_size=7).map(lambda row: {**PARTITION, **row})
)
def test_any_json_of_a_partition_is_read_or_refused(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"/sdn/partition": {"1": {}}, "/sdn/partition/1": value, "/system": {}}
    made = nvue.switch("sw1", {"url": "https://switch"})

    def get(_client: http.Client, url: str, *_more: Any) -> http.Answer:
        path = url.partition("?")[0].removeprefix("https://switch/nvue_v1")
        return http.Answer(url, 200, {}, bytearray(json.dumps(answers[path]).encode()))

    monkeypatch.setattr(http.Client, "get", get)
    problem, rows = "", ()
    try:
        rows = made.partitions()
    except http.HttpError as error:
        problem = str(error)
    assert bool(problem) is not bool(rows)
    assert problem.count("\n") == 0
    assert [(row.id, row.health) for row in rows] == [(1, row.health.lower()) for row in rows]
