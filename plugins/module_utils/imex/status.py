# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse the output of nvidia-imex-ctl: -q and -N -j, of the releases 570 to 595.

Words are returned in lower case. Unknown words of other releases are kept, unknown keys are ignored. Only output
without any known structure is an error.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.imex.formats import ImexError

MAX_NODES = 4096
NOT_CONFIGURED = "Failed to read node configuration file"

_ID = re.compile("[0-9]{1,6}")
_WORD = re.compile("[A-Za-z][A-Za-z0-9_ ]{0,47}")
_VERSION = re.compile(r"NO_GPU|[0-9]{1,6}(\.[0-9A-Za-z]{1,16}){0,5}")


class StatusError(ImexError):
    """The output of nvidia-imex-ctl cannot be parsed."""


class Node(NamedTuple):
    """One row. Connections: node id -> word."""

    state: str | None
    version: str | None
    connections: dict[int, str]


class Domain(NamedTuple):
    """``own``: the row of the host itself, None where there is none; that of another may be filled in from the list.

    states: node id -> the state in its row, which is unavailable for one that does not answer this host's daemon.
    """

    status: str | None
    own: Node | None
    states: dict[int, str | None]


def parse_state(text: str) -> str | None:
    """The state that -q prints; None for any other text, as that of an error."""
    words = text.split()
    word = words[0] if len(words) == 1 else ""
    return word.lower() if re.fullmatch(r"[A-Z][A-Z_]{2,39}", word) else None


def parse_domain(text: str, own_id: int | None) -> Domain:
    """Parse the output of -N -j. Raises StatusError where it is another text.

    ``own_id``: the host's node id, None where the list does not name it.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise StatusError("nvidia-imex-ctl -N -j printed no JSON") from None
    if not isinstance(data, dict) or not isinstance(data.get("nodes"), dict):
        raise StatusError("nvidia-imex-ctl -N -j printed JSON without nodes")
    row = data["nodes"].get(str(own_id))
    own = None
    if isinstance(row, dict):
        version = row.get("version")
        is_version = isinstance(version, str) and _VERSION.fullmatch(version)
        own = Node(_word(row.get("status")), version if is_version else None, _connections(row.get("connections")))
    rows = {int(key): node for key, node in data["nodes"].items() if _is_id(key) and isinstance(node, dict)}
    states = {number: _word(node.get("status")) for number, node in rows.items()}
    return Domain(_word(data.get("status")), own, states)


def is_same_version(one: str, other: str) -> bool:
    """Whether two versions are equal in the parts of the shorter one: R570's ctl prints 570.172 for 570.172.08.

    At least two numbers must be equal: the first alone is the branch.
    """
    pair = one.split("."), other.split(".")
    known = min(map(len, pair))
    return one == other or (known > 1 and pair[0][:known] == pair[1][:known])


def _connections(value: Any) -> dict[int, str]:
    found: dict[int, str] = {}
    for key, cell in value.items() if isinstance(value, dict) else ():
        word = _connection(cell.get("status") if isinstance(cell, dict) else cell)
        if _is_id(key) and word is not None:
            found[int(key)] = word
    return found


def _is_id(key: str) -> bool:
    return bool(_ID.fullmatch(key)) and int(key) < MAX_NODES


def _connection(value: Any) -> str | None:
    """One word for a connection, however a release writes a mismatch."""
    word = _word(value)
    if word is None:
        return None
    if "version" in word and "mismatch" in word:
        return "version_mismatch"
    if "mismatch" in word and ("map" in word or "config" in word):
        return "map_mismatch"
    return "authentication_error" if word.startswith("auth") and ("error" in word or "fail" in word) else word


def _word(value: Any) -> str | None:
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        return None
    return re.sub("[ _]+", "_", value.strip()).lower()
