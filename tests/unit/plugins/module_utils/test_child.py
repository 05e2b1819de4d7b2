# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils import child


def _gone(pid: int) -> bool:
    """Whether a process has ended; a zombie that is not reaped yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    except FileNotFoundError:
        return True


def _wait_until_gone(pid: int) -> bool:
    for _attempt in range(600):
        if _gone(pid):
            return True
        time.sleep(0.1)
    return False


def test_output_environment_and_exit_code_of_a_program() -> None:
    result = child.run(
        ["sh", "-c", 'cat; echo "$WORD"; echo bad >&2; exit 3'],
        10,
        env={**os.environ, "WORD": "given"},
    )
    assert (result.rc, result.stdout, result.stderr) == (3, "given\n", "bad\n")
    assert (result.timed_out, result.survivor_pid, result.error) == (False, None, None)


@pytest.mark.parametrize(
    ("program", "why"), [("/nowhere/program", "No such file or directory"), ("/etc/passwd", "Permission denied")]
)
def test_a_program_that_cannot_be_started_is_an_error_of_the_result(program: str, why: str) -> None:
    result = child.run([program], 10)
    assert result.error == why
    assert not result.timed_out


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (child.Result(None, "half\n", "", timed_out=True), "no answer in time"),
        (child.Result(None, "", "", timed_out=True, survivor_pid=7), "no answer in time, process 7 cannot be killed"),
        (child.Result(127, "", "", error="Permission denied"), "Permission denied"),
        (child.Result(1, "", "usage\n it is refused \n\n"), "it is refused"),
        (child.Result(1, "printed\n", "usage"), "printed"),
        (child.Result(-9, "\n", ""), "it ended with -9"),
    ],
)
def test_a_failure_has_its_reason_in_a_clause(result: child.Result, reason: str) -> None:
    assert result.reason == reason


def test_a_system_that_refuses_files_in_memory_has_them_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_name: str, _flags: int) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "memfd_create", refused)
    assert child.run(["sh", "-c", "cat; echo given"], 10) == child.Result(0, "given\n", "")


@pytest.mark.parametrize(
    ("last", "timeout", "expected"),
    [("trap '' TERM; wait", 1.5, (None, True, "begun\n")), ("true", 30, (0, False, "begun\n"))],
    ids=["hangs", "ends"],
)
def test_what_a_program_started_ends_with_it_and_does_not_block_the_caller(
    tmp_path: Path, last: str, timeout: float, expected: tuple[Any, ...]
) -> None:
    pids = tmp_path / "pids"
    began = time.monotonic()
    result = child.run(["sh", "-c", f"sleep 60 & echo $! > {pids}; echo begun; {last}"], timeout)
    assert time.monotonic() - began < 30
    assert (result.rc, result.timed_out, result.stdout) == expected
    assert result.survivor_pid is None
    assert _wait_until_gone(int(pids.read_text()))


def test_a_child_that_survives_sigkill_is_reported_and_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in state D cannot be created on demand: here the kill is left out, which has the same effect."""
    monkeypatch.setattr(child, "_kill_group", lambda pid: None)
    monkeypatch.setattr(child, "GRACE", 0.2)
    began = time.monotonic()
    result = child.run(["sleep", "300"], 0.2)
    assert time.monotonic() - began < 30
    assert result.timed_out
    assert result.survivor_pid is not None
    os.kill(result.survivor_pid, signal.SIGKILL)
    os.waitpid(result.survivor_pid, 0)


def test_a_child_inherits_no_descriptor_of_its_caller() -> None:
    reader, writer = os.pipe()
    try:
        os.set_inheritable(writer, True)
        names = child.run(["sh", "-c", "for fd in /proc/self/fd/*; do readlink $fd; done"], 10).stdout
    finally:
        os.close(reader)
        os.close(writer)
    assert "pipe:" not in names
    assert "socket:" not in names


def test_signals_that_the_caller_ignores_are_not_ignored_in_the_program() -> None:
    # Python ignores SIGPIPE; a program that inherits this never ends when its reader does.
    assert child.run(["sh", "-c", "yes | head -n 1"], 10) == child.Result(0, "y\n", "")


def test_output_ends_at_a_limit_that_the_caller_may_raise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An archive's list of packages has more than 16 MiB, an initramfs too."""
    monkeypatch.setattr(child, "MAX_OUTPUT", 100_000)
    result = child.run(["yes"], 30)
    assert (result.rc != 0, len(result.stdout)) == (True, 100_000)
    command = ["head", "-c", "101000", "/dev/zero"]
    assert child.run(command, 30).rc == -signal.SIGXFSZ
    assert len(child.run(command, 30, max_output=200_000).stdout) == 101_000
    command = ["truncate", "--size=101000", str(tmp_path / "lists")]
    assert child.run(command, 10).rc == -signal.SIGXFSZ
    assert child.run(command, 10, large_files=True).rc == 0


def test_a_hanging_or_missing_program_does_not_block_the_others(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    hangs = ["sh", "-c", f"echo $$ > {pid}; echo begun; exec sleep 60"]
    results = child.run_each([hangs, ["no-such-program"], ["echo", "done"]], 2, at_once=3)
    assert [result.rc for result in results] == [None, 127, 0]
    assert [result.timed_out for result in results] == [True, False, False]
    assert (results[0].stdout, results[2].stdout) == ("begun\n", "done\n")
    assert results[1].error
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    assert child.run_each([], 2, at_once=1) == []


def test_concurrent_programs_end_with_their_caller(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = f"echo $$ > {tmp_path}/$0; exec sleep 60"
    calls = 0

    def interrupted(_seconds: float) -> None:
        nonlocal calls
        calls += all((tmp_path / name).exists() and (tmp_path / name).read_text() for name in "ab")
        if calls == 1:  # once, since what ends the programs waits for them, too
            raise KeyboardInterrupt

    monkeypatch.setattr(child.time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        child.run_each([["sh", "-c", script, name] for name in "ab"], 30, at_once=2)
    for name in "ab":
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / name).read_text()), 0)


@pytest.mark.parametrize("noise", [b"N", b"a long line\n" * 1000])
def test_what_a_library_prints_on_standard_output_is_no_reply(noise: bytes) -> None:
    def printing() -> str:
        os.write(1, noise)
        return "value"

    replies = child.calls([printing, os.getppid, printing], 10)
    assert [reply.value for reply in replies] == ["value", os.getpid(), "value"]
    assert {reply.result.rc for reply in replies} == {0}


@pytest.mark.parametrize(
    ("last", "ended"),
    [
        (lambda: time.sleep(60), (None, True, None)),
        (lambda: 1 // 0, (127, False, "ZeroDivisionError: integer division or modulo by zero")),
        (lambda: sys.exit(5), (127, False, "SystemExit: 5")),
        (object, (127, False, "ValueError: unmarshallable object")),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), (-signal.SIGSEGV, False, None)),
    ],
)
def test_replies_before_a_failed_function_of_the_same_child_are_kept(last: Any, ended: tuple[Any, ...]) -> None:
    replies = child.calls([os.getpid, lambda: None, last, os.getpid], 1.5)
    first, nothing, failed, never = replies
    assert (first.value, first.result.rc, first.result.timed_out) == (first.value, 0, False)
    assert first.value not in (None, os.getpid())
    assert (nothing.value, nothing.result.rc) == (None, 0)
    assert (failed.value, failed.result.rc, failed.result.timed_out, failed.result.error) == (None, *ended)
    assert never == failed


@pytest.mark.parametrize("argv", [[""], ["a\0b"], ["true", "a\0b"]])
def test_what_is_no_command_is_an_error_of_the_result(argv: list[str]) -> None:
    result = child.run(argv, 10)
    assert (result.rc, result.stdout, bool(result.error)) == (127, "", True)


@pytest.mark.parametrize("timeout", [0, -99])
def test_a_program_without_time_left_times_out(timeout: float) -> None:
    assert child.run(["sleep", "60"], timeout).timed_out


def test_no_descriptor_and_no_zombie_is_left() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _attempt in range(3):
        child.run(["true"], 10)
        child.run(["sleep", "9"], 0.05)
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
