# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Replace files atomically, restore all of them on failure, one run at a time.

Private to this collection; it may change in any release. Python 3.9, standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass

from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import SlurmError

PREVIOUS = ".previous"


@contextlib.contextmanager
def locked(conf_dir: str, timeout: float) -> Iterator[None]:
    """One run at a time on this host: a lock on the folder itself, so that no lock file is left."""
    try:
        handle = os.open(conf_dir, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        message = f"{conf_dir} cannot be opened ({error.strerror}): set conf_dir to the folder of slurm.conf."
        raise SlurmError(message) from None
    try:
        deadline = time.monotonic() + timeout
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    break  # a network file system without locks on folders: go on unlocked rather than not at all
                if time.monotonic() > deadline:
                    raise SlurmError(
                        f"Another run has locked {conf_dir} for {timeout:.0f} s: wait for it to end."
                    ) from None
                time.sleep(0.2)
        yield
    finally:
        os.close(handle)


@dataclass
class _Written:
    """One file that was replaced: what ``undo()`` needs."""

    path: str
    existed: bool


class Files:
    """Replaces files one by one and can restore all of them; the old one stays next to it as ``.previous``."""

    def __init__(self, model: str) -> None:
        self.model = model  # a file whose owner and mode new files get
        self.done: list[_Written] = []

    def write(self, path: str, data: bytes) -> None:
        """Replace one file atomically, keeping its owner and mode; OSError where the file system refuses."""
        path = os.path.realpath(path)  # a link stays a link, its target changes
        existed = os.path.exists(path)
        like = os.stat(path if existed else self.model)
        folder = os.path.dirname(path)
        handle, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.", dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fchmod(file.fileno(), stat.S_IMODE(like.st_mode))
                with contextlib.suppress(PermissionError):
                    os.fchown(file.fileno(), like.st_uid, like.st_gid)
                os.fsync(file.fileno())
            if existed:
                keep(path)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        self.done.append(_Written(path, existed))
        sync(folder)

    def undo(self) -> None:
        """Restore the old files. Renames only, so it works on a full disk too."""
        for written in reversed(self.done):
            if written.existed:
                os.replace(written.path + PREVIOUS, written.path)
            else:
                os.unlink(written.path)
            sync(os.path.dirname(written.path))
        self.done.clear()


def keep(path: str, suffix: str = PREVIOUS) -> None:
    """Keep a file that is about to be replaced under a second name: a hard link, which needs no space."""
    # A name of its own: a leftover of a run that was killed must not be in the way.
    spare = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}{suffix}.{secrets.token_hex(4)}")
    try:
        try:
            os.link(path, spare, follow_symlinks=False)
        except OSError:  # a file system without hard links
            shutil.copy2(path, spare, follow_symlinks=False)
        os.replace(spare, path + suffix)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(spare)
        raise


def sync(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
