# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of the controller and JSON documents, no larger than the memory bears."""

from __future__ import annotations

import json
import os
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils import atomic

MAX_FLEET_FILE = 1 << 28
"""Bytes of a file that grows with the fleet: fabric file, state, proposal, verdict, what is rendered.

The fabric file of 100,000 trays has 47 MB."""

# Of an answer's largest size. A value costs up to 200 bytes of memory, and an empty list has 3 characters.
BYTES_PER_VALUE = 32


class TooManyValuesError(ValueError):
    """An answer has so many values that they would exhaust the memory."""


def check_count(values: int, max_size: int) -> None:
    """TooManyValuesError for more values than an answer of at most max_size bytes may have."""
    if values > max_size // BYTES_PER_VALUE:
        raise TooManyValuesError(f"has more than {max_size // BYTES_PER_VALUE} values")


def count_values(data: bytes | bytearray, max_size: int) -> None:
    """check_count() of a JSON document, by its commas and opening brackets, those in texts too."""
    check_count(sum(map(data.count, (b",", b"[", b"{"))), max_size)


def json_document(data: bytes | bytearray, max_size: int) -> Any:
    """The JSON document in an answer; ValueError or RecursionError if it is none, or has too many values."""
    count_values(data, max_size)
    return json.loads(data)


def json_file(path: str) -> Any:
    """The JSON document in a file; None where there is none, or none that can be read."""
    try:
        return json.loads(atomic.bounded(path, MAX_FLEET_FILE))
    except (OSError, ValueError, RecursionError):
        return None


def absolute(path: object) -> str:
    """The path of a file of the controller that a person names: a relative one starts at the working folder.

    Not as DataLoader.path_dwim(), for which it starts at the playbook, which may be one of this collection.
    """
    return os.path.abspath(os.path.expanduser(str(path)))
