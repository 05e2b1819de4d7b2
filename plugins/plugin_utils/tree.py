# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A directory tree of generated files: written only where bytes differ, cleared of what is no longer generated.

A manifest in the tree remembers what was written, so that nothing is ever removed that a person put there or changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError

SCHEMA_VERSION = 1


class TreeError(NvlinkError):
    """A tree that cannot be read or written."""


class File(NamedTuple):
    """A file to generate; part says who generates it, executable whether it can be run."""

    text: str
    part: str
    executable: bool = False


class Change(NamedTuple):
    """One file's step; before is None for a new one, after is None for a removed one."""

    path: str
    before: bytes | None
    after: bytes | None


@dataclass(frozen=True)
class Plan:
    """What has to change in a tree; ``kept`` are files no longer generated that a person has changed since."""

    root: Path
    manifest: str
    changes: list[Change] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    executables: frozenset[str] = frozenset()

    def apply(self) -> None:
        """Make the changes, every file atomically, the manifest last."""
        try:
            for change in self.changes:
                target = self.root / change.path
                if change.after is None:
                    target.unlink(missing_ok=True)
                    _prune(target.parent, self.root)
                else:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    _write(target, change.after, change.path in self.executables)
        except OSError as error:
            raise TreeError(
                f"{self.root}: cannot be written ({error.strerror or error}): give a directory that you may write to"
            ) from error


def plan(root: str, files: Mapping[str, File], parts: set[str], manifest: str) -> Plan:
    """Compare a tree with what it should hold.

    Only files of ``parts`` are looked at, so that a run of some generators leaves what the others wrote. ``manifest``
    names the file in ``root`` that remembers what was written.
    """
    base = Path(root)
    written = _written(base / manifest)
    changes: list[Change] = []
    kept: list[str] = []
    for path, file in sorted(files.items()):
        if not _is_inside(path):
            raise TreeError(f"{path!r}: is no path below {root}: rename the clique or tray that it is made of")
        before, after = _read(base / path), file.text.encode()
        if before != after or (file.executable and not os.access(base / path, os.X_OK)):
            changes.append(Change(path, before, after))
    remembered = {path: entry for path, entry in written.items() if entry["part"] not in parts}
    for path, entry in sorted(written.items()):
        if path in files or path in remembered:
            continue
        before = _read(base / path)
        if before is None:
            continue
        if _sha256(before) == entry["sha256"]:
            changes.append(Change(path, before, None))
        else:
            kept.append(path)
    remembered |= {path: {"part": file.part, "sha256": _sha256(file.text.encode())} for path, file in files.items()}
    document = {"schema_version": SCHEMA_VERSION, "files": remembered}
    notes = (json.dumps(document, sort_keys=True, indent=1) + "\n").encode()
    before = _read(base / manifest)
    if before != notes:
        changes.append(Change(manifest, before, notes))
    return Plan(base, manifest, changes, kept, frozenset(path for path, file in files.items() if file.executable))


def _is_inside(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return bool(parts) and path.isprintable() and not path.startswith("/") and ".." not in parts and "." not in parts


def _written(manifest: Path) -> dict[str, dict[str, Any]]:
    data = _read(manifest)
    if data is None:
        return {}
    try:
        files = json.loads(data)["files"]
        if all(_is_inside(path) and {"part", "sha256"} <= set(entry) for path, entry in files.items()):
            return dict(files)
    except (ValueError, TypeError, KeyError, AttributeError):
        pass
    raise TreeError(f"{manifest}: is not the list of files that was written there: remove it and what it stood for")


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise TreeError(f"{path}: cannot be read ({error.strerror}): remove it or give another directory") from error


def _write(target: Path, data: bytes, executable: bool) -> None:
    # In the same directory, so that the rename is atomic; the mode is the process's usual one, by its umask. Not synced
    # to the disk: what a crash takes can be generated again.
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o777 if executable else 0o666)
    try:
        with open(descriptor, "wb") as stream:
            stream.write(data)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _prune(directory: Path, root: Path) -> None:
    """Remove directories that a removed file leaves empty, never the root."""
    while directory != root and root in directory.parents:
        try:
            directory.rmdir()
        except OSError:
            return
        directory = directory.parent


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
