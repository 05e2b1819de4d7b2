# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write a directory tree of generated files: only where bytes differ, and without files that are no longer generated.

A manifest in the tree lists what was written, so that files that a person added or changed are never removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import MAX_FLEET_FILE
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import RenderError

SCHEMA_VERSION = 1
# Lists the files that were written.
MANIFEST = ".fabric_render.json"
# In bytes; what is longer is not useful in a diff.
LONGEST_DIFF = 100_000


class Change(NamedTuple):
    """The change of one file; before is None for a new file, after is None for a removed one."""

    path: str
    before: bytes | None
    after: bytes | None

    def difference(self, root: str, summary: bool) -> dict[str, str]:
        """The difference as Ansible prints it; summary: one word, as for a file above LONGEST_DIFF."""
        path, old, new = os.path.join(root, self.path), self.before or b"", self.after or b""
        if summary or max(len(old), len(new)) > LONGEST_DIFF:
            word = "removed" if self.after is None else "new" if self.before is None else "changed"
            return {"prepared": f"{path}: {word}\n"}
        texts = {"before": old.decode(errors="replace"), "after": new.decode(errors="replace")}
        return {"before_header": path, "after_header": path, **texts}


@dataclass(frozen=True)
class Plan:
    """The changes of a tree and of its manifest; kept: files that are no longer generated, but a person changed."""

    root: Path
    changes: list[Change]
    manifest: Change
    kept: list[str]

    @property
    def changed(self) -> bool:
        """Whether anything changes."""
        return bool(self.changes) or self.manifest.before != self.manifest.after

    def apply(self) -> None:
        """Write the changes, each file atomically, the manifest last."""
        try:
            for change in [*self.changes, self.manifest] if self.changed else []:
                target = self.root / change.path
                if change.after is None:
                    with contextlib.suppress(FileNotFoundError):
                        atomic.remove(str(target))
                    # The root is never empty: it has the manifest, which listed the file.
                    with contextlib.suppress(OSError):
                        os.removedirs(target.parent)
                else:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    # Not durable: files that a crash loses can be generated again.
                    atomic.write(str(target), change.after, durable=False, follow=False)
        except OSError as error:
            raise RenderError(
                f"{self.root}: cannot be written ({error.strerror or error}): free space on its file system, "
                "or use a writable directory"
            ) from None


def plan(root: str, parts: Mapping[str, Mapping[str, str]], replace: bool = False) -> Plan:
    """Compare a tree with its desired files; RenderError for a file that the manifest does not list, unless replace.

    parts: generator -> path -> text. The files of other generators stay.
    """
    base = Path(root)
    written = _written(base)
    files = {path: text.encode() for texts in parts.values() for path, text in texts.items()}
    changes: list[Change] = []
    kept: list[str] = []
    for path, after in sorted(files.items()):
        before = _read(base, path)
        if before != after:
            changes.append(Change(path, before, after))
    foreign = [row.path for row in changes if row.before is not None and row.path not in written]
    if foreign and not replace:
        raise RenderError(
            f"{root}: no earlier run has written {summarize(foreign)} there: use another directory, or replace what is"
            " there with -e render_replace=true"
        )
    listed = {path: entry for path, entry in written.items() if entry["part"] not in parts}
    for path, entry in sorted(written.items()):
        if path in files or path in listed:
            continue
        before = _read(base, path)
        if before is None:
            continue
        if _sha256(before) == entry["sha256"]:
            changes.append(Change(path, before, None))
        else:
            kept.append(path)
    for part, texts in parts.items():
        listed |= {path: {"part": part, "sha256": _sha256(files[path])} for path in texts}
    document = {"schema_version": SCHEMA_VERSION, "files": listed}
    content = (json.dumps(document, sort_keys=True, indent=1) + "\n").encode()
    return Plan(base, changes, Change(MANIFEST, _read(base, MANIFEST), content), kept)


def _is_inside(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return bool(parts) and path.isprintable() and not path.startswith("/") and ".." not in parts and "." not in parts


def _written(base: Path) -> dict[str, dict[str, Any]]:
    data = _read(base, MANIFEST)
    if data is None:
        return {}
    try:
        files = json.loads(data)["files"]
        if all(_is_inside(path) and {"part", "sha256"} <= set(entry) for path, entry in files.items()):
            return dict(files)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass
    what = "is not a valid list of written files: remove it and the files of earlier runs"
    raise RenderError(f"{base / MANIFEST}: {what}")


def _read(base: Path, path: str) -> bytes | None:
    """Read a file of the tree; RenderError where a folder between the root and the file is a symbolic link."""
    file = base / path
    for folder in file.parents[: len(PurePosixPath(path).parts) - 1]:
        if folder.is_symlink():
            raise RenderError(
                f"{folder}: is a symbolic link, through which files outside {base} would change; remove the link"
            )
    try:
        return atomic.read(str(file), MAX_FLEET_FILE)
    except OSError as error:
        raise RenderError(f"{file}: cannot be read ({error.strerror}): remove it or use another directory") from None


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
