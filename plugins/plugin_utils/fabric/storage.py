# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write files atomically, so that a crash leaves the old content, with one writer at a time."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Iterator

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.fabric_file import FabricFileError


def write_atomic(path: str, data: bytes) -> None:
    """Replace the content of a file in one step and keep its mode.

    The caller holds the lock, so the temporary file has a fixed name; the next write replaces a leftover of a crash.
    """
    path = os.path.realpath(path)
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.new")
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(temporary, flags, 0o666), "wb") as file:
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(file.fileno(), os.stat(path).st_mode & 0o7777)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(folder)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise _cannot(path, "be written", error) from None


def remove(path: str) -> None:
    """Remove a file durably: it stays removed after a crash."""
    try:
        os.unlink(path)
        _sync_folder(os.path.dirname(os.path.realpath(path)))
    except OSError as error:
        raise _cannot(path, "be removed", error) from None


@contextlib.contextmanager
def locked(path: str, now: str) -> Iterator[None]:
    """Hold <path>.lock; FabricFileError names the process that holds it already.

    The kernel releases the lock when its process ends, so a crash leaves at most an unlocked file.
    """
    lock = f"{path}.lock"
    try:
        descriptor = _take(lock)
    except BlockingIOError:
        raise FabricFileError(f"{path}: another run is writing it ({_holder(lock)}); wait for it to end") from None
    except OSError as error:
        raise _cannot(lock, "be locked", error) from None
    try:
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": now}
        os.truncate(descriptor, 0)
        os.write(descriptor, json.dumps(holder).encode())
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


def _cannot(path: str, what: str, error: OSError) -> FabricFileError:
    return FabricFileError(f"{path}: cannot {what} ({error.strerror}); create its folder, or make it writable")
