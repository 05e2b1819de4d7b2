# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write files atomically, so that a crash leaves the old content, and lock the fabric file for one writer.

A run of many tasks cannot keep the kernel's lock of one: it leaves a mark (mark) that counts while its process lives.
Several runs may have one each, since rollouts of different racks may run at the same time.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import json
import os
import socket
from collections.abc import Iterator, Mapping

from ansible_collections.rackscale.nvlink.plugins.module_utils import actions, atomic
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import MAX_FLEET_FILE
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.fabric_file import FabricFileError

_REMEDIES = {
    errno.ENOSPC: "free space on its file system",
    errno.EDQUOT: "free space, or raise the quota",
    errno.EROFS: "mount its file system writable",
    errno.EIO: "check its disk and the kernel's log",
    errno.ELOOP: "remove it if it is a symbolic link, which is not followed",
}


def write_atomic(
    path: str, data: bytes, follow: bool = False, previous: str | None = None, listed: bool = True
) -> None:
    """Replace a file as atomic.write does; FabricFileError where the file system refuses, and the old content stays.

    follow: only for a path that a person chose. At a name derived from it, a symbolic link came from somebody else.
    previous: a second name under which the old file stays. listed: as of atomic.write().
    """
    try:
        atomic.write(path, data, follow=follow, previous=previous, listed=listed)
    except OSError as error:
        raise cannot(path, "be written", error) from None


def append_line(path: str, line: bytes) -> None:
    """Append a line to a file, durably; FabricFileError where the file system refuses, and the file is as it was.

    The caller holds the lock of the fabric file. Nothing is rewritten, so the file may be append-only (chattr +a).
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o664)
        with open(descriptor, "ab", buffering=0) as file:
            size = os.fstat(descriptor).st_size
            # A run that was killed in the middle of its line must not spoil this one.
            separator = b"\n" if size and os.pread(descriptor, 1, size - 1) != b"\n" else b""
            try:
                data = separator + line + b"\n"
                if file.write(data) != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(descriptor)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, size)
                raise
        actions.record(f"append {len(line)} bytes to {path}")
        atomic.sync_folder(os.path.dirname(os.path.realpath(path)))
    except OSError as error:
        raise cannot(path, "be written", error) from None


def remove(path: str, listed: bool = True) -> None:
    """As atomic.remove(); FabricFileError where the file system refuses."""
    try:
        atomic.remove(path, listed)
    except OSError as error:
        raise cannot(path, "be removed", error) from None


def check_output(variable: str, paths: Mapping[str, str | None], mark: bytes) -> None:
    """FabricFileError where a file that a person wants written is another file of the run, or not its earlier output.

    So whatever reads a file, it is not replaced by accident. paths: variable -> path; without one there is no output.
    mark: what each content of this output has.
    """
    path = paths[variable]
    if not path:
        return
    for name, other in paths.items():
        if name != variable and other and os.path.realpath(other) == os.path.realpath(path):
            raise FabricFileError(f"{variable}: {path} belongs to {name}; name another file")
    try:
        data = atomic.read(path, MAX_FLEET_FILE)
    except OSError as error:
        raise FabricFileError(f"{variable}: {path} is not replaced ({error.strerror}); name another file") from None
    if data and mark not in data:
        raise FabricFileError(
            f"{variable}: {path} is not replaced, since no earlier run has written it; name another file, or remove it"
        )


@contextlib.contextmanager
def locked(path: str, now: str, remedy: str = "") -> Iterator[None]:
    """Hold <path>.lock; FabricFileError names the process that holds it already. remedy: one more for a file system.

    A symbolic link and its target have one lock. The kernel releases it when its process ends, so a crash leaves at
    most an unlocked file.
    """
    lock = f"{os.path.realpath(path)}.lock"
    try:
        descriptor = _take(lock)
    except BlockingIOError:
        raise FabricFileError(f"{path}: another run is writing it ({_holder(lock)}); wait for it to end") from None
    except OSError as error:
        raise cannot(lock, "be locked", error, remedy) from None
    try:
        # Only for the message to another run: on a full disk it reports an unknown process.
        with contextlib.suppress(OSError):
            os.truncate(descriptor, 0)
            os.write(descriptor, _holding(os.getpid(), now))
        yield
    finally:
        # Removed before the lock is released: another process that has this file open detects it in _take().
        with contextlib.suppress(OSError):
            os.unlink(lock)
        os.close(descriptor)


def mark(path: str, now: str, pid: int) -> None:
    """Leave <path>.lock.HOST.PID until unmark(): this run, whose process is pid, works under that path.

    The marks of this host's runs that were killed are removed.
    """
    for other in glob.glob(f"{glob.escape(_mark(path, 0))}*"):
        if not _is_held(other):
            remove(other, listed=False)
    write_atomic(_mark(path, pid), _holding(pid, now), listed=False)


def unmark(path: str, pid: int) -> None:
    """Remove the mark, if there is one."""
    if os.path.lexists(_mark(path, pid)):
        remove(_mark(path, pid), listed=False)


def held(path: str, pid: int = 0) -> str:
    """The process that holds the lock of this path or has marked it, and that file; empty where there is none.

    It changes nothing. pid: that of the own run, whose mark does not count. Of a run on another host it is not known
    whether it still lives: its mark counts until a person removes the file.
    """
    lock = f"{os.path.realpath(path)}.lock"
    found = [other for other in sorted(glob.glob(f"{glob.escape(lock)}.*")) if other != _mark(path, pid)]
    return next((f"{_holder(other)} ({other})" for other in (lock, *found) if _is_held(other)), "")


def _mark(path: str, pid: int) -> str:
    """The mark of a run on this host; without a pid, how all of them begin."""
    return f"{os.path.realpath(path)}.lock.{socket.gethostname()}.{pid or ''}"


def _is_held(lock: str) -> bool:
    """Whether the process that wrote this lock or mark lives, or is on another host. It takes no lock itself."""
    try:
        holder = json.loads(atomic.bounded(lock))
        return bool(holder["host"] != socket.gethostname() or _started(int(holder["pid"])) == holder.get("started"))
    except FileNotFoundError:
        return False
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # Whose it is cannot be known, so that a person must look.
        return True


def _started(pid: int) -> str:
    """When a process started, in ticks since boot, so that a later one with its PID is another; empty if it is gone.

    One that has ended is gone, also while nobody has waited for it (state Z), as in a container whose first process
    does not.
    """
    try:
        fields = atomic.bounded(f"/proc/{pid}/stat").decode("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]


def _holding(pid: int, now: str) -> bytes:
    holder = {"pid": pid, "host": socket.gethostname(), "since": now, "started": _started(pid)}
    return json.dumps(holder).encode()


def _take(lock: str) -> int:
    """A descriptor with the lock on the file that is at this path now."""
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(lock)):
                return descriptor
        except FileNotFoundError:
            pass
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _holder(lock: str) -> str:
    try:
        holder = json.loads(atomic.bounded(lock))
        return f"pid {holder['pid']} on {holder['host']} since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "unknown process"


def cannot(path: str, what: str, error: OSError, more: str = "") -> FabricFileError:
    """The error for a file that the file system refuses to write: the reason, and what to do about it."""
    remedy = _REMEDIES.get(error.errno or 0, "create its folder, or make it writable")
    return FabricFileError(f"{path}: cannot {what} ({error.strerror or error}); {remedy}{more}")
