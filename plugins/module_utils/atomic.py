# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read files, and replace them in one step: a crash, a full disk or another writer leaves the old content or the new.

Private to this collection; it may change in any release. Python 3.9, standard library only. Errors are OSError; callers
word them with the remedy of their area.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from typing import Callable

from ansible_collections.rackscale.nvlink.plugins.module_utils import actions

MAX_READ = 1 << 24
# A temporary file that is older is left over from a write that was killed: no write takes that long.
_LEFTOVER_SECONDS = 3600


def write(
    path: str,
    data: bytes,
    mode: int | None = None,
    owner: tuple[int, int] | None = None,
    model: str | None = None,
    durable: bool = True,
    follow: bool = True,
    previous: str | None = None,
    check: Callable[[], None] | None = None,
    listed: bool = True,
) -> None:
    """Replace the content of a file in one step; any number of processes may write and read it at once.

    mode, owner (uid, gid): of the file. By default it keeps those it has; a new one gets those of the file ``model``,
    without one those of the umask and the user. durable: the new content also survives a power loss; without it the
    file may then be empty. follow: a symbolic link stays one, and its target is replaced; without it the link is
    replaced, which a folder that another user can write needs.
    previous: a second name under which the old file stays. check: called just before the file is replaced, which its
    exception prevents. listed: whether it is one of the actions of the result, as all but a file of the run itself.
    """
    path = os.path.realpath(path) if follow else os.path.abspath(path)
    folder, name = os.path.split(path)
    like = _status(path, follow)
    keeps = previous is not None and like is not None
    if like is None and model is not None:
        like = os.stat(model)
    if durable:
        _remove_leftovers(folder, name)
    # Hidden, because Slurm runs what matches prolog.d/*.
    temporary = os.path.join(folder, f".{name}.{os.urandom(8).hex()}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    # A file whose mode is known is private until it has that mode. The umask gives any other its mode, but never one
    # that all users can write.
    descriptor = os.open(temporary, flags, 0o664 if mode is None and like is None else 0o600)
    try:
        with open(descriptor, "wb") as file:
            if owner is not None:
                os.fchown(descriptor, *owner)
            elif like is not None:
                for uid, gid in ((-1, like.st_gid), (like.st_uid, -1)):
                    with contextlib.suppress(PermissionError):
                        os.fchown(descriptor, uid, gid)
            final = stat.S_IMODE((like or os.fstat(descriptor)).st_mode if mode is None else mode)
            # After the owner, whose change clears bits of the mode.
            os.fchmod(descriptor, final)
            file.write(data)
            if durable:
                file.flush()
                os.fsync(descriptor)
        if keeps and previous is not None:
            keep(path, previous)
        if check is not None:
            check()
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    if listed:
        # A file that not every user may read may be a secret.
        about = f", {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()[:12]}" if final & stat.S_IROTH else ""
        actions.record(f"write {path} (mode {final:04o}{about})")
    if durable:
        sync_folder(folder)


def remove(path: str, listed: bool = True) -> None:
    """Remove a file durably: it stays removed after a crash. listed: as of write()."""
    os.unlink(path)
    if listed:
        actions.record(f"remove {path}")
    sync_folder(os.path.dirname(os.path.realpath(path)))


def _status(path: str, follow: bool) -> os.stat_result | None:
    """The status of a file; None where there is none, or a link that is to be replaced."""
    try:
        status = os.stat(path, follow_symlinks=follow)
    except FileNotFoundError:
        return None
    return None if stat.S_ISLNK(status.st_mode) else status


def _remove_leftovers(folder: str, name: str) -> None:
    """Remove the temporary files of earlier writes of this file that were killed."""
    oldest = time.time() - _LEFTOVER_SECONDS
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(f".{name}.") and entry.name.endswith(".new"):
                with contextlib.suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_mtime < oldest:
                        os.unlink(entry.path)


def keep(path: str, previous: str) -> None:
    """Give a file that is about to be replaced a second name: a hard link, which needs no space."""
    # A name of its own: a leftover of a run that was killed must not be in the way.
    spare = os.path.join(os.path.dirname(path), f".{os.path.basename(previous)}.{os.urandom(8).hex()}.new")
    try:
        os.link(path, spare, follow_symlinks=False)
    except OSError:  # a file system without hard links
        write(
            previous,
            bounded(path, os.stat(path).st_size),
            stat.S_IMODE(os.stat(path).st_mode),
            model=path,
            follow=False,
            listed=False,
        )
        return
    try:
        os.replace(spare, previous)
    finally:
        # A rename between two names of one file leaves both.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(spare)


def make_folders(path: str, mode: int = 0o755) -> None:
    """Make a folder with this mode and missing parents with 0755, whatever the umask is; one that exists keeps its own.

    os.makedirs() makes parents with 0777 less the umask, and some daemons have none.
    """
    path = os.path.abspath(path)
    if os.path.isdir(path):
        return
    make_folders(os.path.dirname(path))
    try:
        os.mkdir(path, mode)
        os.chmod(path, mode)
    except FileExistsError:
        # Made by another process meanwhile.
        if not os.path.isdir(path):
            raise


def sync_folder(folder: str) -> None:
    """Bring renames and removals in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def bounded(path: str, limit: int = MAX_READ) -> bytes:
    """The content of a regular file, or of the one that a link names; OSError with the reason for any other or larger.

    No other kind of file is opened: reading a FIFO or a device may block or never end, and opening a channel has side
    effects in the driver.
    """
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(0, "it is not a regular file")
    # Another file may have taken its place: none blocks, and none is read further than to the limit.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        data = file.read(limit + 1) if status.st_size <= limit else None
    if data is None or len(data) > limit:
        raise OSError(0, f"it is larger than {limit} bytes")
    return data


def read(path: str, limit: int = MAX_READ) -> bytes | None:
    """As bounded(); None where there is no file."""
    try:
        return bounded(path, limit)
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_regular(path: str) -> bytes | None:
    """As bounded(), of a host's own file: None where it cannot be read."""
    try:
        return bounded(path)
    except OSError:
        return None


def read_text(path: str) -> str | None:
    """As read_regular(), as text with surrogates for invalid UTF-8."""
    data = read_regular(path)
    return None if data is None else data.decode("utf-8", "surrogateescape")


def tail(path: str) -> str:
    """The last 64 KiB of a log as text; empty where it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - (64 << 10)))
            return file.read().decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""
