# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An append-only file of JSON lines, one before and one after each step of what may be killed in between.

The ledger of repair has this form, and so may the journal of another change that takes hours.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TypedDict, cast

from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import MAX_FLEET_FILE
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import storage
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.fabric_file import FabricFileError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, mapped

BEGIN, DONE, FAILED, REFUSED = "begin", "done", "failed", "refused"
"""The states of a line."""

_FIRST = b'{"at": "'


class Line(TypedDict):
    """One line. at: RFC 3339, in UTC. incident: empty where a line is about none."""

    incident: str
    at: str
    step: str
    state: str
    subject: str
    code: str
    detail: str


def read(path: str) -> list[Line]:
    """All lines of a file; none without one. FabricFileError for a line that is none.

    A torn line, of a run that was killed while it wrote, is left out: it is the last one, or append() has ended it.
    """
    try:
        data = atomic.bounded(path, MAX_FLEET_FILE)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise storage.cannot(path, "be read", error) from None
    found = []
    for number, text in enumerate(data.split(b"\n"), 1):
        line = _line(text)
        if line is not None:
            found.append(line)
        elif text and not _is_torn(text):
            raise FabricFileError(f"{path}: line {number} is no line of a journal; correct it, or move the file away")
    return found


def append(path: str, lines: Sequence[Line]) -> None:
    """Append lines durably, in one write; of a run that is killed there the first ones may be in the file."""
    if lines:
        storage.append_line(path, encode(lines))


def encode(lines: Sequence[Line]) -> bytes:
    """The text of lines, without the last newline."""
    return b"\n".join(json.dumps(line, sort_keys=True).encode() for line in lines)


def content(text: str | bytes) -> Object:
    """The JSON object in a text, such as the detail of a line that a person may have edited; empty without one."""
    try:
        return mapped(json.loads(text))
    except (ValueError, RecursionError):
        return {}


def _line(text: bytes) -> Line | None:
    row = content(text)
    is_line = row.keys() == Line.__annotations__.keys() and all(isinstance(value, str) for value in row.values())
    return cast("Line", row) if is_line else None


def _is_torn(text: bytes) -> bool:
    """Whether a text is only the beginning of a line, whose first key is at and whose last one is subject."""
    begins = text.startswith(_FIRST[: len(text)])
    return begins and not (b', "subject": "' in text and text.endswith(b'"}'))
