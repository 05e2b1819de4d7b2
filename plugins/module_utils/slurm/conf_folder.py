# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later


"""The files in the folder of slurm.conf: one run at a time, and nothing replaced that another program has changed.

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping

from ansible_collections.rackscale.nvlink.plugins.module_utils import actions, atomic
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import polls
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import SlurmError

# The suffix of the copy of a replaced file that stays, and of one that goes once slurmctld runs the change.
PREVIOUS, REMOVED = ".previous", ".removed"

Checksums = Mapping[str, str]
"""Path -> SHA-256 of each file of a folder at one time."""


class Outdated(SlurmError):
    """The files or what runs are no longer those from which the change was planned: survey and plan again."""


@contextlib.contextmanager
def locked(conf_dir: str, timeout: float, check: bool = False) -> Iterator[None]:
    """One run at a time on this host: a lock on the folder itself, so that no lock file is left; none in check mode."""
    if check:
        yield
        return
    try:
        handle = os.open(conf_dir, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        message = f"{conf_dir} cannot be opened ({error.strerror}): set slurm_conf_dir to the folder of slurm.conf."
        raise SlurmError(message) from None
    try:
        for _poll in polls(timeout):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    break  # a network file system without locks on folders: go on unlocked rather than not at all
        else:
            raise SlurmError(f"Another run has locked {conf_dir} for {timeout:.0f} s: wait for it to end.")
        yield
    finally:
        os.close(handle)


def _stamp(path: str) -> tuple[int, int, int] | None:
    """Inode, time and size of a file, which every program that writes it changes; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def checksums(conf_dir: str) -> Checksums:
    """Those of all files in a folder; none where it cannot be read."""
    paths: list[str] = []
    with contextlib.suppress(OSError):
        paths = [os.path.join(conf_dir, name) for name in os.listdir(conf_dir)]
    return {path: checksum(path) for path in paths}


def checksum(path: str) -> str:
    """That of a file; empty where there is none."""
    data = atomic.read_regular(path)
    return "" if data is None else hashlib.sha256(data).hexdigest()


CHANGED = "Another program has changed {} since it was read: run again to keep its change."


def require_unchanged(path: str, known: Checksums) -> None:
    """SlurmError where the file is not the known one."""
    if checksum(path) != known.get(path, ""):
        raise SlurmError(CHANGED.format(path))


class Files:
    """Replaces and removes files one by one and can restore all of them; the old one gets a second name."""

    def __init__(self, like: str, suffix: str = PREVIOUS, known: Checksums | None = None) -> None:
        self.like = like  # a file whose owner and mode new files get
        self.suffix = suffix
        self.known = known  # a file that is not the known one is not replaced
        # Path, whether there was a file before, and what is there now; None where it was removed.
        self.done: list[tuple[str, bool, bytes | None]] = []
        self.foreign: list[str] = []  # the files that undo() has left to another program

    def put(self, path: str, data: bytes | None) -> None:
        """Replace a file atomically, keeping its owner and mode, or remove it; OSError where that is refused.

        SlurmError where it is no longer the known one at the last moment: writing a file to the disk takes a while.
        """
        check = functools.partial(require_unchanged, path, self.known) if self.known is not None else None
        if data is not None:
            path = os.path.realpath(path)  # a link stays a link, its target changes
        before, previous = _stamp(path), path + self.suffix
        try:
            if data is not None:
                atomic.write(path, data, model=self.like, previous=previous, check=check)
            else:
                atomic.keep(path, previous)
                if check is not None:
                    check()
                atomic.remove(path)
        finally:
            # Also where it was interrupted after it took effect, but not where another program has written the file.
            if _stamp(path) != before and atomic.read(path) == data:
                self.done.append((path, before is not None, data))

    def adopt(self, paths: Iterable[str]) -> None:
        """Restore these files too, which an earlier run has replaced."""
        self.done += [(path, True, atomic.read(path)) for path in paths]

    def undo(self) -> bool:
        """Restore the old files; whether there were any. Renames only, so it works on a full disk too.

        A file that another program has changed since stays, in ``foreign``.
        """
        undone = False
        for path, existed, data in reversed(self.done):
            if atomic.read(path) != data:
                self.foreign.append(path)
                continue
            undone = True
            with contextlib.suppress(FileNotFoundError):
                if existed:
                    os.replace(path + self.suffix, path)
                    actions.record(f"restore {path}")
                else:
                    atomic.remove(path)
            atomic.sync_folder(os.path.dirname(path))
        self.done.clear()
        return undone

    def commit(self) -> None:
        """Forget the old files, unless they are to stay."""
        for path, existed, _data in self.done:
            if existed and self.suffix != PREVIOUS:
                os.unlink(path + self.suffix)
        self.done.clear()
