# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a program or function that may hang for ever, within a time limit.

A faulty GPU driver leaves its callers in the kernel (state D), where not even SIGKILL ends them. So whatever calls the
driver runs in a child, and the child is built so that it cannot block the caller:

- It is created by fork alone. subprocess waits without limit for the exec of its child, which hangs where the program
  is on a dead file system; and a new interpreter would have to find this collection again, which may fail inside a
  module that Ansible has packed (or that Mitogen runs). A forked child has the code in its memory already.
- It lives in a session of its own, so that it can be killed with all its children by one killpg.
- It inherits no descriptor: standard output and error are files in memory, not pipes, and all others are closed. A pipe
  of Ansible's that a stuck child kept open would hang the play although the module has ended.
- It is watched until the deadline, then killed, watched for a short grace, and then left with its pid reported: never
  waited for without a limit. If the caller itself is killed, an alarm ends the child later.
"""

from __future__ import annotations

import fcntl
import io
import marshal
import os
import shlex
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils import actions

# A tray of 8 GPUs prints about 240 kB of XML; no known tool prints more than this.
MAX_OUTPUT = 16 * 1024 * 1024
# How long a killed child has to disappear before it counts as stuck in the kernel.
GRACE = 2.0
_NOT_STARTED = 127
_Start = Callable[[int, int], None]
"""What a child does, by the descriptors of its output and errors."""


class Result(NamedTuple):
    """How a child ended.

    ``rc`` is the exit status, negative for the signal that ended it, None when it did not end in time. ``error`` is
    why it could not be started. ``survivor_pid`` is the child's pid when it outlived SIGKILL. ``is_busy``: it did not
    end in time, and went on writing its progress.
    """

    rc: int | None
    stdout: str
    stderr: str
    timed_out: bool = False
    survivor_pid: int | None = None
    error: str | None = None
    is_busy: bool = False

    @property
    def reason(self) -> str:
        """Why the program failed, in a clause."""
        if self.timed_out:
            stuck = f", process {self.survivor_pid} cannot be killed" if self.survivor_pid else ""
            return f"no answer in time{stuck}"
        if self.error:
            return self.error
        lines = [line.strip() for line in (self.stderr + "\n" + self.stdout).splitlines() if line.strip()]
        return lines[-1][:300] if lines else f"it ended with {self.rc}"


class Reply(NamedTuple):
    """How a function that was called in a child ended; ``value`` is None unless the function returned."""

    value: Any
    result: Result


def run(
    argv: Sequence[str],
    timeout: float,
    env: Mapping[str, str] | None = None,
    large_files: bool = False,
    max_output: int | None = None,
    acts: bool = False,
) -> Result:
    """Run a program (looked up in PATH when its name has no slash) for at most ``timeout`` seconds.

    Its standard input is empty; ``env`` replaces its environment. Output is decoded as UTF-8,
    with invalid bytes replaced. Neither output nor a file that the program writes can grow past ``max_output`` bytes
    (default MAX_OUTPUT); ``large_files`` lifts that limit for files, as for unpacking packages, and no more output is
    read. Processes that the program leaves in its session end with it. ``acts``: it changes something, and so is one of
    the actions of the result. Raises nothing for what the program does; without time left it times out.
    """
    start = _program(argv, env, None if large_files else max_output or MAX_OUTPUT)
    result, output = _supervise(start, timeout, max_output)
    if acts:
        _record(argv, result)
    return result._replace(stdout=output.decode("utf-8", "replace"))


def run_each(
    commands: Sequence[Sequence[str]],
    timeout: float,
    at_once: int,
    env: Mapping[str, str] | None = None,
    acts: bool = False,
) -> list[Result]:
    """Run each of the programs, at most ``at_once`` concurrently; each has ``timeout`` seconds from its start.

    ``acts``: as of run(); they are recorded in the order in which they end.
    """
    starts = [_program(argv, env, MAX_OUTPUT) for argv in commands]
    results: dict[int, Result] = {}
    running: dict[int, _Begun] = {}
    begun = 0
    try:
        while len(results) < len(starts):
            while begun < len(starts) and len(running) < max(1, at_once):
                running[begun] = _begin(starts[begun], timeout)
                begun += 1
            for number, child in list(running.items()):
                late = time.monotonic() >= child.deadline
                if late or _has_ended(child.pid, 0):
                    result, output = _finish(child, late and not _has_ended(child.pid, 0), None)
                    results[number] = result._replace(stdout=output.decode("utf-8", "replace"))
                    if acts:
                        _record(commands[number], result)
                    _close(running.pop(number).files)
            time.sleep(0.02)
    finally:
        for child in running.values():
            _finish(child, True, None)
            _close(child.files)
    return [results[number] for number in range(len(starts))]


def _record(argv: Sequence[str], result: Result) -> None:
    """Record a command. Of a program of the site, which follows ``--``, only the name: arguments may hold a secret."""
    words = list(map(str, argv))
    shown = words[: words.index("--") + 2] if "--" in words else words
    end = "" if result.rc == 0 else " (no answer in time)" if result.timed_out else f" (failed, rc {result.rc})"
    actions.record(f"run {' '.join(map(shlex.quote, shown))}{end}")


def _program(argv: Sequence[str], env: Mapping[str, str] | None, max_output: int | None) -> _Start:
    """The function that becomes the program in a child."""
    words = [str(word) for word in argv]
    environment = dict(os.environ if env is None else env)

    def start(_out: int, _err: int) -> None:
        _limit(max_output)
        os.execvpe(words[0], words, environment)

    return start


def call(function: Callable[..., Any], timeout: float, *arguments: Any) -> Reply:
    """Call a function in a child for at most ``timeout`` seconds; it must return plain values (see marshal).

    The function may write its progress to descriptor 2: after a timeout that is ``result.stderr``. What it prints on
    standard output is dropped.
    """
    return calls([lambda: function(*arguments)], timeout)[0]


def calls(functions: Sequence[Callable[[], Any]], timeout: float, most: float | None = None) -> list[Reply]:
    """Call the functions one after another in one child, since a child costs more than most functions; return replies.

    The replies of functions that returned have rc 0, also where a later one hangs. The replies of the others have the
    result of the child. ``most``: with it the child has ``timeout`` seconds from each time that it writes its progress
    on descriptor 2, and that many in all, so that one that is slow is not taken for one that hangs.
    """

    def start(out: int, _err: int) -> None:
        _limit(MAX_OUTPUT)
        # A library may print on standard output, as a debug build of a driver does. That goes to the file of standard
        # input, which is in memory, empty, and read by nobody: a probe opens no file for writing.
        replies = os.dup(out)
        os.dup2(0, out)
        for function in functions:
            _write(replies, marshal.dumps(function()))
        os._exit(0)

    result, output = _supervise(start, timeout, most=most)
    stream = io.BytesIO(output)
    replies: list[Reply] = []
    try:
        while len(replies) < len(functions):
            replies.append(Reply(marshal.load(stream), result._replace(rc=0, timed_out=False, survivor_pid=None)))
    except (EOFError, ValueError, TypeError):
        missing = result._replace(error="its answer was cut off") if result.rc == 0 else result
        replies += [Reply(None, missing)] * (len(functions) - len(replies))
    return replies


def _supervise(
    start: _Start, timeout: float, max_output: int | None = None, most: float | None = None
) -> tuple[Result, bytes]:
    """The child's result without its standard output, and the bytes of that."""
    child = _begin(start, most or timeout)
    try:
        ended, left = False, timeout
        while not ended and left > 0 and time.monotonic() < child.deadline:
            ended = _has_ended(child.pid, min(time.monotonic() + left, child.deadline))
            # The time of its last progress is that of the file system's clock.
            left = timeout - (time.time() - os.fstat(child.files[2]).st_mtime)
        result, output = _finish(child, not ended, max_output)
        return result._replace(is_busy=bool(most) and not ended and left > 0), output
    finally:
        _close(child.files)


class _Begun(NamedTuple):
    """A running child, and the files that it shares with its caller: standard input, output, error, and the fault."""

    pid: int
    deadline: float
    files: list[int]


def _begin(start: _Start, timeout: float) -> _Begun:
    files = [_memory_file(name) for name in ("stdin", "stdout", "stderr", "error")]
    try:
        deadline = time.monotonic() + timeout
        pid = os.fork()
        if pid == 0:
            _become_child(start, files, timeout)
        return _Begun(pid, deadline, files)
    except BaseException:
        _close(files)
        raise


def _finish(child: _Begun, timed_out: bool, max_output: int | None) -> tuple[Result, bytes]:
    _stdin, stdout, stderr, error = child.files
    # The child is not reaped yet, so its process group cannot belong to another process.
    _kill_group(child.pid)
    ended = _has_ended(child.pid, time.monotonic() + GRACE) if timed_out else True
    rc = _reap(child.pid) if ended else None
    result = Result(
        rc=None if timed_out else rc,
        stdout="",
        stderr=_read(stderr).decode("utf-8", "replace"),
        timed_out=timed_out,
        survivor_pid=None if ended else child.pid,
        error=_read(error).decode("utf-8", "replace") or None,
    )
    return result, _read(stdout, max_output)


def _close(files: Iterable[int]) -> None:
    for descriptor in files:
        os.close(descriptor)


def _memory_file(name: str) -> int:
    """A descriptor of an empty file without a name: in memory, or on disk where the system refuses that."""
    try:
        return os.memfd_create(f"nvlink-{name}", os.MFD_CLOEXEC)
    except (AttributeError, OSError):  # not Linux, or hardened with the sysctl vm.memfd_noexec
        import tempfile  # only there: its import takes longer than most children

        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())


def _become_child(start: _Start, files: Sequence[int], timeout: float) -> None:
    """In the child: give up everything shared with the caller, then run ``start``. Never returns."""
    keep = 3
    try:
        os.setsid()
        # Copies above those first, because one of the files may itself be among them.
        sources = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, keep + 1) for descriptor in files]
        for target, source in enumerate(sources[:3]):
            os.dup2(source, target)
        os.dup2(sources[3], keep, inheritable=False)
        os.closerange(keep + 1, _descriptor_limit())
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGALRM, signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        # Survives exec: a backstop for a caller that was killed before it could kill this child.
        signal.alarm(min(max(int(timeout), 0) + 30, 86_400))
        start(1, 2)
    except BaseException as failure:  # nothing may unwind into the caller's code, not even SystemExit
        reason = failure.strerror if isinstance(failure, OSError) and failure.strerror else ""
        try:  # noqa: SIM105 - contextlib takes longer to import than most children
            _write(keep, (reason or f"{type(failure).__name__}: {failure}").encode("utf-8", "replace")[:4096])
        except BaseException:
            pass
    finally:
        os._exit(_NOT_STARTED)


def _descriptor_limit() -> int:
    """One more than the highest open descriptor; 65,536 where that cannot be read."""
    try:
        return max(map(int, os.listdir("/proc/self/fd"))) + 1
    except (OSError, ValueError):
        return 65_536


def _limit(max_output: int | None) -> None:
    """No core, and no file above ``max_output`` bytes, None for as large as the caller may write."""
    try:
        import resource  # not at the top: the sanity tests import this file where the module does not exist

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if max_output is not None:
            # Where the hard limit is lower, which is a ValueError, it counts already.
            resource.setrlimit(resource.RLIMIT_FSIZE, (max_output, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    except (ImportError, OSError, ValueError):
        pass  # without that limit


def _has_ended(pid: int, deadline: float) -> bool:
    """Wait until the child has ended, without reaping it; False at the deadline."""
    pause = 0.001
    while True:
        try:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return True
        except ChildProcessError:  # SIGCHLD is ignored: the kernel has reaped the child
            return True
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, 0.02)


def _kill_group(pid: int) -> None:
    # Both, because a child that has not called setsid() yet has no group of its own.
    for kill in (os.killpg, os.kill):
        try:  # noqa: SIM105 - as above
            kill(pid, signal.SIGKILL)
        except OSError:
            pass  # it has ended


def _reap(pid: int) -> int | None:
    try:
        _pid, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _read(descriptor: int, max_output: int | None = None) -> bytes:
    """All that a child has written; by position, because the child shares the file's offset."""
    parts = []
    at = 0
    while at < (max_output or MAX_OUTPUT):
        part = os.pread(descriptor, 1 << 20, at)
        if not part:
            break
        parts.append(part)
        at += len(part)
    return b"".join(parts)
