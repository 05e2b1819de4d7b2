# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write files atomically, so that a crash leaves the old content, and lock the fabric file for one writer."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import socket
import time
from collections.abc import Iterator

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.fabric_file import FabricFileError

# A temporary file that is older is left over from a run that was killed: no write takes that long.
_LEFTOVER_SECONDS = 3600
_REMEDIES = {
    errno.ENOSPC: "free space on its file system",
    errno.EDQUOT: "free space, or raise the quota",
    errno.EROFS: "mount its file system writable",
    errno.EIO: "check its disk and the kernel's log",
}


def write_atomic(path: str, data: bytes, durable: bool = True) -> None:
    """Replace the content of a file in one step; any number of processes may write and read it at once.

    The file keeps its mode; a new one gets that of the umask. durable: the new content also survives a power loss;
    without it the file may then be empty. FabricFileError where the file system refuses; the old content stays.
    """
    path = os.path.realpath(path)
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(8)}.new")
    try:
        if durable:
            _remove_leftovers(folder, name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(temporary, flags, 0o666), "wb") as file:
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(file.fileno(), os.stat(path).st_mode & 0o7777)
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
        if durable:
            _sync_folder(folder)
    except OSError as error:
        raise cannot(path, "be written", error) from None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _remove_leftovers(folder: str, name: str) -> None:
    """Remove the temporary files of earlier writes of this file that were killed."""
    oldest = time.time() - _LEFTOVER_SECONDS
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(f".{name}.") and entry.name.endswith(".new"):
                with contextlib.suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_mtime < oldest:
                        os.unlink(entry.path)


def append_line(path: str, line: bytes) -> None:
    """Append a line to a file, durably; FabricFileError where the file system refuses, and the file is as it was.

    The caller holds the lock of the fabric file. Nothing is rewritten, so the file may be append-only (chattr +a).
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            size = os.fstat(descriptor).st_size
            # A run that was killed in the middle of its line must not spoil this one.
            separator = b"\n" if size and os.pread(descriptor, 1, size - 1) != b"\n" else b""
            data = separator + line + b"\n"
            try:
                if os.write(descriptor, data) != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(descriptor)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)
        _sync_folder(os.path.dirname(os.path.realpath(path)))
    except OSError as error:
        raise cannot(path, "be written", error) from None


def remove(path: str) -> None:
    """Remove a file durably: it stays removed after a crash."""
    try:
        os.unlink(path)
        _sync_folder(os.path.dirname(os.path.realpath(path)))
    except OSError as error:
        raise cannot(path, "be removed", error) from None


@contextlib.contextmanager
def locked(path: str, now: str) -> Iterator[None]:
    """Hold <path>.lock; FabricFileError names the process that holds it already.

    A symbolic link and its target have one lock. The kernel releases it when its process ends, so a crash leaves at
    most an unlocked file.
    """
    lock = f"{os.path.realpath(path)}.lock"
    try:
        descriptor = _take(lock)
    except BlockingIOError:
        raise FabricFileError(f"{path}: another run is writing it ({_holder(lock)}); wait for it to end") from None
    except OSError as error:
        raise cannot(lock, "be locked", error) from None
    try:
        # Only for the message to another run: on a full disk it reports an unknown process.
        with contextlib.suppress(OSError):
            os.truncate(descriptor, 0)
            os.write(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": now}).encode())
        yield
    finally:
        # Removed before the lock is released: another process that has this file open detects it in _take().
        with contextlib.suppress(OSError):
            os.unlink(lock)
        os.close(descriptor)


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
        with open(lock, encoding="utf-8") as file:
            holder = json.load(file)
        return f"pid {holder['pid']} on {holder['host']} since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "unknown process"


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cannot(path: str, what: str, error: OSError) -> FabricFileError:
    """The error for a file that the file system refuses to write: the reason, and what to do about it."""
    remedy = _REMEDIES.get(error.errno or 0, "create its folder, or make it writable")
    return FabricFileError(f"{path}: cannot {what} ({error.strerror or error}); {remedy}")
