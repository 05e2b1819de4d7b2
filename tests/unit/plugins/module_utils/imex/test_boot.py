# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils.imex import boot, formats
from hypothesis import given
from hypothesis import strategies as st

TEXT = formats.render_nodes(["127.0.0.1", "127.0.0.2", "127.0.0.3"])
SHA = formats.digest(TEXT)


def record(generation: int = 4, sha256: str = SHA, clique: str = "r01") -> dict[str, Any]:
    return {"clique": clique, "generation": generation, "sha256": sha256, "owner": "domain"}


@pytest.mark.parametrize(
    ("answers", "members", "decision"),
    [
        ({}, 1, "start"),
        ({}, 4, "wait"),
        ({"b": record()}, 2, "start"),
        ({"b": record(), "c": record()}, 4, "start"),
        ({"b": record(), "c": record(5)}, 4, "contested"),
        ({"b": record(), "c": record(5), "d": record(6)}, 4, "stale"),
        ({"b": record(5)}, 2, "stale"),
        ({"b": record(4, "other")}, 4, "contested"),
        ({"b": record(1 << 40)}, 4, "wait"),
        ({"b": record(4, "other"), "c": record(4, "other")}, 4, "stale"),
        ({"b": record(9, "other", "r02")}, 2, "uncertain"),
        ({"b": record(9, "other", "r02"), "c": record()}, 4, "uncertain"),
        # The clique was renamed while the tray was off.
        ({"b": record(1, clique="r02")}, 2, "start"),
        ({"b": record(1, clique="r02"), "c": record(1, clique="r02")}, 4, "start"),
        # A member that answers without a clique.
        ({"b": {"generation": 4}}, 2, "uncertain"),
        ({"b": {}, "c": {"clique": "r01"}, "d": {"clique": "r01", "generation": True}}, 4, "wait"),
    ],
)
def test_the_records_of_peers_decide_the_start(answers: dict[str, Any], members: int, decision: str) -> None:
    assert boot.decide(record(), answers, members)[0] == decision


@given(st.lists(st.integers(0, 3), min_size=2, max_size=9))
def test_only_trays_with_the_newest_list_start(generations: list[int]) -> None:
    """For any trays that were off during any changes of which two trays know the last; one alone is not trusted."""
    generations = [*generations, max(generations)]
    records = {f"t{number}": record(generation, f"list {generation}") for number, generation in enumerate(generations)}
    started = {
        name
        for name, own in records.items()
        if boot.decide(own, {k: v for k, v in records.items() if k != name}, len(records))[0] == "start"
    }
    assert {records[name]["sha256"] for name in started} <= {f"list {max(generations)}"}


# The whole check, with members on real sockets of the loopback network.


@contextlib.contextmanager
def members(**answers: Any) -> Iterator[int]:
    """Serve answers on one port, which is yielded. ``answers``: last number of the address -> record."""
    with contextlib.ExitStack() as stack:
        port = 0
        for number, answer in answers.items():
            listener = stack.enter_context(socket.create_server((f"127.0.0.{number[1:]}", port)))
            port = listener.getsockname()[1]
            listener.settimeout(10)

            def serve(listener: socket.socket = listener, answer: Any = answer) -> None:
                with contextlib.suppress(OSError):
                    while True:
                        link = listener.accept()[0]
                        with link:
                            link.sendall(answer if isinstance(answer, bytes) else json.dumps(answer).encode())

            server = threading.Thread(target=serve, daemon=True)
            server.start()
            # A child is forked by later tests, and must not be by a process with threads.
            stack.callback(server.join)
            stack.callback(listener.shutdown, socket.SHUT_RDWR)
        yield port


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    # All of 127.0.0.0/8 is this host; the first line is the tray's own here.
    monkeypatch.setattr(boot, "is_local", lambda entry: entry == "127.0.0.1")
    monkeypatch.setattr(boot, "_PAUSE", 0.05)
    # A busy machine may take long for an answer.
    monkeypatch.setattr(boot, "_ROUND", 60.0)

    def run(port: int, own: Any = None, text: str = TEXT, approved: str = "", **more: Any) -> int:
        if isinstance(own, dict):
            own = {**own, "nodes": str(tmp_path / "nodes")}
        for name, content in (("record", own), ("nodes", text), ("approved", approved)):
            if content is not None:
                (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))
        paths = (str(tmp_path / name) for name in ("record", "approved"))
        return boot.check(*paths, port, more.pop("wait", 0.2), **more)

    return run


APPROVED = f"4 {SHA}\n"
FOUR = record(sha256=formats.digest(f"{TEXT}127.0.0.4\n"))
IN_FOUR: dict[str, Any] = {"own": FOUR, "text": f"{TEXT}127.0.0.4\n"}
ALONE: dict[str, Any] = {"own": record(sha256=formats.digest("127.0.0.1\n")), "text": "127.0.0.1\n"}


@pytest.mark.parametrize(
    ("answers", "more", "status", "words"),
    [
        # An approved start does not wait, but stops for a newer list.
        ({"_2": b""}, {"approved": APPROVED, "wait": 60}, 0, ""),
        *(
            ({"_2": record(5), "_3": record(5)}, more, boot.STAY_OFF, "127.0.0.2 has generation 5 of the list of cliq")
            for more in ({}, {"approved": APPROVED})
        ),
        ({"_2": record(5)}, {"approved": APPROVED}, boot.TRY_AGAIN, "127.0.0.2 has generation 5"),
        ({"_2": b""}, {"approved": f"3 {SHA}\n"}, boot.TRY_AGAIN, "none of 2 other members confirmed within 0.2 s"),
        # One that does not answer, or lies, keeps no tray off that a majority confirms.
        *(
            ({"_2": other, "_3": record()}, {}, 0, "")
            for other in (record(), b"", record(1 << 30), record(4, "another"), record(9, clique="r02"))
        ),
        # One that confirms is enough in the end, but not where another has moved to another clique.
        ({"_2": FOUR}, IN_FOUR, 0, ""),
        ({"_2": FOUR, "_3": record(1, clique="r02c")}, IN_FOUR, boot.TRY_AGAIN, "127.0.0.3 (clique r02c)"),
        ({"_2": b""}, ALONE, 0, ""),
        ({"_2": record()}, {"text": IN_FOUR["text"]}, boot.STAY_OFF, "is not the node list that the role imex wrote"),
        ({"_2": record()}, {"own": "no record"}, boot.STAY_OFF, "is not a record of a node list"),
    ],
)
def test_the_check_at_boot(
    check: Any, capsys: Any, answers: Any, more: dict[str, Any], status: int, words: str
) -> None:
    with members(**answers) as port:
        assert check(port, **{"own": record(), **more}) == status
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        *(b"null", b"[]", b"{}"),
        b"\xff" * 100,
        b"[" * 60_000,
        b"9" * 60_000,
        *(
            json.dumps({**record(), **wrong}).encode()
            for wrong in (
                *({"generation": value} for value in (1 << 70, 1e300, True, -1)),
                *({"clique": value} for value in (1, "r01\x1b[2J")),
                {"sha256": "x" * 10_000},
            )
        ),
    ],
    ids=lambda answer: repr(answer[:20]),
)
def test_an_invalid_record_confirms_nothing(check: Any, answer: bytes) -> None:
    with members(_2=answer) as port:
        assert check(port, record()) == boot.TRY_AGAIN
        assert check(port, record(), unconfirmed="start") == 0


def test_only_the_known_fields_of_a_record_are_read(check: Any) -> None:
    with members(_2={**record(), "more": "x" * 5000}) as port:
        answer = record()
        del answer["owner"]
        assert boot.query(["127.0.0.2"], port) == {"127.0.0.2": answer}


def test_an_answer_that_takes_longer_than_a_round_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member may send a byte at a time: each read is in time, all together are not. A clock runs 0.2 s a reading."""
    clock = itertools.count()
    with members(_2=b" " * 50_000 + json.dumps(record()).encode()) as port:
        with monkeypatch.context() as patient:
            patient.setattr(boot, "_ROUND", 60.0)
            assert boot.query(["127.0.0.2"], port)
        monkeypatch.setattr(boot, "time", SimpleNamespace(monotonic=lambda: next(clock) / 5))
        assert boot.query(["127.0.0.2"], port) == {}


def test_an_address_is_local_only_where_it_can_be_bound() -> None:
    assert boot.is_local("127.0.0.1")
    assert not boot.is_local("198.51.100.250")
    assert not boot.is_local("no such name.invalid")
