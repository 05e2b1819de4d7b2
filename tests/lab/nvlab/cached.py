# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Folders that are made once and kept under the hash of what goes into them."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from . import paths

UNUSED_SECONDS = 7 * 24 * 3600


def folder(name: str, parts: Iterable[bytes], make: Callable[[Path, int], None]) -> Path:
    """The folder NAME-HASH of the cache, filled by `make` when it is not there; a second caller waits for the first.

    `make` gets an empty folder and the lock's file. A program that inherits the lock keeps others waiting until it has
    ended, even when its parent is killed. A folder is never changed afterwards; those of other contents go when nobody
    has used them for a week.
    """
    key = hashlib.sha256(b"\0".join([os.uname().machine.encode(), *parts])).hexdigest()[:16]
    target = paths.cache() / f"{name}-{key}"
    if target.is_dir():
        os.utime(target)
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.parent / f".{target.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            for left in target.parent.glob(f".{target.name}.*/"):
                shutil.rmtree(left, ignore_errors=True)
            making = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
            making.chmod(0o755)
            try:
                make(making, lock.fileno())
                os.rename(making, target)
            except BaseException:
                shutil.rmtree(making, ignore_errors=True)
                raise
            for other in target.parent.glob(f"{name}-{'[0-9a-f]' * 16}"):
                if other != target and time.time() - other.stat().st_mtime > UNUSED_SECONDS:
                    shutil.rmtree(other, ignore_errors=True)
    return target
