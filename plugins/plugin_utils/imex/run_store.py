# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Share the results of IMEX phases between the forks of a play, as files in the run's temporary folder.

A loop over hostvars would be quadratic, and every fork would parse the fabric file again: 10,368 trays times four
phases. Here the first fork parses it, and every host reads the file of its clique and the rows of its clique.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, storage
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.imex.clique import Clique
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.render import imex as rendering


def clique_of(folder: str, path: str, tray: str) -> Clique | None:
    """The clique of a tray in the fabric file; None for an unplaced tray.

    Raises FabricFileError, also for a clique that cannot have a node list.
    """
    cache = _cliques(folder, path)
    text = atomic.read_text(os.path.join(cache, f"tray-{_file(tray)}"))
    if text is None:
        return None
    data = json.loads(text)
    if data.get("wrong"):
        raise fabric_file.FabricFileError(f"{path}: {data['wrong']}")
    return Clique(data["name"], tuple(data["trays"]), tuple(data["entries"]), tuple(data["slurm_nodes"]))


def _cliques(folder: str, path: str) -> str:
    """The folder of the parsed fabric file, which the first fork makes."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise fabric_file.FabricFileError(
            f"{path}: cannot be read ({error.strerror}); name the fabric file that discover wrote"
        ) from None
    token = hashlib.sha256(f"{os.path.abspath(path)} {status.st_mtime_ns} {status.st_size}".encode()).hexdigest()[:16]
    cache = os.path.join(folder, "nvlink-imex", f"fabric-{token}")
    if os.path.isdir(cache):
        return cache
    with _writing(cache):
        os.makedirs(os.path.dirname(cache), mode=0o700, exist_ok=True)
    with _writing(cache), open(f"{cache}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.isdir(cache):
            return cache
        fabric = fabric_file.load(path)
        unfinished = f"{cache}.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        os.mkdir(unfinished)
        wrong = {note["clique"]: note["message"] for note in rendering.findings(fabric, State())}
        for name, trays in fabric.members.items():
            data = {
                "name": name,
                "trays": trays,
                "entries": [fabric.trays[tray]["imex_address"] for tray in trays],
                "slurm_nodes": [fabric.trays[tray]["slurm_node"] for tray in trays],
                "wrong": wrong.get(name),
            }
            target = f"clique-{_file(name)}"
            Path(unfinished, target).write_text(json.dumps(data), encoding="utf-8")
            # A fork reads the clique of its tray alone, however many trays there are.
            for tray in trays:
                os.symlink(target, os.path.join(unfinished, f"tray-{_file(tray)}"))
        os.rename(unfinished, cache)
    return cache


def play_of(task: Any) -> str:
    """The play that the rows of a task belong to, equal in all forks of Ansible."""
    return str(task.play._uuid)


def write_row(folder: str, play: str, phase: str, tray: str, row: Mapping[str, object]) -> None:
    """Store the result of a tray in a phase of a play."""
    directory = os.path.join(folder, "nvlink-imex", f"play-{quote(play, safe='')}", phase)
    target = os.path.join(directory, _file(tray))
    with _writing(target):
        os.makedirs(directory, mode=0o700, exist_ok=True)
        atomic.write(target, json.dumps(row).encode(), durable=False, follow=False, listed=False)


def read_rows(folder: str, play: str, phase: str, trays: Iterable[str]) -> dict[str, Any]:
    """tray -> its result in a phase, of the trays that have one."""
    directory = os.path.join(folder, "nvlink-imex", f"play-{quote(play, safe='')}", phase)
    found = {}
    for tray in trays:
        text = atomic.read_text(os.path.join(directory, _file(tray)))
        if text is not None:
            found[tray] = json.loads(text)
    return found


def trays(folder: str, play: str, phase: str) -> list[str]:
    """The trays that have a result in a phase, sorted."""
    directory = os.path.join(folder, "nvlink-imex", f"play-{quote(play, safe='')}", phase)
    names = os.listdir(directory) if os.path.isdir(directory) else []
    # atomic.write makes its temporary files beside the others.
    return sorted(unquote(name.removesuffix(".json")) for name in names if name.endswith(".json"))


def delete_rows(folder: str, play: str, phases: Iterable[str], tray: str) -> None:
    """Delete the results of a tray from an earlier run of the role in the same play."""
    for phase in phases:
        path = os.path.join(folder, "nvlink-imex", f"play-{quote(play, safe='')}", phase, _file(tray))
        with _writing(path), contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _file(name: str) -> str:
    return f"{quote(name, safe='')}.json"


@contextlib.contextmanager
def _writing(path: str) -> Iterator[None]:
    """Raise FabricFileError where the file system refuses to write."""
    try:
        yield
    except OSError as error:
        raise storage.cannot(path, "be written", error) from None
