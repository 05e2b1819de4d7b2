# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of running labs on disk, so that any later process can inspect a lab or take it down.

/run/nvlink-lab/NAME/: state.json, scenario.json, the lab's keys, ssh_config, and hosts/HOST/ (files, console.log, gpu).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import machine, paths
from .errors import LabError


def write_atomically(target: Path, text: str, mode: int = 0o644) -> None:
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.chmod(temporary, mode)
        os.rename(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory; the lock is on the directory itself, so it leaves no file."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def all_labs_locked() -> Iterator[None]:
    while True:
        paths.STATE.mkdir(exist_ok=True)
        handle = os.open(paths.STATE, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(handle, fcntl.LOCK_EX)
        # Another lab's `down`, the last one, may have removed the directory while this process waited.
        with contextlib.suppress(FileNotFoundError):
            if os.stat(paths.STATE).st_ino == os.fstat(handle).st_ino:
                break
        os.close(handle)
    try:
        yield
    finally:
        os.close(handle)


def create(name: str) -> Path:
    with all_labs_locked():
        directory = paths.state_of(name)
        try:
            directory.mkdir(mode=0o700)
        except FileExistsError:
            raise LabError(
                f"lab {name!r} is there already, running or left by a crash: end it first (lab down --name {name})."
            ) from None
        machine.prepare_machine()
    return directory


def remove(name: str) -> None:
    """Remove the state of a lab without processes; the last one restores the machine's limits. Idempotent."""
    if not paths.STATE.is_dir():
        return
    with all_labs_locked():
        shutil.rmtree(paths.state_of(name), ignore_errors=True)
        if not any(entry.is_dir() for entry in paths.STATE.iterdir()):
            machine.restore_machine()
            paths.STATE.rmdir()


def existing(name: str) -> Path:
    directory = paths.state_of(name)
    if not directory.is_dir():
        raise LabError(f"there is no lab {name!r}: start it with lab up --name {name}.")
    return directory


def read(name: str) -> dict[str, Any]:
    """state.json: {"up": {"pid", "started"}, "phase": "starting"|"up", "base", "cgroup", "hosts": {NAME: {...}}}."""
    try:
        state: dict[str, Any] = json.loads((existing(name) / "state.json").read_text())
    except FileNotFoundError:
        raise LabError(f"lab {name!r} was left by a crash: take it down (lab down --name {name}).") from None
    return state


def write(name: str, state: dict[str, Any]) -> None:
    write_atomically(paths.state_of(name) / "state.json", json.dumps(state, indent=1, sort_keys=True) + "\n")
